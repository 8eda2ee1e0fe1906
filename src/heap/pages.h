/* Whole free pages inside partly used slabs go back to the system.
 *
 *  1. Whoever may have left such pages notes that the slab changed: a tiny slab's owner at the countdown's end
 *     (slab_next_look) or when it lets go of the slab, who sends blocks to a slab without owner, who gives blocks back
 *     to a mid slab. Only noted slabs are looked at. A note is a bit (superslab.h), so that a slab that becomes empty
 *     before the look costs nothing.
 *  2. The purger looks at the noted slabs at each tick of an idle program, once a second in a busy one. What was not
 *     allocated from since its last look gives all its free pages back.
 *  3. Where there is no purger, the freeing thread looks: at up to two noted slabs each time that half of what was out
 *     of one has come back (slab_next_look), while more are noted than may be (retain_may_note). In turn, so that those
 *     that are still being freed are looked at last. A slab gives a third of its resident pages at least, or none;
 *     a mid slab two pages with each call, too.
 *  4. A look reads the first word of blocks, in each page up to the first block that is out.
 *
 * In tiny slabs:
 *  5. The blocks that touch such a page leave the slab's list, and purged_pages records that. When the class runs out
 *     of other blocks, tiny.c links them again (take_purged), as when they were carved.
 *  6. Meanwhile the slab must be ours and not current, so that nobody hands out its blocks.
 *  7. Only the list says which blocks are free. That a block looks free merely shows where a search pays. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "blocks/kinds.h"
#include "heap/heap.h"
#include "heap/slab_record.h"

/* A free may have left free pages in the slab. `look`: many of its blocks have come back since the last call with it,
 * so that the thread may look at slabs, too. */
void pages_changed(struct heap *h, struct slab *s, bool look);
/* Looks, without a note before. Takes some 1,500 bytes of stack. */
void pages_look_in_turn(struct heap *h);
/* The looks as the heap grows, with a purger or without: what was not allocated from between two of them goes. */
void pages_look_as_grown(struct heap *h);
/* The purger's looks. */
void pages_look(struct heap *h);
/* Gives back what kinds hold besides slabs, and the free pages of all slabs in a part of the SuperSlabs: all, or those
 * of slabs that were not allocated from since the last such pass or look. Returns how many pages. */
size_t pages_trim_all(struct heap *h, struct superslab_range in, bool all);

/* ---- tiny slabs ---- */

/* Whether the slab may have pages to give back: free, uncarved or LAZY ones. For a slab that is not ours the answer is
 * a guess. */
bool pages_trim_pays(const struct slab *s, enum trim how);
/* Purges the slab's free pages and returns how many there were. */
size_t pages_trim(struct slab *s, enum trim how);

/* The slab ends or is closed: its purged pages are no longer counted. */
void pages_forget(const struct slab *s);
/* How many blocks of a slab with PAGES_LOST count as out though nobody has them. `s` may be a copy of a record that was
 * being changed. */
unsigned pages_lost_blocks(const struct slab *s, size_t block_bytes);
/* Sets bit i of `live` for each block i that is neither in the slab's list nor in a purged page, and returns how many
 * there are: 0 also if the list is damaged. Nobody else may use the slab meanwhile. `live` has a bit for each block and
 * is not cleared first. */
unsigned pages_live(struct slab *s, uint64_t *live);
/* Calls `call` for each block that is neither in the slab's list nor in a purged page, until it returns false. Nobody
 * else may use the slab meanwhile. */
void pages_visit_live(struct slab *s, bool (*call)(void *block, size_t bytes, void *argument), void *argument);
