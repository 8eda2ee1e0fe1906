/* false_sharing [PASSIVE] [THREADS] [ROUNDS] [WRITES] [SIZE]: threads write to small blocks of their own.
 *
 * If blocks of different threads share a cache line, every write is slow.
 *   PASSIVE 0 (active)   the allocator itself causes it: each thread allocates its block
 *   PASSIVE 1            main allocates one block for each thread, side by side; the thread frees it and allocates its
 *   own, which should be another one
 * Each thread does this ROUNDS times: allocates, increments every byte WRITES times, checks the bytes, frees. An
 * operation is one write. */
/* SPDX-License-Identifier: MIT */
#include "workload.h"

enum { PASSIVE, THREADS, ROUNDS, WRITES, SIZE };

static struct argument args[] = {
    {"PASSIVE", 0, 0, 1},   {"THREADS", 2, 1, 4096}, {"ROUNDS", 40000, 1, 0},
    {"WRITES", 1000, 1, 0}, {"SIZE", 8, 1, 4096},
};
static struct slot *given; /* by main, one for each thread */

static void *work(void *argument) {
    struct worker *worker = argument;
    size_t size = args[SIZE].value;

    worker_start(worker);
    if (args[PASSIVE].value)
        slot_clear(&given[worker->index]);
    for (uint64_t round = 0; round < args[ROUNDS].value; round++) {
        volatile unsigned char *block = must(malloc(size));
        for (size_t i = 0; i < size; i++)
            block[i] = (unsigned char)round;
        for (uint64_t write = 0; write < args[WRITES].value; write++)
            for (size_t i = 0; i < size; i++)
                block[i]++;
        for (size_t i = 0; i < size; i++)
            if (block[i] != (unsigned char)(round + args[WRITES].value))
                fail(3, "a block does not hold what was written into it");
        free((void *)block);
    }
    worker_end(worker);
    return NULL;
}

int main(int argc, char **argv) {
    ARGUMENTS_READ(argc, argv, args);
    uint64_t threads = args[THREADS].value;
    given = pages_map(threads * sizeof *given);
    for (uint64_t i = 0; args[PASSIVE].value && i < threads; i++)
        slot_fill(&given[i], args[SIZE].value, (uint32_t)i);
    double seconds = workers_run((unsigned)threads, work);
    report_speed(threads * args[ROUNDS].value * args[WRITES].value * args[SIZE].value, seconds);
}
