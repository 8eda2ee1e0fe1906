/* free_thread [WORKERS] [LIVE] [OPS] [SEED]: workers allocate and retire blocks; one thread only frees them.
 *
 * Programs do this that reclaim memory by epochs, or hand their garbage to a cleaner:
 *   1. each worker has LIVE blocks of 16 B-16 KiB and replaces a random one OPS times;
 *   2. retired blocks are gathered in batches of 200 and go to the cleaner, which checks and frees them later.
 * An operation is one replacement. RSS is taken when everything is retired and freed, while the threads still exist. */
/* SPDX-License-Identifier: MIT */
#include "workload.h"

enum { WORKERS, LIVE, OPS, SEED };
enum { BATCH = 200, POWERS = 10 };

static struct argument args[] = {
    {"WORKERS", 2, 1, 1024}, {"LIVE", 20000, 1, 1u << 24}, {"OPS", 1000000, 1, 0}, {"SEED", 42, 0, 0}};
static struct handover *rings;            /* one for each worker; passes a batch, or `end` */
static char end;                          /* its address ends a ring */
static uint64_t start_bytes, freed_bytes; /* RSS */

struct batch {
    uint32_t count;
    struct slot slots[BATCH];
};

static struct batch *retire(struct handover *ring, struct batch *batch, struct slot *slot) {
    batch->slots[batch->count++] = *slot;
    slot->block = NULL;
    if (batch->count < BATCH)
        return batch;
    handover_give(ring, batch);
    return must(calloc(1, sizeof *batch));
}

static void worker_work(struct handover *ring, uint64_t random) {
    uint32_t live = (uint32_t)args[LIVE].value;
    struct slot *slots = pages_map(live * sizeof *slots);
    struct batch *batch = must(calloc(1, sizeof *batch));
    for (uint64_t op = 0; op < args[OPS].value; op++) {
        struct slot *slot = &slots[random_below(&random, live)];
        if (slot->block != NULL)
            batch = retire(ring, batch, slot);
        slot_fill(slot, random_size(&random, POWERS), (uint32_t)op);
    }
    for (uint32_t i = 0; i < live; i++)
        if (slots[i].block != NULL)
            batch = retire(ring, batch, &slots[i]);
    handover_give(ring, batch);
    handover_give(ring, &end);
    munmap(slots, live * sizeof *slots);
}

static void cleaner_work(void) {
    uint64_t workers = args[WORKERS].value, ended = 0;
    unsigned tries = 0;
    for (uint64_t i = 0; ended < workers; i = (i + 1) % workers) {
        void *taken;
        if (!handover_try_take(&rings[i], &taken)) {
            handover_wait(&tries);
        } else if (taken == &end) {
            ended++;
        } else {
            struct batch *batch = taken;
            slots_clear(batch->slots, batch->count);
            free(batch);
        }
    }
}

static void *work(void *argument) {
    struct worker *worker = argument;
    worker_start(worker);
    if (worker->index < args[WORKERS].value)
        worker_work(&rings[worker->index], random_seed(args[SEED].value + worker->index));
    else
        cleaner_work();
    worker_end(worker);
    if (worker->index == args[WORKERS].value) {
        munmap(rings, args[WORKERS].value * sizeof *rings);
        freed_bytes = rss_bytes();
    }
    pthread_barrier_wait(&workers_barrier);
    return NULL;
}

int main(int argc, char **argv) {
    ARGUMENTS_READ(argc, argv, args);
    rings = pages_map(args[WORKERS].value * sizeof *rings);
    (void)rss_bytes();
    start_bytes = rss_bytes();
    double seconds = workers_run((unsigned)args[WORKERS].value + 1, work);
    report_speed(args[WORKERS].value * args[OPS].value, seconds);
    report_value("rss_freed_over_start_bytes", freed_bytes > start_bytes ? freed_bytes - start_bytes : 0);
}
