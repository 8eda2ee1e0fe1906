/* Secure mode's random numbers: a heap's own, seeded from the system's. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "canary.h"
#include "heap.h"

/* The generator's state is the first word of what secure mode has at the end of a heap's memory. 0: not seeded yet. */
HAK_INLINE uint64_t *secure_random_state(struct heap *h) {
    return (uint64_t *)(void *)((char *)h + HEAP_BYTES - HEAP_SECURE_BYTES);
}
/* Fast, and not for ciphers. The heap was seeded. */
HAK_INLINE uint64_t secure_next_random(struct heap *h) {
    uint64_t *state = secure_random_state(h);
    *state += 0xa0761d6478bd642f;
    return canary_fold(*state, *state ^ 0xe7037ed1a0b428db);
}
uint64_t secure_random(struct heap *h); /* for any heap */
HAK_INLINE unsigned random_below(struct heap *h, unsigned n) { return (unsigned)((secure_random(h) >> 32) * n >> 32); }
