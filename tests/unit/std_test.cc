/* The symbols that only the overriding library has: C++ operators, the malloc_* functions, cfree. glibc is the oracle.
 * If one fails, blocks of two allocators meet in one program, or C++ code sees NULL where it expects an exception. */
/* SPDX-License-Identifier: MIT */
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <hakmem.h>
#include <malloc.h>
#include <sys/resource.h>

#include <new>
#include <thread>

#include "../support.h"
#include "../surface.h"

namespace {

const Surface &S = subject();
const Surface &G = oracle();

std::string library_of(const void *function) {
    Dl_info info;
    return dladdr(function, &info) != 0 ? info.dli_fname : "nowhere";
}

TEST(Symbols, EveryPromisedSymbolComesFromTheLibrary) {
    const char *const names[] = {
        "malloc", "calloc", "realloc", "free", "reallocarray", "posix_memalign", "aligned_alloc", "memalign", "valloc",
        "pvalloc", "malloc_usable_size", "free_sized", "free_aligned_sized", "malloc_trim", "mallinfo", "mallinfo2",
        "mallopt", "malloc_stats", "malloc_info", "cfree",
        /* new, new[], nothrow, aligned, both */
        "_Znwm", "_Znam", "_ZnwmRKSt9nothrow_t", "_ZnamRKSt9nothrow_t", "_ZnwmSt11align_val_t", "_ZnamSt11align_val_t",
        "_ZnwmSt11align_val_tRKSt9nothrow_t", "_ZnamSt11align_val_tRKSt9nothrow_t",
        /* delete, delete[], nothrow, sized, aligned, sized and aligned, aligned nothrow */
        "_ZdlPv", "_ZdaPv", "_ZdlPvRKSt9nothrow_t", "_ZdaPvRKSt9nothrow_t", "_ZdlPvm", "_ZdaPvm",
        "_ZdlPvSt11align_val_t", "_ZdaPvSt11align_val_t", "_ZdlPvmSt11align_val_t", "_ZdaPvmSt11align_val_t",
        "_ZdlPvSt11align_val_tRKSt9nothrow_t", "_ZdaPvSt11align_val_tRKSt9nothrow_t", "hak_malloc", "hak_calloc",
        "hak_realloc", "hak_free", "hak_aligned_alloc", "hak_usable_size", "hak_good_size", "hak_expand",
        "hak_alloc_at_least", "hak_free_sized", "hak_trim", "hak_stats_print", "hak_stats_json", "hak_option_get",
        "hak_option_set", "hak_version"};
    std::string library = library_of(reinterpret_cast<void *>(dlsym(RTLD_DEFAULT, "hak_malloc")));
    EXPECT_NE(library.find("hakmem"), std::string::npos) << library;
    for (const char *name : names) {
        void *symbol = dlsym(RTLD_DEFAULT, name);
        ASSERT_NE(symbol, nullptr) << name << " is missing";
        EXPECT_EQ(library_of(symbol), library) << name << " is somebody else's";
    }
}

TEST(Symbols, HakAndStandardCallsMix) {
    for (size_t size : kTierSizes) {
        hak_free(S.alloc(size));
        S.free(hak_malloc(size));
        delete[] static_cast<char *>(hak_malloc(size));
        hak_free(new char[size]);
        S.free(hak_realloc(S.alloc(size), size * 2));
    }
    using Cfree = void(void *);
    auto *cfree_call = reinterpret_cast<Cfree *>(dlsym(RTLD_DEFAULT, "cfree"));
    cfree_call(S.alloc(100));
}

struct alignas(256) Wide {
    char bytes[512];
};

TEST(Operators, EveryFormInEveryTier) {
    const std::nothrow_t &nothrow = std::nothrow;
    for (size_t size : kTierSizes) {
        memset(::operator new(size), 1, size);
        void *forms[] = {::operator new(size), ::operator new[](size), ::operator new(size, nothrow),
                         ::operator new[](size, nothrow)};
        for (void *block : forms)
            memset(block, 2, size);
        ::operator delete(forms[0]);
        ::operator delete[](forms[1], size);
        ::operator delete(forms[2], size);
        ::operator delete[](forms[3], nothrow);
        for (size_t alignment : {size_t{8}, size_t{64}, size_t{4096}, 256 * kKiB}) {
            std::align_val_t align{alignment};
            void *aligned[] = {::operator new(size, align), ::operator new[](size, align),
                               ::operator new(size, align, nothrow), ::operator new[](size, align, nothrow)};
            for (void *block : aligned) {
                ASSERT_TRUE(aligned_to(block, alignment)) << size << " at " << alignment;
                memset(block, 3, size);
            }
            ::operator delete(aligned[0], align);
            ::operator delete[](aligned[1], size, align);
            ::operator delete(aligned[2], size, align);
            ::operator delete[](aligned[3], align, nothrow);
        }
    }
    Wide *volatile wide = new Wide; /* volatile, so that the compiler keeps the pair */
    EXPECT_TRUE(aligned_to(wide, 256));
    delete wide;
    Wide *volatile array = new Wide[10];
    EXPECT_TRUE(aligned_to(array, 256));
    delete[] array;
    EXPECT_NE(::operator new(0), nullptr);
    ::operator delete(nullptr);
    ::operator delete[](nullptr, size_t{10});
    // clang-format off
    ::operator delete(nullptr, std::align_val_t{64});
    // clang-format on
}

TEST(Operators, ImpossibleSizesThrow) {
    volatile size_t sizes[] = {size_t{PTRDIFF_MAX} + 1, SIZE_MAX - 100, SIZE_MAX, size_t{PTRDIFF_MAX}};
    for (volatile size_t &impossible : sizes) {
        size_t size = impossible;
        EXPECT_THROW((void)::operator new(size), std::bad_alloc);
        EXPECT_THROW((void)::operator new[](size), std::bad_alloc);
        // clang-format off
        EXPECT_THROW((void)::operator new(size, std::align_val_t{64}), std::bad_alloc);
        // clang-format on
        EXPECT_THROW((void)::operator new[](size, std::align_val_t{64}), std::bad_alloc);
        EXPECT_EQ(::operator new(size, std::nothrow), nullptr);
        EXPECT_EQ(::operator new[](size, std::nothrow), nullptr);
        // clang-format off
        EXPECT_EQ(::operator new(size, std::align_val_t{64}, std::nothrow), nullptr);
        // clang-format on
        EXPECT_EQ(::operator new[](size, std::align_val_t{64}, std::nothrow), nullptr);
    }
}

/* libstdc++ throws without calling the new_handler. If it fails, the block has another alignment than requested, or the
 * handler is called forever. */
TEST(Operators, ImpossibleAlignmentsThrow) {
    for (size_t impossible : {size_t{0}, size_t{3}, size_t{24}, size_t{4095}, SIZE_MAX}) {
        std::align_val_t align{impossible};
        std::set_new_handler([] { FAIL() << "the new_handler was asked"; });
        EXPECT_THROW((void)::operator new(10, align), std::bad_alloc) << impossible;
        EXPECT_THROW((void)::operator new[](10, align), std::bad_alloc) << impossible;
        EXPECT_EQ(::operator new(10, align, std::nothrow), nullptr) << impossible;
        EXPECT_EQ(::operator new[](10, align, std::nothrow), nullptr) << impossible;
        std::set_new_handler(nullptr);
    }
}

int handler_calls;

TEST(Operators, NewHandlerIsCalledUntilItGivesUp) {
    volatile size_t impossible = PTRDIFF_MAX;
    for (int form = 0; form < 3; form++) {
        handler_calls = 0;
        std::set_new_handler([] {
            if (++handler_calls == 3)
                std::set_new_handler(nullptr);
        });
        if (form == 0)
            EXPECT_THROW((void)::operator new(impossible), std::bad_alloc);
        if (form == 1)
            EXPECT_EQ(::operator new(impossible, std::nothrow), nullptr);
        // clang-format off
        if (form == 2)
            EXPECT_THROW((void)::operator new(impossible, std::align_val_t{128}), std::bad_alloc);
        // clang-format on
        EXPECT_EQ(handler_calls, 3);
    }
    std::set_new_handler([] { throw 42; });
    EXPECT_THROW((void)::operator new(impossible), int) << "an exception of the handler must pass through";
    std::set_new_handler([] { throw std::bad_alloc(); });
    EXPECT_EQ(::operator new(impossible, std::nothrow), nullptr) << "nothrow new swallows the handler's bad_alloc";
    std::set_new_handler(nullptr);
}

char *reserve;

/* If it fails, programs that reserve memory for the worst case die in it all the same. */
TEST(Operators, ANewHandlerThatFreesMemoryIsEnough) {
    constexpr size_t kBytes = 200 * kMiB;
    ASSERT_EQ(hak_option_set("HARD_LIMIT", "256M"), 0);
    for (int form = 0; form < 3; form++) {
        reserve = new char[kBytes];
        std::set_new_handler([] {
            delete[] reserve;
            reserve = nullptr;
            std::set_new_handler(nullptr);
        });
        std::align_val_t align{128};
        void *block = form == 0   ? ::operator new(kBytes)
                      : form == 1 ? ::operator new(kBytes, std::nothrow)
                                  : ::operator new(kBytes, align);
        EXPECT_NE(block, nullptr);
        EXPECT_EQ(reserve, nullptr) << "the handler was not needed, so this tests nothing";
        ::operator delete(block);
    }
    ASSERT_EQ(hak_option_set("HARD_LIMIT", "0"), 0);
}

/* A large block grows within its slots, past a multiple of its alignment. */
TEST(Operators, AlignedBlocksThatGrewAreDeletedByTheNewSize) {
    void *block = hak_aligned_alloc(8192, 20 * 8192);
    ASSERT_EQ(hak_expand(block, 20 * 8192 + 241), 1);
    testing::internal::CaptureStderr();
    operator delete (block, 20 * 8192 + 241, std::align_val_t{8192});
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

/* libc allocates for a thread that the library starts, and keeps that with the thread's stack for later threads. Leaves
 * by the number of blocks in the arena. */
[[noreturn]] void start_purger_with_default() {
    static void *blocks[3000];
    hak_arena *arena = hak_arena_new(nullptr);
    long before = process_threads();
    std::thread([&] {
        alarm(kChildSeconds);
        hak_arena_set_default(arena, nullptr);
        while (process_threads() == before + 1) { /* the purger was not made with this thread */
            for (auto &block : blocks)
                memset(block = S.alloc(4000), 1, 4000);
            for (auto &block : blocks)
                S.free(block);
        }
        hak_arena_set_default(nullptr, nullptr);
    }).join();
    int left = 0;
    hak_arena_visit(
        arena, [](void *, size_t, void *n) { return ++*static_cast<int *>(n), 0; }, &left);
    _exit(left);
}
TEST(Libc, AThreadOfTheLibraryHasNothingInTheDefaultArena) {
    GTEST_FLAG_SET(death_test_style, "threadsafe"); /* in a process where no thread has left its stack yet */
    EXPECT_EXIT(start_purger_with_default(), testing::ExitedWithCode(0), "");
}

size_t samples_taken() {
    static char text[256 * kKiB];
    hak_stats_json(text, sizeof text);
    const char *name = "\"samples_taken\":", *found = strstr(text, name);
    return found != nullptr ? strtoul(found + strlen(name), nullptr, 10) : 0;
}
/* Leaves by the number of samples that were taken as the program made its first thread: of what libc allocates. */
[[noreturn]] void sample_a_thread(const char *purger) {
    pthread_t thread;
    alarm(kChildSeconds);
    hak_option_set("PURGER", purger);
    hak_option_set("PROFILE_RATE", "0");
    hak_profile_start(1); /* samples nearly every block */
    size_t before = samples_taken();
    pthread_create(
        &thread, nullptr, [](void *unused) { return unused; }, nullptr);
    pthread_join(thread, nullptr);
    _exit(static_cast<int>(samples_taken() - before));
}
/* Else the profile of a program shows allocations that are none of its own. */
TEST(Libc, AThreadOfTheLibraryHasNothingInTheProfile) {
    if (in_secure_mode())
        GTEST_SKIP() << "which samples nothing";
    GTEST_FLAG_SET(death_test_style, "threadsafe"); /* as above */
    int without = 0, with = 0;
    auto keep = [](int &samples) {
        return [&samples](int status) {
            samples = WEXITSTATUS(status);
            return WIFEXITED(status);
        };
    };
    EXPECT_EXIT(sample_a_thread("0"), keep(without), "");
    EXPECT_EXIT(sample_a_thread("1"), keep(with), "");
#ifdef __x86_64__ /* elsewhere an emulator's program may have no samples at all */
    EXPECT_GT(without, 0);
#endif
    EXPECT_EQ(with, without);
}

TEST(Mallopt, AnswersLikeGlibc) {
    const int cases[][2] = {{M_MXFAST, 64},
                            {M_MXFAST, 0},
                            {M_MXFAST, 1 << 20},
                            {M_MXFAST, -1},
                            {M_MXFAST, 160},
                            {M_MXFAST, 161},
                            {M_TRIM_THRESHOLD, 1 << 17},
                            {M_TRIM_THRESHOLD, 0},
                            {M_TOP_PAD, 4096},
                            {M_MMAP_THRESHOLD, 1 << 17},
                            {M_MMAP_THRESHOLD, 1 << 30},
                            {M_MMAP_MAX, 65536},
                            {M_CHECK_ACTION, 3},
                            {M_ARENA_TEST, 2},
                            {M_ARENA_TEST, 0},
                            {M_ARENA_MAX, 1},
                            {M_ARENA_MAX, 0},
                            {M_ARENA_MAX, 8},
                            {M_PERTURB, 0},
                            {-12345, 1},
                            {7777, 0}};
    for (auto &[parameter, value] : cases)
        EXPECT_EQ(S.mallopt(parameter, value), G.mallopt(parameter, value))
            << "mallopt(" << parameter << ", " << value << ")";
    S.free(S.alloc(1000));
}

std::string option_of(const char *name) {
    char value[32];
    hak_option_get(name, value, sizeof value);
    return value;
}

TEST(Mallopt, TrimThresholdIsWhatMayStay) {
    std::string purge = option_of("PURGE"), bytes = option_of("RETAIN_BYTES");
    EXPECT_EQ(S.mallopt(M_TRIM_THRESHOLD, 0), 1);
    EXPECT_EQ(option_of("RETAIN_BYTES"), "0");
    EXPECT_EQ(option_of("PURGE"), purge);
    EXPECT_EQ(S.mallopt(M_TRIM_THRESHOLD, -1), 1);
    EXPECT_EQ(option_of("PURGE"), "never");
    hak_option_set("PURGE", purge.c_str());
    hak_option_set("RETAIN_BYTES", bytes.c_str());
}

TEST(MallocTrim, AnswersZeroOrOneAndGivesBack) {
    S.trim(0);
    size_t before = process_rss_bytes();
    std::vector<void *> blocks;
    for (int i = 0; i < 32 * 1024; i++) {
        blocks.push_back(S.alloc(1000));
        memset(blocks.back(), 1, 1000);
    }
    EXPECT_GT(process_rss_bytes(), before + 30 * kMiB);
    for (void *block : blocks)
        S.free(block);
    int answer = S.trim(0);
    EXPECT_TRUE(answer == 0 || answer == 1) << answer;
    EXPECT_LT(process_rss_bytes(), before + 5 * kMiB) << "malloc_trim left memory that nobody uses";
    answer = S.trim(SIZE_MAX);
    EXPECT_TRUE(answer == 0 || answer == 1) << answer;
}

TEST(Mallinfo, FieldsArePlausible) {
    struct mallinfo2 before = S.mallinfo2();
    std::vector<void *> blocks;
    for (int i = 0; i < 1000; i++)
        blocks.push_back(S.alloc(10000));
    void *huge = S.alloc(64 * kMiB);
    struct mallinfo2 during = S.mallinfo2();
    EXPECT_GE(during.uordblks + during.hblkhd, before.uordblks + before.hblkhd + 1000 * 10000 + 64 * kMiB);
    EXPECT_GE(during.arena + during.hblkhd, during.uordblks);
    EXPECT_LT(during.fordblks, size_t{1} << 40);
    for (void *block : blocks)
        S.free(block);
    S.free(huge);
    struct mallinfo2 after = S.mallinfo2();
    EXPECT_LE(after.uordblks + after.hblkhd, before.uordblks + before.hblkhd + kMiB);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    struct mallinfo old = mallinfo();
#pragma GCC diagnostic pop
    EXPECT_NEAR(old.uordblks, static_cast<double>(after.uordblks), 1e6);
}

TEST(MallocInfo, WritesXml) {
    char *text = nullptr;
    size_t length = 0;
    FILE *file = open_memstream(&text, &length);
    EXPECT_EQ(S.malloc_info(0, file), 0);
    fclose(file);
    std::string xml(text, length);
    S.free(text);
    EXPECT_EQ(xml.compare(0, 16, "<malloc version="), 0) << xml;
    EXPECT_NE(xml.find("</malloc>"), std::string::npos) << xml;
    for (const char *type : {"live", "thread_caches", "empty_slots", "metadata"})
        EXPECT_NE(xml.find(std::string("<total type=\"") + type + "\""), std::string::npos) << xml;
    for (int option : {1, -1}) {
        FILE *null = fopen("/dev/null", "w");
        EXPECT_EQ(S.malloc_info(option, null), G.malloc_info(option, null));
        fclose(null);
    }
}

TEST(MallocStats, WritesToStderr) {
    int file = memfd_create("stderr", 0), kept = dup(2);
    dup2(file, 2);
    malloc_stats();
    dup2(kept, 2);
    close(kept);
    EXPECT_GT(read_whole(file).size(), 50u);
}

/* Blocks that libc allocates for the caller must be valid for free. */
/* It rounds up, and a sized free names what was asked for. */
TEST(Libc, ABlockOfPvallocIsFreedByItsSize) {
    for (size_t size : {1, 100, 5000, 70000, 300000}) {
        void *block = S.pvalloc(size);
        ASSERT_NE(block, nullptr);
        S.free_sized(block, size);
    }
}

TEST(Libc, ALimitThatCannotBeReadIsNone) {
    auto *nowhere = reinterpret_cast<rlimit *>(8);
    for (auto resource : {RLIMIT_AS, RLIMIT_DATA}) {
        bool is_set = setrlimit(resource, nowhere) == 0; /* an emulator does not look at it */
        EXPECT_TRUE(is_set || errno == EFAULT);
        EXPECT_EQ(prlimit(0, resource, nullptr, nullptr), 0);
    }
}

TEST(Libc, BlocksFromLibcAreOurs) {
    free(strdup("text"));
    free(realpath("/proc/self", nullptr));
    char *line = nullptr;
    size_t room = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (getline(&line, &room, file) > 0) {
    }
    fclose(file);
    free(line);
    char *text = nullptr;
    ASSERT_GT(asprintf(&text, "%0*d", 5000, 1), 0);
    free(text);
}

} // namespace
