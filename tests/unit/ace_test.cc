/* ACE, with costs that the test makes up and a clock of its own, then in this process. If it fails, a program with
 * ACE=on uses a preset that is worse than what it had, or pays for the search. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>

#include <hakmem.h>
#include <sys/wait.h>

#include <chrono>
#include <future>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "../heap_stats.h"
#include "../support.h"
#include "inside.h"

namespace {

constexpr uint64_t kStretch = 10'000'000, kSecond = 1'000'000'000;
constexpr uint64_t kAllocations = 100'000; /* in a stretch */

/* A program, with the picoseconds that its slow paths take for an allocation under each preset. */
class Program {
  public:
    explicit Program(std::vector<uint64_t> costs, bool plays = true, uint64_t seed = 1)
        : costs_(std::move(costs)), random_(seed) {
        std::vector<inside_ace_rule> rules(costs_.size(), inside_ace_rule{16, 10, kSecond});
        inside_ace_start(static_cast<unsigned>(rules.size()), rules.data(), 18'000, 8'000, plays);
    }
    /* Returns the preset that is played after a rest. */
    unsigned rest() {
        inside_ace_rest();
        now_ += kStretch;
        return playing_ = inside_ace_turn(now_, 0, slow_ns_, allocations_, class_, misses_);
    }
    void costs(std::vector<uint64_t> costs, unsigned class_id) {
        costs_ = std::move(costs);
        class_ = class_id;
        misses_ = 0;
    }
    /* Runs for so long. Each stretch costs up to `noise` percent more or less. */
    void run(uint64_t ns, unsigned noise = 0) {
        for (uint64_t end = now_ + ns; now_ < end;) {
            now_ += kStretch;
            uint64_t cost = costs_[playing_] * kAllocations / 1000;
            cost = cost * (100 - noise + random_.below(2 * noise + 1)) / 100;
            slow_ns_ += cost;
            allocations_ += kAllocations;
            misses_ += 500;
            uint64_t usual = costs_[inside_ace_in_use()] * kAllocations / 1000;
            lost_ns_ += cost > usual && playing_ != inside_ace_in_use() ? cost - usual : 0;
            playing_ = inside_ace_turn(now_, 0, slow_ns_, allocations_, class_, misses_);
            played_.push_back(playing_);
        }
    }
    [[nodiscard]] uint64_t now() const { return now_; }
    [[nodiscard]] uint64_t lost_ns() const { return lost_ns_; }
    [[nodiscard]] const std::vector<unsigned> &played() const { return played_; }

  private:
    std::vector<uint64_t> costs_;
    Random random_;
    uint64_t now_ = 1, slow_ns_ = 0, allocations_ = 0, lost_ns_ = 0;
    unsigned playing_ = 0, class_ = 3, misses_ = 0;
    std::vector<unsigned> played_;
};

unsigned matches() {
    unsigned sum = 0;
    for (unsigned i = 0; i < 6; i++)
        sum += inside_ace_seen(i).matches;
    return sum;
}

