/* How much stack the library uses: each function that it exports is called on a painted stack, in each mode. If it
 * fails, threads and handlers with small stacks (PTHREAD_STACK_MIN, sigaltstack, coroutines) overflow them in malloc.
 *
 *   1. A scenario calls functions of one kind so that all their paths are taken: slow ones, refusals, failures that are
 *      reported. It records its own stack pointer; everything below it that has lost its paint was used by the library
 *      and what it calls in libc.
 *   2. The library's exports are read from its own symbol table: a function without a scenario fails the test.
 *   3. Not measured: operator new that throws (the C++ runtime's unwinder alone needs more), and the program's own
 *      callbacks. */
/* SPDX-License-Identifier: MIT */
#include <elf.h>
#include <gtest/gtest.h>
#include <hakmem.h>
#include <link.h>
#include <malloc.h>
#include <pthread.h>
#include <ucontext.h>

#include <map>
#include <new>
#include <set>

#include "../hinted.h"
#include "../support.h"

extern "C" {
void cfree(void *);
void free_sized(void *, size_t);
void free_aligned_sized(void *, size_t, size_t);
}

namespace {

/* 2048 in release builds; assertions and the frames of a debug build need more. */
constexpr size_t kMost = HAK_TEST_STACK_MAX, kStackBytes = 256 * kKiB;
constexpr unsigned char kPaint = 0xa5;

char *lowest_of_caller;
ucontext_t test_context, scenario_context;

/* Records the stack pointer of the function that expands this; use it once, before the function's calls. */
#if defined(__x86_64__)
#define MARK_STACK() __asm__ volatile("mov %%rsp, %0" : "=r"(lowest_of_caller))
#else
#define MARK_STACK() __asm__ volatile("mov %0, sp" : "=r"(lowest_of_caller))
#endif

__attribute__((noinline)) size_t painted_below(const char *stack, const char *mark) {
    const char *at = stack;
    while (at < mark && static_cast<unsigned char>(*at) == kPaint)
        at++;
    return static_cast<size_t>(mark - at);
}

__attribute__((noinline)) char *painted_stack() {
    static void *room = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    auto *stack = static_cast<char *>(room);
    memset(stack, kPaint, kStackBytes);
    return stack;
}

size_t stack_use_of(void (*scenario)()) {
    char *volatile stack = painted_stack();
    getcontext(&scenario_context);
    scenario_context.uc_stack.ss_sp = stack;
    scenario_context.uc_stack.ss_size = kStackBytes;
    scenario_context.uc_link = &test_context;
    makecontext(&scenario_context, scenario, 0);
    swapcontext(&test_context, &scenario_context);
    return painted_below(stack, lowest_of_caller);
}

/* ---- scenarios ---- */

constexpr size_t kMany = 4000, kLarge = 70, kHuge = 6;
constexpr size_t kNone = PTRDIFF_MAX / 2; /* more than can ever be had */
void *volatile blocks[kMany];
size_t mixed_size(size_t i) { return 1 + i * 97 % (i % 8 == 0 ? 70000 : 2000); }

void *touched(void *block) {
    if (block != nullptr)
        *static_cast<volatile char *>(block) = 1;
    return block;
}

/* Called through pointers, so that the compiler keeps the calls and each name reaches its own function. */
void *(*volatile allocate)(size_t);
void (*volatile release)(void *);

void allocates_and_releases() {
    MARK_STACK();
    for (size_t i = 0; i < kMany; i++)
        blocks[i] = touched(allocate(mixed_size(i)));
    for (size_t i = 0; i < kMany; i += 2)
        release(blocks[i]);
    for (size_t i = 0; i < kMany; i += 2)
        blocks[i] = touched(allocate(mixed_size(i * 3)));
    for (size_t i = 0; i < kMany; i++)
        release(blocks[kMany - 1 - i]);
    for (size_t i = 0; i < kLarge; i++)
        blocks[i] = touched(allocate(kMiB));
    for (size_t i = 0; i < kHuge; i++)
        blocks[kLarge + i] = touched(allocate(5 * kMiB));
    for (size_t i = 0; i < kLarge + kHuge; i++)
        release(blocks[i]);
    release(nullptr);
}

void is_refused() {
    MARK_STACK();
    release(allocate(kNone));
}

/* ---- functions with more arguments, adapted to take a size or a block ---- */

size_t (*volatile usable)(void *) = malloc_usable_size;
volatile size_t result;

template <int Way> void *allocate_by(size_t size) {
    void *block = nullptr;
    switch (Way) {
    case 0: return calloc(1, size);
    case 1: return reallocarray(nullptr, size, 1);
    case 2: return memalign(64, size);
    case 3: return aligned_alloc(4096, size);
    case 4: return posix_memalign(&block, size % 2 != 0 ? 32 : 65536, size) == 0 ? block : nullptr;
    case 5: return valloc(size);
    case 6: return pvalloc(size);
    case 7: return hak_calloc(size, 1);
    case 8: return hak_aligned_alloc(size_t{1} << size % 18, size);
    case 9: return hak_alloc_at_least(size, const_cast<size_t *>(&result));
    case 10: return operator new(size, std::nothrow);
    case 11: return operator new[](size, std::nothrow);
    case 12: return operator new (size, std::align_val_t{64});
    case 13: return operator new[](size, std::align_val_t{64});
    case 14: return operator new (size, std::align_val_t{64}, std::nothrow);
    case 15: return operator new[](size, std::align_val_t{64}, std::nothrow);
    case 16: return operator new[](size);
    case 17: return operator new(size);
    default: return nullptr;
    }
}

template <int Way> void release_by(void *block) {
    size_t size = block != nullptr ? usable(block) : 0;
    switch (Way) {
    case 0: cfree(block); break;
    case 1: free_sized(block, size); break;
    case 2: free_aligned_sized(block, 16, size); break;
    case 3: hak_free_sized(block, size); break;
    case 4: operator delete(block, size); break;
    case 5: operator delete[](block, size); break;
    case 6: operator delete(block, std::nothrow); break;
    case 7: operator delete[](block, std::nothrow); break;
    case 8: operator delete[](block); break;
    case 9: operator delete(block); break;
    default: free(block); break;
    }
}

/* The matching operators of aligned new are called here, too. */
template <int Way> void release_aligned(void *block) {
    constexpr std::align_val_t alignment{64};
    size_t size = block != nullptr ? usable(block) : 0;
    switch (Way) {
    case 0: operator delete(block, alignment); break;
    case 1: operator delete[](block, alignment); break;
    case 2: operator delete(block, alignment, std::nothrow); break;
    case 3: operator delete[](block, alignment, std::nothrow); break;
    case 4: operator delete(block, size, alignment); break;
    default: operator delete[](block, size, alignment); break;
    }
}

void *hak_grow(void *block, size_t size) { return hak_realloc(block, size); }
void *(*volatile grow)(void *, size_t);

void reallocates() {
    MARK_STACK();
    void *growing = nullptr, *other = nullptr;
    for (size_t size = 10; size < 40 * kMiB; size += size / 3 + 1) {
        growing = touched(grow(growing, size));
        other = touched(grow(other, size / 7 + 1));
    }
    release(grow(growing, kNone));
    for (size_t size = 40 * kMiB; size > 10; size /= 3)
        growing = touched(grow(growing, size));
    grow(growing, 0);
    release(other);
}

void expands() {
    MARK_STACK();
    for (size_t size = 16; size < 8 * kMiB; size *= 2) {
        void *block = touched(hak_malloc(size));
        hak_expand(block, size + size / 2);
        hak_expand(block, kNone);
        result = hak_usable_size(block) + hak_good_size(size) + malloc_usable_size(block);
        hak_free(block);
    }
}

void leaves_holes() {
    for (size_t i = 0; i < kMany; i++)
        blocks[i] = touched(malloc(i % 2 != 0 ? 300 : 5000));
    for (size_t i = 0; i < kMany; i++)
        if (i % 16 >= 2)
            free(blocks[i]);
}

void trims() {
    MARK_STACK();
    leaves_holes();
    malloc_trim(0);
    for (size_t i = 0; i < kMany; i++)
        if (i % 16 < 2)
            free(blocks[i]);
    hak_thread_rests();
    hak_trim();
}

FILE *nowhere;
void reports() {
    MARK_STACK();
    static char text[64 * kKiB];
    hak_stats_print(fileno(nowhere));
    result = hak_stats_json(text, sizeof text);
    result = mallinfo2().uordblks;
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    result = static_cast<size_t>(mallinfo().uordblks);
    malloc_info(0, nowhere);
    malloc_stats();
}

void is_set() {
    MARK_STACK();
    static char text[512];
    hak_option_set("CGROUP", "1"); /* where it was 0, the library looks for the cgroup now */
    for (const char *name : {"DECAY_MS", "ring_blocks", "PURGE", "STATS_FILE", "NO_SUCH_OPTION"}) {
        result = hak_option_get(name, text, sizeof text);
        hak_option_set(name, text);
        hak_option_set(name, "nonsense");
    }
    mallopt(M_TRIM_THRESHOLD, 1 << 20);
    mallopt(M_MXFAST, 64);
    hak_set_soft_limit_callback(nullptr, nullptr);
    result = *hak_version();
    hak_profile_start(4096);
    for (size_t i = 0; i < 1000; i++)
        blocks[i] = touched(malloc(mixed_size(i)));
    hak_profile_dump("/dev/null");
    hak_profile_stop();
    for (size_t i = 0; i < 1000; i++)
        free(blocks[i]);
}

void moves() {
    MARK_STACK();
    static hak_defrag cursor;
    static hak_class_use classes[128];
    for (size_t size : {200, 3000}) {
        for (size_t i = 0; i < 1000; i++)
            blocks[i] = touched(malloc(size));
        for (size_t i = 0; i < 1000; i++)
            if (i % 10 != 0)
                free(blocks[i]);
        hak_defrag_begin(&cursor, 1000000);
        for (size_t bytes; hak_defrag_next(&cursor, &bytes) != nullptr;)
            result = bytes;
        result = static_cast<size_t>(hak_defrag_end(&cursor));
        for (size_t i = 0; i < 1000; i += 10) {
            void *copy = hak_should_move(blocks[i]) != 0 ? touched(hak_malloc_dense(size)) : nullptr;
            hak_free_dense(blocks[i]);
            hak_free_dense(copy);
        }
    }
    result = hak_class_uses(classes, 128);
}

int over_limit(hak_arena *, size_t, void *) { return 0; }
int visited(void *, size_t, void *) { return 0; }

void arenas() {
    MARK_STACK();
    static hak_arena_stats stats;
    for (bool destroyed : {true, false}) {
        hak_arena_options options = {"stack", 32 << 20, over_limit, nullptr};
        hak_arena *arena = hak_arena_new(&options), *before;
        for (size_t i = 0; i < 2000; i++)
            blocks[i] = touched(hak_arena_malloc(arena, mixed_size(i) / 4 + 1));
        for (size_t i = 0; i < 2000; i++)
            blocks[i] = hak_arena_realloc(arena, blocks[i], mixed_size(i) / 3 + 1);
        result = hak_arena_of(touched(hak_arena_calloc(arena, 3, 1000))) == arena;
        hak_free(touched(hak_arena_aligned_alloc(arena, 4096, 5000)));
        hak_free(hak_arena_strdup(arena, "text"));
        result = hak_arena_malloc(arena, 64 << 20) == nullptr; /* over the limit */
        result = hak_arena_no_dump(arena);
        hak_arena_set_default(arena, &before);
        free(touched(malloc(3000)));
        free(touched(calloc(1, 300000)));
        hak_arena_set_default(before, nullptr);
        hak_arena_get_stats(arena, &stats);
        hak_arena_visit(arena, visited, nullptr);
        for (size_t i = 0; i < 2000; i += 2)
            free(blocks[i]);
        (destroyed ? hak_arena_destroy : hak_arena_release)(arena);
        for (size_t i = 1; i < 2000 && !destroyed; i += 2)
            free(blocks[i]);
    }
}

void sites() {
    MARK_STACK();
    static hak_site_stats stats;
    unsigned site = hak_site_new("stack", HAK_POLICY_LONG_LIVED);
    for (size_t i = 0; i < 2000; i++)
        blocks[i] = touched(hak_alloc_site(mixed_size(i), site, static_cast<int>(i % 6)));
    for (size_t i = 0; i < 2000; i++)
        free(blocks[i]);
    hak_site_get_stats(site, &stats);
}

/* Through the functions that say more of a block than its size. */
void hinted_blocks() {
    MARK_STACK();
    for (const Hinted &call : kHinted)
        for (size_t i = 0; i < 500; i++)
            call.end(touched(call.make(mixed_size(i), i % 2 == 0)));
    for (size_t i = 0; i < 500; i++) {
        size_t size = mixed_size(i), token = i % 2 == 0 ? kWithPointers : kPlain;
        void *block = nullptr;
        ::operator delete(touched(__size_returning_new(size).p));
        ::operator delete(touched(__size_returning_new_aligned(size, kHintedAlignment).p), kHintedAlignment);
        for (void *one :
             {__alloc_token_malloc(size, token), __alloc_token_calloc(1, size, token),
              __alloc_token_realloc(nullptr, size, token), __alloc_token_reallocarray(nullptr, 1, size, token),
              __alloc_token_memalign(64, size, token), __alloc_token_aligned_alloc(4096, size, token),
              __alloc_token_valloc(size, token), __alloc_token_pvalloc(size, token),
              __alloc_token_posix_memalign(&block, 32, size, token) == 0 ? block : nullptr})
            free(touched(one));
    }
}

/* Each misuse is reported on standard error, and the program goes on. */
void misuses() {
    MARK_STACK();
    static char foreign[64];
    for (size_t size : {24, 500, 5000, 200000, 3000000}) {
        char *volatile block = static_cast<char *>(touched(malloc(size)));
        free(block + 8);
        result = malloc_usable_size(block + 8) + hak_usable_size(foreign);
        grow = realloc;
        grow(block + 8, 100);
        free_sized(block, size * 4);
        operator delete(block, size * 4);
        free(block);
        release(block);
        grow(block, 100);
    }
    release(foreign);
    release(reinterpret_cast<void *>(0x123456789abcu));
    for (size_t i = 0; i < 4000; i++) { /* includes sampled ones, with the stacks that allocated them */
        void *block = touched(allocate(mixed_size(i)));
        release(block);
        if (i % 100 == 0)
            release(block);
    }
}

void live_once() {
    touched(blocks[0] = malloc(48));
    free(blocks[0]);
    for (size_t i = 0; i < 2000; i++)
        blocks[i] = touched(malloc(mixed_size(i)));
    for (size_t i = 0; i < 2000; i++)
        free(blocks[i]);
}

void *thread_of_its_own(void *unused) {
    MARK_STACK();
    live_once();
    return unused;
}

/* A thread's birth and end, on the thread's own stack, which is painted below its starting point. */
size_t stack_use_of_a_thread() {
    char *stack = painted_stack();
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, stack, kStackBytes);
    pthread_create(&thread, &attributes, thread_of_its_own, nullptr);
    pthread_join(thread, nullptr);
    return painted_below(stack, lowest_of_caller);
}

