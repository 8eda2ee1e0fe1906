/* hak_free_dense frees at once, whoever has the block's slab: the calling thread, another, nobody, or the thread on
 * loan. If it fails, memory that a program empties by moving its blocks stays where it is, or a block is lost. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>
#include <hakmem.h>

#include <thread>
#include <utility>
#include <vector>

#include "../heap_stats.h"
#include "../support.h"
#include "inside.h"

namespace {

constexpr size_t kBytes = 1000, kBlocks = 300; /* of several slabs */

std::vector<void *> blocks_of_this_thread(size_t bytes = kBytes) {
    std::vector<void *> blocks(kBlocks);
    for (void *&block : blocks)
        block = hak_malloc(bytes);
    return blocks;
}
std::vector<void *> blocks_of_nobody() {
    std::vector<void *> blocks;
    hak_free(hak_malloc(1)); /* nobody is alone */
    std::thread([&] { blocks = blocks_of_this_thread(); }).join();
    return blocks;
}
size_t slab_of(const void *block) { return reinterpret_cast<uintptr_t>(block) / inside_slot_bytes; }
inside_tiny_record record(const void *block) { return inside_tiny_record_of(block, inside_heap()); }

TEST(Dense, AFreeIntoAnotherThreadsSlabTakesAlongWhatWasGathered) {
    auto blocks = blocks_of_this_thread();
    void **own = &blocks[280]; /* of the slab that serves the class */
    ASSERT_EQ(slab_of(own[0]), slab_of(own[9]));
    std::thread([&] {
        hak_free_dense(own[0]);
        EXPECT_EQ(record(own[0]).inbox_blocks, 1u);
        for (int n : {1, 2, 3}) /* the first of all that a heap frees so go at once, too */
            hak_free(own[n]);
        unsigned sent = record(own[0]).inbox_blocks, gathered = record(own[0]).outbox_blocks;
        EXPECT_GT(gathered, 0u);
        hak_free_dense(blocks[200]);
        EXPECT_EQ(record(own[0]).outbox_blocks, gathered) << "that was another slab's";
        hak_free_dense(own[4]);
        EXPECT_EQ(record(own[0]).outbox_blocks, 0u);
        EXPECT_EQ(record(own[0]).inbox_blocks, sent + gathered + 1);
        hak_free(own[5]);
        inside_caches_freeze(inside_heap(), 1);
        hak_free_dense(own[6]);
        inside_caches_freeze(inside_heap(), 0);
        EXPECT_EQ(record(own[0]).outbox_blocks, 1u) << "the purger is at the outbox";
        EXPECT_EQ(record(own[0]).inbox_blocks, sent + gathered + 2);
    }).join();
    for (size_t i = 0; i < kBlocks; i++)
        if (i != 200 && (i < 280 || i > 286))
            hak_free_dense(blocks[i]);
}

TEST(Dense, AFreeIntoASlabWithoutOwnerAdoptsIt) {
    auto blocks = blocks_of_nobody();
    std::thread([&] {
        hak_free(blocks[100]); /* this thread only frees: it gathers */
        hak_free(blocks[101]);
        hak_free(blocks[102]);
        hak_free_dense(blocks[103]);
        EXPECT_EQ(record(blocks[103]).owner, inside_heap());
        EXPECT_EQ(record(blocks[103]).outbox_blocks, 0u) << "what was gathered came home";
        hak_free_dense(blocks[104]);
        EXPECT_EQ(record(blocks[104]).owner, inside_heap());
    }).join();
}

TEST(Dense, AFreeIntoASlabOnLoanIsOne) {
    auto blocks = blocks_of_nobody();
    ASSERT_TRUE(inside_borrow(blocks[100]));
    long before = counter("free_on_loan");
    hak_free_dense(blocks[100]);
    EXPECT_EQ(counter("free_on_loan") - before, 1);
}

