/* Counts the instructions of the hit paths of malloc, free, operator new and operator delete (also sized). A child is
 * single-stepped, and every step whose program counter lies in libhakmem.so counts. No clock is involved, so the counts
 * are exact: they must equal tests/fast_path.golden for the compiler in use, and stay within the budget for every
 * compiler. If it fails, every program became slower (or faster: then record the new counts). */
/* SPDX-License-Identifier: MIT */
#include <elf.h>
#include <gtest/gtest.h>
#include <link.h>
#include <malloc.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/utsname.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <new>
#include <sstream>

#include "hakmem.h"
#include "support.h"

/* The measured calls. A mark stands before each, and mark_end behind it: the tracer knows their addresses. Their bodies
 * differ, so that the compiler does not merge them. */
// clang-format off
#define MEASURED(X)                                                                                                    \
    X(malloc) X(free) X(new) X(delete) X(sized_delete) X(usable_size) X(realloc) X(realloc_grow) X(realloc_null)       \
    X(calloc) X(aligned_alloc) X(aligned_new) X(aligned_delete) X(mid_sized_delete) X(arena_malloc) X(arena_free)    \
    X(largest_malloc) X(largest_free)
// clang-format on
#define MARK(name)                                                                                                     \
    extern "C" __attribute__((noinline)) void mark_##name() { __asm__ volatile("" ::"i"(__COUNTER__) : "memory"); }
MEASURED(MARK)
MARK(end)

namespace {

constexpr size_t kBytes = 48, kGrownBytes = 96, kLargestBytes = 1024, kMidBytes = 3000, kAlignment = 16;
constexpr int kCalls = 40;

/* Leaves enough live and free blocks of the class that nearly every measured call takes the hit path. */
void warm_up(void **blocks, int count, size_t bytes) {
    for (int i = 0; i < count; i++)
        blocks[i] = malloc(bytes);
    for (int i = 0; i < count; i += 2)
        free(blocks[i]);
    for (int i = 0; i < count; i += 2)
        blocks[i] = malloc(bytes);
    for (int i = 0; i < 32; i++)
        ::operator delete(::operator new(bytes));
}

/* The child. It stops itself when it is warm, and is single-stepped from then on. */
[[noreturn]] void run_measured() {
    static void *warm[400], *warm_grown[400], *warm_largest[400], *blocks[kCalls];
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0)
        _exit(90);
    warm_up(warm, 400, kBytes);
    warm_up(warm_grown, 400, kGrownBytes);
    warm_up(warm_largest, 400, kLargestBytes);
    raise(SIGSTOP);
    for (auto &block : blocks) {
        mark_malloc();
        block = malloc(kBytes);
        mark_end();
    }
    for (auto &block : blocks) {
        mark_free();
        free(block);
        mark_end();
    }
    for (auto &block : blocks) {
        mark_largest_malloc();
        block = malloc(kLargestBytes);
        mark_end();
    }
    for (auto &block : blocks) {
        mark_largest_free();
        free(block);
        mark_end();
    }
    for (auto &block : blocks) {
        mark_new();
        block = ::operator new(kBytes);
        mark_end();
    }
    for (auto &block : blocks) {
        mark_delete();
        ::operator delete(block);
        mark_end();
    }
    for (auto &block : blocks)
        block = ::operator new(kBytes);
    for (auto &block : blocks) {
        mark_usable_size();
        malloc_usable_size(block);
        mark_end();
    }
    for (auto &block : blocks) {
        mark_realloc();
        block = realloc(block, kBytes - 7);
        mark_end();
    }
    for (auto &block : blocks) {
        mark_realloc_grow();
        block = realloc(block, kGrownBytes);
        mark_end();
    }
    for (auto &block : blocks) {
        free(block);
        block = ::operator new(kBytes);
    }
    for (auto &block : blocks) {
        mark_sized_delete();
        ::operator delete(block, kBytes);
        mark_end();
    }
    for (auto &block : blocks) {
        mark_realloc_null();
        block = realloc(nullptr, kBytes);
        mark_end();
    }
    for (auto *block : blocks)
        free(block);
    for (auto &block : blocks) {
        mark_calloc();
        block = calloc(1, kBytes);
        mark_end();
    }
    for (auto *block : blocks)
        free(block);
    for (auto &block : blocks) {
        mark_aligned_alloc();
        block = aligned_alloc(kAlignment, kBytes);
        mark_end();
    }
    for (auto *block : blocks)
        free(block);
    for (auto &block : blocks) {
        mark_aligned_new();
        block = ::operator new(kBytes, std::align_val_t(kAlignment));
        mark_end();
    }
    for (auto *block : blocks) {
        mark_aligned_delete();
        ::operator delete(block, kBytes, std::align_val_t(kAlignment));
        mark_end();
    }
    for (int round = 0; round < 3; round++) { /* the first two fill the ring and let it grow */
        for (auto &block : blocks)
            block = ::operator new(kMidBytes);
        for (auto &block : blocks) {
            if (round == 2)
                mark_mid_sized_delete();
            ::operator delete(block, kMidBytes);
            mark_end();
        }
    }
    hak_arena *arena = hak_arena_new(nullptr);
    for (auto &block : warm)
        block = hak_arena_malloc(arena, kBytes);
    for (auto *block : warm)
        free(block);
    for (auto &block : blocks) {
        mark_arena_malloc();
        block = hak_arena_malloc(arena, kBytes);
        mark_end();
    }
    for (auto &block : blocks) {
        mark_arena_free();
        free(block);
        mark_end();
    }
    _exit(0);
}

