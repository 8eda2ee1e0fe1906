/* A kind of slabs is a file and a row: every call of the interface works with blocks of a kind that the library has
 * never heard of (toy_kind.c). If it fails, adding a tier means finding all the places that know which tiers there
 * are. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>
#include <hakmem.h>

#include "../heap_stats.h"
#include "../support.h"
#include "inside.h"
#include "toy_kind.h"

namespace {

double stat(const char *name) { return heap_stats()["rss_bytes"][name].number; }

TEST(Kinds, ABlockOfANewKindIsFoundResizedAndFreed) {
    auto *p = static_cast<char *>(toy_malloc(100));
    ASSERT_NE(p, nullptr);
    EXPECT_EQ(hak_usable_size(p), inside_slot_bytes);
    memset(p, 7, inside_slot_bytes);
    char *q = static_cast<char *>(hak_realloc(p, 200 * kKiB));
    ASSERT_NE(q, nullptr);
    EXPECT_NE(q, p) << "the kind cannot resize";
    for (size_t i = 0; i < inside_slot_bytes; i++)
        ASSERT_EQ(q[i], 7) << "at byte " << i;
    EXPECT_EQ(toy_malloc(100), p) << "realloc did not free the block";
    hak_free(p);
    hak_free(q);
}

TEST(Kinds, TheStatisticsCountANewKind) {
    double live = stat("live");
    void *p = toy_malloc(100);
    memset(p, 1, inside_slot_bytes);
    EXPECT_EQ(stat("live") - live, inside_slot_bytes);
    double cached = stat("thread_caches");
    hak_free(p);
    EXPECT_EQ(stat("live"), live);
    EXPECT_EQ(stat("thread_caches") - cached, inside_slot_bytes);
}

TEST(Kinds, WhatANewKindHoldsBackIsReleased) {
    hak_free(toy_malloc(100));
    ASSERT_TRUE(toy_has_kept_a_block());
    hak_trim();
    EXPECT_FALSE(toy_has_kept_a_block());
}

/* A large block has one record, and the further slots belong to it, but not the one behind. */
TEST(KindsDeathTest, APointerBehindALargeBlockIsInNone) {
    auto *p = static_cast<char *>(hak_malloc(4 * inside_slot_bytes));
    EXPECT_DEATH(hak_free(p + 3 * inside_slot_bytes), "\\(inside a 262144-byte block\\)");
    EXPECT_DEATH(hak_free(p + 4 * inside_slot_bytes), "\\(not a block: the heap has nothing there\\)");
    hak_free(p);
}

/* A wild pointer into a guard pool that another thread is just making: nothing says yet where the pool is. */
TEST(KindsDeathTest, ABlockInAGuardPoolThatIsJustBeingMade) {
    auto *p = static_cast<char *>(hak_malloc(4 * inside_slot_bytes));
    EXPECT_DEATH((inside_record_guard(p), hak_free(p)), "invalid free of .* \\(a block that was never handed out\\)");
    hak_free(p);
}

TEST(KindsDeathTest, ErrorsAreReportedByTheKind) {
    auto *p = static_cast<char *>(toy_malloc(100));
    EXPECT_DEATH(hak_free(p + 64), "hakmem: invalid free of 0x[0-9a-f]+ \\(inside a 65536-byte block\\)");
    EXPECT_DEATH(EXPECT_EQ(hak_realloc(p + 64, 10), nullptr),
                 "hakmem: invalid pointer 0x[0-9a-f]+ in realloc \\(inside a 65536-byte block\\)");
    hak_free(p);
    EXPECT_DEATH(hak_free(p), "hakmem: double free of 0x[0-9a-f]+ \\(65536-byte block\\)");
    EXPECT_EXIT(exit(hak_usable_size(p) == 0 ? 0 : 1), testing::ExitedWithCode(0), "\\(a block that is free\\)");
}

} // namespace
