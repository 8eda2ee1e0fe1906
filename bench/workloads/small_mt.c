/* small_mt [THREADS] [BATCHES] [BLOCKS] [SIZE]: each thread allocates BLOCKS blocks of 16 B, then frees them.
 *
 * Each thread does this BATCHES times, and frees every second batch backwards. An operation is one malloc or one
 * free. */
/* SPDX-License-Identifier: MIT */
#include "workload.h"

enum { THREADS, BATCHES, BLOCKS, SIZE };

static struct argument args[] = {
    {"THREADS", 4, 1, 4096},
    {"BATCHES", 10000, 1, 0},
    {"BLOCKS", 1000, 1, 1u << 31},
    {"SIZE", 16, 8, 1u << 30},
};

static void *work(void *argument) {
    struct worker *worker = argument;
    size_t blocks = args[BLOCKS].value, size = args[SIZE].value;
    uint64_t **list = must(calloc(blocks, sizeof *list));

    worker_start(worker);
    for (uint64_t batch = 0; batch < args[BATCHES].value; batch++) {
        for (size_t i = 0; i < blocks; i++) {
            list[i] = must(malloc(size));
            *list[i] = batch + i;
        }
        for (size_t n = 0; n < blocks; n++) {
            size_t i = batch % 2 == 0 ? n : blocks - 1 - n;
            if (*list[i] != batch + i)
                fail(3, "a block does not hold what was written into it");
            free(list[i]);
        }
    }
    worker_end(worker);
    free(list);
    return NULL;
}

int main(int argc, char **argv) {
    ARGUMENTS_READ(argc, argv, args);
    unsigned threads = (unsigned)args[THREADS].value;
    report_speed(2 * threads * args[BATCHES].value * args[BLOCKS].value, workers_run(threads, work));
}
