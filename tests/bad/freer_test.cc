/* The line about a double free says who freed the block first, where that is known. It must never name the wrong
 * thread: if it does, its reader looks for the bug in the wrong place. This runs only with the library's own names,
 * because in a program that gets all its memory from the library the test itself may own the block by the second
 * free. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>
#include <hakmem.h>
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include "../heap_stats.h"
#include "../posix_regex.h"
#include "../support.h"
#include "../surface.h"
#include "double_frees.h"

namespace {

/* A second free reads what the purger may be changing by then: the slab's record, and the first word of the block. That
 * race is the program's, and no report of ThreadSanitizer is wanted. */
const char *const kRaces = "TSAN_OPTIONS=report_bugs=0";

/* A thread that runs one function after another, as requested. */
class Worker {
  public:
    Worker() : thread_([this] { work(); }) {}
    ~Worker() {
        run(nullptr);
        thread_.join();
    }
    void run(std::function<void()> what) {
        std::unique_lock<std::mutex> lock(mutex_);
        what_ = std::move(what);
        told_ = true;
        turn_.notify_one();
        turn_.wait(lock, [this] { return !told_; });
    }

  private:
    void work() {
        for (bool more = true; more;) {
            std::unique_lock<std::mutex> lock(mutex_);
            turn_.wait(lock, [this] { return told_; });
            more = what_ != nullptr;
            if (more)
                what_();
            told_ = false;
            turn_.notify_one();
        }
    }
    std::mutex mutex_;
    std::condition_variable turn_;
    std::function<void()> what_;
    bool told_ = false;
    std::thread thread_;
};

/* ---- simple cases ---- */

void double_free_beside_another_thread(size_t size) {
    Worker other;
    other.run([=] { live(size); });
    char *block = live(size), *kept = live(size);
    S.free(block);
    S.free(block);
    S.free(kept);
}

/* The first of the two threads leaves its heap to the second. */
void double_free_of_two_threads_one_after_the_other(size_t size) {
    char *block = nullptr, *kept = nullptr;
    std::thread([&] {
        block = live(size), kept = live(size);
        S.free(block);
    }).join();
    std::thread([&] { S.free(block); }).join();
    S.free(kept);
}

/* Another thread freed the block, and since then it has been in the list of its slab's owner. */
void double_free_of_what_came_home(size_t size) {
    char *block = live(size), *kept = live(size);
    std::thread([&] { S.free(block); }).join();
    hak_trim();
    S.free(block);
    S.free(kept);
}

uintptr_t slot_of(const char *p) { return reinterpret_cast<uintptr_t>(p) / (64 * kKiB); }

/* Another thread freed the block, and its slot went back to the system. The slot now has a slab of this thread, in
 * which the block is the next to be handed out. */
void double_free_of_what_a_former_slab_had(size_t size) {
    std::set<char *> theirs;
    std::thread([&] {
        while (theirs.size() < 10000)
            theirs.insert(live(size));
        for (char *block : theirs)
            S.free(block);
    }).join();
    hak_trim();
    for (size_t i = 0; i < 10000; i++) {
        char *first = live(size), *next = first + S.usable_size(first);
        if (slot_of(first) != slot_of(first - 1) && theirs.count(next) != 0)
            S.free(next);
    }
}

/* As long as this lives the process gets no more memory that it may write to. */
class Limited {
  public:
    Limited() {
        getrlimit(RLIMIT_DATA, &before_);
        struct rlimit low = {1, before_.rlim_max};
        setrlimit(RLIMIT_DATA, &low);
    }
    ~Limited() { setrlimit(RLIMIT_DATA, &before_); }

  private:
    struct rlimit before_;
};

void await_count(const char *name, long count) {
    while (counter(name) < count)
        sched_yield();
}

