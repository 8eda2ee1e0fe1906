/* A program whose heap is large before there is a purger to notice, and which then sleeps: the purger comes with the next
 * thread that is made, though nobody calls malloc any more. If it fails, what sleeping threads hold never goes back.
 *
 * Waits only for conditions; if one never holds, the test's time limit ends it. */
/* SPDX-License-Identifier: MIT */
#include <hakmem.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char text[1 << 20];
static pthread_barrier_t grown;

static long counter(const char *name) {
    hak_stats_json(text, sizeof text);
    const char *at = strstr(text, name);
    if (at == NULL)
        exit(2);
    return strtol(at + strlen(name), NULL, 10);
}

static void *grow(void *unused) {
    (void)unused;
    char *volatile block = malloc(8 << 20);
    memset(block, 1, 8 << 20);
    pthread_barrier_wait(&grown);
    return pause(), NULL;
}

static void *sleep_on(void *unused) { return pause(), unused; }

int main(void) {
    pthread_t large, next;
    pthread_barrier_init(&grown, NULL, 2);
    if (pthread_create(&large, NULL, grow, NULL) != 0) /* main has no heap yet */
        return 2;
    pthread_barrier_wait(&grown);
    if (pthread_create(&next, NULL, sleep_on, NULL) != 0)
        return 2;
    while (counter("\"heaps_born\":") < 3) /* main's, the large one, the purger's */
        usleep(10000);
    puts("there is a purger");
    return 0;
}
