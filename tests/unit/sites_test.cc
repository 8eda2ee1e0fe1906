/* Sites and policies: if one of these fails, blocks of which the program says that they live long pin the pages of
 * others. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>
#include <hakmem.h>
#include <hakmem.hpp>

#include <atomic>
#include <set>
#include <thread>

#include "../heap_stats.h"
#include "../support.h"

namespace {

constexpr uintptr_t kSlab = 64 * kKiB;
const size_t kSizes[] = {0, 1, 48, 100, 1024, 1025, 3000, 30000, 65536};

uintptr_t slab_of(const void *block) { return reinterpret_cast<uintptr_t>(block) / kSlab; }

hak_site_stats stats_of(unsigned site) {
    hak_site_stats stats = {};
    EXPECT_EQ(hak_site_get_stats(site, &stats), 0);
    return stats;
}

TEST(Sites, OfLongLivedBlocksHaveSlabsOfTheirOwn) {
    if (in_secure_mode())
        GTEST_SKIP() << "there are no lanes in secure mode";
    unsigned sites[] = {hak_site_new("slabs: short", HAK_POLICY_SHORT_LIVED),
                        hak_site_new("slabs: long", HAK_POLICY_LONG_LIVED), hak_site_new("slabs: hot", HAK_POLICY_HOT),
                        hak_site_new("slabs: cold", HAK_POLICY_COLD)};
    std::vector<void *> blocks;
    std::map<uintptr_t, unsigned> site_of_slab;
    for (size_t round = 0; round < 50; round++)
        for (size_t size : kSizes)
            for (unsigned site : sites) {
                void *block = hak_alloc_site(size, site, HAK_POLICY_DEFAULT);
                ASSERT_NE(block, nullptr);
                memset(block, 1, size);
                blocks.push_back(block);
                unsigned owner = site_of_slab.emplace(slab_of(block), site).first->second;
                ASSERT_EQ(owner, site) << "a slab has blocks of " << stats_of(owner).name << " and "
                                       << stats_of(site).name;
            }
    std::thread([&blocks] {
        for (size_t i = 0; i < blocks.size(); i += 2)
            hak_free(blocks[i]);
    }).join();
    for (size_t i = 1; i < blocks.size(); i += 2)
        hak_free(blocks[i]);
}

/* What others had purged is of no use to a lane. Else the heap would keep more and more EMPTY slots for it. */
TEST(Sites, ALaneThatGrowsRegretsNoPurge) {
    if (in_secure_mode())
        GTEST_SKIP() << "there are no lanes in secure mode";
    unsigned site = hak_site_new("growing", HAK_POLICY_LONG_LIVED);
    std::vector<void *> burst(1'500), kept(4'000);
    for (void *&block : burst)
        block = memset(hak_malloc(30'000), 1, 30'000);
    for (void *block : burst)
        hak_free(block);
    Json before = heap_stats();
    for (void *&block : kept)
        block = memset(hak_alloc_site(2'000, site, HAK_POLICY_DEFAULT), 1, 2'000);
    Json after = heap_stats();
    EXPECT_GT(before["counters"]["purged_slots"].number, 500) << "nothing was purged just now";
    EXPECT_EQ(after["counters"]["purge_regrets"].number, before["counters"]["purge_regrets"].number);
    for (void *block : kept)
        hak_free(block);
}

TEST(Sites, LeaveNoPagesBehindWhenABurstEnds) {
    if (in_secure_mode())
        GTEST_SKIP() << "there are no lanes in secure mode";
    unsigned site = hak_site_new("burst: long", HAK_POLICY_LONG_LIVED);
    size_t left[2];
    for (int with : {0, 1}) {
        hak_trim();
        size_t before = process_rss_bytes();
        std::vector<void *> burst, kept;
        for (size_t i = 0; i < 60000; i++) {
            bool keep = i % 50 == 0;
            void *block = keep && with != 0 ? hak_alloc_site(200, site, HAK_POLICY_DEFAULT) : hak_malloc(200);
            memset(block, 1, 200);
            (keep ? kept : burst).push_back(block);
        }
        for (void *block : burst)
            hak_free(block);
        hak_trim();
        left[with] = process_rss_bytes() - before;
        for (void *block : kept)
            hak_free(block);
    }
    EXPECT_LT(left[1] + 2 * kMiB, left[0]) << "12 MiB in all, of which 240 KB stay";
}

TEST(Sites, AreCountedOverAllThreads) {
    unsigned site = hak_site_new("counted", HAK_POLICY_DEFAULT);
    for (unsigned threads = 0; threads < 3; threads++)
        std::thread([site] {
            for (int i = 0; i < 100; i++)
                hak_free(hak_alloc_site(100, site, i % 2 != 0 ? HAK_POLICY_LONG_LIVED : HAK_POLICY_DEFAULT));
        }).join();
    hak_site_stats stats = stats_of(site);
    EXPECT_STREQ(stats.name, "counted");
    EXPECT_EQ(stats.policy, HAK_POLICY_DEFAULT);
    EXPECT_EQ(stats.blocks, 300u);
    EXPECT_EQ(stats.bytes, 30000u);
}

/* Lanes, sites and counts are made by whoever is first, and a block may be freed by any thread. */
TEST(Sites, AreMadeAndUsedByManyThreadsAtOnce) {
    constexpr int kThreads = 6;
    const int rounds = times(20000);
    std::atomic<void *> places[64] = {};
    static int calls;
    const std::string name = "at once " + std::to_string(calls++);
    unsigned sites[kThreads];
    std::atomic<int> ready{0};
    std::vector<std::thread> threads;
    for (int number = 0; number < kThreads; number++)
        threads.emplace_back([&, number] {
            for (ready++; ready != kThreads;)
                ;
            unsigned site = sites[number] = hak_site_new(name.c_str(), HAK_POLICY_COLD);
            for (int i = 0; i < rounds; i++) {
                size_t size = kSizes[static_cast<size_t>(i) % std::size(kSizes)];
                auto *block = static_cast<char *>(hak_alloc_site(size, site, i % 6));
                if (size != 0)
                    block[0] = block[size - 1] = 1;
                hak_free(places[i * 7 % 64].exchange(block));
            }
        });
    for (auto &thread : threads)
        thread.join();
    for (auto &place : places)
        hak_free(place);
    size_t blocks = 0;
    for (unsigned site : std::set<unsigned>(sites, sites + kThreads))
        blocks += stats_of(site).blocks;
    EXPECT_EQ(blocks, static_cast<size_t>(rounds) * kThreads);
}

TEST(Sites, AreMadeOnceForAName) {
    unsigned site = hak_site_new("once", HAK_POLICY_COLD);
    EXPECT_NE(site, 0u);
    EXPECT_EQ(hak_site_new("once", HAK_POLICY_HOT), site);
    EXPECT_EQ(stats_of(site).policy, HAK_POLICY_COLD);
    EXPECT_EQ(hak_site_new(stats_of(1).name, HAK_POLICY_COLD), 1u) << "the first one of all";
    std::string longer(100, 'x');
    EXPECT_EQ(hak_site_new(longer.c_str(), 0), hak_site_new(longer.c_str(), 0));
    EXPECT_EQ(strlen(stats_of(hak_site_new(longer.c_str(), 0)).name), 47u);
}

TEST(Sites, RefuseBadInput) {
    hak_site_stats stats;
    EXPECT_EQ(hak_site_new(nullptr, HAK_POLICY_DEFAULT), 0u);
    EXPECT_EQ(errno, EINVAL);
    errno = 0;
    EXPECT_EQ(hak_site_new("bad", HAK_POLICY_DENSE + 1), 0u);
    EXPECT_EQ(errno, EINVAL);
    for (unsigned site : {1023u, 1024u, 1u << 31}) {
        errno = 0;
        EXPECT_EQ(hak_alloc_site(100, site, HAK_POLICY_DEFAULT), nullptr);
        EXPECT_EQ(errno, EINVAL);
        EXPECT_EQ(hak_site_get_stats(site, &stats), EINVAL);
    }
    errno = 0;
    EXPECT_EQ(hak_alloc_site(100, 0, -1), nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(hak_site_get_stats(0, &stats), EINVAL);
    volatile size_t too_many = SIZE_MAX;
    EXPECT_EQ(hak_alloc_site(too_many, 0, HAK_POLICY_LONG_LIVED), nullptr);
    EXPECT_EQ(errno, ENOMEM);
}

TEST(Sites, BlocksAreAsAllOthers) {
    for (int policy = HAK_POLICY_DEFAULT; policy <= HAK_POLICY_DENSE; policy++)
        for (size_t size : {40, 5000, 200000}) {
            auto *block = static_cast<char *>(hak_alloc_site(size, 0, policy));
            ASSERT_NE(block, nullptr);
            memset(block, 7, size);
            EXPECT_GE(hak_usable_size(block), size);
            EXPECT_EQ(hak_arena_of(block), nullptr) << "a lane is no arena of the program";
            block = static_cast<char *>(hak_realloc(block, size * 3));
            ASSERT_NE(block, nullptr);
            EXPECT_EQ(block[size - 1], 7);
            hak_free_sized(block, size * 3);
        }
}

TEST(Sites, AreInTheHeapProfile) {
    if (in_secure_mode())
        GTEST_SKIP() << "there are no heap profiles in secure mode";
    ASSERT_EQ(hak_profile_start(1024), 0);
    hak_free(hak_malloc(100000));
    double before = heap_stats()["counters"]["samples_taken"].number;
    std::vector<void *> blocks;
    for (size_t i = 0; i < 1000; i++)
        blocks.push_back(hak_alloc_site(100, 0, HAK_POLICY_LONG_LIVED));
    double taken = heap_stats()["counters"]["samples_taken"].number - before;
    hak_profile_stop();
    for (void *block : blocks)
        hak_free(block);
    EXPECT_GT(taken, 30) << "one in 1,024 of 100,000 bytes";
}

TEST(Sites, ServeContainers) {
    hakmem::site words("words", HAK_POLICY_LONG_LIVED);
    std::set<int, std::less<>, hakmem::site_allocator<int>> numbers{hakmem::site_allocator<int>(words)};
    for (int i = 0; i < 1000; i++)
        numbers.insert(i);
    EXPECT_EQ(stats_of(words.number()).blocks, 1000u);
    hak_free(words.allocate(10));
    EXPECT_EQ(stats_of(words.number()).blocks, 1001u);
    EXPECT_THROW(hakmem::site("bad", -1), std::invalid_argument);
}

} // namespace
