/* A program with a heap that is known: it does what its standard input says, a line each, and answers "done".
 *
 *   blocks THREADS COUNT BYTES   so many threads allocate so many blocks each, write them, and wait for ever
 *   spread COUNT BYTES KEEP      allocates, frees all but every KEEP-th
 *   free COUNT BYTES             allocates, writes, frees all
 *   peak COUNT BYTES             allocates, writes, lets its parent make 1000 reads, frees all
 *   hot COUNT BYTES              allocates and keeps
 *   rewrite                      changes all bytes of those
 *   touch BYTES                  one block of which nothing is written
 *   churn THREADS                threads that replace blocks until the program ends
 *   arenas COUNT BYTES           an arena "requests" with COUNT blocks, half of them freed, and an arena in memory of
 *                                the program
 *   work                         leaves the fast path of malloc in many classes
 *   fork                         a child that waits for ever; prints its number before "done" */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../reads_of_parent.h"

enum { CHURN_BLOCKS = 2000 };

static size_t number[3];
static pthread_barrier_t ready;

static void *allocate(size_t bytes) {
    void *block = malloc(bytes);
    if (block == NULL)
        abort();
    memset(block, 1, bytes);
    return block;
}

static void *hold_blocks(void *unused) {
    (void)unused;
    void **held = allocate(number[1] * sizeof *held);
    for (size_t i = 0; i < number[1]; i++)
        held[i] = allocate(number[2]);
    pthread_barrier_wait(&ready);
    for (;;)
        pause();
    return held;
}

/* Ready when the heap has grown: it moves then, but hardly grows. */
static void *churn(void *unused) {
    void *held[CHURN_BLOCKS] = {0};
    unsigned dice = (unsigned)(size_t)&unused;
    for (unsigned round = 0;; round++) {
        dice = dice * 1664525 + 1013904223;
        void **place = &held[(dice >> 8) % CHURN_BLOCKS];
        free(*place);
        *place = allocate(16 + (dice >> 20));
        if (round == 20 * CHURN_BLOCKS)
            pthread_barrier_wait(&ready);
    }
    return NULL;
}

static void start(size_t threads, void *(*run)(void *)) {
    pthread_barrier_init(&ready, NULL, (unsigned)threads + 1);
    for (size_t i = 0; i < threads; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, run, NULL) != 0)
            abort();
    }
    pthread_barrier_wait(&ready);
}

/* Whoever looks every 2 ms, with one read, has had 2 s of time then, or has looked more closely. */
static void let_parent_look(void) {
    long begun = reads_of_parent();
    for (int polls = begun < 0 ? 3000 : 0; polls < 6000 && reads_of_parent() < begun + 1000; polls++)
        usleep(10000);
}

static void spread(size_t count, size_t bytes, size_t keep, int at_peak) {
    void **held = allocate(count * sizeof *held);
    for (size_t i = 0; i < count; i++)
        held[i] = allocate(bytes);
    if (at_peak)
        let_parent_look();
    for (size_t i = 0; i < count; i++)
        if (keep == 0 || i % keep != 0)
            free(held[i]);
    if (keep == 0)
        free(held);
}

static unsigned char **hot_blocks;
static size_t hot_count, hot_bytes;

__attribute__((noinline)) static void hold_hot(size_t count, size_t bytes) {
    hot_blocks = allocate(count * sizeof *hot_blocks);
    hot_count = count, hot_bytes = bytes;
    for (size_t i = 0; i < count; i++)
        memset(hot_blocks[i] = malloc(bytes), 2, bytes);
}

static void rewrite_hot(void) {
    for (size_t i = 0; i < hot_count; i++)
        for (size_t k = 0; k < hot_bytes; k++)
            hot_blocks[i][k]++;
}

struct arena_options {
    const char *name;
    size_t limit_bytes;
    int (*over_limit)(void *arena, size_t size, void *argument);
    void *argument;
};
/* Those of the library that is preloaded. */
extern void *hak_arena_new(const struct arena_options *options) __attribute__((weak));
extern void *hak_arena_malloc(void *arena, size_t bytes) __attribute__((weak));

static void arenas(size_t count, size_t bytes) {
    struct arena_options requests = {"requests", 64 << 20, NULL, NULL}, own = {"own", 0, NULL, NULL};
    void *arena = hak_arena_new(&requests), *other = hak_arena_new(&own);
    void **held = allocate(count * sizeof *held);
    for (size_t i = 0; i < count; i++)
        memset(held[i] = hak_arena_malloc(arena, bytes), 1, bytes);
    for (size_t i = 0; i < count; i += 2)
        free(held[i]);
    free(held);
    memset(hak_arena_malloc(other, 10000), 1, 10000);
}

static void work(void) {
    static void *held[64][64];
    for (size_t round = 0; round < 2; round++)
        for (size_t i = 0; i < 64; i++)
            for (size_t k = 0; k < 64; k++) {
                free(held[i][k]);
                held[i][k] = allocate(16 * (i + 1));
            }
}

static void do_line(const char *line) {
    char word[16] = "";
    sscanf(line, "%15s %zu %zu %zu", word, &number[0], &number[1], &number[2]);
    if (strcmp(word, "blocks") == 0)
        start(number[0], hold_blocks);
    else if (strcmp(word, "spread") == 0)
        spread(number[0], number[1], number[2], 0);
    else if (strcmp(word, "free") == 0)
        spread(number[0], number[1], 0, 0);
    else if (strcmp(word, "peak") == 0)
        spread(number[0], number[1], 0, 1);
    else if (strcmp(word, "touch") == 0 && malloc(number[0]) == NULL)
        abort();
    else if (strcmp(word, "hot") == 0)
        hold_hot(number[0], number[1]);
    else if (strcmp(word, "rewrite") == 0)
        rewrite_hot();
    else if (strcmp(word, "churn") == 0)
        start(number[0], churn);
    else if (strcmp(word, "arenas") == 0)
        arenas(number[0], number[1]);
    else if (strcmp(word, "work") == 0)
        work();
    else if (strcmp(word, "fork") == 0) {
        pid_t child = fork();
        while (child == 0)
            pause();
        printf("%d\n", (int)child);
    }
}

int main(int argc, char **argv) {
    char line[256];
    for (int i = 1; i < argc; i++) /* arguments: lines, too */
        do_line(argv[i]);
    setbuf(stdout, NULL);
    while (argc == 1 && fgets(line, sizeof line, stdin) != NULL) {
        do_line(line);
        puts("done");
    }
    return 0;
}
