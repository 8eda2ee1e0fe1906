/* Signal handlers that the program sets while the library catches crashes (CRASH_LOG, GUARD_SAMPLE_BYTES). Each case
 * is a child that prints what it sees. It must see the same with the option as without, and the library's lines come
 * besides. If a test fails, a crash leaves no line where the program has a handler, or the program's own handling of
 * signals breaks. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>

#include <array>
#include <atomic>
#include <utility>

#include "../support.h"

extern "C" {
typedef void Handler(int);
Handler *bsd_signal(int, Handler *);
Handler *sysv_signal(int, Handler *);
Handler *__sysv_signal(int, Handler *);
extern int behind_calls; /* signals_behind.c */
}
#pragma GCC diagnostic ignored "-Wdeprecated-declarations" // sigset

namespace {

/* Programs that are linked with the archive have glibc's own older functions. */
#ifdef HANDLERS_ARCHIVE
constexpr bool kOlder = false;
#else
constexpr bool kOlder = true;
#endif
constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGABRT};

/* ---- in the child ---- */

void say(const std::string &text) { (void)!write(1, (text + "\n").c_str(), text.size() + 1); }

void first(int) { say("first"); }
void second(int) { say("second"); }
void with_info(int number, siginfo_t *info, void *context) {
    say("with info " + std::to_string(number) + (info->si_signo == number && context != nullptr ? "" : " is wrong"));
}

std::string name_of(Handler *handler) {
    if (handler == SIG_DFL || handler == SIG_IGN || handler == SIG_ERR || handler == SIG_HOLD)
        return std::to_string(reinterpret_cast<intptr_t>(handler));
    if (handler == reinterpret_cast<Handler *>(reinterpret_cast<void *>(with_info)))
        return "with info";
    return handler == first ? "first" : handler == second ? "second" : "unknown";
}

struct sigaction action_of(void *handler, int flags) {
    struct sigaction action = {};
    action.sa_handler = reinterpret_cast<Handler *>(handler);
    action.sa_flags = flags;
    return action;
}

void say_action(int number) {
    struct sigaction now = {};
    sigaction(number, nullptr, &now);
    std::string mask;
    for (int i = 1; i < 32; i++)
        mask += sigismember(&now.sa_mask, i) != 0 ? " " + std::to_string(i) : "";
    say(name_of(now.sa_handler) + " flags " + std::to_string(now.sa_flags) + " mask" + mask);
}

/* Every function that sets a handler, and what each says was there before. */
void views() {
    using Set = Handler *(int, Handler *);
#ifdef HANDLERS_ARCHIVE
    const std::vector<Set *> setters{signal, ssignal};
#else
    const std::vector<Set *> setters{signal, bsd_signal, ssignal, sysv_signal, __sysv_signal, sigset};
#endif
    for (int number : kSignals) {
        say_action(number);
        for (Set *set : setters)
            for (Handler *to : {first, SIG_IGN, second, SIG_DFL, SIG_ERR, first}) {
                errno = EDOM;
                Handler *was = set(number, to);
                say("was " + name_of(was) + (errno == EDOM ? "" : " and errno " + std::to_string(errno)));
                say_action(number);
            }
        for (Handler *to : {SIG_HOLD, SIG_HOLD, second, SIG_DFL, first})
            if (kOlder)
                say("was " + name_of(sigset(number, to)));
        for (int flags : {0, SA_SIGINFO, SA_ONSTACK, SA_NODEFER | SA_RESTART, SA_SIGINFO | SA_ONSTACK})
            for (void *to : {reinterpret_cast<void *>(SIG_DFL), reinterpret_cast<void *>(with_info),
                             reinterpret_cast<void *>(SIG_IGN)}) {
                struct sigaction action = action_of(to, flags);
                sigaddset(&action.sa_mask, SIGUSR2);
                struct sigaction before = {};
                say(std::to_string(sigaction(number, &action, &before)) + " was " + name_of(before.sa_handler) +
                    " flags " + std::to_string(before.sa_flags));
                say_action(number);
            }
        siginterrupt(number, 1);
        say_action(number);
    }
    say("wrong: " + std::to_string(sigaction(99, nullptr, nullptr)) + name_of(signal(-1, first)));
}

