/* LAZY memory: the system may take its pages at any moment until they are written to again. If these tests fail, a
 * program finds zeroes or another block's bytes in what it wrote, calloc's memory is not zero, or memory that swings is
 * not reused.
 *
 * The system is made to take pages by MADV_PAGEOUT, which drops those that were given to it, while blocks come and
 * go. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "../heap_stats.h"
#include "../support.h"
#include "../surface.h"

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif

namespace {

const Surface &S = subject();

/* Nothing but what was just given leaves: all of it LAZY. */
void set_lazy() {
    ASSERT_EQ(hak_option_set("PURGE", "lazy"), 0);
    ASSERT_EQ(hak_option_set("RETAIN_BYTES", "0"), 0);
    ASSERT_EQ(hak_option_set("RETAIN_PERCENT", "0"), 0);
    ASSERT_EQ(hak_option_set("PURGER", "0"), 0); /* so that freeing threads give back pages inside slabs */
}

/* The part of the region that blocks lie in. */
struct Region {
    Region() {
        Json stats = heap_stats();
        begin = strtoul(stats["region"]["begin"].text.c_str(), nullptr, 16);
        end = strtoul(stats["region"]["end"].text.c_str(), nullptr, 16);
    }
    /* Asks the system to take what it can; what is not LAZY has no other place to be. */
    void page_out() const {
        FILE *maps = fopen("/proc/self/maps", "re");
        char line[512];
        unsigned long from, to;
        char rights[5];
        while (maps != nullptr && fgets(line, sizeof line, maps) != nullptr)
            if (sscanf(line, "%lx-%lx %4s", &from, &to, rights) == 3 && from >= begin && to <= end && rights[1] == 'w')
                madvise(reinterpret_cast<void *>(from), to - from, MADV_PAGEOUT);
        if (maps != nullptr)
            fclose(maps);
    }
    uintptr_t begin, end;
};

/* Sizes of all tiers. */
size_t size_of(Random &random) {
    static const size_t most[] = {256, 1024, 16384, 65536, 1 << 20, 4 << 20};
    return 1 + random.below(most[random.below(16) < 12 ? random.below(3) : random.below(6)]);
}

struct Block {
    unsigned char *at = nullptr;
    size_t bytes = 0;
    unsigned char tag = 0;
};

void fill(Block &block, Random &random) {
    bool zero = random.below(4) == 0;
    block.bytes = size_of(random);
    block.tag = static_cast<unsigned char>(1 + random.below(255));
    block.at = static_cast<unsigned char *>(zero ? S.calloc(1, block.bytes) : S.alloc(block.bytes));
    ASSERT_NE(block.at, nullptr);
    for (size_t i = 0; zero && i < block.bytes; i += i + 64 < block.bytes ? 64 : 1)
        ASSERT_EQ(block.at[i], 0) << "calloc of " << block.bytes;
    memset(block.at, block.tag, block.bytes);
}

void check_and_free(Block &block) {
    for (size_t i = 0; i < block.bytes; i += i + 64 < block.bytes ? 64 : 1)
        ASSERT_EQ(block.at[i], block.tag) << block.bytes << " bytes";
    S.free(block.at);
    block = Block{};
}

/* Phases of growth and of nearly none, so that slots, runs and pages inside slabs become LAZY and come back. */
void come_and_go(unsigned seed, int rounds) {
    Random random(seed);
    std::vector<Block> blocks(400);
    for (int round = 0; round < rounds && !testing::Test::HasFatalFailure(); round++) {
        for (Block &block : blocks)
            if (block.at == nullptr)
                fill(block, random);
        for (Block &block : blocks)
            if (block.at != nullptr && random.below(16) != 0)
                check_and_free(block);
    }
    for (Block &block : blocks)
        if (block.at != nullptr)
            check_and_free(block);
}

/* By the clock that the library goes by. */
long seconds() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return now.tv_sec;
}

/* Swings of one thread. What nobody wants for a second goes back, so a machine on which a second passes within a round
 * may see a round or two more. The first test of the process, whose heap has had no other peak. */
TEST(Lazy, SwingsReuseWhatTheyGaveBack) {
    constexpr size_t kBlocks = 64, kBytes = 400000;
    std::vector<char *> blocks(kBlocks);
    long gone = 0, began = 0;
    for (int round = 0; round < 20; round++) {
        if (round == 4)
            gone = counter("purged_slots"), began = seconds();
        for (char *&block : blocks)
            memset(block = static_cast<char *>(S.alloc(kBytes)), 1, kBytes);
        for (char *block : blocks)
            S.free(block);
    }
    EXPECT_LE(counter("purged_slots") - gone,
              static_cast<long>(kBlocks * kBytes / 65536) * (1 + 2 * (seconds() - began)))
        << "one round of sixteen";
}

TEST(Lazy, ContentsNeverMatter) {
    set_lazy();
    Region region;
    std::atomic<int> left{2};
    std::vector<std::thread> threads;
    for (unsigned seed = 1; seed <= 2; seed++)
        threads.emplace_back([&left, seed] {
            come_and_go(seed, times(40));
            left--;
        });
    while (left != 0) {
        region.page_out();
        std::this_thread::yield();
    }
    for (std::thread &thread : threads)
        thread.join();
    EXPECT_GT(counter("lazy_slots"), 0);
    EXPECT_GT(counter("trimmed_pages"), 0) << "pages inside slabs";
}

} // namespace
