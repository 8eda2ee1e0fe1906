/* The SuperSlab pool by itself: spans and runs are disjoint, aligned, zero where promised, and come back. If it fails,
 * two blocks share memory, or free memory is lost. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <thread>
#include <vector>

#include <hakmem.h>

#include "../heap_stats.h"
#include "../support.h"
#include "inside.h"

namespace {

constexpr size_t kSlot = 65536, kPerSuperSlab = INSIDE_SUPERSLAB_SLOTS;

struct Span {
    size_t slot;
    unsigned slots;
    unsigned tag;
};

/* Who holds which slot; 0 means nobody. All actors share it. */
class Holders {
  public:
    static constexpr size_t kMost = 1 << 20;
    Holders() : held_(new std::atomic<uint8_t>[kMost]()) {}
    ~Holders() { delete[] held_; }
    void take(size_t slot, size_t slots) {
        for (size_t i = slot; i < slot + slots; i++)
            if (i >= kMost || held_[i].exchange(1) != 0)
                fail("was handed out while it was taken", i);
    }
    void give(size_t slot, size_t slots) {
        for (size_t i = slot; i < slot + slots; i++)
            if (held_[i].exchange(0) != 1)
                fail("was lost by the test", i);
    }

  private:
    [[noreturn]] static void fail(const char *what, size_t slot) {
        fprintf(stderr, "pool: slot %zu %s\n", slot, what);
        abort();
    }
    std::atomic<uint8_t> *held_;
};

class Actor {
  public:
    Actor(uint64_t seed, Holders &holders) : random_(seed), holders_(holders), client_(inside_pool_client_new()) {}
    ~Actor() {
        give_all();
        inside_pool_settle(client_);
        inside_pool_client_delete(client_);
    }

    void step(size_t most_slots) {
        size_t dice = random_.below(100);
        if (dice < 48 && held_ < most_slots)
            return take();
        if (dice < 52 && held_ < most_slots)
            return take_run();
        if (dice < 60)
            return extend();
        if (dice < 62)
            return inside_pool_settle(client_);
        if (dice == 62)
            return (void)inside_pool_purge(client_, random_.below(100));
        give_one();
    }
    void give_all() {
        while (!spans_.empty() || !runs_.empty())
            give_one();
    }
    void purge_all() { inside_pool_purge(client_, 0); }
    void *client() { return client_; }

