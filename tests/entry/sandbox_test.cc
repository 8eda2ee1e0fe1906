/* A program enters a sandbox after its start: a seccomp filter that ends it at any call that glibc's malloc does not
 * make, with the calls of its own that it needs to end.
 *
 *  1. A child for each row of options and each kind of threads allocates a little, enters the sandbox, and then uses 1,
 *     3 and 60 MB in small, large and huge blocks: the main thread alone, threads that were there before, threads that
 *     come later.
 *  2. Threads end, memory is trimmed, and the program exits, so that whatever is to be printed at the end is.
 *
 * If it fails, programs are killed in their sandboxes. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <atomic>

#include "../support.h"

namespace {

/* ---- the sandbox ---- */

using Filter = std::vector<sock_filter>;

void load(Filter &filter, size_t offset) {
    filter.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<unsigned>(offset)));
}
void allow_if(Filter &filter, unsigned value) {
    filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1));
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
}

/* Calls of which only some arguments are glibc's malloc's. Ends the program at the others. */
void allow_some(Filter &filter, long number, unsigned argument, const std::vector<unsigned> &values) {
    auto skipped = static_cast<unsigned char>(2 * values.size() + 2);
    filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(number), 0, skipped));
    load(filter, offsetof(seccomp_data, args) + 8 * argument);
    for (unsigned value : values)
        allow_if(filter, value);
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
}

constexpr unsigned kFutexWaitPrivate = 128, kFutexWakePrivate = 129;

Filter filter_for(bool threads_end, bool threads_come) {
    Filter filter;
    std::vector<long> calls = {SYS_mmap,  SYS_munmap, SYS_mremap,     SYS_mprotect,     SYS_brk,
                               SYS_write, SYS_exit,   SYS_exit_group, SYS_rt_sigreturn, SYS_close};
    if (getenv("HAKMEM_ACE") != nullptr) /* it asks for the process's CPU time (docs/system.md) */
        calls.push_back(SYS_clock_gettime);
    if (getenv("HAKMEM_STATS") != nullptr) /* whether the descriptor kept for them is the program's by now (there) */
        calls.push_back(SYS_fstat);
    if (threads_end) /* glibc's calls at the end of a thread, and of who waits for it */
        calls.insert(calls.end(), {SYS_rt_sigprocmask, SYS_futex});
    if (threads_come)
        calls.insert(calls.end(), {SYS_clone, SYS_clone3, SYS_set_robust_list, SYS_rseq, SYS_rt_sigaction});
    load(filter, offsetof(seccomp_data, nr));
    for (long number : calls)
        allow_if(filter, static_cast<unsigned>(number));
    if (!threads_end) {
        allow_some(filter, SYS_futex, 1, {kFutexWaitPrivate, kFutexWakePrivate});
        load(filter, offsetof(seccomp_data, nr));
    }
    allow_some(filter, SYS_madvise, 2, {MADV_DONTNEED, MADV_FREE});
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
    return filter;
}

bool enter(Filter &filter) {
    sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0;
}

/* ---- what runs in it ---- */

constexpr size_t kMost = 60 * kMiB, kSmall = 700, kLarge = 300 * kKiB, kHuge = 5 * kMiB;
std::atomic<char *> left_behind[64]; /* one thread frees what another allocated */

void use(size_t bytes, size_t block_bytes) {
    static constexpr size_t kTouchedEvery = 4096;
    std::vector<char *> blocks(bytes / block_bytes + 1);
    for (char *&block : blocks) {
        block = static_cast<char *>(malloc(block_bytes));
        for (size_t at = 0; block != nullptr && at < block_bytes; at += kTouchedEvery)
            block[at] = 1;
    }
    for (size_t i = 0; i < blocks.size(); i++)
        free(i % 1000 == 999 ? left_behind[i / 1000 % 64].exchange(blocks[i]) : blocks[i]);
    void *grown = nullptr;
    for (size_t size = block_bytes; size < bytes; size *= 3)
        grown = realloc(grown, size) ?: grown;
    free(grown);
    free(calloc(1, block_bytes));
    free(aligned_alloc(4096, block_bytes));
}

void use_all(size_t share) {
    for (size_t bytes : {kMiB, 3 * kMiB, kMost})
        for (size_t block : {kSmall, kLarge, kHuge})
            use(bytes / share, block);
}

pthread_barrier_t barrier;

void *work(void *share) {
    pthread_barrier_wait(&barrier); /* the thread has started: libc makes no calls for that any more */
    pthread_barrier_wait(&barrier);
    use_all(reinterpret_cast<uintptr_t>(share));
    return nullptr;
}

