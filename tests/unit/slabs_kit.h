/* Shared by the tests of slabs, slots and huge pages: a system that refuses, loses and measures what a test wants, and
 * cases that each run in a process of their own, whose first slot is the region's. It has main and stands in for libc's
 * calls, so a program includes it once, and defines kCases. */
/* SPDX-License-Identifier: MIT */
#ifndef HAKMEM_TESTS_SLABS_KIT_H
#define HAKMEM_TESTS_SLABS_KIT_H

#include <gtest/gtest.h>

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdarg>
#include <string>
#include <utility>
#include <vector>

#include <hakmem.h>

#include "../heap_stats.h"
#include "../support.h"
#include "inside.h"

/* ---- the system ---- */

inline bool refuses;    /* the system does, of advice and protection */
inline bool shuts_half; /* it makes half of a mapping inaccessible, and refuses from then on */
/* Of the pieces of these sizes that are mapped in place of others, the first `spared` are; the next `left` are refused,
 * and what they were to replace is lost. */
inline struct Breaks {
    size_t min, max;
    int spared, left, lost;
} breaks;
inline bool is_lost(void *address, size_t bytes) {
    if (bytes < breaks.min || bytes > breaks.max || breaks.spared-- > 0 || breaks.left == 0)
        return false;
    breaks.left--, breaks.lost++;
    munmap(address, bytes);
    return true;
}
inline enum Moves { kMove, kRefuse, kBreak } moves; /* of pages, by mremap */
inline size_t refused_from = SIZE_MAX;              /* bytes that are mapped in a piece */
inline void (*meanwhile)();                         /* what another thread does while memory is mapped, once */
inline size_t meanwhile_to = 64 * kKiB;             /* the most bytes of such a mapping; a slot is the least */
inline void (*meanwhile_moved)();                   /* likewise while pages are moved */
inline bool is_old_kernel;                          /* takes an address that must not be replaced as a wish */
/* These stand in for libc's. */
extern "C" void *mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t place) noexcept {
    if (void (*now)() = bytes >= 64 * kKiB && bytes <= meanwhile_to ? std::exchange(meanwhile, nullptr) : nullptr)
        now();
    if (is_old_kernel)
        flags &= ~MAP_FIXED_NOREPLACE;
    if (bytes < refused_from && !((flags & MAP_FIXED) != 0 && is_lost(address, bytes)))
        return reinterpret_cast<void *>(syscall(SYS_mmap, address, bytes, protection, flags, fd, place));
    errno = ENOMEM;
    return MAP_FAILED;
}
extern "C" void *mremap(void *address, size_t before, size_t bytes, int flags, ...) noexcept {
    va_list more;
    va_start(more, flags);
    void *to = va_arg(more, void *);
    va_end(more);
    if (void (*now)() = (flags & MREMAP_FIXED) != 0 ? std::exchange(meanwhile_moved, nullptr) : nullptr)
        now();
    if (moves == kBreak) { /* as the kernel does: it unmaps the target first */
        munmap(to, 2 * kMiB);
        refused_from = 1;
    }
    if (moves == kMove && bytes < refused_from && !is_lost(to, bytes))
        return reinterpret_cast<void *>(syscall(SYS_mremap, address, before, bytes, flags, to));
    errno = ENOMEM;
    return MAP_FAILED;
}
/* Times that the library measures one after the other with the exact clock, once `measured` are to be known: the first
 * takes so long, the second … */