  private:
    /* Checks a word in every fourth page: it must be zero if the pool says so. Then writes to it. */
    void check_memory(size_t slot, size_t slots, bool zero) {
        char *at = inside_slot_address(slot);
        for (size_t byte = 0; byte < slots * kSlot; byte += 16384) {
            if (zero && *reinterpret_cast<uint64_t *>(at + byte) != 0) {
                fprintf(stderr, "pool: slot %zu is not zero at byte %zu as promised\n", slot, byte);
                abort();
            }
            memset(at + byte, 0xee, 8);
        }
    }
    void take() {
        unsigned slots = random_.below(3) != 0 ? 1 : 1 + static_cast<unsigned>(random_.below(kPerSuperSlab));
        unsigned align = 1;
        while (random_.below(4) == 0 && align < 16)
            align *= 2;
        unsigned tag = slots == 1 ? static_cast<unsigned>(random_.below(6)) : 0;
        int zero = 0;
        size_t slot = inside_pool_take(client_, slots, align, tag, &zero);
        if (slot == inside_no_slot)
            FAIL() << "no memory";
        holders_.take(slot, slots);
        if (slot % align != 0 || slot / kPerSuperSlab != (slot + slots - 1) / kPerSuperSlab) {
            fprintf(stderr, "pool: %u slots at %zu, aligned to %u\n", slots, slot, align);
            abort();
        }
        check_memory(slot, slots, zero != 0);
        spans_.push_back({slot, slots, tag});
        held_ += slots;
    }
    void take_run() {
        size_t n = 1 + random_.below(3), align = (2 * kMiB) << random_.below(3);
        int zero = 0;
        size_t first = inside_pool_take_run(client_, n, align, &zero);
        if (first == inside_no_slot)
            FAIL() << "no memory";
        holders_.take(first * kPerSuperSlab, n * kPerSuperSlab);
        if (!aligned_to(inside_slot_address(first * kPerSuperSlab), align))
            abort();
        check_memory(first * kPerSuperSlab, n * kPerSuperSlab, zero != 0);
        runs_.push_back({first, static_cast<unsigned>(n), 0});
        held_ += n * kPerSuperSlab;
    }
    void extend() {
        if (!spans_.empty()) {
            Span &span = spans_[random_.below(spans_.size())];
            unsigned room = static_cast<unsigned>(kPerSuperSlab - span.slot % kPerSuperSlab);
            unsigned wanted = span.slots + static_cast<unsigned>(random_.below(room - span.slots + 1));
            if (wanted > span.slots && inside_pool_extend(client_, span.slot, span.slots, wanted)) {
                holders_.take(span.slot + span.slots, wanted - span.slots);
                held_ += wanted - span.slots;
                span.slots = wanted;
            }
        }
        if (runs_.empty())
            return;
        Span &run = runs_[random_.below(runs_.size())];
        if (inside_pool_extend_run(client_, run.slot, run.slots, run.slots + 1)) {
            holders_.take((run.slot + run.slots) * kPerSuperSlab, kPerSuperSlab);
            run.slots++;
            held_ += kPerSuperSlab;
        }
    }
    void give_one() {
        if (!runs_.empty() && (spans_.empty() || random_.below(10) == 0)) {
            Span run = pick(runs_);
            holders_.give(run.slot * kPerSuperSlab, run.slots * kPerSuperSlab);
            held_ -= run.slots * kPerSuperSlab;
            inside_pool_give_run(client_, run.slot, run.slots, 1);
        } else if (!spans_.empty()) {
            Span span = pick(spans_);
            holders_.give(span.slot, span.slots);
            held_ -= span.slots;
            if (random_.below(4) == 0 &&
                madvise(inside_slot_address(span.slot), span.slots * kSlot, MADV_DONTNEED) == 0)
                inside_pool_give_purged(client_, span.slot, span.slots);
            else
                inside_pool_give(client_, span.slot, span.slots, span.tag);
        }
    }
    Span pick(std::vector<Span> &from) {
        std::swap(from[random_.below(from.size())], from.back());
        Span span = from.back();
        from.pop_back();
        return span;
    }

    Random random_;
    Holders &holders_;
    void *client_;
    std::vector<Span> spans_, runs_;
    size_t held_ = 0;
};

/* Each program touches them, so a further one is a page fault more in each. */
TEST(Pool, WhatSmallProgramsNeedIsInOneStretch) { EXPECT_EQ(inside_lowest_stretches(), 1u); }

TEST(Pool, OneThread) {
    Holders holders;
    Actor actor(1, holders);
    for (size_t most : {20, 500, 2000, 60}) {
        for (int i = 0; i < 10000 / kShorter; i++)
            actor.step(most);
        actor.give_all();
        EXPECT_EQ(inside_pool_count().active_slots, 0u) << "slots were lost";
    }
    inside_pool_settle(actor.client());
    actor.purge_all();
    EXPECT_EQ(inside_pool_count().empty_slots, 0u) << "a purge left EMPTY slots";
}

TEST(Pool, FourThreads) {
    Holders holders;
    for (int round = 0; round < 8; round++) {
        std::vector<std::thread> threads;
        for (uint64_t t = 0; t < 4; t++)
            threads.emplace_back([&, t] {
                Actor actor(static_cast<uint64_t>(round) * 4 + t, holders);
                for (int i = 0; i < 4000 / kShorter; i++)
                    actor.step(round % 2 == 0 ? 40 : 400);
            });
        for (auto &thread : threads)
            thread.join();
        ASSERT_EQ(inside_pool_count().active_slots, 0u) << "slots were lost";
    }
}

