/* mid_large_mt THREADS ITERATIONS SLOTS [SEED]: random_mixed in each thread with sizes of 8, 16 or 32 KiB.
 *
 * Each thread has its own SLOTS slots and makes ITERATIONS operations, each a malloc or a free. */
/* SPDX-License-Identifier: MIT */
#include "workload.h"

enum { THREADS, ITERATIONS, SLOTS, SEED };

static struct argument args[] = {
    {"THREADS", 2, 1, 4096},
    {"ITERATIONS", 40000, 1, 0},
    {"SLOTS", 128, 1, 1u << 31},
    {"SEED", 42, 0, 0},
};

static void *work(void *argument) {
    struct worker *worker = argument;
    uint32_t count = (uint32_t)args[SLOTS].value;
    uint64_t random = random_seed(args[SEED].value + worker->index);
    struct slot *slots = must(calloc(count, sizeof *slots));

    worker_start(worker);
    for (uint64_t i = 0; i < args[ITERATIONS].value; i++) {
        struct slot *slot = &slots[random_below(&random, count)];
        if (slot->block != NULL)
            slot_clear(slot);
        else
            slot_fill(slot, (size_t)8192 << random_below(&random, 3), (uint32_t)i);
    }
    worker_end(worker);
    slots_clear(slots, count);
    free(slots);
    return NULL;
}

int main(int argc, char **argv) {
    ARGUMENTS_READ(argc, argv, args);
    unsigned threads = (unsigned)args[THREADS].value;
    report_speed(threads * args[ITERATIONS].value, workers_run(threads, work));
}
