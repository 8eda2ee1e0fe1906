/* Sets every option that the table marks live while a program runs; each has a probe here that sees the difference. If
 * one fails, a user sets an option of a running program, gets a success, and nothing changes.
 *
 *  1. A probe names two values of its option, and measures something that the second value increases.
 *  2. Each probe runs in its own process, which goes from the first value to the second and back.
 *  3. The option is set by hak_option_set, then as `hakmem set` does it, by writing the option's words from outside. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>
#include <hakmem.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

#include "../heap_stats.h"
#include "../support.h"
#include "inside.h"

extern "C" { /* what tells the library that it is in a CPython 3.9; this thread is none of its own */
extern char PyThreadState_GetFrame[];
char PyThreadState_GetFrame[1];
void *PyGILState_GetThisThreadState(void);
}

/* Once a probe has said so, each reading of a clock is so much after the one before, and costs do not depend on the
 * machine. */
static std::atomic<uint64_t> made_up_ns, step_ns;
extern "C" int clock_gettime(clockid_t which, struct timespec *now) noexcept {
    uint64_t step = step_ns;
    if (step == 0)
        return static_cast<int>(syscall(SYS_clock_gettime, which, now));
    uint64_t ns = made_up_ns += step;
    now->tv_sec = static_cast<time_t>(ns / 1000000000);
    now->tv_nsec = static_cast<long>(ns % 1000000000);
    return 0;
}

namespace {

struct Probe {
    const char *option, *less, *more;
    long difference; /* the minimum */
    long (*measure)();
    std::vector<std::string> env;
};

std::string way; /* how this process sets options */

int set(const std::string &name, const std::string &value) {
    return way == "api" ? hak_option_set(name.c_str(), value.c_str())
                        : inside_option_write(name.c_str(), value.c_str());
}

std::string get(const char *name) {
    char value[64] = "";
    hak_option_get(name, value, sizeof value);
    return value;
}

/* How much the counter grows. */
template <typename Work> long growth(const char *name, Work work) {
    long before = counter(name);
    work();
    return counter(name) - before;
}

/* ---- slots that are EMPTY ---- */

void *client() {
    static void *one = inside_pool_client_new();
    return one;
}

std::vector<size_t> take(size_t slots) {
    std::vector<size_t> taken;
    int zero;
    for (size_t i = 0; i < slots; i++)
        taken.push_back(inside_pool_take(client(), 1, 1, 0, &zero));
    inside_pool_settle(client());
    return taken;
}

void give(const std::vector<size_t> &slots, size_t step = 1, size_t from = 0) {
    for (size_t i = from; i < slots.size(); i += step)
        inside_pool_give(client(), slots[i], 1, 0);
    inside_pool_settle(client());
}

constexpr size_t kSuperSlabs = 20, kSlots = kSuperSlabs * INSIDE_SUPERSLAB_SLOTS;

/* Slots retained when kSlots are given back at once. */
long retained() {
    give(take(kSlots));
    long empty = static_cast<long>(inside_pool_count().empty_slots);
    inside_pool_purge(client(), 0);
    return empty;
}

long retained_beside_live_ones() {
    std::vector<size_t> live = take(kSlots / 2);
    long empty = retained();
    give(live);
    inside_pool_purge(client(), 0);
    return empty;
}

/* Wholly free SuperSlabs still resident a second later. */
long cached() {
    give(take(kSlots));
    inside_pool_decay(client(), 1000);
    long kept = static_cast<long>(inside_pool_cached());
    inside_pool_purge(client(), 0);
    return kept;
}

/* EMPTY slots retained for twenty seconds in SuperSlabs that are in use. */
long retained_long() {
    std::vector<size_t> slots = take(kSlots);
    give(slots, 2);
    inside_pool_decay(client(), 20000);
    long empty = static_cast<long>(inside_pool_count().empty_slots);
    give(slots, 2, 1);
    inside_pool_purge(client(), 0);
    return empty;
}

/* ---- blocks ---- */

using Blocks = std::vector<void *>;

Blocks allocate(size_t count, size_t bytes) {
    Blocks blocks(count);
    for (void *&block : blocks) {
        block = hak_malloc(bytes);
        if (block != nullptr)
            memset(block, 1, bytes);
    }
    return blocks;
}

void free_all(const Blocks &blocks, size_t step = 1, size_t from = 0) {
    for (size_t i = from; i < blocks.size(); i += step)
        hak_free(blocks[i]);
}

/* A thread that has allocated and then waits for the end of this object's lifetime. */
class Thread {
  public:
    explicit Thread(size_t count) {
        thread_ = std::thread([this, count] {
            blocks = allocate(count, 100);
            ready_ = true;
            while (!done_)
                std::this_thread::yield();
        });
        while (!ready_)
            std::this_thread::yield();
    }
    ~Thread() {
        done_ = true;
        thread_.join();
    }
    Blocks blocks;

