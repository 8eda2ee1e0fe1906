/* Threads that move between NUMA nodes all the time, while others free their blocks, end and begin. If it fails, a
 * program whose threads the system moves loses memory at each move, or has two blocks in one place. HAKMEM_NUMA=4
 * pretends the nodes, and this test's sched_getcpu the processors. support.h says how to run longer. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>

#include <sched.h>

#include <array>
#include <atomic>
#include <thread>

#include "../heap_stats.h"
#include "../support.h"
#include "hakmem.h"

static thread_local int processor;
/* Stands in for libc's. */
extern "C" int sched_getcpu() noexcept { return processor; }

namespace {

constexpr unsigned kThreads = 6, kNodes = 4;

/* A block begins with its size; the rest is a pattern. */
struct Block {
    uint32_t size, tag;
};

std::array<std::atomic<Block *>, 3000> places = {};

void check_and_free(Block *block) {
    if (block == nullptr)
        return;
    size_t bytes = block->size - sizeof *block;
    EXPECT_EQ(pattern_check(block + 1, bytes, bytes, block->tag), bytes) << block->size;
    hak_free(block);
}

/* Small blocks mostly, and some of all tiers. */
size_t size_of_next(Random &random) {
    size_t dice = random.below(1000);
    return sizeof(Block) + random.log_size(dice == 0 ? 22 : dice < 10 ? 20 : dice < 200 ? 16 : 10);
}

void step(Random &random, hak_arena *arena) {
    size_t size = size_of_next(random);
    void *memory = random.below(16) == 0 ? hak_arena_malloc(arena, size) : hak_malloc(size);
    ASSERT_NE(memory, nullptr);
    auto *block = static_cast<Block *>(memory);
    *block = {static_cast<uint32_t>(size), static_cast<uint32_t>(random.next())};
    pattern_write(block + 1, 0, size - sizeof *block, block->tag);
    check_and_free(places[random.below(places.size())].exchange(block));
    check_and_free(places[random.below(places.size())].exchange(nullptr));
}

/* Lives for some thousand steps. */
void live(uint64_t seed, hak_arena *arena) {
    Random random(seed);
    for (int i = 0; i < 60000 / kShorter; i++) {
        if (random.below(50) == 0)
            processor = static_cast<int>(random.below(kNodes));
        step(random, arena);
        if (random.below(3000) == 0)
            hak_trim();
    }
}

TEST(Moving, LosesNothing) {
    ASSERT_STREQ(getenv("HAKMEM_NUMA"), "4");
    int lives = times(24, 40);
    hak_arena *arena = hak_arena_new(nullptr);
    std::array<std::thread, kThreads> threads;
    for (unsigned t = 0; t < kThreads; t++)
        threads[t] = std::thread([=] {
            for (int i = t; i < lives; i += kThreads)
                std::thread(live, static_cast<uint64_t>(i), arena).join();
        });
    for (auto &thread : threads)
        thread.join();
    for (auto &place : places)
        check_and_free(place.exchange(nullptr));
    hak_arena_destroy(arena);
    hak_trim();
    Json stats = heap_stats();
    EXPECT_LT(stats["rss_bytes"]["live"].number, 64.0 * kKiB);
    EXPECT_LT(stats["rss_bytes"]["total"].number, 4.0 * kMiB) << "memory is lost";
    double own = stats["counters"]["node_own"].number, other = stats["counters"]["node_other"].number;
    EXPECT_GT(own, 0);
    EXPECT_LE(other, own / 100) << "memory was never scarce: only a SuperSlab that is just changing its node may count";
}

} // namespace
