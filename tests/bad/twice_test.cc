/* Two threads free the same block at the same moment. One of them frees it, and the other's free is told, if not at
 * once then when its ring would hand the block out. If it fails, two later allocations get the same memory. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>

#include <atomic>
#include <thread>

#include "../posix_regex.h"
#include "../support.h"
#include "../surface.h"

namespace {

const Surface &S = subject();

/* Both threads come here before either goes on. */
class Meeting {
  public:
    void meet() {
        size_t mine = come_.fetch_add(1) / 2;
        while (come_.load() / 2 == mine)
            sched_yield();
    }

  private:
    std::atomic<size_t> come_{0};
};

/* Each of the two gets a block afterwards, one after the other. */
int free_at_the_same_moment(size_t size, int rounds) {
    Meeting meeting;
    char *block = nullptr, *got[2];
    std::atomic<int> same{0};
    auto run = [&](int self) {
        for (int round = 0; round < rounds; round++) {
            if (self == 0)
                block = static_cast<char *>(memset(hidden(S.alloc(size)), round, 64));
            meeting.meet();
            S.free(block);
            for (int turn = 0; turn < 2; turn++) {
                meeting.meet();
                if (turn == self)
                    got[self] = hidden(S.alloc(size));
            }
            meeting.meet();
            same += got[0] == got[1];
            meeting.meet();
            if (got[0] != got[1] || self == 0)
                S.free(got[self]);
        }
    };
    std::thread other(run, 1);
    run(0);
    other.join();
    return same == 0 ? 0 : 3;
}

class Twice : public testing::TestWithParam<size_t> {};

TEST_P(Twice, OneThreadFreesTheBlockAndTheOtherIsTold) {
    /* Nothing is set aside, inaccessible, where the second thread would end the program. */
    int rounds = times(GetParam() > kMiB ? 200 : 2000);
    Outcome outcome =
        run_self({std::to_string(GetParam()), std::to_string(rounds)}, {"HAKMEM_ON_ERROR=warn", "HAKMEM_PURGE=never"});
    std::string said = outcome.err.substr(0, 1000);
    EXPECT_TRUE(outcome.exited(0)) << "two allocations got the same block\n" << said;
    size_t told = 0;
    Regex line("hakmem: (double|invalid) free of .*");
    for (auto &one : lines_of(outcome.err))
        told += line.is_all_of(one);
    EXPECT_EQ(told, static_cast<size_t>(rounds)) << said;
}

INSTANTIATE_TEST_SUITE_P(Sizes, Twice, testing::Values(2000, 5000, 40000, 200000, 3 * kMiB, 20 * kMiB));

} // namespace

int main(int argc, char **argv) {
    struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    if (argc == 3)
        return free_at_the_same_moment(strtoul(argv[1], nullptr, 10), atoi(argv[2]));
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
