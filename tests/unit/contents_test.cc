/* Blocks as memory: separate from one another, aligned, as big as they claim, zero where promised, kept by realloc. If
 * one fails, programs read other data than their own, or lose their own. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <thread>

#include "../support.h"
#include "../surface.h"

namespace {

const Surface &S = subject();

struct Block {
    char *at = nullptr;
    size_t bytes = 0; /* how many were written: the whole usable size */
    uint32_t tag = 0;
};

/* Keeps the last `most` blocks alive and checks each one as it leaves. */
class Window {
  public:
    explicit Window(size_t most) : most_(most) {}
    ~Window() { shrink_to(0); }
    void add(char *at, size_t bytes) {
        Block block{at, bytes, ++tag_};
        pattern_write(at, 0, bytes, block.tag);
        blocks_.push_back(block);
        shrink_to(most_);
    }

  private:
    void shrink_to(size_t count) {
        while (blocks_.size() > count) {
            Block block = blocks_.front();
            blocks_.pop_front();
            EXPECT_EQ(pattern_check(block.at, block.bytes, block.bytes, block.tag), block.bytes)
                << "damaged by another block, or by the allocator";
            S.free(block.at);
        }
    }
    size_t most_;
    uint32_t tag_ = 0;
    std::deque<Block> blocks_;
};

/* Sizes from 0 to 2 MiB: every size where classes are narrow, then odd steps. */
std::vector<size_t> many_sizes() {
    std::vector<size_t> sizes;
    for (size_t size = 0; size <= 2 * kMiB; size += size < 1200 ? 1 : size < 70000 ? 251 : 65537)
        sizes.push_back(size);
    return sizes;
}

TEST(Contents, EverySizeIsUsableToItsEnd) {
    Window window(40);
    for (size_t size : many_sizes()) {
        auto *block = static_cast<char *>(S.alloc(size));
        ASSERT_NE(block, nullptr) << size;
        size_t usable = S.usable_size(block);
        ASSERT_GE(usable, size);
        ASSERT_TRUE(aligned_to(block, natural_alignment(size))) << size;
        ASSERT_EQ(S.usable_size(block), usable);
        window.add(block, usable);
    }
}

TEST(Contents, EverySizeTimesEveryAlignment) {
    for (size_t alignment = 8; alignment <= 4 * kMiB; alignment *= 2) {
        Window window(16);
        size_t count = 0;
        for (size_t size : many_sizes()) {
            if (size > 70000 && count++ % (alignment > 64 * kKiB ? 7 : 3) != 0)
                continue;
            if (kShorter > 1 && count++ % kShorter != 0)
                continue;
            auto *block = static_cast<char *>(S.aligned_alloc(alignment, size));
            ASSERT_NE(block, nullptr) << size << " at " << alignment;
            ASSERT_TRUE(aligned_to(block, alignment)) << size << " at " << alignment;
            size_t usable = S.usable_size(block);
            ASSERT_GE(usable, size);
            window.add(block, usable);
        }
    }
}

const size_t kReallocSizes[] = {1,        24,       48,        256,     1000,          1024,     1025,
                                5000,     30000,    64 * kKiB, 65537,   200 * kKiB,    kMiB - 1, kMiB,
                                kMiB + 1, 2 * kMiB, 3 * kMiB,  5 << 20, (5 << 20) + 1, 12 << 20, 33 << 20};

void realloc_once(void *block, size_t from, size_t to, uint32_t tag) {
    ASSERT_NE(block, nullptr);
    pattern_write(block, 0, from, tag);
    void *moved = S.realloc(block, to);
    ASSERT_NE(moved, nullptr);
    size_t kept = from < to ? from : to;
    ASSERT_EQ(pattern_check(moved, kept, from, tag), kept) << "realloc lost contents: " << from << " to " << to;
    ASSERT_GE(S.usable_size(moved), to);
    pattern_write(moved, 0, S.usable_size(moved), tag + 1);
    S.free(moved);
}

TEST(Contents, ReallocKeepsThemBetweenAllTiers) {
    uint32_t tag = 1;
    for (size_t from : kReallocSizes)
        for (size_t to : kReallocSizes) {
            realloc_once(S.alloc(from), from, to, tag += 2);
            if (HasFatalFailure())
                return;
        }
}

