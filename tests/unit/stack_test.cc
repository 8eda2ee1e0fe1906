/* The call stack (stack.h), compared with the unwinder of the compiler's runtime. If it fails, profiles name the wrong
 * functions, or a profiled program crashes. */
/* SPDX-License-Identifier: MIT */
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <hakmem.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unwind.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <thread>

#include "../support.h"
#include "inside.h"
#include "stack_shapes.h"

extern "C" {
#include "observe/stack.h"
}

namespace {

constexpr unsigned kMost = 200;

struct Seen {
    uintptr_t mine[kMost], theirs[kMost];
    unsigned n, m;

    /* The first frame is look() itself, which calls the two at different places. */
    bool same() const { return n == m && begins_with_theirs(); }
    bool begins_with_theirs() const { return n >= m && std::equal(mine + 1, mine + m, theirs + 1); }
    bool has_module(const char *part) const {
        return std::any_of(mine, mine + n, [&](uintptr_t address) {
            inside_module module = inside_module_at(address);
            return module.path != nullptr && strstr(module.path, part) != nullptr;
        });
    }
};

_Unwind_Reason_Code take(_Unwind_Context *context, void *argument) {
    auto *seen = static_cast<Seen *>(argument);
    uintptr_t address = _Unwind_GetIP(context);
    if (seen->m == kMost || address == 0)
        return _URC_END_OF_STACK;
    seen->theirs[seen->m++] = address;
    return _URC_NO_REASON;
}

thread_local Seen seen_here; /* written by look() */

__attribute__((noinline)) void look() {
    seen_here.n = stack_capture(seen_here.mine, kMost);
    seen_here.m = 0;
    _Unwind_Backtrace(take, &seen_here);
    __asm__ volatile("" ::: "memory"); /* forces a call instead of a jump */
}

std::string frame_text(uintptr_t address) {
    Dl_info info;
    char text[64];
    snprintf(text, sizeof text, "%#zx ", address);
    if (dladdr(reinterpret_cast<void *>(address), &info) == 0)
        return std::string(text) + "in no module";
    snprintf(text + strlen(text), 30, "+%#zx ", address - reinterpret_cast<uintptr_t>(info.dli_fbase));
    return std::string(text) + info.dli_fname + " " + (info.dli_sname != nullptr ? info.dli_sname : "");
}

void expect_same(const Seen &seen, unsigned least) {
    EXPECT_GE(seen.n, least);
    EXPECT_TRUE(seen.same());
    for (unsigned i = 1; !seen.same() && i < std::max(seen.n, seen.m); i++)
        if (i >= seen.n || i >= seen.m || seen.mine[i] != seen.theirs[i]) {
            ADD_FAILURE() << "of " << seen.n << " and " << seen.m << " frames the first that differs is " << i << ": "
                          << (i < seen.n ? frame_text(seen.mine[i]) : "none") << ", not "
                          << (i < seen.m ? frame_text(seen.theirs[i]) : "none") << ", called by "
                          << (i > 1 ? frame_text(seen.mine[i - 1]) : "look()");
            break;
        }
}

/* Runs twice: first with what other tests left in the cache, then with what the first run left there. */
template <class Function> const Seen &expect_same_in(unsigned least, Function &&function) {
    for (int round = 0; round < 2; round++) {
        seen_here = {};
        function();
        expect_same(seen_here, least);
    }
    return seen_here;
}

using Shape = int (*)(int, stack_bottom);
constexpr struct {
    const char *name;
    Shape shape;
    int depth, frames; /* `frames`: how many frames there are at least */
} kShapes[] = {{"recursion", shape_recursion, 100, 101},
               {"alloca", shape_alloca, 30, 31},
               {"aligned", shape_aligned, 30, 31},
               {"registers", shape_registers, 30, 31},
               {"tail calls", shape_tail, 30, 1},
               {"no return", shape_noreturn, 0, 4},
               {"qsort", shape_qsort, 3, 12},
               {"large", shape_large, 10, 11}};

TEST(Stack, FramesOfManyShapes) {
    for (auto &one : kShapes) {
        SCOPED_TRACE(one.name);
        expect_same_in(static_cast<unsigned>(one.frames), [&] { one.shape(one.depth, look); });
        expect_same_in(2, [&] { one.shape(0, look); });
    }
    EXPECT_TRUE(expect_same_in(5, [] { shape_qsort(2, look); }).has_module("libc"));
}

/* One shape above the other, so that registers which one shape saves are found through all the others. */
TEST(Stack, ShapesTogether) {
    expect_same_in(20, [] {
        shape_registers(2, [] {
            shape_aligned(2, [] {
                shape_qsort(1, [] { shape_alloca(2, [] { shape_registers(2, [] { shape_aligned(2, look); }); }); });
            });
        });
    });
}

TEST(Stack, AtMostAsManyAsRequested) {
    static uintptr_t callers[8];
    static unsigned n, wanted;
    for (wanted = 0; wanted < 8; wanted++) {
        std::fill(callers, callers + 8, 1);
        shape_recursion(20, [] { n = stack_capture(callers, wanted); });
        EXPECT_EQ(n, wanted);
        EXPECT_EQ(std::count(callers, callers + 8, 1u), 8 - wanted);
    }
}

struct LooksAtItsEnd {
    ~LooksAtItsEnd() { look(); }
};
__attribute__((noinline)) int throws(int depth) {
    LooksAtItsEnd one;
    if (depth == 0)
        throw 1;
    return throws(depth - 1) + 1;
}

TEST(Stack, WhileAnExceptionIsThrown) {
    expect_same_in(5, [] {
        try {
            throws(3);
        } catch (int) {
        }
    });
}

/* ---- signals ---- */

void nothing() {}
void look_on_signal(int) { look(); }

class Handler {
  public:
    Handler(int signal_number, void (*handler)(int), int flags) : number_(signal_number) {
        struct sigaction action = {};
        action.sa_handler = handler;
        action.sa_flags = flags;
        sigaction(signal_number, &action, &before_);
    }
    ~Handler() { sigaction(number_, &before_, nullptr); }

