/* Meshing (HAKMEM_MESH): slabs share pages. If it fails, a program that switched it on loses writes, or reads another
 * block's bytes, or does not get the memory that it was promised. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>
#include <hakmem.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "../heap_stats.h"
#include "../support.h"

namespace {

/* Blocks of one size, one in `share` of those that were made. Each begins with a number of its own and ends with it. */
class Sparse {
  public:
    Sparse(size_t size, size_t made, size_t share, uint64_t seed = 1) : size_(size) {
        Random random(seed);
        std::vector<uint32_t *> all(made);
        for (auto &block : all)
            block = static_cast<uint32_t *>(hak_malloc(size));
        for (auto *block : all)
            if (random.below(share) == 0)
                blocks_.push_back(block);
            else
                hak_free(block);
        for (size_t i = 0; i < blocks_.size(); i++)
            write(i, static_cast<uint32_t>(i));
    }
    ~Sparse() { free_from(0); }
    void write(size_t i, uint32_t number) {
        for (size_t word = 0; word < size_ / sizeof number; word++)
            blocks_[i][word] = number + static_cast<uint32_t>(word);
    }
    bool has(size_t i, uint32_t number) const {
        for (size_t word = 0; word < size_ / sizeof number; word++)
            if (blocks_[i][word] != number + static_cast<uint32_t>(word))
                return false;
        return true;
    }
    bool all_have_theirs() const {
        for (size_t i = 0; i < blocks_.size(); i++)
            if (blocks_[i] != nullptr && !has(i, static_cast<uint32_t>(i)))
                return false;
        return true;
    }
    /* One in `share` stays. */
    void thin(size_t share) {
        Random random(2);
        for (auto &block : blocks_)
            if (random.below(share) != 0) {
                hak_free(block);
                block = nullptr;
            }
    }
    void free_from(size_t first) {
        for (size_t i = first; i < blocks_.size(); i++)
            hak_free(blocks_[i]);
        blocks_.resize(std::min(first, blocks_.size()));
    }
    void *take_last() {
        void *block = blocks_.back();
        blocks_.pop_back();
        return block;
    }
    size_t count() const { return blocks_.size(); }
    void *block(size_t i) const { return blocks_[i]; }

  private:
    size_t size_;
    std::vector<uint32_t *> blocks_;
};

class Mesh : public testing::Test {
  protected:
    void SetUp() override {
        if (getpagesize() != 4096)
            GTEST_SKIP() << "pages are not of 4 KiB";
        ASSERT_EQ(hak_option_set("MESH", "1"), 0);
        merged_ = counter("mesh_merged_pages");
    }
    void TearDown() override { hak_option_set("MESH", "0"); }
    long merged() const { return counter("mesh_merged_pages") - merged_; }
    /* After it no thread but this one has run. */
    bool merges() const { return merged() > 0 || !can_hold_writes(); }

  private:
    long merged_ = 0;
};

class MeshSizes : public Mesh, public testing::WithParamInterface<size_t> {};
INSTANTIATE_TEST_SUITE_P(All, MeshSizes, testing::Values(16, 48, 64, 200, 1000));

TEST_P(MeshSizes, BlocksKeepWhatTheyHoldAndPagesGoBack) {
    size_t size = GetParam();
    {
        Sparse blocks(size, 12 * kMiB / size, 30);
        hak_option_set("MESH", "0");
        hak_trim();
        size_t before = process_pss_bytes();
        hak_option_set("MESH", "1");
        hak_trim();
        ASSERT_TRUE(blocks.all_have_theirs());
        ASSERT_TRUE(merges());
        if (merged() > 0)
            EXPECT_LT(process_pss_bytes() + static_cast<size_t>(merged()) * 4096 / 2, before) << "after all was read";
        for (size_t i = 0; i < blocks.count(); i++)
            blocks.write(i, static_cast<uint32_t>(i));
        ASSERT_TRUE(blocks.all_have_theirs()) << "written, one after the other";
        for (size_t i = 0; i < blocks.count(); i++)
            EXPECT_EQ(hak_usable_size(blocks.block(i)), hak_good_size(size));
        blocks.free_from(blocks.count() / 2);
        hak_trim();
        ASSERT_TRUE(blocks.all_have_theirs());
    }
    hak_trim();
    EXPECT_EQ(heap_stats()["rss_bytes"]["empty_slots"].number, 0);
    Sparse again(size, 12 * kMiB / size, 1); /* zeroed memory that is no more a file's */
    EXPECT_TRUE(again.all_have_theirs());
}

