/* The identities between counters: each counts what its help says. If they fail, whoever reads the statistics looks for
 * the cause of something that never happened. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <thread>

#include <hakmem.h>

#include "../heap_stats.h"
#include "../support.h"

namespace {

struct Figures {
    Json stats = heap_stats();
    long of(const char *name) const { return static_cast<long>(stats["counters"][name].number); }
    long sum(const std::vector<const char *> &names) const {
        long all = 0;
        for (const char *name : names)
            all += of(name);
        return all;
    }
    long misses(const char *rows, size_t max_bytes) const {
        long all = 0;
        for (const Json &row : stats[rows].items)
            if (row["block_bytes"].number <= static_cast<double>(max_bytes))
                all += static_cast<long>(row["misses"].number);
        return all;
    }
};

const std::vector<const char *> kRefills = {"refill_from_slab", "refill_from_inbox", "refill_from_stale_inbox",
                                            "refill_from_purged", "refill_by_carving"};
const std::vector<const char *> kSpans = {"stage1_reused_empty", "stage2_used_unused", "stage3_from_cache",
                                          "stage3_new"};

void expect_identities(const char *when) {
    SCOPED_TRACE(when);
    Figures f;
    /* "of these" */
    for (auto [part, whole] :
         std::vector<std::pair<const char *, const char *>>{{"ring_refills", "ring_refilled_blocks"},
                                                            {"ring_spills", "ring_spilled_blocks"},
                                                            {"stage0_last_given", "stage1_reused_empty"},
                                                            {"stage05_scanned", "stage1_reused_empty"},
                                                            {"stage1_same_class", "stage1_reused_empty"},
                                                            {"refill_from_let_go", "slabs_adopted_by_refill"},
                                                            {"slabs_evicted", "slabs_let_go"},
                                                            {"slabs_recalled", "slabs_lent"},
                                                            {"loans_taken", "slabs_lent"},
                                                            {"slabs_recalled", "slabs_let_go"},
                                                            {"tension_freed_spans", "slots_released"},
                                                            {"mid_retired", "slabs_started"},
                                                            {"heaps_ended", "heaps_born"},
                                                            {"outbox_batches", "free_remote"},
                                                            {"move_answered_true", "move_asked"}})
        EXPECT_LE(f.of(part), f.of(whole)) << part << " and " << whole;
    EXPECT_EQ(f.sum(kRefills), f.misses("tiny_classes", 1024)) << "each tiny miss is one refill";
    EXPECT_LE(f.sum({"refill_from_partial", "refill_from_let_go"}), f.sum(kRefills));
    EXPECT_EQ(f.of("ring_refills"), f.misses("rings", 64 * kKiB)) << "each mid miss is one refill";
    EXPECT_LE(f.sum({"slabs_started", "large_spans"}), f.sum(kSpans)) << "slabs and large blocks are spans";
    EXPECT_LE(f.of("slots_released"), f.sum(kSpans)) << "what was given back was taken";
    EXPECT_LE(f.sum({"slabs_emptied", "mid_retired"}), f.of("slabs_started"));
    EXPECT_LE(f.sum({"slabs_adopted_by_free", "slabs_adopted_by_refill", "slabs_lent"}), f.of("slabs_let_go"))
        << "only what was let go can be adopted";
    EXPECT_LE(f.sum({"cache_popped", "cache_evicted_count", "cache_evicted_bytes", "cache_evicted_age"}),
              f.of("cache_pushed"));
}

constexpr int kDriftOps = 40000 / HAK_TEST_SHORTER;

/* Blocks of all tiers that come and go one by one, their sizes drifting. */
void drift(unsigned seed, size_t max_bytes) {
    Random random(seed);
    std::vector<void *> blocks(2000);
    for (int i = 0; i < kDriftOps; i++) {
        void *&block = blocks[random.below(blocks.size())];
        hak_free(block);
        size_t size = 1 + random.below(max_bytes) * static_cast<size_t>(i) / kDriftOps;
        block = hak_malloc(size);
        memset(block, 1, std::min<size_t>(size, 64));
    }
    for (void *block : blocks)
        hak_free(block);
}

TEST(Counters, AddUpInOneThread) {
    expect_identities("at the start");
    for (size_t max_bytes : {size_t{200}, size_t{2000}, size_t{60000}, size_t{400000}}) {
        drift(7, max_bytes);
        expect_identities("after a drift");
    }
    hak_trim();
    expect_identities("trimmed");
    for (const char *cap : {"1", "2", "1024"}) {
        hak_option_set("ring_blocks", cap);
        drift(8, 60000);
        expect_identities("with small rings");
    }
}

/* Threads that free each other's blocks, and end. */
TEST(Counters, AddUpAmongThreads) {
    std::mutex mutex;
    std::vector<void *> shared;
    auto work = [&](unsigned seed) {
        Random random(seed);
        for (int round = 0; round < 40 / HAK_TEST_SHORTER; round++) {
            std::vector<void *> blocks;
            for (int i = 0; i < 2000; i++)
                blocks.push_back(hak_malloc(1 + random.log_size(14)));
            std::lock_guard<std::mutex> lock(mutex);
            shared.swap(blocks);
            for (void *block : blocks)
                hak_free(block);
        }
    };
    for (unsigned lives = 0; lives < 3; lives++) {
        std::vector<std::thread> threads;
        for (unsigned i = 0; i < 4; i++)
            threads.emplace_back(work, 100 * lives + i);
        for (auto &thread : threads)
            thread.join();
        expect_identities("threads have ended");
    }
    for (void *block : shared)
        hak_free(block);
    hak_trim();
    expect_identities("trimmed");
}

/* A miss may bring more spans than the one it needs: each is one that was taken, and one of a large block. */
TEST(Counters, LargeSpansThatComeTogetherAreCountedOneByOne) {
    std::vector<void *> blocks(300);
    auto round = [&blocks] {
        for (void *&block : blocks)
            block = hak_malloc(100000);
        for (void *block : blocks)
            hak_free(block);
    };
    ASSERT_EQ(hak_option_set("PURGE", "never"), 0);
    round();
    Figures before;
    for (int i = 0; i < 3; i++)
        round();
    Figures after;
    EXPECT_GT(after.of("stage1_reused_empty"), before.of("stage1_reused_empty"));
    EXPECT_EQ(after.of("large_spans") - before.of("large_spans"), after.sum(kSpans) - before.sum(kSpans));
    ASSERT_EQ(hak_option_set("PURGE", "auto"), 0);
}

pthread_key_t end_key;
void allocate_at_end(void *rounds_left) {
    hak_free(hak_malloc(100));
    if (rounds_left != &end_key)
        pthread_setspecific(end_key, &end_key); /* once more, when all other destructors have run */
}

/* A destructor that runs after the heap's own may still allocate. */
TEST(Counters, CallsOfThreadsWhoseHeapHasEndedAreCounted) {
    static int first;
    ASSERT_EQ(pthread_key_create(&end_key, allocate_at_end), 0);
    long before = counter("afterlife_calls");
    std::thread([] {
        hak_free(hak_malloc(100));
        pthread_setspecific(end_key, &first);
    }).join();
    EXPECT_GT(counter("afterlife_calls"), before);
    pthread_key_delete(end_key);
}

} // namespace
