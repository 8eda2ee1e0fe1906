/* See remote.h. */
#include "remote.h"
#include "log.h"
#include "options.h"
#include "purge.h"

/* Blocks an outbox entry gathers; half of the slab when that is less. Producer and consumer of 1 KiB blocks need 180
 * atomics per 1,000 frees with an eighth, 60 with half. */
#define BATCH_MOST 128

/* The inbox word: blocks << 16 | offset of the newest in the slot. */
static uint64_t inbox_word(uint64_t blocks, uintptr_t newest) { return blocks << 16 | (newest & (SLOT_BYTES - 1)); }
static uint64_t inbox_blocks(uint64_t word) { return word >> 16; }
static uintptr_t inbox_newest(const struct slab *s, uint64_t word) {
    return (uintptr_t)slab_address(s) + (word & (SLOT_BYTES - 1));
}

static uint64_t push(struct slab *s, uintptr_t first, uintptr_t last, uint64_t blocks) {
    uint64_t old = load_relaxed(&s->inbox), word;
    do {
        block_link(last, old != 0 ? inbox_newest(s, old) : slab_terminator(s));
        word = inbox_word(inbox_blocks(old) + blocks, first);
    } while (!rmw_cas(&s->inbox, &old, word));
    return inbox_blocks(word);
}

void inbox_push_one(struct slab *s, uintptr_t block) { push(s, block, block, 1); }

uintptr_t inbox_take(struct slab *s, unsigned *blocks) {
    uint64_t word = load_relaxed(&s->inbox) != 0 ? rmw_swap(&s->inbox, 0) : 0;
    *blocks = (unsigned)inbox_blocks(word);
    return word != 0 ? inbox_newest(s, word) : slab_terminator(s);
}

/* True: that emptied the slab. */
static bool free_chain(struct heap *h, struct slab *s, uintptr_t block, uint64_t blocks) {
    uintptr_t slab = (uintptr_t)slab_address(s);
    s->own_frees = false;
    for (uint64_t left = blocks; left > 0; left--) {
        if (unlikely(!is_in_slab(block, slab))) {
            fail_overwritten_link(slab_address(s), size_classes[slab_class(s)].block_bytes);
            return false; /* the rest is out for ever */
        }
        uintptr_t next = block_next(block);
        if (slab_free(h, s, block))
            return true;
        block = next;
    }
    return false;
}

bool inbox_drain(struct heap *h, struct slab *s) {
    uint64_t word = rmw_swap(&s->inbox, 0);
    if (word == 0)
        return false;
    count(&h->pool.counters, COUNT_inbox_batches);
    return free_chain(h, s, inbox_newest(s, word), inbox_blocks(word));
}

/* Adopts the slab if it has no owner. The slab may be gone afterwards, unless blocks of it are in our hands. */
static bool adopt(struct heap *h, struct slab *s) {
    if (load_acquire(&s->owner) != OWNER_NONE || !slab_adopt(h, s))
        return false;
    count(&h->pool.counters, COUNT_slabs_adopted_by_free);
    slab_keep(h, s);
    if (load_relaxed(&s->inbox) != 0)
        inbox_drain(h, s);
    return true;
}

/* A chain of blocks that are out of the slab goes to its owner: into the inbox, or home if that is us from now on. */
static void send(struct heap *h, struct slab *s, uintptr_t first, uintptr_t last, uint64_t blocks) {
    count(&h->pool.counters, COUNT_outbox_batches);
    if (adopt(h, s)) {
        free_chain(h, s, first, blocks);
        return;
    }
    /* The pushed blocks may be all that was out, then the slab may be gone at any moment after the push: its class is read
     * before; the owner afterwards, which is no harm: records stay, and adopting checks the truth. */
    unsigned c = slab_class(s);
    uint64_t waiting = push(s, first, last, blocks);
    struct heap *owner = load_seq(&s->owner); /* pairs with slab_let_go */
    if (owner == h)
        inbox_drain(h, s);
    else if (owner == OWNER_NONE)
        adopt(h, s);
    else if (owner != OWNER_POOL && waiting >= size_classes[c].blocks * 3u / 4)
        pool_offer_inbox(slot_of(s), c);
}

static void send_entry(struct heap *h, struct heap *from, struct outbox_entry *e) {
    if (e->slab == 0)
        return;
    struct slab *s = slab_of_slot(e->slab - 1);
    uintptr_t slot = (uintptr_t)slab_address(s);
    e->slab = 0;
    from->outbox_blocks -= e->blocks;
    send(h, s, slot + e->first, slot + e->last, e->blocks);
}

void outbox_send(struct heap *h, struct heap *from) {
    for (unsigned i = 0; from->outbox_blocks != 0 && i < OUTBOX_ENTRIES; i++)
        send_entry(h, from, &from->outbox[i]);
}

void outbox_flush(struct heap *h) {
    if (caches_enter(h))
        outbox_send(h, h);
    caches_leave(h);
}

HAK_RACY bool outbox_may_have(const struct heap *h, const struct slab *s) {
    const volatile struct outbox_entry *e = &h->outbox[slot_of(s) % OUTBOX_ENTRIES];
    return e->slab == slot_of(s) + 1 || load_acquire(&h->caches_flags) & CACHES_FROZEN;
}

static void drain_if_due(struct heap *h) {
    if (--h->drain_countdown != 0)
        return;
    h->drain_countdown = (uint32_t)min_size(option(OPT_DRAIN_INTERVAL), UINT32_MAX);
    if (!option(OPT_DRAIN))
        return;
    LOG(LOG_DRAIN, "[TLS_SLL_DRAIN] Drain ENABLED (%s)", option(OPT_DRAIN_INTERVAL) == 1024 ? "default" : "set");
    count(&h->pool.counters, COUNT_drains);
    outbox_flush(h);
}

