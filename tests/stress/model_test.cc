/* Random sequences of calls over the whole API, checked against a shadow that knows every live block
 * (fuzz/operations.h): no two overlap, each is aligned, keeps its contents and is as big as it claims, calloc returns
 * zeroes, errno is right. If it fails, some sequence of calls that a program may make corrupts its memory. The failing
 * sequence is shortened, printed, and written to a file:
 *   HAK_TEST_REPLAY=FILE               replays such a file
 *   --gtest_random_seed=N              runs other sequences
 *   HAK_TEST_LONGER=N                  runs N times as many */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>

#include <fstream>

#include "../fuzz/script.h"
#include "../support.h"

namespace {

/* Replayed while a failed sequence is shortened: the test has 600 seconds. */
constexpr size_t kShrinkSteps = kShorter == 1 ? 30000000 : 1000000;

/* Runs the sequence of that seed. If it fails, reports how, with the shortest sequence found that also fails. */
void run_sequence(uint64_t seed, size_t steps, unsigned threads) {
    Script script = script_random(seed, steps, threads);
    Verdict verdict = script_run(subject(), script);
    if (!verdict.failed)
        return;
    printf("sequence %llu: %s\n", static_cast<unsigned long long>(seed), verdict.message.c_str());
    fflush(stdout); /* shortening may take longer than the test has */
    script = script_shrink(subject(), script, verdict, kShrinkSteps);
    std::string file = "model-" + std::to_string(seed) + ".steps", text = script_text(script);
    std::ofstream(file) << text;
    ADD_FAILURE() << "sequence " << seed << ", " << steps << " steps of " << threads << " threads: " << verdict.message
                  << "made short, " << script.size() << " steps, in " << file << ":\n"
                  << text.substr(0, 5000);
}

/* Runs `parts` sequences, `steps` steps in all. */
void run_sequences(const char *name, size_t parts, int steps, const std::vector<unsigned> &threads) {
    auto seed = static_cast<uint64_t>(GTEST_FLAG_GET(random_seed)) * 1000000;
    printf("seed %llu\n", static_cast<unsigned long long>(seed));
    auto longer = static_cast<size_t>(from_environment("HAK_TEST_LONGER")); /* more sequences, and longer ones */
    size_t each =
        static_cast<size_t>(times(steps / static_cast<int>(parts), 5 * steps / static_cast<int>(parts))) / longer;
    parts *= longer;
    for (size_t part = 0; part < parts && !testing::Test::HasFailure(); part++)
        run_sequence(seed + part * 100 + threads[part % threads.size()], each, threads[part % threads.size()]);
    if (!testing::Test::HasFailure())
        figure(name, static_cast<long>(each * parts));
}

TEST(Model, OneThread) { run_sequences("model_operations_one_thread", 4, 1000000, {1}); }

TEST(Model, ThreadsThatHandOverAndEnd) { run_sequences("model_operations_threads", 6, 1000000, {4, 8, 16}); }

/* ---- the test of the test ---- */

char *planted_victim;
size_t planted_count;

/* A block of 700 bytes or more is damaged once 16 small ones have been freed after it. */
Surface with_planted_bug() {
    Surface surface = subject();
    surface.alloc = [](size_t size) {
        void *block = subject().alloc(size);
        if (size >= 700 && size < 1000 && block != nullptr) {
            planted_victim = static_cast<char *>(block);
            planted_count = 0;
        }
        return block;
    };
    surface.free = [](void *block) {
        if (block == planted_victim)
            planted_victim = nullptr;
        if (subject().usable_size(block) == 48 && planted_victim != nullptr && ++planted_count == 16)
            planted_victim[300] ^= 1;
        subject().free(block);
    };
    return surface;
}

TEST(Model, ABugIsFoundAndItsSequenceIsShortened) {
    Surface surface = with_planted_bug();
    Script script = script_random(1, 300000, 1);
    Verdict verdict = script_run(surface, script);
    ASSERT_TRUE(verdict.failed);
    EXPECT_NE(verdict.message.find("byte 300 of the block"), std::string::npos) << verdict.message;
    script = script_shrink(surface, script, verdict);
    /* One block, sixteen allocations and frees, one check: little more than that. */
    EXPECT_LE(script.size(), 60u) << script_text(script);
    EXPECT_TRUE(script_run(surface, script).failed);
    EXPECT_FALSE(script_run(subject(), script).failed);
}

TEST(Model, Replay) {
    const char *path = getenv("HAK_TEST_REPLAY");
    if (path == nullptr)
        GTEST_SKIP() << "HAK_TEST_REPLAY=FILE names no sequence to run again";
    Script script = script_read(path);
    ASSERT_FALSE(script.empty()) << path;
    Verdict verdict = script_run(subject(), script, 20);
    EXPECT_FALSE(verdict.failed) << verdict.message;
}

} // namespace
