/* Gives whole free pages inside partly used tiny slabs back to the system.
 *
 *  1. The blocks that touch such a page leave the slab's list, and purged_pages says that they are in none. When the class has
 *     no others left they are linked again (tiny.c, take_purged), as they were when they were carved.
 *  2. The slab is in our hands meanwhile. It is on no list of blocks that are handed out: not current.
 *  3. Which blocks are free only the list tells; that a block looks free says where looking for them pays. */
/* SPDX-License-Identifier: MIT */
#ifndef HAK_PAGES_H
#define HAK_PAGES_H

#include "slab_record.h"

/* Can so much be given back that it is worth a look? What was listed at the last look was looked through then, unless `all`
 * is to be looked through. Of a slab that is not ours this is a guess. */
bool pages_trim_pays(const struct slab *s, bool all);
/* Purges the slab's free pages. Returns how many. */
size_t pages_trim(struct slab *s, bool all);
/* The same of a slab few of whose blocks are out: a first look costs little if each page has one. */
size_t pages_trim_thin(struct slab *s);

/* Sets bit i of `live` for each block i that is not in the slab's list, and not in a purged page. Of a slab that nobody uses
 * meanwhile. Returns how many; `live` has a bit for each block, and is not cleared first. 0: also when the list is damaged. */
unsigned pages_live(struct slab *s, uint64_t *live);
/* Calls for each block of the slab that is not in its list and not in a purged page, until the call returns false. Of a slab that
 * nobody uses meanwhile. */
void pages_visit_live(struct slab *s, bool (*call)(void *block, size_t bytes, void *argument), void *argument);

#endif
