/* What the record of a tiny slab says: who holds the slab, how many of its blocks are out, and how many are in its
 * list. Counts follow from the countdown and the floor (slab.h); they are exact for the owner, a guess for others. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "blocks/links.h"

/* When fewer blocks are out than a sixteenth of the slab, or than four, most pages have gone already; when fewer are
 * out than a sixty-fourth, a look reads 64 blocks for each that has come back. */
enum { LOOK_SHARE = 64, LOOK_BLOCKS_SHARE = 16, LOOK_BLOCKS = 4 };

/* The owner of a slab on loan to this heap: while it is idle, when anybody may end the loan by compare-and-swap; while
 * the heap frees a block there. */
HAK_INLINE struct heap *slab_on_loan_to(const struct heap *h) { return (struct heap *)((uintptr_t)h | 1); }
HAK_INLINE struct heap *slab_in_use_by(const struct heap *h) { return (struct heap *)((uintptr_t)h | 3); }
HAK_INLINE bool slab_is_on_loan(const struct slab *s) {
    uintptr_t owner = (uintptr_t)load_relaxed(&s->owner);
    return owner > (uintptr_t)OWNER_NONE && owner & OWNER_ON_LOAN;
}
/* The heap that owns the slab or has it on loan; NULL: none. */
HAK_INLINE struct heap *slab_holder(const struct slab *s) {
    return (struct heap *)((uintptr_t)load_acquire(&s->owner) & ~OWNER_ON_LOAN);
}

/* Only the owner changes these. */
HAK_INLINE void slab_enter(struct slab *s, uint8_t place) {
    store_relaxed(&s->tiny.place, load_relaxed(&s->tiny.place) | place);
}
HAK_INLINE void slab_leave(struct slab *s, uint8_t places) {
    store_relaxed(&s->tiny.place, load_relaxed(&s->tiny.place) & (uint8_t)~places);
}
HAK_INLINE bool slab_is(const struct slab *s, enum slab_place place) { return load_relaxed(&s->tiny.place) & place; }

HAK_INLINE uint32_t slab_carved(const struct slab *s) { return load_relaxed(&s->tiny.carved); }
HAK_INLINE uint32_t slab_purged(const struct slab *s) {
    return load_relaxed(&s->tiny.purged_pages);
} /* pages, a bit each */

/* Purged pages whose blocks may be in use again. */
HAK_INLINE uint32_t slab_reusable(const struct slab *s) {
    return unlikely(s->tiny.page_flags & PAGES_LOST) ? 0 : slab_purged(s);
}

/* Blocks that are out. Those in the heap's list count as out, so all carved blocks of a current slab do. */
HAK_INLINE unsigned slab_out(const struct slab *s) {
    return slab_is(s, PLACE_CURRENT) ? slab_carved(s) - s->tiny.purged_blocks : s->tiny.countdown + s->tiny.floor;
}
/* How many of the slab's `blocks` are out when the next look for free pages pays: half as many as at the last one, so
 * that all looks together read two blocks for each that comes back. 0: none before the slab is empty. */
HAK_INLINE unsigned slab_next_look(unsigned blocks, unsigned out) {
    unsigned next = blocks / 2,
             least = (unsigned)max_size(blocks / LOOK_SHARE, min_size(blocks / LOOK_BLOCKS_SHARE, LOOK_BLOCKS));
    while (next >= out && next != 0)
        next /= 2;
    return next >= least ? next : 0;
}
/* Whether a slab that is not current is worth using; if not, its countdown ends when it is. */
HAK_INLINE bool slab_is_usable(const struct slab *s) {
    unsigned blocks = size_classes[slab_class(s)].blocks;
    return s->tiny.floor <= blocks - blocks / 4;
}
/* Blocks on the slab's list. */
HAK_INLINE unsigned slab_listed(const struct slab *s) { return slab_carved(s) - slab_out(s) - s->tiny.purged_blocks; }

/* After a change of carved or purged_pages. */
HAK_INLINE void slab_set_hits(struct slab *s) {
    store_relaxed(&s->hit_blocks, slab_purged(s) == 0 ? slab_carved(s) : 0);
}

/* Owner: the list has as many blocks as it should, and all its links lead where they should. Otherwise the damage was
 * reported and the list is empty now. */
HAK_INLINE bool slab_list_is_sound(struct slab *s) { return links_count(s, &s->tiny.list) == slab_listed(s); }