/* ---- all scenarios ---- */

struct Scenario {
    const char *name;
    std::set<std::string> covers; /* linker names */
    void (*run)();
    void *(*allocate)(size_t);
    void (*release)(void *);
    void *(*grow)(void *, size_t);
};

const std::vector<Scenario> &scenarios() {
    static const std::vector<Scenario> all = {
        {"malloc", {"malloc", "free"}, allocates_and_releases, malloc, free, realloc},
        {"hak_malloc", {"hak_malloc", "hak_free"}, allocates_and_releases, hak_malloc, hak_free, realloc},
        {"calloc", {"calloc", "cfree"}, allocates_and_releases, allocate_by<0>, release_by<0>, realloc},
        {"reallocarray",
         {"reallocarray", "free_sized"},
         allocates_and_releases,
         allocate_by<1>,
         release_by<1>,
         realloc},
        {"memalign",
         {"memalign", "free_aligned_sized"},
         allocates_and_releases,
         allocate_by<2>,
         release_by<2>,
         realloc},
        {"aligned_alloc", {"aligned_alloc"}, allocates_and_releases, allocate_by<3>, free, realloc},
        {"posix_memalign", {"posix_memalign"}, allocates_and_releases, allocate_by<4>, free, realloc},
        {"valloc", {"valloc"}, allocates_and_releases, allocate_by<5>, free, realloc},
        {"pvalloc", {"pvalloc"}, allocates_and_releases, allocate_by<6>, free, realloc},
        {"hak_calloc",
         {"hak_calloc", "hak_free_sized"},
         allocates_and_releases,
         allocate_by<7>,
         release_by<3>,
         realloc},
        {"hak_aligned_alloc", {"hak_aligned_alloc"}, allocates_and_releases, allocate_by<8>, hak_free, realloc},
        {"hak_alloc_at_least", {"hak_alloc_at_least"}, allocates_and_releases, allocate_by<9>, hak_free, realloc},
        {"dense",
         {"hak_malloc_dense", "hak_free_dense"},
         allocates_and_releases,
         hak_malloc_dense,
         hak_free_dense,
         realloc},
        {"moving",
         {"hak_class_uses", "hak_defrag_begin", "hak_defrag_end", "hak_defrag_next", "hak_should_move"},
         moves,
         malloc,
         free,
         realloc},
        {"sites", {"hak_alloc_site", "hak_site_get_stats", "hak_site_new"}, sites, malloc, free, realloc},
        {"arenas",
         {"hak_arena_aligned_alloc", "hak_arena_calloc", "hak_arena_destroy", "hak_arena_get_stats", "hak_arena_malloc",
          "hak_arena_new", "hak_arena_no_dump", "hak_arena_of", "hak_arena_realloc", "hak_arena_release",
          "hak_arena_set_default", "hak_arena_strdup", "hak_arena_visit"},
         arenas,
         malloc,
         free,
         realloc},
        {"hinted",
         [] {
             std::set<std::string> covered = {
                 "__size_returning_new",   "__size_returning_new_aligned", "__alloc_token_malloc",
                 "__alloc_token_calloc",   "__alloc_token_realloc",        "__alloc_token_reallocarray",
                 "__alloc_token_memalign", "__alloc_token_aligned_alloc",  "__alloc_token_valloc",
                 "__alloc_token_pvalloc",  "__alloc_token_posix_memalign"};
             for (const Hinted &call : kHinted)
                 covered.insert(call.symbol);
             return covered;
         }(),
         hinted_blocks, malloc, free, realloc},
        {"new", {"_Znwm", "_ZdlPv"}, allocates_and_releases, allocate_by<17>, release_by<9>, realloc},
        {"new[]", {"_Znam", "_ZdaPv"}, allocates_and_releases, allocate_by<16>, release_by<8>, realloc},
        {"new nothrow",
         {"_ZnwmRKSt9nothrow_t", "_ZdlPvRKSt9nothrow_t"},
         allocates_and_releases,
         allocate_by<10>,
         release_by<6>,
         realloc},
        {"new[] nothrow",
         {"_ZnamRKSt9nothrow_t", "_ZdaPvRKSt9nothrow_t"},
         allocates_and_releases,
         allocate_by<11>,
         release_by<7>,
         realloc},
        {"delete sized", {"_ZdlPvm"}, allocates_and_releases, allocate_by<17>, release_by<4>, realloc},
        {"delete[] sized", {"_ZdaPvm"}, allocates_and_releases, allocate_by<16>, release_by<5>, realloc},
        {"new aligned",
         {"_ZnwmSt11align_val_t", "_ZdlPvSt11align_val_t"},
         allocates_and_releases,
         allocate_by<12>,
         release_aligned<0>,
         realloc},
        {"new[] aligned",
         {"_ZnamSt11align_val_t", "_ZdaPvSt11align_val_t"},
         allocates_and_releases,
         allocate_by<13>,
         release_aligned<1>,
         realloc},
        {"new aligned nothrow",
         {"_ZnwmSt11align_val_tRKSt9nothrow_t", "_ZdlPvSt11align_val_tRKSt9nothrow_t"},
         allocates_and_releases,
         allocate_by<14>,
         release_aligned<2>,
         realloc},
        {"new[] aligned nothrow",
         {"_ZnamSt11align_val_tRKSt9nothrow_t", "_ZdaPvSt11align_val_tRKSt9nothrow_t"},
         allocates_and_releases,
         allocate_by<15>,
         release_aligned<3>,
         realloc},
        {"delete sized aligned",
         {"_ZdlPvmSt11align_val_t"},
         allocates_and_releases,
         allocate_by<12>,
         release_aligned<4>,
         realloc},
        {"delete[] sized aligned",
         {"_ZdaPvmSt11align_val_t"},
         allocates_and_releases,
         allocate_by<13>,
         release_aligned<5>,
         realloc},
        {"malloc refused", {}, is_refused, malloc, free, realloc},
        {"calloc refused", {}, is_refused, allocate_by<0>, free, realloc},
        {"new refused", {}, is_refused, allocate_by<10>, free, realloc},
        {"new[] aligned refused", {}, is_refused, allocate_by<15>, free, realloc},
        {"realloc", {"realloc"}, reallocates, malloc, free, realloc},
        {"hak_realloc", {"hak_realloc"}, reallocates, malloc, free, hak_grow},
        {"sizes",
         {"hak_expand", "hak_good_size", "hak_usable_size", "malloc_usable_size"},
         expands,
         malloc,
         free,
         realloc},
        {"trim", {"hak_trim", "hak_thread_rests", "malloc_trim"}, trims, malloc, free, realloc},
        {"reports",
         {"hak_stats_json", "hak_stats_print", "mallinfo", "mallinfo2", "malloc_info", "malloc_stats"},
         reports,
         malloc,
         free,
         realloc},
        {"settings",
         {"hak_option_get", "hak_option_set", "hak_profile_dump", "hak_profile_start", "hak_profile_stop",
          "hak_set_soft_limit_callback", "hak_version", "mallopt"},
         is_set,
         malloc,
         free,
         realloc},
    };
    return all;
}

