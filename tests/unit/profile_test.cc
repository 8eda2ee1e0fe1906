/* The heap profile against known truths. Its figures are estimates from samples, so each case runs many times, and the
 * mean error must lie within kSigmas standard errors of zero: false alarms are rarer than one in a million. If it
 * fails, the profile blames the wrong code, or a program behaves differently while it is profiled. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>
#include <hakmem.h>
#include <sys/wait.h>

#include <atomic>
#include <cmath>
#include <map>
#include <mutex>
#include <thread>

#include "../heap_stats.h"
#include "../support.h"
#include "inside.h"

namespace {

constexpr int kRuns = kShorter == 1 ? 64 : 24;
constexpr double kSigmas = kShorter == 1 ? 6.5 : 8; /* by Student's distribution */

struct Figures {
    double samples = 0, bytes = 0, objects = 0;
    Figures &operator+=(const Figures &f) {
        return samples += f.samples, bytes += f.bytes, objects += f.objects, *this;
    }
    Figures operator-(const Figures &f) const { return {samples - f.samples, bytes - f.bytes, objects - f.objects}; }
};

Figures figures_of(const inside_profile_total &t) {
    return {static_cast<double>(t.samples), static_cast<double>(t.estimated_bytes),
            static_cast<double>(t.estimated_objects) / 65536};
}

struct Totals {
    Figures allocated, freed;
    Figures live() const { return allocated - freed; }
};

Totals totals() {
    Totals sum;
    for (unsigned i = 0; i < inside_profile_stacks(); i++) {
        inside_profile_stack stack = inside_profile_stack_at(i);
        sum.allocated += figures_of(stack.allocated);
        sum.freed += figures_of(stack.freed);
    }
    return sum;
}

/* A profiled program that keeps its own books, and a pattern in each block. Its behaviour does not depend on addresses,
 * because a sampled block has an address of another kind. */
class Books {
  public:
    size_t alloc(size_t size) { return enter(hak_malloc(size), size); }
    void free(size_t at) { hak_free(leave(at).address); }
    void realloc(size_t at, size_t size) {
        Block was = leave(at);
        void *moved = hak_realloc(was.address, size);
        EXPECT_EQ(pattern_check(moved, std::min(was.size, size), was.size, was.tag), std::min(was.size, size));
        if (moved != was.address || hak_good_size(was.asked) > 64 * kKiB) {
            enter(moved, size);
            return;
        }
        /* The block counts with the size it was requested with. */
        Block same{was.address, std::min(was.size, size), was.asked, was.tag};
        std::lock_guard<std::mutex> guard(lock_);
        pattern_write(same.address, 0, same.size, same.tag);
        blocks_.push_back(same);
    }
    void free_all() {
        while (!blocks_.empty())
            free(blocks_.size() - 1);
    }
    size_t any(Random &random) const { return random.below(blocks_.size()); }
    size_t count() const { return blocks_.size(); }
    Figures allocated() const { return allocated_; }
    Figures live() const {
        Figures sum;
        for (auto &block : blocks_)
            sum += {0, static_cast<double>(block.asked), 1};
        return sum;
    }

  private:
    struct Block {
        void *address;
        size_t size, asked;
        uint32_t tag;
    };
    size_t enter(void *address, size_t size) {
        std::lock_guard<std::mutex> guard(lock_);
        allocated_ += {0, static_cast<double>(size), 1};
        Block block{address, size, size, ++tag_};
        pattern_write(address, 0, size, block.tag);
        blocks_.push_back(block);
        return blocks_.size() - 1;
    }
    Block leave(size_t at) {
        std::lock_guard<std::mutex> guard(lock_);
        Block block = blocks_[at];
        if (pattern_check(block.address, block.size, block.size, block.tag) != block.size)
            ADD_FAILURE() << "a block of " << block.size << " bytes was overwritten";
        blocks_[at] = blocks_.back();
        blocks_.pop_back();
        return block;
    }
    std::vector<Block> blocks_;
    std::mutex lock_;
    Figures allocated_;
    uint32_t tag_ = 0;
};

