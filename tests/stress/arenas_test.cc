/* Arenas that many threads use, while others are born and end, and while arenas are destroyed, released and made again.
 * If it fails, a server that has an arena for each request hands out a block twice or loses one. support.h says how to
 * run longer. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <shared_mutex>
#include <thread>

#include "../support.h"
#include "hakmem.h"

namespace {

/* A block begins with its size; the rest is a pattern. */
struct Block {
    uint32_t size, tag;
};

Block *filled(void *memory, size_t size, Random &random) {
    auto *block = static_cast<Block *>(memory);
    if (block == nullptr)
        abort();
    *block = {static_cast<uint32_t>(size), static_cast<uint32_t>(random.next())};
    pattern_write(block + 1, 0, size - sizeof *block, block->tag);
    return block;
}

bool is_intact(const Block *block) {
    size_t bytes = block->size - sizeof *block;
    return pattern_check(block + 1, bytes, bytes, block->tag) == bytes;
}

void check_and_free(Block *block) {
    if (block == nullptr)
        return;
    EXPECT_TRUE(is_intact(block)) << block->size;
    hak_free(block);
}

/* Calls on the arena hold the lock shared, its end alone: that is all that hakmem.h asks. */
struct Place {
    std::shared_mutex mutex;
    hak_arena *arena = hak_arena_new(nullptr);
    std::array<std::atomic<Block *>, 200> blocks = {};
    std::atomic<int> ends{0};

    void use(Random &random) {
        std::shared_lock<std::shared_mutex> lock(mutex);
        for (int i = 0; i < 20; i++) {
            size_t size = sizeof(Block) + random.log_size(random.below(30) == 0 ? 20 : 12);
            auto &place = blocks[random.below(blocks.size())];
            Block *old = place.exchange(nullptr);
            if (old != nullptr && random.below(4) == 0 && is_intact(old)) {
                hak_arena *was = hak_arena_of(old);
                old = static_cast<Block *>(hak_realloc(old, size));
                EXPECT_EQ(hak_arena_of(old), was);
                check_and_free(place.exchange(filled(old, size, random)));
                continue;
            }
            check_and_free(old);
            check_and_free(place.exchange(filled(hak_arena_malloc(arena, size), size, random)));
        }
    }

    void end(Random &random) {
        std::vector<Block *> released;
        {
            std::unique_lock<std::shared_mutex> lock(mutex);
            bool destroy = random.below(3) != 0;
            for (auto &place : blocks) {
                Block *block = place.exchange(nullptr);
                EXPECT_TRUE(block == nullptr || is_intact(block));
                if (block != nullptr && !destroy)
                    released.push_back(block);
            }
            if (destroy)
                hak_arena_destroy(arena);
            else
                hak_arena_release(arena);
            arena = hak_arena_new(nullptr);
            ends++;
        }
        for (Block *block : released)
            check_and_free(block);
    }
};

void use_some(std::array<Place, 24> &places, Random &random, int rounds) {
    std::vector<Block *> own; /* of the process's heap, in between */
    for (int i = 0; i < rounds; i++) {
        Place &place = places[random.below(places.size())];
        if (random.below(40) == 0)
            place.end(random);
        else
            place.use(random);
        size_t size = sizeof(Block) + random.log_size(14);
        own.push_back(filled(hak_malloc(size), size, random));
        if (own.size() > 50) {
            std::swap(own[random.below(own.size())], own.back());
            check_and_free(own.back());
            own.pop_back();
        }
        if (random.below(500) == 0)
            hak_trim();
    }
    for (Block *block : own)
        check_and_free(block);
}

TEST(Arenas, EndWhileThreadsComeAndGo) {
    std::array<Place, 24> places;
    std::vector<std::thread> lasting;
    std::atomic<bool> stop{false};
    for (uint64_t i = 0; i < 4; i++)
        lasting.emplace_back([&, i] {
            for (Random random(i); !stop;)
                use_some(places, random, 20);
        });
    for (int i = 0; i < times(200); i++) { /* short ones, which end while arenas they used do */
        std::vector<std::thread> passing;
        for (uint64_t j = 0; j < 3; j++)
            passing.emplace_back([&, j] {
                Random random(j + 1000 + static_cast<uint64_t>(i) * 3);
                use_some(places, random, 12);
            });
        for (auto &thread : passing)
            thread.join();
    }
    stop = true;
    for (auto &thread : lasting)
        thread.join();
    int ends = 0;
    for (auto &place : places) {
        for (auto &block : place.blocks)
            check_and_free(block);
        hak_arena_destroy(place.arena);
        ends += place.ends;
    }
    EXPECT_GT(ends, 10);
}