TEST(Pool, FreedSlotsAreTakenBeforeNewSuperSlabs) {
    Holders holders;
    Actor actor(1, holders);
    int zero;
    size_t slots[kPerSuperSlab * 4];
    for (size_t &slot : slots)
        slot = inside_pool_take(actor.client(), 1, 1, 3, &zero);
    size_t peak = inside_pool_count().superslabs_peak;
    for (int round = 0; round < 50; round++) {
        for (size_t i = static_cast<size_t>(round % 2); i < kPerSuperSlab * 4; i += 2)
            inside_pool_give(actor.client(), slots[i], 1, 3);
        for (size_t i = static_cast<size_t>(round % 2); i < kPerSuperSlab * 4; i += 2)
            slots[i] = inside_pool_take(actor.client(), 1, 1, 3, &zero);
    }
    EXPECT_EQ(inside_pool_count().superslabs_peak, peak) << "new SuperSlabs were taken beside free slots";
    for (size_t slot : slots)
        inside_pool_give(actor.client(), slot, 1, 3);
}

TEST(Pool, PurgedSlotsReadAsZeroAndAreNotResident) {
    Holders holders;
    Actor actor(1, holders);
    int zero = 0;
    inside_pool_rest(actor.client()); /* what other tests left LAZY or resident would be taken first */
    inside_pool_purge(actor.client(), 0);
    size_t slot = inside_pool_take(actor.client(), 8, 1, 0, &zero);
    memset(inside_slot_address(slot), 0x77, 8 * kSlot);
    auto address = reinterpret_cast<uintptr_t>(inside_slot_address(slot));
    inside_pool_give(actor.client(), slot, 8, 0);
    inside_pool_settle(actor.client());
    inside_pool_purge(actor.client(), 0);
    unsigned char pages[8 * kSlot / 4096];
    ASSERT_EQ(mincore(reinterpret_cast<void *>(address), 8 * kSlot, pages), 0);
    for (unsigned char page : pages)
        ASSERT_EQ(page & 1, 0) << "a purged page is resident";
    size_t again = inside_pool_take(actor.client(), 8, 1, 0, &zero);
    EXPECT_EQ(again, slot) << "the lowest slots go first";
    EXPECT_TRUE(zero);
    EXPECT_EQ(first_dirty(inside_slot_address(again), 8 * kSlot), 8 * kSlot);
    inside_pool_give(actor.client(), again, 8, 0);
}

TEST(Pool, SlotsThatWerePurgedBeforeDoNotCountAsEmpty) {
    Holders holders;
    Actor actor(1, holders);
    int zero = 0;
    size_t empty = inside_pool_count().empty_slots, slot = inside_pool_take(actor.client(), 8, 1, 0, &zero);
    memset(inside_slot_address(slot), 0x77, 8 * kSlot);
    ASSERT_EQ(madvise(inside_slot_address(slot), 8 * kSlot, MADV_DONTNEED), 0);
    inside_pool_give_purged(actor.client(), slot, 8);
    inside_pool_settle(actor.client());
    EXPECT_LE(inside_pool_count().empty_slots, empty) << "they would be purged once more";
    EXPECT_EQ(inside_pool_purge(actor.client(), 0), 0u);
    size_t again = inside_pool_take(actor.client(), 8, 1, 0, &zero);
    EXPECT_EQ(again, slot) << "the lowest slots go first";
    EXPECT_TRUE(zero);
    EXPECT_EQ(first_dirty(inside_slot_address(again), 8 * kSlot), 8 * kSlot);
    inside_pool_give(actor.client(), again, 8, 0);
}

/* The oldest ones are the lower two, and the purge of the higher of these takes the other with it. */
TEST(Pool, TheBoundOfEmptySuperSlabsHoldsAtOnce) {
    Holders holders;
    Actor actor(1, holders);
    int zero = 0;
    ASSERT_EQ(hak_option_set("PURGE", "never"), 0);
    actor.purge_all();
    size_t slots[4];
    for (size_t &slot : slots)
        slot = inside_pool_take(actor.client(), kPerSuperSlab, 1, 0, &zero);
    for (size_t slot : {slots[1], slots[0], slots[2], slots[3]}) {
        inside_pool_give(actor.client(), slot, kPerSuperSlab, 0);
        inside_pool_settle(actor.client());
        std::this_thread::sleep_for(std::chrono::milliseconds(30)); /* more than a tick of the clock */
    }
    EXPECT_EQ(inside_pool_cached(), 4u);
    ASSERT_EQ(hak_option_set("SS_CACHE_COUNT", "1"), 0);
    inside_pool_settle(actor.client());
    EXPECT_EQ(inside_pool_cached(), 1u);
    ASSERT_EQ(hak_option_set("SS_CACHE_COUNT", "256"), 0);
    ASSERT_EQ(hak_option_set("PURGE", "auto"), 0);
}