/* Two pages are enough: here each has a block at one of two places. */
TEST_F(Mesh, PairsBecomeOnePage) {
    std::vector<void *> kept;
    std::vector<void *> all(20000);
    for (void *&block : all)
        block = hak_malloc(1024);
    for (void *block : all) {
        auto at = reinterpret_cast<uintptr_t>(block);
        if ((at >> 12 & 1) == (at >> 10 & 3))
            kept.push_back(block);
        else
            hak_free(block);
    }
    hak_trim();
    EXPECT_TRUE(merges());
    for (void *block : kept)
        hak_free(block);
}

TEST_F(Mesh, NothingIsMergedUnlessItIsAskedFor) {
    hak_option_set("MESH", "0");
    Sparse blocks(64, 100000, 50);
    hak_trim();
    EXPECT_EQ(merged(), 0);
}

/* Blocks of 1,024 bytes, four in each page: those of a slab of its own stay for which `stays` says so, by their page in
 * the slab and their place in the page. */
template <class Stays> void keep_some(std::vector<void *> &kept, unsigned slabs, Stays stays) {
    constexpr uintptr_t kSlot = 65536, kBlock = 1024, kPage = 4096;
    std::vector<void *> all;
    std::vector<uintptr_t> slots;
    for (unsigned i = 0; i < (slabs + 2) * kSlot / kBlock; i++) {
        all.push_back(hak_malloc(kBlock));
        auto slot = reinterpret_cast<uintptr_t>(all.back()) / kSlot;
        if (std::find(slots.begin(), slots.end(), slot) == slots.end())
            slots.push_back(slot);
    }
    for (void *block : all) { /* the first slab and the last may have other blocks than these */
        auto at = reinterpret_cast<uintptr_t>(block);
        auto slab = std::find(slots.begin(), slots.end(), at / kSlot) - slots.begin();
        bool counts = slab > 0 && slab <= static_cast<long>(slabs);
        if (counts && stays(static_cast<unsigned>(slab - 1), at % kSlot / kPage, at % kPage / kBlock))
            kept.push_back(block);
        else
            hak_free(block);
    }
}

TEST_F(Mesh, FullSlabsStayAsTheyAre) {
    std::vector<void *> kept;
    keep_some(kept, 8, [](unsigned slab, uintptr_t, uintptr_t place) { return place % 2 == slab % 2; });
    hak_trim();
    EXPECT_EQ(merged(), 0) << "half of the blocks are live";
    for (void *block : kept)
        hak_free(block);
}

/* Nobody could allocate from the slab any more, and fifteen pages stay as they are. */
TEST_F(Mesh, ASlabIsNotClosedForTheSakeOfOnePage) {
    std::vector<void *> kept;
    keep_some(kept, 2,
              [](unsigned slab, uintptr_t page, uintptr_t place) { return place == (slab == 1 && page == 3 ? 1 : 0); });
    hak_trim();
    EXPECT_EQ(merged(), 0);
    for (void *block : kept)
        hak_free(block);
}

TEST_F(Mesh, APassLeavesTheSignalsAsTheyWere) {
    sigset_t before, own, after;
    sigemptyset(&own);
    sigaddset(&own, SIGUSR2);
    pthread_sigmask(SIG_SETMASK, &own, &before);
    Sparse blocks(64, 50000, 50);
    hak_trim();
    ASSERT_TRUE(merges());
    pthread_sigmask(SIG_SETMASK, &before, &after);
    for (int i = 1; i < NSIG; i++)
        EXPECT_EQ(sigismember(&after, i), sigismember(&own, i)) << i;
}

/* Else memory stays where nobody trims, no purger runs and nothing grows old. In a process of its own, which has no
 * other thread. */