TEST(Ace, UsesThePlantedBest) {
    for (unsigned best = 0; best < 6; best++) {
        std::vector<uint64_t> costs(6, 10'000);
        costs[best] = 7'000;
        Program program(costs, true, best);
        program.run(20 * kSecond, 5);
        EXPECT_EQ(inside_ace_in_use(), best);
        EXPECT_LE(inside_ace_switches(), 3u) << best;
    }
}

TEST(Ace, UsesAnotherAfterTheProgramHasChanged) {
    Program program({10'000, 7'000, 10'000, 10'000, 10'000, 10'000});
    program.run(20 * kSecond, 5);
    ASSERT_EQ(inside_ace_in_use(), 1u);
    program.costs({10'000, 10'000, 10'000, 10'000, 7'000, 10'000}, 9);
    program.run(20 * kSecond, 5);
    EXPECT_EQ(inside_ace_in_use(), 4u);
}

/* Equal presets: no switches to and fro, and the matches come to an end. */
TEST(Ace, SettlesWhereNothingIsGained) {
    for (uint64_t seed = 1; seed <= 5; seed++) {
        Program program(std::vector<uint64_t>(6, 10'000), true, seed);
        program.run(120 * kSecond, 10);
        EXPECT_LE(inside_ace_switches(), 2u) << seed;
        unsigned before = matches();
        program.run(60 * kSecond, 10);
        EXPECT_LE(matches() - before, 4u) << seed;
    }
}

/* One preset is a hundred times as dear: trying it costs 1 % of the time, and at most one stretch at a time. */
TEST(Ace, BoundsWhatTheSearchCosts) {
    Program program({2'000, 200'000, 2'000, 200'000, 2'000, 200'000});
    program.run(60 * kSecond, 5);
    EXPECT_EQ(inside_ace_in_use() % 2, 0u);
    EXPECT_LT(program.lost_ns(), program.now() / 100 + 2 * 200'000 * kAllocations / 1000);
}

TEST(Ace, DecidesTheSameGivenTheSame) {
    auto play = [] {
        Program program({10'000, 9'500, 9'000, 10'500, 9'800, 9'900}, true, 7);
        program.run(10 * kSecond, 20);
        return program.played();
    };
    EXPECT_EQ(play(), play());
}

TEST(Ace, OnlyRatesWhereItMayNotPlay) {
    Program program({10'000, 5'000}, false);
    program.run(kSecond);
    for (unsigned played : program.played())
        ASSERT_EQ(played, 0u);
    EXPECT_EQ(inside_ace_switches(), 0u);
}

/* The rest may last for hours, and what was tried would be in effect all the time. */
TEST(Ace, ARestEndsAMatch) {
    Program program(std::vector<uint64_t>(6, 10'000));
    for (int rests = 0; rests < 20;) {
        program.run(kStretch);
        if (program.played().back() == inside_ace_in_use())
            continue;
        unsigned before = matches();
        EXPECT_EQ(program.rest(), inside_ace_in_use());
        EXPECT_EQ(matches(), before) << "half a match says nothing";
        rests++;
    }
}

/* A heap that goes up and down by 1,000 slots. Returns the preset in use after a while: 0 keeps 16 slots, 1 keeps
 * 4,096. */
unsigned after_swings(uint64_t half_ns, uint64_t slot_second, bool plays = true) {
    const inside_ace_rule rules[] = {{16, 10, 10 * kSecond}, {4096, 100, 10 * kSecond}};
    inside_ace_start(2, rules, slot_second, 8'000, plays);
    uint64_t now = 1;
    unsigned misses = 0;
    for (int half = 0; half < 40; half++)
        for (uint64_t end = now + half_ns; now < end; now += kStretch, misses += 500)
            inside_ace_turn(now, half % 2 != 0 ? 1'100 : 100, now / 100, now / 10, 3, misses);
    return plays ? inside_ace_in_use() : inside_ace_best();
}

/* Keeping 1,000 slots for half a second costs 9 ms at this price, to purge them and fault them in again the same; so a
 * quick swing keeps them and a slow one doesn't. */
TEST(Ace, WeighsMemoryAgainstTime) {
    EXPECT_EQ(after_swings(kSecond / 10, 18'000), 1u);
    EXPECT_EQ(after_swings(2 * kSecond, 18'000), 0u);
    EXPECT_EQ(after_swings(2 * kSecond, 1'800), 1u) << "a tenth of the price";
    EXPECT_EQ(after_swings(kSecond / 10, 180'000), 0u) << "ten times the price";
    EXPECT_EQ(after_swings(kSecond / 10, 18'000, false), 1u) << "without being played";
}

// ---- in this process ----

std::string option_value(const char *name) {
    char value[64];
    hak_option_get(name, value, sizeof value);
    return value;
}

struct Settings {
    const char *preset, *retain_bytes;
};

/* Goes up and down by 30 MiB until one of these presets is in use, and is the one that is played. False: not in 2,000
 * swings. */
bool swings_until(const std::vector<Settings> &presets) {
    for (int i = 0; i < 2'000; i++) {
        std::vector<void *> blocks;
        for (int n = 0; n < 60'000; n++)
            blocks.push_back(memset(hak_malloc(500), 1, 500));
        for (void *block : blocks)
            hak_free(block);
        std::string in_use = heap_stats()["ace"]["preset"].text;
        for (auto &preset : presets)
            if (in_use == preset.preset && option_value("RETAIN_BYTES") == preset.retain_bytes)
                return true;
    }
    return false;
}

void miss() {
    std::vector<void *> blocks(2'000);
    for (void *&block : blocks)
        block = hak_malloc(500);
    for (void *block : blocks)
        hak_free(block);
}

double rounds() { return heap_stats()["ace"]["rounds"].number; }

/* In a child that was forked in the middle of a turn the rounds begin anew. In the first one nothing is tried, so what
 * was tried then must not be in effect any more. The first of these tests, as it forks before anything was learned. */
TEST(Learn, AChildDoesNotGoOnWithWhatItsParentTried) {
    if (in_secure_mode())
        GTEST_SKIP() << "other tiers";
    pid_t child = fork();
    if (child == 0) {
        alarm(kChildSeconds);
        for (const char *set : {"0", "on"})
            EXPECT_EQ(hak_option_set("ACE", set), 0);
        std::string retained;
        for (bool first_round = false; !first_round;) {
            while (rounds() == 0)
                miss();
            inside_tuner_interrupt();
            EXPECT_EQ(option_value("RETAIN_BYTES"), "268435456");
            double before = rounds(), now = before;
            while (now == before) {
                miss();
                retained = option_value("RETAIN_BYTES");
                now = rounds();
            }
            first_round = now == 0; /* else the machine was so busy that the first round is over */
        }
        EXPECT_EQ(retained, "1048576");
        _exit(testing::Test::HasFailure());
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
}

TEST(Learn, KeepsWhatASwingNeedsAndLeavesOthersSettingsAlone) {
    if (in_secure_mode())
        GTEST_SKIP() << "other tiers";
    ASSERT_EQ(hak_option_set("GOAL", "time"), 0);
    ASSERT_EQ(hak_option_set("DECAY_MS", "7000"), 0);
    ASSERT_EQ(hak_option_set("ACE", "on"), 0);
    /* Both keep such a swing, so either may lead. */
    EXPECT_TRUE(swings_until({{"throughput", "268435456"}, {"bursty", "33554432"}}));
    EXPECT_EQ(option_value("DECAY_MS"), "7000") << "set by the program";
    ASSERT_EQ(hak_option_set("ACE", "observe"), 0);
    EXPECT_TRUE(swings_until({{"balanced", "1048576"}}));
    ASSERT_EQ(hak_option_set("ACE", "0"), 0);
}

/* Else a preset that is tried as a program begins to free everything decides alone what stays. */
TEST(Learn, TakesTurnsWhileTheProgramFrees) {
    if (in_secure_mode())
        GTEST_SKIP() << "other tiers";
    ASSERT_EQ(hak_option_set("ACE", "on"), 0);
    std::vector<void *> blocks(200'000);
    for (void *&block : blocks)
        block = memset(hak_malloc(500), 1, 500);
    double before = rounds();
    for (size_t i = 0; i < blocks.size(); i++) {
        hak_free(blocks[i]);
        if (i % 1'000 == 0)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_GE(rounds(), before + 2) << "a round takes 40 ms";
    ASSERT_EQ(hak_option_set("ACE", "0"), 0);
}

TEST(Learn, NothingIsTriedWhileTheProgramRests) {
    if (in_secure_mode())
        GTEST_SKIP() << "other tiers";
    static const std::map<std::string, std::string> keeps = {
        {"balanced", "1048576"}, {"adapted", "1048576"},      {"lean", "65536"},
        {"bursty", "33554432"},  {"throughput", "268435456"}, {"producer-consumer", "8388608"},
    };
    ASSERT_EQ(hak_option_set("ACE", "on"), 0);
    auto *live = static_cast<char *>(hak_malloc(8 * kMiB)); /* a heap that has a purger */
    std::promise<void> end;
    std::thread other([ended = end.get_future()]() mutable {
        hak_free(hak_malloc(10));
        ended.wait();
    });
    auto usual = [] { return keeps.at(heap_stats()["ace"]["preset"].text); };
    double begun = rounds();
    for (int i = 0; i < 100'000 && (rounds() < begun + 4 || option_value("RETAIN_BYTES") == usual()); i++)
        miss();
    for (int i = 0; i < 400 && option_value("RETAIN_BYTES") != usual(); i++)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_EQ(option_value("RETAIN_BYTES"), usual());
    /* And not once nobody learns any more. */
    for (int i = 0; i < 100'000 && option_value("RETAIN_BYTES") == usual(); i++)
        miss();
    ASSERT_EQ(hak_option_set("ACE", "0"), 0);
    miss();
    hak_trim();
    EXPECT_EQ(option_value("RETAIN_BYTES"), usual());
    end.set_value();
    other.join();
    hak_free(live);
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

/* Several threads find stretches over, and a child of theirs goes on. */
TEST(Learn, WorksInThreadsAndInAChild) {
    ASSERT_EQ(hak_option_set("ACE", "on"), 0);
    std::vector<std::thread> threads;
    for (uint64_t seed = 1; seed <= 4; seed++)
        threads.emplace_back(churn, seed);
    /* Not under a sanitizer: its locks may be held in a child of threads. */
    pid_t child = kShorter == 1 ? fork() : -1;
    if (child == 0) {
        churn(9);
        _exit(heap_stats()["ace"]["rounds"].number >= 0 ? 0 : 1);
    }
    for (std::thread &thread : threads)
        thread.join();
    int status = 0;
    EXPECT_TRUE(kShorter != 1 || waitpid(child, &status, 0) == child);
    EXPECT_EQ(status, 0);
    ASSERT_EQ(hak_option_set("ACE", "0"), 0);
}

} // namespace
