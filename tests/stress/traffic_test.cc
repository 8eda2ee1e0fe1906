/* Blocks that one thread allocates and another frees: unequal numbers of producers and consumers, threads that only
 * free, threads that end while others hold their blocks, threads that sleep on what they own. The tests check contents,
 * and that memory stays in proportion to what is live. If one fails, a server's memory grows without bound. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "../heap_stats.h"
#include "../support.h"
#include "../surface.h"

namespace {

const Surface &S = subject();

struct Block {
    char *at;
    size_t size;
    uint32_t tag;
};

/* A bounded queue; take() returns false once it is closed and empty. */
class Queue {
  public:
    explicit Queue(size_t most) : most_(most) {}
    void put(std::vector<Block> batch) {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [&] { return batches_.size() < most_; });
        batches_.push_back(std::move(batch));
        changed_.notify_all();
    }
    bool take(std::vector<Block> *batch) {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [&] { return !batches_.empty() || closed_; });
        if (batches_.empty())
            return false;
        *batch = std::move(batches_.front());
        batches_.pop_front();
        changed_.notify_all();
        return true;
    }
    void close() {
        std::lock_guard<std::mutex> lock(mutex_);
        closed_ = true;
        changed_.notify_all();
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::vector<Block>> batches_;
    size_t most_;
    bool closed_ = false;
};

/* Threads wait here until it is opened. */
class Gate {
  public:
    void open() {
        std::lock_guard<std::mutex> lock(mutex_);
        open_ = true;
        changed_.notify_all();
    }
    void wait() {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [&] { return open_; });
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    bool open_ = false;
};

Block make(Random &random, unsigned most_log2) {
    size_t size = 1 + random.log_size(most_log2);
    Block block{static_cast<char *>(S.alloc(size)), size, static_cast<uint32_t>(random.next())};
    if (block.at == nullptr)
        abort();
    pattern_write(block.at, 0, size, block.tag);
    return block;
}

void check_and_free(const Block &block) {
    size_t bad = pattern_check(block.at, block.size, block.size, block.tag);
    if (bad != block.size) {
        fprintf(stderr, "traffic: byte %zu of %p (%zu bytes) is damaged\n", bad, block.at, block.size);
        abort();
    }
    S.free(block.at);
}

void produce(Queue &queue, uint64_t seed, int batches, unsigned most_log2) {
    Random random(seed);
    for (int i = 0; i < batches; i++) {
        std::vector<Block> batch;
        for (size_t n = 1 + random.below(200); n > 0; n--)
            batch.push_back(make(random, most_log2));
        queue.put(std::move(batch));
    }
}

void consume(Queue &queue) {
    std::vector<Block> batch;
    while (queue.take(&batch)) {
        for (auto &block : batch)
            check_and_free(block);
        batch.clear();
    }
}

void run_traffic(int producers, int consumers, int batches, unsigned most_log2) {
    Queue queue(64);
    std::vector<std::thread> producing, consuming;
    for (int i = 0; i < producers; i++)
        producing.emplace_back([&, i] { produce(queue, static_cast<uint64_t>(i) + 1, batches, most_log2); });
    for (int i = 0; i < consumers; i++)
        consuming.emplace_back([&] { consume(queue); });
    for (auto &thread : producing)
        thread.join();
    queue.close();
    for (auto &thread : consuming)
        thread.join();
}

TEST(Traffic, OneProducerThreeConsumers) { run_traffic(1, 3, times(8000), 11); }
TEST(Traffic, ThreeProducersOneConsumer) { run_traffic(3, 1, times(3000), 11); }
TEST(Traffic, AllTiers) { run_traffic(2, 2, times(400), 19); }

TEST(Traffic, LongTrafficDoesNotGrowTheHeap) {
    /* At most 65 batches of 200 blocks of 2 KiB wait at once, 26 MB; 40 times as much passes through. */
    run_traffic(2, 1, times(500), 11);
    size_t before = heap_rss_bytes();
    for (int round = 0; round < 5; round++)
        run_traffic(2, 1, times(1000), 11);
    EXPECT_LT(heap_rss_bytes(), before + 24 * kMiB) << heap_stats_text();
}

/* One thread only frees; it lives as long as the allocating one. */
TEST(Traffic, AThreadThatOnlyFreesHoardsNothing) {
    Queue queue(8);
    std::thread freer([&] { consume(queue); });
    Random random(3);
    size_t peak = 0, early = 0;
    for (int round = 0; round < 60; round++) {
        for (int i = 0; i < 60 / std::min(kShorter, 10); i++) {
            std::vector<Block> batch;
            for (int n = 0; n < 300; n++)
                batch.push_back(make(random, 10));
            queue.put(std::move(batch));
        }
        peak = std::max(peak, heap_rss_bytes());
        if (round == 5)
            early = peak;
    }
    queue.close();
    freer.join();
    EXPECT_LT(peak, early * 2 + 16 * kMiB) << "what the freeing thread holds grows with time";
}