void each_runs() {
    for (int number : kSignals) {
        signal(number, first);
        raise(number);
        raise(number);
        struct sigaction action = action_of(reinterpret_cast<void *>(with_info), SA_SIGINFO);
        sigaction(number, &action, nullptr);
        kill(getpid(), number);
        say("was " + name_of(signal(number, second)));
        raise(number);
        if (!kOlder)
            continue;
        sigset(number, second);
        raise(number);
        sysv_signal(number, first); /* once */
        raise(number);
        say("was " + name_of(signal(number, SIG_DFL)));
    }
}

void raises_once_too_often() {
    struct sigaction action = action_of(reinterpret_cast<void *>(first), static_cast<int>(SA_RESETHAND));
    sigaction(SIGBUS, &action, nullptr);
    raise(SIGBUS);
    raise(SIGBUS);
}

sigjmp_buf again;
volatile bool on_alternate;
char alternate[64 * kKiB];

void jump_out(int, siginfo_t *info, void *) {
    char here;
    on_alternate = &here >= alternate && &here < alternate + sizeof alternate;
    say("fault at " + std::to_string(reinterpret_cast<uintptr_t>(info->si_addr)) + (on_alternate ? " there" : " here"));
    siglongjmp(again, 1);
}

void faults(int flags) {
    stack_t stack = {};
    stack.ss_sp = alternate;
    stack.ss_size = sizeof alternate;
    sigaltstack(&stack, nullptr);
    struct sigaction action = action_of(reinterpret_cast<void *>(jump_out), SA_SIGINFO | flags);
    sigaction(SIGSEGV, &action, nullptr);
    for (volatile uintptr_t at = 8; at < 48; at++)
        if (sigsetjmp(again, 1) == 0)
            *reinterpret_cast<volatile char *>(at) = 1;
}

int depth;
void nests(int number) {
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    say("depth " + std::to_string(++depth) + (sigismember(&blocked, SIGUSR1) != 0 ? " blocks" : "") +
        (sigismember(&blocked, number) != 0 ? " itself" : ""));
    if (depth < 3)
        raise(number);
    depth--;
}

void nested() {
    for (int flags : {SA_NODEFER, 0}) {
        struct sigaction action = action_of(reinterpret_cast<void *>(nests), flags);
        sigaddset(&action.sa_mask, SIGUSR1);
        sigaction(SIGSEGV, &action, nullptr);
        depth = flags == 0 ? 2 : 0;
        raise(SIGSEGV);
    }
}

void end_by_default(int number) {
    say("last words");
    signal(number, SIG_DFL);
    raise(number);
}

void ignored() {
    for (int number : {SIGSEGV, SIGBUS}) {
        signal(number, SIG_IGN);
        raise(number);
        say_action(number);
    }
    execl("/proc/self/exe", "handlers_test", "--child", "actions", nullptr);
}

void actions() {
    for (int number : kSignals)
        say_action(number);
}

int wait_for(pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    return status;
}

void children() {
    signal(SIGSEGV, first);
    pid_t child = fork();
    if (child == 0) {
        raise(SIGSEGV);
        signal(SIGSEGV, SIG_DFL);
        raise(SIGSEGV);
        _exit(1);
    }
    say("forked: " + std::to_string(wait_for(child) & 0x7f));
    child = vfork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        signal(SIGBUS, second);
        _exit(0);
    }
    wait_for(child);
    say_action(SIGSEGV);
    say_action(SIGBUS);
    raise(SIGSEGV);
    signal(SIGBUS, SIG_IGN);
    posix_spawnattr_t attributes;
    sigset_t defaults;
    sigemptyset(&defaults);
    posix_spawnattr_init(&attributes);
    for (int round = 0; round < 2; round++) {
        const char *arguments[] = {"handlers_test", "--child", "actions", nullptr};
        posix_spawnattr_setsigdefault(&attributes, &defaults);
        posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
        if (posix_spawn(&child, "/proc/self/exe", nullptr, &attributes, const_cast<char **>(arguments), environ) == 0)
            wait_for(child);
        sigaddset(&defaults, SIGBUS);
    }
}