  private:
    std::atomic<bool> ready_{false}, done_{false};
    std::thread thread_;
};

long drains() {
    Thread other(20000);
    /* The thread adopts no slab. */
    return growth("drains", [&] { std::thread([&] { free_all(other.blocks); }).join(); });
}

/* Allocates more blocks at once than any ring holds, so the ring runs empty and full. */
void rounds(size_t count, size_t bytes) {
    for (int round = 0; round < 20; round++)
        free_all(allocate(count, bytes));
}

long mid_refills() { /* of more blocks than a ring ever holds */
    rounds(600, 8000);
    return growth("ring_refills", [] { rounds(600, 8000); });
}

long populate_calls() {
    static std::vector<Blocks> kept; /* keeps them, so that the next measurement gets slots that were never used */
    return growth("populate_calls", [] { kept.push_back(allocate(5000, 1000)); });
}

/* The number of threads besides this one, the one it starts, and a sanitizer's: those that exist at the first call,
 * which must be one without a purger. A thread takes a while to start or end. */
long purgers() {
    Thread other(1);
    static const long without = process_threads();
    long wanted = get("PURGER") == "1", threads = 0;
    const auto last = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    for (int tries = 0; tries < 100 || (threads != wanted && std::chrono::steady_clock::now() < last); tries++) {
        free_all(allocate(100, 65 * kKiB));
        threads = process_threads() - without;
        std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    free_all(other.blocks);
    return threads;
}

/* Runs the same batches each time work() is called. */
class Worker {
  public:
    explicit Worker(void (*batches)()) {
        thread_ = std::thread([this, batches] {
            for (int done = 0; !ended_;) {
                if (done == wanted_) {
                    std::this_thread::yield();
                    continue;
                }
                batches();
                done_ = ++done;
            }
        });
    }
    ~Worker() {
        ended_ = true;
        thread_.join();
    }
    void work() {
        wanted_++;
        while (done_ != wanted_)
            std::this_thread::yield();
    }

  private:
    std::atomic<bool> ended_{false};
    std::atomic<int> wanted_{0}, done_{0};
    std::thread thread_;
};

/* ---- limits ---- */

long refusals() {
    void *block = hak_malloc(64 * kMiB);
    hak_free(block);
    return block == nullptr;
}

long soft_crossings() {
    return growth("soft_limit_crossings", [] { free_all(allocate(400, 65 * kKiB)); });
}

/* Simulated kernel files with a limit and pressure, for the lifetime of this object. */
class Kernel {
  public:
    Kernel() {
        char name[] = "/tmp/hakmem-live-XXXXXX";
        root_ = mkdtemp(name);
        file("/proc/self/cgroup", "0::/\n");
        file("/sys/fs/cgroup/memory.max", "300000000\n");
        file("/sys/fs/cgroup/memory.pressure", "some avg10=50.00 avg60=0.00 avg300=0.00 total=0\n");
        file("/proc/pressure/memory", "some avg10=50.00 avg60=0.00 avg300=0.00 total=0\n");
        inside_limits_set_root(root_.c_str());
    }
    ~Kernel() {
        inside_limits_set_root("");
        std::filesystem::remove_all(root_);
    }

  private:
    void file(const std::string &path, const char *text) {
        std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
        std::ofstream(root_ + path) << text;
    }
    std::string root_;
};

long cgroup_limits() {
    Kernel kernel;
    inside_limits_refresh();
    return inside_limits_cgroup_bytes() != UINT64_MAX;
}

long scarcity() {
    Kernel kernel;
    return inside_limits_scarce();
}

/* ---- statistics and samples ---- */

/* Bytes of statistics that a program writes at its end, if it sets the option as this one did. */
/* Misses that were timed meanwhile. */
long timed_misses() {
    auto timed = [] {
        Json stats = heap_stats();
        double sum = 0;
        for (auto &one : stats["tiny_classes"].items)
            sum += one.has("timed_misses") ? one["timed_misses"].number : 0;
        return static_cast<long>(sum);
    };
    long before = timed();
    free_all(allocate(5000, 256));
    return timed() - before;
}

/* What the preset that keeps most is charged for a second of swings. */
long cost_us() {
    made_up_ns = made_up_ns != 0 ? made_up_ns.load() : 1'000'000'000'000;
    step_ns = 200'000;
    Json stats = heap_stats();
    for (double end = stats["ace"]["rounds"].number + 20; stats["ace"]["rounds"].number < end; stats = heap_stats())
        free_all(allocate(16'000, 1024));
    for (auto &preset : stats["ace"]["presets"].items)
        if (preset["name"].text == "throughput")
            return static_cast<long>(preset["cost_us"].number);
    return -1;
}

long statistics() { return static_cast<long>(run_self({"--end", way, get("STATS")}, {"HAKMEM_STATS=0"}).err.size()); }

long samples(size_t mean_bytes, size_t count) {
    hak_profile_start(mean_bytes);
    long taken = growth("samples_taken", [&] {
        for (size_t i = 0; i < count; i++)
            hak_free(hidden(hak_malloc(16 * kKiB)));
    });
    hak_profile_stop();
    return taken;
}

long samples_by_option() { return samples(0, 2000); }
long guarded() {
    return growth("guard_sampled", [] {
        for (int i = 0; i < 100000; i++)
            hak_free(hidden(hak_malloc(48)));
    });
}
long python_questions;
long asks_python() {
    long before = python_questions;
    samples(4096, 2000);
    return python_questions - before;
}
long samples_in_haste() { return samples(4096, 20000); }

/* One block in 40 stays. */
long merged_pages() {
    std::vector<void *> all = allocate(20000, 64), rest;
    for (size_t i = 0; i < all.size(); i++)
        if (i * 2654435761 % 40 != 0)
            rest.push_back(std::exchange(all[i], nullptr));
    free_all(rest);
    long before = counter("mesh_merged_pages");
    hak_trim();
    free_all(all);
    return counter("mesh_merged_pages") - before;
}

/* Files that are written while the heap grows to 8 MiB. */
long dumps() {
    char name[] = "/tmp/hakmem-live-XXXXXX";
    std::filesystem::path place = mkdtemp(name), before = std::filesystem::current_path();
    std::filesystem::current_path(place);
    free_all(allocate(200, 40 * kKiB));
    usleep(2000);
    free_all(allocate(200, 40 * kKiB));
    std::filesystem::current_path(before);
    auto files = std::distance(std::filesystem::directory_iterator(place), {});
    std::filesystem::remove_all(place);
    return files;
}

/* ---- the probes ---- */

const std::string kRetain = "HAKMEM_RETAIN_BYTES=1g";

const std::vector<std::string> kDumps = {"HAKMEM_PROFILE=1", "HAKMEM_PROFILE_BYTES=1000", "HAKMEM_PROFILE_RATE=0",
                                         "HAKMEM_DUMP_PAUSE_MS=0"},
                               kDumpsOnGrowth = {"HAKMEM_PROFILE_BYTES=1000", "HAKMEM_PROFILE_RATE=0",
                                                 "HAKMEM_DUMP_GROWTH_BYTES=1m", "HAKMEM_DUMP_PAUSE_MS=0"};

const std::vector<Probe> probes = {
    {"SS_CACHE_COUNT", "2", "10", 5, cached, {kRetain}},
    {"SS_CACHE_BYTES", "1m", "16m", 100, retained, {kRetain}},
    {"SS_CACHE_AGE_MS", "100", "100000", 10, cached, {kRetain}},
    {"PURGE", "eager", "never", 500, retained, {}},
    {"RETAIN_BYTES", "1m", "32m", 200, retained, {}},
    {"RETAIN_PERCENT", "0", "100", 100, retained_beside_live_ones, {"HAKMEM_RETAIN_BYTES=0"}},
    {"DECAY_MS", "10", "100000000", 100, retained_long, {kRetain}},
    {"PURGER", "0", "1", 1, purgers, {}},
    {"MESH", "0", "1", 20, merged_pages, {}},
    {"POPULATE", "0", "1", 1, populate_calls, {}},
    {"DRAIN", "0", "1", 3, drains, {}},
    {"DRAIN_INTERVAL", "1000000", "100", 20, drains, {}},
    {"RING_BYTES", "4m", "0", 500, mid_refills, {}},
    {"RING_BYTES_TOTAL", "4m", "128k", 100, mid_refills, {}},
    {"HARD_LIMIT", "0", "16m", 1, refusals, {}},
    {"SOFT_LIMIT", "0", "8m", 1, soft_crossings, {}},
    {"CGROUP", "0", "1", 1, cgroup_limits, {}},
    {"PRESSURE", "0", "10", 1, scarcity, {}},
    {"STATS", "0", "1", 100, statistics, {}},
    {"ACE", "0", "observe", 5, timed_misses, {}},
    {"GOAL", "time", "memory", 100, cost_us, {"HAKMEM_ACE=observe"}},
    {"PROFILE_BYTES", "16m", "16k", 200, samples_by_option, {"HAKMEM_PROFILE_RATE=0"}},
    {"PROFILE_RATE", "1", "0", 1000, samples_in_haste, {}},
    {"PROFILE_PYTHON", "0", "1", 200, asks_python, {"HAKMEM_PROFILE_RATE=0"}},
    {"GUARD_SAMPLE_BYTES", "0", "16k", 100, guarded, {}},
    {"DUMP_INTERVAL_MS", "0", "1", 1, dumps, kDumps},
    {"DUMP_GROWTH_BYTES", "0", "1m", 5, dumps, kDumps},
    {"DUMP_PEAK", "0", "1", 1, dumps, kDumps},
    {"DUMP_PAUSE_MS", "1000000", "0", 5, dumps, kDumpsOnGrowth},
    {"DUMP_BYTES", "0", "1t", 5, dumps, kDumpsOnGrowth},
};

const Probe *probe_of(const std::string &option) {
    for (auto &probe : probes)
        if (option == probe.option)
            return &probe;
    return nullptr;
}

/* Runs in its own process: the option goes there and back. */
int run_probe(const Probe &probe) {
    long measured[3];
    const char *values[3] = {probe.less, probe.more, probe.less};
    for (int i = 0; i < 3; i++) {
        if (set(probe.option, values[i]) != 0)
            return 2;
        measured[i] = probe.measure();
    }
    printf("%s: %ld, %s: %ld, %s: %ld\n", values[0], measured[0], values[1], measured[1], values[2], measured[2]);
    return measured[1] - measured[0] >= probe.difference && measured[1] - measured[2] >= probe.difference ? 0 : 1;
}

class LiveOptions : public testing::TestWithParam<unsigned> {};

TEST_P(LiveOptions, ChangeWhatTheProgramDoes) {
    inside_option option = inside_option_at(GetParam());
    const Probe *probe = probe_of(option.name);
    if (!option.live) {
        EXPECT_EQ(probe, nullptr) << "it has a probe, and is not live";
        EXPECT_EQ(hak_option_set(option.name, get(option.name).c_str()), EPERM) << "it is not live";
        return;
    }
    ASSERT_NE(probe, nullptr) << option.name << " is live: it needs a probe in this file";
    for (const char *by : {"api", "words"}) {
        Outcome outcome = run_self({"--probe", option.name, by}, probe->env);
        EXPECT_TRUE(outcome.exited(0)) << option.name << " set by " << by << ": " << outcome.describe();
    }
}

/* Rings that were made under another value, in a thread that did not set it. A batch that the ring can now hold does
 * not go to the slabs, and one that it may no longer hold does, though the ring never ran full or empty in between. */
TEST(Rings, FollowTheirOptionsUpAndDown) {
    way = "api";
    struct {
        const char *option, *counter;
        void (*batches)();
    } kinds[] = {{"ring_blocks:8000", "ring_refills", [] { rounds(110, 8000); }},
                 {"ring_blocks:65k", "large_spans", [] { rounds(30, 65 * kKiB); }},
                 {"RING_BYTES", "ring_refills", [] { rounds(110, 8000); }}};
    set("PURGER", "0"); /* a purger would empty the rings of a waiting thread */
    set("RING_BYTES", "64m");
    for (auto &kind : kinds) {
        bool of_bytes = std::string(kind.option) == "RING_BYTES";
        Worker worker(kind.batches);
        auto slow = [&](const char *value) {
            EXPECT_EQ(set(kind.option, value), 0);
            worker.work();
            return growth(kind.counter, [&] { worker.work(); });
        };
        set("ring_blocks", of_bytes ? "128" : "48");
        long before = slow(of_bytes ? "128k" : "16"), raised = slow(of_bytes ? "64m" : "128");
        long lowered = slow(of_bytes ? "128k" : "8"), again = slow(of_bytes ? "64m" : "128");
        EXPECT_GT(before, 100) << kind.option;
        EXPECT_LE(raised, 2) << kind.option << " was raised";
        EXPECT_GT(lowered, 100) << kind.option << " was lowered";
        EXPECT_LE(again, 2) << kind.option << " was raised again";
    }
    set("PURGER", "1");
    set("RING_BYTES", "4m");
    set("ring_blocks", "1024");
}

/* Sixteen threads and this one. The system tells of eight processors or more, or eight are taken. */
TEST(Rings, ThreadsShareTheTotal) {
    way = "api";
    set("PURGER", "0");
    std::mutex end;
    std::vector<std::thread> others;
    std::atomic<int> here{0};
    end.lock();
    for (int i = 0; i < 16; i++)
        others.emplace_back([&] {
            hak_free(hak_malloc(10));
            here++;
            std::lock_guard<std::mutex> wait(end);
        });
    while (here != 16)
        std::this_thread::yield();
    auto refills = [](const char *total) {
        set("RING_BYTES_TOTAL", total);
        rounds(110, 8000);
        return growth("ring_refills", [] { rounds(110, 8000); });
    };
    EXPECT_LE(refills("0"), 2) << "1.9 MB a thread";
    EXPECT_GT(refills("4m"), 100) << "240 KiB a thread, the batch takes 0.9 MB";
    EXPECT_LE(refills("64m"), 2);
    end.unlock();
    for (auto &thread : others)
        thread.join();
    EXPECT_LE(refills("17m"), 2) << "one thread has all";
    set("RING_BYTES_TOTAL", "0");
    set("PURGER", "1");
}

INSTANTIATE_TEST_SUITE_P(Table, LiveOptions, testing::Range(0u, inside_options),
                         [](const auto &one) { return std::string(inside_option_at(one.param).name); });

} // namespace

void *PyGILState_GetThisThreadState(void) {
    python_questions++;
    return nullptr;
}

int main(int argc, char **argv) {
    if (argc == 4 && strcmp(argv[1], "--probe") == 0) {
        way = argv[3];
        hak_free(hak_malloc(10));
        return run_probe(*probe_of(argv[2]));
    }
    if (argc == 4 && strcmp(argv[1], "--end") == 0) {
        way = argv[2];
        return set("STATS", argv[3]);
    }
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
