/* Errors that harm nothing: a delete that names a wrong size, though the address says which block it is, and a question
 * about a pointer that is no block. By default a line names the caller, once, and the program goes on. If it fails,
 * programs that run under every other allocator are killed, or flooded with lines. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>
#include <malloc.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>

#include <algorithm>
#include <cstdarg>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "../posix_regex.h"
#include "../support.h"

extern "C" void free_sized(void *, size_t);
extern "C" void free_aligned_sized(void *, size_t, size_t);

namespace {

constexpr size_t kCallersMax = 64; /* as in src/base/fail.h */
constexpr size_t kSizes[] = {32, 1000, 3000, 20000};
constexpr std::align_val_t kAlign{64};

/* One place of the program each: `noinline`, and no call of its own but the faulty one. */
#define PLACE __attribute__((noinline)) void
PLACE too_small(void *p, size_t size) { ::operator delete(p, size / 2); }
PLACE too_large(void *p, size_t size) { ::operator delete(p, size * 2); }
PLACE array_too_small(void *p, size_t size) { ::operator delete[](p, size / 2); }
PLACE aligned_too_large(void *p, size_t size) { ::operator delete(p, size * 2, kAlign); }
PLACE sized_too_large(void *p, size_t size) { free_sized(p, size * 2); }
PLACE aligned_sized_too_large(void *p, size_t size) { free_aligned_sized(p, 64, size * 2); }

struct Place {
    void *(*make)(size_t size);
    void (*free)(void *p, size_t size);
};
const Place places[] = {
    {[](size_t size) { return ::operator new(size); }, too_small},
    {[](size_t size) { return ::operator new(size); }, too_large},
    {[](size_t size) { return ::operator new[](size); }, array_too_small},
    {[](size_t size) { return ::operator new(size, kAlign); }, aligned_too_large},
    {[](size_t size) { return malloc(size); }, sized_too_large},
    {[](size_t size) { return aligned_alloc(64, size); }, aligned_sized_too_large},
};

/* Frees at every place; the blocks must come back, or the heap grows without end. */
int free_everywhere(size_t rounds) {
    size_t before = process_rss_bytes();
    for (size_t round = 0; round < rounds; round++)
        for (size_t size : kSizes)
            for (const Place &place : places)
                place.free(memset(place.make(size), 1, size), size);
    return process_rss_bytes() < before + 16 * kMiB ? 0 : 3;
}

/* Another caller for each number. */
template <size_t n> __attribute__((noinline)) void free_wrongly() {
    ::operator delete(::operator new(1000 + n % 8), n % 100 + 1);
    asm volatile("" ::"i"(n));
}
template <size_t... n> void free_at_many(std::index_sequence<n...>) { (free_wrongly<n>(), ...); }

int free_in_threads() {
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; i++)
        threads.emplace_back([] {
            for (int round = 0; round < 1000; round++)
                too_large(::operator new(48), 48);
        });
    for (auto &thread : threads)
        thread.join();
    return 0;
}

int ask() {
    static char no_block[64];
    for (int i = 0; i < 10; i++)
        if (malloc_usable_size(hidden(no_block)) != 0)
            return 3;
    return 0;
}

/* A correct program that leaves free memory of every kind behind, all of it written to. */
int leave_memory() {
    const size_t sizes[] = {24, 1000, 3000, 20000, 70000, 300000, 3 * kMiB};
    for (int round = 0; round < 3; round++)
        for (size_t size : sizes) {
            std::vector<void *> blocks(std::max<size_t>(8 * kMiB / size, 3));
            for (void *&block : blocks)
                block = memset(hidden(malloc(size)), 0x5a, size);
            for (void *block : blocks)
                free(block);
        }
    return 0;
}

/* Wrong, but harmless where libc keeps the memory: CPython 3.10 reads its state of 113,528 bytes after freeing it. */
int read_after_free() {
    for (int i = 0; i < 8; i++) {
        char *volatile block = static_cast<char *>(memset(hidden(malloc(113528)), 0x5a, 113528));
        free(block);
        (void)*static_cast<volatile char *>(hidden(block) + 5000);
    }
    return 0;
}

