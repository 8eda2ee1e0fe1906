/* hak_stats_json, hak_stats_print and the options at run time. The figures must explain the memory the kernel sees:
 * otherwise someone who asks "why is my RSS 3 GB?" gets the wrong answer. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>

#include <cmath>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "../heap_stats.h"
#include "../support.h"
#include "inside.h"

namespace {

uintptr_t address(const Json &value) {
    EXPECT_EQ(value.kind, Json::kString);
    EXPECT_EQ(value.text.substr(0, 2), "0x");
    return strtoul(value.text.c_str(), nullptr, 16);
}

/* The terms of RSS add up, none is negative, and they add up to what /proc/self/smaps says about the region. */
void expect_rss_explained(const char *when) {
    SCOPED_TRACE(when);
    Json stats = heap_stats();
    const Json &rss = stats["rss_bytes"];
    double sum = 0;
    for (auto &[term, bytes] : rss.members) {
        if (term != "total")
            sum += bytes.number;
        EXPECT_GE(bytes.number, 0) << term;
    }
    EXPECT_GE(stats["untouched_bytes"].number, 0);
    EXPECT_EQ(sum, rss["total"].number) << heap_stats_text();
    size_t kernel = range_rss_bytes(address(stats["region"]["begin"]), address(stats["region"]["end"]));
    double tolerance = 0.02 * static_cast<double>(kernel) + 64 * 1024;
    EXPECT_NEAR(rss["total"].number, static_cast<double>(kernel), tolerance) << heap_stats_text();
}

std::vector<void *> fill(size_t bytes, Random &random, unsigned most_log2) {
    std::vector<void *> blocks;
    for (size_t sum = 0; sum < bytes;) {
        size_t size = 1 + random.log_size(most_log2);
        void *block = hak_malloc(size);
        memset(block, 1, size);
        blocks.push_back(block);
        sum += size;
    }
    return blocks;
}

void free_some(std::vector<void *> &blocks, Random &random, unsigned percent) {
    std::vector<void *> kept;
    for (void *block : blocks)
        if (random.below(100) < percent)
            hak_free(block);
        else
            kept.push_back(block);
    blocks.swap(kept);
}

TEST(Stats, JsonHasItsMembers) {
    hak_free(hak_malloc(100));
    Json stats = heap_stats();
    EXPECT_EQ(stats["version"].text, hak_version());
    EXPECT_EQ(stats["pid"].number, getpid());
    EXPECT_LT(address(stats["region"]["begin"]), address(stats["region"]["end"]));
    for (const char *name : {"superslabs", "superslabs_peak", "heaps"}) {
        EXPECT_EQ(stats[name].kind, Json::kNumber) << name;
        EXPECT_GE(stats[name].number, 1) << name;
    }
    EXPECT_GE(stats["superslabs_peak"].number, stats["superslabs"].number);
    EXPECT_EQ(stats["counters"].kind, Json::kObject);
    EXPECT_FALSE(stats["counters"].members.empty());
    EXPECT_EQ(stats["options"].kind, Json::kObject);
    EXPECT_FALSE(stats["options"].members.empty());
}

TEST(Stats, BlocksLieInTheRegion) {
    for (size_t size : kTierSizes) {
        void *block = hak_malloc(size);
        Json stats = heap_stats();
        auto at = reinterpret_cast<uintptr_t>(block);
        EXPECT_GE(at, address(stats["region"]["begin"])) << size;
        EXPECT_LE(at + size, address(stats["region"]["end"])) << size;
        hak_free(block);
    }
}

TEST(Stats, RssIsExplainedInEveryPhase) {
    Random random(11);
    expect_rss_explained("at the start");
    auto tiny = fill(16 * kMiB, random, 9);
    expect_rss_explained("tiny blocks live");
    auto mixed = fill(64 * kMiB, random, 21);
    expect_rss_explained("all tiers live");
    free_some(tiny, random, 50);
    free_some(mixed, random, 50);
    expect_rss_explained("half of it freed");
    auto more = fill(8 * kMiB, random, 13);
    expect_rss_explained("some taken again");
    free_some(tiny, random, 95);
    free_some(mixed, random, 95);
    expect_rss_explained("nearly all freed");
    hak_trim();
    expect_rss_explained("trimmed");
    free_some(tiny, random, 100);
    free_some(mixed, random, 100);
    free_some(more, random, 100);
    expect_rss_explained("all freed");
    hak_trim();
    expect_rss_explained("all freed and trimmed");
    EXPECT_LT(heap_rss_bytes(), 6 * kMiB) << heap_stats_text();
}

