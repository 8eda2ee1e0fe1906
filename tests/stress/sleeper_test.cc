/* One thread frees a single block in each of 10,000 slabs and then sleeps, while others free the rest: memory that is
 * not live must go back to the system all the same. (glibc, jemalloc and mimalloc keep nearly everything.) */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "../heap_stats.h"
#include "../support.h"
#include "../surface.h"

namespace {

const Surface &S = subject();

constexpr size_t kSlabs = 10000 / static_cast<size_t>(kShorter), kSlotBytes = 65536;

class Flag {
  public:
    void set() {
        std::lock_guard<std::mutex> lock(mutex_);
        set_ = true;
        changed_.notify_all();
    }
    void wait() {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [&] { return set_; });
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    bool set_ = false;
};

/* An array of pointers outside the heap under test. */
struct Pointers {
    explicit Pointers(size_t most)
        : bytes(most * sizeof(void *)),
          at(static_cast<char **>(
              mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0))) {}
    ~Pointers() { munmap(at, bytes); }
    size_t bytes, count = 0;
    char **at;
};

/* The purger works when it gets to run, and some of what it does waits until the program rests. A look allocates, and
 * takes longer than the purger's tick on a busy machine, so the pauses between two looks grow. Returns what is resident
 * once the goal is reached, or after some minutes. */
size_t rss_at_goal(size_t (*rss_bytes)(), size_t goal) {
    size_t rss = rss_bytes();
    for (unsigned i = 0; i < 80 && rss > goal; i++) {
        usleep(10000u << i / 8);
        rss = rss_bytes();
    }
    return rss;
}

/* `keep_every`: one block in this many stays live; 0 for none. */
void run_sleeper(size_t block_bytes, size_t keep_every) {
    size_t total = kSlabs * (kSlotBytes / block_bytes);
    Pointers blocks(total), firsts(kSlabs + 100);
    size_t before = heap_rss_bytes();
    uintptr_t last_slot = 0;
    for (size_t i = 0; i < total; i++) {
        auto *block = static_cast<char *>(S.alloc(block_bytes));
        ASSERT_NE(block, nullptr);
        memset(block, 1, block_bytes);
        uintptr_t slot = reinterpret_cast<uintptr_t>(block) / kSlotBytes;
        bool first = slot != last_slot && firsts.count < kSlabs;
        (first ? firsts.at[firsts.count++] : blocks.at[blocks.count++]) = block;
        last_slot = slot;
    }
    Flag done, end;
    std::thread sleeper([&] {
        for (size_t i = 0; i < firsts.count; i++)
            S.free(firsts.at[i]);
        done.set();
        end.wait();
    });
    done.wait();
    size_t live_bytes = 0;
    std::thread helper([&] {
        for (size_t i = 0; i < blocks.count / 2; i++)
            if (keep_every == 0 || i % keep_every != 0)
                S.free(blocks.at[i]);
    });
    for (size_t i = blocks.count / 2; i < blocks.count; i++)
        if (keep_every == 0 || i % keep_every != 0)
            S.free(blocks.at[i]);
    helper.join();
    for (size_t i = 0; keep_every != 0 && i < blocks.count; i += keep_every)
        live_bytes += block_bytes;
    /* The program goes on for a little, as programs do: the purger is started from malloc, never from free. */
    static char *more[2000];
    for (auto &block : more)
        block = static_cast<char *>(S.alloc(64));
    for (auto *block : more)
        S.free(block);
    /* Kept blocks pin their pages, whatever the allocator does. */
    size_t live = keep_every == 0 ? 0 : std::max(live_bytes, live_bytes / block_bytes * 4096);
    size_t goal = before + live + live / 10 + 4 * kMiB, rss = rss_at_goal(heap_rss_bytes, goal);
    EXPECT_LE(rss, goal) << firsts.count << " slabs, live " << live / kKiB << " KiB, before " << before / kKiB
                         << " KiB\n"
                         << heap_stats_text();
    end.set();
    sleeper.join();
    for (size_t i = 0; keep_every != 0 && i < blocks.count; i++)
        if (i % keep_every == 0)
            S.free(blocks.at[i]);
}

