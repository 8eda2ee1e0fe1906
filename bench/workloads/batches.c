/* batches [THREADS] [ROUNDS] [BATCH_KIB] [SEED]: each thread allocates batches, one size after another, and frees them.
 *
 * Sizes are 16, 24, 32, 48, 64 … 32768 B, with BATCH_KIB of each (at least one block), so the memory of one size has to
 * serve the next. Batches are freed in order, backwards or shuffled, in turn. An operation is one malloc or one free.
 * Peak RSS beyond THREADS * BATCH_KIB is the cost of changing sizes. */
/* SPDX-License-Identifier: MIT */
#include "workload.h"

enum { THREADS, ROUNDS, BATCH_KIB, SEED };

static struct argument args[] = {
    {"THREADS", 2, 1, 4096},
    {"ROUNDS", 30, 1, 0},
    {"BATCH_KIB", 1024, 1, 1u << 21},
    {"SEED", 42, 0, 0},
};
static atomic_uint_fast64_t operations;

static void batch_run(uint64_t **list, size_t count, size_t size, uint64_t turn, uint64_t *random) {
    for (size_t i = 0; i < count; i++) {
        list[i] = must(malloc(size));
        list[i][0] = list[i][size / 8 - 1] = turn ^ size;
    }
    for (size_t i = count; turn % 3 == 2 && i > 1; i--) {
        size_t at = random_below(random, (uint32_t)i);
        uint64_t *block = list[at];
        list[at] = list[i - 1];
        list[i - 1] = block;
    }
    for (size_t n = 0; n < count; n++) {
        uint64_t *block = list[turn % 3 == 1 ? count - 1 - n : n];
        if (block[0] != (turn ^ size) || block[size / 8 - 1] != (turn ^ size))
            fail(3, "a block does not hold what was written into it");
        block[0] = 0; /* if the block were also another one's, that one would lose its content */
        free(block);
    }
}

static void *work(void *argument) {
    struct worker *worker = argument;
    size_t bytes = args[BATCH_KIB].value << 10;
    uint64_t random = random_seed(args[SEED].value + worker->index), turn = 0, done = 0;
    uint64_t **list = pages_map(bytes / 16 * sizeof *list);

    worker_start(worker);
    for (uint64_t round = 0; round < args[ROUNDS].value; round++) {
        for (size_t size = 16; size <= 32768; size += size & (size - 1) ? size / 3 : size / 2, turn++) {
            size_t count = bytes > size ? bytes / size : 1;
            batch_run(list, count, size, turn, &random);
            done += 2 * count;
        }
    }
    worker_end(worker);
    atomic_fetch_add(&operations, done);
    munmap(list, bytes / 16 * sizeof *list);
    return NULL;
}

int main(int argc, char **argv) {
    ARGUMENTS_READ(argc, argv, args);
    double seconds = workers_run((unsigned)args[THREADS].value, work);
    report_speed(atomic_load(&operations), seconds);
}
