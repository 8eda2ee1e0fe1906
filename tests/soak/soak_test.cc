/* A scaled-down day of a server: live memory drifts up and down from hour to hour and changes its sizes, threads come
 * and go, and threads free each other's blocks. Resident memory is sampled throughout. It must stay below 1.25 times
 * the peak of live memory, blocks rounded up (1.75 times where an hour cannot use the blocks of the previous one, 1.45
 * with HAKMEM_MESH, where the proportional set size counts; 0.05 more over several days, whose peak is that of more
 * hours). What the system can take at once, LAZY memory, does not count.
 *
 *  1. A day has 24 hours. Each hour has its own number of threads and its own goal of live bytes. Sizes are those of
 *     all recorded traces or, in the second test, each hour those of one trace. HAK_TEST_LONGER=N runs N days in one
 *     process, so growth from day to day shows as well.
 *  2. Each thread lives for one shift and does its share of the operations, on a table of blocks that all threads
 *     share: it allocates into a place and frees the block that another thread left there.
 *  3. The table is mapped and touched before the first sample, so it counts neither as live nor as resident. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>
#include <hakmem.h>

#include <atomic>
#include <cmath>
#include <thread>

#include "../fuzz/trace_sizes.h"
#include "../support.h"
#include "../surface.h"

namespace {

const Surface &S = subject();

constexpr unsigned kHours = 24, kShifts = 6, kThreadsMost = 8;
constexpr size_t kPlaces[] = {size_t{1} << 20, size_t{1} << 16}; /* for young blocks, for old ones */
constexpr size_t kSamplesEvery = 4096;
constexpr size_t kSharesEvery = 4; /* samples: the kernel takes milliseconds to add up shares of pages */
constexpr size_t kLeast = 24 * kMiB, kMost = 96 * kMiB; /* live at night, live at noon */
constexpr size_t kSizeMost = 64 * kKiB;                 /* a few larger blocks would dominate the figure */

/* Precedes a block's bytes, for the next thread to check: 16 bytes, so blocks are at least that large. */
struct Mark {
    uint64_t size, check;
};