std::string printed_figures() {
    int fd = memfd_create("figures", 0);
    hak_stats_print(fd);
    return read_whole(fd);
}

TEST(Stats, UntouchedBlocksAreNoTerm) {
    std::vector<void *> blocks;
    for (size_t size : {20 * kKiB, 300 * kKiB, 900 * kKiB, 40 * kMiB, 5 * kGiB})
        blocks.push_back(hak_malloc(size));
    expect_rss_explained("blocks nobody wrote to");
    EXPECT_GT(heap_stats()["untouched_bytes"].number, 5e9);
    std::string printed = printed_figures();
    std::string terms = printed.substr(0, printed.find("SuperSlabs"));
    EXPECT_EQ(terms.find(" -"), std::string::npos) << printed;
    EXPECT_NE(terms.find("of blocks that the program holds and never touched"), std::string::npos) << printed;
    for (void *block : blocks)
        hak_free(block);
    expect_rss_explained("freed untouched");
}

TEST(Stats, LiveFollowsTheProgram) {
    double before = heap_stats()["rss_bytes"]["live"].number;
    std::vector<void *> blocks;
    for (int i = 0; i < 20000; i++)
        blocks.push_back(hak_malloc(512));
    double grown = heap_stats()["rss_bytes"]["live"].number - before;
    EXPECT_NEAR(grown, 20000 * 512, 0.05 * 20000 * 512);
    for (void *block : blocks)
        hak_free(block);
    EXPECT_NEAR(heap_stats()["rss_bytes"]["live"].number, before, 0.05 * 20000 * 512);
}

/* What is free and resident is one figure, beside what may stay. */
TEST(Stats, WhatIsRetainedIsOneFigure) {
    std::vector<void *> blocks;
    for (size_t i = 0; i < 32 * kMiB / 3000; i++)
        blocks.push_back(memset(hak_malloc(3000), 1, 3000));
    Json full = heap_stats();
    double max_full = full["retained_bytes"]["empty_slots_max"].number;
    for (void *block : blocks)
        hak_free(block);
    Json freed = heap_stats();
    for (const Json *stats : {&full, &freed}) {
        const Json &terms = (*stats)["rss_bytes"];
        EXPECT_EQ((*stats)["retained_bytes"]["total"].number,
                  terms["partly_used_slabs"].number + terms["thread_caches"].number + terms["empty_slots"].number +
                      terms["huge_rounding"].number);
    }
    EXPECT_GE(max_full, kMiB) << "RETAIN_BYTES";
    EXPECT_LT(freed["retained_bytes"]["empty_slots_max"].number, max_full) << "less is live";
    char before[32];
    ASSERT_GT(hak_option_get("PURGE", before, sizeof before), 0u);
    ASSERT_EQ(hak_option_set("PURGE", "never"), 0);
    EXPECT_EQ(heap_stats_text().find("empty_slots_max"), std::string::npos) << "there is no bound";
    ASSERT_EQ(hak_option_set("PURGE", before), 0);
}

TEST(Stats, RssIsExplainedWithThreadsThatHoldMemory) {
    std::mutex mutex;
    std::condition_variable changed;
    int filled = 0;
    bool end = false;
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++)
        threads.emplace_back([&, i] {
            Random random(100 + static_cast<uint64_t>(i));
            auto blocks = fill(12 * kMiB, random, 20);
            free_some(blocks, random, 60);
            std::unique_lock<std::mutex> lock(mutex);
            filled++;
            changed.notify_all();
            changed.wait(lock, [&] { return end; });
            lock.unlock();
            free_some(blocks, random, 100);
        });
    {
        std::unique_lock<std::mutex> lock(mutex);
        changed.wait(lock, [&] { return filled == 4; });
        expect_rss_explained("four threads hold blocks and caches");
        EXPECT_GE(heap_stats()["heaps"].number, 4);
        end = true;
        changed.notify_all();
    }
    for (auto &thread : threads)
        thread.join();
    expect_rss_explained("the threads have ended");
}

