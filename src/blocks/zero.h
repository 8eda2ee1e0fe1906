/* Checks whether memory is zero, and clears it: secure mode does both to every block.
 *
 *  1. narrow: up to 128 bytes, with the vectors that every machine has and without a loop: from both ends, which may
 *     overlap.
 *  2. long: above that, four wide vectors a round. The last round may overlap the one before. Where the class's block
 *     size is known sooner than the block and its state, it gives the number of rounds: so a mispredicted count comes
 *     to light while the block and its state are still being loaded.
 *  3. big: above 4 KiB, where the machine has wide vectors: sixteen a round. Rounds that are zero already are not
 *     written.
 *
 * Blocks are aligned to 16 bytes. Checks cover a multiple of 16 bytes; so do narrow clears, but longer clears need
 * not. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "region/region.h"

#include <string.h>

typedef uint64_t vector __attribute__((vector_size(16), may_alias));
typedef uint64_t wide_vector __attribute__((vector_size(32), may_alias, aligned(16)));
typedef uint64_t loose_vector __attribute__((vector_size(32), may_alias, aligned(1)));
#define NARROW_MAX 128 /* bytes */
#define BIG_FROM (4 * KIB)
enum { LONG_ROUND = 4, BIG_ROUND = 16 /* vectors */ };

HAK_INLINE bool narrow_is_zero(uintptr_t block, size_t bytes) {
    const vector *v = (const vector *)block, *end = v + bytes / 16; /* NOLINT: blocks are addresses */
    vector all = v[0] | end[-1];
    if (bytes > 32)
        all |= v[1] | end[-2];
    if (bytes > 64)
        all |= v[2] | v[3] | end[-3] | end[-4];
    return (all[0] | all[1]) == 0;
}
HAK_INLINE void narrow_clear(uintptr_t block, size_t bytes) {
    vector *v = (vector *)block, *end = v + bytes / 16, zero = {0, 0}; /* NOLINT: blocks are addresses */
    v[0] = end[-1] = zero;
    if (bytes > 32)
        v[1] = end[-2] = zero;
    if (bytes > 64)
        v[2] = v[3] = end[-3] = end[-4] = zero;
}

/* The rounds before the last. */
HAK_INLINE size_t long_rounds(size_t bytes) { return (bytes - 1) / (LONG_ROUND * sizeof(wide_vector)); }
HAK_INLINE bool long_is_zero(uintptr_t block, size_t bytes) {
    const wide_vector *v = (const wide_vector *)block;                           /* NOLINT: blocks are addresses */
    const wide_vector *last = (const wide_vector *)(block + bytes) - LONG_ROUND; /* NOLINT */
    wide_vector a = last[0] | last[1], b = last[2] | last[3];
    for (size_t rounds = long_rounds(bytes); rounds != 0; rounds--, v += LONG_ROUND)
        a |= v[0] | v[1], b |= v[2] | v[3];
    a |= b;
    return (a[0] | a[1] | a[2] | a[3]) == 0;
}
HAK_WIDE static inline void long_clear(uintptr_t block, size_t bytes, size_t rounds) {
    loose_vector *v = (loose_vector *)block, zero = {0, 0, 0, 0};      /* NOLINT: blocks are addresses */
    loose_vector *last = (loose_vector *)(block + bytes) - LONG_ROUND; /* NOLINT */
    for (; rounds != 0; rounds--, v += LONG_ROUND)
        v[0] = v[1] = v[2] = v[3] = zero;
    last[0] = last[1] = last[2] = last[3] = zero;
}

HAK_WIDE static inline bool big_round_is_zero(const wide_vector *v) {
    wide_vector a = v[0] | v[1] | v[2] | v[3], b = v[4] | v[5] | v[6] | v[7];
    wide_vector c = v[8] | v[9] | v[10] | v[11], d = v[12] | v[13] | v[14] | v[15];
    a = (a | b) | (c | d);
    return (a[0] | a[1] | a[2] | a[3]) == 0;
}
HAK_WIDE static inline bool big_is_zero(uintptr_t block, size_t bytes) {
    const wide_vector *v = (const wide_vector *)block;                          /* NOLINT: blocks are addresses */
    const wide_vector *last = (const wide_vector *)(block + bytes) - BIG_ROUND; /* NOLINT */
    while (v < last && big_round_is_zero(v))
        v += BIG_ROUND;
    return v >= last && big_round_is_zero(last);
}
/* Reading costs less than writing, and pages that were never written stay without memory of their own. */
HAK_WIDE static inline void big_clear(uintptr_t block, size_t bytes) {
    size_t round = BIG_ROUND * sizeof(wide_vector), at = 0;
    for (; at < bytes - round; at += round)
        if (!big_round_is_zero((const wide_vector *)(block + at))) /* NOLINT: blocks are addresses */
            long_clear(block + at, round, long_rounds(round));
    long_clear(block + bytes - round, round, long_rounds(round));
}

/* For more than NARROW_MAX bytes. */
HAK_WIDE static inline bool wide_is_zero(uintptr_t block, size_t bytes) {
    return bytes > BIG_FROM ? big_is_zero(block, bytes) : long_is_zero(block, bytes);
}

/* For any size. */
static inline bool memory_is_zero(uintptr_t block, size_t bytes) {
    if (bytes <= NARROW_MAX)
        return narrow_is_zero(block, bytes);
    return likely(hak_region.wide) ? wide_is_zero(block, bytes) : long_is_zero(block, bytes);
}
/* If the middle of a big block is zero, the program probably used only a part of the block. */
static inline void memory_clear(uintptr_t block, size_t bytes) {
    if (bytes > BIG_FROM && hak_region.wide && narrow_is_zero(block + round_down(bytes / 2, 16), NARROW_MAX))
        big_clear(block, bytes);
    else
        memset((void *)block, 0, bytes); /* NOLINT: blocks are addresses */
}
