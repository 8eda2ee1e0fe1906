/* Sampled guard pages: a few blocks of a program in production lie between inaccessible pages, so that an overflow or a use
 * after free of one of them is told by the processor, with the stacks that allocated and freed it.
 *
 *  1. The guard pool is a SuperSlab's worth of slots, inaccessible but for the pages of live blocks: of each slot neither the
 *     first page nor the last. It is taken when the first block is to be guarded, and kept.
 *  2. A block lies at the end of its pages, in every fourth slot at their beginning.
 *  3. A freed one is purged and inaccessible until its slot is the one that was freed longest ago.
 *  4. When all slots are live, or pages are too large, blocks are not guarded.
 *
 * A slot's entry is touched by whoever holds its block: state passes it on. Reports read it while it may change. */
/* SPDX-License-Identifier: MIT */
#ifndef HAK_GUARD_H
#define HAK_GUARD_H

#include "heap.h"

/* NULL: not guarded. */
void *guard_malloc(struct heap *h, size_t bytes, size_t alignment);
/* Has the slot a live block? */
bool guard_is_live(const struct slab *s);

/* An access at this address failed. If it is the guard pool's, says what is known of it, on the standard error. `how`: "read",
 * "write" or "access". For signal handlers. */
void guard_report(const void *address, const char *how);

#endif