/* ---- scattered slots ---- */

/* Restores the options, however the test ends. */
class Options {
  public:
    Options(std::initializer_list<std::pair<const char *, const char *>> values) {
        for (auto [name, value] : values) {
            char text[64];
            EXPECT_GT(hak_option_get(name, text, sizeof text), 0u);
            before_.emplace_back(name, text);
            EXPECT_EQ(hak_option_set(name, value), 0) << name;
        }
    }
    ~Options() {
        for (auto &[name, value] : before_)
            hak_option_set(name.c_str(), value.c_str());
    }

  private:
    std::vector<std::pair<std::string, std::string>> before_;
};

/* Those in use between them hold what they held. */
TEST(Pool, ScatteredSlotsArePurged) {
    constexpr unsigned kSlots = 3 * kPerSuperSlab;
    Options options{{"RETAIN_BYTES", "1g"}};
    Holders holders;
    Actor actor(1, holders);
    inside_pool_purge(actor.client(), 0);
    int zero = 0;
    std::vector<size_t> slots;
    for (unsigned i = 0; i < kSlots; i++) {
        slots.push_back(inside_pool_take(actor.client(), 1, 1, 0, &zero));
        inside_slot_address(slots[i])[0] = 1;
    }
    std::sort(slots.begin(), slots.end());
    for (unsigned i = 0; i < kSlots; i += 2)
        inside_pool_give(actor.client(), slots[i], 1, 0);
    inside_pool_settle(actor.client());
    EXPECT_EQ(inside_pool_purge(actor.client(), 0), kSlots / 2);
    for (unsigned i = 0; i < kSlots; i += 2)
        EXPECT_EQ(inside_slot_address(slots[i])[0], 0) << i;
    for (unsigned i = 1; i < kSlots; i += 2)
        EXPECT_EQ(inside_slot_address(slots[i])[0], 1);
    for (unsigned i = 1; i < kSlots; i += 2)
        inside_pool_give(actor.client(), slots[i], 1, 0);
}

/* ---- blocks that the kernel moved ---- */

/* Grows a block by moving it, touches all of it and frees it. Returns the page faults. */
long grow_and_free(size_t most) {
    struct rusage before, after;
    std::vector<void *> walls; /* prevent growth in place */
    getrusage(RUSAGE_SELF, &before);
    auto *block = static_cast<char *>(hak_malloc(3 * kMiB));
    for (size_t size = 4 * kMiB; size <= most; size *= 2) {
        walls.push_back(hak_malloc(2 * kMiB));
        block = static_cast<char *>(hak_realloc(block, size));
        for (size_t at = 0; at < size; at += 4096)
            block[at] = 1;
    }
    getrusage(RUSAGE_SELF, &after);
    hak_free(block);
    for (void *wall : walls)
        hak_free(wall);
    return after.ru_minflt - before.ru_minflt;
}

bool page_is_resident(uintptr_t page) {
    unsigned char at = 0;
    EXPECT_EQ(mincore(reinterpret_cast<void *>(page), 1, &at), 0);
    return (at & 1) != 0;
}

/* Frees the blocks that touch the page, if they are not free yet. */
void free_on_page(std::vector<char *> &blocks, size_t bytes, uintptr_t page) {
    for (char *&block : blocks) {
        auto at = reinterpret_cast<uintptr_t>(block);
        if (block != nullptr && at < page + 4096 && at + bytes > page) {
            hak_free(block);
            block = nullptr;
        }
    }
}