template <int N> void numbered(int) { say("handler " + std::to_string(N)); }
template <int... N> void set_many(std::integer_sequence<int, N...>) {
    for (Handler *handler : {numbered<N>...}) {
        signal(SIGSEGV, handler);
        raise(SIGSEGV);
        say(signal(SIGSEGV, handler) == handler ? "is there" : "is another");
    }
}

/* Threads exchange the handler while others get the signal. */
std::atomic<int> wrong, seen;
std::atomic<bool> over;
void counts(int number) { (number == SIGSEGV ? seen : wrong)++; }
void counts_info(int number, siginfo_t *info, void *context) {
    (number == SIGSEGV && info->si_signo == SIGSEGV && info->si_pid == getpid() && context != nullptr ? seen : wrong)++;
}
void *exchange(void *) {
    struct sigaction both[] = {action_of(reinterpret_cast<void *>(counts), SA_ONSTACK),
                               action_of(reinterpret_cast<void *>(counts_info), SA_SIGINFO)};
    for (int i = 0; !over; i++) {
        struct sigaction before = {};
        sigaction(SIGSEGV, &both[i % 2], &before);
        bool is_info = before.sa_sigaction == counts_info;
        wrong += (is_info || before.sa_handler == counts) && ((before.sa_flags & SA_SIGINFO) != 0) == is_info ? 0 : 1;
    }
    return nullptr;
}
void at_once() {
    pthread_t threads[2];
    signal(SIGSEGV, counts);
    for (auto &thread : threads)
        pthread_create(&thread, nullptr, exchange, nullptr);
    for (int i = 0; i < 2000; i++)
        raise(SIGSEGV);
    over = true;
    for (auto &thread : threads)
        pthread_join(thread, nullptr);
    say("wrong " + std::to_string(wrong) + ", seen " + std::to_string(seen));
}

void overflow_guarded() {
    struct sigaction action = action_of(reinterpret_cast<void *>(jump_out), SA_SIGINFO);
    sigaction(SIGSEGV, &action, nullptr);
    for (int i = 0; i < 10000; i++) { /* some are guarded, at random */
        auto *block = static_cast<volatile char *>(malloc(100));
        if (sigsetjmp(again, 1) == 0)
            block[4096] = block[4096]; /* NOLINT: wrong on purpose; where it is no guard page, no change */
        else
            _exit(0);
    }
    _exit(1);
}

int run_child(const std::string &name) {
    if (name == "views")
        views();
    if (name == "each runs")
        each_runs();
    if (name == "once")
        raises_once_too_often();
    if (name == "faults")
        faults(0);
    if (name == "on a stack")
        faults(SA_ONSTACK);
    if (name == "nested")
        nested();
    if (name == "last words" && signal(SIGSEGV, end_by_default) == SIG_DFL)
        *reinterpret_cast<volatile char *>(uintptr_t{8}) = 1;
    if (name == "abort" && signal(SIGABRT, first) == SIG_DFL)
        abort();
    if (name == "nothing")
        abort();
    if (name == "ignored")
        ignored();
    if (name == "actions")
        actions();
    if (name == "children")
        children();
    if (name == "many")
        set_many(std::make_integer_sequence<int, 100>());
    if (name == "at once")
        at_once();
    if (name == "guarded")
        overflow_guarded();
    return 0;
}

/* ---- outside ---- */

size_t lines_with(const std::string &text, const std::string &begin) {
    size_t count = 0;
    for (auto &line : lines_of(text))
        count += line.rfind(begin, 0) == 0 ? 1 : 0;
    return count;
}

