/* A system in which a process may have so many threads, as RLIMIT_NPROC and a cgroup's pids.max say: a pthread_create
 * that stands between the library's and libc's, and refuses as that would. What libc makes for the library it counts
 * alone. */
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
