/* Many threads: 10,000 alive at once, and 100,000 births and deaths with destructors that allocate. If it fails,
 * programs with many threads run out of memory, or crash when a thread ends. support.h says how to run more deaths. */
/* SPDX-License-Identifier: MIT */
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "../heap_stats.h"
#include "../support.h"
#include "../surface.h"

namespace {

const Surface &S = subject();

const int kAlive = 10000 / kShorter / from_environment("HAK_TEST_SHORTER");

struct Crowd {
    pthread_barrier_t all_alive, may_end;
};

void *allocate_and_wait(void *argument) {
    auto *crowd = static_cast<Crowd *>(argument);
    void *blocks[3];
    size_t sizes[] = {48, 600, 10000};
    for (int i = 0; i < 3; i++) {
        blocks[i] = S.alloc(sizes[i]);
        if (blocks[i] == nullptr)
            abort();
        memset(blocks[i], 1, sizes[i]);
    }
    S.free(blocks[1]);
    pthread_barrier_wait(&crowd->all_alive);
    S.free(blocks[0]);
    pthread_barrier_wait(&crowd->may_end);
    S.free(blocks[2]);
    return nullptr;
}

TEST(Threads, TenThousandAliveAtOnce) {
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, kShorter > 1 ? 256 * kKiB : 32 * kKiB);
    size_t rss_before = process_rss_bytes();
    for (int round = 0; round < 2; round++) {
        Crowd crowd;
        pthread_barrier_init(&crowd.all_alive, nullptr, kAlive + 1);
        pthread_barrier_init(&crowd.may_end, nullptr, kAlive + 1);
        std::vector<pthread_t> threads(kAlive);
        for (int i = 0; i < kAlive; i++)
            ASSERT_EQ(pthread_create(&threads[static_cast<size_t>(i)], &small, allocate_and_wait, &crowd), 0)
                << "thread " << i;
        pthread_barrier_wait(&crowd.all_alive);
        Json stats = heap_stats();
        EXPECT_GE(stats["heaps"].number, kAlive);
        /* Every thread holds 10,000 live bytes and three slabs that it shares with no other thread. Secure mode's table
         * has a part for each SuperSlab that was ever used. */
        double each = stats["rss_bytes"]["total"].number / kAlive;
        EXPECT_LT(each, (in_secure_mode() ? 64.0 : 40.0) * kKiB) << "of the heap, for each thread";
        size_t rss_each = (process_rss_bytes() - rss_before) / kAlive; /* with its stack and libc's part */
        if (kShorter == 1)                                             /* a sanitizer uses memory of its own */
            EXPECT_LT(rss_each, 80 * kKiB) << "of the process, for each thread";
        if (round == 0) {
            figure("threads_alive_most", kAlive);
            figure("threads_alive_heap_bytes_each_most", static_cast<long>(each));
            figure("threads_alive_rss_bytes_each_most", static_cast<long>(rss_each));
        }
        pthread_barrier_wait(&crowd.may_end);
        for (auto &thread : threads)
            pthread_join(thread, nullptr);
    }
    pthread_attr_destroy(&small);
    hak_trim();
    size_t left = heap_rss_bytes();
    printf("heap after their end: %zu KiB\n", left / kKiB);
    /* A page of each heap, and another one where the purger was looking at the heap as its thread ended: on a busy
     * machine at most of them. */
    EXPECT_LT(left, 6 * kMiB + static_cast<size_t>(kAlive) * (in_secure_mode() ? 32 : 9) * kKiB) << heap_stats_text();
}