/* Rounds of threads that allocate and end; other threads free their blocks afterwards, or while they end. */
TEST(Traffic, ThreadsEndWhileOthersFreeTheirBlocks) {
    size_t early = 0;
    for (int round = 0; round < 120 / std::min(kShorter, 6); round++) {
        Queue queue(1000);
        std::vector<std::thread> owners, freers;
        for (int i = 0; i < 3; i++) {
            owners.emplace_back(
                [&, i] { produce(queue, static_cast<uint64_t>(round) * 3 + static_cast<uint64_t>(i), 20, 12); });
            freers.emplace_back([&] { consume(queue); });
        }
        for (auto &thread : owners)
            thread.join();
        queue.close();
        for (auto &thread : freers)
            thread.join();
        if (round == 10)
            early = heap_rss_bytes();
    }
    if (early != 0)
        EXPECT_LT(heap_rss_bytes(), early + 16 * kMiB) << heap_stats_text();
}

/* Owners allocate, then sleep for the rest of the test; the main thread frees all their blocks. The owners' current
 * slabs stay: 5 to 9 MiB. */
TEST(Traffic, SleepingOwnersDoNotKeepWhatOthersFreed) {
    Gate end;
    Queue queue(100000);
    size_t most = heap_rss_bytes() + 10 * kMiB;
    std::vector<std::thread> owners;
    std::mutex mutex;
    std::condition_variable changed;
    int asleep = 0;
    for (int i = 0; i < 4; i++)
        owners.emplace_back([&, i] {
            produce(queue, static_cast<uint64_t>(i) + 50, 600, 10);
            {
                std::lock_guard<std::mutex> lock(mutex);
                asleep++;
                changed.notify_all();
            }
            end.wait();
        });
    {
        std::unique_lock<std::mutex> lock(mutex);
        changed.wait(lock, [&] { return asleep == 4; });
    }
    queue.close();
    consume(queue);
    hak_trim();
    /* The purger gives back what lies in the owners' rings, when it gets to run. */
    for (int i = 0; i < 6000 && heap_rss_bytes() >= most; i++)
        usleep(10000);
    EXPECT_LT(heap_rss_bytes(), most) << heap_stats_text();
    end.open();
    for (auto &thread : owners)
        thread.join();
}

/* Threads take, grow and free runs of SuperSlabs at the end of the heap, where new ones are handed out. No two may get
 * the same one. */
TEST(Traffic, HugeBlocksOfSeveralThreads) {
    constexpr size_t kStep = 512 * kKiB;
    std::vector<std::thread> threads;
    for (uint64_t number = 1; number <= 4; number++)
        threads.emplace_back([number] {
            Random random(number);
            auto fill = [&](char *block, size_t size, uint64_t tag) {
                for (size_t at = 0; at < size; at += kStep)
                    memcpy(block + at, &tag, sizeof tag);
            };
            auto check = [&](const char *block, size_t size, uint64_t tag) {
                for (size_t at = 0; at < size; at += kStep)
                    if (memcmp(block + at, &tag, sizeof tag) != 0)
                        abort(); /* two threads hold the same memory */
            };
            for (uint64_t round = 0; round < static_cast<uint64_t>(times(1500)); round++) {
                size_t size = (2 + random.below(12)) * kMiB, grown = size + (1 + random.below(12)) * kMiB;
                uint64_t tag = number << 32 | round;
                auto *block = static_cast<char *>(S.alloc(size));
                fill(block, size, tag);
                std::this_thread::yield();
                check(block, size, tag);
                block = static_cast<char *>(S.realloc(block, grown));
                check(block, size, tag);
                fill(block, grown, ~tag);
                auto *aligned = static_cast<char *>(S.aligned_alloc(8 * kMiB, size));
                fill(aligned, size, tag);
                std::this_thread::yield();
                check(block, grown, ~tag);
                check(aligned, size, tag);
                S.free(block);
                S.free(aligned);
            }
        });
    for (auto &thread : threads)
        thread.join();
}

/* Every thread frees what the one before it allocated, in a ring, while all allocate: slabs keep changing owners. */
TEST(Traffic, RingOfThreads) {
    constexpr int kThreads = 4;
    std::vector<std::unique_ptr<Queue>> queues;
    for (int i = 0; i < kThreads; i++)
        queues.push_back(std::make_unique<Queue>(1000000));
    std::vector<std::thread> threads;
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, nullptr, kThreads);
    for (int i = 0; i < kThreads; i++)
        threads.emplace_back([&, i] {
            for (int round = 0; round < 200 / std::min(kShorter, 10); round++) {
                produce(*queues[static_cast<size_t>(i)], static_cast<uint64_t>(round * kThreads + i), 5,
                        round % 10 == 0 ? 17 : 9);
                pthread_barrier_wait(&barrier);
                std::vector<Block> batch;
                for (int n = 0; n < 5 && queues[static_cast<size_t>((i + 1) % kThreads)]->take(&batch); n++)
                    for (auto &block : batch)
                        check_and_free(block);
                pthread_barrier_wait(&barrier);
            }
        });
    for (auto &thread : threads)
        thread.join();
    pthread_barrier_destroy(&barrier);
}

} // namespace
