/* Whether huge pages pay, decided by times that the test makes up, and by the times of this machine. If it fails, a
 * program pays for huge pages that cost more than small ones, or does without those that cost less. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>

#include <hakmem.h>
#include <sys/resource.h>

#include "../heap_stats.h"
#include "../support.h"
#include "inside.h"

namespace {

constexpr uint64_t kSmall = 700'000, kCheap = 90'000, kDear = 4'000'000;
constexpr size_t kMiB = 1 << 20;

/* How many SuperSlabs go by without a huge page; their small pages cost `small` each. */
int pause_length(uint64_t small = kSmall) {
    int length = 0;
    for (; inside_page_cost_try_huge() == 0; length++)
        inside_page_cost_small(small);
    return length;
}

int check(bool holds, const char *what) {
    if (!holds)
        fprintf(stderr, "not so: %s\n", what);
    return holds ? 0 : 1;
}
#define CHECK(condition) failed += check(condition, #condition)

int child_rule() {
    int failed = 0;
    CHECK(inside_page_cost_seen().pays); /* where nothing can be timed */
    CHECK(pause_length() == 1);          /* nothing to compare with yet */
    inside_page_cost_huge(kCheap, 1);
    CHECK(pause_length() == 0 && inside_page_cost_seen().pays);
    inside_page_cost_huge(kSmall, 1);
    CHECK(pause_length() == 0);                     /* as dear: it spares the purge */
    for (int expected : {64, 128, 256, 512, 512}) { /* one cheap page had won little */
        inside_page_cost_huge(kDear, 1);
        CHECK(!inside_page_cost_seen().pays);
        CHECK(pause_length() == expected);
    }
    inside_page_cost_huge(kCheap, 1);
    CHECK(pause_length() == 0 && inside_page_cost_seen().pays);
    for (int i = 0; i < 11; i++) /* with the one before they win about two dear ones' loss */
        inside_page_cost_huge(kCheap, 1);
    inside_page_cost_huge(kDear, 1);
    CHECK(pause_length() == 0); /* half of that was enough */
    inside_page_cost_huge(kDear, 1);
    CHECK(pause_length() == 64);            /* and is used up */
    inside_page_cost_huge(kCheap / 100, 0); /* the system has none */
    CHECK(pause_length() == 128);
    for (int i = 0; i < 8; i++)
        inside_page_cost_huge(kCheap, 1);
    inside_page_cost_huge(kDear, 1);
    CHECK(pause_length() == 8); /* they had won more than was lost */
    inside_page_cost_huge(kDear, 1);
    CHECK(pause_length(10 * kDear) == 64);
    inside_page_cost_huge(kDear, 1); /* memory is cold for small pages, too */
    CHECK(pause_length() == 0);
    inside_page_cost_huge(kCheap / 100, 0); /* the system had none */
    inside_page_cost seen = inside_page_cost_seen();
    CHECK(seen.huge_ns < kDear && seen.timed == 34 && seen.dear == 11);
    return failed;
}

/* How many huge pages may be asked for that nobody times. */
int child_trust() {
    int failed = 0;
    CHECK(inside_page_cost_trusted(9) == 0); /* none was timed */
    inside_page_cost_small(kSmall);
    inside_page_cost_huge(kCheap, 1);
    CHECK(inside_page_cost_trusted(9) == 1);
    CHECK(inside_page_cost_trusted(9) == 0); /* nobody knows yet what that one costs */
    inside_page_cost_huge(kCheap, 1);
    CHECK(inside_page_cost_trusted(2) == 2); /* of three */
    CHECK(inside_page_cost_trusted(9) == 1);
    inside_page_cost_huge(kCheap, 1);
    CHECK(inside_page_cost_trusted(6) == 6); /* of seven */
    inside_page_cost_huge(kDear, 1);
    CHECK(inside_page_cost_trusted(9) == 0);
    inside_page_cost_huge(kCheap, 1);
    CHECK(inside_page_cost_trusted(9) == 1); /* what was cheap before counts no more */
    return failed;
}

int child_mean() {
    int failed = 0;
    inside_page_cost_small(kSmall);
    CHECK(inside_page_cost_seen().small_ns == kSmall);
    inside_page_cost_small(5 * kSmall); /* an interrupt */
    CHECK(inside_page_cost_seen().small_ns == 2 * kSmall);
    for (int i = 0; i < 20; i++)
        inside_page_cost_small(5 * kSmall); /* memory is dear now */
    CHECK(inside_page_cost_seen().small_ns > 4 * kSmall);
    return failed;
}

