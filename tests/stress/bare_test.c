/* bare_test birth|last: effects that show only in a program that hardly allocates, so this is C without a test library.
 *
 *   birth  With 40 keys made before the library's own, pthread_setspecific allocates 512 bytes at the birth of each
 *          heap, exactly the size that the thread then requests. If it fails, each such thread loses a slab's worth
 *          of memory.
 *   last   Main frees the blocks a thread left, one of each slab while that thread still lives. If it fails, main
 *          holds back megabytes of free memory. */
/* SPDX-License-Identifier: MIT */
#include <hakmem.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 1144, SIZE = 512, KEYS = 40 }; /* nine slabs, the last one not full */
enum { MAX_LIVE = 4 * SIZE }; /* main's own values by keys, and what libc keeps for two threads, of 300 bytes each */
enum { LARGER = 1024, LARGER_IN_SLAB = 64, MANY = 120 * LARGER_IN_SLAB, MOST_KEPT = 4 << 20 };

static void *blocks[BLOCKS], *many[MANY];
static pthread_barrier_t step;

__attribute__((constructor)) static void make_keys(void) {
    for (int i = 0; i < KEYS; i++) {
        pthread_key_t key;
        pthread_key_create(&key, NULL);
    }
}

static void *sleeper(void *unused) {
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = malloc(SIZE);
    pthread_barrier_wait(&step);
    pthread_barrier_wait(&step);
    return unused;
}

static void *newborn(void *unused) {
    void *volatile first = malloc(SIZE), *volatile second = malloc(SIZE);
    free(first);
    free(second);
    return unused;
}

static long statistic(const char *name) {
    static char text[1 << 20];
    hak_stats_json(text, sizeof text);
    const char *at = strstr(text, name);
    return at != NULL ? strtol(at + strlen(name), NULL, 10) : 0;
}

static long live_bytes(void) {
    char name[64];
    snprintf(name, sizeof name, "{\"block_bytes\":%d,\"live_bytes\":", SIZE);
    return statistic(name);
}

static long rss_bytes(void) { return statistic("\"total\":"); }

static int birth(void) {
    pthread_t thread, other;
    pthread_create(&thread, NULL, sleeper, NULL);
    pthread_barrier_wait(&step);
    for (int i = 0; i < BLOCKS; i++)
        free(blocks[i]);
    malloc_trim(0);
    for (int i = 0; i < 3; i++) {
        pthread_create(&other, NULL, newborn, NULL);
        pthread_join(other, NULL);
    }
    pthread_barrier_wait(&step);
    pthread_join(thread, NULL);
    malloc_trim(0);
    long live = live_bytes();
    if (live > MAX_LIVE)
        fprintf(stderr, "%ld bytes are live though all is freed\n", live);
    return live > MAX_LIVE;
}

static void *filler(void *unused) {
    for (int i = 0; i < MANY; i++)
        memset(many[i] = malloc(LARGER), 1, LARGER);
    pthread_barrier_wait(&step);
    pthread_barrier_wait(&step);
    return unused;
}

static int last(void) {
    pthread_t thread;
    long before = rss_bytes();
    pthread_create(&thread, NULL, filler, NULL);
    pthread_barrier_wait(&step);
    for (int i = 0; i < MANY; i += LARGER_IN_SLAB) {
        free(many[i]);
        many[i] = NULL;
    }
    pthread_barrier_wait(&step);
    pthread_join(thread, NULL);
    for (int i = 0; i < MANY; i++)
        free(many[i]);
    long kept = rss_bytes() - before;
    if (kept > MOST_KEPT)
        fprintf(stderr, "%ld KiB are resident though all is freed\n", kept / 1024);
    return kept > MOST_KEPT;
}

int main(int argc, char **argv) {
    if (argc != 2)
        return 2;
    pthread_barrier_init(&step, NULL, 2);
    return strcmp(argv[1], "birth") == 0 ? birth() : last();
}