/* Else each block that moves there faults in what the purger has just given back. */
TEST(Dense, ASlabThatServesKeepsItsFreePages) {
    if (getpagesize() != 4096)
        GTEST_SKIP() << "pages are not of 4 KiB";
    std::vector<void *> blocks(60);
    for (void *&block : blocks)
        block = hak_malloc_dense(832);
    for (size_t i = 0; i < 50; i++)
        hak_free_dense(blocks[i]);
    size_t before = inside_pages_look(blocks[59]);
    void *block = hak_malloc_dense(832);
    EXPECT_EQ(slab_of(block), slab_of(blocks[59]));
    EXPECT_EQ(inside_pages_look(blocks[59]), before);
    EXPECT_GT(inside_pages_look(blocks[59]), before) << "nobody has allocated since";
    hak_free_dense(block);
    for (size_t i = 50; i < 60; i++)
        hak_free_dense(blocks[i]);
}

/* Neighbours in a slab that this thread has: the first one it has freed; the second one is live, and looks free. */
struct Pair {
    void *free, *live;
    std::vector<void *> others;
};
Pair pair_of_this_thread() {
    auto blocks = blocks_of_this_thread();
    Pair pair = {blocks[280], blocks[281], {}};
    hak_free(pair.free);
    memcpy(pair.live, pair.free, sizeof(void *)); /* a link */
    for (size_t i = 0; i < kBlocks; i++)
        if (i != 280 && i != 281)
            pair.others.push_back(blocks[i]);
    return pair;
}
void free_all(const std::vector<void *> &blocks) {
    for (void *block : blocks)
        hak_free(block);
}

/* ---- which slabs are sparse ---- */

/* Else PURGE=never gives back what a program empties by moving blocks. */
TEST(Dense, WhatIsEmptiedStaysWherePurgeIsNever) {
    constexpr size_t kMany = 5000;
    ASSERT_EQ(hak_option_set("PURGE", "never"), 0);
    std::vector<void *> blocks(kMany);
    for (void *&block : blocks)
        block = hak_malloc(kBytes);
    long purged = counter("purged_slots"), emptied = counter("dense_emptied_slots");
    for (void *block : blocks)
        hak_free_dense(block);
    EXPECT_GT(counter("dense_emptied_slots") - emptied, 50);
    EXPECT_EQ(counter("purged_slots"), purged);
    ASSERT_EQ(hak_option_set("PURGE", "auto"), 0);
}

TEST(Sparse, AreSlabsBelowTheBound) {
    inside_defrag_bound_set(1, 10 | 20 << 16 | uint64_t{100} << 32);
    EXPECT_TRUE(inside_defrag_is_sparse(1, 9, 0));
    EXPECT_FALSE(inside_defrag_is_sparse(1, 10, 99));
    EXPECT_TRUE(inside_defrag_is_sparse(1, 10, 100));
    EXPECT_TRUE(inside_defrag_is_sparse(1, 19, 100));
    EXPECT_FALSE(inside_defrag_is_sparse(1, 20, 100));
    inside_defrag_bound_set(1, 0);
    EXPECT_FALSE(inside_defrag_is_sparse(1, 0, 0));
}

/* Else each 128th question reads the records of all slabs. A question may come late, but not each time. */
TEST(Sparse, BoundsServeForAWhile) {
    auto blocks = blocks_of_this_thread();
    unsigned c = inside_tiny_class_of(kBytes), kept = 0;
    for (int i = 0; i < 100 && kept == 0; i++) {
        for (int n = 0; n < 128; n++)
            hak_should_move(blocks[0]);
        inside_defrag_bound_set(c, 12345);
        for (int n = 0; n < 128; n++)
            hak_should_move(blocks[0]);
        kept += inside_defrag_bound(c) == 12345;
    }
    EXPECT_GT(kept, 0u);
    inside_defrag_bound_set(c, 0);
    for (void *block : blocks)
        hak_free(block);
}

