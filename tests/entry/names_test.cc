/* NAME_MAPPINGS: the names that the library gives to its mappings. The test replaces prctl and the calls that map
 * memory by a model of a kernel that has names: a fresh mapping has none, and a mapping that moves keeps its name.
 *
 * If it fails, maps and smaps call the program's memory the heap's or leave the heap out; or each mapping costs a call
 * that a kernel without names refuses. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>
#include <malloc.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <thread>

#include "../support.h"

#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41
#endif

namespace {

/* What was mapped or named, in the order of the calls; nothing here allocates. The child has one thread at a time. */
struct Event {
    uintptr_t begin, end;
    const char *name; /* NULL: none */
    bool is_placed;   /* the library chose the address, not the kernel */
};
constexpr size_t kEventsMost = 1 << 16;
Event events[kEventsMost];
size_t events_count;
int names_asked, names_wrong;

void note(void *at, size_t bytes, const char *name, bool is_placed) {
    auto begin = reinterpret_cast<uintptr_t>(at);
    if (events_count == kEventsMost)
        abort();
    events[events_count++] = {begin, begin + bytes, name, is_placed};
}

/* The last event there. */
const Event &event_at(const void *p) {
    static const Event never = {0, 0, "never mapped", false};
    auto at = reinterpret_cast<uintptr_t>(p);
    for (size_t i = events_count; i-- > 0;)
        if (events[i].begin <= at && at < events[i].end)
            return events[i];
    return never;
}

bool is_named(const void *p, const char *name) {
    const char *has = event_at(p).name;
    return has != nullptr && strcmp(has, name) == 0;
}

int name_range(void *at, size_t bytes, const char *name) {
    const char *refusal = getenv("TEST_REFUSAL");
    bool is_placed = event_at(at).is_placed;
    names_asked++;
    names_wrong += msync(at, bytes, MS_ASYNC) != 0; /* a part of the range is not mapped */
    names_wrong += !is_placed && strcmp(name, "hakmem: tables") != 0;
    if (refusal == nullptr)
        note(at, bytes, name, is_placed);
    else
        errno = atoi(refusal);
    return refusal == nullptr ? 0 : -1;
}

} // namespace

/* ---- in front of libc ---- */

extern "C" {

int prctl(int option, ...) noexcept {
    va_list rest;
    va_start(rest, option);
    unsigned long a = va_arg(rest, unsigned long), b = va_arg(rest, unsigned long), c = va_arg(rest, unsigned long),
                  d = va_arg(rest, unsigned long);
    va_end(rest);
    if (option == PR_SET_VMA)
        return name_range(reinterpret_cast<void *>(b), c, reinterpret_cast<const char *>(d));
    return static_cast<int>(syscall(SYS_prctl, option, a, b, c, d));
}

void *mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset) noexcept {
    auto *got = reinterpret_cast<void *>(syscall(SYS_mmap, address, bytes, protection, flags, fd, offset)); /* NOLINT */
    if (got != MAP_FAILED)
        note(got, bytes, nullptr, address != nullptr);
    return got;
}

void *mremap(void *from, size_t bytes, size_t new_bytes, int flags, ...) noexcept {
    va_list rest;
    va_start(rest, flags);
    void *to = va_arg(rest, void *);
    va_end(rest);
    auto *got = reinterpret_cast<void *>(syscall(SYS_mremap, from, bytes, new_bytes, flags, to)); /* NOLINT */
    if (got != MAP_FAILED)
        note(got, new_bytes, event_at(from).name, true);
    return got;
}

} // extern "C"

namespace {

/* ---- the child ---- */

std::vector<char *> blocks;

void expect_named(const char *block, size_t bytes) {
    for (const char *p : {block, block + bytes - 1})
        if (!is_named(p, "hakmem: slabs"))
            printf("a block of %zu bytes is in memory named %s\n", bytes, event_at(p).name ?: "nothing");
}

void use_memory() {
    for (size_t size : {size_t{24}, size_t{700}, size_t{9000}, 100 * kKiB, 700 * kKiB, 5 * kMiB})
        for (size_t sum = 0; sum < 6 * kMiB; sum += size) {
            auto *block = static_cast<char *>(malloc(size));
            memset(block, 1, size);
            expect_named(block, size);
            blocks.push_back(block);
        }
    char *grown = nullptr, *behind = nullptr;
    for (size_t size = kMiB; size <= 64 * kMiB; size *= 2) {
        grown = static_cast<char *>(realloc(grown, size));
        expect_named(grown, size);
        free(behind);
        behind = static_cast<char *>(malloc(3 * kMiB)); /* forces the next realloc to move the block */
    }
    free(behind);
    free(grown);
    for (char *block : blocks)
        free(block);
    blocks.clear();
    malloc_trim(0);
}

/* Each page that can be written and was mapped by a call that this program saw. */
void print_pages() {
    char line[512], access[5];
    uintptr_t begin = 0, end = 0;
    size_t slabs = 0, tables = 0, nameless = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps != nullptr && fgets(line, sizeof line, maps) != nullptr)
        if (sscanf(line, "%zx-%zx %4s", &begin, &end, access) == 3 && access[1] == 'w')
            for (uintptr_t at = begin; at < end; at += 4096) {
                auto *page = reinterpret_cast<void *>(at); /* NOLINT: an address */
                nameless += event_at(page).name == nullptr;
                slabs += is_named(page, "hakmem: slabs");
                tables += is_named(page, "hakmem: tables");
            }
    if (maps != nullptr)
        fclose(maps);
    printf("slabs %d, tables %d, nameless %d\n", slabs != 0, tables != 0, nameless != 0);
}

/* The library has started before main, and the options that are not LIVE have been read. */
int run_child() {
    use_memory();
    std::thread(use_memory).join();
    use_memory();
    print_pages();
    printf("asked %s, wrongly %d\n", names_asked > 1 ? "often" : names_asked == 1 ? "once" : "never", names_wrong);
    return 0;
}

const std::string kNamed = "slabs 1, tables 1, nameless 0\nasked often, wrongly 0\n";

std::string told(std::vector<std::string> env) {
    env.emplace_back("HAKMEM_PURGER=0"); /* one thread at a time: the order of events is that of the calls */
    Outcome outcome = run_self({"--child"}, env);
    EXPECT_TRUE(outcome.exited(0)) << outcome.describe();
    return outcome.out;
}

TEST(Names, SayWhatMemoryIsFor) {
    for (const char *mode : {"HAKMEM_HELP=0", "HAKMEM_REGION_BYTES=0", "HAKMEM_SECURE=1", "HAKMEM_HUGE_PAGES=always",
                             "HAKMEM_PURGE=eager", "HAKMEM_PROFILE=1"})
        EXPECT_EQ(told({"HAKMEM_NAME_MAPPINGS=1", mode}), kNamed) << mode;
}

TEST(Names, AreGivenOnRequestAlone) {
    std::string out = told({});
    EXPECT_NE(out.find("asked never"), std::string::npos) << out;
}

TEST(Names, AreAskedForOnceWhereTheKernelHasNone) {
    for (int error : {EINVAL, EPERM, ENOSYS}) {
        std::string out = told({"HAKMEM_NAME_MAPPINGS=1", "TEST_REFUSAL=" + std::to_string(error)});
        EXPECT_NE(out.find("asked once"), std::string::npos) << strerror(error) << "\n" << out;
    }
}

} // namespace

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "--child") == 0)
        return run_child();
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