/* A block of 96 bytes lies on both pages, and leaves with the first. If it fails, the second one stays for ever. */
TEST(Pages, GoThoughABlockOnThemIsInAPageThatWentBefore) {
    constexpr size_t kBytes = 96;
    if (sysconf(_SC_PAGESIZE) != 4096)
        GTEST_SKIP() << "other pages have other blocks on them";
    if (getenv("HAKMEM_HUGE_PAGES") == nullptr) { /* a process of its own: what it leaves would count in other tests */
        Outcome outcome = run_self({"--gtest_filter=Pages.*"}, {"HAKMEM_HUGE_PAGES=never"});
        EXPECT_TRUE(outcome.exited(0)) << outcome.describe();
        return;
    }
    std::vector<char *> blocks(8 * kSlot / kBytes); /* some slabs, of which the second is whole, and not in use */
    for (char *&block : blocks)
        block = static_cast<char *>(memset(hak_malloc(kBytes), 1, kBytes));
    uintptr_t slab = reinterpret_cast<uintptr_t>(blocks[2 * kSlot / kBytes]) / kSlot * kSlot;
    for (uintptr_t page : {slab + 3 * 4096, slab + 4 * 4096}) {
        EXPECT_TRUE(page_is_resident(page));
        free_on_page(blocks, kBytes, page);
        hak_trim();
        EXPECT_FALSE(page_is_resident(page)) << "page " << (page - slab) / 4096;
    }
    EXPECT_TRUE(page_is_resident(slab + 5 * 4096)) << "where blocks are live";
    for (char *block : blocks)
        hak_free(block);
}

long mappings() {
    long lines = 0;
    FILE *file = fopen("/proc/self/maps", "re");
    for (int c; (c = getc(file)) != EOF;)
        lines += c == '\n';
    fclose(file);
    return lines;
}

/* If it fails, each vector of a program pays for all its pages again, or it runs out of mappings. */
TEST(Moves, WhatGrewAndWasFreedServesTheNext) {
    if (getenv("HAKMEM_HUGE_PAGES") == nullptr) {
        Outcome outcome = run_self({"--gtest_filter=Moves.*"}, {"HAKMEM_HUGE_PAGES=never", "HAKMEM_PURGE=never"});
        EXPECT_TRUE(outcome.exited(0)) << outcome.describe();
        return;
    }
    long moves = counter("huge_moved_pages"), first = grow_and_free(64 * kMiB), later = 0;
    if (counter("huge_moved_pages") == moves)
        GTEST_SKIP() << "the kernel moves no pages";
    for (int round = 0; round < 4; round++)
        later = grow_and_free(64 * kMiB);
    EXPECT_LT(later, first / 2);
    EXPECT_TRUE(inside_moved_is_counted());
    for (int round = 0; round < 80; round++) /* of other sizes, so that runs overlap */
        grow_and_free((size_t{8} << round % 4) * kMiB);
    EXPECT_TRUE(inside_moved_is_counted());
    EXPECT_LT(mappings(), 1000);
}

/* ---- ages and slots ---- */

/* If it fails, memory goes back at once, or not for 49 days, where two threads note a time together. */
TEST(Ages, AreThoseOfAClockThatWrapsAndNoneIfSetMeanwhile) {
    EXPECT_EQ(inside_age_ms(10, 5), 5u);
    EXPECT_EQ(inside_age_ms(3, UINT32_MAX - 1), 5u);
    EXPECT_EQ(inside_age_ms(5, 6), 0u);
    EXPECT_EQ(inside_age_ms(0, 60000), 0u);
    EXPECT_GT(inside_age_ms(0, 60001), 0u);
}

/* If it fails, a look at a slab's blocks goes on in the next one. */
TEST(Slots, HaveTheirOwnAddressesOnly) {
    EXPECT_TRUE(inside_same_slot(kSlot, 2 * kSlot - 1));
    EXPECT_FALSE(inside_same_slot(kSlot, 2 * kSlot));
    EXPECT_FALSE(inside_same_slot(2 * kSlot, 3 * kSlot));
    EXPECT_FALSE(inside_same_slot(kSlot, kSlot - 1));
}

/* ---- what calloc clears ---- */

