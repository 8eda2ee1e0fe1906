/* Sampled guard pages, for use in production: a few blocks are placed between inaccessible pages, so that an overflow
 * or a use after free of one of them faults and is reported with the stacks that allocated and freed the block.
 *
 *  1. The guard pool is a SuperSlab's worth of slots. Only the pages of live blocks are accessible, and never the first
 *     or the last page of a slot. The pool is taken when the first block is to be guarded, and kept.
 *  2. A block is at the end of its pages; in every fourth slot, at their beginning.
 *  3. A freed block is purged, and inaccessible until its slot is the one that was freed longest ago.
 *  4. When all slots are live, or pages are too large, blocks are not guarded.
 *
 * The holder of a slot's block touches the slot's entry; `state` passes it on. Reports read it while it may change. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "base/text.h"
#include "heap/heap.h"
#include "observe/stack.h"

/* Returns a guarded block; NULL if the block cannot be guarded. */
void *guard_malloc(struct heap *h, size_t bytes, size_t alignment);
/* Has the slot a live block? */
bool guard_is_live(const struct slab *s);

/* ---- for reports, in signal handlers, too ---- */

/* Describes a faulting access if the address is in the guard pool, as a failure's line. `how`: "read", "write" or
 * "access". */
bool guard_describe(struct text *line, const void *address, const char *how);

/* Who allocated or freed the block at the address. False: it is not in the guard pool, or was not freed. */
bool guard_stack(const void *p, enum stack_event event, struct stack_taken *stack);
