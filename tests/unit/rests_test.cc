/* Heaps that rest: a thread that ends leaves the slabs that serve its classes to the next thread. If it fails, a server
 * with a thread for each request pays for each thread as for a program's start, or what ended threads left stays where
 * nobody can use it.
 *
 * The purger may look at any moment, so each test makes threads until one has left its heap at rest. Nothing here
 * depends on time: what should happen is waited for, and the test's time limit ends it if it never does. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>
#include <hakmem.h>
#include <sys/wait.h>
#include <unistd.h>

#include <future>
#include <thread>

#include "../heap_stats.h"
#include "../support.h"
#include "inside.h"

namespace {

constexpr size_t kLargest = 1024, kStep = 40;

/* Forty calls, and blocks of all sizes that stay. */
void live(std::vector<void *> *kept = nullptr) {
    std::vector<void *> blocks;
    for (size_t bytes = kStep; bytes <= kLargest; bytes += kStep)
        blocks.push_back(memset(hak_malloc(bytes), 1, bytes));
    for (void *block : blocks)
        if (kept != nullptr)
            kept->push_back(block);
        else
            hak_free(block);
}

void work() { hak_free(memset(hak_malloc(3 * kMiB), 1, 1)); } /* by way of the pool */

/* Another thread that has a heap, and some size: so there is a purger. The thread is none of the library's making. */
class Sleeper {
  public:
    Sleeper() {
        std::promise<void> there;
        thread_ = std::thread([&] {
            hak_free(hak_malloc(1));
            there.set_value();
            end_.get_future().wait();
        });
        there.get_future().wait();
        void *large = hak_malloc(8 * kMiB);
        while (!inside_has_purger())
            work();
        hak_free(large);
    }
    ~Sleeper() { end(); }
    void end() {
        if (!thread_.joinable())
            return;
        end_.set_value();
        thread_.join();
    }

  private:
    std::promise<void> end_;
    std::thread thread_;
};

class Rests : public testing::Test {
  protected:
    Sleeper sleeper_;

    static std::vector<void *> rest() {
        std::vector<void *> kept;
        do
            std::thread(live, kept.empty() ? &kept : nullptr).join();
        while (inside_heaps_at_rest() == 0);
        return kept;
    }
    static void free_all(const std::vector<void *> &blocks) {
        for (void *block : blocks)
            hak_free(block);
    }
};

long misses() {
    long all = 0;
    for (const char *how : {"refill_from_slab", "refill_from_inbox", "refill_from_partial", "refill_from_let_go",
                            "refill_from_stale_inbox", "refill_from_purged", "refill_by_carving"})
        all += counter(how);
    return all;
}

/* But for one miss: that malloc finds out that the thread has no heap. */
TEST_F(Rests, TheNextThreadBeginsWithHits) {
    free_all(rest());
    long before;
    do {
        std::thread([] { live(); }).join();
        before = misses();
        std::thread([] { live(); }).join();
    } while (misses() != before + 1);
    EXPECT_GT(counter("heaps_rested"), 0);
}

TEST_F(Rests, ThePurgerEmptiesThem) {
    auto kept = rest();
    while (inside_heaps_at_rest() != 0)
        usleep(1000);
    free_all(kept);
}

TEST_F(Rests, NoneIsLeftWhenThePurgerEnds) {
    auto kept = rest();
    sleeper_.end();
    while (inside_has_purger())
        std::thread([] { usleep(1000); }).join(); /* without a heap */
    while (inside_heaps_at_rest() != 0)
        usleep(1000); /* it is at them still */
    free_all(kept);
}

/* The purger would look after an outbox that holds nothing, and never park. */
TEST(OutboxOfAChild, IsEmptyOnceAllIsSent) {
    hak_free(hak_malloc(1));
    inside_outbox_interrupt(inside_heap());
    EXPECT_TRUE(inside_caches_hold(inside_heap()));
    hak_trim();
    EXPECT_FALSE(inside_caches_hold(inside_heap()));
}

