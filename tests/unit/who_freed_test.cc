/* The line about a double free must not name the wrong thread where the purger, a fork or a thread's end comes between
 * the two frees. If it does, its reader looks for the bug in the wrong place. Hooks into the library (inside.h) make
 * such moments certain. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>
#include <hakmem.h>

#include <future>
#include <thread>

#include "../posix_regex.h"
#include "../support.h"
#include "inside.h"

namespace {

constexpr size_t kBytes = 5000; /* its blocks wait in a ring */
char *block;

char *live() { return hidden(memset(hak_malloc(kBytes), 1, kBytes)); }

/* What the parent's purger had taken out of this thread's ring is in no ring, and nobody will give it back. */
void in_a_child() {
    inside_before_thread();
    std::thread(live).join();
    block = live();
    hak_free(block);
    if (fork() == 0) {
        inside_rings_lose(inside_heap());
        hak_free(block);
        _exit(0);
    }
    wait(nullptr);
}

pthread_key_t key;
void *former;

/* Called until the thread's heap is gone. Then the thread borrows a heap, which is not the one that it had. */
void free_in_the_afterlife(void *rounds) {
    if (inside_has_heap() != 0) {
        pthread_setspecific(key, static_cast<char *>(rounds) + 1);
        return;
    }
    inside_caches_freeze(former, 0);
    hak_free(block);
}

/* The purger is at the rings of a thread that ends, so that they keep the block. */
void in_the_afterlife() {
    std::promise<void> has_heap, ends;
    live();
    pthread_key_create(&key, free_in_the_afterlife);
    std::thread first([&] { /* whose heap will be the first that is idle */
                            live();
                            has_heap.set_value();
                            ends.get_future().wait();
    });
    has_heap.get_future().wait();
    std::thread second([&] {
        block = live();
        hak_free(block);
        ends.set_value();
        first.join();
        former = inside_heap();
        inside_caches_freeze(former, 1);
        pthread_setspecific(key, &key);
    });
    second.join();
}

const struct Case {
    const char *name;
    void (*run)();
} kCases[] = {{"child", in_a_child}, {"afterlife", in_the_afterlife}};

void PrintTo(const Case &one, std::ostream *out) { *out << one.name; }

class WhoFreed : public testing::TestWithParam<Case> {};

TEST_P(WhoFreed, IsNotSaidIfItIsNotCertain) {
    Outcome outcome = run_self({"--case", GetParam().name});
    Regex line("hakmem: double free of 0x[0-9a-f]+ \\(5120-byte block\\)\n");
    EXPECT_TRUE(line.is_all_of(without_calls(outcome.err))) << outcome.describe();
}

INSTANTIATE_TEST_SUITE_P(Cases, WhoFreed, testing::ValuesIn(kCases));

} // namespace

int main(int argc, char **argv) {
    if (run_case(argc, argv, kCases))
        return 0;
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
