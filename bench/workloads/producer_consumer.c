/* producer_consumer [SIZE] [BLOCKS] [PRODUCERS] [CONSUMERS] [GROUPS]: some threads allocate, others free.
 *
 * There are GROUPS of PRODUCERS and CONSUMERS. Each producer has a ring of 1,024 places to each consumer of its group.
 * A producer gives to its rings in turn, and a consumer takes from its own in turn. An operation is one block: a malloc
 * here and a free there. BLOCKS is the total. */
/* SPDX-License-Identifier: MIT */
#include "workload.h"

enum { SIZE, BLOCKS, PRODUCERS, CONSUMERS, GROUPS };
enum { PRODUCERS_MAX = 128 };

static struct argument args[] = {
    {"SIZE", 64, 1, 1u << 30},          {"BLOCKS", 5000000, 1, 0}, {"PRODUCERS", 1, 1, PRODUCERS_MAX},
    {"CONSUMERS", 1, 1, PRODUCERS_MAX}, {"GROUPS", 1, 1, 256},
};
static struct handover *rings; /* [(group * PRODUCERS + producer) * CONSUMERS + consumer] */

static uint64_t rings_count(void) { return args[GROUPS].value * args[PRODUCERS].value * args[CONSUMERS].value; }

/* BLOCKS are divided into equal shares, one for each ring; the first gets the remainder. */
static uint64_t share(uint64_t ring) {
    return args[BLOCKS].value / rings_count() + (ring == 0 ? args[BLOCKS].value % rings_count() : 0);
}

/* `producer` and `consumer` count through all groups. */
static void produce(uint64_t producer) {
    uint64_t consumers = args[CONSUMERS].value, first = producer * consumers;
    for (uint64_t i = 0; i < share(first); i++) {
        for (uint64_t ring = first; ring < first + consumers; ring++) {
            if (i >= share(ring))
                continue;
            unsigned char *block = must(malloc(args[SIZE].value));
            tag_write(block, args[SIZE].value, (uint32_t)(i + ring));
            handover_give(&rings[ring], block);
        }
    }
}

static void consume(uint64_t consumer) {
    uint64_t producers = args[PRODUCERS].value, consumers = args[CONSUMERS].value, left = 0, seen[PRODUCERS_MAX] = {0};
    uint64_t first = consumer / consumers * producers * consumers + consumer % consumers;
    unsigned tries = 0;
    for (uint64_t p = 0; p < producers; p++)
        left += share(first + p * consumers);
    for (uint64_t p = 0; left > 0; p = p + 1 < producers ? p + 1 : 0) {
        uint64_t ring = first + p * consumers;
        void *block;
        if (handover_try_take(&rings[ring], &block)) {
            tag_check(block, args[SIZE].value, (uint32_t)(seen[p]++ + ring));
            free(block);
            left--;
        } else {
            handover_wait(&tries);
        }
    }
}

static void *work(void *argument) {
    struct worker *worker = argument;
    uint64_t producers = args[GROUPS].value * args[PRODUCERS].value;
    worker_start(worker);
    if (worker->index < producers)
        produce(worker->index);
    else
        consume(worker->index - producers);
    worker_end(worker);
    return NULL;
}

int main(int argc, char **argv) {
    ARGUMENTS_READ(argc, argv, args);
    rings = pages_map(rings_count() * sizeof *rings);
    unsigned threads = (unsigned)(args[GROUPS].value * (args[PRODUCERS].value + args[CONSUMERS].value));
    report_speed(args[BLOCKS].value, workers_run(threads, work));
}
