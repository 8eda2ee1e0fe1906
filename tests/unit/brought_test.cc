/* Arenas in memory that the program brings: if one of these fails, blocks lie elsewhere than the program said, overlap,
 * or cannot be freed; or the memory is not the program's again afterwards. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <thread>
#include <vector>

#include "../support.h"
#include "hakmem.h"

namespace {

class Brought : public testing::Test {
  protected:
    static constexpr size_t kBytes = 4 * kMiB;
    void SetUp() override {
        memory_ = static_cast<char *>(map(MAP_PRIVATE));
        arena_ = hak_arena_new_in(memory_, kBytes, nullptr);
        ASSERT_NE(arena_, nullptr);
    }
    void TearDown() override {
        if (memory_ == nullptr)
            return;
        hak_arena_destroy(arena_);
        munmap(memory_, kBytes);
    }
    static void *map(int flags) {
        void *memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
        EXPECT_NE(memory, MAP_FAILED);
        memset(memory, 0xa5, kBytes); /* nothing may rely on zeroes */
        return memory;
    }
    bool is_inside(const void *block, size_t bytes) const {
        auto *p = static_cast<const char *>(block);
        return p >= memory_ && p + bytes <= memory_ + kBytes;
    }
    size_t used() const {
        hak_arena_stats stats = {};
        EXPECT_EQ(hak_arena_get_stats(arena_, &stats), 0);
        return stats.used_bytes;
    }
    char *memory_ = nullptr;
    hak_arena *arena_ = nullptr;
};

TEST_F(Brought, BlocksOfAllSizesLieInTheMemory) {
    std::map<void *, size_t> made, seen;
    for (size_t size : {0, 1, 8, 16, 17, 100, 500, 1000, 1024, 1025, 5000, 65536, 100000, 1 << 20}) {
        void *block = hak_arena_malloc(arena_, size);
        ASSERT_NE(block, nullptr) << size;
        size_t usable = hak_usable_size(block);
        EXPECT_GE(usable, size);
        EXPECT_TRUE(is_inside(block, usable)) << size;
        EXPECT_EQ(hak_arena_of(block), arena_);
        memset(block, 0x5a, usable);
        made.emplace(block, usable);
    }
    hak_arena_visit(
        arena_,
        [](void *block, size_t bytes, void *all) {
            return static_cast<std::map<void *, size_t> *>(all)->emplace(block, bytes).second ? 0 : 1;
        },
        &seen);
    EXPECT_EQ(seen, made);
    for (auto &[block, size] : made)
        hak_free(block);
    EXPECT_EQ(used(), 0u);
}

TEST_F(Brought, AlignsAndClears) {
    for (size_t alignment = 1; alignment <= kMiB; alignment *= 2)
        for (size_t size : {size_t{1}, size_t{100}, size_t{5000}, size_t{70000}}) {
            auto *block = static_cast<char *>(hak_arena_aligned_alloc(arena_, alignment, size));
            ASSERT_NE(block, nullptr) << alignment << " " << size;
            EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % alignment, 0u);
            memset(block, 0x77, size);
            hak_free_sized(block, size);
            block = static_cast<char *>(hak_arena_calloc(arena_, size, 1));
            ASSERT_NE(block, nullptr);
            EXPECT_EQ(block[0] | block[size / 2] | block[size - 1], 0);
            hak_free_sized(block, size);
        }
    EXPECT_EQ(used(), 0u);
}

/* A full memory says so, and is all there again when the blocks are freed. */
TEST_F(Brought, IsFilledToTheEndAndUsedAgain) {
    hak_arena_stats stats;
    hak_arena_get_stats(arena_, &stats);
    EXPECT_GT(stats.reserved_bytes, kBytes / 46 * 45);
    for (size_t size : {16, 48, 400, 1024, 3000, 100000}) {
        std::vector<void *> blocks;
        for (void *block; (block = hak_arena_malloc(arena_, size)) != nullptr; blocks.push_back(block))
            memset(block, static_cast<int>(blocks.size()), size);
        EXPECT_EQ(errno, ENOMEM);
        EXPECT_GT(blocks.size() * size, stats.reserved_bytes / 16 * 14) << size;
        for (size_t i = 0; i < blocks.size(); i++) {
            auto *block = static_cast<unsigned char *>(blocks[i]);
            ASSERT_EQ(block[0], i % 256);
            ASSERT_EQ(block[size - 1], i % 256);
            hak_free(block);
        }
        EXPECT_EQ(used(), 0u) << size;
    }
    void *all = hak_arena_malloc(arena_, stats.reserved_bytes);
    EXPECT_NE(all, nullptr);
    EXPECT_EQ(hak_arena_malloc(arena_, 1), nullptr);
    hak_free(all);
}

