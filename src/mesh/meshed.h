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

/* Counts one more mapping of merged pages. False: there may be no more. */
bool meshed_add_mapping(void);
void meshed_drop_mappings(unsigned n);

/* A place in the table for a slab that the caller owns. False: there is none. */
bool meshed_reserve(struct slab *s);
void meshed_cancel(struct slab *s); /* it was not closed after all */
/* Closes the slab: `blocks` of it are live, block i if bit i of `live` is set. The links of its free blocks
 * may be gone; `mappings` are counted already. The caller
 * looks at the inbox afterwards, and then calls meshed_closed (outbox_after_close). */
void meshed_close(struct slab *s, const uint64_t live[MESHED_BLOCKS_MAX / 64], unsigned blocks, unsigned mappings);
void meshed_closed(struct heap *h, struct slab *s);

/* Frees a chain that came out of the slab's inbox. */
void meshed_free_chain(struct heap *h, struct slab *s, uintptr_t block, unsigned blocks);
/* A slab without live blocks whose memory could not be given back: tries again. */
void meshed_retry(struct heap *h, struct slab *s);

#endif
