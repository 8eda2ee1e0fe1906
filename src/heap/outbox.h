/* Remote frees: blocks freed into a slab that another heap owns.
 *
 *  1. They gather in the heap's outbox, which has an entry for each slab, and travel as a batch: one compare-and-swap
 *     puts the whole chain of an entry into the slab's inbox. An entry is sent when it is long enough, when another
 *     slab needs its place, at the thread's end, every DRAIN_INTERVAL frees, and by the purger when the thread sleeps.
 *  2. The owner empties the inbox when a refill finds the slab current or fresh, and when it lets go of the slab. A
 *     sender that finds the slab without owner adopts it and empties the inbox, if its heap need not let go of another
 *     slab for that; or it takes the slab on loan, if it frees in bulk (slab.h). Otherwise the blocks wait in the inbox
 *     until the slab is worth using, when it goes on offer, or until all its blocks are back. A thread that allocates
 *     too, or is alone, adopts at its first free there, without a detour through the outbox.
 *  3. Well-filled inboxes are on offer to whoever allocates the class, so a sleeping owner hoards nothing. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "base/options.h"
#include "heap/slab.h"

/* Adopts the slab if it has no owner, for a caller that holds no block of it. So the slot may have another slab by now,
 * perhaps an arena's: then the heap lets go of that again. True: the slab stays with the heap. */
bool outbox_adopt_unheld(struct heap *h, struct slab *s);
/* Sends one block straight to its slab's inbox. The heap may belong to another arena than the slab. */
void outbox_bypass(struct heap *h, struct slab *s, uintptr_t block);
/* Frees a block of another heap's slab without gathering: adopts the slab if nobody owns it, else sends the block to
 * its inbox. True: that emptied the slab, and it is gone. */
bool outbox_free_at_once(struct heap *h, struct slab *s, uintptr_t block);
/* Sends everything. */
void outbox_flush(struct heap *h);
/* Sends what another thread's heap has gathered, between caches_freeze and caches_thaw. */
void outbox_send(struct heap *h, struct heap *from);
/* The slab has been closed: frees what is in the inbox. */
void outbox_drain_closed(struct heap *h, struct slab *s);

/* ---- the common case: the slab is another heap's, and the outbox gathers for it already ---- */

HAK_INLINE bool outbox_drain_is_due(const struct heap *h) {
    return heap_remote_frees(h) - h->drained_at >= option(OPT_DRAIN_INTERVAL);
}
HAK_INLINE void outbox_add(const struct slab *s, struct outbox_entry *e, uintptr_t block) {
    block_link(block, (uintptr_t)slab_address(s) + e->first);
    e->first = (uint16_t)(block & (SLOT_BYTES - 1));
    atomic_signal_fence(memory_order_seq_cst); /* a child forked here loses a block; a count too high would be worse */
    e->blocks++;
}
/* Between caches_enter, which returned `mine`, and caches_leave, which the function calls. */
void outbox_gather_else(struct heap *h, struct slab *s, uintptr_t block, bool mine);
HAK_INLINE void outbox_gather(struct heap *h, struct slab *s, uintptr_t block) {
    struct outbox_entry *e = outbox_entry_of(h, s);
    count(&h->client.counters, COUNT_free_remote);
    bool mine = PROVEN(gather_enter, caches_enter(h));
    if (unlikely(!mine || !outbox_gathers(e, s) || e->blocks + 1 >= e->full_blocks || outbox_drain_is_due(h)))
        return outbox_gather_else(h, s, block, mine);
    outbox_add(s, e, block);
    caches_leave(h);
}
void outbox_free_unowned(struct heap *h, struct slab *s, uintptr_t block);
/* Frees a block whose slab this heap does not own; perhaps nobody does. */
HAK_INLINE void outbox_free(struct heap *h, struct slab *s, uintptr_t block) {
    if (load_relaxed(&s->owner) == OWNER_NONE)
        outbox_free_unowned(h, s, block);
    else if (!slab_free_on_loan(h, s, block))
        outbox_gather(h, s, block);
}