void on_soft_limit(void *unused) { (void)unused; }

/* Runs in a child: prints the bytes of stack that each scenario used. */
int measure(bool with_misuses) {
    setvbuf(stdout, nullptr, _IOLBF, 4096);
    nowhere = fopen("/dev/null", "we");
    static char kept[BUFSIZ]; /* else libc allocates one beneath its own calls */
    setvbuf(nowhere, kept, _IOFBF, sizeof kept);
    pthread_barrier_t end;
    pthread_barrier_init(&end, nullptr, 2);
    pthread_t other; /* makes a purger due, which starts in one of the scenarios */
    pthread_create(
        &other, nullptr,
        [](void *barrier) {
            free(malloc(100));
            pthread_barrier_wait(static_cast<pthread_barrier_t *>(barrier));
            return static_cast<void *>(nullptr);
        },
        &end);
    hak_set_soft_limit_callback(on_soft_limit, nullptr);
    auto run = [](const char *name, void (*scenario)()) { printf("%zu %s\n", stack_use_of(scenario), name); };
    for (auto &scenario : scenarios()) {
        allocate = scenario.allocate, release = scenario.release, grow = scenario.grow;
        run(scenario.name, scenario.run);
    }
    if (with_misuses) {
        allocate = malloc, release = free, grow = realloc;
        run("misuses", misuses);
    }
    printf("%zu a thread\n", stack_use_of_a_thread());
    pthread_barrier_wait(&end);
    pthread_join(other, nullptr);
    return 0;
}

