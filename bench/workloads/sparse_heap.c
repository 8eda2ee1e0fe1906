/* sparse_heap [MIB] [BLOCK] [SIZE] [OPS] [SEED]: a heap of MIB MiB that takes hardly any memory.
 *
 *   1. The program allocates MIB MiB in blocks of BLOCK bytes and touches none of them, so they have addresses and
 *      records, but no pages.
 *   2. OPS times it frees a random one of them and allocates it anew; or, if SIZE is not 0, a random one of 64 KiB in
 *      blocks of SIZE bytes, which it writes to.
 *
 * So a heap can be counted that is larger than the machine's memory. An operation is one free and one malloc. */
/* SPDX-License-Identifier: MIT */
#include "workload.h"

enum { MIB, BLOCK, SIZE, OPS, SEED };
enum { FEW_BYTES = 65536 };

static struct argument args[] = {{"MIB", 1024, 1, 1u << 20},
                                 {"BLOCK", 65536, 1024, 1u << 30},
                                 {"SIZE", 0, 0, 65536},
                                 {"OPS", 1000000, 0, 0},
                                 {"SEED", 42, 0, 0}};

static void **fill(size_t count, size_t size, bool touch) {
    void **blocks = count != 0 ? pages_map(count * sizeof *blocks) : NULL;
    for (size_t i = 0; i < count; i++) {
        blocks[i] = must(malloc(size));
        if (touch)
            *(char *)blocks[i] = 1;
    }
    return blocks;
}

static void empty(void **blocks, size_t count) {
    for (size_t i = 0; i < count; i++)
        free(blocks[i]);
    if (count != 0)
        munmap(blocks, count * sizeof *blocks);
}

int main(int argc, char **argv) {
    ARGUMENTS_READ(argc, argv, args);
    uint64_t random = random_seed(args[SEED].value);
    size_t size = args[SIZE].value, count = (args[MIB].value << 20) / args[BLOCK].value,
           few = size != 0 ? FEW_BYTES / size : 0;
    (void)rss_bytes();
    uint64_t at_start = rss_bytes();
    void **blocks = fill(count, args[BLOCK].value, false), **small = fill(few, size, true);
    double start = now_seconds();
    for (uint64_t op = 0; op < args[OPS].value; op++) {
        void **place =
            few != 0 ? &small[random_below(&random, (uint32_t)few)] : &blocks[random_below(&random, (uint32_t)count)];
        free(*place);
        *place = must(malloc(few != 0 ? size : args[BLOCK].value));
        if (few != 0)
            *(char *)*place = 1;
    }
    report_speed(args[OPS].value, now_seconds() - start);
    uint64_t rss = rss_bytes(), list = count * sizeof *blocks;
    report_value("rss_over_start_bytes", rss > at_start + list ? rss - at_start - list : 0);
    empty(small, few);
    empty(blocks, count);
}
