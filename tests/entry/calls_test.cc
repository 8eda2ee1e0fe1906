/* How many calls that concern memory a program makes with the library, counted by the kernel's own trace: those of the program
 * `bench/workloads/random_mixed` beyond those of one that does nothing without the library.
 *
 * If it fails, short programs have become slower to start, and nothing else shows it. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>

#include <set>

#include "../support.h"

namespace {

const std::set<long> kMemoryCalls = {SYS_mmap, SYS_munmap, SYS_mremap, SYS_brk, SYS_madvise, SYS_mprotect, SYS_mincore};

/* The number of memory calls of a child that is this program again, or that ends at once if it was given "--nothing". */
int memory_calls(const std::vector<const char *> &arguments) {
    pid_t child = fork();
    if (child == 0) {
        std::vector<char *> words;
        for (const char *argument : arguments)
            words.push_back(const_cast<char *>(argument));
        words.push_back(nullptr);
        ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
        execv(words[0], words.data());
        _exit(127);
    }
    int status = 0, calls = 0;
    waitpid(child, &status, 0);
    ptrace(PTRACE_SETOPTIONS, child, nullptr, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
    while (WIFSTOPPED(status)) {
        struct __ptrace_syscall_info info = {}; /* NOLINT: its name */
        bool is_call = WSTOPSIG(status) == (SIGTRAP | 0x80);
        if (is_call && ptrace(PTRACE_GET_SYSCALL_INFO, child, sizeof info, &info) > 0)
            calls += info.op == PTRACE_SYSCALL_INFO_ENTRY && kMemoryCalls.count(static_cast<long>(info.entry.nr)) != 0;
        int signal = is_call || WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);
        ptrace(PTRACE_SYSCALL, child, nullptr, signal);
        waitpid(child, &status, 0);
    }
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << arguments[0] << ": status " << status;
    return calls;
}

/* One for each: the library's three mappings and its read-only part, the region, its dumps, its first sets, its first records, the
 * template, the page that forks find empty, the variables that become read-only, and two SuperSlabs. */
constexpr int kOfTheLibrary = 13;

TEST(MemoryCalls, AreFew) {
    setenv("LD_PRELOAD", "", 1);
    int nothing = memory_calls({HAK_TEST_EMPTY});
    setenv("LD_PRELOAD", HAK_TEST_LIBRARY, 1);
    for (const std::vector<const char *> &run : {std::vector<const char *>{HAK_TEST_MIXED, "200000", "4096", "1234567"},
                                                 std::vector<const char *>{HAK_TEST_MIXED, "100000", "256", "42"}}) {
        int more = memory_calls(run) - nothing;
        printf("figure: memory_calls_of_random_mixed_%s_most %d\n", run[1], more);
        EXPECT_LE(more, kOfTheLibrary) << run[1];
    }
}

} // namespace