/* A thread that has a few tiny blocks: two pages of its heap and a page of each class. */
TEST(Threads, LittleThreadsCostLittle) {
    if (in_secure_mode())
        GTEST_SKIP() << "its heaps are larger";
    if (getenv("HAKMEM_HUGE_PAGES") == nullptr) { /* where these are cheap they come with memory that nobody touches */
        Outcome outcome = run_self({"--gtest_filter=Threads.LittleThreadsCostLittle"}, {"HAKMEM_HUGE_PAGES=never"});
        EXPECT_TRUE(outcome.exited(0)) << outcome.describe();
        return;
    }
    constexpr int kThreads = 500;
    Crowd crowd;
    pthread_barrier_init(&crowd.all_alive, nullptr, kThreads + 1);
    pthread_barrier_init(&crowd.may_end, nullptr, kThreads + 1);
    size_t before = heap_rss_bytes();
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; i++)
        threads.emplace_back([&crowd] {
            void *block = S.alloc(48);
            memset(block, 1, 48);
            pthread_barrier_wait(&crowd.all_alive);
            pthread_barrier_wait(&crowd.may_end);
            S.free(block);
        });
    pthread_barrier_wait(&crowd.all_alive);
    EXPECT_LT((heap_rss_bytes() - before) / kThreads, 14 * kKiB);
    pthread_barrier_wait(&crowd.may_end);
    for (auto &thread : threads)
        thread.join();
}

/* ---- destructors that allocate ---- */

pthread_key_t keys[3];
std::atomic<long> destructor_runs, thread_local_runs;

/* Runs up to four times for each thread and key: each run allocates, frees, and sets the key again. */
void key_destructor(void *value) {
    destructor_runs++;
    auto *block = static_cast<char *>(value);
    size_t left = static_cast<size_t>(block[0]);
    S.free(block);
    if (left == 0)
        return;
    auto *next = static_cast<char *>(S.alloc(100 * left));
    next[0] = static_cast<char>(left - 1);
    pthread_setspecific(keys[left % 3], next);
    S.free(S.alloc(30000));
}

struct Local {
    std::vector<void *> blocks;
    void use() {
        for (size_t size : {size_t{16}, size_t{300}, size_t{3000}, size_t{70000}})
            blocks.push_back(S.alloc(size));
    }
    ~Local() {
        thread_local_runs++;
        for (void *block : blocks)
            S.free(block);
        for (int i = 0; i < 50; i++)
            S.free(S.calloc(1, 48));
    }
};
thread_local Local local;

void live_and_die(int number) {
    auto *value = static_cast<char *>(S.alloc(64));
    value[0] = 3;
    pthread_setspecific(keys[static_cast<size_t>(number) % 3], value);
    local.use();
    for (int i = 0; i < 20; i++)
        S.free(S.alloc(static_cast<size_t>(i) * 40));
}

size_t trimmed_heap() {
    hak_trim();
    return heap_rss_bytes();
}

TEST(Threads, DeathsWithAllocatingDestructors) {
    for (auto &key : keys)
        ASSERT_EQ(pthread_key_create(&key, key_destructor), 0);
    size_t early_heap = 0, early_rss = 0;
    int alive = 4, rounds = times(8000, 100000) / alive;
    for (int round = 0; round < rounds; round++) {
        std::thread threads[4];
        for (int i = 0; i < alive; i++)
            threads[i] = std::thread(live_and_die, round + i);
        for (auto &thread : threads)
            thread.join();
        if (round == rounds / 10) {
            early_heap = trimmed_heap();
            early_rss = process_rss_bytes();
        }
    }
    long heap_growth = static_cast<long>(trimmed_heap() - early_heap);
    long rss_growth = static_cast<long>(process_rss_bytes() - early_rss);
    EXPECT_LT(heap_growth, static_cast<long>(kMiB)) << "the heap grows as threads come and go: " << heap_stats_text();
    if (kShorter > 1 ||
        from_environment("HAK_TEST_SHORTER") > 1) /* they keep freed stacks and a record of each thread */
        printf("skipped: how the process grows, as a sanitizer or an emulator does, too\n");
    else
        EXPECT_LT(rss_growth, static_cast<long>(kMiB))
            << "the process grows as threads come and go: " << heap_stats_text();
    EXPECT_EQ(thread_local_runs, rounds * alive);
    EXPECT_GE(destructor_runs, rounds * alive * 2L);
    figure("thread_deaths", rounds * alive);
    figure("thread_deaths_heap_growth_bytes_most", heap_growth);
    figure("thread_deaths_rss_growth_bytes_most", rss_growth);
    for (auto &key : keys)
        pthread_key_delete(key);
}

