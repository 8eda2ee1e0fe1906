/* The ledger of allocations and misses. If one fails, the figures by class that statistics and `hakmem top` show are
 * wrong. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>
#include <hakmem.h>

#include <chrono>
#include <thread>

#include "../heap_stats.h"
#include "../support.h"

namespace {

/* A figure of the table for blocks of that size; 0 if there is none. */
long figure_of(const char *table, double block_bytes, const char *name) {
    Json stats = heap_stats();
    for (auto &one : stats[table].items)
        if (one["block_bytes"].number == block_bytes && one.has(name))
            return static_cast<long>(one[name].number);
    return 0;
}

long allocations(double block_bytes) { return figure_of("tiny_classes", block_bytes, "allocations"); }

class Ledger : public testing::Test {
  protected:
    void SetUp() override {
        if (in_secure_mode())
            GTEST_SKIP() << "other tiers";
    }
};

/* Replaces random blocks, which frees into current slabs, full ones and partly used ones. Returns the number of
 * mallocs. */
long churn(size_t bytes, size_t slots, int steps, uint64_t seed) {
    Random random(seed);
    std::vector<void *> blocks(slots);
    long mallocs = 0;
    for (int i = 0; i < steps; i++) {
        void *&block = blocks[random.below(slots)];
        hak_free(block);
        block = random.below(8) != 0 ? hak_malloc(bytes) : nullptr;
        mallocs += block != nullptr;
    }
    for (void *block : blocks)
        hak_free(block);
    return mallocs;
}

/* Exactly, though no hit counts anything. */
TEST_F(Ledger, CountsEveryAllocation) {
    for (size_t bytes : {16, 48, 112, 256, 448, 1024}) {
        for (size_t slots : {1, 100, 5000}) {
            long before = allocations(bytes), made = churn(bytes, slots, times(50000), slots);
            EXPECT_EQ(allocations(bytes) - before, made) << bytes << " bytes, " << slots << " blocks";
        }
    }
}

TEST_F(Ledger, CountsThoseOfThreadsThatEnded) {
    long before = allocations(80), made[4] = {};
    for (int round = 0; round < 3; round++) {
        std::vector<std::thread> threads;
        for (int i = 0; i < 4; i++)
            threads.emplace_back([&, i] { made[i] += churn(80, 300, times(20000), i); });
        for (auto &thread : threads)
            thread.join();
    }
    EXPECT_EQ(allocations(80) - before, made[0] + made[1] + made[2] + made[3]);
}

TEST_F(Ledger, CountsWhatOtherThreadsFree) {
    long before = allocations(208), made = 0;
    for (int round = 0; round < 5; round++) {
        std::vector<void *> blocks(3000);
        for (void *&block : blocks)
            block = hak_malloc(208);
        made += 3000;
        std::thread([&] {
            for (void *block : blocks)
                hak_free(block);
        }).join();
    }
    EXPECT_EQ(allocations(208) - before, made);
}

TEST_F(Ledger, CountsWhileTheProfileSamples) {
    hak_option_set("PROFILE_RATE", "0");
    ASSERT_EQ(hak_profile_start(4096), 0);
    long before = allocations(320), sampled = counter("samples_taken") + counter("samples_dropped");
    long made = churn(320, 2000, times(50000), 3);
    sampled = counter("samples_taken") + counter("samples_dropped") - sampled;
    hak_profile_stop();
    EXPECT_GT(sampled, 0);
    /* A sampled request gets a mid block, and the statistics may have been among the sampled. */
    EXPECT_NEAR(allocations(320) - before, made - sampled, 16);
}

/* Rings count as exactly as lists, whatever happened to them: full, emptied, moved to where there is more room, their
 * thread ended. */
TEST_F(Ledger, CountsEveryAllocationFromRings) {
    for (size_t bytes : {hak_good_size(1025), size_t{2048}, size_t{8192}, size_t{65536}}) { /* from the smallest on */
        for (size_t slots : {1, 100, 2000}) {
            long before = figure_of("rings", bytes, "allocations"), made = churn(bytes, slots, times(20000), slots);
            std::thread([&] { made += churn(bytes, slots / 2 + 1, times(5000), slots + 1); }).join();
            EXPECT_EQ(figure_of("rings", bytes, "allocations") - before, made)
                << bytes << " bytes, " << slots << " blocks";
        }
    }
    long before = figure_of("rings", 192 * kKiB, "allocations"), made = churn(192 * kKiB, 20, times(2000), 1);
    EXPECT_EQ(figure_of("rings", 192 * kKiB, "allocations") - before, made);
}

/* The largest blocks that have a class are blocks of it where they are to be aligned, too. */
TEST_F(Ledger, AlignedBlocksAreThoseOfTheirClass) {
    long before = counter("large_spans");
    std::thread([] { hak_free(hak_aligned_alloc(64 * kKiB, 64 * kKiB)); }).join(); /* has no rings yet */
    EXPECT_EQ(counter("large_spans"), before);
}

TEST_F(Ledger, TellsWhatRingsHold) {
    hak_trim(); /* what other tests left there */
    EXPECT_EQ(figure_of("rings", 12288, "held_bytes"), 0);
    long held = 0;
    for (int tries = 0; tries < 100 && held == 0;
         tries++) { /* a purger may have emptied them before they are counted */
        hak_free(hak_malloc(12288));
        held = figure_of("rings", 12288, "held_bytes");
    }
    EXPECT_GE(held, 12288);
    hak_trim();
    EXPECT_EQ(figure_of("rings", 12288, "held_bytes"), 0);
}