/* If it fails, a table of which little is used costs all its memory where another one lay before. */
TEST(Cleared, PagesThatWereNeverWrittenStayWithoutMemory) {
    if (kShorter != 1)
        GTEST_SKIP() << "a sanitizer's own memory would be counted";
    if (getenv("HAKMEM_HUGE_PAGES") == nullptr) {
        Outcome outcome = run_self({"--gtest_filter=Cleared.*"}, {"HAKMEM_HUGE_PAGES=never", "HAKMEM_PURGE=never"});
        EXPECT_TRUE(outcome.exited(0)) << outcome.describe();
        return;
    }
    constexpr size_t kBytes = 16 * kMiB;
    char *block = static_cast<char *>(hak_malloc(kBytes));
    block[kBytes / 4] = 1; /* where calloc looks, as it does in two other places */
    size_t before = process_rss_bytes();
    hak_free(block);
    char *again = static_cast<char *>(hak_calloc(1, kBytes));
    ASSERT_EQ(again, block);
    EXPECT_EQ(again[kBytes / 4], 0);
    EXPECT_LT(process_rss_bytes(), before + kBytes / 4);
    hak_free(again);
}

/* ---- the cache of SuperSlabs ---- */

/* And the system cannot take it? */
bool is_resident(size_t superslab) {
    unsigned char page = 0;
    EXPECT_EQ(mincore(inside_slot_address(superslab * kPerSuperSlab), 1, &page), 0);
    return (page & 1) != 0 && !inside_is_lazy(superslab * kPerSuperSlab);
}

TEST(Cache, EvictsTheOldestAtOnceInEveryMode) {
    constexpr size_t kCached = 3, kRuns = 6;
    for (const char *mode : {"never", "lazy", "auto"}) {
        Options options{{"PURGE", mode}, {"RETAIN_BYTES", "1g"}, {"SS_CACHE_COUNT", "3"}};
        Holders holders;
        Actor actor(1, holders);
        inside_pool_purge(actor.client(), 0);
        int zero;
        size_t runs[kRuns];
        for (size_t &run : runs)
            memset(
                inside_slot_address((run = inside_pool_take_run(actor.client(), 1, 2 * kMiB, &zero)) * kPerSuperSlab),
                1, kSlot);
        size_t order[kRuns] = {2, 5, 0, 3, 1, 4};
        for (size_t i = 0; i < kRuns; i++) {
            inside_pool_give_run(actor.client(), runs[order[i]], 1, 1);
            EXPECT_LE(inside_pool_cached(), kCached) << mode;
            for (size_t j = 0; j <= i; j++)
                EXPECT_EQ(is_resident(runs[order[j]]), j + kCached > i) << mode << ", the " << j << "th after " << i;
            for (uint32_t then = inside_pool_clock_ms(); inside_pool_clock_ms() == then; usleep(500))
                inside_pool_settle(actor.client()); /* makes the next one younger */
        }
        inside_pool_purge(actor.client(), 0);
    }
}

TEST(Cache, IsBoundInBytes) {
    Options options{{"PURGE", "never"}, {"RETAIN_BYTES", "1g"}, {"SS_CACHE_BYTES", "4m"}};
    Holders holders;
    Actor actor(1, holders);
    inside_pool_purge(actor.client(), 0);
    int zero;
    size_t runs[4];
    for (size_t &run : runs)
        run = inside_pool_take_run(actor.client(), 1, 2 * kMiB, &zero);
    for (size_t run : runs)
        inside_pool_give_run(actor.client(), run, 1, 1);
    EXPECT_EQ(inside_pool_cached(), 2u);
    inside_pool_purge(actor.client(), 0);
}

TEST(Cache, AgeSparesOneSuperSlab) {
    Options options{{"PURGE", "never"}, {"SS_CACHE_AGE_MS", "100"}};
    Holders holders;
    Actor actor(1, holders);
    inside_pool_purge(actor.client(), 0);
    int zero;
    size_t runs[4];
    for (size_t &run : runs) {
        run = inside_pool_take_run(actor.client(), 1, 2 * kMiB, &zero);
        memset(inside_slot_address(run * kPerSuperSlab), 1, kSlot);
    }
    for (size_t run : runs)
        inside_pool_give_run(actor.client(), run, 1, 1);
    EXPECT_EQ(inside_pool_cached(), 4u);
    inside_pool_decay(actor.client(), 1000);
    EXPECT_EQ(inside_pool_cached(), 1u);
    inside_pool_purge(actor.client(), 0);
}