/* Blocks whose last page is a part of one, or whose canary lies on two pages; used before, so that they have a
 * canary. */
const size_t kEndSizes[] = {200000, 50 * 4096 - 16, kMiB - 32 - 16, 5 * kMiB + 12345, 5 * kMiB - 8};

char *used_before(size_t size) {
    for (int i = 0; i < 8; i++)
        free(memset(hidden(aligned_alloc(4096, size)), 0x5a, size));
    return static_cast<char *>(memset(hidden(aligned_alloc(4096, size)), 0x5a, size));
}
size_t page_end(size_t size) {
    size_t page = static_cast<size_t>(getpagesize());
    return (size + page - 1) / page * page;
}

/* The page in which a block ends goes back to the system, as programs do it that know such blocks as mappings of their
 * own. */
int give_back_ends() {
    for (size_t size : kEndSizes)
        for (int i = 0; i < 4; i++) {
            char *block = used_before(size);
            if (madvise(block, page_end(size), MADV_DONTNEED) != 0)
                return 3;
            free(memset(block, 0x5a, size / 2));
        }
    return 0;
}

/* As RDMA libraries register buffers: children do not have these pages, and still end in peace. */
int keep_from_children() {
    for (size_t size : kEndSizes)
        if (madvise(used_before(size), page_end(size), MADV_DONTFORK) != 0)
            return 3;
    int status = -1;
    pid_t child = fork();
    if (child == 0)
        exit(0);
    return waitpid(child, &status, 0) == child && status == 0 ? 0 : 4;
}

/* Does every child end by exit(0), as it wants to, and without a line? */
template <class Call> int end_children(int children, Call &&child) {
    for (int i = 0; i < children; i++) {
        int status = -1;
        pid_t pid = fork();
        if (pid == 0)
            child(i);
        if (waitpid(pid, &status, 0) != pid || status != 0)
            return 4;
    }
    return 0;
}

/* A signal handler ends the program, as an editor's does that saves its file, while realloc is at the end of a block:
 * the first write there faults. */
int end_in_realloc() {
    static char *page;
    static const size_t sizes[][2] = {{900001, 800000}, {3000000, 2500000}, {7340044, 6340044}};
    return end_children(sizeof sizes / sizeof *sizes, [](int i) {
        char *block = static_cast<char *>(memset(hidden(malloc(sizes[i][0])), 0x5a, sizes[i][0]));
        page = block + sizes[i][1] - reinterpret_cast<uintptr_t>(block + sizes[i][1]) % page_end(1);
        signal(SIGSEGV, [](int) {
            mprotect(page, page_end(1), PROT_READ | PROT_WRITE);
            exit(0);
        });
        mprotect(page, page_end(1), PROT_READ);
        free(hidden(realloc(block, sizes[i][1])));
        exit(5);
    });
}

/* Likewise wherever the program happens to be: mostly in malloc or free. */
int end_anywhere() {
    return end_children(60, [](int i) {
        constexpr unsigned kBlocks = 512;
        static char *blocks[kBlocks];
        signal(SIGALRM, [](int) { exit(0); });
        struct itimerval soon = {{0, 0}, {0, 300 + i * 37}};
        setitimer(ITIMER_REAL, &soon, nullptr);
        for (size_t n = static_cast<size_t>(i) * 7919;; n = n * 6364136223846793005 + 1) {
            char *&block = blocks[n >> 40 & (kBlocks - 1)];
            bool grows = n >> 60 & 1;
            size_t size = (n >> 20 & (n >> 61 & 1 ? 1023 : 32767)) + 1;
            if (!grows)
                free(block);
            block = static_cast<char *>(hidden(grows ? realloc(block, size) : malloc(size)));
            memset(block, 0x5a, size);
        }
    });
}

