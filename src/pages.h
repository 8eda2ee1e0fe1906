/* Gives whole free pages inside partly used tiny slabs back to the system.
 *
 *  1. The blocks that touch such a page leave the slab's list, and purged_pages records that. When the class runs out of other
 *     blocks, tiny.c links them again (take_purged), as when they were carved.
 *  2. Meanwhile the slab must be ours and not current, so that nobody hands out its blocks.
 *  3. Only the list says which blocks are free. That a block looks free merely shows where a search pays. */
/* SPDX-License-Identifier: MIT */
#ifndef HAK_PAGES_H
#define HAK_PAGES_H

#include "slab_record.h"

/* Can enough be given back to be worth a search? Blocks that were listed at the last search are left out, unless `all`. For a slab
 * that is not ours the answer is a guess. */
bool pages_trim_pays(const struct slab *s, bool all);
/* Purges the slab's free pages and returns how many there were. */
size_t pages_trim(struct slab *s, bool all);
/* The same for a slab with few blocks out, if half of its pages look free, or three quarters with more than THIN_BLOCKS out. */
size_t pages_trim_thin(struct slab *s);

/* Sets bit i of `live` for each block i that is neither in the slab's list nor in a purged page, and returns how many there are: 0
 * also if the list is damaged. Nobody else may use the slab meanwhile. `live` has a bit for each block and is not cleared first. */
unsigned pages_live(struct slab *s, uint64_t *live);
/* Calls `call` for each block that is neither in the slab's list nor in a purged page, until it returns false. Nobody else may use
 * the slab meanwhile. */
void pages_visit_live(struct slab *s, bool (*call)(void *block, size_t bytes, void *argument), void *argument);

#endif
