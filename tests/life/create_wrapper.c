/* A pthread_create as profilers and MPI tools put in front of libc's: it takes a lock and allocates its record of the
 * thread while holding it. The wrapper is preloaded, part of the program, or inserted by the linker (CREATE_BY_LINKER:
 * --wrap=pthread_create, in a static program). An allocator that starts a thread of its own from within that malloc
 * must not call this function, or it waits for itself. */
/* SPDX-License-Identifier: MIT */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { RECORD_BYTES = 1 << 20 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

typedef int creator(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
#ifdef CREATE_BY_LINKER
#define WRAPPER __wrap_pthread_create
creator __real_pthread_create, __wrap_pthread_create; /* NOLINT: the linker's names */
static creator *real_one(void) { return __real_pthread_create; }
#else
#define WRAPPER pthread_create
static creator *real_one(void) {
    static creator *real;
    if (real == NULL)
        real = (creator *)dlsym(RTLD_NEXT, "pthread_create");
    return real;
}
#endif

/* Keeps the records: the heap grows with each one, until it is so large that a purger becomes due here. */
int WRAPPER(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *with) {
    pthread_mutex_lock(&lock);
    void *volatile record = malloc(RECORD_BYTES);
    memset(record, 1, 64);
    int error = real_one()(thread, attributes, run, with);
    pthread_mutex_unlock(&lock);
    return error;
}