void *grow(size_t bytes) {
    void *newest = nullptr;
    for (size_t had = 0; had < bytes; had += 1024) {
        auto **block = static_cast<void **>(hak_malloc(1024));
        memset(block, 1, 1024);
        *block = newest;
        newest = block;
    }
    return newest;
}

/* A heap that grows times both kinds of pages, and the statistics say so. */
int child_heap() {
    int failed = 0;
    (void)hidden(grow(14 * kMiB));
    CHECK(heap_stats()["huge_pages"]["timed"].number == 0);
    (void)hidden(grow(60 * kMiB));
    Json seen = heap_stats()["huge_pages"];
    CHECK(seen["timed"].number >= 1 && seen["small_pages_ns"].number > 0);
    CHECK(seen["dear"].number <= seen["timed"].number);
    CHECK((seen["huge_page_ns"].number > 0) || seen["dear"].number == seen["timed"].number);
    return failed;
}

/* Small pages seem to cost nothing: the first huge page is dear, and the next 64 SuperSlabs get none. */
int child_dear() {
    int failed = 0;
    inside_page_cost_small(1);
    (void)hidden(grow(16 * kMiB));
    while (inside_page_cost_seen().timed == 0)
        (void)hidden(grow(kMiB / 2));
    CHECK(inside_page_cost_seen().dear == 1);
    (void)hidden(grow(126 * kMiB));
    CHECK(inside_page_cost_seen().timed == 1);
    return failed;
}

/* Whether a mapping of the region with resident memory might get larger pages: those that nobody asked for, or that it
 * asks for. */
bool some_might_get(bool asked) {
    Json region = heap_stats()["region"];
    uintptr_t begin = strtoul(region["begin"].text.c_str(), nullptr, 16);
    uintptr_t end = strtoul(region["end"].text.c_str(), nullptr, 16);
    FILE *file = fopen("/proc/self/smaps", "re");
    char line[512];
    bool inside = false, some = false;
    unsigned long from = 0, to = 0, kib = 0;
    while (fgets(line, sizeof line, file) != nullptr) {
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
            inside = from >= begin && to <= end;
        (void)sscanf(line, "Rss: %lu kB", &kib);
        if (inside && kib != 0 && strncmp(line, "VmFlags:", 8) == 0)
            some = some || (asked ? strstr(line, " hg") != nullptr
                                  : strstr(line, " nh") == nullptr && strstr(line, " hg") == nullptr);
    }
    fclose(file);
    return some;
}

/* From 16 MiB on a slot comes in one fault where the system does that and nothing larger; else all memory refuses. */
int child_folios() {
    int failed = 0;
    (void)hidden(grow(10 * kMiB));
    CHECK(!some_might_get(false));
    CHECK(heap_stats()["huge_pages"]["folios"].number == 0);
    (void)hidden(grow(14 * kMiB));
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    (void)hidden(grow(20 * kMiB));
    getrusage(RUSAGE_SELF, &after);
    bool folios = heap_stats()["huge_pages"]["folios"].number == 1;
    CHECK(folios == some_might_get(false));
    CHECK(!folios || after.ru_minflt - before.ru_minflt < 2 * 20 * 16);
    return failed;
}

/* The program may never touch its huge blocks, so huge pages are asked for there only where they have paid
 * elsewhere. */
int child_run() {
    int failed = 0;
    for (int i = 0; i < 8; i++)
        memset(hidden(hak_malloc(8 * kMiB)), 1, kMiB);
    CHECK(!some_might_get(true));
    inside_page_cost_small(kSmall);
    inside_page_cost_huge(kCheap, 1);
    memset(hidden(hak_malloc(8 * kMiB)), 1, kMiB);
    CHECK(some_might_get(true));
    return failed;
}

const struct {
    const char *name;
    int (*run)();
} kChildren[] = {{"rule", child_rule}, {"trust", child_trust},   {"mean", child_mean}, {"heap", child_heap},
                 {"dear", child_dear}, {"folios", child_folios}, {"run", child_run}};

class PageCost : public testing::TestWithParam<const char *> {};
TEST_P(PageCost, DecidesByWhatWasTimed) {
    Outcome outcome = run_self({"--child", GetParam()}, {"HAKMEM_HUGE_PAGES=auto"});
    EXPECT_TRUE(outcome.exited(0)) << outcome.describe();
}
INSTANTIATE_TEST_SUITE_P(, PageCost, testing::Values("rule", "trust", "mean", "heap", "dear", "folios", "run"),
                         [](const auto &child) { return std::string(child.param); });

} // namespace

int main(int argc, char **argv) {
    for (auto &child : kChildren)
        if (argc == 3 && strcmp(argv[1], "--child") == 0 && strcmp(argv[2], child.name) == 0)
            return child.run();
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