/* Returns how many lines the option has added. */
size_t compare(const char *name) {
    Outcome without = run_self({"--child", name}), with = run_self({"--child", name}, {"HAKMEM_CRASH_LOG=1"});
    EXPECT_EQ(with.status, without.status) << name << ": " << with.describe() << without.describe();
    EXPECT_EQ(with.out, without.out) << name;
    EXPECT_EQ(without.err, "") << name;
    EXPECT_EQ(lines_with(with.err, "hakmem: signal "), lines_of(with.err).size()) << name << ": " << with.err;
    return lines_of(with.err).size();
}

TEST(Handlers, AreWhatTheProgramHasSet) { EXPECT_EQ(compare("views"), 0u); }
TEST(Handlers, RunAfterTheLine) { EXPECT_EQ(compare("each runs"), kOlder ? 16u : 12u) << "16: the maximum"; }
TEST(Handlers, ThatAreToRunOnceRunOnce) { EXPECT_EQ(compare("once"), 1u); }
TEST(Handlers, SeeTheFault) { EXPECT_EQ(compare("faults"), 16u) << "the lines' maximum"; }
TEST(Handlers, RunOnTheirStack) { EXPECT_EQ(compare("on a stack"), 16u); }
TEST(Handlers, BlockWhatTheyBlock) { EXPECT_EQ(compare("nested"), 4u); }
TEST(Handlers, MayEndByTheSignal) { EXPECT_EQ(compare("last words"), 1u); }
TEST(Handlers, OfAbortMayReturn) { EXPECT_EQ(compare("abort"), 1u); }
TEST(Handlers, NeedNotBeThere) { EXPECT_EQ(compare("nothing"), 1u); }
TEST(Handlers, DoNotComeWhereSignalsAreIgnored) { EXPECT_EQ(compare("ignored"), 0u); }
TEST(Handlers, AreEachProcesssOwn) { EXPECT_EQ(compare("children"), 2u); }
TEST(Handlers, MayBeMany) { EXPECT_EQ(compare("many"), 16u); }

#ifndef HANDLERS_ARCHIVE
/* Else a tool that is preloaded behind the library misses what it is there for. */
TEST(Handlers, AreSetByWhatIsBehindTheLibrary) {
    int calls = behind_calls;
    using Set = Handler *(int, Handler *);
    for (Set *set : std::vector<Set *>{signal, bsd_signal, ssignal, sysv_signal, __sysv_signal, sigset}) {
        set(SIGUSR1, SIG_DFL);
        EXPECT_EQ(behind_calls, ++calls);
    }
}
#endif

TEST(Handlers, AreNeverMixedUp) {
    Outcome outcome = run_self({"--child", "at once"}, {"HAKMEM_CRASH_LOG=1"});
    EXPECT_TRUE(outcome.exited(0)) << outcome.describe();
    EXPECT_EQ(outcome.out, "wrong 0, seen 2000\n");
}

TEST(Handlers, ComeAfterTheReportOfAGuardPage) {
    Outcome outcome = run_self({"--child", "guarded"}, {"HAKMEM_GUARD_SAMPLE_BYTES=16k"});
    EXPECT_TRUE(outcome.exited(0)) << outcome.describe();
    EXPECT_EQ(outcome.err.rfind("hakmem: overflow of 0x", 0), 0u) << outcome.describe();
    EXPECT_EQ(lines_with(outcome.out, "fault at "), 1u) << outcome.describe();
    /* Other faults are the program's alone. */
    outcome = run_self({"--child", "faults"}, {"HAKMEM_GUARD_SAMPLE_BYTES=1g"});
    EXPECT_TRUE(outcome.exited(0)) << outcome.describe();
    EXPECT_EQ(outcome.err, "");
}

} // namespace

int main(int count, char **arguments) {
    if (count == 3 && strcmp(arguments[1], "--child") == 0)
        return run_child(arguments[2]);
    testing::InitGoogleTest(&count, arguments);
    return RUN_ALL_TESTS();
}
