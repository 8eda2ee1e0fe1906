/* Mid: blocks of 1 to 64 KiB, by rings over bitmaps. See mid.c. */
/* SPDX-License-Identifier: MIT */
#ifndef HAK_MID_H
#define HAK_MID_H

#include "ring.h"

/* A block, when the ring of its class is empty. */
void *mid_malloc(struct heap *h, unsigned class_id, bool *zero);
/* Index of the block p starts, or the slab's number of blocks if it starts none. */
unsigned mid_block_at(const struct slab *s, const void *p);
void mid_free_slowly(struct heap *h, struct slab *s, unsigned i, void *p);  /* the ring is full, or there is none yet */
void mid_free_checked(struct heap *h, struct slab *s, unsigned i, void *p); /* it is sampled, or bad */
HAK_INLINE void mid_free(struct heap *h, struct slab *part, void *p) {
    struct slab *s = span_first(part);
    unsigned i = block_index(s->divisor, (uint32_t)((uintptr_t)p - s->start));
    if (unlikely(i >= s->blocks || load_relaxed(&s->state[i]) != BLOCK_LIVE))
        mid_free_checked(h, s, i, p);
    else if (unlikely(!ring_push(h, ring_of_class(slab_class(s)), (uintptr_t)p, &s->state[i])))
        mid_free_slowly(h, s, i, p);
}

#endif