TEST(Sleeper, OneKibibyteBlocks) { run_sleeper(1024, 0); }
TEST(Sleeper, SmallBlocks) { run_sleeper(64, 0); }
TEST(Sleeper, SomeStayLive) { run_sleeper(512, 1000); }

/* A thread that frees everything it had, in all sizes, and sleeps, as main does: nobody calls malloc any more. */
TEST(Sleeper, KeepsNoCaches) {
    Flag warm, begin, done, end;
    std::thread sleeper([&] {
        Pointers blocks(1 << 20);
        S.free(S.alloc(100));
        warm.set();
        begin.wait();
        for (size_t bytes = 0, i = 0; bytes < 64 * kMiB; i++) {
            size_t size = size_t{16} << i * 7 % 17;
            auto *block = static_cast<char *>(S.alloc(size));
            memset(block, 1, size);
            blocks.at[blocks.count++] = block;
            bytes += size;
        }
        for (size_t i = 0; i < blocks.count; i++)
            S.free(blocks.at[i]);
        done.set();
        end.wait();
    });
    warm.wait();
    size_t before = process_rss_bytes();
    begin.set();
    done.wait();
    size_t goal = before + 3 * kMiB, rss = rss_at_goal(process_rss_bytes, goal);
    EXPECT_LE(rss, goal) << "before " << before / kKiB << " KiB\n" << heap_stats_text();
    end.set();
    sleeper.join();
}

/* A thread frees most blocks of many slabs in bulk, so that it has them on loan, and sleeps. Allocations of others must
 * come from these slabs, at once and without anybody's help, and what others free of the rest must go back. */
TEST(Sleeper, LeavesToOthersWhatItHasOnLoan) {
    constexpr size_t kSize = 200, kCount = 300000, kKeepEvery = 16;
    Flag born, full, swept, end;
    Pointers blocks(kCount);
    size_t before = heap_rss_bytes();
    long lent = counter("slabs_lent");
    std::thread sleeper([&] {
        S.free(S.alloc(kSize));
        born.set();
        full.wait();
        for (size_t step = 0; step < 997; step++) /* consecutive frees are far apart */
            for (size_t i = step; i < kCount; i += 997)
                if (i % kKeepEvery != 0)
                    S.free(blocks.at[i]);
        swept.set();
        end.wait();
    });
    born.wait(); /* without this there is no purger yet, since it is started from malloc */
    for (size_t i = 0; i < kCount; i++)
        memset(blocks.at[i] = static_cast<char *>(S.alloc(kSize)), 1, kSize);
    full.set();
    swept.wait();
    lent = counter("slabs_lent") - lent;
    EXPECT_GT(lent, static_cast<long>(kCount * kSize / kSlotBytes / 2));
    long started = counter("slabs_started");
    for (size_t i = 0; i < kCount / 2; i++)
        if (i % kKeepEvery != 0)
            memset(blocks.at[i] = static_cast<char *>(S.alloc(kSize)), 1, kSize);
    EXPECT_LE(counter("slabs_started") - started, 20) << "what was on loan is not used";
    for (size_t i = 0; i < kCount; i++)
        if (i < kCount / 2 || i % kKeepEvery == 0)
            S.free(blocks.at[i]);
    size_t goal = before + 4 * kMiB, rss = rss_at_goal(heap_rss_bytes, goal);
    EXPECT_LE(rss, goal) << heap_stats_text();
    end.set();
    sleeper.join();
}

/* A thread says that it rests: what others allocate next comes from its slabs, of whatever size, and its caches hold
 * nothing. */