struct Mode {
    const char *name;
    std::vector<std::string> environment;
};
void PrintTo(const Mode &mode, std::ostream *out) { *out << mode.name; }

class StackUse : public testing::TestWithParam<Mode> {};

TEST_P(StackUse, AtMostTwoKibibytes) {
    Outcome outcome = run_self({"--measure", GetParam().name}, GetParam().environment);
    ASSERT_TRUE(outcome.exited(0)) << outcome.describe();
    size_t most = 0, lines = 0;
    for (auto &line : lines_of(outcome.out)) {
        size_t bytes = strtoul(line.c_str(), nullptr, 10);
        EXPECT_LE(bytes, kMost) << line;
        most = std::max(most, bytes), lines++;
    }
    EXPECT_GT(lines, scenarios().size());
    figure((std::string("stack_bytes_") + GetParam().name + "_most").c_str(), static_cast<long>(most));
}

/* If it fails, the test above sees no stack. */
__attribute__((noinline)) void uses_too_much() {
    volatile char used[2 * kMost];
    for (volatile char &one : used)
        one = 1;
}
TEST(Watch, SeesWhatAFunctionUses) {
    size_t bytes = stack_use_of([] {
        MARK_STACK();
        uses_too_much();
    });
    EXPECT_GE(bytes, 2 * kMost);
    EXPECT_LE(bytes, 3 * kMost);
}

