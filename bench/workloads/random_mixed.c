/* random_mixed ITERATIONS SLOTS SEED [PROFILE] [THREADS]: a random slot is freed if taken, otherwise filled.
 *
 * PROFILE 1: sizes uniform in 16-1040 B; PROFILE 2: 8-128 B in steps of 8. Each of THREADS threads has SLOTS slots of
 * its own and makes ITERATIONS iterations; one thread is the program's own. An operation is one iteration: one malloc
 * or one free. */
/* SPDX-License-Identifier: MIT */
#include "workload.h"

enum { ITERATIONS, SLOTS, SEED, PROFILE, THREADS };

static struct argument args[] = {
    {"ITERATIONS", 200000, 1, 0}, {"SLOTS", 4096, 1, 1u << 31}, {"SEED", 1234567, 0, 0},
    {"PROFILE", 1, 1, 2},         {"THREADS", 1, 1, 4096},
};

static void *work(void *argument) {
    struct worker *worker = argument;
    uint32_t count = (uint32_t)args[SLOTS].value;
    uint64_t random = random_seed(args[SEED].value + worker->index);
    bool small = args[PROFILE].value == 2;
    struct slot *slots = must(calloc(count, sizeof *slots));

    worker_start(worker);
    for (uint64_t i = 0; i < args[ITERATIONS].value; i++) {
        struct slot *slot = &slots[random_below(&random, count)];
        if (slot->block != NULL)
            slot_clear(slot);
        else
            slot_fill(slot, small ? 8 + 8 * random_below(&random, 16) : 16 + random_below(&random, 1025), (uint32_t)i);
    }
    worker_end(worker);
    slots_clear(slots, count);
    free(slots);
    return NULL;
}

int main(int argc, char **argv) {
    ARGUMENTS_READ(argc, argv, args);
    unsigned threads = (unsigned)args[THREADS].value;
    report_speed(threads * args[ITERATIONS].value, workers_run_or_work(threads, work));
}
