/* SUPERSLAB=0, with which libc's own allocator serves. If it fails, whoever compares a program under HAKMEM with the
 * same program without it is misled, or the program breaks. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>

#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>

#include <hakmem.h>

#include "../heap_stats.h"
#include "../support.h"

extern "C" void free_sized(void *block, size_t size); /* C23 */
extern "C" void free_aligned_sized(void *block, size_t alignment, size_t size);

static int early_trim = -1; /* what malloc_trim said */
static void trim_first(int, char **, char **) {
    free(malloc(100)); /* libc serves from the first call on */
    early_trim = malloc_trim(0);
}
__attribute__((section(".preinit_array"), used)) static void (*const trim_at_once)(int, char **, char **) = trim_first;

namespace {

const size_t kSizes[] = {0, 1, 16, 100, 1024, 1025, 5000, 70000, 1 << 20, 3 << 20};

/* These run in a process of their own, with the switch. */
class Bypassed : public testing::Test {
  protected:
    void SetUp() override {
        if (getenv("HAK_TEST_BYPASSED") == nullptr)
            GTEST_SKIP() << "for the process that another test starts";
    }
};

/* Is the block libc's, and usable? */
void expect_libcs(void *block, size_t size, size_t alignment = 16) {
    ASSERT_NE(block, nullptr) << size;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % alignment, 0u) << size;
    EXPECT_GE(malloc_usable_size(block), size);
    EXPECT_EQ(hak_usable_size(block), malloc_usable_size(block));
    EXPECT_EQ(hak_arena_of(block), nullptr);
    memset(block, 7, size);
}

TEST_F(Bypassed, TheHeapStaysEmpty) {
    std::vector<void *> blocks;
    for (int i = 0; i < 20000; i++)
        blocks.push_back(malloc(static_cast<size_t>(i) % 3000));
    Json stats = heap_stats();
    EXPECT_EQ(stats["heaps"].number, 0);
    EXPECT_EQ(stats["superslabs"].number, 0);
    EXPECT_EQ(stats["rss_bytes"]["live"].number, 0);
    for (void *block : blocks)
        free(block);
    malloc_trim(0);
}

TEST_F(Bypassed, EveryCallServesItsBlocks) {
    for (size_t size : kSizes) {
        void *block = malloc(size);
        expect_libcs(block, size);
        free(block);
        block = calloc(size, 3);
        for (size_t i = 0; i < 3 * size; i++)
            ASSERT_EQ(static_cast<char *>(block)[i], 0) << size;
        expect_libcs(block, 3 * size);
        block = realloc(block, 5 * size + 100);
        for (size_t i = 0; i < 3 * size; i++)
            ASSERT_EQ(static_cast<char *>(block)[i], 7) << size;
        expect_libcs(block, 5 * size + 100);
        free_sized(block, 5 * size + 100);
        expect_libcs(block = reallocarray(nullptr, size, 2), 2 * size);
        free(block);
        expect_libcs(block = hak_malloc(size), size);
        EXPECT_EQ(hak_expand(block, size), 1);
        EXPECT_EQ(hak_expand(block, size + (1 << 20)), 0);
        hak_free_sized(block, size);
        size_t usable;
        block = hak_alloc_at_least(size, &usable);
        EXPECT_GE(usable, size);
        expect_libcs(block, usable);
        hak_free(block);
        expect_libcs(block = hak_malloc_dense(size), size);
        EXPECT_EQ(hak_should_move(block), 0);
        hak_free_dense(block);
        char *one = new char[size];
        expect_libcs(one, size);
        delete[] one;
        ::operator delete(::operator new(size), size);
        for (size_t alignment = 8; alignment <= 1 << 20; alignment *= 4) {
            ASSERT_EQ(posix_memalign(&block, alignment, size), 0);
            expect_libcs(block, size, alignment);
            free_aligned_sized(block, alignment, size);
            expect_libcs(block = aligned_alloc(alignment, size), size, alignment);
            free(block);
            block = ::operator new(size, std::align_val_t(alignment));
            expect_libcs(block, size, alignment);
            ::operator delete(block, size, std::align_val_t(alignment));
        }
    }
    free(nullptr);
    EXPECT_EQ(malloc_usable_size(nullptr), 0u);
}

