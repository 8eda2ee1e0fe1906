/* A machine as a test wants it. Preloaded, it stands in for the clocks that the library reads; HAK_TEST_HOST has any of
 * these words:
 *
 *  cheap  A huge page costs less than small ones: what passes for a thread is the number of its page faults.
 *  dear   A huge page costs far more: one fault between two readings, which is what it takes, is a second.
 *  shared Others run whenever the thread reads the exact clock: it waits in the kernel.
 *  late   The coarse clock leaps by a second and a half at each fiftieth reading, as if the thread had waited for a
 *         processor. Which fiftieth differs between processes. */
/* SPDX-License-Identifier: MIT */
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { FAULT_NS = 40000, HUGE_FAULT_NS = 1000000000, WAIT_NS = 20000000, LEAP_READINGS = 50, LEAP_MS = 1500 };

static unsigned first_reading;
__attribute__((constructor)) static void begin(void) { first_reading = (unsigned)getpid() % LEAP_READINGS; }

static int is(const char *word) {
    const char *words = getenv("HAK_TEST_HOST");
    return words != NULL && strstr(words, word) != NULL;
}

static void set(struct timespec *now, uint64_t ns) {
    now->tv_sec = (time_t)(ns / 1000000000);
    now->tv_nsec = (long)(ns % 1000000000);
}

/* Any two readings of a thread are at least a fault apart: 0 would say that there is no clock. If the thread has only
 * waited meanwhile, time has passed. */
static uint64_t thread_ns(int dear) {
    static __thread uint64_t ns;
    static __thread long faults, waits;
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    long more = usage.ru_minflt - faults;
    if (more == 0)
        ns += usage.ru_nvcsw != waits ? WAIT_NS : FAULT_NS;
    else
        ns += dear && more == 1 ? HUGE_FAULT_NS : FAULT_NS * (uint64_t)more;
    faults = usage.ru_minflt;
    waits = usage.ru_nvcsw;
    return ns;
}

int clock_gettime(clockid_t which, struct timespec *now) {
    static _Atomic unsigned readings;
    int dear = is("dear");
    if (which == CLOCK_MONOTONIC && (dear || is("cheap"))) {
        set(now, thread_ns(dear));
        return 0;
    }
    if (which == CLOCK_MONOTONIC && is("shared"))
        usleep(1);
    int result = (int)syscall(SYS_clock_gettime, which, now);
    if (result == 0 && which == CLOCK_MONOTONIC_COARSE && is("late")) {
        uint64_t leaps = (atomic_fetch_add(&readings, 1) + first_reading) / LEAP_READINGS;
        set(now, (uint64_t)now->tv_sec * 1000000000 + (uint64_t)now->tv_nsec + leaps * LEAP_MS * 1000000);
    }
    return result;
}
