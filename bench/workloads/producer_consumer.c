/* producer_consumer [SIZE] [BLOCKS] [PRODUCERS] [CONSUMERS]: some threads allocate, others free.
 *
 * Each producer has a ring of 1,024 places to each consumer. A producer gives to its rings in turn, and a consumer
 * takes from its own in turn. An operation is one block: a malloc here and a free there. BLOCKS is the total. */
/* SPDX-License-Identifier: MIT */
#include "workload.h"

enum { SIZE, BLOCKS, PRODUCERS, CONSUMERS };

static struct argument args[] = {
    {"SIZE", 64, 1, 1u << 30}, {"BLOCKS", 5000000, 1, 0}, {"PRODUCERS", 1, 1, 64}, {"CONSUMERS", 1, 1, 64}};
static struct handover *rings; /* [producer * CONSUMERS + consumer] */

/* BLOCKS are divided into equal shares, one for each pair of producer and consumer; the first gets the remainder. */
static uint64_t share(uint64_t ring) {
    uint64_t pairs = args[PRODUCERS].value * args[CONSUMERS].value;
    return args[BLOCKS].value / pairs + (ring == 0 ? args[BLOCKS].value % pairs : 0);
}

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
    uint64_t producers = args[PRODUCERS].value, consumers = args[CONSUMERS].value, left = 0, seen[64] = {0};
    unsigned tries = 0;
    for (uint64_t p = 0; p < producers; p++)
        left += share(p * consumers + consumer);
    for (uint64_t p = 0; left > 0; p = p + 1 < producers ? p + 1 : 0) {
        uint64_t ring = p * consumers + consumer;
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
    worker_start(worker);
    if (worker->index < args[PRODUCERS].value)
        produce(worker->index);
    else
        consume(worker->index - args[PRODUCERS].value);
    worker_end(worker);
    return NULL;
}

int main(int argc, char **argv) {
    ARGUMENTS_READ(argc, argv, args);
    rings = pages_map(args[PRODUCERS].value * args[CONSUMERS].value * sizeof *rings);
    unsigned threads = (unsigned)(args[PRODUCERS].value + args[CONSUMERS].value);
    report_speed(args[BLOCKS].value, workers_run(threads, work));
}