/* Else what a program moves to empty its slabs goes from one slab that is to be emptied to the next. */
TEST(Dense, BlocksComeFromNoSparseSlab) {
    for (bool sparse_last : {true, false})
        std::thread([=] {
            auto blocks = blocks_of_this_thread();
            size_t sparse = slab_of(blocks[100]), other = slab_of(blocks[200]), kept = 100;
            ASSERT_NE(sparse, other);
            for (size_t slab : {sparse_last ? other : sparse, sparse_last ? sparse : other})
                for (size_t i = 0, left = 5; i < kBlocks; i++)
                    if (slab_of(blocks[i]) == slab && i != kept && (slab == sparse || left > 0)) {
                        left -= slab != sparse;
                        hak_free_dense(std::exchange(blocks[i], nullptr));
                    }
            inside_defrag_bound_set(inside_tiny_class_of(kBytes), 3 | 3 << 16);
            blocks.push_back(hak_malloc_dense(kBytes));
            EXPECT_NE(slab_of(blocks.back()), sparse);
            inside_defrag_bound_set(inside_tiny_class_of(kBytes), 0);
            for (void *block : blocks)
                hak_free(block);
        }).join();
}

TEST(Dense, ABlockThatLooksFreeIsFreed) {
    Pair pair = pair_of_this_thread();
    hak_free_dense(pair.live);
    EXPECT_TRUE(inside_tiny_is_free(pair.live));
    free_all(pair.others);
}

using Free = void (*)(void *);

TEST(DenseDeathTest, AFreeBlockIsReported) {
    Pair pair = pair_of_this_thread();
    for (Free free : {Free{hak_free_dense}, inside_tiny_free_past_caches, inside_tiny_free_without_heap})
        EXPECT_DEATH(free(pair.free), "hakmem: double free of 0x[0-9a-f]+ \\([0-9]+-byte block");
}

/* Where errors are ignored, too, a block that is free stays as it is. */
TEST(Frees, OfAFreeBlockAreIgnoredIfErrorsAre) {
    if (getenv("HAKMEM_ON_ERROR") == nullptr) {
        Outcome outcome = run_self({"--gtest_filter=*AreIgnoredIfErrorsAre"}, {"HAKMEM_ON_ERROR=ignore"});
        EXPECT_TRUE(outcome.exited(0)) << outcome.describe();
        return;
    }
    Pair pair = pair_of_this_thread();
    for (Free free : {Free{hak_free_dense}, inside_tiny_free_past_caches, inside_tiny_free_without_heap})
        free(pair.free);
    EXPECT_EQ(record(pair.free).inbox_blocks, 0u);
    EXPECT_EQ(record(pair.free).outbox_blocks, 0u);
    void *again = hak_malloc(kBytes), *other = hak_malloc(kBytes);
    EXPECT_EQ(again, pair.free);
    EXPECT_NE(other, pair.free);
    for (void *block : {again, other, pair.live})
        hak_free(block);
    free_all(pair.others);
}

/* Such frees leave the block in the inbox of its slab. */
TEST(Frees, PastTheCachesAndWithoutAHeapFindTheInbox) {
    for (Free free : {inside_tiny_free_past_caches, inside_tiny_free_without_heap}) {
        Pair pair = pair_of_this_thread();
        free(pair.live);
        free(pair.others.back());
        EXPECT_TRUE(inside_tiny_is_free(pair.others.back()));
        EXPECT_TRUE(inside_tiny_is_free(pair.live));
        pair.others.pop_back();
        free_all(pair.others);
    }
}

/* ---- blocks that may move ---- */

