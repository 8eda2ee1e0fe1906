/* Who owns a tiny slab, and what its countdown means. Only the owner touches its list and counts.
 *
 *  1. A block is out if it is not in the slab's own list: with the program, in a heap's list, in an outbox or in the
 *     inbox. If a slab is not current, exactly `countdown + floor` of its blocks are out. A current slab's free blocks
 *     are in the heap's list; its countdown only counts the frees until the next check.
 *  2. A slab whose blocks are all out is let go (owner NONE), or kept by a heap that frees what it allocates. When the
 *     countdown ends, floor is: blocks - slab_reuse_frees, and the slab is usable again; or slab_next_look, and it may
 *     have got free pages (pages.h); or 0, and it is empty.
 *  3. Whoever frees a block into a slab without owner adopts it with one compare-and-swap, a thread that only frees
 *     when it has gathered some (outbox.h); its further frees there are plain stores. The slab is now on the heap's
 *     owned list, and on its class's list once it is usable.
 *  4. A heap whose thread is alone owns all slabs that it frees into. Beside other threads it owns a bounded number;
 *     beyond that it lets go of the oldest, on offer to whoever allocates the class.
 *  5. A heap that frees in bulk has further slabs on loan while there is a purger. Each of its frees there takes the
 *     slab by one compare-and-swap and puts it back with a plain store. So anybody else may take the slab in between,
 *     as if it had no owner: if it is worth using, it is on offer to whoever allocates the class. At each look the
 *     purger lets go of all slabs that a sleeping thread has on loan, and of a quarter of those whose threads use them.
 *     What others free into the slab goes into its inbox; the borrower's next free there finds it and ends the loan.
 *  6. When the last block is freed the slot goes back to the pool at once; a current slab's slot when a check finds the
 *     slab empty. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "heap/heap.h"
#include "heap/slab_record.h"
#include "process/tunables.h"

/* ---- the states of a tiny slab, and the ways between them ----
 *
 *    pool
 *      │ 1      ┌─────────────────── the heap's own ───────────────────┐
 *      └────────┼──▶ FRESH ────── 2 ────▶ CURRENT ◀──── 2 ──── USABLE  │
 *               │                         │     │               ▲  ▲   │
 *               │    DENSE ◀── 4          │     └────── 3 ──────┘  │   │
 *               │                         └─── 3 ──▶ FULL ─── 5 ───┘   │
 *               └────────────────┬────────────────────────▲────────────┘
 *                              6 │                        │ 7
 *                                ▼                        │
 *            CLOSED ◀── 10 ── UNOWNED ────────────────────┤
 *                              8 │ ▲ 9                    │
 *                                ▼ │                      │
 *                              ON LOAN ──────── 9 ────────┘
 *
 *   1 tiny_start_slab. A FRESH slab may be CURRENT, too; given up, it is FRESH alone
 *   2 slab_make_current, by a refill; a FULL slab is taken, too, when there is no memory
 *   3 slab_give_up_current: USABLE if not all blocks are cut; FULL if all are out and the heap frees what it allocates;
 *     else let go
 *   4 slab_make_dense: a new slab, a USABLE one, or one that was UNOWNED
 *   5 slab_countdown_ended: enough blocks have come back
 *   6 slab_let_go: all blocks are out, the heap owns too many, its thread ends, or a DENSE slab has no more to give
 *   7 slab_adopt: by a refill, to CURRENT; by a free, to FULL or USABLE (slab_keep); for a look, after which
 *     slab_put_back makes it UNOWNED again
 *   8 slab_adopt and slab_lend, by a free of a heap that frees in bulk
 *   9 the loan ends: slab_end_loan by a refill, to CURRENT; slab_check_loan by a free, to UNOWNED, or to FULL or USABLE
 *     if the thread is alone by then; slab_recall by the purger, to UNOWNED
 *  10 mesh/ closes it (meshed_close), as it shares its pages with other slabs; no way leads back
 *
 *   Once all blocks are back, slab_give_back gives the slot to the pool, from every state of the heap's own; a free
 *   adopts an UNOWNED slab for that. The slabs of a heap that rests stay as they are, without a thread.
 *
 *   state     owner              place                          what it is
 *   FRESH     the heap           PLACE_FRESH                    the heap cuts new blocks from it; one slab per class
 *   CURRENT   the heap           PLACE_CURRENT                  its free blocks are the heap's list; one slab per class
 *   FULL      the heap           PLACE_OWNED                    not worth using before its countdown ends
 *   USABLE    the heap           PLACE_OWNED | PLACE_USABLE     worth using: on the list of its class
 *   DENSE     the heap           PLACE_OWNED | PLACE_DENSE      dense allocations come from it (move/dense.c)
 *   UNOWNED   OWNER_NONE         0                              whoever adopts it by compare-and-swap owns it
 *   ON LOAN   the heap | 1       0                              its heap frees there without owning it; anybody may end
 *             the heap | 3       0                              that, except while the heap is at it
 *   CLOSED    heap_of_closed     0, and a kind of its own       nobody allocates from it; its row frees what comes back
 *
 * ON OFFER is no state: it is a hint (superslab_offer) that an UNOWNED slab, or one ON LOAN, is worth using. */

