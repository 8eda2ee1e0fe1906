/* At a limit of tasks the purger leaves its place to the program: one that waits, one that runs and one that is parked.
 * If it fails, a program that just fits into its container gets no thread more under this library.
 *
 * If there is still no place, pthread_create fails. Once there is one, the program has a purger again. And if more
 * threads have not begun than the library has places for, each runs what it is to run. */
/* SPDX-License-Identifier: MIT */
#include "create_refuser.h"
#include "tasks.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(x) ((x) ? (void)0 : fail(__LINE__, #x))
enum { PLENTY = 100, BLOCKS = 3000, BYTES = 4000, PARKS_S = 3, PLACES = 64, LATE = 3 * PLACES };

static void fail(int line, const char *what) {
    fprintf(stderr, "purger_yields_test.c:%d: %s\n", line, what);
    exit(1);
}

static pthread_barrier_t end;

static void *live(void *unused) {
    free(malloc(100));
    pthread_barrier_wait(&end);
    return unused;
}

static pthread_t create(int allowed) {
    pthread_t thread;
    tasks_allowed = allowed;
    CHECK(pthread_create(&thread, NULL, live, NULL) == 0);
    return thread;
}
static void join(pthread_t thread) { CHECK(pthread_join(thread, NULL) == 0); }

static void work(void) {
    static char *volatile blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++)
        memset(blocks[i] = malloc(BYTES), 1, BYTES);
    for (int i = 0; i < BLOCKS; i++)
        free(blocks[i]);
}

/* With the heap at work there is a purger, and it runs. */
static pthread_t create_with_purger(void) {
    pthread_t thread = create(PLENTY);
    do
        work();
    while (tasks() < 3);
    return thread;
}

static int began[LATE + 1];
static void *note(void *which) { return began[(int *)which - began]++, which; }

/* The library has room for 64 threads that have not begun. It is not told of the others. */
static void begin_late(void) {
    static struct later notes[LATE + 1];
    pthread_t thread;
    void *got;
    later = notes;
    for (int i = 0; i < LATE; i++)
        CHECK(pthread_create(&thread, NULL, note, &began[i]) == 0);
    for (int i = 0; i < LATE; i++)
        CHECK((notes[i].run == note) == (i >= PLACES) && (notes[i].with == &began[i]) == (i >= PLACES));
    later = NULL;
    tasks_allowed = PLENTY;
    for (int i = 0; i < LATE; i++)
        CHECK(create_at_once(&thread, NULL, notes[i].run, notes[i].with) == 0 && pthread_join(thread, &got) == 0 &&
              got == &began[i] && began[i] == 1);
    later = &notes[LATE];
    CHECK(pthread_create(&thread, NULL, note, &began[LATE]) == 0 && notes[LATE].run != note);
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    const char *which = arguments[1];
    pthread_barrier_init(&end, NULL, 2);
    if (strcmp(which, "waits") == 0)
        for (int i = 0; i < 3; i++) {
            pthread_t thread = create(2);
            pthread_barrier_wait(&end);
            join(thread);
            while (tasks() > 1) /* the kernel has it a little longer */
                sched_yield();
        }
    else if (strcmp(which, "late") == 0)
        begin_late();
    else if (strcmp(which, "refused") == 0) {
        pthread_t thread;
        tasks_allowed = 1;
        CHECK(pthread_create(&thread, NULL, live, NULL) == EAGAIN);
        CHECK(short_waits > 100); /* the kernel may take that long to free a place */
        thread = create_with_purger();
        pthread_barrier_wait(&end);
        join(thread);
    } else {
        pthread_t first = create_with_purger();
        if (strcmp(which, "parked") == 0)
            sleep(PARKS_S);
        pthread_t second = create(3);
        join(first), join(second);
    }
    puts("ok");
    return 0;
}