TEST(Sleeper, LeavesAllToOthersWhenItSaysSo) {
    if (in_secure_mode())
        GTEST_SKIP() << "no thread has slabs of its own";
    constexpr size_t kRarely[] = {24, 56, 72, 88, 104, 136, 168, 200, 248, 312, 376, 440, 504, 632, 760, 888};
    constexpr size_t kSizes = std::size(kRarely), kBlocks = 3;
    Flag rested, end;
    Pointers blocks(kSizes * kBlocks);
    std::thread sleeper([&] {
        for (size_t i = 0; i < kSizes * kBlocks; i++)
            blocks.at[i] = static_cast<char *>(S.alloc(kRarely[i / kBlocks]));
        for (size_t i = 0; i < kSizes * kBlocks; i++)
            if (i % kBlocks != 0)
                S.free(blocks.at[i]);
        hak_thread_rests();
        rested.set();
        end.wait();
    });
    rested.wait();
    counter("slabs_started");
    long started = counter("slabs_started");
    std::thread([&] {
        for (size_t i = 0; i < kSizes; i++) {
            S.free(S.alloc(kRarely[i]));
            S.free(blocks.at[i * kBlocks]);
        }
    }).join();
    EXPECT_LE(counter("slabs_started") - started, static_cast<long>(kSizes / 2));
    end.set();
    sleeper.join();
}

/* A thread that freed what it had allocated, and so keeps full slabs for further frees, fills them for another thread
 * to free. */
TEST(Sleeper, TrimCollectsWhatOthersFreed) {
    constexpr size_t kSize = 1024, kCount = 3000;
    Flag full, freed;
    Pointers blocks(kCount);
    size_t before = heap_rss_bytes(), after = 0;
    std::thread thread([&] {
        for (int round = 0; round < 20; round++) {
            for (size_t i = 0; i < kCount; i++)
                blocks.at[i] = static_cast<char *>(S.alloc(kSize));
            for (size_t i = 0; i < kCount; i++)
                S.free(blocks.at[i * 7 % kCount]);
        }
        for (size_t i = 0; i < kCount; i++)
            memset(blocks.at[i] = static_cast<char *>(S.alloc(kSize)), 1, kSize);
        full.set();
        freed.wait();
        hak_trim();
        after = heap_rss_bytes();
    });
    full.wait();
    for (size_t i = 0; i < kCount; i++)
        S.free(blocks.at[i]);
    hak_trim();
    freed.set();
    thread.join();
    EXPECT_LE(after, before + kMiB / 2) << heap_stats_text();
}

/* A quarter of the blocks is freed, neighbours in address order, so that each slab is well filled and has whole free
 * pages; then no thread calls the allocator. Nine in ten of the pages go back, but for those of slabs that the thread
 * still owns. */
void free_a_quarter(size_t size) {
    constexpr size_t kBytes = 32 * kMiB, kPiece = 16 * kKiB, kOwned = 64;
    Pointers blocks(kBytes / size);
    for (; blocks.count < kBytes / size; blocks.count++)
        memset(blocks.at[blocks.count] = static_cast<char *>(S.alloc(size)), 1, size);
    long before = counter("trimmed_pages"), page = sysconf(_SC_PAGESIZE), pages = 0;
    std::sort(blocks.at, blocks.at + blocks.count);
    for (size_t i = 0; i < blocks.count; i++)
        if (reinterpret_cast<uintptr_t>(blocks.at[i]) / kPiece % 4 == 1) {
            S.free(blocks.at[i]);
            blocks.at[i] = nullptr;
        }
    long wanted = static_cast<long>(kBytes / 4 / kPiece - kOwned) * (static_cast<long>(kPiece) / page - 2) * 9 / 10;
    for (int i = 0; i < 6000 && pages < wanted; i++, pages = counter("trimmed_pages") - before)
        usleep(10000);
    EXPECT_GE(pages, wanted) << size << " bytes\n" << heap_stats_text();
    for (size_t i = 0; i < blocks.count; i++) {
        for (size_t j = 0; blocks.at[i] != nullptr && j < size; j++)
            ASSERT_EQ(blocks.at[i][j], 1);
        S.free(blocks.at[i]);
    }
}

TEST(Sleeper, WholeFreePagesGoBackHoweverFullTheSlabs) {
    if (in_secure_mode() || sysconf(_SC_PAGESIZE) > 4096)
        GTEST_SKIP() << "secure mode keeps what was freed for a while";
    S.free(S.alloc(
        100)); /* this thread has a heap, and sleeps in join; the other's has not earned more slabs than it may own */
    for (size_t size : {64, 1024, 2048, 5000})
        std::thread(free_a_quarter, size).join();
}

} // namespace