  private:
    int number_;
    struct sigaction before_;
};

TEST(Stack, SignalHandler) {
    Handler handler(SIGUSR1, look_on_signal, 0);
    const Seen &seen = expect_same_in(25, [] { shape_recursion(20, [] { raise(SIGUSR1); }); });
    EXPECT_TRUE(seen.has_module("libc"));
}

void look_on_other_stack(void *memory, size_t bytes) {
    stack_t stack{}, before;
    stack.ss_sp = memory;
    stack.ss_size = bytes;
    ASSERT_EQ(sigaltstack(&stack, &before), 0);
    {
        Handler handler(SIGUSR1, look_on_signal, SA_ONSTACK);
        expect_same_in(25, [] { shape_recursion(20, [] { raise(SIGUSR1); }); });
    }
    sigaltstack(&before, nullptr);
}

/* Handlers' stacks both below and above the interrupted stack. */
TEST(Stack, SignalHandlerOnAStackOfItsOwn) {
    std::vector<char> below(kMiB);
    char above[256 * kKiB];
    look_on_other_stack(below.data(), below.size());
    std::thread([&] { look_on_other_stack(above, sizeof above); }).join();
}

#if defined(__x86_64__)
/* Sets and clears the processor's trap flag. */
#define STEPPING(name, change)                                                                                         \
    extern "C" void name();                                                                                            \
    __asm__(#name ":\n\t.cfi_startproc\n\tpushfq\n\t.cfi_adjust_cfa_offset 8\n\t" change                               \
                  ", (%rsp)\n\tpopfq\n\t.cfi_adjust_cfa_offset -8\n\tret\n\t.cfi_endproc")
STEPPING(stepping_begin, "orl $256");
STEPPING(stepping_end, "andl $~256");

/* Functions that call the one they are given. Their tables do not say where the return address lies, but in which
 * register it is, and what it is: the expression (CFA - 8, loaded). */
#define CALLING(name, rule)                                                                                            \
    extern "C" void name(stack_bottom called);                                                                         \
    __asm__(#name ":\n\t.cfi_startproc\n\tpushq %rbx\n\t.cfi_adjust_cfa_offset 8\n\t.cfi_rel_offset %rbx, 0\n\t"       \
                  "movq 8(%rsp), %rbx\n\t" rule                                                                        \
                  "\n\tcall *%rdi\n\tpopq %rbx\n\t.cfi_adjust_cfa_offset -8\n\t.cfi_restore %rbx\n\t"                  \
                  ".cfi_restore %rip\n\tret\n\t.cfi_endproc")
CALLING(calling_by_register, ".cfi_register %rip, %rbx");
CALLING(calling_by_expression, ".cfi_escape 0x16, 16, 4, 0x09, 0xf8, 0x22, 0x06");

/* Else stacks end there. */
TEST(Stack, ReturnAddressesThatAreNotSaved) {
    for (auto *calling : {calling_by_register, calling_by_expression}) {
        static void (*called)(stack_bottom);
        called = calling;
        expect_same_in(9, [] { shape_registers(3, [] { called([] { shape_registers(3, look); }); }); });
    }
}

unsigned steps, steps_different;
Seen first_different;

void on_step(int) {
    look();
    steps++;
    if (!seen_here.same() && steps_different++ == 0)
        first_different = seen_here;
}

/* The processor stops after every instruction: in the middle of prologues, in stubs of the procedure linkage table, in
 * the dynamic linker while it binds a function. */
template <class Function> void expect_same_at_each_step(const char *name, unsigned least, Function &&function) {
    SCOPED_TRACE(name);
    Handler handler(SIGTRAP, on_step, 0);
    steps = steps_different = 0;
    stepping_begin();
    function();
    stepping_end();
    EXPECT_GE(steps, least);
    EXPECT_EQ(steps_different, 0u) << "of " << steps;
    if (steps_different != 0)
        expect_same(first_different, 5);
}

TEST(Stack, AtEveryInstruction) {
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
    GTEST_SKIP() << "the sanitizer puts signals off";
#endif
#endif
    for (auto &one : kShapes)
        if (one.shape != shape_large)
            expect_same_at_each_step(one.name, 10, [&] { one.shape(2, nothing); });
    expect_same_at_each_step("binding", 100, [] { lazy_function(1); });
    expect_same_at_each_step("linkage stub", 5, [] { lazy_function(1); });
    expect_same_at_each_step("snprintf", 100, [] {
        char text[64];
        snprintf(text, sizeof text, "%s %g", "a", 1.5);
    });
    if (kShorter == 1)
        expect_same_at_each_step("throwing", 1000, [] {
            try {
                throw 1;
            } catch (int) {
            }
        });
    expect_same_at_each_step("sorting", 100, [] {
        int numbers[] = {3, 1, 2, 5, 4};
        qsort(numbers, 5, 4,
              [](const void *a, const void *b) { return *static_cast<const int *>(a) - *static_cast<const int *>(b); });
    });
}

#else
TEST(Stack, AtEveryInstruction) { GTEST_SKIP() << "stepping through instructions is x86's"; }
#endif

/* ---- threads, libraries ---- */

TEST(Stack, InAThread) {
    Seen seen;
    pthread_t thread;
    auto start = [](void *argument) -> void * {
        look();
        *static_cast<Seen *>(argument) = seen_here;
        return nullptr;
    };
    ASSERT_EQ(pthread_create(&thread, nullptr, start, &seen), 0);
    pthread_join(thread, nullptr);
    expect_same(seen, 3);
}

Seen seen_before_main;
__attribute__((constructor)) void early() {
    look();
    seen_before_main = seen_here;
}
TEST(Stack, BeforeMain) { expect_same(seen_before_main, 3); }

/* On aarch64, glibc's unwind table for the binding code is wrong, and the compiler's unwinder crashes there. */
#if defined(__aarch64__)
constexpr bool kBindingHasTables = false;
#else
constexpr bool kBindingHasTables = true;
#endif
void look_alone() { seen_here.n = stack_capture(seen_here.mine, kMost); }

/* Runs before AtEveryInstruction binds the function, in its own process. */
TEST(Stack, BindingAFunctionChild) {
    if (getenv("HAK_TEST_BINDING") == nullptr)
        GTEST_SKIP() << "runs as a child of the next";
    lazy_hook(kBindingHasTables ? look : look_alone);
    EXPECT_EQ(lazy_function(1), 2);
    lazy_hook(nullptr);
    if (kBindingHasTables)
        expect_same(seen_here, 5);
    EXPECT_GE(seen_here.n, 4u);
    EXPECT_TRUE(seen_here.has_module("ld-linux")) << "it was bound before";
}
TEST(Stack, BindingAFunction) {
    Outcome outcome = run_self({"--gtest_filter=Stack.BindingAFunctionChild"}, {"HAK_TEST_BINDING=1"});
    EXPECT_TRUE(outcome.exited(0)) << outcome.describe();
}

struct Plugin {
    explicit Plugin(const char *path) : library(dlopen(path, RTLD_NOW | RTLD_LOCAL)) {
        EXPECT_NE(library, nullptr) << dlerror();
        through = reinterpret_cast<Shape>(dlsym(library, "plugin_through"));
        EXPECT_NE(through, nullptr);
    }
    ~Plugin() { dlclose(library); }
    void *library;
    Shape through;
};

/* The second library is loaded where the first was, with its code at the same addresses, so everything cached about the
 * first is wrong. */
TEST(Stack, AnotherLibraryInTheSamePlace) {
    Shape before = nullptr;
    int same_place = 0;
    for (int i = 0; i < 10; i++) {
        Plugin plugin(i % 2 == 0 ? HAK_TEST_PLUGIN_A : HAK_TEST_PLUGIN_B);
        same_place += plugin.through == before;
        before = plugin.through;
        expect_same_in(12, [&] { plugin.through(10, look); });
    }
    if (same_place == 0)
        printf("the libraries never came to lie in the same place: not tried\n");
}

/* A library's first and last functions run when libgcc does not know it yet, or no longer: then theirs ends there. Ours
 * may know it from the last time that it was loaded. */
std::atomic<unsigned> handled, handled_different;
Seen last_different; /* written by the loading thread */
void on_loading(int) {
    look();
    if (!seen_here.begins_with_theirs()) {
        last_different = seen_here;
        handled_different++;
    }
    handled++;
}

/* One thread loads and unloads libraries and is interrupted meanwhile; another one captures stacks, too. */
TEST(Stack, WhileLibrariesAreLoaded) {
    const int rounds = 300 / kShorter;
    Handler handler(SIGUSR1, on_loading, SA_RESTART);
    std::atomic<bool> ends{false};
    handled = handled_different = 0;
    std::thread loader([&] {
        while (!ends) {
            Plugin plugin(HAK_TEST_PLUGIN_B);
            plugin.through(3, nothing);
        }
    });
    {
        Plugin plugin(HAK_TEST_PLUGIN_A);
        for (int i = 0; i < rounds || handled == 0; i++) {
            pthread_kill(loader.native_handle(), SIGUSR1);
            plugin.through(10, look);
            expect_same(seen_here, 12);
        }
    }
    ends = true;
    loader.join();
    EXPECT_GT(handled, 0u);
    EXPECT_EQ(handled_different, 0u);
    if (handled_different != 0)
        expect_same(last_different, 1);
}

TEST(Stack, ModulesOfAddresses) {
    Dl_info info;
    auto code = [](auto function) { return reinterpret_cast<uintptr_t>(function); };
    EXPECT_STREQ(inside_module_at(code(look)).path, "");
    uintptr_t in_libc = code(dlsym(RTLD_DEFAULT, "gnu_get_libc_version"));
    ASSERT_NE(dladdr(reinterpret_cast<void *>(in_libc), &info), 0);
    EXPECT_STREQ(inside_module_at(in_libc).path, info.dli_fname);
    EXPECT_EQ(inside_module_at(in_libc).base, code(info.dli_fbase));
    for (uintptr_t nowhere : {uintptr_t{0}, UINTPTR_MAX, code(&info)})
        EXPECT_EQ(inside_module_at(nowhere).path, nullptr) << "the stack, too, is in no module";
}

/* If it fails, a library without a build id gets another's, or none that it has. */
TEST(Stack, ABuildIdIsOneOfTheSegmentsThatTheHeaderCounts) {
    constexpr size_t kNotes = 4096;
    alignas(4096) static char image[2 * kNotes];
    auto *header = reinterpret_cast<ElfW(Ehdr) *>(image);
    auto *segments = reinterpret_cast<ElfW(Phdr) *>(header + 1);
    auto *note = reinterpret_cast<ElfW(Nhdr) *>(image + kNotes);
    memcpy(header->e_ident, ELFMAG, SELFMAG);
    header->e_phoff = sizeof *header;
    segments[0].p_type = PT_LOAD;
    segments[0].p_flags = PF_R;
    segments[0].p_filesz = sizeof image;
    segments[1].p_type = PT_NOTE;
    segments[1].p_vaddr = segments[1].p_offset = kNotes;
    segments[1].p_filesz = sizeof *note + 4 + 20;
    *note = {4, 20, NT_GNU_BUILD_ID};
    memcpy(note + 1, "GNU", 4);
    for (int segments_told : {0, 1, 2}) {
        header->e_phnum = static_cast<ElfW(Half)>(segments_told);
        EXPECT_EQ(inside_has_build_id(image), segments_told == 2) << segments_told;
    }
    segments[0].p_filesz = kNotes;
    EXPECT_FALSE(inside_has_build_id(image)) << "that part of the file is not loaded";
}

/* If it fails, whoever may exchange the file of a loaded library makes a crash hang instead of being reported. */
TEST(StackDeathTest, AModuleWhoseFileIsAFifoNow) {
    std::string file = testing::TempDir() + "stack_plugin." + std::to_string(getpid());
    ASSERT_TRUE(std::filesystem::copy_file(HAK_TEST_PLUGIN_A, file));
    Plugin plugin(file.c_str());
    ASSERT_EQ(unlink(file.c_str()), 0);
    ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
    auto err = [] {
        void *p = hak_malloc(100);
        hak_free(p);
        hak_free(p);
    };
    EXPECT_EXIT((alarm(60), plugin.through(2, err)), testing::KilledBySignal(SIGABRT),
                "double free(.|\n)*stack_plugin");
    EXPECT_EQ(unlink(file.c_str()), 0);
}

/* ---- stacks that lead nowhere ---- */

constexpr uintptr_t kItself = 2; /* a frame that is its own caller */
uintptr_t false_frame;
uintptr_t callers_seen[kMost];
unsigned callers_count;

/* Overwrites the caller's frame pointer, through which the caller's frame is found. */
__attribute__((noinline)) void damage() {
    auto *frame = static_cast<volatile uintptr_t *>(__builtin_frame_address(0));
    uintptr_t before = frame[0];
    frame[0] = false_frame == kItself ? reinterpret_cast<uintptr_t>(frame) : false_frame;
    errno = 12345;
    callers_count = stack_capture(callers_seen, kMost);
    EXPECT_EQ(errno, 12345);
    frame[0] = before;
}

TEST(Stack, DamagedFramesEndIt) {
    void *forbidden = mmap(nullptr, 3 * 65536, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    auto page = reinterpret_cast<uintptr_t>(forbidden);
    auto here = reinterpret_cast<uintptr_t>(&page);
    for (uintptr_t value :
         {kItself, uintptr_t{0}, uintptr_t{1}, uintptr_t{8}, page, page + 65536 - 8, page + 3, here - 65536, here + 1,
          here | 0xffff000000000000u, UINTPTR_MAX, UINTPTR_MAX - 7, UINTPTR_MAX - 15, uintptr_t{1} << 63}) {
        false_frame = value;
        callers_count = 0;
        shape_alloca(3, damage);
        EXPECT_GE(callers_count, 2u) << value;
        EXPECT_LT(callers_count, kMost) << value;
    }
    munmap(forbidden, 3 * 65536);
}

TEST(Stack, ExpressionsHaveADepth) {
    EXPECT_TRUE(deep_expression(1));
    EXPECT_TRUE(deep_expression(10));
    EXPECT_FALSE(deep_expression(40));
    EXPECT_FALSE(deep_expression(99));
}

/* Each operation, as defined in DWARF 5, section 2.5.1. Stubs of the procedure linkage table use such expressions; if
 * one is wrong, stacks in profiles end where a function was bound, or go astray. */
TEST(Stack, EveryOperationOfExpressions) {
    constexpr uintptr_t kFirst = 20;
    const struct {
        std::vector<unsigned char> code;
        intptr_t value;
    } cases[] = {
        {{}, 20},
        {{0x33, 0x1a}, 0},         /* and */
        {{0x33, 0x21}, 23},        /* or */
        {{0x33, 0x22}, 23},        /* plus */
        {{0x23, 0x81, 0x01}, 149}, /* plus_uconst */
        {{0x33, 0x1c}, 17},        /* minus */
        {{0x33, 0x1e}, 60},        /* mul */
        {{0x33, 0x24}, 160},       /* shl */
        {{0x32, 0x25}, 5},         /* shr */
        {{0x08, 64, 0x24}, 0},     /* shifts by all bits */
        {{0x08, 64, 0x25}, 0},     /* and back */
        {{0x44, 0x29}, 1},         /* eq */
        {{0x43, 0x29}, 0},
        {{0x44, 0x2a}, 1}, /* ge */
        {{0x45, 0x2a}, 0},
        {{0x44, 0x2b}, 0}, /* gt */
        {{0x43, 0x2b}, 1},
        {{0x44, 0x2c}, 1}, /* le */
        {{0x43, 0x2c}, 0},
        {{0x44, 0x2d}, 0}, /* lt */
        {{0x45, 0x2d}, 1},
        {{0x44, 0x2e}, 0}, /* ne */
        {{0x43, 0x2e}, 1},
        {{0x09, 0xff, 0x2b}, 1},   /* gt, of signed numbers */
        {{0x12, 0x22}, 40},        /* gt, with signed numbers */
        {{0x33, 0x13}, 20},        /* drop */
        {{0x33, 0x14}, 20},        /* over */
        {{0x33, 0x16}, 20},        /* swap */
        {{0x33, 0x16, 0x1c}, -17}, /* and minus: 3 - 20 */
        {{0x08, 0xff}, 255},       /* const1u and so on */
        {{0x09, 0xff}, -1},
        {{0x0a, 0xff, 0xff}, 65535},
        {{0x0b, 0xfe, 0xff}, -2},
        {{0x0c, 0, 0, 0, 0x80}, 0x80000000},
        {{0x0d, 0, 0, 0, 0x80}, -0x80000000L},
        {{0x0e, 1, 0, 0, 0, 0, 0, 0, 0}, 1},
        {{0x0f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, -1},
        {{0x10, 0x80, 0x01}, 128},  /* constu */
        {{0x11, 0x7f}, -1},         /* consts */
        {{0x74, 0x7e}, 1002},       /* breg4 - 2 */
        {{0x92, 0x05, 0x03}, 1008}, /* bregx 5 + 3 */
    };
    for (auto &one : cases) {
        uintptr_t value = 0;
        ASSERT_TRUE(expression(one.code.data(), static_cast<unsigned>(one.code.size()), kFirst, &value))
            << "case " << &one - cases;
        EXPECT_EQ(static_cast<intptr_t>(value), one.value) << "case " << &one - cases;
    }
    const std::vector<unsigned char> wrong[] = {{0x13, 0x13}, {0x22}, {0x14},         {0x16},
                                                {0x33, 0xff}, {0xff}, {0x92, 0x7f, 0}};
    for (auto &code : wrong) {
        uintptr_t value;
        EXPECT_FALSE(expression(code.data(), static_cast<unsigned>(code.size()), kFirst, &value))
            << "wrong " << &code - wrong;
    }
    uintptr_t here = 4711, value = 0;
    const unsigned char load = 0x06;
    ASSERT_TRUE(expression(&load, 1, reinterpret_cast<uintptr_t>(&here), &value));
    EXPECT_EQ(value, here);
    EXPECT_FALSE(expression(&load, 1, 8, &value)) << "no memory there";
}

/* The tables of all functions between this one and a signal handler. */
TEST(Stack, DamagedTables) {
    Handler handler(SIGUSR1, look_on_signal, 0);
    shape_qsort(0, [] { shape_aligned(0, [] { shape_alloca(0, [] { raise(SIGUSR1); }); }); });
    const unsigned rounds = 20000 / kShorter, seed = static_cast<unsigned>(getpid());
    ASSERT_GT(seen_here.n, 10u);
    unsigned without_tables = 0;
    for (unsigned i = 0; i < 10; i++) {
        Dl_info info;
        if (dladdr(reinterpret_cast<void *>(seen_here.mine[i]), &info) == 0) {
            without_tables++;
            continue;
        }
        unsigned found = damaged_tables(seen_here.mine[i], rounds, seed);
        EXPECT_GT(found, 0u) << frame_text(seen_here.mine[i]);
        EXPECT_LT(found, rounds) << frame_text(seen_here.mine[i]) << ", seed " << seed;
    }
    EXPECT_LE(without_tables, 1u) << "more than what a handler returns to, of an emulator's own";
}

/* What compilers other than the test's write, and where a function ends: else stacks end in their code, or a place
 * behind a function is taken for one in it. */
TEST(Stack, VersionsOfTablesAndEndsOfFunctions) {
    auto code = reinterpret_cast<uintptr_t>(look);
    for (unsigned version : {1u, 3u}) {
        EXPECT_TRUE(table_has_row(code, version, -1)) << version;
        EXPECT_FALSE(table_has_row(code, version, 0)) << "behind the function";
    }
    for (unsigned version : {0u, 2u, 5u})
        EXPECT_FALSE(table_has_row(code, version, -1)) << version;
}

/* ---- code that no unwind table describes ---- */

/* A function made at run time, which calls the one it is given. */
class Made {
  public:
    explicit Made(std::initializer_list<uint32_t> code) {
        memory_ = mmap(nullptr, 65536, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memcpy(memory_, code.begin(), code.size() * sizeof(uint32_t));
        __builtin___clear_cache(static_cast<char *>(memory_), static_cast<char *>(memory_) + 64);
    }
    ~Made() { munmap(memory_, 65536); }
    void operator()(stack_bottom called, uintptr_t frame_pointer = 0) const {
        reinterpret_cast<void (*)(stack_bottom, uintptr_t)>(memory_)(called, frame_pointer);
    }
    bool has(uintptr_t address) const { return address - reinterpret_cast<uintptr_t>(memory_) < 65536; }

  private:
    void *memory_;
};

#if defined(__x86_64__)
const Made kKeepsPointer{0xe5894855, 0xc35dd7ff};  /* push, mov, call *rdi, pop, ret */
const Made kBreaksPointer{0xf5894855, 0xc35dd7ff}; /* moves the second argument there instead */
#else
/* stp, mov, blr x0, ldp, ret */
const Made kKeepsPointer{0xa9bf7bfd, 0x910003fd, 0xd63f0000, 0xa8c17bfd, 0xd65f03c0};
const Made kBreaksPointer{0xa9bf7bfd, 0xaa0103fd, 0xd63f0000, 0xa8c17bfd, 0xd65f03c0};
#endif

TEST(Stack, CodeWithAFramePointer) {
    static unsigned made;
    made = 0;
    seen_here = {};
    shape_registers(3, [] { kKeepsPointer([] { shape_recursion(3, [] { kKeepsPointer(look); }); }); });
    const Seen seen = seen_here;
    shape_registers(3, [] { shape_recursion(3, look); });
    EXPECT_GE(seen.n, seen_here.n + 2) << "it ended there";
    for (unsigned i = 0; i < seen.n; i++)
        made += kKeepsPointer.has(seen.mine[i]);
    EXPECT_EQ(made, 2u);
    EXPECT_EQ(seen.mine[seen.n - 1], seen_here.mine[seen_here.n - 1]) << "both end at the program's start";
}

/* A frame pointer that is none ends the walk. */
TEST(Stack, CodeWithABrokenFramePointer) {
    void *forbidden = mmap(nullptr, 3 * 65536, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uintptr_t frame[4] = {0, 0, 0, 0};
    auto page = reinterpret_cast<uintptr_t>(forbidden), here = reinterpret_cast<uintptr_t>(frame);
    for (uintptr_t to : {uintptr_t{0}, uintptr_t{1}, uintptr_t{4096}, page, page + 65536, here + 8, UINTPTR_MAX}) {
        frame[1] = to; /* the return address */
        for (uintptr_t value : {uintptr_t{0}, uintptr_t{8}, page, page + 8, here, here + 1, here - 65536,
                                here + (8u << 20), UINTPTR_MAX, UINTPTR_MAX - 7, uintptr_t{1} << 63}) {
            seen_here = {};
            kBreaksPointer(look, value);
            EXPECT_EQ(seen_here.n, 2u) << std::hex << value << " with " << to;
        }
    }
    munmap(forbidden, 3 * 65536);
}

#if defined(__x86_64__)
__attribute__((noinline)) char *look_for_byte() {
    static char byte;
    look();
    return &byte;
}
/* Nothing was interrupted where a call returns to zeroes. They add to a byte that the called function returns the
 * address of. */
TEST(Stack, CodeWithZeroesBehindACall) {
    const Made zeroes{0xf5894855, 0xd7ff9066, 0, 0, 0xc35d}; /* as kBreaksPointer, with 8 zeroes behind the call */
    uintptr_t above[512];
    std::fill(above, above + 512, uintptr_t{1});
    __asm__ volatile("" ::"r"(above) : "memory");
    seen_here = {};
    zeroes(reinterpret_cast<stack_bottom>(look_for_byte), 0);
    ASSERT_EQ(seen_here.n, 3u);
    EXPECT_TRUE(zeroes.has(seen_here.mine[2]));
}
#endif

/* The register has led to memory that could be read then. */
TEST(Stack, CodeWithAFramePointerThatDied) {
    alignas(65536) char pages[3 * 65536] = {};
    char *middle = pages + 65536;
    for (int protection : {PROT_READ | PROT_WRITE, PROT_NONE}) {
        ASSERT_EQ(mprotect(middle, 65536, protection), 0);
        seen_here = {};
        kBreaksPointer(look, reinterpret_cast<uintptr_t>(middle) + 64);
        EXPECT_EQ(seen_here.n, 2u);
    }
    mprotect(middle, 65536, PROT_READ | PROT_WRITE);
}

} // namespace