/* What rings hold is bounded even after many sizes have had their turn: each ring was large while it was alone. */
TEST(Stats, RingsOfManySizesHoldNoMoreThanOne) {
    for (size_t size = 80 * kKiB; size <= kMiB; size += 56 * kKiB)
        for (int round = 0; round < 20; round++) {
            std::vector<void *> blocks;
            for (int i = 0; i < 12; i++) {
                blocks.push_back(hak_malloc(size));
                memset(blocks.back(), 1, size);
            }
            for (void *block : blocks)
                hak_free(block);
        }
    EXPECT_LE(heap_stats()["rss_bytes"]["thread_caches"].number, 5e6) << heap_stats_text();
}

/* In a program with threads, a large heap of small blocks that are freed and allocated at random keeps the slabs it
 * works with. (When it did not, each free adopted a slab and let go of another: eight times the instructions.) */
TEST(Stats, LargeHeapKeepsItsSlabs) {
    std::mutex mutex;
    std::unique_lock<std::mutex> asleep(mutex);
    std::thread other([&] {
        hak_free(hak_malloc(100));
        std::lock_guard<std::mutex> wait(mutex);
    });
    Random random(5);
    std::vector<void *> blocks(450000);
    for (auto &block : blocks)
        block = hak_malloc(64);
    auto replace = [&](size_t times) {
        for (size_t i = 0; i < times; i++) {
            auto &block = blocks[random.below(blocks.size())];
            hak_free(block);
            block = hak_malloc(64);
        }
        return heap_stats()["counters"]["slabs_evicted"].number;
    };
    double settled = replace(2000000);
    EXPECT_LE(replace(500000) - settled, 50000) << heap_stats_text();
    for (void *block : blocks)
        hak_free(block);
    asleep.unlock();
    other.join();
}

TEST(Stats, JsonIsCutOffButCounted) {
    size_t whole = hak_stats_json(nullptr, 0);
    EXPECT_GT(whole, 100u);
    std::string buffer(whole + 4096, 'x');
    EXPECT_NEAR(static_cast<double>(hak_stats_json(buffer.data(), buffer.size())), static_cast<double>(whole), 200);
    EXPECT_EQ(strlen(buffer.c_str()), hak_stats_json(buffer.data(), buffer.size()));
    std::string small(64, 'x');
    hak_stats_json(small.data(), 10);
    EXPECT_EQ(small[9], '\0');
    EXPECT_EQ(small[10], 'x') << "wrote past the buffer";
    hak_stats_json(small.data() + 20, 1);
    EXPECT_EQ(small[20], '\0');
    EXPECT_EQ(small[21], 'x') << "wrote past the buffer";
}

TEST(Stats, PrintWritesText) {
    int fd = memfd_create("stats", 0);
    hak_stats_print(fd);
    std::string text = read_whole(fd);
    EXPECT_NE(text.find("live"), std::string::npos) << text;
    EXPECT_GT(text.size(), 200u);
    errno = 0;
    hak_stats_print(-1); /* a closed descriptor must not end the program */
}

/* Else a reader takes the misses of a class for its hits. */
TEST(Stats, FiguresOfClassesStandBelowTheirHeadings) {
    hak_free(hak_malloc(100));
    std::string printed = printed_figures();
    size_t begin = printed.find("  blocks of "), end = printed.find("  counters\n");
    ASSERT_LT(begin, end) << printed;
    std::vector<std::string> lines = lines_of(printed.substr(begin, end - begin));
    EXPECT_GT(lines.size(), 1U);
    for (const char *heading : {"allocations", "misses", "hits", "held"}) {
        size_t column = lines[0].find(heading);
        for (auto &line : lines) {
            ASSERT_LT(column, line.size()) << line;
            EXPECT_TRUE(line[column - 1] == ' ' && line[column] != ' ') << heading << ":" << line;
        }
    }
}