class Errors {
  public:
    explicit Errors(const char *name) : name_(name) {}
    void add(double estimate, double truth) {
        double error = estimate - truth;
        n_++, sum_ += error, squares_ += error * error, truth_ += truth;
    }
    void expect_none() const {
        double mean = sum_ / n_, spread = std::sqrt(std::max(squares_ / n_ - mean * mean, 0.0) / (n_ - 1));
        double rounding = 1e-4 * truth_ / n_ + 1;
        printf("  %-18s %14.0f: error %+.3f %%, %+.2f standard errors (of %.3f %%)\n", name_, truth_ / n_,
               100 * sum_ / truth_, spread > 0 ? mean / spread : 0, 100 * spread * n_ / truth_);
        EXPECT_LE(std::fabs(mean), kSigmas * spread + rounding) << name_;
        EXPECT_LE(spread * n_ / truth_, 0.2) << name_ << ": too few samples to tell";
    }

  private:
    const char *name_;
    double n_ = 0, sum_ = 0, squares_ = 0, truth_ = 0;
};

/* Runs the program many times. Measures what it leaves live and frees it; then the profile must have nothing live. */
template <class Program>
void expect_unbiased(size_t interval, Program program, int runs = kRuns, const char *rate = "0") {
    Errors bytes("allocated bytes"), objects("allocated objects"), live_bytes("live bytes"),
        live_objects("live objects");
    ASSERT_EQ(hak_option_set("PROFILE_RATE", rate), 0);
    ASSERT_EQ(hak_profile_start(interval), 0);
    for (int run = 0; run < runs; run++) {
        Books books;
        Random random(static_cast<uint64_t>(run));
        Totals before = totals();
        program(books, random);
        Totals after = totals();
        Figures allocated = after.allocated - before.allocated, live = after.live() - before.live();
        bytes.add(allocated.bytes, books.allocated().bytes);
        objects.add(allocated.objects, books.allocated().objects);
        if (books.count() != 0) {
            live_bytes.add(live.bytes, books.live().bytes);
            live_objects.add(live.objects, books.live().objects);
        }
        bool some = books.count() != 0;
        books.free_all();
        ASSERT_EQ(totals().live().samples, 0) << "run " << run;
        ASSERT_EQ(totals().live().bytes, 0);
        ASSERT_EQ(inside_profile_live(), 0u);
        if (run + 1 < runs)
            continue;
        bytes.expect_none();
        objects.expect_none();
        if (some)
            live_bytes.expect_none(), live_objects.expect_none();
    }
    hak_profile_stop();
    EXPECT_EQ(inside_profile_dropped(), 0u);
}

TEST(Profile, OneBlockAllocatedAndFreedAgainAndAgain) {
    for (size_t size : {8, 48, 700})
        expect_unbiased(512, [&](Books &books, Random &) {
            for (int i = 0; i < 3000; i++)
                books.free(books.alloc(size));
        });
}

TEST(Profile, AGrowingHeapOfSmallBlocks) {
    expect_unbiased(2048, [](Books &books, Random &random) {
        for (int i = 0; i < 6000; i++)
            books.alloc(1 + random.below(1024));
    });
}

TEST(Profile, SmallBlocksReplacedAtRandom) {
    expect_unbiased(2048, [](Books &books, Random &random) {
        for (int i = 0; i < 6000; i++) {
            if (books.count() > 1500)
                books.free(books.any(random));
            books.alloc(random.below(3) == 0 ? 64 : 1 + random.below(1024));
        }
    });
}

/* A list that consecutive frees fill and consecutive mallocs use up: pushes and pops do not alternate. */
TEST(Profile, SmallBlocksInWaves) {
    expect_unbiased(1024, [](Books &books, Random &random) {
        for (int tide = 0; tide < 60; tide++) {
            for (size_t n = random.below(200); n > 0; n--)
                books.alloc(48);
            for (size_t n = books.count() == 0 ? 0 : random.below(books.count()); n > 0; n--)
                books.free(books.any(random));
        }
        while (books.count() < 300)
            books.alloc(48);
    });
}

/* Samples become rarer and rarer, and each counts for more and more. */
TEST(Profile, TooManySamplesASecond) {
    expect_unbiased(
        64,
        [](Books &books, Random &random) {
            for (int i = 0; i < 10000; i++)
                books.free(books.alloc(random.below(2) == 0 ? 40 : 1 + random.below(1024)));
        },
        kRuns, "60000");
}

TEST(Profile, MidBlocks) {
    expect_unbiased(16 * kKiB, [](Books &books, Random &random) {
        for (int i = 0; i < 1500; i++) {
            if (books.count() > 100)
                books.free(books.any(random));
            books.alloc(1025 + random.below(63 * kKiB));
        }
    });
}