inline struct Measured {
    bool known;
    unsigned readings;
    uint64_t now_ns, takes_ns[2];
} measured;
/* A second passes each time that a thread other than the first reads the coarse clock. */
inline std::atomic<bool> rushes;
inline std::atomic<time_t> passed_s;
inline time_t stops_s; /* so long a thread is stopped as it is next refused advice */
extern "C" int clock_gettime(clockid_t which, struct timespec *now) noexcept {
    if (which != CLOCK_MONOTONIC || !measured.known) {
        int result = static_cast<int>(syscall(SYS_clock_gettime, which, now));
        if (which == CLOCK_MONOTONIC_COARSE)
            now->tv_sec += rushes && gettid() != getpid() ? ++passed_s : passed_s.load();
        return result;
    }
    if (unsigned n = measured.readings++; n < 4 && n % 2 != 0)
        measured.now_ns += measured.takes_ns[n / 2];
    *now = {static_cast<time_t>(measured.now_ns / 1'000'000'000), static_cast<long>(measured.now_ns % 1'000'000'000)};
    return 0;
}
/* Addresses of which the test wants to know how much was purged. */
inline struct Watched {
    uintptr_t from, to;
    size_t purged;
} watched;
inline void watch_purge(uintptr_t from, uintptr_t to) {
    from = std::max(from, watched.from), to = std::min(to, watched.to);
    watched.purged += from < to ? to - from : 0;
}
extern "C" int madvise(void *address, size_t bytes, int advice) noexcept {
    auto at = reinterpret_cast<uintptr_t>(address);
    if (!refuses && advice == MADV_DONTNEED)
        watch_purge(at, at + bytes);
    if (!refuses)
        return static_cast<int>(syscall(SYS_madvise, address, bytes, advice));
    passed_s += std::exchange(stops_s, 0);
    errno = EINVAL;
    return -1;
}
extern "C" int mprotect(void *address, size_t bytes, int protection) noexcept {
    if (protection == PROT_NONE && std::exchange(shuts_half, false)) {
        refuses = true;
        syscall(SYS_mprotect, address, bytes / 2, protection);
    }
    if (!refuses)
        return static_cast<int>(syscall(SYS_mprotect, address, bytes, protection));
    errno = ENOMEM;
    return -1;
}

/* Before the library starts. */
inline void refuse_first(int, char **, char **environment) {
    for (; *environment != nullptr; environment++)
        if (strcmp(*environment, "HAK_TEST_REFUSES=1") == 0)
            refused_from = 1;
}
__attribute__((section(".preinit_array"), used)) static void (*const refuse_at_once)(int, char **,
                                                                                     char **) = refuse_first;

/* ---- slots ---- */

constexpr size_t kSlot = 64 * kKiB, kPerSuperSlab = INSIDE_SUPERSLAB_SLOTS, kSuperSlab = kPerSuperSlab * kSlot;

inline size_t slot_of(const void *block) {
    return static_cast<size_t>(static_cast<const char *>(block) - inside_slot_address(0)) / kSlot;
}

inline std::vector<char *> blocks_of(size_t count, size_t bytes) {
    std::vector<char *> blocks;
    for (size_t i = 0; i < count; i++) {
        blocks.push_back(static_cast<char *>(hak_malloc(bytes)));
        memset(blocks.back(), 1, bytes);
    }
    return blocks;
}

inline void take_slots(size_t count) {
    void *client = inside_pool_client_new();
    int zero = 0;
    while (count-- > 0)
        MUST(inside_pool_take(client, 1, 1, 1, &zero) != inside_no_slot, "no slot");
}

inline void limit_addresses(long bytes) {
    struct rlimit limit = {static_cast<rlim_t>(bytes), static_cast<rlim_t>(bytes)};
    setrlimit(RLIMIT_AS, &limit);
}

/* ---- the cases ---- */

struct Case {
    const char *name;
    void (*run)();
    std::vector<std::string> environment;
    long address_bytes; /* that the process may have; 0: as many as there are */
};
extern const std::vector<Case> kCases; /* the program's */

class Slabs : public testing::TestWithParam<Case> {};
TEST_P(Slabs, LieAndGo) {
    const Case &of = GetParam();
    Outcome outcome = run_self({"--case", of.name}, of.environment, of.address_bytes != 0 ? limit_addresses : nullptr,
                               of.address_bytes);
    EXPECT_TRUE(outcome.exited(0)) << outcome.describe();
}
INSTANTIATE_TEST_SUITE_P(All, Slabs, testing::ValuesIn(kCases),
                         [](const testing::TestParamInfo<Case> &of) { return of.param.name; });

extern const char *hak_options;
const char *hak_options = "PURGER=0,HUGE_PAGES=never";

int main(int argc, char **argv) {
    if (run_case(argc, argv, kCases))
        return 0;
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}

#endif
