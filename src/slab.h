/* Who owns a tiny slab, and what its countdown means.
 *
 *  1. A slab is cut into blocks of one class; `countdown + floor` of them are out: with the program, in a heap's list, in
 *     an outbox or in the slab's inbox. Only the owner touches its list and counts. While the slab is current nothing is
 *     counted: the heap's list is all that is free of it, so when that has run out, all blocks are out.
 *  2. A slab whose blocks are all out is let go: owner NONE; or kept, by a heap that frees what it allocates. floor is then
 *     blocks - reuse_at, so that the countdown ends at the reuse_at-th free, when the slab is worth using again. After that
 *     floor is where the slab is thin: an eighth of its blocks is out, then THIN_BLOCKS of them; last it is 0.
 *  3. Whoever frees a block into a slab without owner adopts it with one compare-and-swap, a thread that only frees when it
 *     has gathered some (remote.h); its further frees there are plain stores. The slab is now on the heap's owned list, and on
 *     its class's list once it is usable.
 *  4. A heap whose thread is alone owns all that it frees into. Beside other threads it owns a bounded number of slabs; beyond
 *     that it lets go of the oldest, on offer to whoever allocates the class.
 *  5. A heap that frees in bulk has further slabs on loan while there is a purger. It frees into them as into its own, but only
 *     between caches_enter and caches_leave, never as a hit. So the purger can take them back from a thread that sleeps
 *     (heap.h); of loans in use it takes the oldest quarter at each look. A loan ends, too, when another thread frees into the
 *     slab, when others look for slabs of the class, and when a refill of the heap takes the slab.
 *  6. When the last block is freed the slot goes back to the pool at once; a current slab's when a look finds it so.
 *
 * Links: a free block's first word is the address of the next free block of the same slab, xor the region's key; the last
 * one's is the slab's terminator, an odd address in the slab. So all links of a slab have the same upper half, its link_mark,
 * and a block whose first word has it is probably free already: live blocks have their first word cleared when they are handed
 * out. Only probably, for a program may copy a link into a block of its own without knowing, as padding that was left in a
 * register or on the stack; so whether it is in a list decides (block_is_listed). */
/* SPDX-License-Identifier: MIT */
#ifndef HAK_SLAB_H
#define HAK_SLAB_H

#include "heap.h"

/* A slab of whose blocks at most such a share is out is thin; its blocks may lie together. With so few out, wherever they
 * lie, most of its pages are free. */
enum { THIN_SHARE = 8, THIN_BLOCKS = 6 };

HAK_INLINE uintptr_t slab_terminator(const struct slab *s) { return (uintptr_t)slab_address(s) | 1; }
HAK_INLINE bool is_terminator(uintptr_t block) { return block & 1; }
/* What a list yields that is neither a block nor the end of the list, or is that end. The low bits of the key are ones: so
 * zeroes, pointers and seven in eight other values that a program writes into a free block come out as such. */
HAK_INLINE bool is_no_block(uintptr_t block) { return block & (BLOCK_ALIGN - 1); }
HAK_INLINE uintptr_t *block_word(uintptr_t block) { return (uintptr_t *)block; /* NOLINT: blocks are addresses */ }
HAK_INLINE uintptr_t block_next(uintptr_t block) { return *block_word(block) ^ hak_region.key; }
HAK_INLINE void block_link(uintptr_t block, uintptr_t next) { *block_word(block) = next ^ hak_region.key; }
HAK_INLINE bool same_slot(uintptr_t a, uintptr_t b) { return (a ^ b) < SLOT_BYTES; }
/* Could be a block of the slab at that address: no terminator, nor what is_no_block. */
HAK_INLINE bool is_in_slab(uintptr_t block, uintptr_t slab) {
    return ((block ^ slab) & ~(SLOT_BYTES - BLOCK_ALIGN)) == 0;
}
HAK_INLINE uint32_t upper_half(uintptr_t link) { return (uint32_t)(link >> 32); }
/* A block of the slab. */
HAK_INLINE bool block_looks_free(const struct slab *s, uintptr_t block) {
    return upper_half(*block_word(block)) == s->link_mark;
}

HAK_INLINE struct heap *slab_on_loan_to(struct heap *h) { return (struct heap *)((uintptr_t)h | OWNER_ON_LOAN); }
/* Who owns it or has it on loan; NULL: nobody. */
HAK_INLINE struct heap *slab_holder(const struct slab *s) {
    return (struct heap *)((uintptr_t)load_acquire(&s->owner) & ~OWNER_ON_LOAN);
}

/* Blocks out. Those in the list of the heap count as out, too: of a current slab that is all there are. */
HAK_INLINE unsigned slab_used(const struct slab *s) {
    return s->place & PLACE_CURRENT ? s->carved - s->purged_blocks : s->countdown + s->floor;
}
/* Of a slab that is not current: it is worth using. Else the countdown ends when it is. */
HAK_INLINE bool slab_is_usable(const struct slab *s) {
    return s->floor <= size_classes[slab_class(s)].blocks / THIN_SHARE;
}
/* Blocks on the slab's list. */
HAK_INLINE unsigned slab_listed(const struct slab *s) { return s->carved - slab_used(s) - s->purged_blocks; }