struct CodeRange {
    uintptr_t begin = 0, end = 0;
    bool has(uintptr_t pc) const { return pc >= begin && pc < end; }
};

/* Returns the executable segment of libhakmem.so, which a forked child has at the same address. */
CodeRange library_code() {
    CodeRange range;
    dl_iterate_phdr(
        [](struct dl_phdr_info *info, size_t, void *into) {
            if (strstr(info->dlpi_name, "libhakmem") == nullptr)
                return 0;
            auto *found = static_cast<CodeRange *>(into);
            for (int i = 0; i < info->dlpi_phnum; i++) {
                auto &segment = info->dlpi_phdr[i];
                if (segment.p_type != PT_LOAD || (segment.p_flags & PF_X) == 0)
                    continue;
                found->begin = info->dlpi_addr + segment.p_vaddr;
                found->end = found->begin + segment.p_memsz;
            }
            return 1;
        },
        &range);
    return range;
}

uintptr_t program_counter(pid_t pid) {
    struct user_regs_struct registers;
    struct iovec place = {&registers, sizeof registers};
    if (ptrace(PTRACE_GETREGSET, pid, reinterpret_cast<void *>(NT_PRSTATUS), &place) != 0)
        return 0;
#if defined(__aarch64__)
    return registers.pc;
#else
    return registers.rip;
#endif
}

using Counts = std::map<std::string, std::vector<int>>;

/* Steps the child from where it stopped to its end. */
Counts step_through(pid_t pid, const CodeRange &code) {
    const std::map<uintptr_t, std::string> marks{
#define ADDRESS(name) {reinterpret_cast<uintptr_t>(mark_##name), #name},
        MEASURED(ADDRESS)};
    Counts counts;
    std::string current;
    int steps = 0, status = 0;
    while (waitpid(pid, &status, 0) == pid && WIFSTOPPED(status)) {
        uintptr_t pc = program_counter(pid);
        if (code.has(pc))
            steps++;
        auto mark = marks.find(pc);
        if (mark != marks.end()) {
            current = mark->second;
            steps = 0;
        } else if (pc == reinterpret_cast<uintptr_t>(mark_end) && !current.empty()) {
            counts[current].push_back(steps);
            current.clear();
        }
        if (ptrace(PTRACE_SINGLESTEP, pid, nullptr, nullptr) != 0)
            break;
    }
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "the measured child ended with status " << status;
    return counts;
}

const Counts &measured() {
    static const Counts counts = [] {
        CodeRange code = library_code();
        EXPECT_NE(code.begin, 0u) << "libhakmem.so is not loaded";
        pid_t pid = fork();
        if (pid == 0)
            run_measured();
        return step_through(pid, code);
    }();
    return counts;
}

int minimum(const std::string &call) {
    auto &counts = measured().at(call);
    return *std::min_element(counts.begin(), counts.end());
}

