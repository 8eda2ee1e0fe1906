/* No function of the library is a cancellation point. A thread that is being cancelled holds a mutex and calls nothing
 * but the library until it unlocks the mutex. If this fails, a program that cancels threads hangs, since the mutex
 * stays locked; or a noexcept function is unwound, which ends a C++ program; or a call's output stops in the middle.
 *
 * Each case runs this program again, with options of its own, once for each way in which a cancellation can be
 * pending. */
/* SPDX-License-Identifier: MIT */
#include <fcntl.h>
#include <gtest/gtest.h>
#include <hakmem.h>
#include <malloc.h>
#include <pthread.h>

#include <atomic>
#include <new>

#include "../support.h"

namespace {

/* ---- what the thread does ---- */

/* Up to 200 MiB, so that the limits are checked, and blocks of every tier. */
void allocate() {
    static char *blocks[200];
    for (char *&block : blocks) {
        block = static_cast<char *>(malloc(kMiB));
        block[0] = 1;
    }
    for (size_t size : kTierSizes) {
        char *block = static_cast<char *>(calloc(1, size));
        block = static_cast<char *>(realloc(block, 2 * size));
        block[size] = 1;
        free(block);
        delete[] static_cast<char *>(hidden(new (std::nothrow) char[size]));
        free(aligned_alloc(4096, size));
    }
    for (char *block : blocks)
        free(block);
    for (size_t i = 0; i < 20000; i++)
        free(hidden(malloc(i % 3000)));
}

/* Under ON_ERROR=warn, each misuse writes a line. */
void misuse() {
    char *block = static_cast<char *>(malloc(48));
    free(block);
    free(hidden(block));
    free(hidden(malloc(1000)) + 16);
    free(reinterpret_cast<char *>(&misuse)); /* NOLINT: not a block */
}

void write_statistics() {
    malloc_stats();
    hak_stats_print(2);
}

void write_xml() { /* to a stream without a buffer, which writes at once */
    setvbuf(stderr, nullptr, _IONBF, 0);
    malloc_info(0, stderr);
}

/* The other functions that programs may call. */
void ask() {
    static char text[64 * kKiB];
    allocate();
    malloc_trim(0);
    mallinfo2();
    mallopt(M_TRIM_THRESHOLD, 1 << 20);
    hak_stats_json(text, sizeof text);
    hak_option_get("PURGE", text, sizeof text);
    hak_option_set("CGROUP", "0");
    hak_option_set("CGROUP", "1");
    hak_profile_start(64 * kKiB);
    allocate();
    hak_profile_dump("/dev/null");
    hak_profile_stop();
    hak_trim();
}

struct Case {
    const char *name;
    void (*run)();
    std::vector<std::string> options;
    const char *last_line; /* a part of the last line it writes */
};

const std::vector<Case> &cases() {
    static const std::vector<Case> all = {
        {"allocate", allocate, {}, ""},
        {"secure", allocate, {"HAKMEM_SECURE=1"}, ""},
        {"window", allocate, {"HAKMEM_REGION_BYTES=0"}, ""},
        {"eager", allocate, {"HAKMEM_PURGE=eager"}, ""},
        {"hard", allocate, {"HAKMEM_HARD_LIMIT=300M"}, ""},
        {"samples", allocate, {"HAKMEM_PROFILE=1", "HAKMEM_PROFILE_BYTES=1000"}, ""},
        {"guard", allocate, {"HAKMEM_GUARD_SAMPLE_BYTES=1000"}, ""},
        {"soft", allocate, {"HAKMEM_SOFT_LIMIT=80M", "HAKMEM_SOFT_LIMIT_PROFILE=/dev/null"}, ""},
        {"unwritable", allocate, {"HAKMEM_SOFT_LIMIT=80M", "HAKMEM_SOFT_LIMIT_PROFILE=/none/of/it"}, "cannot write"},
        {"misuse", misuse, {"HAKMEM_ON_ERROR=warn"}, "invalid free"},
        {"statistics", write_statistics, {}, "  "},
        {"xml", write_xml, {}, "</malloc>"},
        {"ask", ask, {}, ""},
    };
    return all;
}

/* What the library must not be. */
void let_cancel() {
    int ignored;
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &ignored);
    pthread_testcancel();
}
const Case kCancelled = {"cancelled", let_cancel, {}, ""};

/* ---- how the cancellation is pending ---- */

struct Thread {
    const Case *what;
    bool asynchronous; /* takes effect wherever allowed; otherwise at the next cancellation point */
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    std::atomic<bool> ready{false}, cancelled{false}, done{false}, survived{false};
};

void *work(void *with) {
    auto *thread = static_cast<Thread *>(with);
    int ignored;
    if (thread->asynchronous) {
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &ignored);
        pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &ignored);
    }
    pthread_mutex_lock(&thread->lock);
    thread->ready = true;
    while (!thread->cancelled)
        sched_yield();
    thread->what->run();
    thread->done = true;
    pthread_mutex_unlock(&thread->lock);
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &ignored);
    pthread_testcancel();
    thread->survived = true; /* it was not cancelled at all */
    return nullptr;
}

/* Returns 0 if all went as it should. */
int run_case(const std::string &name, bool asynchronous) {
    std::vector<Case> all = cases();
    all.push_back(kCancelled);
    for (auto &one : all) {
        if (name != one.name)
            continue;
        static Thread thread{&one, asynchronous};
        pthread_t id;
        pthread_create(&id, nullptr, work, &thread);
        while (!thread.ready)
            sched_yield();
        pthread_cancel(id);
        thread.cancelled = true;
        pthread_join(id, nullptr);
        if (thread.survived)
            return 4;
        return thread.done && pthread_mutex_trylock(&thread.lock) == 0 ? 0 : 3;
    }
    return 5;
}

class Cancel : public testing::TestWithParam<size_t> {};

TEST_P(Cancel, WaitsUntilTheCallIsOver) {
    const Case &one = cases()[GetParam()];
    for (const char *way : {"deferred", "asynchronous"}) {
        Outcome outcome = run_self({"--case", one.name, way}, one.options);
        EXPECT_FALSE(outcome.exited(3)) << one.name << ", " << way << ": cancelled in the library";
        EXPECT_TRUE(outcome.exited(0)) << one.name << ", " << way << ": " << outcome.describe();
        std::vector<std::string> lines = lines_of(outcome.err);
        std::string last = lines.empty() ? "" : lines.back();
        EXPECT_NE(last.find(one.last_line), std::string::npos) << one.name << ", " << way << ": " << outcome.err;
    }
}

/* If it fails, the test above sees no cancellation. */
TEST(Watch, SeesACancellation) {
    for (const char *way : {"deferred", "asynchronous"})
        EXPECT_TRUE(run_self({"--case", kCancelled.name, way}).exited(3)) << way;
}

INSTANTIATE_TEST_SUITE_P(Cases, Cancel, testing::Range(size_t{0}, cases().size()),
                         [](const auto &of) { return cases()[of.param].name; });

} // namespace

int main(int count, char **arguments) {
    if (count == 4 && strcmp(arguments[1], "--case") == 0)
        return run_case(arguments[2], strcmp(arguments[3], "asynchronous") == 0);
    testing::InitGoogleTest(&count, arguments);
    return RUN_ALL_TESTS();
}
