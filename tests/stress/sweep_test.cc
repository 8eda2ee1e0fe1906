/* Bulk frees in random order, as when a hash table is destroyed, a collector sweeps or a compiler exits. If it fails,
 * slabs change hands block by block, and such a program takes many times as long. The tests count work, not time. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>
#include <hakmem.h>

#include <random>
#include <thread>

#include "../heap_stats.h"
#include "../support.h"
#include "../surface.h"

namespace {

const Surface &S = subject();

constexpr size_t kSlotBytes = 64 * kKiB;
const size_t kBytes = 48 * kMiB / static_cast<size_t>(kShorter);

/* How much these counters grow. */
struct Work {
    long adopted = counter("slabs_adopted_by_free"), evicted = counter("slabs_evicted"),
         batches = counter("outbox_batches"), atomics = counter("atomic_rmw");
    Work since() const {
        Work now;
        now.adopted -= adopted, now.evicted -= evicted, now.batches -= batches, now.atomics -= atomics;
        return now;
    }
};

std::vector<void *> filled(size_t block_bytes) {
    std::vector<void *> blocks(kBytes / block_bytes);
    for (void *&block : blocks)
        memset(block = S.alloc(block_bytes), 1, block_bytes);
    return blocks;
}

void free_at_random(std::vector<void *> &blocks, unsigned seed) {
    std::shuffle(blocks.begin(), blocks.end(), std::mt19937(seed));
    for (void *block : blocks)
        S.free(block);
}

class Sweep : public testing::TestWithParam<size_t> {};

/* No other thread can want a slab: each comes to the thread once, and stays. */
TEST_P(Sweep, OfASingleThread) {
    if (HAK_TEST_SHORTER > 1)
        GTEST_SKIP() << "a sanitizer may have a thread";
    std::vector<void *> blocks = filled(GetParam());
    Work before;
    free_at_random(blocks, 1);
    Work work = before.since();
    EXPECT_LE(work.evicted, 0);
    EXPECT_LE(work.adopted, static_cast<long>(kBytes / kSlotBytes * 11 / 10 + 10));
    EXPECT_EQ(work.batches, 0);
}

/* Each thread frees what it allocated. It gathers blocks of slabs it does not own, and soon has those slabs on loan. */
TEST_P(Sweep, OfThreadsSideBySide) {
    constexpr int kThreads = 4;
    Work before;
    std::thread threads[kThreads];
    for (int i = 0; i < kThreads; i++)
        threads[i] = std::thread([i] {
            std::vector<void *> blocks = filled(GetParam());
            free_at_random(blocks, static_cast<unsigned>(i));
        });
    for (auto &thread : threads)
        thread.join();
    Work work = before.since();
    long frees = kThreads * static_cast<long>(kBytes / GetParam()),
         slabs = kThreads * static_cast<long>(kBytes / kSlotBytes);
    EXPECT_LE(work.evicted, kThreads * 5000 + frees / 50);
    EXPECT_LE(work.adopted, 2 * slabs + kThreads * 5000 + frees / 50);
    EXPECT_LE(work.batches, kThreads * 20000 + frees / 4) << "slabs are not lent";
}

/* The blocks of a sleeping thread, and of one that has ended: at most one atomic a free. */
TEST_P(Sweep, OfAnotherThreadsBlocks) {
    for (bool ended : {false, true}) {
        std::vector<void *> blocks;
        if (ended)
            std::thread([&] { blocks = filled(GetParam()); }).join();
        else
            blocks = filled(GetParam());
        Work before;
        std::thread([&] { free_at_random(blocks, 5); }).join();
        Work work = before.since();
        long frees = static_cast<long>(blocks.size());
        EXPECT_LE(work.batches, frees) << "ended " << ended;
        EXPECT_LE(work.atomics, frees * 105 / 100 + 2000) << "of " << frees << " frees, ended " << ended;
    }
}

/* One block in a hundred stays. Freed blocks are handed out again, so the heap does not grow. */
TEST_P(Sweep, ThenFilledAgain) {
    std::vector<void *> kept;
    size_t first_peak = 0;
    for (int round = 0; round < 6; round++) {
        std::vector<void *> blocks = filled(GetParam());
        size_t peak = heap_rss_bytes();
        if (round == 1)
            first_peak = peak;
        if (round > 1)
            EXPECT_LE(peak, first_peak + first_peak / 4 + 8 * kMiB) << "in round " << round;
        std::shuffle(blocks.begin(), blocks.end(), std::mt19937(static_cast<unsigned>(round)));
        size_t keep = blocks.size() / 100;
        kept.insert(kept.end(), blocks.end() - static_cast<long>(keep), blocks.end());
        blocks.resize(blocks.size() - keep);
        std::thread other([&, half = blocks.size() / 2] {
            for (size_t i = 0; i < half; i++)
                S.free(blocks[i]);
        });
        for (size_t i = blocks.size() / 2; i < blocks.size(); i++)
            S.free(blocks[i]);
        other.join();
    }
    for (void *block : kept)
        S.free(block);
}

INSTANTIATE_TEST_SUITE_P(Sizes, Sweep, testing::Values(64, 200, 1000));

} // namespace