/* Another thread freed the block while this one slept and the purger emptied its rings. */
void double_free_after_the_rings_were_emptied(size_t size) {
    Worker large, other;
    char *block = live(size);
    large.run([] { live(8 * kMiB); }); /* a heap of this size has a purger */
    long emptied =
        counter("rings_emptied"); /* before the free, which the purger may notice before this thread goes on */
    S.free(live(size));
    await_count("rings_emptied", emptied + 1);
    other.run([&] { S.free(block); });
    S.free(block);
}

/* True: `freed` is still free, and this thread owns its slab and has taken another one since. */
bool takes_the_slab_of(const char *freed, size_t size) {
    bool free = true, there = false;
    for (bool done = false; !done;) {
        const char *block = live(size);
        bool in = slot_of(block) == slot_of(freed);
        free &= block != freed; /* the purger may have brought the block home before */
        done = there && !in;
        there |= in;
    }
    return free;
}

/* This thread freed the block into another thread's slab, which it owns by now; then it slept so long that the purger
 * has brought the block home. Only then: on a busy machine that takes more than one try. */
void double_free_of_what_the_purger_sent(size_t size) {
    Worker large;
    large.run([] { live(8 * kMiB); });
    for (bool done = false; !done;) {
        std::vector<char *> own, theirs;
        while (own.size() < 640)
            own.push_back(live(size));
        for (size_t i = 0; i < 448; i++) /* whole slabs: from now on this thread keeps full ones */
            S.free(own[i]);
        auto end = std::make_unique<Worker>();
        end->run([&] {
            while (theirs.size() < 64)
                theirs.push_back(live(size));
        });
        long sent = counter("outbox_batches");
        S.free(theirs[20]); /* the first block is sent at once */
        S.free(theirs[53]);
        S.free(theirs[54]);
        end->run([&] { S.free(theirs[61]), S.free(theirs[62]), S.free(theirs[63]); });
        end.reset();
        done = takes_the_slab_of(theirs[54], size);
        if (done) {
            await_count("outbox_batches", sent + 2);
            S.free(theirs[54]);
        }
    }
}

/* ---- arenas ---- */

char *live_in(hak_arena *arena, size_t size) {
    char *block = hidden(hak_arena_malloc(arena, size));
    memset(block, 1, size);
    return block;
}

void double_free_in_an_arena(size_t size) {
    hak_arena *arena = hak_arena_new(nullptr);
    char *block = live_in(arena, size);
    live_in(arena, size);
    S.free(block);
    S.free(block);
}

/* The arena's heap passes from the first of the two threads to the second, with all that it holds. */
void double_free_of_two_threads_in_an_arena(size_t size) {
    hak_arena *arena = hak_arena_new(nullptr);
    char *block = nullptr;
    std::thread([&] {
        block = live_in(arena, size);
        live_in(arena, size);
        S.free(block);
    }).join();
    std::thread([&] {
        live_in(arena, size == 16 ? 32 : 16);
        S.free(block);
    }).join();
}

/* Another thread freed the block in an arena that is gone. The slot now has a slab of this thread, in which the block
 * is the next to be handed out. */
void double_free_of_what_an_arena_had(size_t size) {
    hak_arena *arena = hak_arena_new(nullptr);
    std::set<char *> theirs;
    std::thread([&] {
        while (theirs.size() < 10000)
            theirs.insert(live_in(arena, size));
        char *kept = nullptr; /* in each slab a block, or its slot would go back before the arena ends */
        for (char *block : theirs)
            slot_of(block) != slot_of(kept) ? (void)(kept = block) : S.free(block);
    }).join();
    hak_arena_destroy(arena);
    for (size_t i = 0; i < 10000; i++) {
        char *first = live(size), *next = first + S.usable_size(first);
        if (slot_of(first) != slot_of(first - 1) && theirs.count(next) != 0)
            S.free(next);
    }
}

/* ---- where memory is short ---- */

/* The other thread frees the block while the system gives no memory for its heap. */
void double_free_by_a_thread_without_a_heap(size_t size) {
    Worker other;
    char *block = live(size), *kept = live(size);
    other.run([&] {
        Limited limit;
        S.free(block);
    });
    S.free(block);
    S.free(kept);
}

