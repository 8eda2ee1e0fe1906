/* ACE, with heaps that the test makes up or that were recorded, and a clock of its own, then in this process. If it
 * fails, a program with ACE=on uses a preset that is worse than what it had, or pays for the search. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>

#include <hakmem.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <ctime>
#include <string>
#include <thread>
#include <vector>

#include "../heap_stats.h"
#include "../support.h"
#include "inside.h"
#include "recorded_heaps.h"

/* Once a test has said so, each reading of a clock is so much after the one before, in this process and in the library,
 * and what things cost does not depend on the machine. The process's own time is so much of it. */
static std::atomic<uint64_t> made_up_ns{1'000'000'000'000}, step_ns, cpu_percent{100};
extern "C" int clock_gettime(clockid_t which, struct timespec *now) noexcept {
    uint64_t step = step_ns;
    if (step == 0)
        return static_cast<int>(syscall(SYS_clock_gettime, which, now));
    uint64_t ns = made_up_ns += step;
    if (which == CLOCK_PROCESS_CPUTIME_ID)
        ns = ns / 100 * cpu_percent;
    now->tv_sec = static_cast<time_t>(ns / 1'000'000'000);
    now->tv_nsec = static_cast<long>(ns % 1'000'000'000);
    return 0;
}

namespace {

constexpr uint64_t kMs = 1'000'000, kSecond = 1'000 * kMs;
constexpr double kFault = 20'000;                                    /* nanoseconds a slot */
constexpr double kTime = 1'831, kBalanced = 9'155, kMemory = 36'621; /* of GOAL, for a slot that is kept for a second */

/* As in learn/presets.h. */
const inside_ace_rule kRules[] = {
    {16, 10, 10 * kSecond, 0}, {1, 2, kSecond, 0}, {512, 10, kSecond, 0}, {16'384, 100, 60 * kSecond, 0}};
enum { kDefaults, kLean, kBursty, kKeeps, kPresets };

struct At {
    uint64_t ns, slots;
};
using Heap = std::vector<At>;

/* Goes up and down between these numbers of slots for so long, in steps as large as a thread settles. */
void swing(Heap &heap, uint64_t period_ns, uint64_t low, uint64_t high, uint64_t ns) {
    uint64_t now = heap.empty() ? 1 : heap.back().ns, slots = low;
    for (uint64_t end = now + ns, half = 0; now < end; half++) {
        uint64_t next = half % 2 == 0 ? high : low, step = std::max<uint64_t>(8, (high - low) / 6);
        for (uint64_t until = now + period_ns / 2; now < until; now += period_ns / 16) {
            slots = slots < next ? std::min(next, slots + step) : slots - std::min(slots - next, step);
            heap.push_back({now, slots});
        }
    }
}

/* Some hours of swings, rests and steady work, none like the last. */
Heap random_heap(uint64_t seed) {
    Random random(seed);
    Heap heap;
    for (int hour = 0; hour < 12; hour++) {
        uint64_t low = random.below(500), high = low + random.below(uint64_t{1} << (4 + random.below(8)));
        swing(heap, (uint64_t{1} << random.below(8)) * 40 * kMs, low, high, (1 + random.below(8)) * kSecond);
    }
    return heap;
}

/* Repeated, as a run takes a second and ACE watches for one. */
Heap recorded(const RecordedHeap &of, int times) {
    Heap heap;
    for (uint64_t now = 1; times-- > 0; now = heap.back().ns + kMs)
        for (const Moment &moment : of.moments)
            heap.push_back({now + moment.at * (kMs / 100), moment.slots});
    return heap;
}

/* Returns the preset in use at the end. */
unsigned follow(const Heap &heap, double slot_second, uint64_t dice = 0, std::vector<unsigned> *used = nullptr) {
    unsigned in_use = 0;
    inside_ace_start(kPresets, kRules, slot_second, kFault, dice);
    for (const At &at : heap) {
        in_use = inside_ace_look(at.ns, at.slots, UINT64_MAX);
        if (used != nullptr)
            used->push_back(in_use);
    }
    return in_use;
}

struct Regret {
    double defaults, best, used, bound;
};

/* In the mean over some dice. */
Regret regret_of(const Heap &heap, double slot_second) {
    constexpr int kDice = 8;
    Regret r = {0, 0, 0, 0};
    for (int dice = 0; dice < kDice; dice++) {
        follow(heap, slot_second, static_cast<uint64_t>(dice) << 32);
        inside_ace_cost cost = {};
        for (unsigned preset = 0; preset < kPresets; preset++) {
            cost = inside_ace_charged(preset);
            r.best = preset == 0 ? cost.all : std::min(r.best, cost.all);
        }
        r.defaults = inside_ace_charged(kDefaults).all;
        r.used += cost.in_use / kDice;
        double ln = std::log(double{kPresets}), hedge = std::sqrt(cost.squares * ln) + cost.most * (4 * ln / 3 + 3);
        r.bound = (1 + inside_ace_changes()) * 2 * std::max(hedge, 5.0 * kMs);
    }
    return r;
}

/* What is lost against the best preset stays within the bound that ace.h states. */
TEST(Ace, RegretIsBounded) {
    Regret sum = {0, 0, 0, 0};
    auto check = [&](const Heap &heap, double price, const std::string &what) {
        Regret r = regret_of(heap, price);
        EXPECT_LE(r.used, r.best + r.bound) << what << " at " << price;
        sum = {sum.defaults + r.defaults, sum.best + r.best, sum.used + r.used, 0};
    };
    auto tell = [&](const std::string &what) {
        printf("figure: ace_%s_saved_percent %.1f\n", what.c_str(), (1 - sum.used / sum.defaults) * 100);
        printf("figure: ace_%s_saved_by_the_best_percent %.1f\n", what.c_str(), (1 - sum.best / sum.defaults) * 100);
        sum = {0, 0, 0, 0};
    };
    for (auto &[price, goal] : {std::pair{kTime, "time"}, {kBalanced, "balanced"}, {kMemory, "memory"}}) {
        for (auto &heap : recorded_heaps)
            check(recorded(heap, 10), price, heap.command);
        tell(std::string("recorded_") + goal);
        for (uint64_t seed = 1; seed <= 100; seed++)
            check(random_heap(seed), price, "random heap " + std::to_string(seed));
        tell(std::string("random_") + goal);
    }
}

/* What is lost is lost at the beginning, so in ten times the time it is a tenth of the cost, or little more. */
TEST(Ace, RegretFallsWithTime) {
    for (auto &heap : recorded_heaps) {
        Regret once = regret_of(recorded(heap, 2), kBalanced), often = regret_of(recorded(heap, 40), kBalanced);
        double share_once = (once.used - once.best) / (once.best + kMs),
               share_often = (often.used - often.best) / (often.best + kMs);
        EXPECT_LE(share_often, std::max(0.3 * share_once, 0.02)) << heap.command;
    }
}

/* Quick swings are kept by two of them, slow ones by one. */
bool keeps_quick(unsigned preset) { return preset >= kBursty; }

Heap swings(uint64_t period_ns, uint64_t ns = 20 * kSecond) {
    Heap heap;
    swing(heap, period_ns, 100, 4'100, ns);
    return heap;
}

/* Keeping 4,000 slots for a second costs 37 ms, to purge them and fault them in again 90; so a quick swing keeps them
 * and a slow one doesn't. */
TEST(Ace, WeighsMemoryAgainstTime) {
    EXPECT_TRUE(keeps_quick(follow(swings(kSecond / 5), kBalanced)));
    EXPECT_NE(follow(swings(16 * kSecond, 200 * kSecond), kBalanced), kKeeps);
    EXPECT_EQ(follow(swings(8 * kSecond, 200 * kSecond), kTime), kKeeps) << "a fifth of the price";
    EXPECT_NE(follow(swings(4 * kSecond, 200 * kSecond), kMemory), kKeeps) << "four times the price";
}

TEST(Ace, UsesAnotherAfterTheProgramHasChanged) {
    Heap heap = swings(kSecond / 5);
    ASSERT_TRUE(keeps_quick(follow(heap, kBalanced)));
    swing(heap, 30 * kSecond, 100, 16'000, 300 * kSecond);
    EXPECT_NE(follow(heap, kBalanced), kKeeps);
    EXPECT_GE(inside_ace_changes(), 1u);
}

/* A program that shrinks has changed as one that grows has. */
TEST(Ace, APeakIsForgotten) {
    Heap heap = swings(kSecond / 5);
    follow(heap, kBalanced);
    unsigned before = inside_ace_changes();
    swing(heap, kSecond / 5, 100, 300, 300 * kSecond);
    follow(heap, kBalanced);
    EXPECT_GT(inside_ace_changes(), before);
}

TEST(Ace, KnowsLessAfterAChange) {
    Heap heap = swings(4 * kSecond, 200 * kSecond);
    follow(heap, kBalanced);
    int sure = inside_ace_deviation();
    EXPECT_LT(sure, 50);
    EXPECT_GT(inside_ace_elo(kKeeps) - inside_ace_elo(kDefaults), 200);
    swing(heap, 4 * kSecond, 400, 16'000, kSecond);
    follow(heap, kBalanced);
    EXPECT_GT(inside_ace_deviation(), sure);
}

TEST(Ace, ChangesNothingInTheFirstSecond) {
    std::vector<unsigned> used;
    Heap heap = swings(kSecond / 5, 2 * kSecond);
    follow(heap, kBalanced, 0, &used);
    for (size_t i = 0; i < heap.size() && heap[i].ns < kSecond; i++)
        ASSERT_EQ(used[i], kDefaults);
    EXPECT_TRUE(keeps_quick(used.back()));
}

/* Nothing is ever purged: nothing is rated, and so nothing is timed or changed. */
TEST(Ace, DoesNothingWithoutSwings) {
    Heap heap;
    swing(heap, kSecond, 1'000, 1'050, 100 * kSecond);
    EXPECT_EQ(follow(heap, kBalanced), kDefaults);
    EXPECT_EQ(inside_ace_rounds(), 0u);
}

TEST(Ace, DecidesTheSameGivenTheSame) {
    std::vector<unsigned> one, two;
    follow(random_heap(7), kBalanced, 3, &one);
    follow(random_heap(7), kBalanced, 3, &two);
    EXPECT_EQ(one, two);
}

/* On a machine that others use as much, each swing takes twice as long; the program needs no more time for it. */
TEST(Ace, CountsTheProgramsOwnTime) {
    auto cost = [](uint64_t slowness, uint64_t own) {
        inside_ace_start(kPresets, kRules, kBalanced, kFault, 0);
        uint64_t last = 0;
        for (const At &at : swings(kSecond / 5)) {
            unsigned before = inside_ace_rounds();
            inside_ace_look(at.ns * slowness, at.slots, (at.ns - last) * own);
            last = inside_ace_rounds() != before ? at.ns : last;
        }
        return inside_ace_charged(kKeeps).all;
    };
    double alone = cost(1, 1), beside = cost(2, 1), asleep = cost(20, 1);
    EXPECT_NEAR(beside / alone, 1, 0.05);
    EXPECT_NEAR(asleep / alone, 20, 1) << "who rests keeps memory all the time";
}

/* While a preset that keeps all is in use nothing is given back inside slabs; what others would give back there it
 * pays for nevertheless. */
TEST(Ace, ChargesForWhatSlabsKeep) {
    constexpr uint64_t kInside = 1'000, kSeconds = 20;
    inside_ace_rule rules[kPresets];
    std::copy(std::begin(kRules), std::end(kRules), rules);
    rules[kKeeps].keeps_all = 1;
    auto cost = [&](uint64_t inside) {
        unsigned in_use = kDefaults, kept = 0, looks = 0;
        inside_ace_start(kPresets, rules, kBalanced, kFault, 0);
        for (const At &at : swings(kSecond / 5, kSeconds * kSecond)) {
            inside_ace_inside(in_use == kKeeps ? 0 : inside * 64 * kKiB, 0);
            in_use = inside_ace_look(at.ns, at.slots, UINT64_MAX);
            kept += in_use == kKeeps;
            looks++;
        }
        EXPECT_GT(kept, looks / 2);
        return inside_ace_charged(kKeeps).all;
    };
    EXPECT_NEAR((cost(kInside) - cost(0)) / (kInside * kBalanced * kSeconds), 1, 0.1);
}

/* Pages inside slabs that are wanted back count for LAZY memory as slots do, here as in retain.c. */
TEST(Ace, WhatSlabsWantBackMakesPurgesLazy) {
    constexpr unsigned kHigh = 4'100;
    auto cost = [&](unsigned regrown) {
        Heap heap;
        swing(heap, 2 * kSecond, kHigh - 100, kHigh, 2 * kSecond); /* nothing is purged; the first round ends */
        swing(heap, 6 * kSecond, kHigh - 100, 100, 12 * kSecond);
        inside_ace_start(kPresets, kRules, 0, kFault, 0);
        unsigned rounds = 0;
        for (const At &at : heap) {
            inside_ace_inside(64 * kKiB, rounds == 0 ? regrown : 0);
            inside_ace_look(at.ns, at.slots, UINT64_MAX);
            rounds = inside_ace_rounds();
        }
        return inside_ace_charged(kDefaults).all - regrown * kFault;
    };
    EXPECT_LT(cost(2 * kHigh), cost(0) - kHigh * kFault / 2);
}

/* What a preset keeps for swings leaves when the program rests, as with retain.c's purger. */
TEST(Ace, KeepsLittleWhileThePurgerSeesARest) {
    auto cost = [](int purger) {
        Heap heap;
        for (int i = 0; i < 10; i++) {
            swing(heap, kSecond, 100, 600, kSecond);
            heap.push_back({heap.back().ns + 30 * kSecond, 100});
        }
        inside_ace_start(kPresets, kRules, kBalanced, kFault, 0);
        inside_ace_purger(purger);
        for (const At &at : heap)
            inside_ace_look(at.ns, at.slots, UINT64_MAX);
        return inside_ace_charged(kBursty).all;
    };
    EXPECT_LT(cost(1), cost(0) / 3);
}

/* A slot is LAZY or purged, not both. */
TEST(Ace, ChargesEachSlotThatIsUsedAgainOnce) {
    uint64_t now = 1, slots = 0;
    auto go_to = [&](uint64_t next) {
        for (; slots != next; now += kMs)
            inside_ace_look(now, slots = slots < next ? std::min(slots + 8, next) : slots - 8, UINT64_MAX);
    };
    auto stay = [&](uint64_t ns) {
        for (uint64_t end = now + ns; now < end; now += kMs)
            inside_ace_look(now, slots, UINT64_MAX);
        return inside_ace_charged(kDefaults).all;
    };
    inside_ace_start(kPresets, kRules, 0, kFault, 0);
    go_to(4'000);
    go_to(96); /* they are purged, */
    stay(kSecond);
    inside_ace_inside(0, 8'000); /* and many are wanted back, */
    stay(kSecond / 20);
    inside_ace_inside(0, 0);
    go_to(2'000); /* some are, */
    go_to(96);    /* and become LAZY */
    double before = stay(kSecond / 20);
    go_to(1'096);
    EXPECT_NEAR(stay(kSecond / 20) - before, 1'000 * kFault / 8, 100 * kFault / 8);
}

/* Slots that are LAZY serve before those that went back, so a small growth costs no faults then. */
TEST(Ace, WhatIsLazyServesFirst) {
    auto cost = [&](uint64_t last) {
        Heap heap;
        for (auto [tenths, slots] :
             {std::pair<uint64_t, uint64_t>{3, 4'100}, {12, 100}, {3, 2'000}, {3, 100}, {99, last}})
            for (uint64_t i = 0; i < 2 * tenths; i++)
                heap.push_back({(heap.size() + 1) * 50 * kMs, slots});
        inside_ace_start(kPresets, kRules, 0, kFault, 0);
        for (const At &at : heap) {
            inside_ace_inside(64 * kKiB, inside_ace_rounds() == 0 ? 8'200 : 0);
            inside_ace_look(at.ns, at.slots, UINT64_MAX);
        }
        EXPECT_GT(inside_ace_rounds(), 2u);
        return inside_ace_charged(kDefaults).all;
    };
    EXPECT_LT(cost(150), cost(100) + 100 * kFault);
}

/* A thread reads the clock, and another one that reads it later looks first. The round must not end once more. */
TEST(Ace, ALookMayComeLate) {
    Heap heap;
    swing(heap, 2 * kSecond, 4'000, 100, 12 * kSecond);
    inside_ace_start(kPresets, kRules, 0, kFault, 0);
    for (const At &at : heap) {
        unsigned before = inside_ace_rounds();
        inside_ace_look(at.ns, at.slots, UINT64_MAX);
        unsigned rounds = inside_ace_rounds();
        EXPECT_LE(rounds, before + 1);
        inside_ace_look(at.ns - 1, at.slots, UINT64_MAX);
        ASSERT_EQ(inside_ace_rounds(), rounds) << "at " << at.ns;
    }
    EXPECT_GT(inside_ace_rounds(), 1u);
}

// ---- in this process ----

std::string option_value(const char *name) {
    char value[64];
    hak_option_get(name, value, sizeof value);
    return value;
}

/* 30 MiB up and down, 20 times in a second of a clock that goes by being read. */
void swing() {
    std::vector<void *> blocks;
    for (int n = 0; n < 60'000; n++)
        blocks.push_back(memset(hak_malloc(500), 1, 500));
    for (void *block : blocks)
        hak_free(block);
}

std::string preset() { return heap_stats()["ace"]["preset"].text; }
double rounds() { return heap_stats()["ace"]["rounds"].number; }

/* Until the memory of a swing is kept: two presets do that. False: not in 500 swings. */
bool swings_until(bool kept) {
    for (int i = 0; i < 500; i++) {
        swing();
        std::string bytes = option_value("RETAIN_BYTES");
        if (kept ? (preset() == "throughput" && bytes == "1073741824") || (preset() == "bursty" && bytes == "33554432")
                 : preset() == "balanced" && bytes == "1048576")
            return true;
    }
    return false;
}

class Learn : public testing::Test {
  protected:
    void SetUp() override {
        if (in_secure_mode())
            GTEST_SKIP() << "other tiers";
        step_ns = 100'000;
        ASSERT_EQ(hak_option_set("GOAL", "time"), 0);
        ASSERT_EQ(hak_option_set("ACE", "on"), 0);
    }
    void TearDown() override {
        hak_option_set("ACE", "0");
        step_ns = 0;
    }
};

/* In a child that was forked in the middle of a turn the rounds begin anew. In the first one nothing is known, so what
 * the parent was about to apply must not be in effect any more. The first of these tests, as it forks before anything
 * was learned. */
TEST_F(Learn, AChildDoesNotGoOnWithWhatItsParentApplied) {
    pid_t child = fork();
    if (child == 0) {
        alarm(kChildSeconds);
        swing();
        inside_tuner_interrupt();
        EXPECT_EQ(option_value("RETAIN_BYTES"), "1073741824");
        while (option_value("RETAIN_BYTES") != "1048576")
            swing();
        _exit(testing::Test::HasFailure());
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
}

TEST_F(Learn, KeepsWhatASwingNeedsAndLeavesOthersSettingsAlone) {
    ASSERT_EQ(hak_option_set("DECAY_MS", "7000"), 0);
    EXPECT_TRUE(swings_until(true));
    EXPECT_EQ(option_value("DECAY_MS"), "7000") << "set by the program";
    ASSERT_EQ(hak_option_set("ACE", "observe"), 0);
    EXPECT_TRUE(swings_until(false));
    ASSERT_EQ(hak_option_set("DECAY_MS", "10000"), 0);
}

/* Else a program that sleeps after its work keeps all that the work needed. */
TEST_F(Learn, WhatItKeepsGoesBackAtRest) {
    std::vector<void *> blocks(20'000);
    for (void *&block : blocks)
        block = hak_malloc(500);
    EXPECT_TRUE(swings_until(true));
    inside_rest();
    EXPECT_EQ(option_value("RETAIN_BYTES"), "1048576");
    for (void *block : blocks)
        hak_free(block);
    EXPECT_EQ(option_value("RETAIN_BYTES"), "1048576") << "it still rests";
    EXPECT_TRUE(swings_until(true)) << "and is kept again by the next work";
}

/* What the preset that keeps all is charged for a second of swings, on average lately. */
double cost_us_of_swings() {
    for (double end = rounds() + 60; rounds() < end;)
        swing();
    Json stats = heap_stats();
    for (auto &preset : stats["ace"]["presets"].items)
        if (preset["name"].text == "throughput")
            return preset["cost_us"].number;
    return -1;
}

/* 1 GiB for a second is worth 30 ms; a swing has 30 MiB, which are free for a part of the time. A program that runs for
 * 60 % of the time keeps them for as much of its own. */
TEST_F(Learn, ChargesForMemoryByTheProgramsOwnTime) {
    double alone = cost_us_of_swings();
    EXPECT_GT(alone, 30'000 * 30 / 1024 / 4);
    EXPECT_LT(alone, 30'000 * 30 / 1024 * 2);
    cpu_percent = 60;
    double beside = cost_us_of_swings();
    cpu_percent = 100;
    EXPECT_NEAR(beside / alone, 0.6, 0.06);
    Json saved = heap_stats()["ace"]["possible"];
    EXPECT_GT(saved["cpu_ms"].number, 0) << "the best preset costs less time than the first one,";
    EXPECT_GT(saved["mib_ms"].number, 0) << "and more memory";
}

void churn(uint64_t seed) {
    Random random(seed);
    std::vector<void *> blocks(20'000);
    for (int i = 0; i < times(300'000); i++) {
        void *&block = blocks[random.below(blocks.size())];
        hak_free(block);
        block = hak_malloc(16 + random.below(3'000));
    }
    for (void *block : blocks)
        hak_free(block);
}

/* Several threads find rounds over, and a child of theirs goes on. */
TEST_F(Learn, WorksInThreadsAndInAChild) {
    std::vector<std::thread> threads;
    for (uint64_t seed = 1; seed <= 4; seed++)
        threads.emplace_back(churn, seed);
    /* Not under a sanitizer: its locks may be held in a child of threads. */
    pid_t child = kShorter == 1 ? fork() : -1;
    if (child == 0) {
        churn(9);
        _exit(rounds() >= 0 ? 0 : 1);
    }
    for (std::thread &thread : threads)
        thread.join();
    int status = 0;
    EXPECT_TRUE(kShorter != 1 || waitpid(child, &status, 0) == child);
    EXPECT_EQ(status, 0);
}

} // namespace