/* After a change of carved or purged_pages. */
HAK_INLINE void slab_set_hits(struct slab *s) {
    __atomic_store_n(&s->hit_blocks, s->purged_pages == 0 ? s->carved : 0, __ATOMIC_RELAXED);
}

/* Owner: all links of the slab's list lead where they should. If not it has failed, and the list is empty now. */
bool slab_list_is_sound(struct slab *s);

/* Frees a block into a slab the heap owns. True: that emptied it, and it is gone. */
bool slab_free(struct heap *h, struct slab *s, uintptr_t block);
/* The countdown came to zero. True: the slab was empty and is gone. */
bool slab_countdown_ended(struct heap *h, struct slab *s);

/* The slab's free blocks become the heap's list of its class, which is empty: what is freed goes there from now on, so
 * that it is handed out again while it is in the cache. */
void slab_make_current(struct heap *h, struct slab *s);
/* Of a current slab: looks whether it is empty after so many frees. */
HAK_INLINE void slab_look_after(struct heap *h, struct slab *s, unsigned frees) {
    s->look_after = s->countdown = (uint32_t)max_size(frees, 1);
    h->sample.tiny[slab_class(s)].deferred = 0;
}
/* The heap's list of the class becomes the list of the current slab, which is on no list afterwards. Returns the slab;
 * NULL if there was none or it was empty and is gone. */
struct slab *slab_leave_current(struct heap *h, unsigned class_id);

/* Takes over a slab without owner. False if somebody else was faster. */
bool slab_adopt(struct heap *h, struct slab *s);
/* All blocks of the slab are out. It is let go, so that whoever frees one may have it; or kept, if it is this heap that
 * frees what it allocates. */
void slab_leave_full(struct heap *h, struct slab *s);
/* All blocks of the slab are back. It is on any list or none. */
void slab_release(struct heap *h, struct slab *s);
/* Is a slab that is given back to be looked at block by block? Some are. */
bool slab_verify_due(struct heap *h);
/* May the heap own one more without letting go of another? */
bool slab_has_place(struct heap *h);
/* After a slab_adopt by a free: puts it on the owned list, and lets go of the oldest if there are too many. */
void slab_keep(struct heap *h, struct slab *s);
/* The heap's list was filled with `blocks`; `partial`: from a slab that had been in use before. */
void slab_refilled(struct heap *h, unsigned blocks, bool partial);
/* Takes a slab off the owned list and its class's list. */
void slab_unlist(struct heap *h, struct slab *s);
/* Gives up ownership. If it has blocks that could be used at once it is put on offer. The slab may be gone afterwards. */
void slab_let_go(struct heap *h, struct slab *s);

HAK_INLINE struct slab *slab_listed_first(const struct heap *h, unsigned class_id) {
    return h->owned.class_first[class_id] != 0 ? slab_of_slot(h->owned.class_first[class_id] - 1) : NULL;
}

/* ---- slabs on loan: between caches_enter and caches_leave, but for the last four ---- */

/* Does the thread free in bulk, and is there a purger to take back what it has on loan? */
bool slab_may_borrow(const struct heap *h);
/* Borrows a slab without owner. False if it may not, or somebody else was faster. */
bool slab_borrow(struct heap *h, struct slab *s);
/* The countdown of a slab on loan came to zero, or others free into it: then it is let go. */
void slab_look_at_loan(struct heap *h, struct slab *s);
/* The heap owns what it had on loan. Returns the slab, which is on no list. */
struct slab *slab_end_loan(struct heap *h, struct slab *s);
/* Lets go of the oldest `most` slabs that `from` has on loan, the calling heap's or, for the purger, that of a thread that it
 * has frozen. */
void slab_recall(struct heap *h, struct heap *from, uint32_t most);
/* The same of all the heap's own, unless the purger is at it. */
void slab_return_loans(struct heap *h);
/* Ends the loan of a usable slab of the class, if there is one. */
struct slab *slab_borrowed_first(struct heap *h, unsigned class_id);
/* A heap has started a slab, or taken blocks of one that was not its own. */
void slab_wanted(unsigned class_id);
/* Frees a block, if the heap has its slab on loan and the purger is not taking that back. */
HAK_INLINE bool slab_free_on_loan(struct heap *h, struct slab *s, uintptr_t block) {
    if (load_relaxed(&s->owner) != slab_on_loan_to(h))
        return false;
    bool mine = PROVEN(loan_enter, caches_enter(h)) && load_relaxed(&s->owner) == slab_on_loan_to(h);
    if (likely(mine)) {
        count(&h->pool.counters, COUNT_free_on_loan);
        block_link(block, s->list);
        s->list = block;
        if (unlikely(--s->countdown == 0 || load_relaxed(&s->inbox) != 0))
            slab_look_at_loan(h, s);
    }
    caches_leave(h);
    return mine;
}

#endif