TEST_F(Ledger, TellsMissesOfListsAndRings) {
    long before = figure_of("tiny_classes", 576, "misses");
    std::vector<void *> blocks(1000);
    for (void *&block : blocks)
        block = hak_malloc(576);
    long misses = figure_of("tiny_classes", 576, "misses") - before;
    EXPECT_GE(misses, 1000 / 7) << "a page has seven such blocks";
    EXPECT_LE(misses, 1000 / 4);
    for (void *&block : blocks) {
        hak_free(block);
        block = hak_malloc(5000);
    }
    long refills = figure_of("rings", 5120, "misses");
    EXPECT_GE(refills, 1000 / 64);
    EXPECT_GE(figure_of("rings", 5120, "refilled_blocks") + refills, 1000);
    for (void *block : blocks)
        hak_free(block);
    hak_free(hak_malloc(300 * kKiB));
    EXPECT_EQ(figure_of("rings", 320 * kKiB, "misses"), 1);
}

/* An arena takes the heap of a thread that ended, and ends, too. */
TEST_F(Ledger, KeepsTheTimesOfHeapsThatServedAnArena) {
    hak_option_set("ACE", "observe");
    std::thread([] { churn(896, 5000, 50000, 1); }).join();
    long timed = figure_of("tiny_classes", 896, "timed_misses"), ns = figure_of("tiny_classes", 896, "miss_ns");
    EXPECT_GT(timed, 0);
    hak_arena *arena = hak_arena_new(nullptr);
    void *block = hak_arena_malloc(arena, 100);
    EXPECT_NE(block, nullptr);
    hak_arena_destroy(arena);
    EXPECT_EQ(figure_of("tiny_classes", 896, "timed_misses"), timed);
    EXPECT_EQ(figure_of("tiny_classes", 896, "miss_ns"), ns);
    hak_option_set("ACE", "0");
}

/* Many large blocks, which no ring can hold together, are allocated one after the other, and freed: of each 64 half are
 * misses at most, as a miss brings further blocks from EMPTY slots. None overlaps another. A first and a second miss
 * bring one block each, so that what is behind a lone block stays free for it to grow. */
TEST_F(Ledger, MissesOfLargeBlocksBringMoreWhenTheyFollowEachOther) {
    constexpr size_t kBlocks = 64, kBytes = 200 * kKiB, kSlots = 256 * kKiB;
    ASSERT_EQ(hak_option_set("RETAIN_BYTES", "128m"), 0); /* all that is freed stays EMPTY */
    std::thread([&] {                                     /* has no rings yet */
                      std::vector<size_t *> blocks(kBlocks);
                      long misses = 0, spans = 0;
                      for (int round = 0; round < 4; round++) {
                          misses = figure_of("rings", kSlots, "misses");
                          spans = counter("large_spans");
                          for (size_t i = 0; i < kBlocks; i++) {
                              blocks[i] = static_cast<size_t *>(hak_malloc(kBytes));
                              ASSERT_NE(blocks[i], nullptr);
                              blocks[i][0] = blocks[i][kBytes / sizeof(size_t) - 1] = i;
                              if (i < 2) {
                                  EXPECT_EQ(counter("large_spans") - spans,
                                            figure_of("rings", kSlots, "misses") - misses);
                              }
                          }
                          misses = figure_of("rings", kSlots, "misses") - misses;
                          for (size_t i = 0; i < kBlocks; i++) {
                              EXPECT_EQ(blocks[i][0], i);
                              EXPECT_EQ(blocks[i][kBytes / sizeof(size_t) - 1], i);
                              hak_free(blocks[i]);
                          }
                      }
                      EXPECT_LE(misses, static_cast<long>(kBlocks / 2));
    })
        .join();
    ASSERT_EQ(hak_option_set("RETAIN_BYTES", "1m"), 0);
}

TEST_F(Ledger, TimesMissesIfAsked) {
    churn(704, 500, 5000, 1);
    EXPECT_EQ(figure_of("tiny_classes", 704, "miss_ns"), 0);
    hak_option_set("ACE", "observe");
    long misses = figure_of("tiny_classes", 704, "misses");
    auto begun = std::chrono::steady_clock::now();
    churn(704, 5000, 50000, 1);
    std::chrono::nanoseconds took = std::chrono::steady_clock::now() - begun;
    long ns = figure_of("tiny_classes", 704, "miss_ns"), timed = figure_of("tiny_classes", 704, "timed_misses");
    EXPECT_GT(ns, 0);
    EXPECT_LE(ns * timed, took.count()) << "of one miss, on average";
    misses = figure_of("tiny_classes", 704, "misses") - misses;
    EXPECT_NEAR(timed, misses / 16, 1) << "one in 16 of " << misses;
    hak_option_set("ACE", "0");
}

TEST_F(Ledger, TellsWhoFreed) {
    Json before = heap_stats()["tiny"];
    long nulls = counter("free_null");
    constexpr int kBlocks = 4000;
    std::vector<void *> blocks(kBlocks);
    for (void *&block : blocks)
        block = hak_malloc(640);
    for (int i = 0; i < kBlocks / 2; i++)
        hak_free(blocks[i]);
    std::thread([&] {
        for (int i = kBlocks / 2; i < kBlocks; i++)
            hak_free(blocks[i]);
        for (int i = 0; i < 10; i++)
            hak_free(nullptr);
    }).join();
    Json after = heap_stats()["tiny"];
    auto grew = [&](const char *name) { return after[name].number - before[name].number; };
    EXPECT_EQ(counter("free_null") - nulls, 10);
    EXPECT_GE(grew("allocations"), kBlocks);
    EXPECT_GE(grew("frees_local"), kBlocks / 2 - 200) << "blocks that wait in inboxes count as live";
    EXPECT_GE(grew("frees_local") + grew("frees_remote") + grew("frees_on_loan"), kBlocks - 400);
    EXPECT_GT(after["allocations_per_superslab"].number, 0);
}

} // namespace