TEST_F(Brought, AFullMemoryCallsTheCallback) {
    static void *spare;
    void *memory = map(MAP_PRIVATE);
    hak_arena_options options = {"full", 0,
                                 [](hak_arena *, size_t, void *) {
                                     hak_free(spare);
                                     bool again = spare != nullptr;
                                     spare = nullptr;
                                     return again ? 1 : 0;
                                 },
                                 nullptr};
    hak_arena *arena = hak_arena_new_in(memory, kBytes, &options);
    spare = hak_arena_malloc(arena, 3 * kMiB);
    ASSERT_NE(spare, nullptr);
    EXPECT_NE(hak_arena_malloc(arena, 2 * kMiB), nullptr);
    EXPECT_EQ(hak_arena_malloc(arena, 2 * kMiB), nullptr);
    hak_arena_destroy(arena);
    options = {"limited", 100 << 10, nullptr, nullptr};
    arena = hak_arena_new_in(memory, kBytes, &options);
    EXPECT_EQ(hak_arena_malloc(arena, 101 << 10), nullptr);
    EXPECT_NE(hak_arena_malloc(arena, 100 << 10), nullptr);
    hak_arena_destroy(arena);
    munmap(memory, kBytes);
}

TEST_F(Brought, ReallocStaysOrMoves) {
    auto *block = static_cast<char *>(hak_malloc(16));
    strcpy(block, "contents");
    block = static_cast<char *>(hak_arena_realloc(arena_, block, 20));
    for (size_t size : {20, 3000, 3100, 100000, 2 << 20, 500, 16}) {
        block = static_cast<char *>(hak_realloc(block, size));
        ASSERT_NE(block, nullptr) << size;
        EXPECT_STREQ(block, "contents");
        EXPECT_EQ(hak_arena_of(block), arena_) << size;
        EXPECT_GE(hak_usable_size(block), size);
    }
    auto *large = static_cast<char *>(hak_arena_malloc(arena_, 10000));
    EXPECT_EQ(hak_realloc(large, 2000000), large) << "the pieces behind were free";
    EXPECT_EQ(hak_realloc(large, 8 * kMiB), nullptr);
    EXPECT_EQ(hak_realloc(large, 5000), large);
    hak_free(large);
    hak_free(block);
    EXPECT_EQ(used(), 0u);
}

TEST_F(Brought, TheDefaultTakesWhatNamesNoArena) {
    ASSERT_EQ(hak_arena_set_default(arena_, nullptr), 0);
    void *blocks[] = {hak_malloc(10), hak_malloc(5000), hak_calloc(10, 1000), hak_aligned_alloc(4096, 100)};
    hak_arena_set_default(nullptr, nullptr);
    for (void *block : blocks) {
        EXPECT_EQ(hak_arena_of(block), arena_);
        hak_free(block);
    }
    EXPECT_EQ(reinterpret_cast<uintptr_t>(blocks[3]) % 4096, 0u);
    EXPECT_EQ(used(), 0u);
}