TEST_F(Bypassed, WhatCannotBeHadIsRefused) {
    volatile size_t most = SIZE_MAX; /* the compiler would warn */
    errno = 0;
    EXPECT_EQ(malloc(most / 2), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_EQ(calloc(most / 2, 4), nullptr);
    EXPECT_THROW(::operator delete(::operator new(most / 4)), std::bad_alloc);
    EXPECT_EQ(::operator new(most / 4, std::nothrow), nullptr);
}

TEST_F(Bypassed, ArenasAreServedBesides) {
    hak_arena *arena = hak_arena_new(nullptr);
    ASSERT_NE(arena, nullptr);
    for (size_t size : kSizes) {
        void *block = hak_arena_malloc(arena, size), *other = malloc(size);
        EXPECT_EQ(hak_arena_of(block), arena) << size;
        expect_libcs(other, size); /* although the thread has a heap now */
        memset(block, 5, size);
        block = realloc(block, size + 5000);
        for (size_t i = 0; i < size; i++)
            ASSERT_EQ(static_cast<char *>(block)[i], 5) << size;
        free(block);
        free(other);
    }
    hak_arena_destroy(arena);
}

/* Where nothing is reserved, libc's blocks come to lie between SuperSlabs. */
TEST_F(Bypassed, BlocksLieBetweenThoseOfArenas) {
    hak_arena *arena = hak_arena_new(nullptr);
    std::vector<void *> blocks, others;
    for (int i = 0; i < 40; i++) {
        blocks.push_back(hak_arena_malloc(arena, 3 << 20));
        others.push_back(malloc(1 << 20));
        expect_libcs(others.back(), 1 << 20);
    }
    for (int i = 0; i < 40; i++) {
        others[i] = realloc(others[i], 2 << 20);
        expect_libcs(others[i], 2 << 20);
        EXPECT_EQ(hak_arena_of(blocks[i]), arena);
        free(others[i]);
        free(blocks[i]);
    }
    hak_arena_destroy(arena);
}

TEST_F(Bypassed, ThreadsAndForksShareBlocks) {
    std::vector<void *> blocks;
    for (size_t size : kSizes)
        blocks.push_back(malloc(size));
    std::thread([&] {
        for (void *&block : blocks) {
            free(block);
            block = malloc(100);
        }
    }).join();
    pid_t pid = fork();
    if (pid == 0) {
        for (void *block : blocks)
            free(block);
        free(malloc(1000));
        _exit(0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    EXPECT_EQ(status, 0);
    for (void *block : blocks)
        free(block);
}

/* Also when arenas have much to purge. A tool would tell of a purger's stack as the program's. */
/* Before the library starts it does not know libc's malloc_trim yet. */
TEST_F(Bypassed, TrimSaysBeforeTheStartThatNothingWentBack) { EXPECT_EQ(early_trim, 0); }

TEST_F(Bypassed, NoPurgerIsMade) {
    std::atomic<bool> has_worked = false, end = false;
    std::thread other([&] {
        hak_arena *arena = hak_arena_new(nullptr);
        for (int i = 0; i < 100; i++)
            memset(hak_arena_malloc(arena, 1 << 20), 7, 1 << 20);
        hak_arena_destroy(arena);
        has_worked = true;
        while (!end)
            usleep(1000);
    });
    while (!has_worked)
        usleep(1000);
    for (int i = 0; i < 5000 && process_threads() != 2; i++)
        usleep(1000); /* the kernel counts a thread that was joined a moment longer */
    EXPECT_EQ(process_threads(), 2);
    end = true;
    other.join();
}

TEST(Bypass, LibcServesWithTheSwitch) {
    for (const char *more : {"HAKMEM_STATS=0", "HAKMEM_REGION_BYTES=0"}) {
        Outcome outcome = run_self({"--gtest_filter=Bypassed.*"}, {"HAKMEM_SUPERSLAB=0", "HAK_TEST_BYPASSED=1", more});
        EXPECT_TRUE(outcome.exited(0)) << outcome.describe();
        EXPECT_NE(outcome.out.find("[  PASSED  ] 8 tests."), std::string::npos) << outcome.describe();
        EXPECT_EQ(outcome.err, "");
    }
}

TEST(Bypass, SecureModeWins) {
    Outcome outcome = run_self({"--gtest_filter=Bypassed.*"}, {"HAKMEM_SUPERSLAB=0", "HAKMEM_SECURE=1"});
    EXPECT_TRUE(outcome.exited(0)) << outcome.describe();
    EXPECT_EQ(outcome.err, "hakmem: HAKMEM_SUPERSLAB=0: not with HAKMEM_SECURE=1; ignored\n");
}

} // namespace