/* Or while the kernel moves the block's pages, whatever is left where they were. */
bool ends_in_move;
extern "C" void *mremap(void *from, size_t before, size_t bytes, int flags, ...) noexcept {
    va_list more;
    va_start(more, flags);
    void *to = va_arg(more, void *);
    va_end(more);
    bool ends = ends_in_move && (flags & MREMAP_FIXED) != 0;
    auto moved = reinterpret_cast<void *>(syscall(SYS_mremap, from, before, bytes, flags, to));
    if (ends) {
        munmap(static_cast<char *>(from) + before - page_end(1), page_end(1));
        exit(0);
    }
    return moved;
}
int end_in_move() {
    return end_children(1, [](int) {
        char *block = static_cast<char *>(memset(hidden(malloc(3 * kMiB)), 0x5a, 3 * kMiB));
        hidden(malloc(3 * kMiB));
        ends_in_move = true;
        free(hidden(realloc(block, 12 * kMiB)));
        exit(0);
    });
}

/* Nothing notices these overflows before the program ends. */
int overflow_two() {
    for (int i = 0; i < 2; i++)
        used_before(200000)[200000] = 1;
    return 0;
}

/* From the last block of a slot, which is in use alone in the middle of a SuperSlab, into the next slot. */
int overflow_far() {
    constexpr size_t kBlock = 4096;
    char *alone = nullptr, *blocks[1024];
    for (char *&block : blocks) {
        block = static_cast<char *>(memset(hidden(malloc(kBlock)), 0x5a, kBlock));
        if (reinterpret_cast<uintptr_t>(block) % (2 * kMiB) == kMiB + 64 * kKiB - kBlock)
            alone = block;
    }
    for (char *block : blocks)
        if (block != alone)
            free(block);
    malloc_trim(0);
    memset(alone, 0x5a, kBlock + 8);
    return 0;
}

int write_into_freed_huge() {
    char *block = static_cast<char *>(memset(hidden(malloc(5 * kMiB)), 0x5a, 5 * kMiB));
    free(block);
    malloc_trim(0);
    hidden(block)[3 * kMiB] = 1;
    return 0;
}

/* A thread that has not allocated yet may do so while the program ends. */
int overflow_two_beside_a_thread() {
    pthread_t thread;
    auto wait = [](void *) -> void * {
        for (;;)
            pause();
    };
    return pthread_create(&thread, nullptr, wait, nullptr) == 0 ? overflow_two() : 3;
}

const struct {
    const char *name;
    int (*run)();
} seen_at_the_end[] = {
    {"overflow_two", overflow_two},
    {"overflow_two_beside_a_thread", overflow_two_beside_a_thread},
    {"overflow_far", overflow_far},
    {"write_into_freed_huge", write_into_freed_huge},
};

/* Secure mode promises less: it does not take back the page of a canary that is zero now. */
const struct {
    const char *name;
    int (*run)();
    bool in_secure_mode;
} correct[] = {
    {"leave_memory", leave_memory, true},      {"read_after_free", read_after_free, false},
    {"give_back_ends", give_back_ends, false}, {"keep_from_children", keep_from_children, true},
    {"end_in_realloc", end_in_realloc, true},  {"end_anywhere", end_anywhere, true},
    {"end_in_move", end_in_move, true},
};

const struct {
    const char *name;
    int (*run)();
    size_t lines;
} cases[] = {
    {"sizes", [] { return free_everywhere(3000); }, sizeof places / sizeof *places},
    {"callers",
     [] {
         free_at_many(std::make_index_sequence<kCallersMax + 40>());
         return 0;
     },
     kCallersMax},
    {"threads", free_in_threads, 1},
    {"question", ask, 1},
};

const char kLine[] =
    "hakmem: (free of 0x[0-9a-f]+ with size [0-9]+|invalid pointer 0x[0-9a-f]+ in malloc_usable_size) \\(.*\\)";
const char kCaller[] = "hakmem:   0x[0-9a-f]+( .*\\+0x[0-9a-f]+)?";

size_t count_matching(const std::string &text, const char *pattern) {
    size_t count = 0;
    Regex regex(pattern);
    for (const std::string &line : lines_of(text))
        count += regex.is_all_of(line);
    return count;
}

