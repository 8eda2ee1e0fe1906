/* A program without threads, which may fall asleep after any free: resident memory follows live memory as frees happen,
 * without a later call. If it fails, memory that such a program needed once stays resident until it ends. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>
#include <hakmem.h>
#include <dlfcn.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <fstream>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "../heap_stats.h"
#include "../support.h"
#include "../surface.h"

/* The coarse clock stands at this time, unless it is 0. It is the library's, too. The others are host.c's, if that is
 * there. */
static std::atomic<time_t> stands_at_s;
static int (*next_gettime)(clockid_t, struct timespec *);
__attribute__((constructor)) static void find_next() {
    next_gettime = reinterpret_cast<int (*)(clockid_t, struct timespec *)>(dlsym(RTLD_NEXT, "clock_gettime"));
}
extern "C" int clock_gettime(clockid_t which, struct timespec *now) noexcept {
    if (which != CLOCK_MONOTONIC_COARSE || stands_at_s == 0)
        return next_gettime != nullptr ? next_gettime(which, now)
                                       : static_cast<int>(syscall(SYS_clock_gettime, which, now));
    *now = {stands_at_s, 0};
    return 0;
}
extern "C" const unsigned __rseq_size __attribute__((weak)); /* NOLINT: its name */

namespace {

const Surface &S = subject();

/* Arrays whose memory is not the allocator's and stays constant while a test runs. */
template <typename T> class Array {
  public:
    explicit Array(size_t most)
        : bytes_(most * sizeof(T)), items_(static_cast<T *>(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                                                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0))) {}
    ~Array() { munmap(items_, bytes_); }
    Array(const Array &) = delete;
    Array &operator=(const Array &) = delete;
    void add(T item) { items_[size_++] = item; }
    T *begin() { return items_; }
    T *end() { return items_ + size_; }
    void clear() { size_ = 0; }

  private:
    size_t bytes_, size_ = 0;
    T *items_;
};

char *filled(size_t bytes) {
    char *block = static_cast<char *>(S.alloc(bytes));
    memset(block, 1, bytes);
    return block;
}

size_t mixed_size(std::mt19937 &random) {
    size_t part = random() % 1000000;
    switch (random() % 20) {
    case 0: return 64 * kKiB + part;
    case 1:
    case 2: return 2 * kKiB + part % (62 * kKiB);
    case 3: return random() % 10 == 0 ? 2 * kMiB + part : 5 * kKiB;
    default: return 8 + part % kKiB;
    }
}

/* Whether the kernel gives huge pages to programs that ask for them. */
bool huge_pages_are_granted() {
    std::string modes(100, 0);
    FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "r");
    bool granted = file != nullptr && fgets(modes.data(), 100, file) != nullptr && modes.find("[never]") == modes.npos;
    if (file != nullptr)
        fclose(file);
    return granted && !in_secure_mode();
}

/* Returns the peak of resident memory, over what was resident before. */
size_t touch_a_byte_of_each(size_t bytes) {
    size_t count = 120 * kMiB / bytes, before = process_rss_bytes(), most = 0;
    Array<char *> blocks(count);
    for (int round = 0; round < 4; round++) {
        for (size_t i = 0; i < count; i++) {
            blocks.add(static_cast<char *>(S.alloc(bytes)));
            *(blocks.end() - 1)[0] = 1;
        }
        size_t now = process_rss_bytes();
        most = now > most ? now : most;
        for (char *block : blocks)
            S.free(block);
        blocks.clear();
    }
    return most - before;
}

