/* Mid: blocks of 1 to 64 KiB, by rings over bitmaps. See mid.c. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "heap/ring.h"

/* Allocates a block of the class, whose ring is empty. */
void *mid_malloc(struct heap *h, unsigned class_id, bool *zero);
/* The index of the block that starts at p, or the slab's number of blocks if none does. */
unsigned mid_block_at(const struct slab *s, const void *p);
/* The same for the record of a slab's first slot; the slab's number of blocks or more if none does. */
HAK_INLINE unsigned mid_index(const struct slab *s, const void *p) {
    return block_index(s->divisor, (uint32_t)((uintptr_t)p - s->mid.start));
}
/* The hit path. False: the block is sampled, or bad, or the ring is full or there is none yet, or no heap: mid_free. */
HAK_INLINE bool mid_free_to_ring(struct heap *h, struct slab *part, void *p) {
    struct slab *s = span_first(part);
    unsigned i = mid_index(s, p);
    return likely(i < s->mid.blocks && load_relaxed(&s->mid.state[i]) == BLOCK_LIVE) &&
           ring_push(h, ring_of_class(slab_class(s)), (uintptr_t)p, &s->mid.state[i]);
}
void mid_free(struct heap *h, struct slab *part, void *p);

/* For mid.c and move/dense.c alone. */
/* A new slab, whose lowest `taken` blocks are the caller's; NULL without memory. */
struct slab *mid_start_slab(struct heap *h, unsigned class_id, unsigned taken);
/* Takes the lowest free blocks of a slab whose offer the caller took, up to `max`, and offers what is left; 0: there
 * are none, or the slab is not of this class. *left: there are more. */
uint64_t mid_take_offered(struct heap *h, struct slab *s, unsigned class_id, unsigned max, bool *left);
unsigned mid_out(const struct slab *s, unsigned class_id); /* blocks of the slab that are in use, or in rings */