/* A small program never wants its purger, which ends once there are no threads. */
TEST(RestsOfASmallProgram, NoneIsLeftWhenThePurgerEnds) {
    do {
        inside_before_thread();
        std::thread([] {
            inside_thread_begins();
            hak_free(hak_malloc(kLargest));
        }).join();
    } while (inside_heaps_at_rest() == 0);
    while (inside_heaps_at_rest() != 0)
        usleep(1000);
}

/* Each purger reads how many ended before it, which may be ending still. TSan sees it. */
void let_purgers_follow() {
    for (unsigned purgers = 0; purgers < 6; purgers++) {
        inside_before_thread();
        std::thread([] {
            inside_thread_begins();
            hak_free(hak_malloc(1));
        }).join();
        while (inside_purger_is_there())
            usleep(1000);
    }
}
TEST(RestsOfASmallProgram, PurgersFollowOneAnother) { let_purgers_follow(); }

/* The first threads had a purger, which has ended with them. */
TEST(RestsOfASmallProgram, ThreadsThatAreMadeSomeOtherWayHaveAPurger) {
    let_purgers_follow();
    Sleeper sleeper;
}

/* The program has a thread there, and makes no further one. */
TEST_F(Rests, APurgerComesAMinuteAfterItsPlaceWasTaken) {
    void *large = hak_malloc(8 * kMiB);
    inside_take_purgers_place(0);
    while (inside_has_purger())
        usleep(1000);
    for (int i = 0; i < 100; i++)
        work();
    EXPECT_FALSE(inside_has_purger());
    inside_take_purgers_place(60 * 1000);
    while (!inside_has_purger())
        work();
    hak_free(large);
}

TEST_F(Rests, TrimEmptiesThem) {
    auto kept = rest();
    hak_trim();
    EXPECT_EQ(inside_heaps_at_rest(), 0u);
    free_all(kept);
}

TEST_F(Rests, AChildTrimsThemToo) {
    auto kept = rest();
    pid_t child = fork();
    if (child == 0) {
        hak_trim();
        free_all(kept);
        live();
        _exit(inside_heaps_at_rest() == 0 ? 0 : 1);
    }
    int status = 1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    free_all(kept);
}

/* The threads of the parent are not there. */
TEST_F(Rests, AChildCountsItsOwnThreads) {
    inside_before_thread();
    pid_t child = fork();
    if (child == 0) {
        hak_option_set("PURGER", "0"); /* TSan ends a child that starts a thread */
        inside_before_thread();
        _exit(inside_threads());
    }
    int status = 1;
    waitpid(child, &status, 0);
    EXPECT_EQ(WEXITSTATUS(status), 1);
    std::thread([] { inside_thread_begins(); }).join();
}

/* Another process asks once for all that can be given back. What is freed later stays. */
TEST_F(Rests, ThePurgerAnswersARequestOnce) {
    constexpr unsigned kSlots = 16;
    void *client = inside_pool_client_new();
    int zero = 0;
    hak_option_set("PURGE", "never");
    inside_ask_for_purge();
    for (int i = 0; i < 2; i++) /* by the second tick it has answered */
        inside_await_tick();
    size_t slot = inside_pool_take(client, kSlots, 1, 1, &zero);
    inside_pool_give(client, slot, kSlots, 1);
    inside_pool_settle(client);
    for (int i = 0; i < 3; i++)
        inside_await_tick();
    EXPECT_GE(inside_pool_count().empty_slots, kSlots);
    inside_pool_client_delete(client);
    hak_option_set("PURGE", "auto");
}

/* What a thread that sleeps has on loan goes back whole, however little the thread has freed there. */
TEST_F(Rests, ARequestEndsTheLoansOfSleepers) {
    constexpr size_t kBlocks = 1000;
    std::vector<void *> blocks(kBlocks);
    hak_free(hak_malloc(1));
    std::thread([&] {
        for (void *&block : blocks)
            block = hak_malloc(kLargest);
    }).join();
    unsigned borrowed = 0;
    for (void *block : blocks)
        borrowed += inside_borrow(block);
    EXPECT_GE(borrowed, 8u); /* the purger may have ended some already */
    inside_ask_for_purge();
    for (int i = 0; i < 2; i++) /* by the second tick it has answered */
        inside_await_tick();
    EXPECT_EQ(inside_borrowed(inside_heap()), 0u);
    free_all(blocks);
}

