/* large_blocks LIVE OPS SEED: random replacement among LIVE blocks of 64 KiB-8 MiB, with every page written.
 *
 * Sizes are spread evenly over the powers of two in between. An operation is one free and one malloc. */
/* SPDX-License-Identifier: MIT */
#include "workload.h"

enum { LIVE, OPS, SEED };

static struct argument args[] = {{"LIVE", 32, 1, 65536}, {"OPS", 2000, 1, 0}, {"SEED", 42, 0, 0}};

static void fill(struct slot *slot, uint64_t *random, uint32_t tag) {
    uint32_t power = 65536u << random_below(random, 7);
    slot_fill(slot, power + random_below(random, power + 1), tag);
    for (size_t at = 4096; at + 8 < slot->size; at += 4096)
        slot->block[at] = (unsigned char)tag;
}

int main(int argc, char **argv) {
    ARGUMENTS_READ(argc, argv, args);
    uint32_t live = (uint32_t)args[LIVE].value;
    uint64_t random = random_seed(args[SEED].value);
    struct slot *slots = must(calloc(live, sizeof *slots));
    double start = now_seconds();
    for (uint32_t i = 0; i < live; i++)
        fill(&slots[i], &random, i);
    for (uint64_t op = 0; op < args[OPS].value; op++) {
        struct slot *slot = &slots[random_below(&random, live)];
        slot_clear(slot);
        fill(slot, &random, (uint32_t)op);
    }
    report_speed(live + args[OPS].value, now_seconds() - start);
    slots_clear(slots, live);
    free(slots);
}
