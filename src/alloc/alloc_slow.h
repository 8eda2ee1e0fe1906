/* The parts of malloc past the hits of alloc.h that alloc.c shares with resize.c, arena/ and secure/. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "beside/other.h"
#include "blocks/block.h"
#include "blocks/links.h"
#include "heap/heap.h"
#include "heap/ring.h"
#include "threads/chores.h"

void *alloc_any(size_t bytes); /* allocates any size, by its kind's row */
/* Allocates a block of the class, whose list in the heap is empty. */
void *alloc_tiny(struct heap *h, unsigned class_id, size_t bytes);
void *alloc_answer(struct heap *h, void *block); /* does what another process asks for, and returns the block */
/* Allocates from the heap, by the rows, and tries again once the caches are empty. NULL, with ENOMEM: no memory. */
void *alloc_from(struct heap *h, size_t bytes, size_t alignment, bool *zero);
/* Ends a call that entered with the thread's heap `h` and allocated from `of`. If `of` is an arena's, `h` takes over
 * the chores that concern the whole process. */
void alloc_leave(struct heap *h, struct heap *of);
/* Sets errno, counts, and returns NULL. `h` may be NULL. */
void *alloc_no_memory(struct heap *h);

/* Does a class serve the aligned request? Then the block has the size of the class, not the one asked for. */
HAK_INLINE bool heaps_classes_align(size_t bytes, size_t alignment) {
    return bytes <= MID_BYTES_MAX && alignment - 1 < MID_BYTES_MAX && mode()->front_kind == NULL;
}
/* As heaps_classes_align; but no class serves while another allocator does. */
HAK_INLINE bool classes_align(size_t bytes, size_t alignment) {
    return heaps_classes_align(bytes, alignment) && !other_serves();
}

/* A function of its own, so that the ring's hit saves no registers. */
HAK_INLINE void *alloc_from_ring(struct heap *h, struct ring_entry cached, size_t bytes) {
    if (unlikely(!ring_had(load_relaxed(cached.state))))
        return ring_after_twice(cached, bytes, alloc_any);
    store_relaxed(cached.state, BLOCK_LIVE);
    return chores_are_asked(h) ? alloc_answer(h, block_word(cached.block)) : block_word(cached.block);
}
