/* Two threads free a mid or large block at exactly the same moment, and neither sees the other's free: the block is in
 * two rings. The first ring to give the block back does so; the second one reports the double free. If it fails, two
 * later allocations may get the same block. The test sets the block's state back between two frees, which leaves the
 * same state behind. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>
#include <hakmem.h>

#include <future>
#include <thread>

#include "../support.h"
#include "inside.h"

namespace {

class SameMomentDeathTest : public testing::TestWithParam<size_t> {};

/* Leaves the block in the rings of two threads; the first of them ends, and its ring gives the block back. */
void free_twice(size_t bytes) {
    void *p = hak_malloc(bytes);
    std::promise<void> freed, freed_again;
    std::thread first([&] {
        hak_free(p);
        freed.set_value();
        freed_again.get_future().wait();
    });
    freed.get_future().wait();
    inside_block_set_live(p);
    hak_free(p);
    freed_again.set_value();
    first.join();
}

TEST_P(SameMomentDeathTest, IsReportedWhenTheSecondRingGivesTheBlockBack) {
    EXPECT_DEATH(
        {
            hak_option_set("PURGE", "never"); /* no block is made inaccessible when it is freed */
            free_twice(GetParam());
            hak_trim();
        },
        "hakmem: double free of 0x[0-9a-f]+ \\([0-9]+-byte block\\)");
}

INSTANTIATE_TEST_SUITE_P(Sizes, SameMomentDeathTest, testing::Values(2000, 40000, 200000));

/* What lies behind a slab's last block is no block, whatever its record had there before. */
TEST(BehindTheLastBlockDeathTest, NoBlockIsFreed) {
    for (size_t bytes : {2000, 5000, 20000, 40000}) {
        void *p = hak_malloc(bytes), *behind = inside_behind_last_block(p);
        if (behind != nullptr)
            EXPECT_DEATH(hak_free(behind), "hakmem: invalid free of 0x[0-9a-f]+ ") << bytes;
        hak_free(p);
    }
}

/* A tiny block could not be freed, and by the second look its slab has become another kind's, with a live block there:
 * that is somebody else's. */
TEST(SecondLookDeathTest, FreesNoBlockOfAnotherKind) {
    void *tiny = hak_malloc(100), *mid = hak_malloc(5000);
    EXPECT_TRUE(inside_may_be_freed(tiny));
    EXPECT_DEATH(inside_may_be_freed(mid),
                 "hakmem: double free of 0x[0-9a-f]+ \\(5120-byte block, freed by this thread\\)");
    hak_free(tiny);
    hak_free(mid);
}

} // namespace
