/* Python's frames (python.h), of an interpreter that is none, so that every word of it can be wrong. If it fails, a
 * profiled Python program crashes, or its functions have each other's names. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>
#include <hakmem.h>
#include <sys/mman.h>

#include <atomic>
#include <fstream>
#include <random>
#include <sstream>
#include <thread>

#include "../posix_regex.h"
#include "../support.h"
#include "python_fake.h"

namespace {

constexpr unsigned kMost = 40;
constexpr uintptr_t kFrame = uintptr_t{1} << 63, kEntry = uintptr_t{1} << 62;

std::string described(uintptr_t word) {
    char text[200];
    fake_describe(word, text, sizeof text);
    return text;
}

struct Used : fake {
    Used() {
        fake_make(this);
        fake_use(this);
    }
    ~Used() { fake_use(nullptr); }
};

TEST(Python, FramesOfAThread) {
    Used python;
    uintptr_t words[kMost];
    ASSERT_EQ(fake_capture(words, kMost), 3u);
    EXPECT_EQ(described(words[0]), "leaf /a.py 10 3");
    EXPECT_EQ(described(words[1]), "größe /a.py 11 3");
    EXPECT_EQ(described(words[2]), "€uro /a.py 13 3");
    for (unsigned i = 0; i < 3; i++) {
        EXPECT_EQ(static_cast<uint32_t>(words[i]), i < 2 ? i + 1 : 4) << "the instruction";
        EXPECT_EQ(words[i] & (kFrame | kEntry), i == 1 ? kFrame | kEntry : kFrame);
    }
    uintptr_t again[kMost];
    ASSERT_EQ(fake_capture(again, kMost), 3u);
    EXPECT_TRUE(std::equal(words, words + 3, again)) << "a code has one number";
    EXPECT_EQ(fake_capture(again, 2), 2u);
}

/* Whose frames count instructions, while those of later versions point to them. */
TEST(Python, FramesOfAnEarlierVersion) {
    static fake python; /* where no other was: of a code that is known, nothing is read again */
    fake_version(10);
    fake_make(&python);
    fake_use(&python);
    uintptr_t words[kMost];
    unsigned n = fake_capture(words, kMost);
    fake_use(nullptr);
    fake_version(12);
    ASSERT_EQ(n, 3u);
    EXPECT_EQ(described(words[0]), "leaf /a.py 10 3");
    EXPECT_EQ(described(words[1]), "größe /a.py 11 3");
    EXPECT_EQ(described(words[2]), "€uro /a.py 13 3");
    for (unsigned i = 0; i < 3; i++) {
        EXPECT_EQ(static_cast<uint32_t>(words[i]), i < 2 ? i + 1 : 4) << "the instruction";
        EXPECT_EQ(words[i] & (kFrame | kEntry), kFrame | kEntry);
    }
}

TEST(Python, ThreadsThatAreNotPythons) {
    uintptr_t words[kMost];
    EXPECT_EQ(fake_capture(words, kMost), 0u);
    Used python;
    std::thread([&] {
        fake_use(&python); /* the state of another thread */
        EXPECT_EQ(fake_capture(words, kMost), 0u);
        fake_use(nullptr);
    }).join();
}

/* Each word in turn leads to nowhere, then several at once. */
TEST(Python, DamagedMemory) {
    constexpr size_t kBytes = 65536;
    auto *area = static_cast<char *>(mmap(nullptr, 3 * kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_EQ(mprotect(area + kBytes, kBytes, PROT_READ | PROT_WRITE), 0);
    auto page = reinterpret_cast<uintptr_t>(area);
    auto *python = reinterpret_cast<fake *>(area + 2 * kBytes - sizeof(fake)); /* the next byte cannot be read */
    uintptr_t words[kMost];
    fake_use(python);
    std::mt19937_64 random(static_cast<unsigned>(getpid()));
    auto value = [&]() -> uintptr_t {
        const uintptr_t inside = reinterpret_cast<uintptr_t>(python->words + random() % FAKE_WORDS);
        const uintptr_t values[] = {0,
                                    1,
                                    8,
                                    page,
                                    page + 2 * kBytes - 8,
                                    page + 2 * kBytes,
                                    UINTPTR_MAX,
                                    inside,
                                    inside + 1,
                                    inside & ~uintptr_t{4095},
                                    uintptr_t{1} << 63,
                                    random()};
        return values[random() % (sizeof values / sizeof *values)];
    };
    for (int round = 0; round < 40 / std::min(kShorter, 10); round++)
        for (unsigned at = 0; at < FAKE_WORDS; at++) {
            fake_make(python);
            python->words[at] = value();
            for (int more = round % 4; more > 0; more--)
                python->words[random() % FAKE_WORDS] = value();
            EXPECT_LE(fake_capture(words, kMost), kMost);
        }
    fake_use(nullptr);
    munmap(area, 3 * kBytes);
}

/* Else more is written than there is room for, over the next function's name or behind the table. */
TEST(Python, AStringThatIsNotWhatItClaims) {
    static fake python; /* where no other was: of a code that is known, nothing is read again */
    fake_make(&python);
    fake_claim_ascii(&python);
    fake_use(&python);
    uintptr_t words[kMost];
    unsigned n = fake_capture(words, kMost);
    fake_use(nullptr);
    ASSERT_EQ(n, 3u);
    EXPECT_EQ(described(words[1]), "grv_e /a.py 11 3");
    EXPECT_EQ(described(words[2]), "€uro /a.py 13 3");
}

/* Else `hakmem flame` shows functions without names. */
TEST(Python, CodesInAProfilesFile) {
    Used python;
    uintptr_t words[kMost];
    ASSERT_EQ(fake_capture(words, kMost), 3u);
    ASSERT_EQ(hak_profile_start(1 << 30), 0);
    std::string path = testing::TempDir() + "python." + std::to_string(getpid());
    ASSERT_EQ(hak_profile_dump(path.c_str()), 0);
    hak_profile_stop();
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    EXPECT_EQ(unlink(path.c_str()), 0);
    EXPECT_TRUE(Regex("\npython [0-9]+ 12 10 6c656166 2f612e7079 [0-9a-f]{6}\n").is_in(text.str()));
}

/* Several threads meet the same codes for the first time, until no more find room. */
TEST(Python, ManyCodesInManyThreads) {
    constexpr unsigned kThreads = 4, kEach = 3;
    std::vector<fake> shared(fake_codes() / kEach + 100);
    for (auto &one : shared)
        fake_make(&one);
    std::atomic<unsigned> described_wrongly{0}, left_out{0};
    auto work = [&] {
        Used python;
        uintptr_t words[kMost];
        for (auto &one : shared) {
            fake_share_frames(&python, &one);
            unsigned n = fake_capture(words, kMost);
            left_out += n < kEach;
            std::string text = n == kEach ? described(words[0]) : "";
            described_wrongly += !text.empty() && text != "leaf /a.py 10 3";
        }
    };
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < kThreads; i++)
        threads.emplace_back(work);
    for (auto &thread : threads)
        thread.join();
    EXPECT_EQ(described_wrongly, 0u);
    EXPECT_GT(left_out, 0u);
    EXPECT_LT(left_out, kThreads * shared.size() / 2) << "threads found each other's codes";
}

} // namespace