INSTANTIATE_TEST_SUITE_P(
    Modes, StackUse,
    testing::Values(Mode{"default", {}}, Mode{"secure", {"HAKMEM_SECURE=1"}},
                    Mode{"secure_stacks", {"HAKMEM_SECURE=1", "HAKMEM_SECURE_STACKS=1"}},
                    Mode{"guard", {"HAKMEM_GUARD_SAMPLE_BYTES=4096"}},
                    Mode{"profile", {"HAKMEM_PROFILE=1", "HAKMEM_PROFILE_BYTES=4096", "HAKMEM_PROFILE_RATE=1000000"}},
                    Mode{"limits",
                         {"HAKMEM_HARD_LIMIT=128m", "HAKMEM_SOFT_LIMIT=40m", "HAKMEM_SOFT_LIMIT_PROFILE=/dev/null"}},
                    Mode{"window", {"HAKMEM_REGION_BYTES=0", "HAKMEM_CGROUP=0"}}, Mode{"eager", {"HAKMEM_PURGE=eager"}},
                    Mode{"nodes", {"HAKMEM_NUMA=4"}}, Mode{"policy", {"HAKMEM_POLICY=" HAK_TEST_POLICY}},
                    Mode{"dumps",
                         {"HAKMEM_PROFILE_BYTES=4096", "HAKMEM_PROFILE_FILE=/dev/null", "HAKMEM_DUMP_INTERVAL_MS=1",
                          "HAKMEM_STATS=json", "HAKMEM_STATS_FILE=/dev/null"}},
                    Mode{"stats", {"HAKMEM_STATS=1", "HAKMEM_STATS_FILE=/dev/null"}},
                    Mode{"warn", {"HAKMEM_ON_ERROR=warn"}},
                    Mode{"warn_secure", {"HAKMEM_ON_ERROR=warn", "HAKMEM_SECURE=1", "HAKMEM_SECURE_STACKS=1"}},
                    Mode{"warn_sampled",
                         {"HAKMEM_ON_ERROR=warn", "HAKMEM_GUARD_SAMPLE_BYTES=4096", "HAKMEM_PROFILE=1",
                          "HAKMEM_PROFILE_BYTES=4096"}}),
    [](const testing::TestParamInfo<Mode> &mode) { return std::string(mode.param.name); });