/* In a child: what another test has given back and this one wants at once would be retained. */
template <typename Body> void in_child(Body body) {
    pid_t child = fork();
    if (child == 0) {
        body();
        fflush(stdout);
        _exit(testing::Test::HasFailure());
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "wait status " << status;
}

/* Fills 60 MB with blocks of 8 B to 3 MB and frees them all, three times, and then does nothing. Nobody will see that
 * it is quiet, so it keeps little although it has swung: no more than what comes back at once may keep. It runs
 * before what others want back could count. */
void pass_thrice() {
    constexpr size_t kBytes = 60 * kMiB;
    std::mt19937 random(3);
    Array<char *> blocks(kBytes / 64);
    size_t before = heap_rss_bytes();
    for (int pass = 0; pass < 3; pass++) {
        for (size_t sum = 0, bytes; sum < kBytes; sum += bytes)
            blocks.add(filled(bytes = mixed_size(random)));
        std::shuffle(blocks.begin(), blocks.end(), random);
        for (char *block : blocks)
            S.free(block);
        blocks.clear();
    }
    EXPECT_LE(heap_rss_bytes(), before + 8 * kMiB) << heap_stats_text();
}
TEST(Alone, LittleStaysAfterThreePasses) { in_child(pass_thrice); }

/* No huge page becomes resident for one touched byte, neither at first nor when blocks come back. This is the first
 * test, and runs each size in a child: addresses that others have had in huge pages would be in huge pages again.
 * HUGE_PAGES=always means the opposite. */
TEST(Alone, BarelyTouchedBlocksAreBarelyResident) {
    const char *mode = getenv("HAKMEM_HUGE_PAGES");
    bool whole = mode != nullptr && strcmp(mode, "always") == 0 && huge_pages_are_granted();
    for (size_t bytes : {200 * kKiB, 3000 * kKiB}) {
        pid_t child = fork();
        if (child == 0)
            _exit(static_cast<int>(touch_a_byte_of_each(bytes) / kMiB));
        int status = 0;
        waitpid(child, &status, 0);
        EXPECT_TRUE(WIFEXITED(status) && (whole ? WEXITSTATUS(status) >= 60 : WEXITSTATUS(status) <= 12))
            << WEXITSTATUS(status) << " MiB for blocks of " << bytes << " bytes";
    }
}

long faults() {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
}

/* Is this the only test of the process, on such a machine (host.c)? Which addresses get huge pages depends on what the
 * heap was before, and the other tests want small ones. */
bool runs_alone_on(const char *machine) {
    const char *host = getenv("HAK_TEST_HOST");
    return testing::UnitTest::GetInstance()->test_to_run_count() == 1 && host != nullptr && strcmp(host, machine) == 0;
}

/* What pages cost is not judged by times in which others ran. */
TEST(Alone, HugePagesAreNotTimedWhileOthersRun) {
    if (!runs_alone_on("shared") || &__rseq_size == nullptr || __rseq_size == 0)
        GTEST_SKIP() << "is a test of its own, under host.c, where the kernel tells a thread that it was switched out";
    for (size_t sum = 0; sum < 40 * kMiB; sum += 1500)
        filled(1500);
    auto pages = heap_stats()["huge_pages"];
    EXPECT_EQ(pages["small_pages_ns"].number, 0) << heap_stats_text();
    EXPECT_EQ(pages["timed"].number, 0) << heap_stats_text();
}

/* 40 MiB come and go where huge pages are cheap. From the second time on they do not come page by page: as huge pages,
 * or because the system has not taken what it may take. */
TEST(Alone, MemoryThatComesAndGoesDoesNotComePageByPage) {
    if (!runs_alone_on("cheap"))
        GTEST_SKIP() << "is a test of its own, under host.c";
    constexpr size_t kBytes = 1500, kTotal = 40 * kMiB, kRounds = 6;
    std::mt19937 random(4);
    Array<char *> blocks(kTotal / kBytes);
    size_t before = process_rss_bytes();
    long again = 0;
    for (size_t round = 0; round < kRounds; round++) {
        long begin = faults();
        for (size_t i = 0; i < kTotal / kBytes; i++)
            blocks.add(filled(kBytes));
        again += round != 0 ? faults() - begin : 0;
        std::shuffle(blocks.begin(), blocks.end(), random);
        for (char *block : blocks)
            S.free(block);
        blocks.clear();
    }
    if (heap_stats()["huge_pages"]["dear"].number == 0) /* else the kernel had no huge page left to give */
        EXPECT_LE(again, static_cast<long>((kRounds - 1) * kTotal) / sysconf(_SC_PAGESIZE) / 2) << heap_stats_text();
    hak_trim();
    EXPECT_LE(process_rss_bytes(), before + 4 * kMiB) << heap_stats_text();
}

TEST(Alone, ThreeMiBStayWhenAllOfEverySizeIsFreed) {
    constexpr size_t kBytes = 100 * kMiB;
    std::mt19937 random(1);
    Array<char *> blocks(kBytes / 64);
    size_t before = process_rss_bytes(), sum = 0;
    while (sum < kBytes) {
        size_t bytes = mixed_size(random);
        blocks.add(filled(bytes));
        sum += bytes;
    }
    std::shuffle(blocks.begin(), blocks.end(), random);
    for (char *block : blocks)
        S.free(block);
    size_t after = process_rss_bytes();
    EXPECT_LE(after, before + 3 * kMiB) << heap_stats_text();
}

/* One block in twenty stays, at random. At most `times` the pages that these blocks touch stay resident. */
void keep_one_in_twenty(size_t bytes, double times) {
    size_t count = 128 * kMiB / bytes, page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    std::mt19937 random(2);
    Array<char *> blocks(count), kept(count);
    std::set<uintptr_t> pages;
    size_t before = process_rss_bytes();
    for (size_t i = 0; i < count; i++)
        blocks.add(filled(bytes));
    for (char *block : blocks)
        if (random() % 20 != 0)
            S.free(block);
        else
            kept.add(block);
    size_t after = process_rss_bytes();
    for (const char *block : kept)
        for (size_t i = 0; i < bytes; i++)
            pages.insert(reinterpret_cast<uintptr_t>(block + i) / page);
    EXPECT_LE(after - before, static_cast<size_t>(times * static_cast<double>(pages.size() * page)) + 4 * kMiB)
        << bytes << " bytes\n"
        << heap_stats_text();
    for (const char *block : kept)
        for (size_t i = 0; i < bytes; i++)
            ASSERT_EQ(block[i], 1);
    for (char *block : kept)
        S.free(block);
}

/* Fills 16 MiB and frees most of it, again and again, so that the heap learns to keep what comes back. A heap that
 * shrinks further than in all these rounds keeps nothing for the next. */
void swing() {
    constexpr size_t kBytes = 16 * kMiB, kKept = 8;
    std::mt19937 random(2);
    Array<char *> blocks(kBytes / 64), kept(kBytes / 64);
    for (int round = 0; round < 16; round++) {
        size_t least = round % 2 == 0 ? 16 : 2000, most = round % 2 == 0 ? 1000 : 30000;
        for (size_t sum = 0, bytes; sum < kBytes; sum += bytes)
            blocks.add(filled(bytes = least + random() % most));
        std::shuffle(blocks.begin(), blocks.end(), random);
        size_t i = 0;
        for (char *block : blocks)
            i++ % kKept == 0 ? kept.add(block) : S.free(block);
        blocks.clear();
    }
    for (char *block : kept)
        S.free(block);
    EXPECT_LE(heap_rss_bytes(), 7 * kMiB) << heap_stats_text();
}

TEST(Alone, LittleStaysAfterSwings) { in_child(swing); }

/* From now on no time passes: whatever is wanted back is so at once, however long the machine lets the test wait. */
void stop_clock() {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    stands_at_s = now.tv_sec + 1;
}

/* A program that frees and allocates the same 60 MB again and again pays for giving them back while the heap learns
 * that, and not in each round, though that is more than 64 MiB with what rounding takes. */
void swing_widely() {
    constexpr size_t kBlocks = 20, kBytes = 3000000;
    char *blocks[kBlocks];
    long begin = 0, rounds = 40;
    stop_clock();
    for (int round = 0; round < rounds; round++) {
        if (round == rounds / 2)
            begin = faults();
        for (char *&block : blocks) {
            block = static_cast<char *>(S.alloc(kBytes));
            for (size_t i = 0; i < kBytes; i += 4096)
                block[i] = 1;
        }
        for (char *block : blocks)
            S.free(block);
    }
    EXPECT_LE(faults() - begin, static_cast<long>(kBlocks * kBytes / 4096)) << heap_stats_text();
}
TEST(Alone, LargeSwingsAreLearned) { in_child(swing_widely); }

/* A swing of 30 MB beside 40 MB that stay is given back in the first rounds alone. */
void swing_beside() {
    constexpr size_t kBlocks = 10, kBytes = 3000000;
    stop_clock();
    char *stay = filled(40 * kMiB), *blocks[kBlocks];
    long begin = 0;
    for (int round = 0; round < 8; round++) {
        begin = round == 4 ? faults() : begin;
        for (char *&block : blocks)
            block = filled(kBytes);
        for (char *block : blocks)
            S.free(block);
    }
    EXPECT_LE(faults() - begin, static_cast<long>(kBlocks * kBytes / 4096)) << heap_stats_text();
    S.free(stay);
}
TEST(Alone, SwingsAreLearnedInAFewRounds) { in_child(swing_beside); }

/* A program that has swung goes on with little, which its slabs hold: then what it swung by goes back. */
void swing_and_rest() {
    constexpr size_t kBlocks = 20, kBytes = 3000000, kSmall = 4000;
    char *blocks[kBlocks], *small[kSmall];
    stop_clock();
    size_t before = heap_rss_bytes();
    for (int round = 0; round < 12; round++) {
        for (char *&block : blocks)
            block = filled(kBytes);
        for (char *block : blocks)
            S.free(block);
    }
    EXPECT_GE(heap_stats()["rss_bytes"]["total"].number, before + 30 * kMiB) << "nothing was kept for the next swing";
    EXPECT_EQ(hak_option_set("DECAY_MS", "200"), 0);
    stands_at_s = 0;
    for (int round = 0; round < 600 && heap_rss_bytes() > before + 6 * kMiB; round++) {
        for (char *&block : small)
            block = filled(48);
        for (char *block : small)
            S.free(block);
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_LE(heap_rss_bytes(), before + 6 * kMiB) << heap_stats_text();
}
TEST(Alone, LittleStaysOfSwingsWhenTheProgramRests) { in_child(swing_and_rest); }

/* Without a purger, many threads swing, and then there is one that frees nothing. */
void swing_in_threads() {
    constexpr unsigned kThreads = 300, kAtOnce = 100;
    hak_option_set("PURGER", "0");
    size_t before = heap_rss_bytes();
    for (unsigned n = 0; n < kThreads; n += kAtOnce) {
        std::vector<std::thread> threads;
        for (unsigned t = 0; t < kAtOnce; t++)
            threads.emplace_back([seed = n + t] {
                std::mt19937 random(seed);
                std::array<char *, 1000> blocks{};
                for (int round = 0; round < 3; round++) {
                    for (char *&block : blocks)
                        block = filled(8 + random() % (random() % 10 == 0 ? 30000 : 1000));
                    std::shuffle(blocks.begin(), blocks.end(), random);
                    for (char *block : blocks)
                        S.free(block);
                }
            });
        for (auto &thread : threads)
            thread.join();
    }
    EXPECT_LE(heap_rss_bytes(), before + 4 * kMiB) << heap_stats_text();
}
TEST(Alone, LittleStaysAfterManyThreads) { in_child(swing_in_threads); }

/* Mappings for which huge pages were asked, whether or not the system had some. */
size_t advised_huge_bytes() {
    std::ifstream smaps("/proc/self/smaps");
    size_t sum = 0, bytes = 0;
    for (std::string line; std::getline(smaps, line);) {
        unsigned long begin = 0, end = 0;
        if (sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) /* NOLINT: what is no number counts for nothing */
            bytes = end - begin;
        else if (line.compare(0, 8, "VmFlags:") == 0 && line.find(" hg") != std::string::npos)
            sum += bytes;
    }
    return sum;
}

/* The first 16 MiB of a heap that grows to 40 have small pages, as the heap was small then. Once all is freed, huge
 * pages are asked for them, too, except for the SuperSlabs of what stays. */
TEST(Alone, WhatWasMadeSmallComesBackHuge) {
    if (!runs_alone_on("cheap"))
        GTEST_SKIP() << "is a test of its own, under host.c";
    constexpr size_t kBytes = 1500, kTotal = 40 * kMiB;
    Array<char *> blocks(kTotal / kBytes);
    for (size_t i = 0; i < kTotal / kBytes; i++)
        blocks.add(filled(kBytes));
    auto pages = heap_stats()["huge_pages"];
    bool pay = pages["timed"].number != 0 && pages["dear"].number == 0; /* else the kernel had none left to give */
    size_t before = advised_huge_bytes();
    for (char *block : blocks)
        S.free(block);
    if (pay)
        EXPECT_GE(advised_huge_bytes(), before + 8 * kMiB) << heap_stats_text();
}

TEST(Alone, FreePagesBetweenSurvivorsGoBack) {
    for (size_t bytes : {kKiB / 2, kKiB, size_t{1500}, size_t{2000}, size_t{3000}, size_t{5000}})
        in_child([bytes] { keep_one_in_twenty(bytes, bytes <= kKiB ? 2.2 : 2.6); });
}

/* Allocates nothing, so that it has no slow path. */
long trimmed_pages() {
    static char text[kMiB];
    hak_stats_json(text, sizeof text);
    const char *key = "\"trimmed_pages\":", *at = strstr(text, key);
    return at != nullptr ? atol(at + strlen(key)) : -1;
}

/* One block in `share` stays, at random, and the others are freed in the order of their addresses. Of the pages that no
 * block touches any more, in slabs in use, six in seven have gone with the last free, however full their slabs are: but
 * for those of slabs that may stay noted, four times RETAIN_BYTES. */
void keep_one_in(size_t bytes, unsigned share) {
    size_t count = 48 * kMiB / bytes, page = static_cast<size_t>(sysconf(_SC_PAGESIZE)), slot = 64 * kKiB;
    std::mt19937 random(5);
    Array<char *> blocks(count), kept(count);
    std::vector<bool> used(8 * count * bytes / page), slots(used.size() * page / slot + 1);
    for (size_t i = 0; i < count; i++)
        blocks.add(filled(bytes));
    auto first = reinterpret_cast<uintptr_t>(*std::min_element(blocks.begin(), blocks.end())) / slot * slot;
    for (char *block : blocks)
        if (random() % share != 0)
            S.free(block);
        else
            kept.add(block);
    long trimmed = trimmed_pages(), free = 0;
    for (const char *block : kept) {
        size_t at = reinterpret_cast<uintptr_t>(block) - first;
        for (size_t i = at / page; i <= (at + bytes - 1) / page; i++)
            used[i] = true;
        slots[at / slot] = true;
    }
    for (size_t i = 0; i < used.size(); i++)
        free += slots[i * page / slot] && !used[i];
    EXPECT_GE(trimmed, (free - static_cast<long>(4 * kMiB / page)) * 6 / 7)
        << bytes << " bytes, of " << free << " pages";
    for (char *block : kept) {
        for (size_t i = 0; i < bytes; i++)
            ASSERT_EQ(block[i], 1);
        S.free(block);
    }
}
TEST(Alone, WholeFreePagesGoBackAsBlocksAreFreed) {
    in_child([] { keep_one_in(64, 100); });
    for (size_t bytes : {kKiB / 2, kKiB, 2 * kKiB, 4 * kKiB})
        in_child([bytes] { keep_one_in(bytes, 20); });
    in_child([] { keep_one_in(12 * kKiB, 5); });
}

/* Where six in ten blocks of 1,500 bytes are free, at random, so is one page in seven, and nearly each would take a
 * call of its own. They stay until more of the slab is free. */
void free_six_in_ten() {
    stop_clock();
    constexpr size_t kBytes = 1500, kCount = 24 * kMiB / kBytes;
    std::mt19937 random(3);
    Array<char *> blocks(kCount);
    for (size_t i = 0; i < kCount; i++)
        blocks.add(filled(kBytes));
    std::shuffle(blocks.begin(), blocks.end(), random);
    for (char **block = blocks.begin(); block < blocks.begin() + kCount * 6 / 10; block++)
        S.free(*block);
    EXPECT_LE(trimmed_pages(), static_cast<long>(24 * kMiB / 4096 / 100)) << heap_stats_text();
    for (char **block = blocks.begin() + kCount * 6 / 10; block < blocks.end(); block++)
        S.free(*block);
}
TEST(Alone, FewPagesOfASlabAreNotWorthACall) { in_child(free_six_in_ten); }

/* Memory that is wanted back at once, again and again, is not given back each time. */
void fill_again() {
    stop_clock();
    constexpr size_t kBytes = 1000, kCount = 16 * kMiB / kBytes;
    std::mt19937 random(3);
    Array<char *> blocks(kCount);
    for (size_t i = 0; i < kCount; i++)
        blocks.add(filled(kBytes));
    long early = 0;
    for (int round = 0; round < 40; round++) {
        if (round == 20)
            early = counter("trimmed_pages") + counter("purged_slots");
        std::shuffle(blocks.begin(), blocks.end(), random);
        for (char **block = blocks.begin(); block < blocks.end() - kCount / 20; block++)
            S.free(*block);
        for (char **block = blocks.begin(); block < blocks.end() - kCount / 20; block++)
            *block = filled(kBytes);
    }
    EXPECT_LE(counter("trimmed_pages") + counter("purged_slots") - early, 20 * 16 * kMiB / 4096 / 100)
        << heap_stats_text();
    for (char *block : blocks)
        S.free(block);
}
TEST(Alone, ThinSlabsThatFillAgainStay) { in_child(fill_again); }

/* Slabs that give pages back and become empty a moment later could have gone at once: that is learned. */
void empty_in_random_order(size_t bytes) {
    stop_clock();
    const size_t count = 24 * kMiB / bytes;
    std::mt19937 random(5);
    Array<char *> blocks(count);
    long early = 0;
    for (int round = 0; round < 6; round++) {
        if (round == 2)
            early = trimmed_pages();
        for (size_t i = 0; i < count; i++)
            blocks.add(filled(bytes));
        std::shuffle(blocks.begin(), blocks.end(), random);
        for (char *block : blocks)
            S.free(block);
        blocks.clear();
    }
    EXPECT_LE(trimmed_pages() - early, 4 * 24 * kMiB / 4096 / 10) << bytes << " bytes\n" << heap_stats_text();
}
TEST(Alone, SlabsThatEmptySoonAreNotTrimmedFirst) {
    for (size_t bytes : {200, 1500, 9000})
        in_child([bytes] { empty_in_random_order(bytes); });
}

/* Free pages in slabs that are still well filled are looked for part by part: no malloc looks at the whole of a large
 * heap. */
void trim_in_parts() {
    constexpr size_t kBytes = 9000, kCount = 256 * kMiB / kBytes, kFreed = kCount * 2 / 5,
                     kPartPages = 32 * kMiB / 4096;
    std::mt19937 random(4);
    Array<char *> blocks(kCount);
    for (size_t i = 0; i < kCount; i++)
        blocks.add(filled(kBytes));
    hak_option_set("DECAY_MS", "50");
    std::shuffle(blocks.begin(), blocks.end(), random);
    for (char **block = blocks.begin(); block < blocks.begin() + kFreed; block++)
        S.free(*block);
    long before = trimmed_pages(), total = 0, most = 0;
    for (int look = 0; look < 150; look++) {
        usleep(1000);
        S.free(S.alloc(kMiB + 1));
        long now = trimmed_pages() - before;
        most = std::max(most, now - total);
        total = now;
    }
    EXPECT_GT(total, static_cast<long>(kPartPages)) << heap_stats_text();
    EXPECT_LE(most, static_cast<long>(kPartPages)) << "of " << total << " pages in all";
    for (char **block = blocks.begin() + kFreed; block < blocks.end(); block++)
        S.free(*block);
}
TEST(Alone, LargeHeapsAreTrimmedInParts) { in_child(trim_in_parts); }

/* What the kernel has zeroed is not cleared by hand, which would make it resident. */
TEST(Alone, CallocOfUsedMemoryTouchesLittle) {
    constexpr size_t kBytes = 8 * kMiB;
    size_t before = process_rss_bytes();
    long begin = faults();
    for (size_t i = 0; i < 50; i++) {
        char *block = static_cast<char *>(S.calloc(1, kBytes));
        ASSERT_EQ(block[i * 4096 * 37], 0);
        block[i * 4096 * 37] = 1;
        EXPECT_LE(process_rss_bytes(), before + 3 * kMiB) << "in round " << i;
        S.free(block);
    }
    EXPECT_LE(faults() - begin, 50 * 20);
}

} // namespace
