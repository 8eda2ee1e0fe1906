/* The calls that concern memory, by the kernel's own trace: how many a program makes with the library beyond one that
 * does nothing without, and whether each that drops pages passes the name that libc has for it. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>

#include <set>

#include "../support.h"

namespace {

using Call = struct __ptrace_syscall_info; /* NOLINT: its name */

/* Which of its calls a child that runs `arguments`, and its threads, made: those that `counts` wants. */
template <typename Counts> int calls_of(const std::vector<const char *> &arguments, Counts counts) {
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
    ptrace(PTRACE_SETOPTIONS, child, nullptr, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL | PTRACE_O_TRACECLONE);
    for (pid_t one = child; one != child || WIFSTOPPED(status); one = waitpid(-1, &status, __WALL)) {
        if (!WIFSTOPPED(status)) /* a thread has ended */
            continue;
        Call info = {};
        bool is_call = WSTOPSIG(status) == (SIGTRAP | 0x80);
        if (is_call && ptrace(PTRACE_GET_SYSCALL_INFO, one, sizeof info, &info) > 0)
            calls += info.op == PTRACE_SYSCALL_INFO_ENTRY && counts(info);
        bool is_ours = is_call || WSTOPSIG(status) == SIGTRAP || WSTOPSIG(status) == SIGSTOP; /* a thread begins */
        ptrace(PTRACE_SYSCALL, one, nullptr, is_ours ? 0 : WSTOPSIG(status));
    }
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << arguments[0] << ": status " << status;
    return calls;
}

bool concerns_memory(const Call &info) {
    static const std::set<unsigned long> calls = {SYS_mmap,    SYS_munmap,   SYS_mremap, SYS_brk,
                                                  SYS_madvise, SYS_mprotect, SYS_mincore};
    return calls.count(info.entry.nr) != 0;
}

/* Whatever was in the pages is gone. */
bool drops_pages(const Call &info) {
    switch (info.entry.nr) {
    case SYS_munmap:
    case SYS_mremap:
    case SYS_process_madvise: return true;
    case SYS_madvise: return info.entry.args[2] == MADV_DONTNEED || info.entry.args[2] == MADV_FREE;
    case SYS_mmap: return (info.entry.args[3] & MAP_FIXED) != 0;
    default: return false;
    }
}

/* One for each: the library's three mappings and its read-only part, the region, its dumps, its first sets, its first
 * records, the template, the page that forks find empty, the variables that become read-only, and two SuperSlabs. */
constexpr int kOfTheLibrary = 13;

/* If it fails, short programs have become slower to start, and nothing else shows it. */
TEST(MemoryCalls, AreFew) {
    setenv("LD_PRELOAD", "", 1);
    int nothing = calls_of({HAK_TEST_EMPTY}, concerns_memory);
    setenv("LD_PRELOAD", HAK_TEST_LIBRARY, 1);
    for (const std::vector<const char *> &run : {std::vector<const char *>{HAK_TEST_MIXED, "200000", "4096", "1234567"},
                                                 std::vector<const char *>{HAK_TEST_MIXED, "100000", "256", "42"}}) {
        int more = calls_of(run, concerns_memory) - nothing;
        printf("figure: memory_calls_of_random_mixed_%s_most %d\n", run[1], more);
        EXPECT_LE(more, kOfTheLibrary) << run[1];
    }
}

/* Where Yama forbids it, a process must say that others of the same user may read it. */
TEST(ReadersCalls, AreAllowedOnRequestAlone) {
    auto allows = [](const Call &info) {
        return info.entry.nr == SYS_prctl && info.entry.args[0] == PR_SET_PTRACER &&
               info.entry.args[1] == PR_SET_PTRACER_ANY;
    };
    setenv("LD_PRELOAD", HAK_TEST_LIBRARY, 1);
    EXPECT_EQ(calls_of({HAK_TEST_EMPTY}, allows), 0);
    setenv("HAKMEM_INSPECT", "1", 1);
    EXPECT_EQ(calls_of({HAK_TEST_EMPTY}, allows), 1);
    unsetenv("HAKMEM_INSPECT");
}

/* Calls that drop pages and that tests/entry/hooks.c, which passes its count on by `err`, did not see. */
int unseen(const std::vector<const char *> &program) {
    int ends[2], saved = dup(STDERR_FILENO);
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    dup2(ends[1], STDERR_FILENO);
    close(ends[1]);
    int calls = calls_of(program, drops_pages);
    dup2(saved, STDERR_FILENO);
    close(saved);
    char told[64] = "";
    EXPECT_GT(read(ends[0], told, sizeof told - 1), 0) << program[0] << ": the hooks say nothing";
    close(ends[0]);
    return calls - atoi(told);
}

/* If it fails, a cache of registered memory believes that pages are there that have gone: MPI and UCX then send what
 * was there. */
TEST(MemoryCalls, ThatDropPagesPassLibcsNames) {
    setenv("LD_PRELOAD", HAK_TEST_HOOKS ":" HAK_TEST_LIBRARY, 1);
    setenv("HAKMEM_PURGER", "0",
           1); /* a thread may end before the program does, and libc drops the pages of its stack */
    for (const char *mode : {"HELP=0", "PURGE=eager", "PURGE=lazy", "SECURE=1", "MESH=1"}) {
        std::string name = std::string("HAKMEM_") + std::string(mode).substr(0, strcspn(mode, "="));
        setenv(name.c_str(), mode + strcspn(mode, "=") + 1, 1);
        int beside =
            unseen({HAK_TEST_DROPS_PAGES, "thread"}); /* the dynamic linker's, and libc's of a thread's stack */
        EXPECT_EQ(unseen({HAK_TEST_DROPS_PAGES}), beside) << mode;
        unsetenv(name.c_str());
    }
}

/* If these fail, the tests above detect nothing. */
TEST(Watch, SeesMoreCalls) {
    setenv("LD_PRELOAD", "", 1);
    int nothing = calls_of({HAK_TEST_EMPTY}, concerns_memory);
    setenv("LD_PRELOAD", HAK_TEST_LIBRARY, 1);
    EXPECT_GT(calls_of({HAK_TEST_DROPS_PAGES}, concerns_memory) - nothing, kOfTheLibrary);
}

TEST(Watch, SeesADropThatPassesNoName) {
    setenv("LD_PRELOAD", HAK_TEST_HOOKS ":" HAK_TEST_LIBRARY, 1);
    setenv("HAKMEM_PURGER", "0", 1);
    EXPECT_EQ(unseen({HAK_TEST_DROPS_PAGES, "hidden"}), unseen({HAK_TEST_DROPS_PAGES, "thread"}) + 1);
}

} // namespace
