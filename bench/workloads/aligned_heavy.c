/* aligned_heavy [ITERATIONS] [SLOTS] [SEED]: random_mixed with aligned_alloc and posix_memalign in turn.
 *
 * Alignments are 16-4096 B, small ones more often; sizes are 16-2063 B, rounded up to a multiple of the alignment for
 * aligned_alloc. An operation is one allocation or one free. */
/* SPDX-License-Identifier: MIT */
#include "workload.h"

enum { ITERATIONS, SLOTS, SEED };

static struct argument args[] = {{"ITERATIONS", 4000000, 1, 0}, {"SLOTS", 4000, 1, 1u << 24}, {"SEED", 42, 0, 0}};

static size_t alignment_draw(uint64_t *random) {
    size_t one = random_below(random, 9), two = random_below(random, 9);
    return (size_t)16 << (one < two ? one : two);
}

static void fill_aligned(struct slot *slot, size_t alignment, size_t size, uint32_t tag) {
    void *block = NULL;
    if (tag % 2 == 0)
        block = aligned_alloc(alignment, size = (size + alignment - 1) & ~(alignment - 1));
    else if (posix_memalign(&block, alignment, size) != 0)
        fail(1, "posix_memalign failed");
    *slot = (struct slot){must(block), (uint32_t)size, tag};
    if (((uintptr_t)block & (alignment - 1)) != 0)
        fail(3, "a block is not aligned");
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
        if (slot->block != NULL)
            slot_clear(slot);
        else
            fill_aligned(slot, alignment_draw(&random), 16 + random_below(&random, 2048), (uint32_t)i);
    }
    report_speed(args[ITERATIONS].value, now_seconds() - start);
    slots_clear(slots, count);
    free(slots);
}
