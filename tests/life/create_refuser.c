/* A pthread_create between the library's and libc's. It refuses when the process has as many threads as it may have, as
 * the kernel does under RLIMIT_NPROC or a cgroup's pids.max. The library's own thread counts, but is never refused. */
/* SPDX-License-Identifier: MIT */
#include "tasks.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stddef.h>

typedef int creator(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
creator pthread_create;

int tasks_allowed = 1;

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *with) {
    creator *real = (creator *)dlsym(RTLD_NEXT, "pthread_create");
    return tasks() >= tasks_allowed ? EAGAIN : real(thread, attributes, run, with);
}