int mode(const std::string &call) {
    std::map<int, int> often;
    for (int count : measured().at(call))
        often[count]++;
    return std::max_element(often.begin(), often.end(), [](auto &a, auto &b) { return a.second < b.second; })->first;
}

std::string listed(const std::string &call) {
    std::string text = call + ":";
    for (int count : measured().at(call))
        text += " " + std::to_string(count);
    return text;
}

/* For example "x86_64 GNU-12 malloc". */
std::string golden_key(const std::string &call) {
    struct utsname machine;
    uname(&machine);
    return std::string(machine.machine) + " " + HAK_TEST_COMPILER + " " + call;
}

std::string golden_line(const std::string &call) { return golden_key(call) + " " + std::to_string(minimum(call)); }

#define NAME(name) #name,
const char *const kCallNames[] = {MEASURED(NAME)};

TEST(FastPath, MostCallsTakeTheHitPath) {
    for (const char *call : kCallNames) {
        ASSERT_EQ(measured().count(call), 1u) << call;
        EXPECT_EQ(measured().at(call).size(), static_cast<size_t>(kCalls));
        EXPECT_EQ(mode(call), minimum(call)) << listed(call);
        EXPECT_GT(minimum(call), 2) << "the call was not measured at all";
    }
}

/* The budget of the design: 14 for malloc, 20 for free, and at most 16 more for all default checks together. */
TEST(FastPath, WithinTheBudget) {
    EXPECT_LE(minimum("malloc") + minimum("free"), 14 + 20 + 16) << listed("malloc") << "\n" << listed("free");
    EXPECT_LE(minimum("new") + minimum("delete"), 14 + 20 + 16 + 4) << listed("new") << "\n" << listed("delete");
    EXPECT_LE(minimum("new") + minimum("sized_delete"), 14 + 20 + 16 + 4) << listed("sized_delete");
}

/* The size up to which calls are hits is one, too. */
TEST(FastPath, TheLargestTinyBlockIsAHit) {
    EXPECT_EQ(minimum("largest_malloc"), minimum("malloc"));
    EXPECT_EQ(minimum("largest_free"), minimum("free"));
}

/* What differs from the counts in the file, with the line that it should have. Of another compiler it has none. */
std::vector<std::string> differences(const char *path) {
    std::map<std::string, int> golden;
    std::ifstream file(path);
    EXPECT_TRUE(file) << path << " is missing";
    std::string line;
    while (std::getline(file, line)) {
        if (line.empty() || line[0] == '#')
            continue;
        std::istringstream words(line);
        std::string machine, compiler, call;
        int count = 0;
        words >> machine >> compiler >> call >> count;
        golden[machine + " " + compiler + " " + call] = count;
    }
    std::vector<std::string> found;
    for (const char *call : kCallNames) {
        auto expected = golden.find(golden_key(call));
        if (expected != golden.end() && expected->second != minimum(call))
            found.push_back(listed(call) + "\n" + golden_line(call));
    }
    return found;
}

TEST(FastPath, EqualsTheGoldenFile) {
    for (const char *call : kCallNames)
        printf("%s\n", golden_line(call).c_str());
    for (auto &one : differences(HAK_TEST_GOLDEN))
        ADD_FAILURE() << "If the change is wanted and measured, put this into tests/fast_path.golden:\n" << one;
}

/* If one of these fails, the tests above see nothing. */
TEST(Watch, SeesAnInstructionMoreOrLess) {
    for (int more : {-1, 0, 1}) {
        std::string path = testing::TempDir() + "hakmem-golden-" + std::to_string(getpid());
        std::ofstream file(path);
        for (const char *call : kCallNames)
            file << golden_key(call) << " " << minimum(call) + more << "\n";
        file.close();
        EXPECT_EQ(differences(path.c_str()).size(), more != 0 ? std::size(kCallNames) : 0);
        unlink(path.c_str());
    }
}
TEST(Watch, SeesALongerPath) { /* both do what malloc does, and more */
    EXPECT_GT(minimum("calloc"), minimum("malloc"));
    EXPECT_GT(minimum("realloc_null"), minimum("malloc"));
}

} // namespace
