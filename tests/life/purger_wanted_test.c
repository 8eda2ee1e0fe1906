/* Programs that sleep while they have threads: there is a purger, whoever allocates, and all bounds hold. If it fails,
 * what is free stays resident in programs such as servers with helpers that do not allocate.
 *
 * Waits only for conditions; if one never holds, the test's time limit ends it. */
/* SPDX-License-Identifier: MIT */
#include "tasks.h"

#include <hakmem.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LARGE_BYTES = 8 << 20, SMALL_BLOCKS = 20000, SMALL_BYTES = 2000, SLEEPERS = 40, RETAIN_BYTES = 1 << 20 };
enum { PARKS_S = 3, FEW_BYTES = 512, FEW_BLOCKS = (6 << 16) / FEW_BYTES }; /* six slots: a thread settles eight */

static char text[1 << 20];
static pthread_barrier_t begun, taken, grown, end;

/* The first such number in a section of the statistics. */
static long stat(const char *section, const char *name) {
    hak_stats_json(text, sizeof text);
    const char *at = strstr(text, section);
    at = at != NULL ? strstr(at, name) : NULL;
    if (at == NULL)
        exit(2);
    return strtol(at + strlen(name), NULL, 10);
}

static void await_heaps(long heaps) {
    while (stat("\"counters\"", "\"heaps_born\":") < heaps)
        usleep(10000);
}

static void grow(void) {
    char *volatile block = malloc(LARGE_BYTES);
    memset(block, 1, LARGE_BYTES);
}

static void *grow_and_sleep(void *unused) {
    grow();
    pthread_barrier_wait(&grown);
    pause();
    return unused;
}

static void *sleep_on(void *unused) {
    pthread_barrier_wait(&end);
    return unused;
}

static pthread_t make(void *run(void *)) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, NULL) != 0)
        exit(2);
    return thread;
}

/* The heap grows before there is a purger to notice: the first thread is made when nobody has a heap. */
static void grows_early(void) {
    pthread_barrier_init(&grown, NULL, 2);
    make(grow_and_sleep);
    pthread_barrier_wait(&grown);
    make(sleep_on);
    await_heaps(3);
}

static pthread_t work_beside_a_sleeper(int count) {
    static char *blocks[SMALL_BLOCKS];
    grow();
    pthread_t helper = make(sleep_on);
    await_heaps(2);
    for (int i = 0; i < count; i++)
        memset(blocks[i] = malloc(SMALL_BYTES), 1, SMALL_BYTES);
    for (int i = 0; i < count; i++)
        free(blocks[i]);
    return helper;
}

/* The purger comes although the other thread has no heap, makes the age of free memory hold, and ends when that thread
 * has. */
static void helps_one_with_a_heap(void) {
    pthread_t helper = work_beside_a_sleeper(SMALL_BLOCKS);
    while (stat("\"rss_bytes\"", "\"total\":") > LARGE_BYTES + (6 << 20))
        usleep(10000);
    pthread_barrier_wait(&end);
    pthread_join(helper, NULL);
    while (tasks() > 1)
        usleep(10000);
}

/* It comes for the last of many threads as for the first. */
static void helps_after_many_threads(void) {
    for (int i = 0; i < 100; i++) {
        pthread_t helper = make(sleep_on);
        pthread_barrier_wait(&end);
        pthread_join(helper, NULL);
    }
    helps_one_with_a_heap();
}

/* Threads that end without ever having had a heap leave no purger behind. */
static void ends_with_the_last_thread(void) {
    grow();
    for (int i = 0; i < 100; i++) {
        pthread_t helper = make(sleep_on);
        pthread_barrier_wait(&end);
        pthread_join(helper, NULL);
    }
    while (tasks() > 1)
        usleep(10000);
}

static struct timespec over;

static void *work_last(void *unused) {
    while (tasks() < 3 || stat("\"counters\"", "\"heaps_born\":") < 3) { /* main's, this one, the purger's */
        char *volatile block = malloc(LARGE_BYTES);
        memset(block, 1, LARGE_BYTES);
        free(block);
    }
    clock_gettime(CLOCK_MONOTONIC, &over);
    return unused;
}

static void end_late(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (now.tv_sec - over.tv_sec > 1) /* the purger stays two seconds with a last thread */
        _exit(3);
}

/* Main has ended: the process ends with its last thread, and not when the purger has waited for further ones. A busy
 * machine may take a second for it. */