/* This thread freed the block, whose memory was made inaccessible, and could not be opened when malloc wanted it. */
void double_free_of_what_stays_shut(size_t size) {
    Worker other;
    other.run([=] { live(8); });
    char *block = live(size);
    S.free(block);
    {
        Limited limit;
        S.free(S.alloc(size));
    }
    S.free(block);
}

/* Returns no sizes in secure mode, which has no lists and rings. */
std::vector<size_t> of_caches(std::vector<size_t> sizes) {
    if (in_secure_mode())
        sizes.clear();
    return sizes;
}

/* Returns no sizes under a sanitizer, which ends a program whose memory is short. */
std::vector<size_t> without_sanitizers(std::vector<size_t> sizes) {
    if (kShorter != 1)
        sizes.clear();
    return sizes;
}

const std::vector<Misuse> &cases() {
    static const std::vector<size_t> small{8, 48, 1000, 5000, 40000}, all{8, 48, 1000, 5000, 40000, 200 * kKiB};
    static const std::string owner =
        in_secure_mode() ? "" : ", freed by another thread"; /* secure mode knows of one thread only */
    static const std::vector<Misuse> these{
        {"at_once", double_free_at_once, ", freed by this thread", all},
        {"beside_another_thread", double_free_beside_another_thread, ", freed by this thread",
         of_caches({8, 48, 1000})},
        {"by_another_thread", double_free_by_another_thread, owner.c_str(), all},
        {"of_two_threads_one_after_the_other", double_free_of_two_threads_one_after_the_other, "", small},
        {"of_what_came_home", double_free_of_what_came_home, "", {48, 1000}},
        {"of_what_a_former_slab_had", double_free_of_what_a_former_slab_had, "", of_caches({48, 1000})},
        {"after_the_rings_were_emptied", double_free_after_the_rings_were_emptied,
         /* The other thread's rings may be emptied, too. */
         "(, freed by another thread)?", of_caches({5000, 200 * kKiB})},
        {"of_what_the_purger_sent", double_free_of_what_the_purger_sent, "", of_caches({1000})},
        {"in_an_arena", double_free_in_an_arena, ", freed by this thread", of_caches({48, 5000, 200 * kKiB})},
        {"of_two_threads_in_an_arena", double_free_of_two_threads_in_an_arena, "", {16, 5000, 200 * kKiB}},
        {"of_what_an_arena_had", double_free_of_what_an_arena_had, "", of_caches({48, 1000})},
        {"by_a_thread_without_a_heap", double_free_by_a_thread_without_a_heap,
         /* A block of 48 bytes is in the inbox of this thread's slab. */
         "(, freed by another thread)?", of_caches(without_sanitizers({48, 5000}))},
        {"of_what_stays_shut", double_free_of_what_stays_shut, "", of_caches(without_sanitizers({200 * kKiB}))},
    };
    return these;
}

TEST(Freer, IsKnownInSimpleCases) {
    for (auto &one : cases())
        for (size_t size : one.sizes) {
            Outcome outcome = run_self({"--case", one.name, std::to_string(size)}, {kRaces});
            std::string bytes =
                size > 64 * kKiB ? std::to_string(size) : "[0-9]+"; /* of a large block, what was asked */
            Regex line("hakmem: double free of .* \\(" + bytes + "-byte block" + one.line + "\\)\n");
            EXPECT_TRUE(line.is_all_of(without_calls(outcome.err))) << one.name << outcome.describe();
        }
}

/* ---- any traffic ---- */

/* Allocates and frees at random in several threads, and frees some blocks again. Before each such free it writes
 * whether the line must name "this" or "another" thread. */