static void gather(struct heap *h, struct slab *s, uintptr_t block) {
    uint32_t slot = (uint32_t)slot_of(s);
    uint16_t offset = (uint16_t)(block & (SLOT_BYTES - 1));
    struct outbox_entry *e = &h->outbox[slot % OUTBOX_ENTRIES];
    if (e->slab == slot + 1) {
        block_link(block, (uintptr_t)slab_address(s) + e->first);
        e->first = offset;
    } else {
        send_entry(h, h, e);
        block_link(block, slab_terminator(s));
        e->first = e->last = offset, e->blocks = 0;
        atomic_signal_fence(memory_order_seq_cst); /* readers, and a child forked here, meet a whole entry */
        e->slab = slot + 1;
    }
    atomic_signal_fence(memory_order_seq_cst); /* a count below the chain's length loses a block, one above is worse */
    e->blocks++;
    if (h->outbox_blocks++ == 0)
        purge_gathered();
    unsigned most = size_classes[slab_class(s)].blocks / 2u;
    if (e->blocks >= (most < BATCH_MOST ? most : BATCH_MOST))
        send_entry(h, h, e);
}

/* What was gathered for a slab that is ours by now. */
static void bring_home(struct heap *h, struct slab *s) {
    struct outbox_entry *e = &h->outbox[slot_of(s) % OUTBOX_ENTRIES];
    if (caches_enter(h) && h->outbox_blocks != 0 && e->slab == slot_of(s) + 1)
        send_entry(h, h, e); /* before the block at hand, which keeps the slab alive */
    caches_leave(h);
}

void remote_free(struct heap *h, struct slab *s, uintptr_t block) {
    if ((h->adoptions_left != 0 || pool_clients() == 1) && adopt(h, s)) {
        bring_home(h, s);
        slab_free(h, s, block);
        return;
    }
    count(&h->pool.counters, COUNT_free_remote);
    if (likely(caches_enter(h)))
        gather(h, s, block);
    else
        send(h, s, block, block, 1);
    caches_leave(h);
    drain_if_due(h);
}

/* ---- is it free? ---- */

/* Up to `last`, or to its end. */
HAK_RACY static bool chain_has_up_to(const struct slab *s, uintptr_t chain, uintptr_t last, uintptr_t block) {
    for (unsigned left = size_classes[slab_class(s)].blocks; left > 0 && same_slot(chain, block); left--) {
        if (chain == block)
            return true;
        if (chain == last || is_terminator(chain))
            return false;
        chain = *(const volatile uintptr_t *)block_word(chain) ^ hak_region.key;
    }
    return false;
}

static bool chain_has(const struct slab *s, uintptr_t chain, uintptr_t block) {
    return chain_has_up_to(s, chain, slab_terminator(s), block);
}

/* The heap in whose outbox the block is, or NULL. Once it is sent the chain goes on, with what others freed. */
HAK_RACY static const struct heap *outbox_with(const struct slab *s, uintptr_t block) {
    for (const struct heap *h = heap_newest(); h != NULL; h = h->next) {
        const volatile struct outbox_entry *e = &h->outbox[slot_of(s) % OUTBOX_ENTRIES];
        bool ours = e->slab == slot_of(s) + 1;
        uintptr_t slab = (uintptr_t)slab_address(s), first = slab + e->first, last = slab + e->last;
        if (ours && chain_has_up_to(s, first, last, block) && e->slab == slot_of(s) + 1)
            return h;
    }
    return NULL;
}

static bool inbox_has(const struct slab *s, uintptr_t block) {
    uint64_t word = load_acquire(&s->inbox);
    return word != 0 && chain_has(s, inbox_newest(s, word), block);
}

HAK_RACY static bool heap_has(const struct heap *h, const struct slab *s, uintptr_t block) {
    unsigned c = slab_class(s);
    return chain_has(s, h->list[c], block) ||
           (h->sample.mean_bytes != 0 && chain_has(s, h->sample.tiny[c].rest, block));
}

/* In the order in which blocks travel, so that one that does is met. */
HAK_RACY bool block_is_listed(const struct slab *s, uintptr_t block) {
    if (outbox_with(s, block) != NULL || inbox_has(s, block) || chain_has(s, s->list, block))
        return true;
    for (const struct heap *h = heap_newest(); h != NULL;
         h = h->next) /* that of the current slab, or out of an inbox */
        if (heap_has(h, s, block))
            return true;
    return chain_has(s, s->list, block);
}

HAK_RACY enum freer block_freer(const struct heap *h, const struct slab *s, uintptr_t block) {
    if (heap_freer() != FREER_UNKNOWN || slab_kind(s) != KIND_TINY)
        return heap_freer();
    const struct heap *by = outbox_with(s, block);
    bool own_frees = *(const volatile bool *)&s->own_frees;
    if (by == NULL && own_frees) {
        const struct heap *owner = load_acquire(&s->owner);
        if (inbox_has(s, block))
            return owner == h ? FREER_OTHER_THREAD : FREER_UNKNOWN;
        if (owner > OWNER_NONE && (s->place & PLACE_CURRENT ? heap_has(owner, s, block) : chain_has(s, s->list, block)))
            by = owner;
    }
    return by == NULL ? FREER_UNKNOWN : by == h ? FREER_THIS_THREAD : FREER_OTHER_THREAD;
}