TEST(MeshAlone, PagesAreMergedAsTheHeapGrows) {
    if (getpagesize() != 4096)
        GTEST_SKIP() << "pages are not of 4 KiB";
    if (getenv("HAKMEM_MESH") == nullptr) {
        Outcome outcome = run_self({"--gtest_filter=MeshAlone.*"},
                                   {"HAKMEM_MESH=1", "HAKMEM_PURGER=0", "HAKMEM_DECAY_MS=1000000000"});
        EXPECT_TRUE(outcome.exited(0)) << outcome.describe();
        return;
    }
    Sparse blocks(64, kMiB, 50);
    std::vector<void *> others;
    while (others.size() < 1000 && counter("mesh_merged_pages") == 0)
        others.push_back(memset(hak_malloc(100000), 1, 100000));
    EXPECT_GT(counter("mesh_merged_pages"), 0);
    EXPECT_TRUE(blocks.all_have_theirs());
    for (void *block : others)
        hak_free(block);
}

TEST_F(Mesh, SlotsComeBackZeroed) {
    {
        Sparse blocks(64, 100000, 50);
        hak_trim();
        ASSERT_TRUE(merges());
    }
    hak_trim();
    for (int i = 0; i < 200; i++) {
        auto *bytes = static_cast<char *>(hak_calloc(1, 60000));
        for (size_t at = 0; at < 60000; at++)
            ASSERT_EQ(bytes[at], 0);
    }
}

TEST_F(Mesh, SharedPagesAreMergedAgainWhenBlocksWereFreed) {
    Sparse blocks(208, 150000, 8);
    hak_trim();
    ASSERT_TRUE(merges() && blocks.all_have_theirs());
    long first = merged();
    size_t before = process_pss_bytes();
    blocks.thin(4);
    hak_trim();
    EXPECT_TRUE(blocks.all_have_theirs());
    if (first == 0)
        GTEST_SKIP() << "this system does not hold writers, so no page is shared";
    EXPECT_GT(merged() - first, first / 20);
    if (kShorter == 1) /* a sanitizer's own memory does not belong to the heap */
        EXPECT_LT(process_pss_bytes(), before / 3 * 2) << "after all was read";
    blocks.thin(2);
    hak_trim();
    EXPECT_TRUE(blocks.all_have_theirs());
}

TEST_F(Mesh, PagesWithoutBlocksGoBack) {
    Sparse blocks(1000, 30000, 6);
    hak_trim();
    ASSERT_TRUE(merges() && blocks.all_have_theirs());
    size_t before = process_pss_bytes();
    bool is_shared = merged() > 0;
    blocks.thin(20);
    hak_trim();
    EXPECT_TRUE(blocks.all_have_theirs());
    if (!is_shared)
        GTEST_SKIP() << "this system does not hold writers, so no page is shared";
    if (kShorter == 1)
        EXPECT_LT(process_pss_bytes(), before / 2) << "after all was read";
}

TEST_F(Mesh, ReallocCopiesAMeshedBlock) {
    Sparse blocks(64, 100000, 50);
    hak_trim();
    ASSERT_TRUE(merges());
    auto number = static_cast<uint32_t>(blocks.count() - 1);
    auto *longer = static_cast<uint32_t *>(hak_realloc(blocks.take_last(), 1000));
    for (uint32_t word = 0; word < 16; word++)
        EXPECT_EQ(longer[word], number + word);
    hak_free(longer);
    EXPECT_TRUE(blocks.all_have_theirs());
}

/* Each of its writes is in the block when the thread reads it next, whatever page is behind the address. */
void write_until(const std::atomic<bool> &stop, Sparse &blocks, std::atomic<unsigned> &lost) {
    std::vector<uint32_t> number(blocks.count());
    Random random(3);
    while (!stop) {
        size_t i = random.below(blocks.count());
        lost += number[i] != 0 && !blocks.has(i, number[i]);
        blocks.write(i, number[i] = static_cast<uint32_t>(random.next() | 1));
    }
}

