/* A meshed slab: a tiny slab that was closed because few of its blocks were left, and shares pages with others (mesh.h).
 *
 *  1. It is a kind of its own (kinds.h). Nothing is allocated from it, and it has no list: a map has a bit for each live block.
 *     A free clears the bit and touches no page, as a write would make the page private.
 *  2. The slab has no owner, but its record's `owner` is heap_of_meshed, which is no thread's: so no free is a hit. Threads that
 *     took it for a tiny slab push their blocks into its inbox. Whoever closes the slab writes `owner`, then reads the inbox; a
 *     sender writes the inbox, then reads `owner` (outbox.c). One sees the other.
 *  3. Whoever clears the last bit puts fresh memory in the slot's place and gives the slot to the pool.
 *
 * Any thread calls anything; nothing waits. */
/* SPDX-License-Identifier: MIT */
#ifndef HAK_MESHED_H
#define HAK_MESHED_H

#include "heap.h"

enum {
    MESHED_BLOCKS_MAX = 4096, /* of 16 bytes: those of 8 bytes are not meshed */
    MESH_PAGE_BYTES = 4 * KIB,
    MESH_PAGES = SLOT_BYTES / MESH_PAGE_BYTES,
};

extern HAK_HIDDEN struct heap heap_of_meshed;

/* Of a pass that closes the slab or holds it are `file` and `unused`. */
struct meshed {
    _Atomic uint32_t blocks;                      /* live ones, and flags; of the free bits of `map` one runs behind */
    uint32_t file[MESH_PAGES];                    /* number of the file that page i is mapped from; 0: none */
    uint32_t unused;                              /* bit i: page i has no live block, and its memory went back */
    _Atomic uint64_t map[MESHED_BLOCKS_MAX / 64]; /* bit i: block i is live */
};

/* Counts so many more mappings of merged pages. False: there may be no more. */
bool meshed_add_mappings(unsigned n);
void meshed_drop_mappings(unsigned n);
/* A number for a file that pages share. */
uint32_t meshed_new_file(void);

/* A place in the table for a slab that the caller owns. NULL: there is none. */
struct meshed *meshed_reserve(struct slab *s);
void meshed_cancel(struct slab *s); /* it was not closed after all */
/* Closes the slab: `blocks` of it are live, block i if bit i of `live` is set. The links of its free blocks
 * may be gone. The caller
 * looks at the inbox afterwards, and then calls meshed_closed (outbox_after_close). */
void meshed_close(struct slab *s, const uint64_t live[MESHED_BLOCKS_MAX / 64], unsigned blocks);
void meshed_closed(struct heap *h, struct slab *s);

/* Of a closed slab: until meshed_release nobody ends it, and no other pass holds it. Copies the map. NULL: another pass does, or the
 * slab ends. A slab that could not be ended before ends. */
struct meshed *meshed_hold(struct heap *h, struct slab *s, uint64_t live[MESHED_BLOCKS_MAX / 64]);
void meshed_release(struct heap *h, struct slab *s);
/* These pages of the slab have no live block: their memory goes back. */
void meshed_drop_pages(struct slab *s, struct meshed *m, uint32_t pages);

/* Frees a chain that came out of the slab's inbox. */
void meshed_free_chain(struct heap *h, struct slab *s, uintptr_t block, unsigned blocks);

#endif
