/* Sampled guard pages: small programs that misuse a guarded block, each run in its own process. The report must say
 * what was done to which block, and who allocated and freed it. If one fails, a bug in production ends in a crash far
 * from its cause. */
/* SPDX-License-Identifier: MIT */
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <hakmem.h>
#include <signal.h>

#include <thread>

#include "../heap_stats.h"
#include "../posix_regex.h"
#include "../support.h"

/* A signal that comes to this thread, as to any other, once the system has a new handler for it and before the caller
 * knows which was the old one. The library calls glibc's own name. */
static bool signal_meanwhile = false;
#if HAK_TEST_SHORTER == 1 /* a sanitizer has a sigaction of its own */
extern "C" int __sigaction(int number, const struct sigaction *action, struct sigaction *before) noexcept {
    static auto *const next = reinterpret_cast<decltype(&sigaction)>(dlsym(RTLD_NEXT, "__sigaction"));
    struct sigaction was;
    int result = next(number, action, &was);
    if (signal_meanwhile && action != nullptr)
        raise(number);
    if (before != nullptr && result == 0)
        *before = was;
    return result;
}
#endif

namespace {

constexpr size_t kSlots = 32;

/* The functions that the reports must name. */
__attribute__((noinline, no_sanitize("address", "undefined"))) char *allocate_here(size_t size) {
    void *volatile block = hak_malloc(size);
    return static_cast<char *>(block);
}
__attribute__((noinline, no_sanitize("address", "undefined"))) void free_here(void *block) {
    hak_free(block);
    __asm__ volatile("" ::: "memory");
}
__attribute__((noinline)) void touch(char *at, bool write) {
    volatile char *place = at;
    if (write)
        *place = 1;
    else
        __asm__ volatile("" ::"r"(*place));
}

void read_after_free(size_t size) {
    char *block = allocate_here(size);
    free_here(block);
    touch(block + 8, false);
}
void write_after_free(size_t size) {
    char *block = allocate_here(size);
    free_here(block);
    touch(block, true);
}
void write_after_free_by_another_thread(size_t size) {
    char *block = allocate_here(size);
    std::thread([&] { free_here(block); }).join();
    touch(block + size - 1, true);
}
void overflow_by_1(size_t size) { touch(allocate_here(size) + size, true); }
void overflow_by_3(size_t size) { touch(allocate_here(size) + size + 2, false); }
/* In every fourth slot the guard lies before the beginning of the block. */
void underflow_by_1(size_t size) {
    for (int i = 0; i < 3; i++)
        allocate_here(size);
    touch(allocate_here(size) - 1, true);
}
void double_free(size_t size) {
    char *block = allocate_here(size);
    free_here(block);
    free_here(block);
}
void double_free_by_realloc(size_t size) {
    char *block = allocate_here(size);
    free_here(block);
    hak_free(hak_realloc(block, 2 * size));
}
void double_free_with_size(size_t size) {
    char *block = allocate_here(size);
    free_here(block);
    hak_free_sized(block, size);
    __asm__ volatile("" ::: "memory"); /* a call, not a jump */
}
void interior_free(size_t size) { free_here(allocate_here(size) + 8); }
void sized_free(size_t size) {
    hak_free_sized(allocate_here(size), size + 1);
    __asm__ volatile("" ::: "memory"); /* a call, not a jump */
}

struct BadProgram {
    const char *name;
    void (*run)(size_t);
    size_t size;
    const char *line; /* a regular expression; # stands for the block's size */
    bool freed;
    const char *culprit; /* the function that errs */
};
const BadProgram kPrograms[] = {
    {"read_after_free", read_after_free, 48,
     "use after free of 0x[0-9a-f]+ \\(#-byte block\\), (read|access) at byte 8", true, "touch"},
    {"write_after_free", write_after_free, 48,
     "use after free of 0x[0-9a-f]+ \\(#-byte block\\), (write|access) at byte 0", true, "touch"},
    {"write_after_free_mid", write_after_free, 20000,
     "use after free of 0x[0-9a-f]+ \\(#-byte block\\), (write|access) at byte 0", true, "touch"},
    {"write_after_free_by_another_thread", write_after_free_by_another_thread, 512,
     "use after free of 0x[0-9a-f]+ \\(#-byte block\\), (write|access) at byte 511", true, "touch"},
    {"overflow_by_1", overflow_by_1, 48, "overflow of 0x[0-9a-f]+ \\(#-byte block\\) by 1 bytes, (write|access)", false,
     "touch"},
    {"overflow_by_1_of_8", overflow_by_1, 8, "overflow of 0x[0-9a-f]+ \\(#-byte block\\) by 1 bytes, (write|access)",
     false, "touch"},
    {"overflow_by_3", overflow_by_3, 1024, "overflow of 0x[0-9a-f]+ \\(#-byte block\\) by 3 bytes, (read|access)",
     false, "touch"},
    {"overflow_by_1_mid", overflow_by_1, 40960, "overflow of 0x[0-9a-f]+ \\(#-byte block\\) by 1 bytes, (write|access)",
     false, "touch"},
    {"underflow_by_1", underflow_by_1, 48, "underflow of 0x[0-9a-f]+ \\(#-byte block\\) by 1 bytes, (write|access)",
     false, "touch"},
    {"double_free", double_free, 48, "double free of 0x[0-9a-f]+ \\(#-byte block\\)", true, "free_here"},
    {"double_free_with_size", double_free_with_size, 48, "double free of 0x[0-9a-f]+ \\(#-byte block[^)]*\\)", true,
     "double_free_with_size"},
    {"double_free_by_realloc", double_free_by_realloc, 48,
     "invalid pointer 0x[0-9a-f]+ in realloc \\(a block that is free\\)", true, "double_free_by_realloc"},
    {"interior_free", interior_free, 48, "invalid free of 0x[0-9a-f]+ \\(inside a #-byte block\\)", false, "free_here"},
    {"sized_free", sized_free, 2000, "free of 0x[0-9a-f]+ with size 2001 \\(#-byte block\\)", false, "sized_free"},
};

/* With 2, one in 55 blocks of eight bytes would not be sampled. */
const std::vector<std::string> kGuardAll{"HAKMEM_GUARD_SAMPLE_BYTES=1", "HAKMEM_ON_ERROR=abort"};

/* Whether a line of the report names the function, with its file, and none a function of the library that programs
 * call. */
bool names(const std::string &report, const char *function) {
    const std::string call = "\nhakmem:   0x[0-9a-f]+ [^ ]*",
                      place = "[^ ]*\\+0x[0-9a-f]+ \\(/[^ ]+\\+0x[0-9a-f]+\\)\n";
    return Regex(call + function + place).is_in(report) && !Regex(call + "(hak_|alloc_)").is_in(report) &&
           report.find("program+0x") == std::string::npos;
}

TEST(Guard, ReportsWhatHappenedAndWhichThreadDidIt) {
    for (auto &program : kPrograms) {
        Outcome outcome = run_self({"run", program.name}, kGuardAll);
        SCOPED_TRACE(std::string(program.name) + ": " + outcome.describe());
        EXPECT_FALSE(outcome.exited(0));
        std::string line = program.line;
        if (size_t size = line.find('#'); size != std::string::npos)
            line.replace(size, 1, std::to_string(program.size));
        EXPECT_TRUE(Regex("hakmem: " + line + "\n").is_in(outcome.err));
        size_t allocated = outcome.err.find("hakmem: allocated by thread ");
        size_t freed = outcome.err.find("hakmem: freed by thread ");
        ASSERT_NE(allocated, std::string::npos);
        EXPECT_TRUE(names(outcome.err.substr(0, allocated), kShorter == 1 ? program.culprit : ""));
        EXPECT_TRUE(names(outcome.err.substr(allocated, freed - allocated), "allocate_here"));
        EXPECT_EQ(freed != std::string::npos, program.freed);
        if (freed != std::string::npos)
            EXPECT_TRUE(names(outcome.err.substr(freed), "free_here"));
    }
}

size_t mappings() {
    FILE *file = fopen("/proc/self/maps", "re");
    size_t lines = 0;
    for (int c; (c = fgetc(file)) != EOF;)
        lines += c == '\n';
    fclose(file);
    return lines;
}

#define CHECK(x)                                                                                                       \
    if (!(x)) {                                                                                                        \
        fprintf(stderr, "line %d: %s\n", __LINE__, #x);                                                                \
        exit(1);                                                                                                       \
    }

/* A correct program whose blocks would all be guarded if there were room. */
void use_more_than_there_is() {
    static char *blocks[1000];
    size_t before = mappings();
    for (size_t i = 0; i < 1000; i++) {
        blocks[i] = allocate_here(i * 7);
        CHECK(aligned_to(blocks[i], natural_alignment(i * 7)));
        CHECK(hak_usable_size(blocks[i]) >= i * 7);
        pattern_write(blocks[i], 0, i * 7, static_cast<uint32_t>(i));
    }
    size_t after = mappings();
    CHECK(counter("guard_sampled") == kSlots);
    CHECK(counter("guard_full") >= 990 - static_cast<long>(kSlots)); /* the first few may lie between two samples */
    CHECK(after <= before + 3 * kSlots || kShorter != 1);            /* a sanitizer has mappings of its own */
    CHECK(after > before);                                           /* proves that they are counted at all */
    for (size_t i = 0; i < 1000; i++) {
        CHECK(pattern_check(blocks[i], i * 7, i * 7, static_cast<uint32_t>(i)) == i * 7);
        blocks[i] = static_cast<char *>(hak_realloc(blocks[i], 2 * i + 10));
        CHECK(pattern_check(blocks[i], std::min(i * 7, 2 * i + 10), i * 7, static_cast<uint32_t>(i)) ==
              std::min(i * 7, 2 * i + 10));
    }
    for (char *block : blocks)
        hak_free(block);
    CHECK(mappings() <= after || kShorter != 1);
    char *first = allocate_here(100), *block = first;
    for (size_t i = 1; i < kSlots; i++) { /* the place used last comes up again last */
        hak_free(block);
        block = allocate_here(100);
        CHECK(reinterpret_cast<uintptr_t>(block) / 65536 != reinterpret_cast<uintptr_t>(first) / 65536);
    }
    for (size_t alignment = 16; alignment <= 16384; alignment *= 2)
        CHECK(aligned_to(hak_aligned_alloc(alignment, 3 * alignment / 2), alignment));
    block = static_cast<char *>(hak_calloc(10, 10));
    CHECK(first_dirty(block, 100) == 100);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; t++)
        threads.emplace_back([] {
            for (int i = 0; i < 3000; i++)
                free_here(allocate_here(static_cast<size_t>(i % 100)));
        });
    for (auto &thread : threads)
        thread.join();
}

TEST(Guard, SoundProgramsRun) {
    Outcome outcome = run_self({"more"}, kGuardAll);
    EXPECT_TRUE(outcome.exited(0)) << outcome.describe();
    EXPECT_TRUE(Regex("hakmem: HAKMEM_GUARD_SAMPLE_BYTES=1[^\n]*\n").is_all_of(outcome.err)) << outcome.err;
    outcome = run_self({"more"}, {"HAKMEM_GUARD_SAMPLE_BYTES=1", "HAKMEM_PROFILE=1", "HAKMEM_PROFILE_BYTES=1"});
    EXPECT_TRUE(outcome.exited(0)) << outcome.describe();
}

/* GUARD_SAMPLE_BYTES is set while the program runs, in another thread, too; then taken back; then set again. */
void switch_on_and_off(size_t size) {
    auto guards = [&] {
        long before = counter("guard_sampled");
        for (int i = 0; i < 1000 && counter("guard_sampled") == before; i++)
            for (int j = 0; j < 100; j++)
                free_here(allocate_here(size));
        return counter("guard_sampled") != before;
    };
    allocate_here(size);
    CHECK(hak_option_set("GUARD_SAMPLE_BYTES", "1") == 0);
    CHECK(guards());
    CHECK(hak_option_set("GUARD_SAMPLE_BYTES", "0") == 0);
    while (guards()) /* those that were already chosen */
        continue;
    CHECK(hak_option_set("GUARD_SAMPLE_BYTES", "1") == 0);
    std::thread([&] { CHECK(guards()); }).join();
    CHECK(guards());
    overflow_by_1(size);
}

TEST(Guard, IsSwitchedWhileTheProgramRuns) {
    if (kShorter != 1)
        GTEST_SKIP() << "a sanitizer has a handler of its own";
    Outcome outcome = run_self({"switch"}, {});
    EXPECT_FALSE(outcome.exited(0));
    EXPECT_TRUE(Regex("^hakmem: overflow of 0x[0-9a-f]+ \\(48-byte block\\) by 1 bytes").is_in(outcome.err))
        << outcome.describe();
}

/* The pool lies where large blocks were, and nothing of these remains. */
void ask_for_what_was_before(size_t size) {
    std::vector<char *> before(64);
    for (char *&block : before)
        block = allocate_here(200000);
    for (char *block : before)
        free_here(block);
    hak_trim();
    CHECK(hak_option_set("GUARD_SAMPLE_BYTES", "1") == 0);
    char *guarded = nullptr;
    for (long i = 0; i < 1000 && counter("guard_sampled") == 0; i++)
        guarded = allocate_here(size);
    auto pool_of = [](char *block) { return reinterpret_cast<uintptr_t>(block) / (2 * kMiB); };
    for (char *block : before)
        if (pool_of(block) == pool_of(guarded) && reinterpret_cast<uintptr_t>(block) % (2 * kMiB) >= kMiB)
            hak_free(hak_realloc(block, size));
    CHECK(false);
}

TEST(Guard, APoolKeepsNothingOfWhatLayThere) {
    Outcome outcome = run_self({"before"}, {"HAKMEM_ON_ERROR=abort"});
    EXPECT_TRUE(outcome.killed(SIGABRT));
    EXPECT_TRUE(Regex("hakmem: invalid pointer 0x[0-9a-f]+ in realloc \\(a block that was never handed out\\)\n")
                    .is_in(outcome.err))
        << outcome.describe();
}

/* The program has a handler, as a virtual machine does that finds null pointers by it, when the library's comes before
 * that. */
void fault_meanwhile(size_t size) {
    static volatile sig_atomic_t handled;
    struct sigaction own = {};
    own.sa_handler = [](int) { handled = handled + 1; };
    CHECK(sigaction(SIGSEGV, &own, nullptr) == 0);
    signal_meanwhile = true;
    CHECK(hak_option_set("GUARD_SAMPLE_BYTES", "1") == 0);
    for (int i = 0; i < 1000 && handled == 0; i++)
        free_here(allocate_here(size));
    CHECK(handled == 1);
}

TEST(Guard, TheProgramsHandlerIsNeverLeftOut) {
    if (kShorter != 1)
        GTEST_SKIP() << "a sanitizer has a handler of its own";
    Outcome outcome = run_self({"meanwhile"}, {});
    EXPECT_TRUE(outcome.exited(0)) << outcome.describe();
}

TEST(Guard, IsOffByDefault) {
    for (size_t i = 0; i < 100000; i++)
        hak_free(allocate_here(i % 5000));
    EXPECT_EQ(counter("guard_sampled"), 0);
    if (HAK_TEST_SHORTER != 1)
        GTEST_SKIP() << "a sanitizer has a handler of its own";
    struct sigaction action;
    ASSERT_EQ(sigaction(SIGSEGV, nullptr, &action), 0);
    EXPECT_EQ(action.sa_handler, SIG_DFL);
}

} // namespace

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "more") == 0) {
        use_more_than_there_is();
        return 0;
    }
    if (argc == 2 && strcmp(argv[1], "switch") == 0) {
        switch_on_and_off(48);
        return 0;
    }
    if (argc == 2 && strcmp(argv[1], "before") == 0) {
        ask_for_what_was_before(48);
        return 0;
    }
    if (argc == 2 && strcmp(argv[1], "meanwhile") == 0) {
        fault_meanwhile(48);
        return 0;
    }
    for (auto &program : kPrograms)
        if (argc == 3 && strcmp(argv[2], program.name) == 0) {
            program.run(program.size);
            return 0;
        }
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
