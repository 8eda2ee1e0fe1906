/* See outbox.h. */
/* SPDX-License-Identifier: MIT */
#include "heap/outbox.h"
#include "base/log.h"
#include "base/options.h"
#include "blocks/inbox.h"
#include "blocks/kinds.h"
#include "process/presence.h"
#include "process/tunables.h"
#include "space/superslab.h"

#define LOAN_FROM_BLOCKS 8 /* after this many since the last drain, more blocks of the slab will follow */

/* Adopts the slab if it has no owner. The slab may be gone afterwards, unless the caller has blocks of it. */
static bool outbox_adopt(struct heap *h, struct slab *s) {
    if (load_acquire(&s->owner) != OWNER_NONE || !slab_adopt(h, s))
        return false;
    count(&h->client.counters, COUNT_slabs_adopted_by_free);
    slab_keep(h, s);
    if (load_relaxed(&s->inbox) != 0)
        slab_drain_inbox(h, s);
    return true;
}

bool outbox_adopt_unheld(struct heap *h, struct slab *s) {
    bool adopted = outbox_adopt(h, s) && load_relaxed(&s->owner) == h;
    if (adopted && unlikely(!slab_is_for(&h->client, s))) {
        slab_let_go(h, s);
        return false;
    }
    return adopted;
}

/* Frees the blocks, which count as out, into a slab without owner. The heap has the slab on loan from then on. */
static bool free_and_borrow(struct heap *h, struct slab *s, uintptr_t first, uint64_t blocks) {
    if (load_acquire(&s->owner) != OWNER_NONE || !slab_may_borrow(h) || !slab_adopt(h, s))
        return false;
    store_relaxed(&s->tiny.place, 0);
    count(&h->client.counters, COUNT_slabs_lent);
    if (load_relaxed(&s->inbox) != 0)
        slab_drain_inbox(h, s);
    if (!slab_free_chain(h, s, first, blocks))
        slab_lend(h, s);
    return true;
}

/* A chain was pushed into the inbox of a slab that has no owner, where `before` blocks waited. The blocks stay there,
 * because adopting the slab and letting go of it again costs more than a few blocks are worth. Once all of the slab's
 * blocks are back, the slab goes back to the pool; once it is worth using, it goes on offer. Whoever has adopted the
 * slab since will see the inbox. The slot may hold another kind of slab by now, whose record keeps the old `due` and
 * `out`: then the offer is a wrong hint, and nobody adopts what has an owner or is the pool's. */
static void check_inbox(struct heap *h, struct slab *s, unsigned c, uint64_t before, uint64_t waiting) {
    uint32_t due = load_relaxed(&s->tiny.due);
    if (waiting >= load_relaxed(&s->tiny.out)) {
        if (!slab_adopt(h, s))
            return;
        count(&h->client.counters, COUNT_slabs_adopted_by_free);
        store_relaxed(&s->tiny.place, 0);
        if (!slab_drain_inbox(h, s))
            slab_let_go(h, s);
    } else if (due <= waiting) {
        superslab_note_changed(slot_of(s));
        if (before < due)
            superslab_offer(slot_of(s), c);
    }
}

/* How many blocks wait in an inbox before others than the owner take them. A heap that has the slab on loan may never
 * look there. */
static unsigned inbox_is_filled_from(unsigned c, const struct heap *owner) {
    bool on_loan = (uintptr_t)owner & OWNER_ON_LOAN;
    return on_loan ? slab_reuse_frees(c) : size_classes[c].blocks * 3u / 4;
}

static void drain_closed(struct heap *h, struct slab *s) {
    unsigned blocks;
    uintptr_t list = inbox_take(s, &blocks);
    if (is_terminator(list))
        return;
    const struct kind *kind = kinds[load_acquire(&s->kind)];
    if (kind->free_chain != NULL) { /* closed, and as its blocks are in our hands, it can't change any more */
        kind->free_chain(h, s, list, blocks);
        return;
    }
    for (uintptr_t next; !is_terminator(list); list = next) { /* another slab by now */
        next = block_next(list);
        outbox_bypass(h, s, list);
    }
}

void outbox_drain_closed(struct heap *h, struct slab *s) {
    if (PROVEN(closed_look, load_seq(&s->inbox) != 0)) /* pairs with send */
        drain_closed(h, s);
}

/* Will this heap soon free more blocks of the slab, and may it take the slab on loan for that? */
enum prospect { NO_MORE, EXPECT_MORE, EXPECT_MORE_AND_BORROW };

/* Sends a chain of blocks, which count as out, to the slab's owner: into the inbox, or into the slab itself if this
 * heap owns it from now on. */
static void send(struct heap *h, struct slab *s, uintptr_t first, uintptr_t last, uint64_t blocks,
                 enum prospect prospect) {
    count(&h->client.counters, COUNT_outbox_batches);
    bool wanted = prospect != NO_MORE && slab_has_place(h);
    if (wanted && outbox_adopt(h, s)) {
        slab_free_chain(h, s, first, blocks);
        return;
    }
    if (!wanted && prospect == EXPECT_MORE_AND_BORROW && free_and_borrow(h, s, first, blocks))
        return;
    /* If the pushed blocks are all that were out, the slab may be gone at any moment after the push. So its class is
     * read before. Reading the owner afterwards does no harm: records stay, and adopting checks the truth. */
    unsigned c = slab_class(s);
    uint64_t retries = 0, waiting = inbox_push(s, first, last, blocks, &retries);
    count_add(&h->client.counters, COUNT_inbox_retries, retries);
    struct heap *owner = PROVEN(send_look, load_seq(&s->owner)); /* pairs with slab_let_go */
    if (owner == h)
        slab_drain_inbox(h, s);
    else if (owner == OWNER_NONE && wanted)
        outbox_adopt_unheld(h, s);
    else if (owner == OWNER_NONE)
        check_inbox(h, s, c, waiting - blocks, waiting);
    else if (PROVEN(closed_send, owner == &heap_of_closed))
        drain_closed(h, s);
    else if (owner != OWNER_POOL && waiting >= inbox_is_filled_from(c, owner))
        superslab_offer_inbox(slot_of(s), c);
}

