/* calloc_heavy ITERATIONS SLOTS SEED: random_mixed with calloc, 16 B-1 MiB, small ones more often; checks for zeroes.
 *
 * Every block is checked to be zero at its start, at its end and once per KiB, then dirtied there. An operation is one
 * calloc or one free. */
/* SPDX-License-Identifier: MIT */
#include "workload.h"

enum { ITERATIONS, SLOTS, SEED };

static struct argument args[] = {{"ITERATIONS", 400000, 1, 0}, {"SLOTS", 500, 1, 1u << 20}, {"SEED", 42, 0, 0}};

static void fill_zeroed(struct slot *slot, size_t size, uint32_t tag) {
    slot->block = must(calloc(1, size));
    slot->size = (uint32_t)size;
    slot->tag = tag;
    tag_check(slot->block, size, 0);
    for (size_t at = 512; at + 8 < size; at += 1024) {
        if (slot->block[at] != 0)
            fail(3, "calloc gave a block that is not zero");
        slot->block[at] = 0xFF;
    }
    tag_write(slot->block, size, tag);
}

int main(int argc, char **argv) {
    ARGUMENTS_READ(argc, argv, args);
    uint32_t count = (uint32_t)args[SLOTS].value;
    uint64_t random = random_seed(args[SEED].value);
    struct slot *slots = must(calloc(count, sizeof *slots));
    double start = now_seconds();
    for (uint64_t i = 0; i < args[ITERATIONS].value; i++) {
        struct slot *slot = &slots[random_below(&random, count)];
        if (slot->block != NULL) {
            slot_clear(slot);
        } else {
            /* the smaller of two draws: half of all blocks are below 2 KiB, one in 60 above 256 KiB */
            uint32_t one = random_below(&random, 16), two = random_below(&random, 16);
            uint32_t power = 16u << (one < two ? one : two);
            fill_zeroed(slot, power + random_below(&random, power + 1), (uint32_t)i);
        }
    }
    report_speed(args[ITERATIONS].value, now_seconds() - start);
    slots_clear(slots, count);
    free(slots);
}
