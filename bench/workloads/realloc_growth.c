/* realloc_growth BUFFERS ROUNDS SEED [BIG_MIB]: buffers grow by half in random order, then one grows to BIG_MIB MiB.
 *
 * Each of BUFFERS buffers grows from 16 B to more than 64 KiB, is freed and starts again, ROUNDS times on average. The
 * big one grows in steps of 1 MiB, and each step is written to. An operation is one realloc. */
/* SPDX-License-Identifier: MIT */
#include "workload.h"

enum { BUFFERS, ROUNDS, SEED, BIG_MIB };

static struct argument args[] = {
    {"BUFFERS", 200, 1, 1u << 20},
    {"ROUNDS", 50, 1, 0},
    {"SEED", 42, 0, 0},
    {"BIG_MIB", 64, 1, 4000},
};

static void grow(struct slot *slot, size_t size) {
    if (slot->block != NULL) {
        uint32_t head;
        memcpy(&head, slot->block, 4);
        if (head != slot->tag)
            fail(3, "a grown block has lost its beginning");
    }
    unsigned char *block = must(realloc(slot->block, size));
    if (slot->block != NULL)
        tag_check(block, slot->size, slot->tag);
    slot->block = block;
    slot->size = (uint32_t)size;
    tag_write(block, size, slot->tag);
}

int main(int argc, char **argv) {
    ARGUMENTS_READ(argc, argv, args);
    uint32_t buffers = (uint32_t)args[BUFFERS].value;
    uint64_t random = random_seed(args[SEED].value), operations = 0;
    struct slot *slots = must(calloc(buffers, sizeof *slots));
    double start = now_seconds();
    for (uint64_t finished = 0; finished < args[ROUNDS].value * buffers;) {
        struct slot *slot = &slots[random_below(&random, buffers)];
        if (slot->block == NULL)
            slot->tag = (uint32_t)random_next(&random);
        if (slot->block != NULL && slot->size > 65536) {
            slot_clear(slot);
            finished++;
        } else {
            grow(slot, slot->block == NULL ? 16 : slot->size + slot->size / 2);
            operations++;
        }
    }
    struct slot big = {NULL, 0, 7};
    for (uint64_t mib = 1; mib <= args[BIG_MIB].value; mib++, operations++) {
        size_t before = big.block != NULL ? big.size : 0;
        grow(&big, mib << 20);
        for (size_t at = before; at + 4 < big.size; at += 4096)
            big.block[at + 8] = 1;
    }
    report_speed(operations, now_seconds() - start);
    slot_clear(&big);
    slots_clear(slots, buffers);
    free(slots);
}