TEST(Profile, LargeAndHugeBlocks) {
    expect_unbiased(256 * kKiB, [](Books &books, Random &random) {
        for (int i = 0; i < 150; i++) {
            if (books.count() > 40)
                books.free(books.any(random));
            books.alloc(64 * kKiB + random.log_size(22));
        }
    });
}

/* In place, by moving pages, by copying: each counts as one free and one allocation, or not at all. */
TEST(Profile, BlocksThatChangeTheirSize) {
    expect_unbiased(2048, [](Books &books, Random &random) {
        for (int i = 0; i < 80; i++) {
            books.alloc(1 + random.below(100));
            for (size_t size = 100; size < 3 * kMiB / 2 && random.below(20) != 0;
                 size = size * 3 / 2 + random.below(50))
                books.realloc(books.count() - 1, random.below(4) == 0 ? size * 2 / 3 : size);
        }
    });
}

TEST(Profile, BlocksThatAnotherThreadFrees) {
    expect_unbiased(
        2048,
        [](Books &books, Random &random) {
            for (int round = 0; round < 4; round++) {
                for (int i = 0; i < 1500; i++)
                    books.alloc(16 + random.below(200));
                std::thread([&] {
                    Random other(random.next());
                    for (int i = 0; i < 1200; i++)
                        books.free(books.any(other));
                    for (int i = 0; i < 300; i++)
                        books.alloc(100);
                }).join();
            }
        },
        kRuns / 2);
}

TEST(Profile, BlocksOfArenas) {
    hak_arena *arena = hak_arena_new(nullptr);
    expect_unbiased(
        1024,
        [&](Books &books, Random &random) {
            hak_arena_set_default(arena, nullptr);
            for (int i = 0; i < 3000; i++) {
                if (books.count() > 300)
                    books.free(books.any(random));
                books.alloc(1 + random.log_size(random.below(50) == 0 ? 18 : 11));
            }
            hak_arena_set_default(nullptr, nullptr);
        },
        kRuns);
    hak_arena_destroy(arena);
}

/* Else a leak is reported that is none; and the next block at the address is taken for a sample. */
TEST(Profile, AnArenaTakesItsSamplesAlong) {
    ASSERT_EQ(hak_profile_start(1024), 0);
    for (int run = 0; run < 20; run++) {
        hak_arena *arena = hak_arena_new(nullptr);
        std::vector<void *> blocks;
        for (size_t size : {16, 100, 1000, 3000, 60000, 100000, 3 << 20})
            for (int i = 0; i < 100 && (i < 2 || size < 100000); i++)
                blocks.push_back(hak_arena_malloc(arena, size));
        EXPECT_GT(inside_profile_live(), 20u);
        if (run % 2 == 0) {
            hak_arena_destroy(arena);
        } else {
            hak_arena_release(arena);
            EXPECT_GT(inside_profile_live(), 20u) << "the blocks live on";
            for (void *block : blocks)
                hak_free(block);
        }
        EXPECT_EQ(inside_profile_live(), 0u);
        EXPECT_EQ(totals().live().bytes, 0);
    }
    hak_profile_stop();
}

/* A program sees the same of a block whether it was sampled or not. */
TEST(Profile, SampledBlocksBehaveLikeOthers) {
    ASSERT_EQ(hak_option_set("PROFILE_RATE", "0"), 0);
    ASSERT_EQ(hak_profile_start(1), 0); /* samples nearly every block */
    Totals before = totals();
    for (size_t size : kTierSizes) {
        std::vector<void *> blocks;
        for (size_t alignment = 8; alignment <= 4096; alignment *= 2) {
            for (int i = 0; i < 3; i++) {
                blocks.push_back(hak_aligned_alloc(alignment, size));
                EXPECT_TRUE(aligned_to(blocks.back(), alignment)) << size;
            }
        }
        for (void *block : blocks)
            hak_free(block);
        void *block = hak_malloc(size);
        EXPECT_TRUE(aligned_to(block, natural_alignment(size)));
        EXPECT_EQ(hak_usable_size(block), hak_good_size(size));
        memset(block, 0xff, hak_usable_size(block));
        EXPECT_TRUE(hak_expand(block, hak_good_size(size)));
        if (size <= 64 * kKiB)
            EXPECT_FALSE(hak_expand(block, hak_good_size(size) + 1));
        hak_free_sized(block, size);
        block = hak_calloc(1, size);
        EXPECT_EQ(first_dirty(block, size), size);
        errno = 77;
        hak_free(block);
        EXPECT_EQ(errno, 77);
    }
    EXPECT_GT(totals().allocated.samples - before.allocated.samples, 10 * std::size(kTierSizes));
    EXPECT_EQ(totals().live().samples, 0);
    hak_profile_stop();
}