TEST(Contents, ReallocOfAlignedBlocksKeepsThem) {
    /* An aligned huge block starts inside its run of pages: a realloc that copies "the whole block" reads past it. */
    uint32_t tag = 1;
    for (size_t alignment : {size_t{32}, size_t{4096}, 128 * kKiB, 2 * kMiB, 4 * kMiB})
        for (size_t from : {size_t{20}, size_t{3000}, 100 * kKiB, 3 * kMiB, 9 * kMiB})
            for (size_t to : {size_t{10}, size_t{5000}, 300 * kKiB, 2 * kMiB, 20 * kMiB}) {
                realloc_once(S.aligned_alloc(alignment, from), from, to, tag += 2);
                if (HasFatalFailure())
                    return;
            }
}

/* Grows a block step by step. With a neighbour allocated after each step, it cannot always grow in place. */
void grow_stepwise(bool with_neighbours, size_t most) {
    std::vector<void *> neighbours;
    size_t size = 16;
    void *block = S.alloc(size);
    uint32_t tag = 1;
    pattern_write(block, 0, size, tag);
    while (size < most) {
        size_t to = size + size / 3 + 1;
        block = S.realloc(block, to);
        ASSERT_NE(block, nullptr);
        ASSERT_EQ(pattern_check(block, size, size, tag), size) << "lost while growing to " << to;
        pattern_write(block, 0, to, ++tag);
        size = to;
        if (with_neighbours) {
            neighbours.push_back(S.alloc(size));
            pattern_write(neighbours.back(), 0, size, 7);
        }
    }
    while (size > 16) {
        size_t to = size - size / 3 - 1;
        block = S.realloc(block, to);
        ASSERT_EQ(pattern_check(block, to, size, tag), to) << "lost while shrinking to " << to;
        pattern_write(block, 0, to, ++tag);
        size = to;
    }
    S.free(block);
    for (void *neighbour : neighbours)
        S.free(neighbour);
}

TEST(Contents, GrowAndShrinkAlone) { grow_stepwise(false, 200 * kMiB / static_cast<size_t>(kShorter)); }
TEST(Contents, GrowAndShrinkAmongNeighbours) { grow_stepwise(true, 60 * kMiB / static_cast<size_t>(kShorter)); }

TEST(Contents, ShrunkMemoryIsGivenBack) {
    if (kShorter > 1)
        GTEST_SKIP() << "a sanitizer's own memory would be counted";
    size_t before = process_rss_bytes();
    std::vector<void *> blocks;
    for (int i = 0; i < 8; i++) {
        void *block = S.alloc(16 * kMiB);
        memset(block, 1, 16 * kMiB);
        blocks.push_back(S.realloc(block, 2000));
    }
    EXPECT_LT(process_rss_bytes(), before + 64 * kMiB) << "128 MiB were shrunk to 16 KiB and are still held";
    for (void *block : blocks)
        S.free(block);
}

TEST(Contents, CallocIsZeroAfterReuse) {
    for (size_t size : kTierSizes) {
        size_t count = size <= 1024 ? 600 : size <= kMiB ? 24 : 4;
        for (int round = 0; round < 4; round++) {
            std::vector<char *> blocks;
            for (size_t i = 0; i < count; i++) {
                auto *block = static_cast<char *>(i % 2 == 0 ? S.calloc(1, size) : S.calloc(size, 1));
                ASSERT_NE(block, nullptr);
                ASSERT_EQ(first_dirty(block, size), size) << "calloc(" << size << ") in round " << round;
                memset(block, 0xff, S.usable_size(block));
                blocks.push_back(block);
            }
            for (size_t i = 0; i < count; i++)
                S.free(blocks[round % 2 == 0 ? i : count - 1 - i]);
        }
    }
}

/* Some pages of freed memory are resident and dirty, others were never touched. */
TEST(Contents, CallocIsZeroWherePagesWereTouched) {
    Random random(6);
    for (int round = 0; round < 60 / kShorter; round++) {
        size_t size = 2 * kMiB + random.below((round % 10 == 0 ? 40 : 8) * kMiB), page = 4096;
        unsigned runs = 1 + random.below(20);
        for (int again = 0; again < 2; again++) {
            auto *block = static_cast<char *>(S.calloc(1, size));
            ASSERT_NE(block, nullptr);
            ASSERT_EQ(first_dirty(block, size), size) << "calloc(" << size << ") in round " << round;
            S.free(block);
            block = static_cast<char *>(S.alloc(size));
            for (unsigned run = 0; run < runs; run++) {
                size_t at = random.below(size), bytes = 1 + random.below(run % 2 == 0 ? page : size / 4);
                memset(block + at, 0xff, std::min(bytes, size - at));
            }
            S.free(block);
            block = static_cast<char *>(S.calloc(1, size));
            ASSERT_EQ(first_dirty(block, size), size) << "calloc(" << size << ") in round " << round;
            S.free(block);
        }
    }
}

