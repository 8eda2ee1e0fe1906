/* SOFT_LIMIT, HARD_LIMIT, the limits of memory cgroups, and memory pressure. If it fails, programs outgrow their container
 * and are killed, are refused memory that they may have, or miss the call that would have let them shrink. */
#include <gtest/gtest.h>
#include <hakmem.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <thread>

#include "../heap_stats.h"
#include "../support.h"
#include "inside.h"

namespace {

constexpr size_t kSlot = 64 * kKiB;

/* An option with a value of its own while this lives. */
class Setting {
  public:
    Setting(const char *name, const std::string &value) : name_(name) {
        char before[64];
        hak_option_get(name, before, sizeof before);
        before_ = before;
        EXPECT_EQ(hak_option_set(name, value.c_str()), 0) << name;
    }
    Setting(const char *name, uint64_t value) : Setting(name, std::to_string(value)) {}
    ~Setting() { hak_option_set(name_, before_.c_str()); }

  private:
    const char *name_;
    std::string before_;
};

/* What counts when nothing is held that can be given back. */
size_t counted_at_rest() {
    hak_trim();
    return inside_limits_counted_bytes();
}

/* With one thread: what was refused has left nothing behind. */
void expect_exact() {
    inside_totals slots = inside_pool_count();
    EXPECT_EQ(inside_pool_resident_slots(), slots.active_slots + slots.empty_slots);
}

size_t counter(const char *name) {
    Json stats = heap_stats();
    return static_cast<size_t>(stats["counters"][name].number);
}

/* Written blocks of one size; the list of them is glibc's. */
class Blocks {
  public:
    explicit Blocks(size_t size) : size_(size) {}
    ~Blocks() { shrink(0); }
    bool grow() {
        errno = 0;
        void *block = blocks_.size() % 3 == 2 ? hak_calloc(1, size_) : hak_malloc(size_);
        if (block == nullptr)
            return false;
        memset(block, 0xcd, size_);
        blocks_.push_back(block);
        return true;
    }
    void grow_to(size_t bytes) {
        while (this->bytes() < bytes)
            ASSERT_TRUE(grow()) << "no memory at " << this->bytes() / kKiB << " KiB";
    }
    void shrink(size_t count) {
        for (; blocks_.size() > count; blocks_.pop_back())
            hak_free(blocks_.back());
    }
    void shrink_to_bytes(size_t bytes) { shrink(bytes / size_); }
    size_t count() const { return blocks_.size(); }
    size_t bytes() const { return blocks_.size() * size_; }
    void *at(size_t i) { return blocks_[i]; }

  private:
    size_t size_;
    std::vector<void *> blocks_;
};

/* ---- HARD_LIMIT ---- */

constexpr size_t kRoom = 48 * kMiB;

/* Two rounds to the limit in blocks of a size. `owed`: of the bytes up to the limit. */
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
        EXPECT_LE(heap_rss_bytes(), rest + kRoom) << "resident, but not counted";
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
    exhaust(100 * kKiB, 0.75); /* in two slots */
    exhaust(kMiB, 0.95);
}
TEST(HardLimit, Huge) { /* in whole SuperSlabs of 2 MiB */
    exhaust(2 * kMiB, 0.95);
    exhaust(3 * kMiB, 0.7);
    exhaust(9 * kMiB, 0.7);
}

/* What one size has left free serves the others: memory is refused only when there is none. */
TEST(HardLimit, OneSizeAfterAnother) {
    size_t rest = counted_at_rest();
    Setting hard("HARD_LIMIT", rest + kRoom);
    Setting purge("PURGE", "never"); /* all that is freed stays EMPTY */
    for (size_t size : {size_t{48}, 9 * kMiB, size_t{5000}, 700 * kKiB, size_t{200}, 3 * kMiB, 40 * kKiB}) {
        Blocks blocks(size);
        blocks.grow_to(kRoom * 6 / 10 / size * size);
        EXPECT_LE(inside_limits_counted_bytes(), rest + kRoom);
    }
}