TEST(Profile, BeginsAndEndsWhileBlocksAreReused) {
    for (size_t size : {48, 700, 4000, 200000, 3000000}) {
        std::atomic<bool> ready{false}, end{false};
        std::atomic<uint64_t> pairs{0};
        std::thread worker([&] { /* its lists and rings are filled, and never run empty */
                                 std::vector<void *> blocks;
                                 for (int i = 0; i < 8; i++)
                                     blocks.push_back(hak_malloc(size));
                                 for (void *block : blocks)
                                     hak_free(block);
                                 for (; !end; pairs++) {
                                     void *volatile block = hak_malloc(size);
                                     hak_free(block);
                                     ready = pairs > 100;
                                 }
        });
        while (!ready)
            std::this_thread::yield();
        double before = totals().allocated.samples;
        ASSERT_EQ(hak_profile_start(4096), 0);
        uint64_t from = pairs;
        while (totals().allocated.samples == before && pairs < from + 2000000)
            std::this_thread::yield();
        EXPECT_GT(totals().allocated.samples, before) << "blocks of " << size << " bytes were never sampled";
        hak_profile_stop();
        for (from = pairs; pairs < from + 2;)
            std::this_thread::yield();
        double stopped = totals().allocated.samples;
        for (from = pairs; pairs < from + 20000 / (size / 1000 + 1);)
            std::this_thread::yield();
        EXPECT_EQ(totals().allocated.samples, stopped);
        end = true;
        worker.join();
        EXPECT_EQ(totals().live().samples, 0);
    }
}

/* The freed samples whose lifetime was noted. */
double lifetimes() {
    uint64_t sum = 0;
    for (unsigned i = 0; i < inside_profile_stacks(); i++)
        sum += inside_profile_stack_at(i).lifetimes;
    return static_cast<double>(sum);
}

/* Else nobody can tell in a run of ten minutes what lives long. */
TEST(Profile, LifetimesOfMinutesAreToldApart) {
    if (getenv("HAK_TEST_ALONE") == nullptr) { /* what was sampled before may have lived as long, on a busy machine */
        Outcome outcome = run_self({"--gtest_filter=Profile.LifetimesOfMinutesAreToldApart"}, {"HAK_TEST_ALONE=1"});
        EXPECT_TRUE(outcome.exited(0)) << outcome.describe();
        return;
    }
    ASSERT_EQ(hak_profile_start(1), 0);
    auto now_ms = [] { /* by the clock that dates samples */
                       struct timespec now;
                       clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
                       return static_cast<uint64_t>(now.tv_sec) * 1000 + static_cast<uint64_t>(now.tv_nsec) / 1000000;
    };
    uint64_t longest = 0;
    for (uint32_t seconds : {20u, 300u, 20000u}) {
        uint64_t begun = now_ms();
        void *block = hak_malloc(5000);
        inside_profile_age(block, seconds * 1000);
        hak_free(block);
        uint64_t before = longest;
        for (unsigned i = 0; i < inside_profile_stacks(); i++)
            longest = std::max(longest, inside_profile_stack_at(i).longest_ms);
        EXPECT_GT(longest, before) << seconds << " s";
        EXPECT_LE(longest, seconds * 1000 + now_ms() - begun);
        EXPECT_GT(longest * 2, seconds * 1000);
    }
    void *block = hak_malloc(5000);
    inside_profile_age(block, UINT32_MAX / 4 * 3); /* 37 days: longer than can be told apart */
    double before = lifetimes();
    hak_free(block);
    EXPECT_EQ(lifetimes(), before + 1);
    hak_profile_stop();
}

/* Else a program with more live blocks than there are places for samples ends, or nobody is told that some are
 * missing. */
