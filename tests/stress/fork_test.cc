/* fork, vfork and posix_spawn while other threads allocate: the child must work at once. If a child hangs, its alarm
 * ends it. If this test fails, prefork servers and everything that starts programs can lock up. support.h says how to
 * run more children. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>

#include <atomic>
#include <thread>

#include "../support.h"
#include "../surface.h"

namespace {

const Surface &S = subject();

constexpr unsigned kHangSeconds = kChildSeconds;

/* Threads that allocate, free each other's blocks, and write with stdio, until they are stopped. */
class Noise {
  public:
    explicit Noise(int threads) {
        for (int i = 0; i < threads; i++)
            threads_.emplace_back([this, i] { run(static_cast<uint64_t>(i)); });
    }
    ~Noise() {
        stop_ = true;
        for (auto &thread : threads_)
            thread.join();
        for (auto &place : shared_)
            S.free(place.exchange(nullptr));
    }
    /* Frees, in the child, blocks of threads that do not exist there. */
    void free_everything() {
        for (auto &place : shared_)
            S.free(place.exchange(nullptr));
    }

  private:
    void run(uint64_t seed) {
        Random random(seed);
        FILE *null = fopen("/dev/null", "w");
        while (!stop_) {
            size_t size = random.log_size(random.below(50) == 0 ? 21 : 11);
            auto *block = static_cast<char *>(S.alloc(size + 1));
            block[0] = 1;
            S.free(shared_[random.below(kShared)].exchange(block));
            if (random.below(20) == 0)
                fprintf(null, "%s %zu\n", "noise", size);
        }
        fclose(null);
    }
    static constexpr size_t kShared = 512;
    std::atomic<char *> shared_[kShared] = {};
    std::atomic<bool> stop_{false};
    std::vector<std::thread> threads_;
};

/* The child's work: frees what it inherited, allocates in every tier, starts a thread. */
void child_work(Noise *noise, std::vector<void *> &inherited, bool with_thread, int blocks_wanted = 300) {
    for (void *block : inherited)
        S.free(block);
    if (noise != nullptr)
        noise->free_everything();
    Random random(static_cast<uint64_t>(getpid()));
    std::vector<std::pair<char *, size_t>> blocks;
    for (int i = 0; i < blocks_wanted; i++) {
        size_t size = 1 + random.log_size(i % 20 == 0 ? 21 : 12);
        auto *block = static_cast<char *>(S.alloc(size));
        if (block == nullptr)
            _exit(10);
        pattern_write(block, 0, size, 5);
        blocks.emplace_back(block, size);
    }
    for (auto &[block, size] : blocks) {
        if (pattern_check(block, size, size, 5) != size)
            _exit(11);
        S.free(block);
    }
    auto *zero = static_cast<char *>(S.calloc(1, 100000));
    if (first_dirty(zero, 100000) != 100000)
        _exit(12);
    S.free(zero);
    if (!with_thread)
        return;
    std::thread([] {
        for (int i = 0; i < 100; i++)
            S.free(S.alloc(static_cast<size_t>(i) * 97));
    }).join();
}

std::vector<void *> some_blocks() {
    std::vector<void *> blocks;
    for (size_t size : kTierSizes)
        blocks.push_back(S.alloc(size));
    return blocks;
}

void expect_clean_end(pid_t pid, int round) {
    ASSERT_GT(pid, 0) << "fork failed";
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
        << "child " << round << (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM ? " hung" : " failed")
        << ", status " << std::hex << status;
}

TEST(Fork, WhileFourThreadsAllocate) {
    Noise noise(4);
    std::vector<void *> inherited = some_blocks();
    int forks = times(200, 1000), round = 0;
    for (; round < forks; round++) {
        fflush(nullptr);
        pid_t pid = fork();
        if (pid == 0) {
            alarm(kHangSeconds);
            child_work(&noise, inherited, round % 4 == 0, round % 8 == 0 ? 300 : 30);
            if (round % 2 == 0)
                _exit(0);
            exit(0); /* runs atexit handlers and destructors of statics */
        }
        expect_clean_end(pid, round);
        if (HasFatalFailure())
            break;
        S.free(S.alloc(1000)); /* the parent goes on */
    }
    figure("forks_while_four_threads_allocate", round);
    for (void *block : inherited)
        S.free(block);
}

/* A child of a child, and a child that lives on with threads of its own. */
TEST(Fork, Generations) {
    Noise noise(2);
    for (int round = 0; round < times(60); round++) {
        fflush(nullptr);
        pid_t pid = fork();
        if (pid == 0) {
            alarm(kHangSeconds);
            std::vector<void *> inherited;
            child_work(&noise, inherited, true);
            std::vector<void *> blocks = some_blocks();
            Noise more(2);
            pid_t grandchild = fork();
            if (grandchild == 0) {
                alarm(kHangSeconds);
                child_work(&more, blocks, true);
                _exit(0);
            }
            int status = 0;
            waitpid(grandchild, &status, 0);
            _exit(status == 0 ? 0 : 20);
        }
        expect_clean_end(pid, round);
        if (HasFatalFailure())
            break;
    }
}

TEST(Fork, UnderscoreForkRunsNoHandlers) {
    Noise noise(2);
    std::vector<void *> inherited = some_blocks();
    for (int round = 0; round < times(200); round++) {
        pid_t pid = _Fork();
        if (pid == 0) {
            alarm(kHangSeconds);
            child_work(&noise, inherited, false);
            _exit(0);
        }
        expect_clean_end(pid, round);
        if (HasFatalFailure())
            break;
    }
    for (void *block : inherited)
        S.free(block);
}