/* Purging would not clear shared memory, and the memory is not the library's to purge. */
TEST(BroughtLarge, CallocOfADefaultArenaIsZeroInSharedMemory) {
    size_t bytes = 48 * kMiB;
    void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    memset(memory, 0xa5, bytes);
    hak_arena *arena = hak_arena_new_in(memory, bytes, nullptr);
    ASSERT_EQ(hak_arena_set_default(arena, nullptr), 0);
    for (size_t offset = 0; offset < 4 * kKiB; offset += kKiB) /* one of four begins a page */
        for (size_t size : {3 * kMiB, 33 * kMiB}) {
            void *before = hak_malloc(offset + 1025), *block = hak_calloc(1, size);
            EXPECT_EQ(first_dirty(block, size), size) << "calloc memory that is not zero";
            memset(block, 0xa5, size);
            hak_free(block);
            hak_free(before);
        }
    hak_arena_set_default(nullptr, nullptr);
    hak_arena_destroy(arena);
    munmap(memory, bytes);
}

/* The memory is not touched, and may be unmapped or be another arena's. */
TEST_F(Brought, DestroyingGivesTheMemoryBack) {
    auto *block = static_cast<char *>(hak_arena_strdup(arena_, "still there"));
    hak_arena_destroy(arena_);
    EXPECT_STREQ(block, "still there");
    EXPECT_EQ(hak_arena_of(block), nullptr);
    munmap(memory_, kBytes);
    for (int i = 0; i < 1000; i++) { /* more than there may be at once */
        memory_ =
            static_cast<char *>(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        arena_ = hak_arena_new_in(memory_, kBytes, nullptr);
        ASSERT_NE(arena_, nullptr);
        ASSERT_NE(hak_arena_malloc(arena_, 100), nullptr);
        if (i == 999)
            break;
        hak_arena_destroy(arena_);
        munmap(memory_, kBytes);
    }
}

TEST_F(Brought, ReleasedBlocksLiveUntilTheyAreFreed) {
    void *small = hak_arena_malloc(arena_, 100);
    auto *large = static_cast<char *>(hak_arena_malloc(arena_, 100000));
    strcpy(large, "contents");
    hak_arena_release(arena_);
    EXPECT_EQ(hak_arena_of(small), nullptr);
    EXPECT_EQ(hak_arena_new_in(memory_, kBytes, nullptr), nullptr) << "there are blocks in it";
    EXPECT_EQ(errno, EINVAL);
    large = static_cast<char *>(hak_realloc(large, 2 * kMiB));
    EXPECT_STREQ(large, "contents");
    EXPECT_FALSE(is_inside(large, 1));
    hak_free(large);
    hak_free(small);
    arena_ = hak_arena_new_in(memory_, kBytes, nullptr);
    EXPECT_NE(arena_, nullptr) << "the last block is freed";
}

TEST_F(Brought, BadMemoryIsRefused) {
    void *block = hak_malloc(kBytes);
    char *no_memory = nullptr;
    void *high = reinterpret_cast<void *>(UINTPTR_MAX - kMiB); // NOLINT: no such memory
    struct {
        void *memory;
        size_t bytes;
    } bad[] = {{no_memory, kBytes}, {memory_, kBytes},          {memory_ + kMiB, 128 * kKiB},
               {block, kBytes},     {high, 512 * kKiB},         {high, kBytes},
               {&bad, 60 * kKiB},   {memory_ - kMiB, 2 * kMiB}, {memory_ + kBytes, kTiB}};
    for (auto &b : bad) {
        errno = 0;
        EXPECT_EQ(hak_arena_new_in(b.memory, b.bytes, nullptr), nullptr) << b.memory << " " << b.bytes;
        EXPECT_EQ(errno, EINVAL);
    }
    hak_free(block);
    auto *many =
        static_cast<char *>(mmap(nullptr, 256 * 64 * kKiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    std::vector<hak_arena *> arenas;
    for (size_t i = 0; i < 256; i++)
        arenas.push_back(hak_arena_new_in(many + i * 64 * kKiB, 64 * kKiB, nullptr));
    EXPECT_NE(arenas[254], nullptr);
    EXPECT_EQ(arenas[255], nullptr) << "one more than there may be, with the test's own";
    EXPECT_EQ(errno, ENOMEM);
    void *last = hak_arena_malloc(arenas[254], 100);
    EXPECT_EQ(hak_arena_of(last), arenas[254]);
    hak_free(last);
    for (hak_arena *arena : arenas)
        hak_arena_destroy(arena);
    munmap(many, 256 * 64 * kKiB);
}

TEST_F(Brought, SharedMemoryHasTheBlocksInBothProcesses) {
    void *memory = map(MAP_SHARED);
    hak_arena *arena = hak_arena_new_in(memory, kBytes, nullptr);
    auto *answer = static_cast<char *>(hak_arena_calloc(arena, 1, 100));
    pid_t child = fork();
    if (child == 0) { /* the child goes on, the parent waits */
        strcpy(answer, "from the child");
        void *more = hak_arena_malloc(arena, 3000);
        hak_free(more);
        _exit(more != nullptr ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    EXPECT_STREQ(answer, "from the child");
    hak_free(answer);
    hak_arena_destroy(arena);
    munmap(memory, kBytes);
}

/* Any order, sizes that fill the memory, contents that show if two blocks overlap; several threads, and blocks that one
 * allocates and another frees. */
TEST_F(Brought, ThreadsShareIt) {
    std::atomic<unsigned char *> places[64] = {};
    std::atomic<size_t> refused{0};
    auto free_checked = [](unsigned char *block) {
        if (block == nullptr)
            return;
        size_t bytes = hak_usable_size(block);
        EXPECT_EQ(memcmp(block, block + 1, bytes - 1), 0); /* all bytes are the same */
        hak_free(block);
    };
    auto work = [&](uint64_t seed) {
        Random random(seed);
        for (int i = 0; i < times(10000); i++) {
            auto &place = places[random.below(64)];
            free_checked(place.exchange(nullptr));
            auto *block = static_cast<unsigned char *>(hak_arena_malloc(arena_, random.log_size(18)));
            if (block == nullptr) {
                refused++;
                continue;
            }
            if (random.below(8) == 0) {
                auto *other = static_cast<unsigned char *>(hak_realloc(block, 1 + random.log_size(17)));
                block = other != nullptr ? other : block;
            }
            memset(block, static_cast<int>(random.below(256)), hak_usable_size(block));
            free_checked(place.exchange(block));
        }
    };
    std::vector<std::thread> threads;
    for (uint64_t i = 0; i < 4; i++)
        threads.emplace_back(work, i);
    for (auto &thread : threads)
        thread.join();
    for (auto &place : places)
        free_checked(place);
    EXPECT_EQ(used(), 0u);
    EXPECT_NE(hak_arena_malloc(arena_, 3 * kMiB), nullptr) << refused << " were refused";
}

using BroughtDeath = Brought;

TEST_F(BroughtDeath, MisusedBlocksAreReported) {
    auto *keep = static_cast<char *>(hak_arena_malloc(arena_, 48)); /* the slab stays */
    for (size_t size : {48, 3000, 100000}) {
        auto *block = static_cast<char *>(hak_arena_malloc(arena_, size));
        EXPECT_DEATH(hak_free(block + 8), "hakmem: invalid free of .*inside a [0-9]*-byte block") << size;
        if (in_secure_mode())
            EXPECT_DEATH(hak_free_sized(block, 200000), "hakmem: free of .* with size 200000") << size;
        else
            EXPECT_EXIT((hak_free_sized(block, 200000), exit(0)), testing::ExitedWithCode(0),
                        "hakmem: free of .* with size 200000")
                << size;
        EXPECT_DEATH((hak_free(block), hak_free(block)), "hakmem: (double|invalid) free of ") << size;
    }
    EXPECT_DEATH((hak_free(keep + 48), hak_free(keep + 48)), "hakmem: double free of 0x[0-9a-f]* .48-byte block");
    EXPECT_DEATH(hak_free(memory_), "hakmem: invalid free of .*nothing there");
    EXPECT_DEATH(hak_free(memory_ + kBytes), "hakmem: invalid free of .*not a block of this heap");
    EXPECT_DEATH(hak_free(memory_ + kBytes - kMiB), "hakmem: invalid free of .*nothing there");
    hak_arena_destroy(arena_);
    EXPECT_DEATH(hak_free(keep), "hakmem: invalid free of .*not a block of this heap");
    arena_ = hak_arena_new_in(memory_, kBytes, nullptr);
}

} // namespace