static void send_entry(struct heap *h, struct heap *from, struct outbox_entry *e, enum prospect prospect) {
    uint32_t slab = load_relaxed(&e->slab);
    if (slab == 0)
        return;
    struct slab *s = slab_of_slot(slab - 1);
    uintptr_t slot = (uintptr_t)slab_address(s);
    store_relaxed(&e->slab, 0);
    add_owned(&from->outbox_slabs, -1u);
    send(h, s, slot + e->first, slot + e->last, e->blocks, prospect);
}

void outbox_bypass(struct heap *h, struct slab *s, uintptr_t block) { send(h, s, block, block, 1, NO_MORE); }

void outbox_send(struct heap *h, struct heap *from) {
    for (unsigned i = 0; load_relaxed(&from->outbox_slabs) != 0 && i < OUTBOX_ENTRIES; i++)
        send_entry(h, from, &from->outbox[i], NO_MORE);
    store_relaxed(&from->outbox_slabs, 0); /* in a child that was forked in send_entry the count is one too high */
}

void outbox_flush(struct heap *h) {
    if (caches_enter(h))
        outbox_send(h, h);
    caches_leave(h);
}

static void drain_if_due(struct heap *h) {
    if (!outbox_drain_is_due(h))
        return;
    h->drained_at = heap_remote_frees(h);
    if (!option(OPT_DRAIN))
        return;
    LOG(LOG_DRAIN, "[TLS_SLL_DRAIN] draining %u slabs' blocks", (uint64_t)load_relaxed(&h->outbox_slabs));
    count(&h->client.counters, COUNT_drains);
    if (caches_enter(h))
        for (unsigned i = 0; load_relaxed(&h->outbox_slabs) != 0 && i < OUTBOX_ENTRIES; i++)
            send_entry(h, h, &h->outbox[i], h->outbox[i].blocks >= LOAN_FROM_BLOCKS ? EXPECT_MORE_AND_BORROW : NO_MORE);
    caches_leave(h);
}

static void gather(struct heap *h, struct slab *s, uintptr_t block) {
    uint32_t slot = (uint32_t)slot_of(s);
    uint16_t offset = (uint16_t)(block & (SLOT_BYTES - 1));
    struct outbox_entry *e = &h->outbox[slot % OUTBOX_ENTRIES];
    if (load_relaxed(&e->slab) == slot + 1) {
        outbox_add(s, e, block);
    } else {
        send_entry(h, h, e, EXPECT_MORE_AND_BORROW);
        block_link(block, slab_terminator(s));
        e->first = e->last = offset, e->blocks = 1;
        e->full_blocks = (uint16_t)min_size(tuned(TUNE_batch_blocks), size_classes[slab_class(s)].blocks / 2u);
        atomic_signal_fence(memory_order_seq_cst); /* readers, and a child forked here, meet a whole entry */
        store_relaxed(&e->slab, slot + 1);
        add_owned(&h->outbox_slabs, 1);
        if (load_relaxed(&h->outbox_slabs) == 1)
            presence_gathered();
    }
    if (e->blocks >= e->full_blocks)
        send_entry(h, h, e, EXPECT_MORE_AND_BORROW);
}

/* Sends what was gathered for a slab that this heap owns by now. */
static void bring_home(struct heap *h, struct slab *s) {
    if (PROVEN(home_enter, caches_enter(h)) && load_relaxed(&h->outbox_slabs) != 0 &&
        outbox_gathers(outbox_entry_of(h, s), s))
        send_entry(h, h, outbox_entry_of(h, s), EXPECT_MORE); /* before the block at hand, which keeps the slab alive */
    caches_leave(h);
}

/* A thread that allocates, too, may own slabs that it frees into; a thread that is alone owns all of them. */
static bool adopts_at_once(struct heap *h) {
    return presence_is_alone() || (h->adoptions_left != 0 && (slab_has_place(h) || !slab_may_borrow(h)));
}

bool outbox_free_at_once(struct heap *h, struct slab *s, uintptr_t block) {
    if (outbox_adopt(h, s)) {
        bring_home(h, s);
        return slab_free(h, s, block);
    }
    count(&h->client.counters, COUNT_free_remote);
    if (caches_enter(h) && outbox_gathers(outbox_entry_of(h, s), s))
        send_entry(h, h, outbox_entry_of(h, s), NO_MORE); /* before the block at hand, as in bring_home */
    caches_leave(h);
    send(h, s, block, block, 1, NO_MORE);
    return false;
}

void outbox_gather_else(struct heap *h, struct slab *s, uintptr_t block, bool mine) {
    if (likely(mine))
        gather(h, s, block);
    else
        send(h, s, block, block, 1, EXPECT_MORE);
    caches_leave(h);
    drain_if_due(h);
}

void outbox_free_unowned(struct heap *h, struct slab *s, uintptr_t block) {
    if (!adopts_at_once(h) || !outbox_adopt(h, s)) {
        outbox_gather(h, s, block);
        return;
    }
    bring_home(h, s);
    slab_free(h, s, block);
}
