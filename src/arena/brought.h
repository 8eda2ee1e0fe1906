/* Arenas in memory that the user brings: blocks, and all that is known of them, lie in that memory, and nothing lies in
 * the region.
 *
 *  1. The memory begins with struct brought and tables; pieces of 1 KiB follow. `taken` has a bit for each piece, and
 *     is the truth about it. A run of pieces is claimed word by word; whoever finds one taken gives back what it has
 *     and looks elsewhere.
 *  2. A block above 1 KiB is a run. Smaller ones are cut from a slab: a run of at most 16 pieces, up to 64 blocks of
 *     one class, with a bit for each free one in `free_blocks`, as in a mid slab. Whoever turns "all free" into 0 gives
 *     the slab's pieces back. A taker that came late finds 0, or holds a block and looks at the class again.
 *  3. Threads keep nothing of such an arena: each call is one or two compare-and-swaps. No page is ever given back to
 *     the system.
 *  4. An address outside the region is looked up in a table of places, each one word: the first page and how many there
 *     are. So the hit paths do not know of this, and the memory is only read while it is an arena's.
 *
 * Any thread calls anything but brought_make and brought_end; nothing waits. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "space/arena_record.h"
#include "hooks.h"
#include "kinds.h"

#define BROUGHT_PIECE_BYTES KIB

/* Makes the memory the arena's. NULL: EINVAL (too small, too large, or not the user's alone), or ENOMEM, too many of
 * them. */
struct brought *brought_make(struct arena *a, void *memory, size_t bytes);
/* The arena ends. The memory is the user's again, at once or, with `keep_blocks`, when the last block is freed. */
void brought_end(struct arena *a, bool keep_blocks);

void *brought_malloc(struct arena *a, size_t bytes, size_t alignment);
/* Pieces in all. */
size_t brought_pieces(const struct brought *m);
/* Calls `call` for each live block until it returns false. */
void brought_visit(struct brought *m, block_visitor *call, void *argument);

/* The arena of a block with the record that all blocks of the memory have in common (hook_slab_outside); NULL: it was
 * released. */
struct arena *brought_arena(const struct slab *record);