TEST_F(Mesh, NoWriteOfAnotherThreadIsLost) {
    for (int round = 0; round < times(10); round++) {
        Sparse first(64, 40000, 50, static_cast<uint64_t>(round)), second(48, 40000, 50, static_cast<uint64_t>(round));
        std::atomic<bool> stop{false};
        std::atomic<unsigned> lost{0};
        std::thread one([&] { write_until(stop, first, lost); }), two([&] { write_until(stop, second, lost); });
        Sparse more(64, 40000, 50, static_cast<uint64_t>(round) + 77);
        hak_trim();
        more.thin(2);
        hak_trim(); /* merges some pages again */
        stop = true;
        one.join(), two.join();
        EXPECT_EQ(lost, 0u);
        EXPECT_TRUE(more.all_have_theirs());
    }
    EXPECT_TRUE(merges());
}

/* Threads allocate and free what they have and what others had while passes run, and each block's number is right at
 * its end. */
TEST_F(Mesh, ThreadsFreeWhilePassesRun) {
    std::vector<std::atomic<uint32_t *>> places(20000);
    std::atomic<unsigned> wrong{0}, ended{0};
    auto work = [&](uint64_t seed) {
        Random random(seed);
        for (int burst = 0; burst < 20 + times(80); burst++)
            for (int i = 0; i < 20000; i++) {
                size_t place = random.below(places.size());
                uint32_t *block = nullptr;
                if (random.below(burst % 8 == 0 ? 2 : 30) == 0) {
                    size_t size = 16 + 16 * random.below(8);
                    block = static_cast<uint32_t *>(hak_malloc(size));
                    block[0] = static_cast<uint32_t>(place), block[3] = ~static_cast<uint32_t>(place);
                }
                block = places[place].exchange(block);
                wrong += block != nullptr && (block[0] != place || block[3] != ~static_cast<uint32_t>(place));
                hak_free(block);
            }
        ended++;
    };
    std::vector<std::thread> threads;
    for (uint64_t seed = 1; seed <= 3; seed++)
        threads.emplace_back(work, seed);
    while (ended < threads.size())
        hak_trim();
    for (auto &thread : threads)
        thread.join();
    hak_trim(); /* how many slabs are sparse and nobody's during the other passes is a matter of luck */
    EXPECT_TRUE(merges());
    for (auto &place : places) {
        uint32_t *block = place.exchange(nullptr), number = static_cast<uint32_t>(&place - places.data());
        wrong += block != nullptr && (block[0] != number || block[3] != ~number);
        hak_free(block);
    }
    EXPECT_EQ(wrong, 0u);
}

TEST_F(Mesh, AChildKeepsWhatItHas) {
    auto blocks = std::make_unique<Sparse>(64, 100000, 50);
    hak_trim();
    ASSERT_TRUE(merges());
    int freed[2];
    ASSERT_EQ(pipe(freed), 0);
    fflush(nullptr);
    pid_t child = fork();
    if (child == 0) {
        char byte;
        bool right = read(freed[0], &byte, 1) == 1 && blocks->all_have_theirs();
        for (size_t i = 0; i < blocks->count(); i += 2)
            blocks->write(i, 1);
        for (size_t i = 0; i < blocks->count(); i++)
            right &= blocks->has(i, i % 2 == 0 ? 1 : static_cast<uint32_t>(i));
        Sparse own(64, 50000, 50);
        hak_trim();
        _exit(right && own.all_have_theirs() ? 0 : 1);
    }
    size_t half = blocks->count() / 2;
    blocks->free_from(half);
    EXPECT_EQ(write(freed[1], "", 1), 1);
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    EXPECT_TRUE(blocks->all_have_theirs()) << "after the child wrote to its own";
    close(freed[0]), close(freed[1]);
}

size_t mappings_of_files() {
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    size_t n = 0;
    while (fgets(line, sizeof line, maps) != nullptr)
        n += strstr(line, "memfd:hakmem") != nullptr;
    fclose(maps);
    return n;
}