/* Damages records in a child, which ends by itself or by its alarm. */
template <class Act> void in_child(const char *or_else, Act &&act) {
    pid_t pid = fork();
    if (pid == 0) {
        alarm(kChildSeconds);
        act();
        _exit(testing::Test::HasFailure());
    }
    int status = 0;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0) << or_else;
}

/* Makes a report of the heap after every mid slab was damaged in this way. */
void report_of_spoilt_slabs(void (*spoil)(void *block)) {
    in_child("the report never ends, or reads beyond a record", [&] {
        unsigned c = inside_mid_class_of(48 * 1024);
        std::vector<void *> blocks(64 * inside_class_at(c).blocks);
        for (auto &block : blocks)
            block = hak_malloc(inside_class_at(c).block_bytes);
        for (auto &block : blocks)
            spoil(block);
        hak_stats_json(nullptr, 0);
    });
}

/* Other threads go on while a report is made: it may meet a slab before its record is whole, or find another slab at
 * the second look. A program that asks for its figures must not hang because of that. */
TEST(Stats, AReportMeetsASlabThatIsJustBeingMade) {
    ASSERT_GT(inside_class_at(inside_mid_class_of(48 * 1024)).slots, 1u);
    report_of_spoilt_slabs(inside_record_begin);
}

TEST(Stats, AReportMeetsASlabThatHasChanged) {
    report_of_spoilt_slabs([](void *block) { inside_record_class(block, 0); });
}

TEST(Stats, AReportMeetsASecureSlabThatIsJustBeingMade) { report_of_spoilt_slabs(inside_record_secure); }

/* Where the record of a meshed slab has a number of the slab's, that of a mid slab has the states of blocks. So reports
 * and passes that come late read any number there. */
TEST(Stats, AReportMeetsAMeshedSlabThatHasBecomeAMidSlab) {
    const size_t bytes = 1100, blocks = inside_class_at(inside_mid_class_of(bytes)).blocks;
    ASSERT_GT(blocks, 48u);
    in_child("a pass or a report uses any number as a slab's", [&] {
        std::vector<void *> all(8 * blocks);
        for (auto &block : all)
            block = hak_malloc(bytes);
        for (auto &block : all)
            inside_record_meshed(block);
        hak_stats_json(nullptr, 0);
        hak_option_set("MESH", "1");
        hak_trim();
    });
}

/* A tiny slab that is a mid slab at the second look has no line among the tiny classes, and adds to no other figure. */
TEST(Stats, AReportMeetsATinySlabThatHasChanged) {
    in_child("the slab's bytes were added to other figures", [] {
        void *block = hak_malloc(100);
        Json before = heap_stats();
        for (unsigned c = inside_tiny_classes; c < inside_classes; c++) {
            inside_record_class(block, c);
            Json now = heap_stats();
            EXPECT_EQ(now["superslabs"].text, before["superslabs"].text) << c;
            EXPECT_EQ(now["superslabs_peak"].text, before["superslabs_peak"].text) << c;
            for (auto &[name, value] : before["counters"].members)
                if (name != "atomic_rmw") /* a report uses one to reserve its memory */
                    EXPECT_EQ(now["counters"][name].text, value.text) << name << ", " << c;
        }
    });
}

/* A large or huge block that is gone at the second look: the word read as its size is an address. The report must not
 * claim 100 TiB. */
TEST(Stats, AReportMeetsALargeBlockThatHasBecomeATinySlab) {
    for (size_t bytes : {300 * kKiB, 3 * kMiB})
        in_child("more is live than there is", [bytes] {
            inside_record_list(hak_malloc(bytes));
            Json stats = heap_stats();
            EXPECT_LE(stats["rss_bytes"]["live"].number,
                      stats["superslabs_peak"].number * static_cast<double>(inside_superslab_bytes));
            std::vector<hak_class_use> classes(hak_class_uses(nullptr, 0));
            hak_class_uses(classes.data(), classes.size());
            EXPECT_LE(static_cast<double>(classes.back().slab_bytes),
                      stats["superslabs_peak"].number * static_cast<double>(inside_superslab_bytes));
        });
}

