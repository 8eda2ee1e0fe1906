/* Some freed large and huge blocks are set aside: their pages go back and become inaccessible, so that reading or writing a block
 * after it was freed ends the program at the access, as with libc's malloc, which unmaps such blocks. Also nothing that they held
 * is handed out again.
 *
 *  1. The first ASIDE_PLACES blocks that the process frees are, and then one in ASIDE_EVERY of a heap's. Two calls and the faults of
 *     the block's next use are what that costs.
 *  2. A block waits in its place until another takes it, or until memory is short or is given back (malloc_trim). Then it is
 *     accessible again, zero, and goes to the pool.
 *
 * Not under a limit of memory or addresses, nor with PURGE=never. Any thread calls these; a block is whoever's exchanges it out of
 * its place. */
/* SPDX-License-Identifier: MIT */
#ifndef HAK_ASIDE_H
#define HAK_ASIDE_H

#include "heap.h"

enum { ASIDE_PLACES = 4, ASIDE_EVERY = 256, ASIDE_BYTES_MAX = 8 * MIB };

extern HAK_HIDDEN _Atomic uint32_t hak_aside_blocks; /* set aside so far, up to ASIDE_PLACES: a hint */

HAK_INLINE bool aside_due(struct heap *h) {
    return unlikely(load_relaxed(&hak_aside_blocks) < ASIDE_PLACES) || unlikely(++h->large_frees == 0);
}
/* For whoever has freed the block, whose state is no longer live. False: it is not set aside. */
HAK_COLD bool aside_put(struct heap *h, struct slab *s);
/* Gives back all that is set aside. */
void aside_release(struct heap *h);

#endif
