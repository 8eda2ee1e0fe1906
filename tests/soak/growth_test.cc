/* A growing heap gives back the free memory inside partly used slabs as it grows. Otherwise each change in what a
 * server does leaves the pages of the previous sizes behind, until only a restart helps.
 *
 *  1. 96 MiB of blocks of 64 KiB are live, eight in a slab. Then two of each eight are freed: their pages are free and
 *     unused.
 *  2. The same amount was live before and is free: its slots are EMPTY, and everything that is allocated from now on
 *     fits into them. They stay, however long the test takes.
 *  3. 48 MiB of small blocks are allocated, 1 MiB each 10 ms by a clock of the test's own. Afterwards the free pages
 *     must be gone.
 *
 * While that clock stands they stay: what is free for a moment is often wanted again, or free as a whole soon. And a
 * heap that is only as large again as it was a moment ago is left alone. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>
#include <hakmem.h>

#include "../heap_stats.h"
#include "../support.h"

static uint64_t now_ms = 1'000'000;
/* It stands in for libc's. */
extern "C" int clock_gettime(clockid_t, struct timespec *now) noexcept {
    *now = {static_cast<time_t>(now_ms / 1000), static_cast<long>(now_ms % 1000 * 1'000'000)};
    return 0;
}

namespace {

double counted(const char *counter) { return heap_stats()["counters"][counter].number; }

std::vector<void *> blocks_of(size_t size, size_t bytes) {
    std::vector<void *> blocks;
    for (size_t got = 0; got < bytes; got += size) {
        blocks.push_back(hak_malloc(size));
        memset(blocks.back(), 1, size);
    }
    return blocks;
}

void free_all(const std::vector<void *> &blocks) {
    for (void *p : blocks)
        hak_free(p);
}

/* Two blocks in eight: neighbours, so that slabs have free pages. */
void free_a_quarter(std::vector<void *> &blocks) {
    for (size_t i = 0; i < blocks.size(); i++)
        if (i % 8 < 2) {
            hak_free(blocks[i]);
            blocks[i] = nullptr;
        }
}

/* Slots that were taken without memory. */
double taken_unused() { return counted("stage2_used_unused") + counted("stage3_new"); }

TEST(Growth, IntoEmptySlotsGivesBackWhatIsFreeInsideSlabs) {
    for (auto [name, value] :
         {std::pair{"RETAIN_PERCENT", "200"}, {"DECAY_MS", "1000000"}, {"SS_CACHE_AGE_MS", "1000000"}})
        ASSERT_EQ(hak_option_set(name, value), 0);
    std::vector<void *> kept = blocks_of(64 * kKiB, 96 * kMiB);
    free_all(blocks_of(512 * kKiB, 96 * kMiB));
    free_a_quarter(kept);
    double pages = counted("trimmed_pages"), unused = taken_unused();
    std::vector<void *> small;
    for (int ms : {0, 10}) {
        EXPECT_EQ(counted("trimmed_pages"), pages) << "nothing has been free for long";
        for (int i = 0; i < 24; i++, now_ms += ms)
            for (void *block : blocks_of(kKiB, kMiB))
                small.push_back(block);
    }
    EXPECT_EQ(taken_unused(), unused) << "the growth was to be into EMPTY slots";
    double bytes = (counted("trimmed_pages") - pages) * static_cast<double>(getpagesize());
    EXPECT_GE(bytes, 16.0 * kMiB) << "of 24 MiB, less what is in the thread's ring";
    free_all(small);
    free_all(kept);
}

/* A heap that shrinks a little and is soon as large as before has not grown, so nobody looks: what it takes anew costs
 * page faults already, and its slabs would want their pages back as well. */
TEST(Growth, BackToWhatWasInUseLatelyIsNone) {
    for (auto [name, value] : {std::pair{"RETAIN_PERCENT", "0"}, {"RETAIN_BYTES", "0"}, {"DECAY_MS", "1000000"}})
        ASSERT_EQ(hak_option_set(name, value), 0);
    std::vector<void *> kept = blocks_of(64 * kKiB, 96 * kMiB), more = blocks_of(512 * kKiB, 8 * kMiB);
    free_a_quarter(kept);
    double pages = counted("trimmed_pages"), unused = taken_unused();
    for (int round = 0; round < 10; round++, now_ms += 10) {
        free_all(more);
        more = blocks_of(512 * kKiB, 8 * kMiB);
    }
    EXPECT_GE(taken_unused(), unused + 10) << "memory was to leave and come back";
    EXPECT_EQ(counted("trimmed_pages"), pages);
    free_all(more);
    free_all(kept);
}

} // namespace