TEST(Fork, ParentsFreesAfterForkAreNotTheChilds) {
    /* Memory is copied: a block that the child frees stays allocated in the parent, with its contents. */
    std::vector<std::pair<char *, size_t>> blocks;
    for (size_t size : kTierSizes) {
        blocks.emplace_back(static_cast<char *>(S.alloc(size)), size);
        pattern_write(blocks.back().first, 0, size, 3);
    }
    fflush(nullptr);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(kHangSeconds);
        for (auto &[block, size] : blocks) {
            if (pattern_check(block, size, size, 3) != size)
                _exit(1);
            memset(block, 0, size);
            S.free(block);
        }
        _exit(0);
    }
    expect_clean_end(pid, 0);
    for (auto &[block, size] : blocks) {
        EXPECT_EQ(pattern_check(block, size, size, 3), size) << "a child's free damaged the parent's block";
        S.free(block);
    }
}

/* ---- starting a program ---- */

/* The child shares its parent's memory, so what it does to the heap happens to the parent's heap. */
pid_t vfork_and_exec(const char *program) {
    const char *const argv[] = {program, "--as-child", nullptr};
    void *volatile block = S.alloc(300);
    volatile bool shared = false; /* an emulator may turn vfork into fork */
    pid_t pid = vfork();
    if (pid == 0) {
        shared = true;
        S.free(block);
        block = S.alloc(3000);
        if (block == nullptr)
            _exit(40);
        memset(block, 7, 3000);
        execv(program, const_cast<char **>(argv));
        _exit(41);
    }
    if (shared)
        EXPECT_EQ(static_cast<char *>(block)[2999], 7);
    S.free(block);
    return pid;
}

pid_t spawn(const char *program) {
    const char *const argv[] = {program, "--as-child", nullptr};
    pid_t pid = -1;
    EXPECT_EQ(posix_spawn(&pid, program, nullptr, nullptr, const_cast<char **>(argv), environ), 0);
    return pid;
}

TEST(Fork, StartedPrograms) {
    Noise noise(4);
    char self[4096] = "";
    ASSERT_GT(readlink("/proc/self/exe", self, sizeof self - 1), 0);
    int programs = times(100), round = 0;
    for (; round < programs; round++) {
        expect_clean_end(round % 2 == 0 ? vfork_and_exec(self) : spawn(self), round);
        if (HasFatalFailure())
            break;
    }
    figure("programs_started_by_vfork_and_spawn", round);
}

int as_child() {
    alarm(kHangSeconds);
    std::vector<void *> nothing;
    child_work(nullptr, nothing, true);
    return 0;
}

/* ---- fork in a signal handler, which may interrupt malloc itself ---- */

volatile sig_atomic_t is_child, works_in_handler;
std::atomic<int> children;
const int kMostChildren = times(200);

/* Mostly tiny blocks, or only blocks of sizes that go through rings. */
void *block_of_any_size(Random &random) {
    return S.alloc(works_in_handler ? 1025 + random.below(16000) : random.log_size(random.below(100) == 0 ? 20 : 10));
}

/* Never returns to the interrupted malloc or free. */
[[noreturn]] void work_in_handler() {
    Random random(static_cast<uint64_t>(getpid()));
    void *blocks[200] = {};
    for (int i = 0; i < 3000; i++) {
        void *&block = blocks[random.below(200)];
        S.free(block);
        block = block_of_any_size(random);
        if (block == nullptr)
            _exit(31);
    }
    for (void *block : blocks)
        S.free(block);
    _exit(0);
}

void fork_in_handler(int) {
    int saved = errno;
    if (!is_child && children < kMostChildren) {
        pid_t pid = _Fork();
        if (pid == 0) {
            is_child = 1;
            alarm(kHangSeconds);
            if (works_in_handler)
                work_in_handler();
        } else if (pid > 0) {
            children++;
        }
    }
    errno = saved;
}

/* The loop that signals interrupt. In a child it goes on for a while, then ends. */
void allocate_until_enough_children() {
    Random random(77);
    void *blocks[200] = {};
    for (long steps_as_child = 0; children < kMostChildren || is_child;) {
        void *&block = blocks[random.below(200)];
        S.free(block);
        block = block_of_any_size(random);
        if (block == nullptr)
            _exit(30);
        if (is_child && ++steps_as_child == 3000)
            _exit(0);
    }
    for (void *block : blocks)
        S.free(block);
}

void fork_in_signal_handlers() {
    struct sigaction action = {}, before;
    action.sa_handler = fork_in_handler;
    action.sa_flags = SA_RESTART;
    ASSERT_EQ(sigaction(SIGUSR1, &action, &before), 0);
    children = 0;
    std::atomic<bool> stop{false};
    pthread_t target = pthread_self();
    std::thread prodder([&] {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, nullptr);
        while (!stop) {
            pthread_kill(target, SIGUSR1);
            for (volatile int i = 0; i < 2000; i = i + 1) {
            }
        }
    });
    allocate_until_enough_children();
    stop = true;
    prodder.join();
    sigaction(SIGUSR1, &before, nullptr);
    for (int i = 0; i < kMostChildren; i++) {
        int status = 0;
        ASSERT_GT(waitpid(-1, &status, 0), 0);
        EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << std::hex << status;
    }
}

TEST(Fork, InASignalHandlerThatInterruptsMalloc) {
    works_in_handler = 0;
    fork_in_signal_handlers();
    figure("forks_in_a_signal_handler", kMostChildren);
}

/* The child of a crash handler that writes a report: its allocations may be lost, but no block is handed out twice. */
TEST(Fork, InASignalHandlerWhereTheChildAllocates) {
    works_in_handler = 1;
    fork_in_signal_handlers();
}

} // namespace

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "--as-child") == 0)
        return as_child();
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