/* Else it reads outside of all tables. */
TEST(Stats, AReportMeetsAPackedSlotThatHasBecomeATinySlab) { EXPECT_EQ(inside_packed_slots_of_two_lives(), 1u); }

/* A path can be longer than the buffer in which a line is composed. */
TEST(Text, IsWrittenWholeWhenLongerThanTheBuffer) {
    for (size_t length : {0, 13, 14, 15, 16, 17, 18, 40, 5000}) {
        int fd = memfd_create("text", 0);
        std::string text(length, 'x');
        inside_text_write(fd, text.c_str());
        EXPECT_EQ(read_whole(fd), "<" + text + ">");
    }
}

TEST(Options, EveryOptionReadsTheSameUnderAllItsNames) {
    Json stats = heap_stats();
    for (auto &[name, value] : stats["options"].members) {
        char bare[256] = "", full[256] = "", lower[256] = "";
        std::string small = "hakmem_" + name;
        for (char &c : small)
            c = static_cast<char>(tolower(c));
        size_t length = hak_option_get(name.c_str(), bare, sizeof bare);
        EXPECT_EQ(hak_option_get(("HAKMEM_" + name).c_str(), full, sizeof full), length) << name;
        EXPECT_EQ(hak_option_get(small.c_str(), lower, sizeof lower), length) << name;
        EXPECT_STREQ(bare, full) << name;
        EXPECT_STREQ(bare, lower) << name;
        EXPECT_EQ(strlen(bare), length) << name;
        EXPECT_EQ(hak_option_get(name.c_str(), nullptr, 0), length) << name;
        if (length < 2)
            continue;
        char cut[8] = "xxxxxxx";
        EXPECT_EQ(hak_option_get(name.c_str(), cut, 2), length);
        EXPECT_EQ(cut[0], bare[0]);
        EXPECT_EQ(cut[1], '\0');
        EXPECT_EQ(cut[2], 'x') << "wrote past the buffer";
    }
}

TEST(Options, AnOptionCanBeSetToItsOwnValue) {
    Json stats = heap_stats();
    for (auto &[name, value] : stats["options"].members) {
        char before[256], after[256];
        if (hak_option_get(name.c_str(), before, sizeof before) == 0)
            continue;
        int answer = hak_option_set(name.c_str(), before);
        EXPECT_TRUE(answer == 0 || answer == EPERM) << name << "=" << before << " gives " << answer;
        hak_option_get(name.c_str(), after, sizeof after);
        EXPECT_STREQ(before, after) << name;
    }
}

TEST(Options, WrongNamesAndValues) {
    char buffer[64];
    for (const char *name :
         {"", "NOSUCH", "HAKMEM_", "HAKMEM_NOSUCH", "PURGEX", "PURG", "=PURGE", "HAKMEM_HAKMEM_PURGE"}) {
        errno = 0;
        EXPECT_EQ(hak_option_get(name, buffer, sizeof buffer), 0u) << name;
        EXPECT_EQ(errno, EINVAL) << name;
        EXPECT_EQ(hak_option_set(name, "1"), EINVAL) << name;
    }
    char before[64], after[64];
    ASSERT_GT(hak_option_get("PURGE", before, sizeof before), 0u);
    std::string long_value(100000, '7');
    for (const char *value : {"foo", " ", "-1x", "9999999999999999999999", long_value.c_str()})
        EXPECT_EQ(hak_option_set("PURGE", value), EINVAL) << value;
    hak_option_get("PURGE", after, sizeof after);
    EXPECT_STREQ(before, after) << "a refused value must change nothing";
}

} // namespace

/* A purger would give memory back, and empty rings, between what a test does and what it reads. */
extern const char *hak_options;
const char *hak_options = "PURGER=0";