static void ends_soon_after_main(void) {
    for (int tries = 0, status = 1; status != 0; tries++) {
        if (tries == 5)
            exit(2);
        pid_t child = fork();
        if (child == 0) {
            atexit(end_late);
            free(malloc(1));
            make(work_last);
            pthread_exit(NULL);
        }
        waitpid(child, &status, 0);
    }
}

static void *give_and_sleep(void *unused) {
    char *blocks[SMALL_BYTES];
    for (int i = 0; i < SMALL_BYTES; i++)
        memset(blocks[i] = malloc((size_t)100 + i), 1, (size_t)100 + i);
    for (int i = 0; i < SMALL_BYTES; i++)
        free(blocks[i]);
    pthread_barrier_wait(&grown);
    pause();
    return unused;
}

static void await_empty(long most_bytes) {
    while (stat("\"rss_bytes\"", "\"empty_slots\":") > most_bytes)
        usleep(10000);
}

/* What may stay EMPTY in a program at rest leaves when it is old. */
static void leaves_when_it_is_old(void) {
    work_beside_a_sleeper(RETAIN_BYTES / 2 / SMALL_BYTES);
    await_empty(0);
}

/* Many threads fall asleep, each with slots that it has given back and nobody has counted yet. */
static void keeps_the_bound(void) {
    pthread_barrier_init(&grown, NULL, SLEEPERS + 1);
    for (int i = 0; i < SLEEPERS; i++)
        make(give_and_sleep);
    pthread_barrier_wait(&grown);
    await_empty(RETAIN_BYTES);
}

static void take_few(char **blocks) {
    for (int i = 0; i < FEW_BLOCKS; i++)
        memset(blocks[i] = malloc(FEW_BYTES), 1, FEW_BYTES);
}
static void give_few(char **blocks) {
    for (int i = 0; i < FEW_BLOCKS; i++)
        free(blocks[i]);
}

/* What is LAZY leaves when it is old, too, though it is to grow older than what is EMPTY. */
static void leaves_when_that_is_old(void) {
    static char *few[FEW_BLOCKS];
    work_beside_a_sleeper(SMALL_BLOCKS);
    while (stat("\"rss_bytes\"", "\"lazy\":") == 0)
        usleep(10000);
    take_few(few);
    give_few(few);
    while (stat("\"rss_bytes\"", "\"lazy\":") > 0)
        usleep(10000);
}

static void *give_few_and_sleep(void *unused) {
    char *blocks[FEW_BLOCKS];
    free(malloc(FEW_BYTES));
    pthread_barrier_wait(&begun);
    take_few(blocks);
    pthread_barrier_wait(&taken);
    give_few(blocks);
    pthread_barrier_wait(&grown);
    pause();
    return unused;
}

/* No thread takes or gives as much as makes it count, and the purger was never wanted, or is parked for good. */
static void notices_what_nobody_counts(bool parks) {
    pthread_barrier_init(&begun, NULL, SLEEPERS + 1);
    pthread_barrier_init(&taken, NULL, SLEEPERS);
    pthread_barrier_init(&grown, NULL, SLEEPERS + 1);
    for (int i = 0; i < SLEEPERS; i++)
        make(give_few_and_sleep);
    if (parks) {
        work_beside_a_sleeper(SMALL_BLOCKS);
        sleep(PARKS_S);
    }
    pthread_barrier_wait(&begun);
    pthread_barrier_wait(&grown);
    await_empty(RETAIN_BYTES);
}

int main(int n, char **arguments) {
    const char *what = n == 2 ? arguments[1] : "";
    pthread_barrier_init(&end, NULL, 2);
    if (strcmp(what, "early") == 0)
        grows_early();
    else if (strcmp(what, "one") == 0)
        helps_one_with_a_heap();
    else if (strcmp(what, "many") == 0)
        helps_after_many_threads();
    else if (strcmp(what, "ends") == 0)
        ends_with_the_last_thread();
    else if (strcmp(what, "main") == 0)
        ends_soon_after_main();
    else if (strcmp(what, "bound") == 0)
        keeps_the_bound();
    else if (strcmp(what, "aged") == 0)
        leaves_when_it_is_old();
    else if (strcmp(what, "aged_lazy") == 0)
        leaves_when_that_is_old();
    else if (strcmp(what, "few") == 0 || strcmp(what, "few_parked") == 0)
        notices_what_nobody_counts(strcmp(what, "few_parked") == 0);
    else
        return 2;
    puts("done");
    return 0;
}
