/* Dense allocations: the targets of moves (defrag.h).
 *
 *  1. Tiny: each heap has one dense slab for each class. Its list is its own, apart from the heap's, so that blocks
 *     which the program moves stay together, and malloc's go elsewhere. When the slab is full, the next one is a slab
 *     of the heap that is not sparse, then one without owner, then a new one. Only the owning thread runs any of this
 *     on a slab.
 *  2. Mid: a slab on offer that is not sparse, then a new one. The last one is filled first, sparse or not. */
/* SPDX-License-Identifier: MIT */
#include "blocks/block.h"
#include "blocks/inbox.h"
#include "heap/slab.h"
#include "move/defrag.h"
#include "pool/retain.h"
#include "process/hooks.h"
#include "space/superslab.h"
#include "tiers/mid.h"
#include "tiers/tiny.h"

#define DENSE_LOOKS 64 /* at slabs, before a new one is taken; a slab has room for many */

/* ---- tiny ---- */

static bool is_sparse(const struct slab *s) {
    return defrag_is_sparse(slab_class(s), slab_out(s) - (unsigned)min_size(inbox_waiting(s), slab_out(s)), slot_of(s));
}

/* A usable slab of the heap that is not sparse. */
static struct slab *own_dense(struct heap *h, unsigned c) {
    uint32_t at = load_relaxed(&h->owned.class_first[c]);
    for (unsigned looks = 0; at != 0 && looks < DENSE_LOOKS; looks++) {
        struct slab *s = slab_of_slot(at - 1);
        if (!is_sparse(s)) {
            slab_unlist(h, s);
            return s;
        }
        at = s->tiny.class_next;
    }
    return NULL;
}

/* Adopts a slab without owner that is not sparse, if there is one, from the place of the last one on. */
static struct slab *offered_dense(struct heap *h, unsigned c) {
    size_t slot = h->move.dense[c];
    for (unsigned looks = 0; looks < DENSE_LOOKS; looks++, slot++) {
        slot = superslab_next_offer(c, slot);
        if (slot == BITSET_NONE)
            return NULL;
        struct slab *s = slab_of_slot(slot);
        uint32_t out = load_relaxed(&s->tiny.out);
        bool fits = load_relaxed(&s->owner) == OWNER_NONE && slab_class(s) == c &&
                    !defrag_is_sparse(c, out - (uint32_t)min_size(inbox_waiting(s), out), slot);
        if (!fits || !slab_adopt(h, s))
            continue;
        count(&h->client.counters, COUNT_slabs_adopted_by_refill);
        store_relaxed(&s->tiny.place, 0);
        if (slab_class(s) == c && slab_is_usable(s) && slab_is_for(&h->client, s))
            return s;
        slab_let_go(h, s); /* an old offer, as in use_offer */
    }
    return NULL;
}

/* Has the slab a block on its list now? NULL in *slab: all its blocks are back, and it is gone. */
static bool dense_has_block(struct heap *h, unsigned c, struct slab **slab) {
    struct slab *s = *slab;
    unsigned n;
    uintptr_t list = load_relaxed(&s->tiny.list);
    if (unlikely(is_terminator(list) && list != slab_terminator(s)))
        slab_list_is_sound(s); /* reports what was written over a link */
    if (is_terminator(load_relaxed(&s->tiny.list)) && load_relaxed(&s->inbox) != 0 && slab_drain_inbox(h, s)) {
        *slab = NULL;
        return false;
    }
    if (is_terminator(load_relaxed(&s->tiny.list))) {
        if (slab_reusable(s) != 0)
            store_relaxed(&s->tiny.list, tiny_link_purged(h, c, s, &n));
        else if (slab_carved(s) < size_classes[c].blocks)
            store_relaxed(&s->tiny.list, tiny_cut_blocks(c, s, &n));
    }
    if (likely(is_in_slab(load_relaxed(&s->tiny.list), (uintptr_t)slab_address(s))))
        return true;
    slab_list_is_sound(s); /* reports, unless this is the end of the list */
    return false;
}

/* The slab that this heap's dense allocations come from, with a block on its list; NULL: no memory. */
static struct slab *dense_slab(struct heap *h, unsigned c) {
    struct slab *s = h->move.dense[c] != 0 ? slab_of_slot(h->move.dense[c] - 1) : NULL;
    bool ours = s != NULL && load_relaxed(&s->owner) == h && slab_class(s) == c &&
                (load_relaxed(&s->tiny.place) & (PLACE_DENSE | PLACE_CURRENT)) == PLACE_DENSE;
    s = ours ? s : NULL;
    while (s == NULL || !dense_has_block(h, c, &s)) {
        if (s != NULL)
            slab_give_up_dense(h, s);
        s = own_dense(h, c);
        if (s == NULL)
            s = offered_dense(h, c);
        if (s == NULL)
            s = tiny_start_slab(h, c, 0);
        if (s == NULL)
            return NULL;
        slab_make_dense(h, s);
        h->move.dense[c] = (uint32_t)slot_of(s) + 1;
    }
    return s;
}

static void *tiny_malloc_dense(struct heap *h, size_t bytes, size_t alignment, bool *zero) {
    (void)alignment;
    *zero = false;
    struct slab *s = dense_slab(h, tiny_class_of(bytes));
    if (s == NULL)
        return NULL;
    uintptr_t block = load_relaxed(&s->tiny.list);
    s->tiny.countdown++;
    atomic_signal_fence(memory_order_seq_cst); /* a child forked here loses a block at worst */
    store_relaxed(&s->tiny.list, block_next(block));
    store_relaxed(&s->idle_looks, 0);
    *block_word(block) = 0;
    return block_word(block);
}

/* ---- mid ---- */

/* Takes one free block of a slab of the class that is on offer and not sparse, from the last such slab on. */
static struct slab *take_dense(struct heap *h, unsigned c, uint64_t *taken) {
    size_t slot = h->move.dense[c] - (h->move.dense[c] != 0);
    for (unsigned looks = 0; looks < DENSE_LOOKS; looks++, slot++) {
        slot = superslab_next_offer(c, slot);
        if (slot == BITSET_NONE)
            break;
        struct slab *s = slab_of_slot(slot);
        bool fits = slot + 1 == h->move.dense[c] || !defrag_is_sparse(c, mid_out(s, c), slot), left;
        *taken = fits ? mid_take_offered(h, s, c, 1, &left) : 0;
        if (*taken != 0)
            return s;
    }
    *taken = 1;
    return mid_start_slab(h, c, 1);
}

static void *mid_malloc_dense(struct heap *h, size_t bytes, size_t alignment, bool *zero) {
    unsigned c = mid_class_of(bytes);
    uint64_t taken;
    struct slab *s = take_dense(h, c, &taken);
    (void)alignment;
    if (s == NULL)
        return NULL;
    h->move.dense[c] = (uint32_t)slot_of(s) + 1;
    unsigned i = lowest_bit(taken);
    struct ring_entry e = {s->mid.start + (size_t)i * s->mid.block_bytes, &s->mid.state[i]};
    if (load_relaxed(e.state) & BLOCK_PURGED)
        retain_grew_inside(&h->client, s->mid.block_bytes);
    return ring_hand_out(e, zero);
}

/* ---- what the wing hears ---- */

static take_call *dense_call(const struct kind *kind) {
    return kind == &kind_tiny ? tiny_malloc_dense : kind == &kind_mid ? mid_malloc_dense : kind->malloc;
}

const struct move_hooks hooks_move = {.dense = dense_call};