TEST(Contents, CallocIsZeroAcrossTiers) {
    /* Pages that one tier left dirty serve the next tier's calloc. */
    Random random(5);
    for (int round = 0; round < 400 / kShorter; round++) {
        size_t dirty = 1 + random.log_size(22), clean = 1 + random.log_size(22);
        std::vector<char *> blocks;
        for (size_t bytes = 0; bytes < 4 * kMiB; bytes += dirty + 4096) {
            blocks.push_back(static_cast<char *>(S.alloc(dirty)));
            memset(blocks.back(), 0xff, dirty);
        }
        for (char *block : blocks)
            S.free(block);
        blocks.clear();
        for (size_t bytes = 0; bytes < 4 * kMiB; bytes += clean + 4096) {
            blocks.push_back(static_cast<char *>(S.calloc(1, clean)));
            ASSERT_EQ(first_dirty(blocks.back(), clean), clean) << "calloc(" << clean << ") over freed " << dirty;
        }
        for (char *block : blocks)
            S.free(block);
    }
}

TEST(Contents, CallocIsZeroWhereHugeBlocksMovedAway) {
    /* A block that grows by moving its pages leaves its old addresses behind: they are zero where pages moved, and
     * dirty where the block did not reach at the time. */
    for (size_t left : {size_t{0}, 300 * kKiB, kMiB}) {
        size_t whole = 6 * kMiB;
        auto *block = static_cast<char *>(S.alloc(whole));
        memset(block, 0xff, whole);
        if (left == 0) { /* dirtied earlier by another block */
            S.free(block);
            block = static_cast<char *>(S.alloc(5 * kMiB));
        } else { /* dirtied by the block itself, before it shrank */
            block = static_cast<char *>(S.realloc(block, whole - left));
        }
        void *wall = S.alloc(2 * kMiB); /* prevents growth in place */
        block = static_cast<char *>(S.realloc(block, 40 * kMiB));
        std::vector<char *> zeroed;
        for (int i = 0; i < 12; i++) {
            zeroed.push_back(static_cast<char *>(S.calloc(1, whole)));
            ASSERT_EQ(first_dirty(zeroed.back(), whole), whole) << "at " << static_cast<void *>(zeroed.back());
        }
        for (char *at : zeroed)
            S.free(at);
        S.free(block);
        S.free(wall);
    }
}

TEST(Contents, CallocIsZeroWhereGrownBlocksWere) {
    /* A block that moved keeps its pages when it is freed, for the next one. */
    for (size_t blocks = 1; blocks <= 3; blocks++) {
        std::vector<char *> all;
        std::vector<void *> walls; /* prevent growth in place */
        for (size_t i = 0; i < blocks; i++) {
            all.push_back(static_cast<char *>(S.alloc(3 * kMiB)));
            for (size_t size = 5 * kMiB; size <= 20 * kMiB; size *= 2) {
                walls.push_back(S.alloc(2 * kMiB));
                all[i] = static_cast<char *>(S.realloc(all[i], size));
                memset(all[i], 0xff, size);
            }
        }
        for (char *block : all)
            S.free(block);
        std::vector<char *> zeroed;
        for (size_t size = kMiB; size <= 9 * kMiB; size += kMiB / 2) {
            zeroed.push_back(static_cast<char *>(S.calloc(1, size)));
            ASSERT_EQ(first_dirty(zeroed.back(), size), size) << "at " << static_cast<void *>(zeroed.back());
        }
        for (char *at : zeroed)
            S.free(at);
        for (void *wall : walls)
            S.free(wall);
    }
}

TEST(Contents, SizedFreesInEveryTier) {
    for (size_t size : kTierSizes)
        for (int i = 0; i < 20; i++) {
            void *block = S.alloc(size);
            memset(block, i, size);
            S.free_sized(block, size);
            if (S.free_aligned_sized == nullptr)
                continue;
            block = S.aligned_alloc(64, size);
            memset(block, i, size);
            S.free_aligned_sized(block, 64, size);
        }
}

/* As programs built for sized deallocation do: no size may be mistaken for a wrong one. */
TEST(Contents, SizedDeletesOfEverySizeAndAlignment) {
    if (S.free_aligned_sized == nullptr)
        GTEST_SKIP() << "the operators are not those of " << S.name;
    std::vector<size_t> sizes(std::begin(kTierSizes), std::end(kTierSizes));
    for (size_t size = 0; size <= 70000; size += size < 1100 ? 1 : 61)
        sizes.push_back(size);
    for (size_t size : sizes) {
        ::operator delete(::operator new(size), size);
        ::operator delete[](::operator new[](size, std::nothrow), size);
    }
    for (size_t align = 16; align <= 4 * kMiB; align *= 4)
        for (size_t size = 0; size <= 70000; size = size * 5 / 4 + 1) {
            std::align_val_t to{align};
            ::operator delete(::operator new(size, to), size, to);
            ::operator delete[](::operator new[](size, to, std::nothrow), size, to);
        }
}