/* Frees a block into a slab the heap owns. True: that emptied it, and it is gone. */
bool slab_free(struct heap *h, struct slab *s, uintptr_t block);
/* Frees a chain that came out of an inbox or an outbox. True: that emptied the slab, and it is gone. */
bool slab_free_chain(struct heap *h, struct slab *s, uintptr_t first, uint64_t blocks);
/* Frees the blocks in the slab's inbox. True: that emptied the slab, and it is gone. */
bool slab_drain_inbox(struct heap *h, struct slab *s);
/* Frees after which a full slab of the class is worth using again. */
HAK_INLINE unsigned slab_reuse_frees(unsigned c) {
    size_t frees = tuned_class(TUNE_reuse_frees, c); /* once: it may become 0 meanwhile */
    return frees == 0 ? size_classes[c].reuse_at : (unsigned)min_size(frees, size_classes[c].blocks / 4u - 1);
}
/* The countdown came to zero. True: the slab was empty and is gone. */
bool slab_countdown_ended(struct heap *h, struct slab *s);

/* The slab serves its class instead of the one that did, which has nothing to give. Its free blocks become the heap's
 * list of the class, which is empty. What is freed goes there from now on, so that it is handed out again while it is
 * in the cache. */
void slab_make_current(struct heap *h, struct slab *s);
/* Brings the slab's blocks into the cache in address order, if enough of them are listed. A list may jump about in the
 * slab, and whoever follows it waits for each block to learn where the next is. */
void slab_prefetch(const struct slab *s, unsigned listed);
/* Sets after how many frees the current slab is checked for being empty. */
HAK_INLINE void slab_check_after(struct heap *h, struct slab *s, unsigned frees) {
    s->tiny.check_after = s->tiny.countdown = (uint32_t)max_size(frees, 1);
    store_relaxed(&h->deferred[slab_class(s)], 0);
}
/* Before the countdown of a current slab is set anew: notes the frees since, which put blocks on the heap's list. */
HAK_INLINE void slab_count_frees(struct heap *h, unsigned c, const struct slab *s) {
    ledger_add(&h->ledger[c].blocks, s->tiny.check_after - s->tiny.countdown - load_relaxed(&h->deferred[c]));
}
/* The heap's list of the class becomes the list of the current slab, which is on no list afterwards. Returns the slab;
 * NULL if there was none or it was empty and is gone. */
struct slab *slab_leave_current(struct heap *h, unsigned class_id);
/* Takes the current slab of the class, which has nothing to give, out of service. If all its blocks are out the heap
 * lets go of it, so that whoever frees one may have it, or keeps it if this heap itself frees what it allocates. */
void slab_give_up_current(struct heap *h, unsigned class_id);

/* How many bytes of the heap's current and fresh slabs are cut into blocks. */
size_t slab_bytes_at_hand(const struct heap *h);

/* Takes over a slab without owner. False if somebody else was faster. */
bool slab_adopt(struct heap *h, struct slab *s);
/* Whether the heap may own one more slab without letting go of another. */
bool slab_has_place(struct heap *h);
/* After a slab_adopt by a free: puts it on the owned list, and lets go of the oldest if there are too many. */
void slab_keep(struct heap *h, struct slab *s);
/* The heap's list was filled with `blocks`; `partial`: from a slab that had been in use before. */
void slab_refilled(struct heap *h, unsigned blocks, bool partial);
/* From now on dense allocations come from the slab: it is the heap's, and on no class's list. */
void slab_make_dense(struct heap *h, struct slab *s);
/* Lets go of a slab of dense allocations that has nothing more to give. */
void slab_give_up_dense(struct heap *h, struct slab *s);
/* Takes a slab off the owned list and its class's list. */
void slab_unlist(struct heap *h, struct slab *s);
/* Gives up ownership. If it has blocks that could be used at once it is put on offer. The slab may be gone
 * afterwards. */
void slab_let_go(struct heap *h, struct slab *s);
/* Lets go of a slab that was adopted only for a look: it is on no list and has not changed. */
void slab_put_back(struct heap *h, struct slab *s);

/* Whether the heap has a usable slab of the class. */
HAK_INLINE bool slab_has_usable(const struct heap *h, unsigned class_id) {
    return load_relaxed(&h->owned.class_first[class_id]) != 0;
}
/* Takes the heap's first usable slab of the class off its lists. NULL: there is none. */
struct slab *slab_take_usable(struct heap *h, unsigned class_id);

/* ---- slabs on loan ---- */

/* Whether the thread frees in bulk, and there is a purger to take back what it has on loan. */
bool slab_may_borrow(const struct heap *h);
/* Turns a slab of the heap's own that is on no list into one that the heap has on loan. It may be gone at any
 * moment. */
void slab_lend(struct heap *h, struct slab *s);
/* Ends the loan, whichever heap has it: the slab is `h`'s now, on no list. False: it is not on loan, or in use at the
 * moment. */
bool slab_end_loan(struct heap *h, struct slab *s);
/* After a free into a slab that the heap has on loan and is using: the countdown came to zero, or others free into the
 * slab, too. */
void slab_check_loan(struct heap *h, struct slab *s);
/* Lets go of what `from`, this heap or another, has on loan in slots whose number modulo `parts` is `part`. */
void slab_recall(struct heap *h, struct heap *from, unsigned part, unsigned parts);
/* Frees a block if the heap still has its slab on loan. */
HAK_INLINE bool slab_free_on_loan(struct heap *h, struct slab *s, uintptr_t block) {
    struct heap *idle = slab_on_loan_to(h);
    if (load_relaxed(&s->owner) != idle || !PROVEN(loan_use, rmw_cas(&s->owner, &idle, slab_in_use_by(h))))
        return false;
    count(&h->client.counters, COUNT_free_on_loan);
    block_link(block, load_relaxed(&s->tiny.list));
    store_relaxed(&s->tiny.list, block);
    if (unlikely(--s->tiny.countdown == 0 || load_relaxed(&s->inbox) != 0))
        slab_check_loan(h, s);
    else
        store_release(&s->owner, slab_on_loan_to(h)); /* pairs with slab_end_loan */
    return true;
}