TEST(Harmless, IsToldOnceForEachCallerAndTheProgramGoesOn) {
    for (auto &one : cases) {
        Outcome outcome = run_self({one.name});
        SCOPED_TRACE(outcome.describe());
        EXPECT_TRUE(outcome.exited(0)) << one.name;
        EXPECT_EQ(count_matching(outcome.err, kLine), one.lines) << one.name;
        EXPECT_EQ(count_matching(outcome.err, kCaller), one.lines) << one.name;
        EXPECT_EQ(lines_of(outcome.err).size(), 2 * one.lines) << one.name;
    }
}

TEST(Harmless, EndsTheProgramOnRequest) {
    for (const char *mode : {"HAKMEM_ON_ERROR=abort", "HAKMEM_SECURE=1"})
        for (auto &one : cases) {
            Outcome outcome = run_self({one.name}, {mode});
            EXPECT_TRUE(outcome.killed(SIGABRT)) << one.name << " under " << mode << "\n" << outcome.describe();
            EXPECT_GE(count_matching(outcome.err, kLine), 1u) << outcome.describe();
        }
}

TEST(Harmless, IsSilentOnRequest) {
    for (auto &one : cases) {
        Outcome outcome = run_self({one.name}, {"HAKMEM_ON_ERROR=ignore"});
        EXPECT_TRUE(outcome.exited(0) && outcome.err.empty()) << one.name << "\n" << outcome.describe();
    }
}

TEST(Harmless, WhatTheEndFindsIsOneLine) {
    Outcome outcome = run_self({"overflow_two"});
    SCOPED_TRACE(outcome.describe());
    EXPECT_TRUE(outcome.exited(0));
    EXPECT_EQ(count_matching(outcome.err, "hakmem: [^ ].* \\(.*-byte block\\)"), 1u);
}

TEST(Harmless, TheEndSeesWhatWasWrittenIntoUnusedMemory) {
    for (const char *name : {"overflow_far", "write_into_freed_huge"}) {
        Outcome outcome = run_self({name});
        SCOPED_TRACE(outcome.describe());
        EXPECT_TRUE(outcome.exited(0)) << name;
        EXPECT_EQ(lines_of(outcome.err).size(), 1u) << name;
        EXPECT_EQ(count_matching(outcome.err, "hakmem: write into unused memory at 0x[0-9a-f]+, before this call.*"),
                  1u)
            << name;
    }
}

TEST(Harmless, TheEndOfAProgramWithThreadsLooksForNothing) {
    Outcome outcome = run_self({"overflow_two_beside_a_thread"});
    EXPECT_TRUE(outcome.exited(0) && outcome.err.empty()) << outcome.describe();
}

TEST(Harmless, ACorrectProgramEndsWithoutALine) {
    for (const char *mode : {"HAKMEM_PURGE=auto", "HAKMEM_PURGE=lazy", "HAKMEM_PURGE=eager", "HAKMEM_PURGE=never",
                             "HAKMEM_REGION_BYTES=0", "HAKMEM_HUGE_PAGES=always", "HAKMEM_SECURE=1"}) {
        for (auto &one : correct) {
            if (!one.in_secure_mode && strcmp(mode, "HAKMEM_SECURE=1") == 0)
                continue;
            Outcome outcome = run_self({one.name}, {mode});
            EXPECT_TRUE(outcome.exited(0) && outcome.err.empty()) << one.name << " under " << mode << "\n"
                                                                  << outcome.describe();
        }
    }
}

} // namespace

int main(int argc, char **argv) {
    struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    for (auto &one : cases)
        if (argc == 2 && strcmp(one.name, argv[1]) == 0)
            return one.run();
    for (auto &one : correct)
        if (argc == 2 && strcmp(one.name, argv[1]) == 0)
            return one.run();
    for (auto &one : seen_at_the_end)
        if (argc == 2 && strcmp(one.name, argv[1]) == 0)
            return one.run();
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