class Day {
  public:
    Day(bool phases, bool meshed) : phases_(phases), meshed_(meshed) {
        for (size_t i = 0; i < std::size(kTraceSizes); i++)
            for (auto &row : kTraceSizes[i])
                calls_[i] += row.calls;
        for (bool old : {false, true}) {
            void *pages = mmap(nullptr, kPlaces[old] * sizeof(Place), PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
            kinds_[old].old = old;
            kinds_[old].size = kPlaces[old];
            kinds_[old].places = static_cast<Place *>(pages);
        }
        at_start_ = resident();
    }
    ~Day() {
        for (auto &kind : kinds_)
            munmap(kind.places, kind.size * sizeof(Place));
    }

    void run(size_t hours, size_t operations) {
        for (size_t hour = 0; hour < hours; hour++) {
            hour_trace_ = hour * 5 % std::size(kTraceSizes);
            double noon = (1 - std::cos(static_cast<double>(hour % kHours) / kHours * 2 * M_PI)) / 2;
            goal_ = kLeast + static_cast<size_t>(noon * (kMost - kLeast));
            unsigned threads = 1 + static_cast<unsigned>(hour * 3 % kThreadsMost);
            for (unsigned shift = 0; shift < kShifts; shift++)
                run_shift(hour * kShifts + shift, threads, operations / kShifts / threads);
        }
    }
    void free_all() {
        for (auto &kind : kinds_)
            for (size_t i = 0; i < kind.size; i++)
                drop(kind, i);
    }
    size_t peak_live() const { return peak_live_; }
    size_t peak_rss() const { return peak_rss_; }
    size_t rss() const {
        size_t now = resident();
        return now > at_start_ ? now - at_start_ : 0;
    }

  private:
    size_t resident() const { return meshed_ ? process_pss_bytes() : process_rss_bytes(); }
    using Place = std::atomic<Mark *>;
    struct Kind {
        bool old;
        size_t size;
        Place *places;
        std::atomic<size_t> live{0}, born{0}, died{0};
    };

    void run_shift(uint64_t seed, unsigned threads, size_t operations) {
        std::vector<std::thread> running;
        for (unsigned t = 0; t < threads; t++)
            running.emplace_back([this, seed, t, operations] { work(seed * kThreadsMost + t, operations); });
        for (auto &thread : running)
            thread.join();
    }
    /* One block in eight lives long: it joins the old ones, where a random one is freed. The others leave in about the
     * order in which they came. The old ones have an eighth of the bytes. */
    void work(uint64_t seed, size_t operations) {
        Random random(seed);
        for (size_t i = 0; i < operations; i++) {
            Kind &kind = kinds_[random.below(8) == 0];
            replace(kind, kind.old ? random.below(kind.size) : kind.born++, some_size(random));
            for (unsigned tries = 0; kind.live > (kind.old ? goal_ / 8 : goal_ / 8 * 7) && tries < 1024; tries++)
                drop(kind, kind.old ? random.below(kind.size) : kind.died++);
            if (i % kSamplesEvery == 0)
                sample();
        }
    }
    size_t some_size(Random &random) const {
        size_t trace = phases_ ? hour_trace_ : random.below(std::size(kTraceSizes)), at = random.below(calls_[trace]);
        for (auto &row : kTraceSizes[trace]) {
            if (at < row.calls)
                return std::min(kSizeMost, row.least + random.below(row.most - row.least + 1));
            at -= row.calls;
        }
        return 0;
    }
    void replace(Kind &kind, size_t place, size_t size) {
        size = std::max(size, sizeof(Mark));
        auto *block = static_cast<Mark *>(S.alloc(size));
        size = S.usable_size(block);
        *block = {size, ~size};
        memset(block + 1, 1, size - sizeof(Mark)); /* touched, so live memory is resident */
        kind.live += size;
        end(kind, kind.places[place % kind.size].exchange(block));
    }
    void drop(Kind &kind, size_t place) { end(kind, kind.places[place % kind.size].exchange(nullptr)); }
    void end(Kind &kind, Mark *block) {
        if (block == nullptr)
            return;
        if (block->check != ~block->size) {
            fprintf(stderr, "soak: the block %p is damaged\n", static_cast<void *>(block));
            abort();
        }
        kind.live -= block->size;
        S.free(block);
    }
    void sample() {
        if (meshed_ && samples_++ % kSharesEvery != 0)
            return;
        raise(peak_live_, kinds_[0].live + kinds_[1].live);
        raise(peak_rss_, rss());
    }
    static void raise(std::atomic<size_t> &most, size_t value) {
        size_t seen = most;
        while (seen < value && !most.compare_exchange_weak(seen, value)) {
        }
    }

    size_t at_start_, goal_ = 0;
    size_t calls_[std::size(kTraceSizes)] = {}, hour_trace_ = 0;
    const bool phases_, meshed_;
    Kind kinds_[2];
    std::atomic<size_t> peak_live_{0}, peak_rss_{0}, samples_{0};
};

/* On a busy machine the purger runs late, so one success in five tries is enough. */
void run_days(bool phases, bool meshed, const char *name, double most) {
    size_t days = static_cast<size_t>(from_environment("HAK_TEST_LONGER"));
    size_t operations = (phases && days == 1 ? 300000 : 600000) / kShorter;
    double ratio = 1e9;
    most += days > 1 ? 0.05 : 0;
    for (int tries = 0; tries < 5 && ratio > most; tries++) {
        Day day(phases, meshed);
        day.run(days * kHours, operations);
        ratio = std::min(ratio, static_cast<double>(day.peak_rss()) / static_cast<double>(day.peak_live()));
        printf("live at most %zu MiB, resident %zu MiB\n", day.peak_live() / kMiB, day.peak_rss() / kMiB);
        figure("soak_hours", static_cast<long>(days * kHours));
        figure("soak_operations", static_cast<long>(days * kHours * operations));
        day.free_all();
        hak_trim();
        if (kShorter > 1) /* a sanitizer's own memory does not belong to the heap */
            return;
        EXPECT_LE(day.rss(), day.peak_rss() / 20) << "what is left when all is freed";
    }
    figure(name, std::lround(ratio * 100));
    EXPECT_LE(ratio, most);
}

TEST(Soak, MemoryFollowsWhatIsLive) { run_days(false, false, "soak_rss_percent_of_live_peak", 1.25); }

TEST(Soak, HoursOfDifferentSizes) { run_days(true, false, "soak_phases_rss_percent_of_live_peak", 1.75); }

/* HAKMEM_MESH, in the long form: a day takes twelve seconds. */
TEST(Soak, HoursOfDifferentSizesShareTheirPages) {
    if (getenv("HAK_TEST_LONGER") == nullptr || kShorter > 1 || !can_hold_writes() || getpagesize() != 4096)
        GTEST_SKIP() << "not a soak, or this system does not hold writers";
    ASSERT_EQ(hak_option_set("MESH", "1"), 0);
    run_days(true, true, "soak_mesh_pss_percent_of_live_peak", 1.45);
    hak_option_set("MESH", "0");
}

} // namespace
