/* A pthread_create between the library's and libc's. It refuses when the process has as many threads as it may have, as
 * the kernel does under RLIMIT_NPROC or a cgroup's pids.max. The library's own thread counts, but is never refused.
 *
 * Or it notes what threads are to run, and makes them later, as on a machine that is so busy that none has begun. */
/* SPDX-License-Identifier: MIT */
#include "create_refuser.h"
#include "tasks.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stddef.h>

typedef int creator(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
creator pthread_create;

int tasks_allowed = 1;
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