struct CacheCounts {
    long pushed = counter("cache_pushed"), popped = counter("cache_popped"),
         evicted = counter("cache_evicted_count") + counter("cache_evicted_bytes") + counter("cache_evicted_age"),
         cached = static_cast<long>(inside_pool_cached());
};

TEST(Cache, PushesPopsAndEvictionsAreCounted) {
    Options options{{"RETAIN_BYTES", "1g"}};
    CacheCounts before;
    void *blocks[8];
    for (int round = 0; round < 3; round++) {
        for (void *&block : blocks)
            memset(block = hak_malloc(3 * kMiB), 1, 3 * kMiB);
        for (void *block : blocks)
            hak_free(block);
    }
    CacheCounts full;
    EXPECT_GE(full.pushed - before.pushed, 3 * 16);
    EXPECT_GE(full.popped - before.popped, 2 * 16);
    EXPECT_EQ(full.evicted, before.evicted);
    hak_trim();
    CacheCounts after;
    EXPECT_GE(after.evicted - full.evicted, 16);
    EXPECT_EQ(after.pushed - before.pushed - (after.popped - before.popped) - (after.evicted - before.evicted),
              after.cached - before.cached);
}

/* An arena's SuperSlabs are no part of the cache while the arena lives. */
TEST(Cache, WhatComesAndGoesWithArenasIsCounted) {
    Options options{{"RETAIN_BYTES", "1g"}};
    CacheCounts before;
    for (int round = 0; round < 3; round++) {
        memset(hak_malloc(1), 1, 1);
        void *huge = hak_malloc(3 * kMiB);
        hak_free(memset(huge, 1, 3 * kMiB)); /* cached: the arena takes it */
        hak_arena *arena = hak_arena_new(nullptr);
        for (size_t size : {size_t{64}, size_t{5000}, size_t{300000}, 3 * kMiB})
            for (int i = 0; i < 20; i++)
                hak_free(memset(hak_arena_malloc(arena, size), 1, size));
        memset(hak_arena_malloc(arena, 100000), 1, 100000);
        hak_arena_destroy(arena);
    }
    CacheCounts after;
    EXPECT_GT(after.pushed, before.pushed);
    EXPECT_EQ(after.pushed - before.pushed - (after.popped - before.popped) - (after.evicted - before.evicted),
              after.cached - before.cached);
}

/* Rings that hold more than a SuperSlab … */
void fill_rings() {
    std::vector<void *> blocks;
    for (int round = 0; round < 32; round++) { /* they grow meanwhile */
        for (size_t i = 0; i < 160; i++)
            blocks.push_back(hak_malloc((16 + i % 4 * 4) * kKiB));
        for (void *block : blocks)
            hak_free(block);
        blocks.clear();
    }
}
/* … and the heap grows. */
void grow() {
    std::vector<void *> blocks;
    for (int i = 0; i < 64; i++)
        blocks.push_back(hak_malloc(3 * kMiB));
    for (void *block : blocks)
        hak_free(block);
}

/* If a purger is still running, it may empty the rings first; then a later try succeeds. */
TEST(Cache, AGrowingHeapEmptiesRingsThatHoldASuperSlab) {
    long drains = counter("tension_drains"), spans = counter("tension_freed_spans");
    void *ballast = hak_malloc(64 * kMiB); /* without it the heap shrinks by half, which also empties rings */
    for (int tries = 0; tries < 100 && counter("tension_drains") == drains; tries++) {
        fill_rings();
        grow();
    }
    EXPECT_GE(counter("tension_drains") - drains, 1);
    EXPECT_GE(counter("tension_freed_spans") - spans, 16);
    hak_free(ballast);
}

