/* SOFT_LIMIT and HARD_LIMIT. If it fails, programs outgrow what they were allowed, are refused memory that they may
 * have, or miss the call that would have let them shrink. */
/* SPDX-License-Identifier: MIT */
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include <fstream>
#include <iterator>

#include "limits_kit.h"

namespace {

/* ---- HARD_LIMIT ---- */

constexpr size_t kRoom = 48 * kMiB;
constexpr size_t kUncounted = 7 * 64 * kKiB; /* EMPTY slots whose count a thread may still owe */

/* Allocates up to the limit twice, in blocks of one size. `owed` is the fraction of the bytes up to the limit that must
 * be had. */
void exhaust(size_t size, double owed) {
    SCOPED_TRACE(std::to_string(size) + "-byte blocks");
    size_t rest = counted_at_rest();
    Setting hard("HARD_LIMIT", rest + kRoom);
    for (int round = 0; round < 2; round++) {
        Blocks blocks(size);
        while (blocks.bytes() < 2 * kRoom && blocks.grow()) {
        }
        EXPECT_EQ(errno, ENOMEM);
        EXPECT_LE(inside_limits_counted_bytes(), rest + kRoom);
        expect_exact();
        EXPECT_LE(heap_rss_bytes(), rest + kRoom + kUncounted) << "resident, but not counted";
        EXPECT_GE(static_cast<double>(blocks.bytes()), owed * kRoom) << "refused too early";
        size_t all = blocks.count();
        blocks.shrink(all / 2);
        for (size_t i = 0; i < all * 4 / 10; i++)
            ASSERT_TRUE(blocks.grow()) << "freed memory cannot be had again: " << i << " of " << all * 4 / 10;
    }
}

TEST(HardLimit, Tiny) {
    exhaust(48, 0.97);
    exhaust(1000, 0.95);
}
TEST(HardLimit, Mid) {
    exhaust(5000, 0.9);
    exhaust(40 * kKiB, 0.9);
}
TEST(HardLimit, Large) {
    exhaust(100 * kKiB, 0.75); /* takes two slots */
    exhaust(kMiB, 0.95);
}
TEST(HardLimit, Huge) { /* takes whole SuperSlabs of 2 MiB */
    exhaust(2 * kMiB, 0.95);
    exhaust(3 * kMiB, 0.7);
    exhaust(9 * kMiB, 0.7);
}

/* Memory that one size left free serves the others: requests are refused only when there is none. */
TEST(HardLimit, OneSizeAfterAnother) {
    size_t rest = counted_at_rest();
    Setting hard("HARD_LIMIT", rest + kRoom);
    Setting purge("PURGE", "never"); /* everything that is freed stays EMPTY */
    for (size_t size : {size_t{48}, 9 * kMiB, size_t{5000}, 700 * kKiB, size_t{200}, 3 * kMiB, 40 * kKiB}) {
        Blocks blocks(size);
        blocks.grow_to(kRoom * 6 / 10 / size * size);
        EXPECT_LE(inside_limits_counted_bytes(), rest + kRoom);
    }
}

/* Blocks of three slots, of which one in ten is live: no SuperSlab is wholly free, but many slots are EMPTY. */
class Scattered {
  public:
    explicit Scattered(size_t bytes) {
        for (size_t i = 0; i < bytes / kSlot; i += 3)
            blocks_.push_back(hak_malloc(3 * kSlot));
        for (size_t i = 0; i < blocks_.size(); i++)
            if (i % 10 != 0)
                hak_free(blocks_[i]);
        EXPECT_GE(inside_pool_count().empty_slots, bytes / kSlot * 8 / 10) << "nothing is retained";
    }
    ~Scattered() {
        for (size_t i = 0; i < blocks_.size(); i += 10)
            hak_free(blocks_[i]);
    }