/* The callback runs in whichever thread meets the limit, and frees what another thread allocated. */
struct Limited {
    std::array<std::atomic<Block *>, 4000> blocks = {};
    std::atomic<size_t> calls{0};
    static int over_limit(hak_arena *, size_t, void *argument) {
        auto *self = static_cast<Limited *>(argument);
        size_t from = self->calls.fetch_add(1) * 97;
        bool freed = false;
        for (size_t i = 0; i < 400; i++)
            if (Block *block = self->blocks[(from + i) % self->blocks.size()].exchange(nullptr)) {
                check_and_free(block);
                freed = true;
            }
        return freed;
    }
};

TEST(Arenas, ALimitHoldsAmongThreads) {
    constexpr size_t kLimit = 8 * kMiB;
    const int rounds = std::max(times(6000), 600);
    static Limited limited;
    hak_arena_options options = {"limited", kLimit, Limited::over_limit, &limited};
    hak_arena *arena = hak_arena_new(&options);
    std::atomic<size_t> refused{0};
    std::vector<std::thread> threads;
    for (uint64_t i = 0; i < 4; i++)
        threads.emplace_back([&, i] {
            Random random(i);
            for (int round = 0; round < rounds; round++) {
                size_t size = sizeof(Block) + random.log_size(16);
                void *block = hak_arena_malloc(arena, size);
                if (block == nullptr) {
                    refused++;
                    sched_yield(); /* to whoever has in its caches what the callbacks freed */
                } else {
                    check_and_free(
                        limited.blocks[random.below(limited.blocks.size())].exchange(filled(block, size, random)));
                }
            }
        });
    for (auto &thread : threads)
        thread.join();
    hak_arena_stats stats = {};
    hak_arena_get_stats(arena, &stats);
    EXPECT_LE(stats.peak_bytes, kLimit);
    EXPECT_GT(limited.calls, 0u);
    EXPECT_LT(refused, static_cast<size_t>(rounds)) << "of four times as many";
    for (auto &block : limited.blocks)
        check_and_free(block.exchange(nullptr));
    hak_arena_destroy(arena);
}

/* Statistics are read while arenas end and others take their places: a report never has one's name beside another's
 * limit. */
TEST(Arenas, StatisticsWhileArenasAreMade) {
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (uint64_t i = 0; i < 3; i++)
        threads.emplace_back([&, i] {
            for (Random random(i); !stop;) {
                size_t limit = (1 + random.below(9)) * kMiB;
                std::string name = "limit " + std::to_string(limit);
                hak_arena_options options = {name.c_str(), limit, nullptr, nullptr};
                hak_arena *arena = hak_arena_new(&options);
                hak_free(hak_arena_malloc(arena, 100));
                hak_arena_destroy(arena);
            }
        });
    std::vector<char> text(256 * kKiB);
    size_t seen = 0;
    for (int i = 0; i < std::max(times(300), 100); i++) {
        ASSERT_LT(hak_stats_json(text.data(), text.size()), text.size());
        for (const char *at = text.data(); (at = strstr(at, "{\"name\":\"limit ")) != nullptr; at++, seen++) {
            const char *limit = strstr(at, "\"limit_bytes\":");
            ASSERT_NE(limit, nullptr);
            EXPECT_EQ(strtoul(at + 15, nullptr, 10), strtoul(limit + 14, nullptr, 10)) << std::string(at, 120);
        }
    }
    stop = true;
    for (auto &thread : threads)
        thread.join();
    EXPECT_GT(seen, 0u);
}

/* fork, while other threads are in calls on arenas: the child may allocate in each, and end it. */
TEST(Arenas, AChildHasThemAll) {
    if (kShorter != 1)
        GTEST_SKIP() << "no forks of threads under a sanitizer";
    std::array<Place, 24> places;
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (uint64_t i = 0; i < 3; i++)
        threads.emplace_back([&, i] {
            for (Random random(i); !stop;)
                places[random.below(places.size())].use(random);
        });
    for (int i = 0; i < times(15); i++) {
        pid_t child = fork();
        if (child == 0) {
            for (auto &place : places) {
                memset(hak_arena_malloc(place.arena, 100), 1, 100);
                memset(hak_arena_malloc(place.arena, 20000), 1, 20000);
                hak_arena_destroy(place.arena);
            }
            _exit(hak_arena_new(nullptr) != nullptr ? 0 : 1);
        }
        int status = 0;
        waitpid(child, &status, 0);
        ASSERT_EQ(status, 0);
    }
    stop = true;
    for (auto &thread : threads)
        thread.join();
    for (auto &place : places)
        hak_arena_destroy(place.arena);
}

} // namespace
