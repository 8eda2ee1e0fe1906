/* A program without threads that fills and frees the same memory again and again, while no time passes: from the sixth
 * round on all of it stays resident. If it fails, bulk work pays for giving memory back in each round. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>
#include <hakmem.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ctime>
#include <vector>

#include "../heap_stats.h"

extern "C" int clock_gettime(clockid_t, struct timespec *now) noexcept {
    static long readings;
    *now = {1000, ++readings};
    return 0;
}

namespace {

struct Swing {
    size_t bytes, blocks;
};

void fill_and_free(Swing swing) {
    std::vector<void *> blocks(swing.blocks);
    long slots = static_cast<long>(swing.bytes * swing.blocks / 65536), gone[9] = {};
    for (long &so_far : gone) {
        so_far = counter("purged_slots") + counter("lazy_slots");
        for (void *&block : blocks)
            memset(block = hak_malloc(swing.bytes), 1, swing.bytes);
        for (void *block : blocks)
            hak_free(block);
    }
    EXPECT_GE(gone[3] - gone[0], 2 * slots) << "the first rounds give back";
    EXPECT_LE(gone[8] - gone[5], slots / 10) << swing.bytes << " bytes\n" << heap_stats_text();
}

/* Each in a child: what another has wanted back would be kept. */
TEST(Swings, StayResidentFromTheSixthRoundOn) {
    for (Swing swing : {Swing{9000, 6000}, Swing{40000, 2000}, Swing{200000, 400}, Swing{3000000, 30}}) {
        pid_t child = fork();
        if (child == 0) {
            fill_and_free(swing);
            fflush(stdout);
            _exit(testing::Test::HasFailure());
        }
        int status = 0;
        waitpid(child, &status, 0);
        EXPECT_EQ(status, 0);
    }
}

} // namespace
