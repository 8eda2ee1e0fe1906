/* A meshed slab: a tiny slab that was closed because few of its blocks are live, and that shares pages with others
 * (mesh.c).
 *
 *  1. It is a kind of its own (kinds.h). Nothing is allocated from it, and it has no list: a map has a bit for each
 *     live block. A free clears the bit and touches no page, because a write would make the page private.
 *  2. `owner` in the record is heap_of_closed, which belongs to no thread, so no free is a hit. Threads that took it
 *     for a tiny slab push their blocks into its inbox. Whoever closes the slab writes `owner`, then reads the inbox; a
 *     sender writes the inbox, then reads `owner` (outbox.c). One sees the other.
 *  3. Whoever clears the last bit puts fresh memory in the slot's place and gives the slot to the pool.
 *
 * Any thread calls anything; nothing waits. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "heap/heap.h"

enum {
    MESHED_BLOCKS_MAX = 4096, /* of 16 bytes: those of 8 bytes are not meshed */
    MESH_PAGE_BYTES = 4 * KIB,
    MESH_PAGES = SLOT_BYTES / MESH_PAGE_BYTES,
};

/* Only the pass that closes or holds the slab touches `file` and `unused`. */
struct meshed {
    _Atomic uint32_t blocks;   /* 0: never closed. Else live ones, 1 more, and flags; changes after the bits of `map` */
    uint32_t file[MESH_PAGES]; /* the number of the file that page i is mapped from; 0: none */
    uint32_t unused;           /* bit i: page i has no live block, and its memory went back */
    _Atomic uint64_t map[MESHED_BLOCKS_MAX / 64]; /* bit i: block i is live */
};
/* The table of them, where a closed slab has the place `closed_index`; NULL: nothing was meshed yet. For inspect.c. */
extern HAK_HIDDEN _Atomic(struct meshed *) meshed_table_made;

/* Counts `n` more mappings of merged pages. Returns false if that would exceed their bound. */
bool meshed_add_mappings(unsigned n);
void meshed_drop_mappings(unsigned n);
/* A new number for a file that pages share. */
uint32_t meshed_new_file(void);

/* Reserves a place in the table for a slab that the caller owns. Returns NULL if the table is full. */
struct meshed *meshed_reserve(struct slab *s);
void meshed_cancel(struct slab *s); /* gives the place back: the slab was not closed after all */
/* Closes the slab, of which `blocks` blocks are live: block i if bit i of `live` is set. The links of its free blocks
 * may be gone. The caller then frees what the inbox has (outbox_drain_closed), and calls meshed_closed. */
void meshed_close(struct slab *s, const uint64_t live[MESHED_BLOCKS_MAX / 64], unsigned blocks);
void meshed_closed(struct heap *h, struct slab *s);

/* Holds a closed slab and copies its map: until meshed_release nobody ends the slab, and no other pass holds it.
 * Returns NULL if another pass holds it or it ends. Ends a slab that could not be ended before. */
struct meshed *meshed_hold(struct heap *h, struct slab *s, uint64_t live[MESHED_BLOCKS_MAX / 64]);
void meshed_release(struct heap *h, struct slab *s);
/* Gives back the memory of these pages of the slab, which have no live block. */
void meshed_drop_pages(struct slab *s, struct meshed *m, uint32_t pages);

/* ---- a pass over the slabs (mesh.c) ---- */

/* As `trim` of a kind's row: begins a pass where the part begins with SuperSlab 0, and merges what it can. If `all`,
 * considers every slab, however long that takes; otherwise only slabs that nobody allocated from since the last pass or
 * trim, for about 20 milliseconds. Returns 0. */
size_t mesh_trim(struct heap *h, struct superslab_range in, bool all);