/* What others' slabs get back may make these empty, too. */
TEST(Cache, AGrowingHeapSendsWhatItHasFreedOfOthers) {
    std::promise<void> end;
    std::promise<std::vector<void *>> made;
    std::thread other([&] {
        std::vector<void *> blocks(50);
        for (void *&block : blocks)
            block = hak_malloc(700);
        made.set_value(blocks);
        end.get_future().wait();
    });
    std::vector<void *> blocks = made.get_future().get();
    auto waiting = [&] { return inside_tiny_record_of(blocks[0], inside_heap()).outbox_blocks; };
    void *ballast = hak_malloc(kGiB); /* the heap does not shrink by a third */
    unsigned sent = 0;
    for (size_t i = 1; i < blocks.size() && sent == 0; i++) {
        fill_rings();
        long drains = counter("tension_drains");
        hak_free(blocks[i]);
        sent = waiting();
        grow();
        if (counter("tension_drains") == drains)
            sent = 0; /* a purger has emptied the rings first */
    }
    EXPECT_NE(sent, 0u);
    EXPECT_EQ(waiting(), 0u);
    hak_free(ballast);
    end.set_value();
    other.join();
}

/* The purger inspects a thread's rings in the middle of a malloc and leaves again. When malloc then puts blocks into a
 * ring, the ring must still have room for them. */
TEST(Rings, AreNotOverfilledWhenThePurgerInspectsThem) {
    constexpr int kBlocks = 200;
    static void *blocks[kBlocks];
    for (auto &block : blocks)
        block = hak_malloc(2048);
    std::atomic<bool> end{false};
    void *heap = inside_heap();
    std::thread purger([&] {
        while (!end)
            inside_rings_disturb(heap);
    });
    size_t overfull = 0;
    for (int i = 0; i < 1000000 / kShorter && overfull == 0; i++) {
        hak_free(hak_malloc(2048));
        for (int n = 0; i % 1000 == 0 && n < kBlocks; n++) /* the ring is full … */
            hak_free(blocks[n]);
        for (int n = 0; i % 1000 == 500 && n < kBlocks; n++) /* … and less so */
            blocks[n] = hak_malloc(2048);
        overfull = inside_rings_overfull(heap);
    }
    end = true;
    purger.join();
    EXPECT_EQ(overfull, 0u);
}

/* Batches of blocks that fit into RING_BYTES are hits, however many blocks they are. */
TEST(Rings, HoldAsManyBlocksAsTheirBytesAllow) {
    struct {
        size_t count, bytes;
        const char *misses;
    } batches[] = {{900, 3000, "ring_refills"}, {480, 8000, "ring_refills"}, {30, 100000, "large_spans"}};
    ASSERT_EQ(hak_option_set("RETAIN_BYTES", "4m"), 0); /* so much rings of large blocks may hold */
    for (auto &batch : batches) {
        std::thread([&] { /* has no rings yet */
                          std::vector<void *> blocks(batch.count);
                          auto round = [&] {
                              for (auto &block : blocks)
                                  block = hak_malloc(batch.bytes);
                              for (auto &block : blocks)
                                  hak_free(block);
                          };
                          for (int i = 0; i < 40; i++)
                              round();
                          long before = counter(batch.misses);
                          for (int i = 0; i < 20; i++)
                              round();
                          EXPECT_LE(counter(batch.misses) - before, 4)
                              << batch.count << " blocks of " << batch.bytes << " bytes";
        })
            .join();
    }
    ASSERT_EQ(hak_option_set("RETAIN_BYTES", "1m"), 0);
}

/* A signal handler forks while a ring is being enlarged, and the child allocates: the recorded sum of what the rings
 * may hold is wrong. The child must not wait forever for other rings to shrink. */
TEST(Rings, AdaptWhenTheirSumIsWrong) {
    constexpr size_t kBytes = 16 * 1024;
    pid_t pid = fork();
    if (pid == 0) {
        alarm(kChildSeconds);
        std::vector<void *> blocks(400);
        for (size_t most = 1; most < 60; most++) { /* up and down, so that the ring becomes as large as it may */
            for (size_t i = 0; i < most; i++)
                blocks[i] = hak_malloc(kBytes);
            for (size_t i = 0; i < most; i++)
                hak_free(blocks[i]);
        }
        for (auto &block : blocks)
            block = hak_malloc(kBytes);
        inside_rings_interrupt(inside_heap());
        for (auto &block : blocks)
            hak_free(block);
        _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0) << "a free never ends";
}

} // namespace

/* A purger would give memory back, and empty rings, between what a test does and what it reads. */
extern const char *hak_options;
const char *hak_options = "PURGER=0";