  private:
    std::vector<void *> blocks_;
};

/* The free blocks lie in slabs that are otherwise full, so blocks of another size cannot use their memory. */
TEST(HardLimit, SingleFreeBlocksAreHadAgain) {
    Setting hard("HARD_LIMIT", counted_at_rest() + 4 * kMiB);
    std::vector<void *> blocks;
    for (size_t size : {48, 1000})
        for (void *block; (blocks.size() < 20000 || size == 1000) && (block = hak_malloc(size)) != nullptr;)
            blocks.push_back(block);
    size_t large = (blocks.size() + 20000) / 2;
    for (size_t i : {size_t{10000}, large, large + 200}) {
        hak_free(blocks[i]);
        blocks[i] = nullptr;
    }
    for (size_t i : {large, large + 200})
        EXPECT_NE(blocks[i] = hak_malloc(1000), nullptr);
    for (void *block : blocks)
        hak_free(block);
}

TEST(HardLimit, EmptySlotsGoBackWhenARequestDoesNotFitThem) {
    size_t rest = counted_at_rest();
    Setting purge("PURGE", "never");
    Scattered blocks(40 * kMiB);
    Setting hard("HARD_LIMIT", rest + kRoom);
    void *large = hak_malloc(30 * kMiB);
    EXPECT_NE(large, nullptr);
    EXPECT_LE(inside_limits_counted_bytes(), rest + kRoom);
    hak_free(large);
}

/* A growing block is refused at the limit and not before, and keeps its contents. */
TEST(HardLimit, ReallocGrows) {
    size_t rest = counted_at_rest();
    Setting hard("HARD_LIMIT", rest + kRoom);
    size_t size = 3 * kMiB;
    char *block = static_cast<char *>(hak_malloc(size));
    pattern_write(block, 0, size, 7);
    for (;; size += kMiB) {
        errno = 0;
        auto *grown = static_cast<char *>(hak_realloc(block, size + kMiB));
        if (grown == nullptr)
            break;
        block = grown;
        ASSERT_EQ(pattern_check(block, size, size, 7), size);
        pattern_write(block, size, size + kMiB, 7);
        ASSERT_LT(size, kRoom);
    }
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_EQ(pattern_check(block, size, size, 7), size) << "a refused realloc changed the block";
    EXPECT_GE(size, kRoom - 3 * kMiB) << "refused too early";
    EXPECT_LE(inside_limits_counted_bytes(), rest + kRoom);
    expect_exact();
    char *smaller = static_cast<char *>(hak_realloc(block, kMiB / 2));
    ASSERT_NE(smaller, nullptr) << "shrinking always succeeds";
    hak_free(smaller);
}

/* A block whose pages move never counts twice. */
TEST(HardLimit, PagesThatMoveCountOnce) {
    size_t rest = counted_at_rest();
    for (bool limited : {false, true}) {
        Setting hard("HARD_LIMIT", limited ? rest + kRoom : 0);
        size_t moved = counter("huge_moved_pages");
        void *block = hak_malloc(20 * kMiB), *behind = hak_malloc(2 * kMiB);
        void *grown = hak_realloc(block, 40 * kMiB);
        moved = counter("huge_moved_pages") - moved;
        EXPECT_TRUE(!limited || grown != nullptr);
        expect_exact();
        hak_free(behind);
        hak_free(grown != nullptr ? grown : block);
        if (moved == 0)
            GTEST_SKIP() << "the kernel does not move pages";
        hak_trim();
    }
}

/* Growth in place when the slots behind the block are free but may not become resident. */
TEST(HardLimit, ExpandIsRefused) {
    for (size_t size : {100 * kKiB, 2 * kMiB}) {
        size_t wanted = size == 2 * kMiB ? 8 * kMiB : kMiB;
        void *block = hak_malloc(size);
        counted_at_rest();
        for (int i = 0; i < 3; i++) {
            Setting hard("HARD_LIMIT", inside_limits_counted_bytes() + wanted / 2);
            EXPECT_FALSE(hak_expand(block, wanted));
            expect_exact();
        }
        EXPECT_TRUE(hak_expand(block, wanted)) << "what was refused is lost";
        expect_exact();
        hak_free(block);
    }
}

/* A freed block that waits in a cache blocks nothing. */
TEST(HardLimit, ReallocGrowsIntoWhatCachesHold) {
    size_t rest = counted_at_rest();
    void *block = hak_malloc(4 * kMiB), *cached = hak_malloc(kMiB);
    ASSERT_NE(cached, nullptr);
    hak_free(cached);
    Setting hard("HARD_LIMIT", rest + 6 * kMiB + kMiB / 2);
    block = hak_realloc(block, 6 * kMiB);
    EXPECT_NE(block, nullptr);
    hak_free(block);
}

TEST(HardLimit, Aligned) {
    size_t rest = counted_at_rest();
    Setting hard("HARD_LIMIT", rest + kRoom);
    for (size_t alignment : {size_t{64}, 4 * kKiB, 128 * kKiB, 4 * kMiB}) {
        std::vector<void *> blocks;
        errno = 0;
        for (void *block; blocks.size() < kRoom / 10000 && (block = hak_aligned_alloc(alignment, 150000)) != nullptr;)
            blocks.push_back(block);
        EXPECT_EQ(errno, ENOMEM);
        EXPECT_FALSE(blocks.empty());
        EXPECT_LE(inside_limits_counted_bytes(), rest + kRoom);
        for (void *block : blocks)
            hak_free(block);
    }
}

/* A request far beyond the limit costs nothing: no SuperSlab is handed out, and nothing is purged later. */
TEST(HardLimit, RefusesWhatIsTooLargeAtOnce) {
    hak_free(hak_malloc(kRoom + 8 * kMiB));
    size_t rest = counted_at_rest(), superslabs = inside_pool_count().superslabs_peak;
    {
        Setting hard("HARD_LIMIT", rest + kRoom);
        for (size_t size : {kRoom + 4 * kMiB, kRoom + 4 * kMiB, kGiB, 16 * kGiB}) {
            errno = 0;
            EXPECT_EQ(hak_malloc(size), nullptr);
            EXPECT_EQ(errno, ENOMEM);
        }
    }
    hak_free(hak_malloc(kRoom + 8 * kMiB));
    EXPECT_EQ(inside_pool_count().superslabs_peak, superslabs) << "SuperSlabs were handed out, or lost";
    expect_exact();
    hak_free(hak_malloc(16));
}

/* Sizes that are refused while no limit is set. If they are counted, no later limit is kept. */
TEST(HardLimit, HoldsAfterSizesThatNoRegionHas) {
    void *some = hak_malloc(3 * kMiB);
    size_t rest = counted_at_rest();
    for (size_t size : {128 * kTiB, size_t{PTRDIFF_MAX} / 2, size_t{PTRDIFF_MAX}}) {
        volatile size_t impossible = size;
        EXPECT_EQ(hak_malloc(impossible), nullptr);
        EXPECT_EQ(hak_aligned_alloc(4 * kMiB, impossible), nullptr);
        EXPECT_EQ(counted_at_rest(), rest) << size;
        expect_exact();
    }
    hak_free(some);
}

/* Threads that allocate all sizes reach the limit together. It is exact, whatever a thread has not yet reported, except
 * for the purger's heap and the tables of a SuperSlab that is being taken. */
TEST(HardLimit, ManyThreads) {
    constexpr unsigned kThreads = 8;
    size_t rest = counted_at_rest();
    size_t limit = rest + kRoom + kThreads * kSlot; /* each thread counts as a slot */
    Setting hard("HARD_LIMIT", limit);
    for (int round = 0; round < 3; round++) {
        std::atomic<size_t> held{0}, refused{0}, over{0};
        std::atomic<unsigned> born{0}, full{0};
        std::vector<std::thread> threads;
        for (unsigned t = 0; t < kThreads; t++)
            threads.emplace_back([&, t] {
                hak_free(hak_malloc(1));
                born++;
                while (born < kThreads)
                    sched_yield();
                Random random(t * 10 + static_cast<unsigned>(round));
                std::vector<std::pair<void *, size_t>> mine;
                for (unsigned failures = 0; failures < 20 && held < 2 * kRoom;) {
                    size_t size = 1 + random.log_size(21);
                    void *block = hak_malloc(size);
                    over += inside_limits_counted_bytes() > limit + 2 * kSlot;
                    if (block != nullptr) {
                        memset(block, 1, size);
                        mine.emplace_back(block, size);
                        held += size;
                        if (random.below(4) != 0)
                            continue;
                    } else {
                        refused += errno == ENOMEM;
                        failures++;
                    }
                    if (!mine.empty()) {
                        std::swap(mine[random.below(mine.size())], mine.back());
                        hak_free(mine.back().first);
                        held -= mine.back().second;
                        mine.pop_back();
                    }
                }
                full++;
                while (full < kThreads)
                    sched_yield();
                for (auto &[block, size] : mine)
                    hak_free(block);
            });
        for (auto &thread : threads)
            thread.join();
        EXPECT_EQ(refused, kThreads * 20u) << "errno";
        EXPECT_EQ(over, 0u) << "times over the limit";
    }
}

TEST(HardLimit, LiveAndBelowWhatIsThere) {
    size_t rest = counted_at_rest();
    Blocks blocks(100 * kKiB);
    blocks.grow_to(20 * kMiB);
    {
        Setting hard("HARD_LIMIT", rest + 10 * kMiB);
        EXPECT_EQ(hak_malloc(3 * kMiB), nullptr);
        blocks.shrink(blocks.count() / 4);
        EXPECT_TRUE(blocks.grow()) << "below it again";
    }
    blocks.grow_to(20 * kMiB);
}

TEST(HardLimit, HoldsInAForkedChild) {
    size_t rest = counted_at_rest();
    Setting hard("HARD_LIMIT", rest + kRoom);
    fflush(nullptr);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(kChildSeconds);
        size_t bytes = 0;
        while (bytes < 2 * kRoom && hak_malloc(10000) != nullptr)
            bytes += 10000;
        _exit(errno != ENOMEM || inside_limits_counted_bytes() > rest + kRoom ? 1 : bytes < kRoom / 10 * 8 ? 2 : 0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << std::hex << status;
}

/* ---- SOFT_LIMIT ---- */

struct Called {
    std::atomic<int> times{0}, in_free{0};
    std::atomic<size_t> counted{0};
    void (*act)(Called *) = nullptr;
    Called() { hak_set_soft_limit_callback(run, this); }
    ~Called() { hak_set_soft_limit_callback(nullptr, nullptr); }
    static void run(void *me) {
        auto *called = static_cast<Called *>(me);
        called->times++;
        called->in_free += freeing;
        called->counted = inside_limits_counted_bytes();
        errno = EDOM;
        if (called->act != nullptr)
            called->act(called);
    }
    static thread_local bool freeing;
};
thread_local bool Called::freeing = false;

void shrink(Blocks &blocks, size_t bytes) {
    Called::freeing = true;
    blocks.shrink_to_bytes(bytes);
    Called::freeing = false;
}

void cross(size_t size) {
    SCOPED_TRACE(std::to_string(size) + "-byte blocks");
    size_t rest = counted_at_rest();
    size_t limit = rest + 32 * kMiB;
    Called called;
    Setting soft("SOFT_LIMIT", limit);
    Blocks blocks(size);
    blocks.grow_to(20 * kMiB);
    EXPECT_EQ(called.times, 0);
    blocks.grow_to(44 * kMiB); /* the callback changes errno, malloc does not */
    EXPECT_EQ(called.times, 1) << "once a crossing";
    EXPECT_GT(called.counted, limit);
    EXPECT_LE(called.counted, limit + size + 4 * kMiB) << "late";
    shrink(blocks, 31 * kMiB); /* not below 7/8 */
    blocks.grow_to(44 * kMiB);
    EXPECT_EQ(called.times, 1) << "without a fall to 7/8";
    shrink(blocks, 0);
    blocks.grow_to(44 * kMiB);
    EXPECT_EQ(called.times, 2) << "the second crossing";
    EXPECT_EQ(called.in_free, 0) << "called in free";
}

TEST(SoftLimit, OnceForEachCrossing) {
    for (size_t size : {size_t{64}, 5 * kKiB, 60 * kKiB, 192 * kKiB, 2 * kMiB})
        cross(size);
}

TEST(SoftLimit, OneBlockCrossesIt) {
    size_t rest = counted_at_rest();
    Called called;
    Setting soft("SOFT_LIMIT", rest + 16 * kMiB);
    for (int i = 1; i <= 3; i++) {
        void *block = hak_malloc(20 * kMiB);
        EXPECT_EQ(called.times, i);
        hak_free(block);
    }
    void *block = hak_malloc(2 * kMiB);
    for (size_t size = 3 * kMiB; size <= 30 * kMiB; size += kMiB)
        block = hak_realloc(block, size);
    EXPECT_EQ(called.times, 4) << "by realloc";
    hak_free(block);
}

/* The limit concerns memory in use: EMPTY slots are given back before the callback is called. */
TEST(SoftLimit, EmptySlotsAreGivenBackFirst) {
    size_t rest = counted_at_rest();
    Setting retain("RETAIN_BYTES", kGiB);
    Scattered blocks(20 * kMiB);
    Called called;
    Setting soft("SOFT_LIMIT", rest + 32 * kMiB);
    void *large = hak_malloc(18 * kMiB);
    EXPECT_EQ(called.times, 0);
    EXPECT_LE(inside_limits_counted_bytes(), rest + 32 * kMiB);
    hak_free(large);
}

/* What a program typically does in the callback: it drops a cache, and allocates while doing so. */
TEST(SoftLimit, TheCallbackMayAllocateAndFree) {
    static std::vector<void *> cache;
    size_t rest = counted_at_rest();
    Called called;
    called.act = [](Called *) {
        std::vector<void *> own;
        for (size_t size : kTierSizes)
            own.push_back(hak_malloc(size));
        for (void *block : cache)
            hak_free(block);
        cache.clear();
        for (void *block : own)
            hak_free(block);
        hak_trim();
    };
    Setting soft("SOFT_LIMIT", rest + 64 * kMiB);
    for (int i = 0; i < 200000 / kShorter; i++)
        cache.push_back(hak_malloc(static_cast<size_t>(kShorter) * 1000));
    EXPECT_GE(called.times, 2);
    EXPECT_LE(called.times, 4);
    EXPECT_LE(inside_limits_counted_bytes(), rest + 80 * kMiB);
    for (void *block : cache)
        hak_free(block);
    cache.clear();
}

/* The callback itself falls below the limit and passes it again: the next call waits until it has returned. */
TEST(SoftLimit, NoCallInsideACall) {
    static void *held;
    static int depth, deepest;
    size_t rest = counted_at_rest();
    depth = deepest = 0;
    held = nullptr;
    Called called;
    called.act = [](Called *me) {
        deepest = std::max(deepest, ++depth);
        if (me->times == 1) {
            hak_free(held);
            held = hak_malloc(20 * kMiB); /* over it again */
            hak_free(hak_malloc(5 * kMiB));
        }
        depth--;
    };
    Setting soft("SOFT_LIMIT", rest + 20 * kMiB);
    held = hak_malloc(18 * kMiB);
    EXPECT_EQ(called.times, 0);
    void *crosses = hak_malloc(4 * kMiB);
    EXPECT_EQ(called.times, 1);
    EXPECT_EQ(deepest, 1) << "the callback was called while it ran";
    hak_free(hak_malloc(3 * kMiB)); /* slow enough to settle */
    EXPECT_EQ(called.times, 2) << "the crossing in the callback was lost";
    hak_free(crosses);
    hak_free(held);
}

TEST(SoftLimit, OnceForAllThreads) {
    constexpr unsigned kThreads = 8;
    size_t rest = counted_at_rest();
    Called called;
    Setting soft("SOFT_LIMIT", rest + 24 * kMiB);
    for (int round = 1; round <= 3; round++) {
        std::atomic<unsigned> full{0};
        std::vector<std::thread> threads;
        for (unsigned t = 0; t < kThreads; t++)
            threads.emplace_back([&, t] {
                Blocks blocks(t % 2 == 0 ? 500 : 30000);
                blocks.grow_to(5 * kMiB);
                full++;
                while (full < kThreads)
                    sched_yield();
            });
        for (auto &thread : threads)
            thread.join();
        EXPECT_EQ(called.times, round);
        hak_trim();
    }
}

/* The child finds the setting half-done, by a thread that it does not have. */
TEST(SoftLimit, AChildOfAThreadThatSetsItMaySetItAnew) {
    if (kShorter != 1)
        GTEST_SKIP() << "no forks of threads under a sanitizer";
    size_t rest = counted_at_rest();
    std::atomic<bool> began{false}, stop{false};
    std::thread setter([&] {
        for (; !stop; began = true)
            for (int i = 0; i < 1000; i++)
                hak_set_soft_limit_callback([](void *) {}, nullptr);
    });
    Setting soft("SOFT_LIMIT", rest + 16 * kMiB);
    while (!began)
        sched_yield();
    for (int i = 0; i < 200 && !testing::Test::HasFailure(); i++) {
        pid_t pid = fork();
        if (pid == 0) {
            alarm(kChildSeconds);
            Called called;
            hak_free(hak_malloc(20 * kMiB));
            _exit(called.times != 1);
        }
        int status = 0;
        waitpid(pid, &status, 0);
        EXPECT_EQ(status, 0) << "the child's callback was not called";
    }
    stop = true;
    setter.join();
    hak_set_soft_limit_callback(nullptr, nullptr);
}

/* ---- nearness ---- */

TEST(NearALimit, NoEmptySlotsAreRetained) {
    size_t rest = counted_at_rest();
    Setting retain("RETAIN_BYTES", kGiB);
    Blocks blocks(192 * kKiB);
    blocks.grow_to(47 * kMiB);
    blocks.shrink_to_bytes(41 * kMiB);
    size_t rss = heap_rss_bytes();
    ASSERT_GE(inside_pool_count().empty_slots, 4 * kMiB / kSlot) << "nothing is retained";
    EXPECT_FALSE(inside_limits_near());
    Setting hard("HARD_LIMIT", rest + 50 * kMiB); /* 47 MiB are more than 7/8 of it, 39 more than 3/4 */
    blocks.shrink_to_bytes(39 * kMiB);
    EXPECT_TRUE(inside_limits_near());
    EXPECT_LE(inside_pool_count().empty_slots, 8u) << "EMPTY slots stay";
    EXPECT_LE(heap_rss_bytes() + 5 * kMiB, rss) << "nothing went back to the system";
    blocks.shrink_to_bytes(20 * kMiB); /* far below 3/4: retained as usual */
    EXPECT_FALSE(inside_limits_near());
    blocks.shrink_to_bytes(10 * kMiB);
    EXPECT_GE(inside_pool_count().empty_slots, 9 * kMiB / kSlot) << "it is near no more";
}

/* From 7/8 of the limit until below 3/4. */
TEST(NearALimit, DoesNotEndAtOnce) {
    size_t rest = counted_at_rest();
    Setting hard("HARD_LIMIT", rest + 80 * kMiB);
    Blocks blocks(192 * kKiB);
    size_t neared = counter("limits_neared");
    for (int i = 0; i < 5; i++) {
        blocks.grow_to(74 * kMiB);
        EXPECT_TRUE(inside_limits_near());
        blocks.shrink_to_bytes(64 * kMiB);
        EXPECT_TRUE(inside_limits_near());
    }
    EXPECT_EQ(counter("limits_neared") - neared, 1u);
    blocks.shrink_to_bytes(30 * kMiB);
    EXPECT_FALSE(inside_limits_near());
}

/* Few blocks live in many slabs: the slabs' free pages go back although the slabs stay. */
TEST(NearALimit, FreePagesInsideSlabsGoBack) {
    constexpr size_t kBytes = 40 * kMiB, kBlock = 64, kKeepEvery = kSlot / kBlock;
    Setting retain("RETAIN_BYTES", kBytes); /* else most of them go back before */
    size_t rest = counted_at_rest();
    std::vector<void *> blocks;
    for (size_t i = 0; i < kBytes / kBlock; i++) {
        blocks.push_back(hak_malloc(kBlock));
        memset(blocks.back(), 1, kBlock);
    }
    for (size_t i = 0; i < blocks.size(); i++)
        if (i % kKeepEvery != 0)
            hak_free(blocks[i]);
    size_t rss = heap_rss_bytes(), counted = inside_limits_counted_bytes();
    ASSERT_GE(counted, rest + kBytes * 9 / 10) << "the slabs were to stay in use";
    Setting soft("SOFT_LIMIT", counted + kMiB);
    Blocks more(60 * kKiB);
    more.grow_to(2 * kMiB);
    EXPECT_TRUE(inside_limits_near());
    EXPECT_LE(heap_rss_bytes(), rss / 2) << "free pages stay";
    for (size_t i = 0; i < blocks.size(); i += kKeepEvery)
        hak_free(blocks[i]);
}

/* ---- a process of its own ---- */

/* Allocates until there is no more. */
void run_child(size_t limit) {
    size_t bytes = 0;
    while (bytes < 10 * limit && hak_malloc(10000) != nullptr)
        bytes += 10000;
    if (bytes > limit || bytes < limit / 10 * 8)
        give_up("bytes had", bytes);
}

TEST(HardLimit, ByTheEnvironment) {
    Outcome outcome = run_self({"--child", std::to_string(32 * kMiB)}, {"HAKMEM_HARD_LIMIT=32m"});
    EXPECT_TRUE(outcome.exited(0)) << outcome.describe();
}

/* Passes the limit, then exits without writing anything. */
void pass_soft_limit() {
    for (int i = 0; i < 3000; i++)
        if (hak_malloc(10000) == nullptr)
            give_up("blocks had", static_cast<size_t>(i));
    _exit(0);
}

/* If it fails, a user who asked for a picture of the heap when it grew too large gets none. */
TEST(SoftLimit, TheProfileIsWritten) {
    std::string path = "/tmp/hakmem-soft-limit-" + std::to_string(getpid());
    Outcome outcome = run_self(
        {"--soft"}, {"HAKMEM_SOFT_LIMIT=16m", "HAKMEM_PROFILE_BYTES=4096", "HAKMEM_SOFT_LIMIT_PROFILE=" + path});
    EXPECT_TRUE(outcome.exited(0)) << outcome.describe();
    path += "." + std::to_string(outcome.process) + ".1";
    std::ifstream file(path);
    std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    EXPECT_EQ(text.rfind("hakmem profile 1\n", 0), 0U) << text.substr(0, 200);
    EXPECT_NE(text.find("\nmoment soft limit\n"), std::string::npos) << text.substr(0, 200);
    EXPECT_NE(text.find("\nstack "), std::string::npos) << text.substr(0, 200);
    EXPECT_NE(text.find("\nmaps\n"), std::string::npos);
    EXPECT_EQ(text.substr(text.size() - std::min<size_t>(text.size(), 5)), "\nend\n");
    unlink(path.c_str());
    Outcome refused = run_self({"--soft"}, {"HAKMEM_SOFT_LIMIT=16m", "HAKMEM_SOFT_LIMIT_PROFILE=/absent/file"});
    EXPECT_TRUE(refused.exited(0)) << refused.describe();
    EXPECT_EQ(refused.err, "hakmem: cannot write HAKMEM_SOFT_LIMIT_PROFILE=/absent/file\n");
}

} // namespace

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "--soft") == 0)
        pass_soft_limit();
    if (argc == 3 && strcmp(argv[1], "--child") == 0) {
        run_child(strtoul(argv[2], nullptr, 10));
        return 0;
    }
    hak_option_set("PURGER", "0"); /* otherwise memory that the purger is about to purge would still be resident */
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
