/* sweep [SIZE] [COUNT] [THREADS] [PERCENT] [ROUNDS] [ORDER] [SEED]: what was filled is freed in bulk, in no order.
 *
 * The end of a hash table, a collector's sweep, a compiler's exit. Each thread fills COUNT blocks of SIZE bytes and then
 * frees PERCENT of them. In each further round it allocates as many again and frees them. ORDER: 0 random, 1 as they
 * were allocated, 2 the other way round. An operation is one free, or one malloc after the first fill. */
/* SPDX-License-Identifier: MIT */
#include "workload.h"

enum { SIZE, COUNT, THREADS, PERCENT, ROUNDS, ORDER, SEED };
enum { ORDER_RANDOM, ORDER_SAME, ORDER_REVERSE };

static struct argument args[] = {
    {"SIZE", 64, 8, 1u << 30}, {"COUNT", 1000000, 1, 1u << 31}, {"THREADS", 1, 1, 256},
    {"PERCENT", 100, 1, 100},  {"ROUNDS", 1, 1, 1000000},       {"ORDER", 0, 0, 2},
    {"SEED", 42, 0, 0},
};

static void *worker(void *argument) {
    struct worker *self = argument;
    uint32_t count = (uint32_t)args[COUNT].value, size = (uint32_t)args[SIZE].value;
    uint32_t freed = (uint32_t)((uint64_t)count * args[PERCENT].value / 100);
    uint64_t random = random_seed(args[SEED].value + self->index);
    struct slot *slots = pages_map(count * sizeof *slots);
    for (uint32_t i = 0; i < count; i++)
        slots[i].tag = i;
    for (uint32_t i = count - 1; args[ORDER].value == ORDER_RANDOM && i > 0; i--) {
        uint32_t at = random_below(&random, i + 1), tag = slots[at].tag;
        slots[at].tag = slots[i].tag;
        slots[i].tag = tag;
    }
    /* The block allocated as the tag-th lies in slot i: freeing slot after slot is the order wanted. */
    uint32_t *place = pages_map(count * sizeof *place);
    for (uint32_t i = 0; i < count; i++)
        place[args[ORDER].value == ORDER_REVERSE ? count - 1 - slots[i].tag : slots[i].tag] = i;
    for (uint32_t i = 0; i < count; i++) {
        struct slot *slot = &slots[place[i]];
        slot->block = must(malloc(size));
        slot->size = 8; /* of which the tag is checked: free reads them, too */
        tag_write(slot->block, slot->size, slot->tag);
    }
    worker_start(self);
    for (uint64_t round = 0; round < args[ROUNDS].value; round++) {
        for (uint32_t i = 0; round != 0 && i < freed; i++) {
            slots[i].block = must(malloc(size));
            tag_write(slots[i].block, slots[i].size, slots[i].tag);
        }
        for (uint32_t i = 0; i < freed; i++)
            slot_clear(&slots[i]);
    }
    worker_end(self);
    slots_clear(slots, count);
    munmap(slots, count * sizeof *slots);
    munmap(place, count * sizeof *place);
    return NULL;
}

int main(int argc, char **argv) {
    ARGUMENTS_READ(argc, argv, args);
    struct worker alone = {.index = 0}; /* a program of one thread is one: that may make a difference */
    double seconds;
    if (args[THREADS].value == 1) {
        pthread_barrier_init(&workers_barrier, NULL, 1);
        worker(&alone);
        seconds = alone.end - alone.start;
    } else {
        seconds = workers_run((unsigned)args[THREADS].value, worker);
    }
    uint64_t freed = args[COUNT].value * args[PERCENT].value / 100;
    uint64_t operations = args[THREADS].value * freed * (2 * args[ROUNDS].value - 1);
    report_speed(operations, seconds);
    report_value("rss_after_bytes", rss_bytes());
}
