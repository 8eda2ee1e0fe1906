/* Making and ending an arena. See hakmem.h for what the calls promise.
 *
 *  1. An arena ends in three steps: its handle becomes invalid, its SuperSlabs become the process's, and its heaps go
 *     back to the stock. No block is looked at, only the record of each slot.
 *  2. While the arena ends no other thread uses it or its blocks; that is the caller's promise. Threads that once used
 *     the arena find out by the handle (arena_heap.h). The purger may be purging EMPTY slots of it meanwhile: their
 *     ACTIVE bits are the purger's, and stay.
 *  3. A release leaves the blocks where they are: the heaps let go of their slabs, and the SuperSlabs change hands with
 *     what is in use. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "space/arena_record.h"
#include "hakmem.h"

/* Returns 0, with ENOMEM, if there is no memory or there are too many arenas. `is_lane`: it never ends (lane.h). */
uintptr_t arena_make(const hak_arena_options *options, bool is_lane);
/* Ends the arena, or reports that there is no such arena. */
void arena_end(uintptr_t handle, bool keep_blocks, const char *call);
/* The record of the arena; NULL: there is none, which is reported. */
struct arena *arena_checked(uintptr_t handle, const char *call);

/* The arena of the block; 0: it is in none, or is no block of this heap. */
uintptr_t arena_of_block(const void *block);