/* ---- the exports ---- */

/* The functions that a module exports: the dynamic symbols that it defines. */
std::set<std::string> exported_by(const void *address) {
    Dl_info info;
    link_map *map = nullptr;
    std::set<std::string> names;
    if (dladdr1(address, &info, reinterpret_cast<void **>(&map), RTLD_DL_LINKMAP) == 0)
        return names;
    const ElfW(Sym) *symbols = nullptr;
    const char *strings = nullptr;
    for (const ElfW(Dyn) *d = map->l_ld; d->d_tag != DT_NULL; d++) {
        if (d->d_tag == DT_SYMTAB)
            symbols = reinterpret_cast<const ElfW(Sym) *>(d->d_un.d_ptr);
        if (d->d_tag == DT_STRTAB)
            strings = reinterpret_cast<const char *>(d->d_un.d_ptr);
    }
    /* The string table follows the symbols in every linker's output. */
    for (auto *symbol = symbols; reinterpret_cast<const char *>(symbol) < strings; symbol++)
        if (symbol->st_shndx != SHN_UNDEF && ELF64_ST_TYPE(symbol->st_info) == STT_FUNC)
            names.insert(strings + symbol->st_name);
    return names;
}

/* They go on to libc's functions of that name, whose stack is theirs. */
const std::set<std::string> kGoOn = {"dlopen",    "dlmopen",     "sigaction",     "signal",    "bsd_signal",
                                     "ssignal",   "sysv_signal", "__sysv_signal", "sigset",    "pthread_create",
                                     "setrlimit", "setrlimit64", "prlimit",       "prlimit64", "mlockall"};

TEST(StackUse, EveryExportedFunctionIsMeasured) {
    std::set<std::string> covered, exported = exported_by(reinterpret_cast<const void *>(hak_version));
    for (auto &scenario : scenarios())
        covered.insert(scenario.covers.begin(), scenario.covers.end());
    covered.insert(kGoOn.begin(), kGoOn.end());
    EXPECT_GE(exported.size(), 50U) << "the library's symbols cannot be read";
    EXPECT_EQ(covered, exported);
}

} // namespace

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "--measure") == 0)
        return measure(strncmp(argv[2], "warn", 4) == 0);
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