TEST_F(Rests, WhoeverIsRefusedMemoryGetsTheirs) {
    auto kept = rest();
    hak_option_set("HARD_LIMIT", "64m");
    std::vector<void *> all;
    for (void *block; (block = hak_malloc(kLargest)) != nullptr;)
        all.push_back(block);
    EXPECT_EQ(inside_heaps_at_rest(), 0u);
    free_all(all);
    hak_option_set("HARD_LIMIT", "0");
    free_all(kept);
}

/* The arena takes the heap, and must not hand out what it has. */
TEST_F(Rests, AnArenaGetsNothingOfThem) {
    for (int i = 0; i < 20; i++) {
        auto kept = rest();
        hak_arena *arena = hak_arena_new(nullptr);
        for (size_t bytes = kStep; bytes <= kLargest; bytes += kStep)
            EXPECT_EQ(hak_arena_of(hak_arena_malloc(arena, bytes)), arena) << bytes;
        hak_arena_destroy(arena);
        free_all(kept);
    }
}

/* The purger was at a heap's caches when its thread ended, so an arena cannot take the heap. It is a thread's again, or
 * the purger would never empty its caches. */
TEST_F(Rests, WhatAnArenaCouldNotTakeIsAThreadsAgain) {
    bool met = false;
    for (int i = 0; i < 100 && !met; i++) { /* the purger may be there, and thaw them */
        void *heap = nullptr;
        std::thread([&] {
            hak_free(memset(hak_malloc(5000), 1, 5000));
            heap = inside_heap();
            inside_caches_freeze(heap, 1);
        }).join();
        hak_arena *arena = hak_arena_new(nullptr);
        bool passed = inside_heap_of(hak_arena_malloc(arena, 100)) != heap;
        inside_caches_freeze(heap, 0);
        std::thread([&] {
            hak_free(hak_malloc(100));
            met = passed && inside_heap() == heap;
            EXPECT_FALSE(met && inside_heap_is_of_arena());
        }).join();
        hak_arena_destroy(arena);
    }
    EXPECT_TRUE(met) << "no thread got the heap";
}

TEST_F(Rests, AboveTheBoundTheyAreEmptied) {
    auto kept = rest();
    free_all(kept);
    hak_option_set("PURGE", "eager"); /* nothing may be EMPTY */
    hak_trim();
    std::thread([] { live(); }).join();
    EXPECT_EQ(inside_heaps_at_rest(), 0u);
    hak_option_set("PURGE", "auto");
}

size_t block_number(const void *block) { return reinterpret_cast<uintptr_t>(block) % inside_slot_bytes / kLargest; }

/* Who frees a block that the heap's last thread has freed did not free it before. */
using RestsDeathTest = Rests;
TEST_F(RestsDeathTest, NobodyIsBlamedForTheLastThreadsFree) {
    GTEST_FLAG_SET(death_test_style, "threadsafe"); /* a child of fork has no purger */
    auto twice = [] {
        rest();
        void *block = nullptr;
        std::thread([&] {
            /* The last slab is the first one in its slot, and half of it stays in use, whoever has it. */
            for (size_t bytes = 0; bytes < 16 * kMiB || block_number(block) != 32; bytes += kLargest)
                block = hak_malloc(kLargest);
            hak_free(block);
        }).join();
        std::thread([&] {
            hak_free(hak_malloc(48)); /* has the heap */
            hak_free(block);
        }).join();
    };
    EXPECT_DEATH(twice(), "hakmem: double free of 0x[0-9a-f]+ \\(1024-byte block\\)\n");
}

} // namespace