constexpr unsigned kThreads = 3;

int run_child(const std::string &threads) {
    bool before = threads == "before", after = threads == "after", several = before || after;
    pthread_t ids[kThreads];
    void *share = reinterpret_cast<void *>(uintptr_t{kThreads});
    Filter filter = filter_for(several, after);
    static char buffer[64 * kKiB]; /* else stdio asks for the file's size */
    FILE *report = fopen("/dev/null", "we");
    setvbuf(report, buffer, _IOFBF, sizeof buffer);
    pthread_barrier_init(&barrier, nullptr, kThreads + 1);
    use(100 * kKiB, kSmall);
    for (unsigned i = 0; i < kThreads && before; i++)
        pthread_create(&ids[i], nullptr, work, share);
    if (before)
        pthread_barrier_wait(&barrier);
    if (!enter(filter))
        return 77;
    for (unsigned i = 0; i < kThreads && after; i++)
        pthread_create(&ids[i], nullptr, work, share);
    if (after)
        pthread_barrier_wait(&barrier);
    if (several)
        pthread_barrier_wait(&barrier);
    use_all(1);
    for (unsigned i = 0; i < kThreads && several; i++)
        pthread_join(ids[i], nullptr);
    for (auto &block : left_behind)
        free(block.exchange(nullptr));
    malloc_trim(0);
    use_all(1);
    mallinfo2();
    malloc_info(0, report);
    exit(0);
}

struct Row {
    const char *name;
    std::vector<std::string> options;
};

const std::vector<Row> &rows() {
    static const std::vector<Row> all = {
        {"default", {}},
        {"secure", {"HAKMEM_SECURE=1"}},
        {"secure_stacks", {"HAKMEM_SECURE=1", "HAKMEM_SECURE_STACKS=1"}},
        {"never", {"HAKMEM_PURGE=never"}},
        {"lazy", {"HAKMEM_PURGE=lazy"}},
        {"eager", {"HAKMEM_PURGE=eager"}},
        {"no_purger", {"HAKMEM_PURGER=0"}},
        {"stats", {"HAKMEM_STATS=1"}},
        {"stats_json", {"HAKMEM_STATS=json"}},
        {"stats_file", {"HAKMEM_STATS=1", "HAKMEM_STATS_FILE=/dev/null"}},
        {"observe", {"HAKMEM_ACE=observe"}},
        {"ace", {"HAKMEM_ACE=on", "HAKMEM_STATS=1"}},
        {"profile", {"HAKMEM_PROFILE=1", "HAKMEM_PROFILE_BYTES=10000"}},
        {"guard", {"HAKMEM_GUARD_SAMPLE_BYTES=10000"}},
        {"crash_log", {"HAKMEM_CRASH_LOG=1"}},
        {"huge_always", {"HAKMEM_HUGE_PAGES=always"}},
        {"huge_early", {"HAKMEM_HUGE_PAGES_FROM=0"}},
        {"huge_never", {"HAKMEM_HUGE_PAGES=never"}},
        {"nodes", {"HAKMEM_NUMA=2"}},
        {"limits", {"HAKMEM_HARD_LIMIT=100M", "HAKMEM_SOFT_LIMIT=30M"}},
        {"window", {"HAKMEM_REGION_BYTES=0"}},
        {"populate", {"HAKMEM_POPULATE=1"}},
    };
    return all;
}

class Sandbox : public testing::TestWithParam<size_t> {};

TEST_P(Sandbox, IsSurvived) {
    const Row &row = rows()[GetParam()];
    for (const char *threads : {"none", "before", "after"}) {
        Outcome outcome = run_self({"--child", threads}, row.options);
        EXPECT_TRUE(outcome.exited(0)) << row.name << ", threads: " << threads << ": " << outcome.describe();
    }
}

INSTANTIATE_TEST_SUITE_P(Rows, Sandbox, testing::Range(size_t{0}, rows().size()),
                         [](const auto &of) { return rows()[of.param].name; });

/* If this fails, the tests above detect nothing. */
TEST(Watch, SeesOtherCalls) { EXPECT_FALSE(run_self({"--child-that-asks", "none"}).exited(0)); }

} // namespace

int main(int count, char **arguments) {
    if (count == 3 && strcmp(arguments[1], "--child") == 0)
        return run_child(arguments[2]);
    if (count == 3 && strcmp(arguments[1], "--child-that-asks") == 0) {
        Filter filter = filter_for(false, false);
        return enter(filter) && syscall(SYS_getppid) > 0 ? 0 : 1;
    }
    testing::InitGoogleTest(&count, arguments);
    return RUN_ALL_TESTS();
}
