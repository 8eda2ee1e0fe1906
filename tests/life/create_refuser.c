/* A pthread_create between the library's and libc's. It refuses when the process has as many threads as it may have, as
 * the kernel does under RLIMIT_NPROC or a cgroup's pids.max. The library's own thread counts, but is never refused.
 *
 * And a syscall that counts waits of a millisecond, which is what the library waits for a place.
 *
 * Or it notes what threads are to run, and makes them later, as on a machine that is so busy that none has begun. */
/* SPDX-License-Identifier: MIT */
#include "create_refuser.h"
#include "tasks.h"

#include <dlfcn.h>
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

typedef int creator(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
creator pthread_create;

int tasks_allowed = 1;
_Atomic int short_waits;
struct later *later; /* NULL: threads begin at once */

int create_at_once(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *with) {
    creator *real = (creator *)dlsym(RTLD_NEXT, "pthread_create");
    return real(thread, attributes, run, with);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *with) {
    if (later != NULL) {
        *later++ = (struct later){run, with};
        return 0;
    }
    return tasks() >= tasks_allowed ? EAGAIN : create_at_once(thread, attributes, run, with);
}

long syscall(long number, ...) {
    static long (*real)(long, ...);
    long words[6];
    va_list more;
    va_start(more, number);
    for (int i = 0; i < 6; i++)
        words[i] = va_arg(more, long);
    va_end(more);
    if (real == NULL)
        real = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    const struct timespec *time =
        number == SYS_futex && words[1] == FUTEX_WAIT_PRIVATE ? (const struct timespec *)words[3] : NULL;
    short_waits += time != NULL && time->tv_sec == 0 && time->tv_nsec == 1000000;
    return real(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}
