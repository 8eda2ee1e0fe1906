/* The life of the library's own thread, as the kernel shows it: it starts when the program has threads, and ends when
 * all of them but main have ended, though main goes on allocating. If it fails, calls that require a process with a
 * single thread, such as unshare(CLONE_NEWUSER), keep failing; or new threads later get no purger.
 *
 * The same runs with a pthread_create that allocates under its lock (create_wrapper.c). If that fails, programs under a
 * profiler hang, and SIGTERM does not end them.
 *
 * Waits only for conditions; if one never holds, the test's time limit ends it. */
/* SPDX-License-Identifier: MIT */
#include "tasks.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = 8, SMALL_BLOCKS = 3000, SMALL_BYTES = 4000, WAIT_US = 5000 };

static pthread_barrier_t born, end;

static void work(void) {
    static char *volatile blocks[SMALL_BLOCKS];
    for (int i = 0; i < SMALL_BLOCKS; i++)
        memset(blocks[i] = malloc(SMALL_BYTES), 1, SMALL_BYTES);
    for (int i = 0; i < SMALL_BLOCKS; i++)
        free(blocks[i]);
    usleep(WAIT_US);
}

static void *live(void *unused) {
    free(malloc(100)); /* gives the thread a heap */
    pthread_barrier_wait(&born);
    pthread_barrier_wait(&end);
    return unused;
}

static void start(pthread_t *threads) {
    pthread_barrier_init(&end, NULL, THREADS + 1);
    for (int i = 0; i < THREADS; i++) {
        pthread_barrier_init(&born, NULL, 2);
        if (pthread_create(&threads[i], NULL, live, NULL) != 0)
            exit(2);
        pthread_barrier_wait(&born);
    }
}

static void join(pthread_t *threads) {
    pthread_barrier_wait(&end);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

/* Two rounds, so that a purger has to start again. */
int main(void) {
    pthread_t threads[THREADS];
    for (int round = 0; round < 2; round++) {
        start(threads);
        while (tasks() < 1 + THREADS + 1) /* main, these threads, the purger */
            work();
        join(threads);
        while (tasks() > 1)
            work();
    }
    puts("ended");
    return 0;
}