/* A block that grows is refused at the limit and not before, and keeps its contents. */
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

/* A block whose pages move is never there twice. */
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

/* Growth in place, where the slots behind are free but may not become resident. */
TEST(HardLimit, ExpandIsRefused) {
    for (size_t size : {100 * kKiB, 2 * kMiB}) {
        size_t wanted = size == 2 * kMiB ? 8 * kMiB : kMiB;
        counted_at_rest();
        void *block = hak_malloc(size);
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

/* A freed block that waits in a cache is in the way of nothing. */
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

/* What is asked for far beyond the limit costs nothing: no SuperSlab is handed out, nothing is purged later. */
TEST(HardLimit, RefusesWhatIsTooLargeAtOnce) {
    hak_free(hak_malloc(kRoom + 8 * kMiB));
    size_t rest = counted_at_rest(), superslabs = inside_pool_count().superslabs_peak;
    {
        Setting hard("HARD_LIMIT", rest + kRoom);
        for (size_t size : {kRoom + 4 * kMiB, kRoom + 4 * kMiB, kGiB, kTiB}) {
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

/* Threads of all sizes run into it together. It is exact, whatever they hold unseen, but for the purger's heap, and the
 * tables of a SuperSlab that is being taken. */
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
    Blocks blocks(100 * kKiB);
    blocks.grow_to(20 * kMiB);
    {
        Setting hard("HARD_LIMIT", 10 * kMiB);
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
    errno = 0;
    blocks.grow_to(44 * kMiB);
    EXPECT_EQ(errno, 0) << "the callback's errno";
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

TEST(SoftLimit, OnceACrossing) {
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

/* The limit concerns what is in use: what is EMPTY goes back before anybody is called. */
TEST(SoftLimit, EmptySlotsAreGivenBackFirst) {
    size_t rest = counted_at_rest();
    Setting retain("RETAIN_BYTES", kGiB);
    std::vector<void *> blocks;
    for (size_t i = 0; i < 20 * kMiB / kSlot; i += 3)
        blocks.push_back(hak_malloc(3 * kSlot));
    for (size_t i = 0; i < blocks.size(); i++) /* no SuperSlab, which holds ten, is wholly free */
        if (i % 10 != 0)
            hak_free(blocks[i]);
    ASSERT_GE(inside_pool_count().empty_slots, 15 * kMiB / kSlot) << "nothing is retained";
    Called called;
    Setting soft("SOFT_LIMIT", rest + 32 * kMiB);
    void *large = hak_malloc(18 * kMiB);
    EXPECT_EQ(called.times, 0);
    EXPECT_LE(inside_limits_counted_bytes(), rest + 32 * kMiB);
    hak_free(large);
    for (size_t i = 0; i < blocks.size(); i += 10)
        hak_free(blocks[i]);
}

/* What a program does then: it drops a cache, and allocates while doing so. */
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

/* ---- nearness ---- */

TEST(NearALimit, NothingEmptyIsRetained) {
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
    blocks.shrink_to_bytes(20 * kMiB); /* far below 3/4: as ever */
    EXPECT_FALSE(inside_limits_near());
    blocks.shrink_to_bytes(10 * kMiB);
    EXPECT_GE(inside_pool_count().empty_slots, 9 * kMiB / kSlot) << "it is near no more";
}

/* From 7/8 of the limit until below 3/4. */
TEST(NearALimit, IsNotLeftAtOnce) {
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

/* Few blocks live in many slabs: their free pages go back although the slabs stay. */
TEST(NearALimit, FreePagesInsideSlabsGoBack) {
    constexpr size_t kBytes = 40 * kMiB, kBlock = 64, kKeepEvery = kSlot / kBlock;
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

/* ---- cgroups and pressure, in a tree of files made up ---- */

class Tree {
  public:
    Tree() {
        char name[] = "/tmp/hakmem-tree-XXXXXX";
        root_ = mkdtemp(name);
        inside_limits_set_root(root_.c_str());
    }
    ~Tree() {
        inside_limits_set_root("");
        std::filesystem::remove_all(root_);
    }
    void file(const std::string &path, const std::string &text) {
        std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
        ASSERT_TRUE(write_file(root_ + path, text)) << path;
    }
    const std::string &root() const { return root_; }
    void none(const std::string &path) { std::filesystem::remove_all(root_ + path); }
    static uint64_t limit() {
        errno = EDOM;
        inside_limits_refresh();
        EXPECT_EQ(errno, EDOM);
        return inside_limits_cgroup_bytes();
    }

  private:
    std::string root_;
};

constexpr uint64_t kNone = UINT64_MAX;

TEST(Cgroup, VersionTwo) {
    Tree tree;
    EXPECT_EQ(Tree::limit(), kNone) << "no files at all";
    tree.file("/proc/self/cgroup", "0::/a/b\n");
    EXPECT_EQ(Tree::limit(), kNone) << "no controller";
    tree.file("/sys/fs/cgroup/a/b/memory.max", "300000000\n");
    EXPECT_EQ(Tree::limit(), 300000000u) << "its own";
    tree.file("/sys/fs/cgroup/a/b/memory.high", "250000000\n");
    EXPECT_EQ(Tree::limit(), 250000000u) << "memory.high";
    tree.file("/sys/fs/cgroup/a/memory.max", "200000000\n");
    EXPECT_EQ(Tree::limit(), 200000000u) << "an ancestor's";
    tree.file("/sys/fs/cgroup/a/memory.max", "max\n");
    EXPECT_EQ(Tree::limit(), 250000000u);
    tree.none("/sys/fs/cgroup/a/b");
    EXPECT_EQ(Tree::limit(), kNone) << "it was removed";
}

/* A container sees its own cgroup as the root, or a path that is not there. */
TEST(Cgroup, InAContainer) {
    Tree tree;
    tree.file("/sys/fs/cgroup/memory.max", "100000000\n");
    tree.file("/proc/self/cgroup", "0::/\n");
    EXPECT_EQ(Tree::limit(), 100000000u);
    tree.file("/proc/self/cgroup", "0::/docker/0123456789abcdef\n");
    EXPECT_EQ(Tree::limit(), 100000000u);
    tree.file("/proc/self/cgroup", "0::/../..\n");
    EXPECT_EQ(Tree::limit(), 100000000u);
}

TEST(Cgroup, VersionOne) {
    Tree tree;
    tree.file("/proc/self/cgroup", "9:name=systemd:/x\n4:memory:/group/one\n1:cpu,cpuacct:/memory\n0::/\n");
    tree.file("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    EXPECT_GE(Tree::limit(), uint64_t{1} << 62) << "no limit, as version 1 writes it";
    tree.file("/sys/fs/cgroup/memory/group/one/memory.limit_in_bytes", "134217728\n");
    EXPECT_EQ(Tree::limit(), 134217728u);
    tree.file("/sys/fs/cgroup/memory/group/memory.limit_in_bytes", "67108864\n");
    EXPECT_EQ(Tree::limit(), 67108864u);
}

TEST(Cgroup, NonsenseIsNoLimit) {
    Tree tree;
    for (std::string text : {"", "\n", "0::", "0::x", "0::x/y", "::::", "0:memory", "\0\0", "0::/a"}) {
        tree.file("/proc/self/cgroup", text);
        EXPECT_EQ(Tree::limit(), kNone) << text;
    }
    for (std::string text : {"", "\n", "-5", "99999999999999999999999999", "max", " 5"}) {
        tree.file("/sys/fs/cgroup/a/memory.max", text);
        EXPECT_EQ(Tree::limit(), kNone) << text;
    }
    tree.file("/sys/fs/cgroup/memory.max", "7\n");
    tree.file("/proc/self/cgroup", "0::" + std::string(3000, '/') + "\n");
    Tree::limit();
    tree.file("/proc/self/cgroup", "0::/" + std::string(3000, 'a') + "\n");
    EXPECT_EQ(Tree::limit(), kNone) << "too long a path is not cut off";
}

TEST(Cgroup, MayBeTurnedOff) {
    Tree tree;
    tree.file("/proc/self/cgroup", "0::/\n");
    tree.file("/sys/fs/cgroup/memory.max", "100000000\n");
    EXPECT_EQ(Tree::limit(), 100000000u);
    Setting off("CGROUP", 0);
    EXPECT_EQ(inside_limits_cgroup_bytes(), kNone);
    EXPECT_EQ(Tree::limit(), kNone);
}

TEST(Pressure, OfTheCgroupElseOfTheMachine) {
    Tree tree;
    auto scarce = [] {
        errno = EDOM;
        bool is = inside_limits_scarce() != 0;
        EXPECT_EQ(errno, EDOM);
        return is;
    };
    EXPECT_FALSE(scarce()) << "no files";
    tree.file("/proc/pressure/memory", "some avg10=9.99 avg60=80.00 avg300=80.00 total=1\nfull avg10=50.00\n");
    EXPECT_FALSE(scarce());
    tree.file("/proc/pressure/memory", "some avg10=10.00 avg60=0.00 avg300=0.00 total=1\nfull avg10=0.00\n");
    EXPECT_TRUE(scarce());
    tree.file("/proc/self/cgroup", "0::/a\n");
    EXPECT_TRUE(scarce()) << "the cgroup tells nothing";
    tree.file("/sys/fs/cgroup/a/memory.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=1\n");
    EXPECT_FALSE(scarce()) << "the cgroup's goes before the machine's";
    tree.file("/sys/fs/cgroup/a/memory.pressure", "some avg10=72.31 avg60=0.00 avg300=0.00 total=1\n");
    EXPECT_TRUE(scarce());
    {
        Setting high("PRESSURE", 73);
        EXPECT_FALSE(scarce());
    }
    {
        Setting never("PRESSURE", 0);
        EXPECT_FALSE(scarce());
    }
    tree.file("/sys/fs/cgroup/a/memory.pressure", "avg10=72.31\n");
    EXPECT_TRUE(scarce()) << "unreadable: the machine's";
}

/* ---- a process of its own ---- */

[[noreturn]] void give_up(const char *what, size_t figure) {
    fprintf(stderr, "%s: %zu\n", what, figure);
    _exit(1);
}

/* Under a cgroup's limit of 100 MiB. */
void child_in_cgroup() {
    Blocks blocks(320 * kKiB);
    Setting retain("RETAIN_BYTES", kGiB);
    blocks.grow_to(60 * kMiB);
    if (inside_limits_cgroup_bytes() != kNone)
        give_up("read before there were 64 MiB", inside_limits_counted_bytes());
    blocks.grow_to(70 * kMiB);
    if (inside_limits_cgroup_bytes() != 100 * kMiB)
        give_up("not read at 64 MiB", inside_limits_cgroup_bytes());
    blocks.shrink_to_bytes(40 * kMiB);
    if (inside_pool_count().empty_slots < 20 * kMiB / kSlot)
        give_up("retained far from the limit", inside_pool_count().empty_slots);
    blocks.grow_to(95 * kMiB);
    blocks.shrink_to_bytes(80 * kMiB);
    if (!inside_limits_near() || inside_pool_count().empty_slots > 8)
        give_up("retained near the limit", inside_pool_count().empty_slots);
    blocks.grow_to(150 * kMiB);
    if (blocks.bytes() < 150 * kMiB)
        give_up("refused because of the cgroup", blocks.bytes());
}

/* A busy program with threads: it keeps 10 % and more, under pressure RETAIN_BYTES. */
void child_under_pressure() {
    std::atomic<bool> end{false};
    std::thread other([&] {
        hak_free(hak_malloc(100));
        while (!end)
            usleep(1000);
    });
    Blocks live(192 * kKiB), freed(192 * kKiB);
    live.grow_to(30 * kMiB);
    freed.grow_to(60 * kMiB);
    freed.shrink(0);
    size_t empty = inside_pool_count().empty_slots;
    for (int i = 0; i < 20000 && inside_pool_count().empty_slots > 3 * kMiB / kSlot; i++) {
        for (int j = 0; j < 3; j++)
            hak_free(hak_malloc(3 * kMiB)); /* settles: the program is not idle */
        usleep(500);
    }
    if (empty < 50 * kMiB / kSlot)
        give_up("EMPTY slots before", empty);
    if (inside_pool_count().empty_slots > 3 * kMiB / kSlot)
        give_up("EMPTY slots are retained under pressure", inside_pool_count().empty_slots);
    end = true;
    other.join();
}

void child_in_real_cgroup(size_t limit) {
    inside_limits_refresh();
    if (inside_limits_cgroup_bytes() != limit)
        give_up("the limit was not found", inside_limits_cgroup_bytes());
}

/* Blocks until there are no more. */
void child_by_environment(size_t limit) {
    size_t bytes = 0;
    while (bytes < 10 * limit && hak_malloc(10000) != nullptr)
        bytes += 10000;
    if (bytes > limit || bytes < limit / 10 * 8)
        give_up("bytes had", bytes);
}

int run_child(const std::string &name, const char *argument) {
    size_t number = strtoul(argument, nullptr, 10);
    if (name == "cgroup" || name == "pressure")
        inside_limits_set_root(argument);
    if (name == "cgroup")
        child_in_cgroup();
    if (name == "pressure")
        child_under_pressure();
    if (name == "real")
        child_in_real_cgroup(number);
    if (name == "environment")
        child_by_environment(number);
    return 0;
}

TEST(Cgroup, IsReadWhenTheHeapIsLarge) {
    Tree tree;
    tree.file("/proc/self/cgroup", "0::/\n");
    tree.file("/sys/fs/cgroup/memory.max", std::to_string(100 * kMiB) + "\n");
    Outcome outcome = run_self({"--child", "cgroup", tree.root()});
    EXPECT_TRUE(outcome.exited(0)) << outcome.describe();
}

TEST(Pressure, ThePurgerActsAsIfIdle) {
    Tree tree;
    tree.file("/proc/pressure/memory", "some avg10=80.00 avg60=0.00 avg300=0.00 total=1\n");
    Outcome outcome = run_self({"--child", "pressure", tree.root()}, {"HAKMEM_RETAIN_PERCENT=1000"});
    EXPECT_TRUE(outcome.exited(0)) << outcome.describe();
}

TEST(Cgroup, ARealOne) {
    constexpr size_t kLimit = 96 * kMiB;
    MemoryCgroup cgroup(kLimit);
    if (!cgroup.made())
        GTEST_SKIP() << "no memory cgroup can be made here";
    Outcome outcome = run_self({"--child", "real", std::to_string(kLimit)}, {}, MemoryCgroup::enter);
    EXPECT_TRUE(outcome.exited(0)) << outcome.describe();
}

TEST(HardLimit, ByTheEnvironment) {
    Outcome outcome = run_self({"--child", "environment", std::to_string(32 * kMiB)}, {"HAKMEM_HARD_LIMIT=32m"});
    EXPECT_TRUE(outcome.exited(0)) << outcome.describe();
}

} // namespace

int main(int argc, char **argv) {
    if (argc == 4 && strcmp(argv[1], "--child") == 0)
        return run_child(argv[2], argv[3]);
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