/* Whether some thread of the process waits on a futex without a timeout, as a parked purger does. (The kernel's line
 * has the number of the system call, then its arguments, of which the fourth is the time.) */
bool one_is_parked() {
    alignas(dirent64) char entries[4096]; /* opendir would allocate */
    int folder = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    long bytes = syscall(SYS_getdents64, folder, entries, sizeof entries);
    close(folder);
    for (long at = 0; at < bytes; at += reinterpret_cast<dirent64 *>(entries + at)->d_reclen) {
        char path[300], line[256] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/syscall", reinterpret_cast<dirent64 *>(entries + at)->d_name);
        int file = open(path, O_RDONLY | O_CLOEXEC);
        if (file < 0)
            continue;
        long number = -1;
        unsigned long word, operation, value, time = 1;
        bool is_read = read(file, line, sizeof line - 1) > 0;
        close(file);
        if (is_read && sscanf(line, "%ld %lx %lx %lx %lx", &number, &word, &operation, &value, &time) == 5 &&
            number == SYS_futex && time == 0)
            return true;
    }
    return false;
}

std::atomic<bool> parked_beside_these{false};

/* Waits until our purger exists and is parked. It may have ended a moment ago, before these threads began: then 32 MiB
 * that come and go start it again at once; less would not, and if one of them has made its own by then, nobody does. So
 * every few seconds they do so anew. */
void work_after_main() {
    for (int waits = 0; !parked_beside_these; waits++) {
        std::vector<void *> blocks;
        for (int i = 0; waits % 400 == 0 && i < 24000; i++)
            blocks.push_back(S.alloc(2000));
        for (void *block : blocks)
            S.free(block);
        /* Main, which the kernel still counts, these two threads, and the purger. */
        if (process_threads() >= 4 && one_is_parked())
            parked_beside_these = true;
        usleep(10000);
    }
}

void end_main_first() {
    alarm(kChildSeconds);
    std::thread(work_after_main).detach();
    std::thread(work_after_main).detach();
    pthread_exit(nullptr);
}

/* Main ends first, by pthread_exit; the process ends with its last thread. The purger must not outlive the program's
 * threads, or the program hangs forever. */
TEST(Threads, MainEndsFirst) {
    if (kShorter > 1)
        GTEST_SKIP() << "a sanitizer has a thread of its own that does not end";
    Outcome outcome = run_self({"--main-ends-first"}, {"HAKMEM_DECAY_MS=100"}); /* soon all that is free has left */
    EXPECT_TRUE(outcome.exited(0)) << outcome.describe();
}

/* The value of a key outlives its thread's heap, and another thread frees it. */
TEST(Threads, BlocksOutliveTheirThreads) {
    std::vector<std::pair<char *, size_t>> blocks;
    for (int round = 0; round < 200 / kShorter; round++) {
        std::thread([&] {
            for (size_t size : kTierSizes) {
                auto *block = static_cast<char *>(S.alloc(size));
                pattern_write(block, 0, size, 9);
                blocks.emplace_back(block, size);
            }
        }).join();
        if (round % 10 != 9)
            continue;
        for (auto &[block, size] : blocks) {
            ASSERT_EQ(pattern_check(block, size, size, 9), size);
            S.free(block);
        }
        blocks.clear();
    }
    for (auto &[block, size] : blocks)
        S.free(block);
}

/* A thread puts blocks into the inboxes of slabs whose owner has ended, and then looks when those are worth using.
 * Nothing orders that look before what the slab's slot is used for next; ThreadSanitizer says so unless both are
 * atomic. */
