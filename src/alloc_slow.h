/* Malloc past the hits of alloc.h, as alloc.c and arena/alloc_sited.c share it. */
/* SPDX-License-Identifier: MIT */
#ifndef HAK_ALLOC_SLOW_H
#define HAK_ALLOC_SLOW_H

#include "block.h"
#include "heap.h"
#include "links.h"
#include "ring.h"

void *alloc_any(size_t bytes);                     /* of any size, by its kind's row */
void *alloc_tiny(struct heap *h, size_t bytes);    /* the heap's list of the class is empty */
void *alloc_at_site(struct heap *h, size_t bytes); /* as the policy of the caller says */
void *alloc_answer(struct heap *h, void *block);   /* does what another process asks for, and returns the block */

/* Every allocation that is no hit of alloc.h's passes here, rings' hits too: a request must not wait for a miss that
 * may never come. */
HAK_INLINE bool alloc_is_asked(const struct heap *h) {
    return unlikely(load_relaxed(&hak_profile.wanted) != h->asked_seen);
}

/* Apart from the calls, so that the ring's hit saves no registers. */
HAK_INLINE void *alloc_from_ring(struct heap *h, struct ring_entry cached, size_t bytes) {
    if (unlikely(!ring_had(load_relaxed(cached.state))))
        return ring_after_twice(cached, bytes, alloc_any);
    store_relaxed(cached.state, BLOCK_LIVE);
    return alloc_is_asked(h) ? alloc_answer(h, block_word(cached.block)) : block_word(cached.block);
}

#endif