/* Ends the program before a runaway memset takes all of the machine's memory. */
class MemoryGuard {
  public:
    explicit MemoryGuard(size_t most) : thread_([this, most] { watch(most); }) {}
    ~MemoryGuard() {
        done_ = true;
        thread_.join();
    }

  private:
    void watch(size_t most) {
        for (; !done_; usleep(2000)) {
            if (process_rss_bytes() < most)
                continue;
            fprintf(stderr, "contents: the process grew beyond %zu MiB: a sparse request was written to\n",
                    most / kMiB);
            _exit(1);
        }
    }
    std::atomic<bool> done_{false};
    std::thread thread_;
};

TEST(Contents, SparseTerabyteCostsOnlyWhatIsTouched) {
    if (kShorter > 1)
        GTEST_SKIP() << "a sanitizer's own memory would be counted";
    size_t before = process_rss_bytes();
    /* The words of half a million SuperSlabs take 0.007 % of a request, and each of the six may get other addresses,
     * as the purger may be late. */
    size_t goal = before + 6 * 80 * kMiB;
    MemoryGuard guard(before + kGiB);
    for (int round = 0; round < 3; round++) {
        auto *block = static_cast<char *>(S.alloc(kTiB));
        ASSERT_NE(block, nullptr) << "programs reserve address space this way (overcommit is on)";
        EXPECT_GE(S.usable_size(block), kTiB);
        for (size_t at : {size_t{0}, kTiB / 2, kTiB - 1})
            block[at] = 1;
        EXPECT_LT(process_rss_bytes(), goal);
        S.free(block);
        EXPECT_LT(process_rss_bytes(), goal) << "the touched pages came back";
        block = static_cast<char *>(S.calloc(kTiB, 1));
        ASSERT_NE(block, nullptr);
        for (size_t at : {size_t{0}, kTiB / 2, kTiB - 1})
            ASSERT_EQ(block[at], 0);
        EXPECT_LT(process_rss_bytes(), goal) << "calloc touched a sparse request";
        S.free(block);
    }
}

/* A program may store a word that it once read from a freed block, without knowing it: padding of a struct that was
 * left in a register. (clang did, and was stopped for a double free.) The block that holds the word is live, and any
 * thread may free it. */
TEST(Contents, ALinkInALiveBlockIsNotAFreedBlock) {
    for (size_t size : {8, 16, 64, 1000})
        for (bool elsewhere : {false, true}) {
            auto *block = static_cast<uintptr_t *>(S.alloc(size));
            auto *other = static_cast<uintptr_t *>(S.alloc(size));
            volatile uintptr_t *freed = block;
            S.free(block);
            uintptr_t link = *freed;
            *other = link;
            uintptr_t expected = link;
            if (elsewhere)
                std::thread([&] { S.free(other); }).join();
            else
                S.free(other);
            auto *again = static_cast<uintptr_t *>(S.alloc(size));
            *again = expected;
            S.free(again);
        }
}

/* A block that heads the list of a slab when the slab is used again, and then holds a copy of a link, is still live. */
TEST(Contents, ALinkInTheFirstBlockOfAReusedSlabIsNotAFreedBlock) {
    constexpr size_t kSize = 64, kBlocks = 8192, kSlot = 64 * kKiB;
    std::vector<uintptr_t *> blocks(kBlocks);
    for (auto &block : blocks)
        block = static_cast<uintptr_t *>(S.alloc(kSize));
    for (size_t i = 0; i < kBlocks; i += 3)
        S.free(blocks[i]);
    unsigned tried = 0;
    for (size_t i = 0; i < kBlocks; i += 3) {
        auto *block = static_cast<uintptr_t *>(S.alloc(kSize));
        auto *freed = static_cast<uintptr_t *>(S.alloc(kSize));
        volatile uintptr_t *word = freed;
        bool together = (reinterpret_cast<uintptr_t>(block) ^ reinterpret_cast<uintptr_t>(freed)) < kSlot;
        S.free(freed);
        if (together) {
            *block = *word;
            S.free(block);
            block = static_cast<uintptr_t *>(S.alloc(kSize));
            tried++;
        }
        blocks[i] = block;
    }
    EXPECT_GT(tried, kBlocks / 6);
    for (auto *block : blocks)
        S.free(block);
}

} // namespace