TEST(Live, AreBlocksOfSlabsThatTheThreadHasOrTakes) {
    unsigned c = inside_tiny_class_of(kBytes);
    auto blocks = blocks_of_nobody();
    void *block = blocks[100];
    EXPECT_FALSE(inside_tiny_is_live(block, c)) << "nobody has the slab";
    EXPECT_EQ(inside_tiny_live(block, c), inside_class_at(c).blocks);
    EXPECT_EQ(record(block).owner, inside_heap());
    EXPECT_TRUE(inside_tiny_is_live(block, c));
    EXPECT_FALSE(inside_tiny_is_live(block, c + 1)) << "the slab had another class";
    EXPECT_EQ(inside_tiny_live(block, c + 1), 0u);
    std::thread([&] {
        hak_free(hak_malloc(1));
        EXPECT_EQ(inside_tiny_live(block, c), 0u) << "another thread's";
    }).join();
    void *current = hak_malloc(kBytes);
    EXPECT_FALSE(inside_tiny_is_live(current, c)) << "its slab serves the class";
    hak_free(current);
    free_all(blocks);
}

/* The blocks of nobody's slab stay nobody's: many threads may have no heap. */
TEST(Live, AreNoneForAThreadWithoutAHeap) {
    auto blocks = blocks_of_nobody();
    ASSERT_EQ(record(blocks[0]).owned, INSIDE_OWNER_NONE);
    unsigned found = 1;
    std::thread([&] { found = inside_tiny_live(blocks[0], inside_tiny_class_of(kBytes)); }).join();
    EXPECT_EQ(found, 0u);
    EXPECT_EQ(record(blocks[0]).owned, INSIDE_OWNER_NONE);
}

/* A further slot of a slab has a record that says something of its own. */
TEST(Live, AreNoBlocksOfASlabsSecondSlot) {
    unsigned c = inside_mid_class_of(14336);
    ASSERT_GT(inside_class_at(c).slots, 1u);
    EXPECT_EQ(inside_mid_is_live_in_second_slot(hak_malloc(14336), c), 0);
}

/* Whatever was written over a link, the slab's list ends there. */
TEST(Dense, AnOverwrittenLinkIsReportedAndEndsTheList) {
    if (getenv("HAKMEM_ON_ERROR") == nullptr) {
        Outcome outcome = run_self({"--gtest_filter=*AnOverwrittenLinkIs*"}, {"HAKMEM_ON_ERROR=warn"});
        EXPECT_TRUE(outcome.exited(0)) << outcome.describe();
        EXPECT_NE(outcome.err.find("208-byte blocks"), std::string::npos) << outcome.err;
        EXPECT_NE(outcome.err.find("1024-byte blocks"), std::string::npos) << outcome.err;
        return;
    }
    alarm(60); /* what never ends */
    for (size_t bytes : {200, 1000})
        for (uint64_t word : {uint64_t{0}, uint64_t{1} << 40}) {
            std::vector<char *> blocks(64);
            for (char *&block : blocks)
                block = static_cast<char *>(hak_malloc_dense(bytes));
            for (int i = 0; i < 20; i++)
                hak_free_dense(blocks[i]);
            memcpy(hidden(blocks[19]), &word, sizeof word);
            for (int i = 0; i < 100; i++)
                EXPECT_NE(hak_malloc_dense(bytes), nullptr);
        }
}

/* A block that touches a page which went back is free, wherever it begins. */
TEST(Live, AreNoBlocksInPagesThatWentBack) {
    constexpr size_t kAcrossPages = 576;
    unsigned c = inside_tiny_class_of(kAcrossPages), live = 0, in_slab = 0;
    auto blocks = blocks_of_this_thread(kAcrossPages);
    std::vector<void *> kept;
    for (void *block : blocks)
        if (slab_of(block) == slab_of(blocks[150]) && in_slab++ != 10)
            hak_free(block);
        else
            kept.push_back(block);
    hak_trim();
    for (void *block : blocks)
        if (slab_of(block) == slab_of(blocks[150])) {
            bool is_free = inside_tiny_is_free(block);
            live += !is_free;
            EXPECT_TRUE(!is_free || !inside_tiny_is_live(block, c));
        }
    EXPECT_EQ(live, 1u);
    free_all(kept);
}

} // namespace

/* A purger would look at slabs itself. */
extern const char *hak_options;
const char *hak_options = "PURGER=0";