/* Else slabs that a pass of the parent had in its hands at the fork stay for the life of the child. */
TEST_F(Mesh, AChildTakesOverWhatALostPassHeld) {
    auto blocks = std::make_unique<Sparse>(208, 60000, 10);
    hak_trim();
    ASSERT_TRUE(merges());
    std::atomic<bool> stop{false};
    std::thread passes([&] {
        while (!stop)
            hak_trim();
    });
    for (int round = 0; round < 8; round++) {
        fflush(nullptr);
        pid_t child = fork();
        if (child == 0) {
            bool right = blocks->all_have_theirs();
            hak_trim();
            blocks->free_from(0);
            hak_trim();
            _exit(!right ? 1 : mappings_of_files() != 0 ? 2 : 0);
        }
        int status = -1;
        waitpid(child, &status, 0);
        EXPECT_EQ(status, 0) << "in round " << round;
    }
    stop = true;
    passes.join();
    EXPECT_TRUE(blocks->all_have_theirs());
}

/* Neither a signal ends the program nor is anything lost. */
TEST_F(Mesh, FilesMayBeForbidden) {
    rlimit before{}, none{};
    getrlimit(RLIMIT_FSIZE, &before);
    none.rlim_max = before.rlim_max;
    setrlimit(RLIMIT_FSIZE, &none);
    Sparse blocks(64, 50000, 50);
    hak_trim();
    setrlimit(RLIMIT_FSIZE, &before);
    EXPECT_EQ(merged(), 0);
    EXPECT_TRUE(blocks.all_have_theirs());
    getrlimit(RLIMIT_NOFILE, &before);
    none.rlim_cur = 3, none.rlim_max = before.rlim_max;
    setrlimit(RLIMIT_NOFILE, &none);
    hak_trim();
    setrlimit(RLIMIT_NOFILE, &before);
    EXPECT_EQ(merged(), 0);
    EXPECT_TRUE(blocks.all_have_theirs());
}

/* The slabs end later. Until then nothing in them counts as the program's. */
TEST_F(Mesh, TheEndOfASlabMayBeRefused) {
    if (kShorter != 1)
        GTEST_SKIP() << "a sanitizer's own memory would be refused, too";
    hak_trim();
    double before = heap_stats()["rss_bytes"]["live"].number;
    Sparse blocks(64, 100000, 50);
    hak_trim();
    ASSERT_TRUE(merges());
    size_t mapped = mappings_of_files();
    rlimit limit{}, none{};
    getrlimit(RLIMIT_AS, &limit);
    none.rlim_cur = 4096, none.rlim_max = limit.rlim_max;
    setrlimit(RLIMIT_AS, &none);
    blocks.free_from(0);
    setrlimit(RLIMIT_AS, &limit);
    EXPECT_EQ(mappings_of_files(), mapped);
    EXPECT_EQ(heap_stats()["rss_bytes"]["live"].number, before);
    hak_trim();
    EXPECT_EQ(mappings_of_files(), 0u);
}

TEST_F(Mesh, CountsWhatTheProgramHasSplit) {
    Sparse blocks(64, 100000, 50);
    long split = counter("mesh_split_pages");
    hak_trim();
    ASSERT_TRUE(merges());
    if (merged() == 0)
        GTEST_SKIP() << "this system does not hold writers, so no page is shared";
    for (size_t i = 0; i < blocks.count(); i++)
        blocks.write(i, 7);
    blocks.free_from(0);
    EXPECT_GT(counter("mesh_split_pages") - split, merged() / 2);
}

using MeshDeathTest = Mesh;

TEST_F(MeshDeathTest, BadFreesAreReported) {
    Sparse blocks(64, 100000, 50);
    hak_trim();
    if (merged() == 0)
        GTEST_SKIP() << "this system does not hold writers, so no page is shared";
    char *block = hidden(static_cast<char *>(blocks.take_last()));
    EXPECT_DEATH(hak_free(block + 16), "hakmem: invalid free of 0x.* \\(inside a 64-byte block\\)");
    hak_free(block);
    EXPECT_DEATH(hak_free(block), "hakmem: double free of 0x.* \\(64-byte block");
    EXPECT_EXIT(exit(hak_expand(block, 100) == 0 ? 0 : 1), testing::ExitedWithCode(0),
                "hakmem: invalid pointer 0x.* in hak_expand");
}

} // namespace
