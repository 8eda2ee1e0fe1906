/* sleeper [SLABS] [SIZE] [KEEP]: a thread frees one block in each of SLABS slabs and sleeps; main frees the rest.
 *
 *   1. main allocates blocks of SIZE bytes until they lie in SLABS different aligned pieces of 64 KiB;
 *   2. the sleeper frees one block of each piece, then sleeps until the end;
 *   3. main frees all others except the first KEEP percent, in the order they were allocated, and rests for 1 s.
 *
 * Prints the bytes still live, and RSS minus RSS at the start. The program maps its lists itself, and unmaps them
 * before that. An operation is one free by main. */
/* SPDX-License-Identifier: MIT */
#include "workload.h"

enum { SLABS, SIZE, KEEP };
enum { PIECE_BITS = 16 };

static struct argument args[] = {
    {"SLABS", 10000, 1, 1u << 20},
    {"SIZE", 64, 8, 32768},
    {"KEEP", 10, 0, 100},
};
static pthread_barrier_t freed, end;
static uint32_t **chosen; /* for the sleeper, one for each piece */

static void *sleeper(void *argument) {
    (void)argument;
    for (uint64_t i = 0; i < args[SLABS].value; i++)
        free(chosen[i]);
    pthread_barrier_wait(&freed);
    pthread_barrier_wait(&end);
    return NULL;
}

/* Adds a piece to a set with open addressing. Returns true if the piece was not in it. */
static bool piece_add(uintptr_t *table, size_t places, uintptr_t piece) {
    size_t at = (size_t)(piece * 0x9E3779B97F4A7C15u) % places;
    while (table[at] != 0 && table[at] != piece)
        at = (at + 1) % places;
    bool added = table[at] == 0;
    table[at] = piece;
    return added;
}

int main(int argc, char **argv) {
    ARGUMENTS_READ(argc, argv, args);
    size_t slabs = args[SLABS].value, size = args[SIZE].value, places = 4 * slabs + 1;
    size_t most = (slabs + 1024) * (((size_t)1 << PIECE_BITS) / size) + 1024;
    uint32_t **blocks = pages_map(most * sizeof *blocks);
    chosen = pages_map(slabs * sizeof *chosen);
    uintptr_t *pieces = pages_map(places * sizeof *pieces), last = 0;
    pthread_barrier_init(&freed, NULL, 2);
    pthread_barrier_init(&end, NULL, 2);
    (void)rss_bytes();
    uint64_t at_start = rss_bytes();

    size_t count = 0, found = 0;
    while (found < slabs) {
        if (count == most)
            fail(1, "the blocks lie too dense or too scattered");
        uint32_t *block = must(malloc(size));
        uintptr_t piece = (uintptr_t)block >> PIECE_BITS;
        if (piece != last && piece_add(pieces, places, piece))
            chosen[found++] = block;
        else
            blocks[count++] = block;
        *block = (uint32_t)count;
        last = piece;
    }
    uint64_t full = rss_bytes();

    pthread_t thread = thread_start(sleeper, NULL);
    pthread_barrier_wait(&freed);
    size_t kept = count * args[KEEP].value / 100;
    double start = now_seconds();
    for (size_t i = 0; i < count; i++) {
        if (*blocks[i] != (uint32_t)(i + 1))
            fail(3, "a block does not hold what was written into it");
        if (i >= kept)
            free(blocks[i]);
    }
    report_speed(count - kept, now_seconds() - start);
    munmap(blocks, most * sizeof *blocks);
    munmap(chosen, slabs * sizeof *chosen);
    munmap(pieces, places * sizeof *pieces);
    rest_ms(1000);
    uint64_t after = rss_bytes();
    report_value("rss_full_bytes", full);
    report_value("live_bytes", kept * size);
    report_value("rss_over_start_bytes", after > at_start ? after - at_start : 0);
    pthread_barrier_wait(&end);
    pthread_join(thread, NULL);
}
