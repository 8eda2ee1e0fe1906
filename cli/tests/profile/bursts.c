/* Bursts of short-lived blocks with a long-lived one in fifty, all by way of one wrapper:
 *
 *     bursts COUNT SEED     prints what is resident at the end, in KiB, without the first of it, and waits for the end
 *                           of stdin */
/* SPDX-License-Identifier: MIT */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCKS = 100000, LONG_IN = 50 };

static size_t resident_kib(void) {
    unsigned long all, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f == NULL || fscanf(f, "%lu %lu", &all, &resident) != 2)
        abort();
    fclose(f);
    return resident * (size_t)getpagesize() / 1024;
}

static unsigned state;
static unsigned random_number(void) { return state = state * 1664525u + 1013904223u, state >> 8; }

/* The block is used after the call, so that the call is no jump. */
static void *volatile used;
__attribute__((noinline)) static void *wrapper(size_t bytes) {
    void *block = malloc(bytes);
    used = block;
    return memset(block, 1, bytes);
}
__attribute__((noinline)) static void *short_lived(size_t bytes) { return used = wrapper(bytes); }
__attribute__((noinline)) static void *long_lived(size_t bytes) { return used = wrapper(bytes + 1); }

int main(int count, char **arguments) {
    static void *blocks[BLOCKS];
    size_t before = resident_kib();
    state = (unsigned)atoi(arguments[count - 1]);
    for (int burst = atoi(arguments[1]); burst > 0; burst--) {
        for (size_t i = 0; i < BLOCKS; i++) {
            size_t bytes = 16 + random_number() % 480;
            blocks[i] = random_number() % LONG_IN == 0 ? (long_lived(bytes), NULL) : short_lived(bytes);
        }
        for (size_t i = 0; i < BLOCKS; i++)
            free(blocks[i]);
    }
    malloc_trim(0);
    printf("%zu\n", resident_kib() - before);
    fflush(stdout);
    while (getchar() != EOF)
        ;
    return 0;
}