TEST(Threads, ASlabMayEndBehindALateLook) {
    const size_t kBlocks = 128 * 16, kOthers = 1024,
                 kSent = 3; /* of one slab: what it sends later orders what it did before */
    for (int round = 0; round < 5; round++) {
        std::vector<void *> blocks(kBlocks), others(kOthers);
        std::atomic<int> step{0};
        std::atomic<bool> sent{false}, over{false}; /* relaxed: they order nothing */
        auto wait_for = [&](int reached) {
            while (step.load() < reached)
                std::this_thread::yield();
        };
        std::thread owner([&] {
            for (auto &block : blocks)
                block = S.alloc(512);
            step++;
            wait_for(3);
        });
        std::thread idle([&] {
            for (auto &block : others)
                block = S.alloc(64);
            step++;
            while (!over.load(std::memory_order_relaxed))
                std::this_thread::yield();
        });
        wait_for(2);
        std::thread sender([&] {
            for (size_t i = 0; i < kSent; i++)
                S.free(blocks[i]);
            step++;
            wait_for(4);
            for (void *block : others) /* until the outbox is drained */
                S.free(block);
            sent.store(true, std::memory_order_relaxed);
            while (!over.load(std::memory_order_relaxed))
                std::this_thread::yield();
        });
        owner.join();
        step++;
        while (!sent.load(std::memory_order_relaxed))
            std::this_thread::yield();
        for (size_t i = kSent; i < kBlocks; i++)
            S.free(blocks[i]);
        std::vector<void *> next;
        for (size_t size : {3000, 30000, 100000, 3000000})
            for (size_t i = 0; i < 4000000 / size; i++)
                next.push_back(S.alloc(size));
        for (void *block : next)
            S.free(block);
        over.store(true, std::memory_order_relaxed);
        sender.join();
        idle.join();
    }
}

/* The purger looks at every heap, also at those that no thread has: where it stored into each, a fork would cost a page
 * for each. */
TEST(Threads, TheirHeapsAreNotCopiedAfterAFork) {
    if (kShorter != 1)
        GTEST_SKIP() << "a sanitizer's pages would be counted, too";
    const int threads = 1000;
    void *in_use = memset(S.alloc(8 * kMiB), 1, 8 * kMiB); /* so much that there is a purger */
    pthread_barrier_t all_alive;
    pthread_barrier_init(&all_alive, nullptr, threads);
    std::vector<std::thread> crowd;
    for (int i = 0; i < threads; i++)
        crowd.emplace_back([&] {
            S.free(hidden(S.alloc(40)));
            pthread_barrier_wait(&all_alive);
        });
    for (auto &thread : crowd)
        thread.join();
    pthread_barrier_destroy(&all_alive);
    usleep(500 * 1000); /* what they left has been emptied */
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    waitpid(child, nullptr, 0);
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    for (int i = 0; i < 15; i++) { /* looks at each second, and before it parks */
        std::thread([] { S.free(hidden(S.alloc(40))); }).join();
        usleep(100 * 1000);
    }
    getrusage(RUSAGE_SELF, &after);
    EXPECT_EQ(process_threads(), 2) << "there is no purger";
    EXPECT_LT(after.ru_minflt - before.ru_minflt, threads / 2);
    S.free(in_use);
}

/* A server with a thread for each request: a thread uses the pages of the one before, and does not fault them in
 * anew. */
TEST(Threads, OneAfterAnotherUseTheSamePages) {
    if (kShorter != 1 || in_secure_mode())
        GTEST_SKIP() << "a sanitizer's and secure mode's threads give back what they used";
    void *blocks[20] = {};
    auto run = [&](int threads) {
        struct rusage before, after;
        getrusage(RUSAGE_SELF, &before);
        for (int i = 0; i < threads; i++)
            std::thread([&] {
                for (size_t n = 0; n < std::size(blocks); n++) {
                    S.free(blocks[n]); /* another thread's */
                    blocks[n] = memset(S.alloc(40 + 100 * n), 1, 40 + 100 * n);
                }
            }).join();
        getrusage(RUSAGE_SELF, &after);
        return after.ru_minflt - before.ru_minflt;
    };
    run(20);
    EXPECT_LT(run(300), 300);
    for (void *block : blocks)
        S.free(block);
}

} // namespace

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "--main-ends-first") == 0)
        end_main_first();
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