int free_twice_at_random(uint64_t seed) {
    constexpr size_t kWorkers = 3, kSteps = 20000, kSizesUsed[] = {8, 48, 48, 48, 1000, 5000, 40000, 200 * kKiB};
    Random random(seed);
    std::vector<std::unique_ptr<Worker>> workers(kWorkers);
    std::vector<char *> blocks, freed;
    /* For each free block, the thread that freed it; threads are numbered in the order of their births. */
    std::map<char *, uint64_t> freer;
    std::vector<uint64_t> born(kWorkers);
    uint64_t births = 0;
    for (size_t step = 0; step < kSteps; step++) {
        size_t t = random.below(kWorkers), what = random.below(100);
        if (workers[t] == nullptr || random.below(500) == 0) {
            workers[t].reset(); /* its thread ends */
            workers[t] = std::make_unique<Worker>();
            born[t] = births++;
        }
        Worker &worker = *workers[t];
        if (blocks.empty() || what < (step / 1000 % 2 == 0 ? 65u : 20u)) {
            size_t size = kSizesUsed[random.below(std::size(kSizesUsed))];
            worker.run([&] { blocks.push_back(live(size)); });
            freer.erase(blocks.back());
        } else if (what < 85) {
            std::swap(blocks[random.below(blocks.size())], blocks.back());
            char *block = blocks.back();
            blocks.pop_back();
            worker.run([&] { S.free(block); });
            freer[block] = born[t];
            freed.push_back(block);
        } else if (!freed.empty()) {
            size_t back = random.below(std::min<size_t>(freed.size(), random.below(2) == 0 ? 50 : 5000));
            char *block = freed[freed.size() - 1 - back];
            if (freer.count(block) == 0)
                continue; /* handed out again */
            fprintf(stderr, "owes %s\n", freer[block] == born[t] ? "this" : "another");
            worker.run([&] { S.free(block); });
        }
    }
    return 0;
}

/* How many lines name the thread, and how many name none. */
struct Named {
    size_t one, none;
};

Named named_at_random(const char *seed, const char *purger) {
    Named named = {0, 0};
    Outcome outcome = run_self({"--free-twice", seed}, {kRaces, "HAKMEM_ON_ERROR=warn", purger});
    EXPECT_TRUE(outcome.exited(0)) << "seed " << seed << outcome.describe().substr(0, 1000);
    std::string owed;
    for (auto &line : lines_of(outcome.err)) {
        if (line.rfind("owes ", 0) == 0) {
            owed = line.substr(5);
            continue;
        }
        size_t by = line.find(", freed by ");
        named.none += by == std::string::npos;
        named.one += by != std::string::npos;
        if (by != std::string::npos)
            EXPECT_EQ(line.substr(by), ", freed by " + owed + " thread)") << "seed " << seed << ": " << line;
    }
    return named;
}

TEST(Freer, IsNeverTheWrongOne) {
    for (const char *seed : {"1", "2"}) {
        Named named = named_at_random(seed, "HAKMEM_PURGER=1");
        EXPECT_GT(named.one + named.none, 0u) << "no free was the second";
    }
}

/* Without a purger, which gives back what waits in a ring, the sooner the slower the program is. */
TEST(Freer, IsMostlyKnown) {
    Named named = named_at_random("1", "HAKMEM_PURGER=0");
    printf("%zu lines tell who, %zu do not\n", named.one, named.none);
    if (!in_secure_mode())
        EXPECT_GT(named.one, named.none) << "most lines could tell who freed the block before";
}

/* Frees twice what another thread's malloc has taken besides the block that it wanted: misses in a row bring further
 * free spans, which this thread freed. Then the other thread does. */
int free_twice_what_a_miss_brought() {
    constexpr size_t kBlocks = 64, kSize = 200 * kKiB, kInSuperSlab = 8;
    Worker other;
    std::vector<char *> freed;
    for (int turn = 0; turn < 3; turn++) /* its ring grows */
        other.run([&] {
            std::vector<char *> blocks;
            while (blocks.size() < kInSuperSlab)
                blocks.push_back(live(kSize));
            std::for_each(blocks.begin(), blocks.end(), S.free);
        });
    for (size_t i = 0; i < kBlocks; i++) {
        char *block = live(kSize);
        if (i % kInSuperSlab != 0) /* else the SuperSlab would be wholly free, and spans come from others */
            freed.push_back(block);
    }
    std::for_each(freed.begin(), freed.end(), S.free);
    other.run([&] {
        for (long before, spans = 1, i = 0; spans <= 1 && i < 100; spans = counter("large_spans") - before, i++) {
            before = counter("large_spans");
            freed.erase(std::remove(freed.begin(), freed.end(), live(kSize)), freed.end());
        }
    });
    fprintf(stderr, "this\n");
    std::for_each(freed.begin(), freed.end(), S.free);
    fprintf(stderr, "another\n");
    other.run([&] { std::for_each(freed.begin(), freed.end(), S.free); });
    return 0;
}