TEST(Profile, SamplesWithoutAPlaceAreCounted) {
    if (getenv("HAK_TEST_ALONE") == nullptr) { /* other tests expect that there are none */
        Outcome outcome = run_self({"--gtest_filter=Profile.SamplesWithoutAPlaceAreCounted"}, {"HAK_TEST_ALONE=1"});
        EXPECT_TRUE(outcome.exited(0)) << outcome.describe();
        return;
    }
    ASSERT_EQ(hak_option_set("PROFILE_RATE", "0"), 0);
    ASSERT_EQ(hak_profile_start(1), 0);
    std::vector<void *> blocks(inside_profile_samples + 1000); /* no page of most is touched */
    for (void *&block : blocks)
        block = hak_malloc(2000);
    hak_profile_stop();
    long dropped = counter("samples_dropped");
    EXPECT_GE(dropped, 1000);
    EXPECT_EQ(inside_profile_dropped(), static_cast<uint64_t>(dropped));
    for (void *block : blocks)
        hak_free(block);
    EXPECT_EQ(totals().live().samples, 0);
}

TEST(Profile, ManyThreadsAtOnce) {
    ASSERT_EQ(hak_profile_start(64), 0);
    static std::atomic<void *> shared[256];
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 4; t++)
        threads.emplace_back([t] {
            Random random(t);
            for (int i = 0; i < 40000 / kShorter; i++)
                hak_free(shared[random.below(256)].exchange(hak_malloc(random.log_size(random.below(64) ? 10 : 18))));
        });
    for (auto &thread : threads)
        thread.join();
    EXPECT_GT(totals().live().samples, 100);
    EXPECT_EQ(totals().live().samples, inside_profile_live());
    for (auto &block : shared)
        hak_free(block.exchange(nullptr));
    hak_profile_stop();
    EXPECT_EQ(totals().live().samples, 0);
    EXPECT_EQ(totals().live().objects, 0);
    EXPECT_EQ(inside_profile_live(), 0u);
    EXPECT_EQ(lifetimes(), totals().freed.samples);
}

__attribute__((noinline, no_sanitize("address", "undefined"))) void *allocate_often() {
    void *volatile block = hak_malloc(300);
    return block;
}
__attribute__((noinline, no_sanitize("address", "undefined"))) void *allocate_seldom() {
    void *volatile block = hak_malloc(100);
    return block;
}

/* Estimated bytes of all stacks that pass through a function. */
double bytes_through(void *(*function)()) {
    double bytes = 0;
    for (unsigned i = 0; i < inside_profile_stacks(); i++) {
        inside_profile_stack stack = inside_profile_stack_at(i);
        for (unsigned at = 0; at < stack.depth; at++) {
            if (stack.callers[at] - reinterpret_cast<uintptr_t>(function) < 40) {
                bytes += static_cast<double>(stack.allocated.estimated_bytes);
                break;
            }
        }
    }
    return bytes;
}

TEST(Profile, EachStackHasItsShare) {
    Errors often("often"), seldom("seldom");
    ASSERT_EQ(hak_profile_start(4096), 0);
    for (int run = 0; run < kRuns; run++) {
        double often_before = bytes_through(allocate_often), seldom_before = bytes_through(allocate_seldom);
        for (int i = 0; i < 2000; i++) {
            hak_free(allocate_often());
            if (i % 2 == 0)
                hak_free(allocate_seldom());
        }
        often.add(bytes_through(allocate_often) - often_before, 2000 * 300);
        seldom.add(bytes_through(allocate_seldom) - seldom_before, 1000 * 100);
    }
    hak_profile_stop();
    often.expect_none();
    seldom.expect_none();
}

/* ---- the high-water mark ---- */

void fill(std::vector<void *> &blocks, size_t count, size_t bytes) {
    for (size_t i = 0; i < count; i++)
        blocks.push_back(hak_malloc(bytes));
}

void free_some(std::vector<void *> &blocks, size_t left) {
    while (blocks.size() > left) {
        hak_free(blocks.back());
        blocks.pop_back();
    }
}

/* What stacks through which only these blocks were allocated held at the mark. */
uint64_t peak_of(uint64_t allocated_bytes) {
    uint64_t sum = 0;
    for (unsigned i = 0; i < inside_profile_stacks(); i++) {
        inside_profile_stack stack = inside_profile_stack_at(i);
        sum += stack.allocated.bytes == allocated_bytes ? stack.peak_bytes : 0;
    }
    return sum;
}

/* A program that frees all at its end: who held the memory when there was most? Blocks this large are always sampled,
 * and as nobody touches them they cost no memory. */
