/* A program that fills and frees the same memory again and again, while no time passes: without threads all of it stays
 * resident from the sixth round on, beside a purger from the first. If it fails, bulk work pays for giving memory back
 * in each round. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>
#include <hakmem.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <ctime>
#include <vector>

#include "../heap_stats.h"
#include "../support.h"
#include "inside.h"
#include "sleeping_thread.h"

static long now_s = 1000;
static bool is_main_ahead; /* time passes for other threads, whose clock is far behind */
static thread_local bool is_main;
extern "C" int clock_gettime(clockid_t clock, struct timespec *now) noexcept {
    constexpr long kBehind = 50;
    static long readings;
    static std::atomic<long> began_s{0};
    if (!is_main_ahead || is_main) {
        *now = {now_s, ++readings};
        return 0;
    }
    syscall(SYS_clock_gettime, clock, now);
    long none = 0;
    began_s.compare_exchange_strong(none, now->tv_sec);
    now->tv_sec += now_s - kBehind - began_s;
    return 0;
}

namespace {

struct Swing {
    size_t bytes, blocks;
};

void fill_and_free(Swing swing) {
    std::vector<void *> blocks(swing.blocks);
    long slots = static_cast<long>(swing.bytes * swing.blocks / 65536), gone[9] = {};
    for (long &so_far : gone) {
        so_far = counter("purged_slots") + counter("lazy_slots");
        for (void *&block : blocks)
            memset(block = hak_malloc(swing.bytes), 1, swing.bytes);
        for (void *block : blocks)
            hak_free(block);
    }
    EXPECT_GE(gone[3] - gone[0], 2 * slots) << "the first rounds give back";
    EXPECT_LE(gone[8] - gone[5], slots / 10) << swing.bytes << " bytes\n" << heap_stats_text();
}

template <class Run> void expect_in_child(Run run) {
    pid_t child = fork();
    if (child == 0) {
        run();
        fflush(stdout);
        _exit(testing::Test::HasFailure());
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
}

/* Takes and gives back: nothing of it stays EMPTY. */
void take_and_purge(void *client, unsigned slots) {
    int zero = 0;
    std::vector<size_t> taken;
    for (unsigned i = 0; i < slots; i++)
        taken.push_back(inside_pool_take(client, 1, 1, 1, &zero));
    inside_pool_settle(client);
    for (size_t slot : taken)
        inside_pool_give(client, slot, 1, 1);
    inside_pool_settle(client);
    inside_pool_purge(client, 0);
}

/* Once more than three quarters of the peak were wanted back, what leaves is LAZY; after a rest that begins anew. */
TEST(Swings, ThreeQuartersOfThePeakMakeWhatLeavesLazy) {
    expect_in_child([] {
        void *client = inside_pool_client_new();
        take_and_purge(client, 32);
        for (int round = 0; round < 2; round++) {
            inside_pool_rest(client);
            EXPECT_FALSE(inside_leaves_lazy());
            take_and_purge(client, 24);
            EXPECT_FALSE(inside_leaves_lazy()) << "just three quarters";
            take_and_purge(client, 1);
            EXPECT_TRUE(inside_leaves_lazy());
        }
    });
}

/* Pages inside slabs were used that had not been given back just before: no more slabs may stay noted for that. */
TEST(Swings, OnlyWhatWasGivenBackIsWantedBack) {
    expect_in_child([] {
        void *client = inside_pool_client_new();
        take_and_purge(client, 100);
        size_t noted = inside_may_stay_noted();
        inside_pool_grew_inside(client, 4);
        EXPECT_EQ(inside_may_stay_noted(), noted);
        std::vector<void *> blocks(1000);
        for (void *&block : blocks)
            block = hak_malloc(1000);
        for (size_t i = 0; i < blocks.size(); i++)
            if (i % 64 != 0)
                hak_free(blocks[i]);
        hak_trim();
        inside_pool_grew_inside(client, 4);
        EXPECT_GT(inside_may_stay_noted(), noted) << "pages were given back";
    });
}

/* Nothing was freed for long, and slow mallocs find that out, though few slots are taken. */
TEST(Swings, EndOnceNothingHappened) {
    expect_in_child([] {
        void *client = inside_pool_client_new();
        for (unsigned slots : {32, 24, 1})
            take_and_purge(client, slots);
        EXPECT_TRUE(inside_leaves_lazy());
        now_s += 3600;
        std::vector<void *> blocks(200);
        for (void *&block : blocks)
            block = hak_malloc(1000);
        EXPECT_FALSE(inside_leaves_lazy());
    });
}

/* Memory may become LAZY at the very moment at which `hakmem purge` asks for it. Here the purger's clock is behind, so
 * that this memory has no age yet. */
TEST(Swings, ARequestTakesWhatBecameLazyJustNow) {
    expect_in_child([] {
        is_main = is_main_ahead = true;
        hak_option_set("PURGE", "lazy");
        hak_option_set("SS_CACHE_COUNT", "1"); /* for a thread need not leave what is above that to the purger */
        SleepingThread other([] { hak_free(hak_malloc(1)); });
        std::vector<void *> blocks(400);
        for (void *&block : blocks)
            block = hak_malloc(200'000);
        EXPECT_TRUE(inside_has_purger());
        for (void *block : blocks)
            hak_free(block);
        EXPECT_GT(counter("lazy_slots"), 0);
        inside_ask_for_purge();
        for (int i = 0; i < 2; i++) /* by the second tick it has answered */
            inside_await_tick();
        EXPECT_EQ(inside_pool_count().lazy_slots, 0u);
    });
}

/* The purger sees no tick pass here, so what was freed is as if the program had not rested yet. */
TEST(Swings, ThreadsLeaveWhatTheyFreeToThePurger) {
    expect_in_child([] {
        SleepingThread other([] { hak_free(hak_malloc(1)); });
        std::vector<void *> blocks(1000);
        for (int round = 0; round < 4; round++) {
            for (void *&block : blocks)
                block = hak_malloc(200'000);
            EXPECT_TRUE(inside_has_purger());
            for (void *block : blocks)
                hak_free(block);
        }
        EXPECT_LT(counter("purged_slots") + counter("lazy_slots"), 400) << "a tenth of a round\n" << heap_stats_text();
    });
}

/* It hands over all that may stay when it ends. */
TEST(Swings, ThePurgerStaysWhileThreadsComeAndGo) {
    auto pass = [](unsigned ms) { now_s += ms / 1000; };
    for (unsigned times : {0, 1, 10})
        for (unsigned ms : {1000, 3000})
            expect_in_child([pass, times, ms] {
                hak_free(hak_malloc(1));
                EXPECT_EQ(inside_purger_ends_alone(times, ms, pass), ms == 3000);
            });
}

/* Each in a child: what another has wanted back would be kept. */
TEST(Swings, StayResidentFromTheSixthRoundOn) {
    for (Swing swing : {Swing{9000, 6000}, Swing{40000, 2000}, Swing{200000, 400}, Swing{3000000, 30}}) {
        pid_t child = fork();
        if (child == 0) {
            fill_and_free(swing);
            fflush(stdout);
            _exit(testing::Test::HasFailure());
        }
        int status = 0;
        waitpid(child, &status, 0);
        EXPECT_EQ(status, 0);
    }
}

} // namespace