TEST(Freer, IsNotTheThreadWhoseMissTookTheSpan) {
    if (in_secure_mode())
        GTEST_SKIP() << "secure mode has no rings";
    Outcome outcome = run_self({"--free-what-a-miss-brought"},
                               {kRaces, "HAKMEM_ON_ERROR=warn", "HAKMEM_PURGE=never", "HAKMEM_PURGER=0"});
    ASSERT_TRUE(outcome.exited(0)) << outcome.describe().substr(0, 1000);
    size_t of_a_miss = 0; /* whose size nobody asked for */
    std::string wrong = "freed by another thread";
    for (auto &line : lines_of(outcome.err)) {
        if (line == "another")
            wrong = "freed by this thread";
        of_a_miss += line.find("262144-byte block") != std::string::npos;
        EXPECT_EQ(line.find(wrong), std::string::npos) << line;
    }
    EXPECT_GT(of_a_miss, 0u) << "no miss took a further span";
}

/* This thread frees blocks of a sleeping owner, one of them again and again, while another thread frees others. */
int free_twice_while_another_sends() {
    constexpr size_t kBlocks = 8192 /* of 8 bytes, in a slab */, kMine = 1000;
    for (int round = 0; round < times(60); round++) {
        Worker owner;
        std::vector<char *> blocks;
        owner.run([&] {
            while (blocks.size() < 2 * kBlocks || slot_of(blocks.back()) != slot_of(blocks[blocks.size() - kBlocks]))
                blocks.push_back(live(8));
        });
        char **last = &blocks[blocks.size() - kBlocks];
        std::for_each(last, last + kMine, S.free);
        std::atomic<bool> begun{false}, done{false};
        std::thread other([&] {
            S.free(last[kMine]);
            begun = true;
            std::for_each(last + kMine + 1, last + kBlocks, S.free);
            done = true;
        });
        while (!begun)
            sched_yield();
        do
            S.free(last[kMine / 2]);
        while (!done);
        other.join();
    }
    return 0;
}

TEST(Freer, IsNotTheThreadThatFreesOtherBlocks) {
    if (in_secure_mode())
        GTEST_SKIP() << "secure mode sends nothing";
    Outcome outcome =
        run_self({"--free-while-another-sends"}, {kRaces, "HAKMEM_ON_ERROR=warn", "HAKMEM_DRAIN_INTERVAL=16"});
    ASSERT_TRUE(outcome.exited(0)) << outcome.describe().substr(0, 1000);
    EXPECT_NE(outcome.err.find("hakmem: double free of "), std::string::npos) << "no free was the second";
    EXPECT_EQ(outcome.err.find("freed by another thread"), std::string::npos) << "this thread freed it";
}

} // namespace

int main(int argc, char **argv) {
    struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    if (argc == 4 && strcmp(argv[1], "--case") == 0)
        return run_misuse(cases(), argv[2], strtoul(argv[3], nullptr, 10));
    if (argc == 3 && strcmp(argv[1], "--free-twice") == 0)
        return free_twice_at_random(strtoull(argv[2], nullptr, 10));
    if (argc == 2 && strcmp(argv[1], "--free-what-a-miss-brought") == 0)
        return free_twice_what_a_miss_brought();
    if (argc == 2 && strcmp(argv[1], "--free-while-another-sends") == 0)
        return free_twice_while_another_sends();
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