TEST(Profile, WhoHeldItAtThePeakIsKept) {
    ASSERT_EQ(hak_option_set("PROFILE_RATE", "0"), 0);
    ASSERT_EQ(hak_profile_start(1), 0);
    std::vector<void *> early, late, last;
    fill(early, 300, 4 * kMiB);
    free_some(early, 50);
    fill(late, 200, 4 * kMiB + 8);
    EXPECT_EQ(peak_of(300 * 4 * kMiB), 300 * 4 * kMiB) << "250 blocks are less than 300";
    EXPECT_EQ(peak_of(200 * (4 * kMiB + 8)), 0u);
    fill(last, 100, 4 * kMiB + 16);
    free_some(late, 0);
    free_some(early, 0);
    fill(early, 1, 4 * kMiB + 24);
    free_some(last, 0);
    free_some(early, 0);
    EXPECT_EQ(peak_of(300 * 4 * kMiB), 50 * 4 * kMiB);
    EXPECT_EQ(peak_of(200 * (4 * kMiB + 8)), 200 * (4 * kMiB + 8));
    EXPECT_EQ(peak_of(100 * (4 * kMiB + 16)), 100 * (4 * kMiB + 16));
    EXPECT_EQ(peak_of(4 * kMiB + 24), 0u);
    EXPECT_EQ(totals().live().samples, 0);
    hak_profile_stop();
}

/* Threads add and remove samples of one another's stacks while the mark moves: the stacks' parts add up to the mark, to
 * within the samples that threads were adding or removing at one moment. */
TEST(Profile, ThePeakOfThreadsAddsUp) {
    constexpr size_t kThreads = 4, kBlocks = 100, kBytes = 16 * kMiB;
    ASSERT_EQ(hak_option_set("PROFILE_RATE", "0"), 0);
    ASSERT_EQ(hak_profile_start(1), 0);
    std::vector<std::thread> threads;
    for (size_t number = 0; number < kThreads; number++) {
        threads.emplace_back([number] {
            Random random(number + 1);
            std::vector<void *> blocks;
            fill(blocks, kBlocks, kBytes);
            for (int i = 0; i < 3000 / kShorter; i++) {
                if (random.below(2 * kBlocks) >= blocks.size())
                    fill(blocks, 1, kBytes);
                else
                    free_some(blocks, blocks.size() - 1);
            }
            free_some(blocks, 0);
        });
    }
    for (auto &thread : threads)
        thread.join();
    uint64_t sum = 0;
    for (unsigned i = 0; i < inside_profile_stacks(); i++)
        sum += inside_profile_stack_at(i).peak_bytes;
    uint64_t most = inside_profile_most_bytes();
    EXPECT_GE(most, kBlocks * kBytes);
    EXPECT_LE(sum, most + 4 * kThreads * kBytes);
    EXPECT_GE(sum + 4 * kThreads * kBytes, most);
    hak_profile_stop();
    EXPECT_EQ(totals().live().samples, 0);
}

/* The child frees its parent's blocks, and goes on. */
TEST(Profile, AChildContinues) {
    ASSERT_EQ(hak_profile_start(256), 0);
    std::vector<void *> blocks;
    for (int i = 0; i < 2000; i++)
        blocks.push_back(hak_malloc(static_cast<size_t>(i)));
    double live = totals().live().samples;
    EXPECT_GT(live, 500);
    pid_t pid = fork();
    if (pid == 0) {
        for (void *block : blocks)
            hak_free(block);
        bool none = totals().live().samples == 0 && inside_profile_live() == 0;
        for (auto &block : blocks)
            block = hak_malloc(200);
        _exit(none && totals().live().samples > 500 ? 0 : 1);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    EXPECT_EQ(totals().live().samples, live);
    for (void *block : blocks)
        hak_free(block);
    hak_profile_stop();
    EXPECT_EQ(totals().live().samples, 0);
}

/* Else the stack that the handler interrupted is stored with the handler's calls. */
TEST(Profile, AHandlerThatInterruptsASampleTakesNone) {
    hak_free(hak_malloc(1)); /* the thread has a heap */
    ASSERT_EQ(hak_profile_start(1), 0);
    long taken = counter("samples_taken"), dropped = counter("samples_dropped");
    inside_take_stack(1);
    hak_free(hak_malloc(5000));
    EXPECT_EQ(counter("samples_taken"), taken);
    EXPECT_GT(counter("samples_dropped"), dropped);
    inside_take_stack(0);
    hak_free(hak_malloc(5000));
    EXPECT_GT(counter("samples_taken"), taken);
    hak_profile_stop();
}

} // namespace
