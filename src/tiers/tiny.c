/* Tiny: blocks of at most 1 KiB, by owner lists. The hit path is in alloc.h; here is what happens when a list is empty.
 *
 *  1. The current slab's inbox. What the owner freed into the slab is in the list already.
 *  2. Purged pages of the current slab; then another usable slab of this heap; then a slab without owner that is on
 *     offer; then the well-filled inbox of any heap's slab.
 *  3. A page's worth of blocks carved in address order from the fresh slab; then a new slab from the pool. A slab start
 *     costs no work per block.
 *  4. Before giving up: what the current slab has uncarved, and slabs that are not due for use again yet.
 *
 * Only the thread that owns a slab runs any of this on it. */
/* SPDX-License-Identifier: MIT */
#include "tiers/tiny.h"
#include "base/clear.h"
#include "base/fail.h"
#include "base/options.h"
#include "base/os.h"
#include "base/snapshot.h"
#include "blocks/inbox.h"
#include "blocks/kinds.h"
#include "heap/outbox.h"
#include "heap/pages.h"
#include "heap/sample.h"
#include "heap/search.h"
#include "pool/pool.h"
#include "pool/retain.h"
#include "process/presence.h"
#include "process/tunables.h"
#include "space/arena_space.h"
#include "tiers/lookup.h"

#include <stddef.h>
#include <string.h>

#define EXIT_LINKS 16 /* of each list: what they cost is not to be seen in the shortest program */

static struct slab *slab_of_block(uintptr_t block) { return slab_at_offset(block - hak_region.base); }

/* Hands out the first block of a list; the rest becomes the heap's list. `blocks`: the length of the list, or
 * SAMPLE_UNCOUNTED. */
static uintptr_t tiny_hand_out(struct heap *h, unsigned c, uintptr_t list, unsigned blocks, enum counter how) {
    count(&h->client.counters, how);
    ledger_add(&h->ledger[c].misses, 1);
    if (how != COUNT_refill_from_slab) /* whose blocks were counted as they came */
        ledger_add(&h->ledger[c].blocks, blocks);
    store_relaxed(&slab_of_block(list)->idle_looks, 0);
    store_release(&h->list[c], block_next(list)); /* as in slab_free */
    *block_word(list) = 0;
    if (unlikely(sample_on(h)))
        sample_handed_out(h, c, blocks);
    return list;
}

/* ---- blocks from a slab the heap owns ---- */

/* Blocks `first` to `end` - 1 of the slab, linked in address order. */
static uintptr_t link_blocks(struct slab *s, unsigned first, unsigned end) {
    size_t bytes = size_classes[slab_class(s)].block_bytes;
    uintptr_t block = (uintptr_t)slab_address(s) + first * bytes;
    uintptr_t list = block;
    for (unsigned i = first; i + 1 < end; i++, block += bytes)
        block_link(block, block + bytes);
    block_link(block, slab_terminator(s));
    return list;
}

uintptr_t tiny_cut_blocks(unsigned c, struct slab *s, unsigned *end) {
    unsigned first = slab_carved(s), n = max_size(tuned_class(TUNE_carve_bytes, c) / size_classes[c].block_bytes, 1);
    *end = min_size(first + n, size_classes[c].blocks);
    store_relaxed(&s->tiny.carved, *end);
    slab_set_hits(s);
    return link_blocks(s, first, *end);
}

static uintptr_t carve(struct heap *h, unsigned c, struct slab *s) {
    unsigned first = slab_carved(s), end;
    slab_count_frees(h, c, s);
    slab_check_after(h, s, slab_out(s)); /* all that were carved before are out */
    uintptr_t list = tiny_cut_blocks(c, s, &end);
    if (end == size_classes[c].blocks && h->fresh[c] == s) {
        h->fresh[c] = NULL;
        slab_leave(s, PLACE_FRESH);
    }
    slab_refilled(h, end - first, false);
    return tiny_hand_out(h, c, list, end - first, COUNT_refill_by_carving);
}

/* Takes the blocks of the first run of purged pages. A block may touch several pages, so a run is taken as a whole. */
uintptr_t tiny_link_purged(struct heap *h, unsigned c, struct slab *s, unsigned *blocks) {
    size_t page = os_page_bytes(), bytes = size_classes[c].block_bytes;
    unsigned start = lowest_bit(slab_purged(s));
    unsigned pages = lowest_bit(~(uint64_t)(slab_purged(s) >> start));
    unsigned first = (unsigned)(start * page / bytes);
    unsigned end = (unsigned)(((start + pages) * page + bytes - 1) / bytes);
    store_relaxed(&s->tiny.purged_pages, slab_purged(s) & ~(uint32_t)(low_bits(pages) << start));
    s->tiny.purged_blocks = (uint16_t)(s->tiny.purged_blocks - (end - first));
    retain_grew_inside(&h->client, pages * page);
    slab_set_hits(s);
    *blocks = end - first;
    return link_blocks(s, first, end);
}

static uintptr_t take_purged(struct heap *h, unsigned c, struct slab *s) {
    unsigned blocks;
    uintptr_t list = tiny_link_purged(h, c, s, &blocks);
    return tiny_hand_out(h, c, list, blocks, COUNT_refill_from_purged);
}

/* Whether the slab has free blocks that cost no new memory. `free_to` of a current slab is the heap's list. */
static bool has_free(const struct slab *s) {
    return !is_terminator(load_relaxed(s->tiny.free_to)) || load_relaxed(&s->inbox) != 0 || slab_reusable(s) != 0;
}

/* From the current slab: a free block that costs no new memory; 0: there is none. */
static uintptr_t take_free(struct heap *h, unsigned c) {
    struct slab *s = h->current[c];
    if (!is_terminator(load_relaxed(&h->list[c])))
        return tiny_hand_out(h, c, load_relaxed(&h->list[c]), sample_listed(h, c), COUNT_refill_from_slab);
    unsigned blocks;
    if (load_relaxed(&s->inbox) != 0) {
        uintptr_t list = inbox_take(s, &blocks);
        store_relaxed(&s->tiny.own_frees, false);
        slab_prefetch(s, blocks);
        if (!is_terminator(list))
            return tiny_hand_out(h, c, list, blocks, COUNT_refill_from_inbox);
    }
    return slab_reusable(s) != 0 ? take_purged(h, c, s) : 0;
}

/* From the current slab: a free block, else a new one. */
static uintptr_t take_any(struct heap *h, unsigned c) {
    struct slab *s = h->current[c];
    uintptr_t block = take_free(h, c);
    return block == 0 && slab_carved(s) < size_classes[c].blocks ? carve(h, c, s) : block;
}

/* ---- changing slabs ---- */

static uintptr_t use_own(struct heap *h, unsigned c) {
    for (struct slab *s; (s = slab_take_usable(h, c)) != NULL;) {
        slab_make_current(h, s);
        uintptr_t block = take_any(h, c);
        if (block == 0)
            continue;
        count(&h->client.counters, COUNT_refill_from_partial);
        slab_refilled(h, slab_reuse_frees(c), true);
        return block;
    }
    return 0;
}

/* Takes a slab that nobody owns, or that a heap has on loan. */
static bool take_unowned(struct heap *h, struct slab *s) {
    bool let_go = load_relaxed(&s->owner) == OWNER_NONE, taken = let_go ? slab_adopt(h, s) : slab_end_loan(h, s);
    if (!taken)
        return false;
    store_relaxed(&s->tiny.place, 0);
    count(&h->client.counters, let_go ? COUNT_slabs_adopted_by_refill : COUNT_loans_taken);
    return true;
}

/* Slabs that were on offer while the heap that has them on loan was freeing there. They go back on offer after the
 * search. */
enum { IN_USE_MAX = 4 };
struct in_use {
    unsigned slots;
    size_t slot[IN_USE_MAX];
};

static uintptr_t search_offers(struct heap *h, unsigned c, struct in_use *in_use) {
    for (size_t slot; in_use->slots < IN_USE_MAX && (slot = space_take_offer(&h->client, c)) != BITSET_NONE;) {
        struct slab *s = slab_of_slot(slot);
        if (!take_unowned(h, s)) {
            if (slab_is_on_loan(s))
                in_use->slot[in_use->slots++] = slot;
            continue;
        }
        if (!slab_is_usable(s) && slab_drain_inbox(h, s)) /* what makes it worth using may still be there */
            continue;
        /* an old offer: the slot has another slab by now, or another arena's, or the slab is full */
        if (slab_class(s) != c || !slab_is_usable(s) || !slab_is_for(&h->client, s)) {
            slab_let_go(h, s);
            continue;
        }
        slab_make_current(h, s);
        uintptr_t block = take_any(h, c);
        if (block != 0) {
            count(&h->client.counters, COUNT_refill_from_let_go);
            slab_refilled(h, slab_reuse_frees(c), true);
            return block;
        }
    }
    return 0;
}

static uintptr_t use_offer(struct heap *h, unsigned c) {
    struct in_use in_use = {0};
    uintptr_t block = search_offers(h, c, &in_use);
    count_add(&h->client.counters, COUNT_offers_in_use, in_use.slots);
    /* A child of fork may lack the threads that were freeing there. Such slabs stay in use for good, and IN_USE_MAX of
     * them would hide all other offers. Other slabs are on offer again when their loan ends. */
    bool renews = in_use.slots != 0 && !presence_lost_threads();
    while (renews && in_use.slots > 0)
        superslab_offer(in_use.slot[--in_use.slots], c);
    return block;
}

static uintptr_t use_stale_inbox(struct heap *h, unsigned c) {
    for (size_t slot; (slot = space_take_inbox_offer(&h->client, c)) != BITSET_NONE;) {
        struct slab *s = slab_of_slot(slot);
        unsigned blocks = 0;
        /* Asked before blocks are taken, too: another arena may end, with its slab, while we have blocks of it. */
        uintptr_t list = slab_is_for(&h->client, s) ? inbox_take(s, &blocks) : slab_terminator(s);
        if (is_terminator(list))
            continue;
        if (slab_class(s) == c &&
            slab_is_for(&h->client, s)) { /* its blocks are in our hands, so it can't change any more */
            slab_give_up_current(h, c);   /* else frees into that slab would add to the list of these blocks */
            slab_prefetch(s, blocks);
            return tiny_hand_out(h, c, list, blocks, COUNT_refill_from_stale_inbox);
        }
        while (!is_terminator(list)) { /* another slab by now */
            uintptr_t next = block_next(list);
            if (load_relaxed(&s->owner) == h) {
                store_relaxed(&s->tiny.own_frees, false);
                slab_free(h, s, list);
            } else {
                outbox_bypass(h, s, list);
            }
            list = next;
        }
    }
    return 0;
}

struct slab *tiny_start_slab(struct heap *h, unsigned c, uint8_t place) {
    bool zero;
    size_t slot = pool_take(&h->client, 1, 1, c + 1, &zero);
    if (slot == BITSET_NONE)
        return NULL;
    struct slab *s = slab_of_slot(slot);
    store_relaxed(&s->tiny.list, slab_terminator(s));
    s->tiny.free_to = &s->tiny.list;
    s->tiny.countdown = 0, s->tiny.floor = 0, s->tiny.purged_blocks = 0;
    store_relaxed(&s->tiny.purged_pages, 0);
    bool folios = superslab_has_folios(slot);
    s->tiny.page_flags = !zero || folios || superslab_has_huge_page(slot) ? PAGES_TAIL : 0;
    /* A pointer to a block of an earlier slab may be freed once more. */
    store_relaxed(&s->tiny.own_frees, !superslab_had_slab(slot));
    store_relaxed(&s->tiny.carved, 0);
    slab_set_hits(s);
    s->divisor = size_classes[c].divisor;
    s->tiny.link_mark = upper_half(slab_terminator(s) ^ hak_region.key);
    s->slots = 1;
    store_relaxed(&s->tiny.place, place);
    store_relaxed(&s->class_id, (uint8_t)c);
    s->tiny_bytes = (uint16_t)size_classes[c].block_bytes;
    s->tiny.first_size = c == 0 ? 0 : size_classes[c - 1].block_bytes + 1; /* 0, too, is one of the smallest */
    s->sizes = s->tiny_bytes - s->tiny.first_size + 1;
    store_relaxed(&s->kind, kind_for_client(&h->client, KIND_TINY));
    store_release(&s->owner, h); /* a refill with an old offer may look at it any time; it finds an owner */
    count(&h->client.counters, COUNT_slabs_started);
    if (h->slabs_of_class[c] < UINT8_MAX)
        h->slabs_of_class[c]++;
    if (zero && !folios && h->slabs_of_class[c] > POPULATE_FROM_SLABS && option(OPT_POPULATE)) {
        touch_pages(slab_address(s), SLOT_BYTES);
        count(&h->client.counters, COUNT_populate_calls);
        s->tiny.page_flags = PAGES_TAIL;
    }
    return s;
}

/* The slab is used before its time. */
static uintptr_t use_early(struct heap *h, unsigned c, struct slab *s) {
    slab_make_current(h, s);
    return take_free(h, c);
}

static uintptr_t use_not_yet_due(struct heap *h, unsigned c) {
    uintptr_t uncarved = h->current[c] != NULL ? take_any(h, c) : 0;
    if (uncarved != 0)
        return uncarved;
    for (uint32_t at = h->owned.first; at != 0;) {
        struct slab *s = slab_of_slot(at - 1);
        at = s->tiny.next;
        if (slab_class(s) != c || is_terminator(load_relaxed(&s->tiny.list)))
            continue;
        slab_unlist(h, s);
        return use_early(h, c, s);
    }
    for (size_t slot = 0; (slot = space_next_active(&h->client, slot)) != BITSET_NONE; slot++) {
        struct slab *s = slab_of_slot(slot);
        if (!take_unowned(h, s))
            continue;
        bool fits = slab_class(s) == c && slab_is_for(&h->client, s) && !is_terminator(load_relaxed(&s->tiny.list));
        uintptr_t block = fits ? use_early(h, c, s) : 0;
        if (block != 0)
            return block;
        slab_let_go(h, s);
    }
    return 0;
}

/* The program wrote to a free block, so that malloc found an end of the list where there is none. */
HAK_COLD static void report_end(struct heap *h, unsigned c) {
    const struct slab *s = h->current[c];
    fail_overwritten_link(s != NULL ? slab_address(s) : NULL, size_classes[c].block_bytes);
    store_relaxed(&h->list[c], s != NULL ? slab_terminator(s) : 1);
}

uintptr_t tiny_refill(struct heap *h, unsigned c) {
    struct slab *current = h->current[c], *fresh = h->fresh[c];
    uintptr_t end = load_relaxed(&h->list[c]);
    bool sound = current != NULL ? end == slab_terminator(current) : (end & (SLOT_BYTES - 1)) == 1;
    if (unlikely(!sound) && is_no_block(end))
        report_end(h, c);
    if (unlikely(sample_on(h)))
        sample_rejoin(h, c);
    h->bulk_from = heap_remote_frees(h);
    /* The list may have been filled since the caller looked: pthread_setspecific allocates at a heap's birth. */
    bool listed = current != NULL ? has_free(current) : !is_terminator(load_relaxed(&h->list[c]));
    uintptr_t block = listed ? take_free(h, c) : 0;
    if (block == 0 && fresh != NULL && fresh != current && has_free(fresh)) {
        slab_make_current(h, fresh);
        block = take_free(h, c);
    }
    if (block == 0 && slab_has_usable(h, c))
        block = use_own(h, c);
    if (block == 0 && space_may_offer(&h->client, c))
        block = use_offer(h, c);
    if (block == 0 && space_may_offer_inbox(&h->client, c))
        block = use_stale_inbox(h, c);
    if (block != 0)
        return block;
    fresh = h->fresh[c];
    if (fresh == NULL)
        fresh = h->fresh[c] = tiny_start_slab(h, c, PLACE_FRESH);
    if (fresh == NULL)
        return use_not_yet_due(h, c);
    if (h->current[c] != fresh)
        slab_make_current(h, fresh);
    return carve(h, c, fresh);
}

/* ---- giving back ---- */

/* Gives back slabs of which the program has no block; the blocks that others freed into them count as back. */
static void tiny_give_back_unused(struct heap *h) {
    slab_recall(h, h, 0, 1);
    for (uint32_t at = h->owned.first; at != 0;) {
        struct slab *s = slab_of_slot(at - 1);
        at = s->tiny.next; /* it may be gone afterwards */
        if (load_relaxed(&s->inbox) != 0)
            slab_drain_inbox(h, s);
    }
    for (unsigned c = 0; c < TINY_CLASSES; c++) {
        struct slab *s = slab_leave_current(h, c), *fresh = h->fresh[c];
        if (fresh != NULL && fresh != s && load_relaxed(&fresh->inbox) != 0)
            slab_drain_inbox(h, fresh);
        if (s == NULL || (load_relaxed(&s->inbox) != 0 && slab_drain_inbox(h, s)))
            continue;
        slab_make_current(h, s);
        if (unlikely(sample_on(h)))
            sample_cut(h, c, SAMPLE_UNCOUNTED);
    }
}

/* Blocks that were overwritten by use after free or by an overflow from a neighbour are mostly those freed, or carved,
 * last. */
static void check_first_links(const struct heap *h, unsigned c) {
    uintptr_t block = load_relaxed(&h->list[c]);
    if (!is_no_block(block) && !region_has(block_word(block))) {
        fail_overwritten_link(NULL, size_classes[c].block_bytes);
        return;
    }
    for (unsigned n = 0; n < EXIT_LINKS && !is_no_block(block); n++) {
        const struct slab *s = slab_of_block(block);
        block = block_next(block);
        if (block == slab_terminator(s))
            return;
        if (!is_in_slab(block, (uintptr_t)slab_address(s))) {
            fail_overwritten_link(slab_address(s), size_classes[c].block_bytes);
            return;
        }
    }
}

void tiny_check_at_exit(void) {
    const struct heap *h = hak_heap;
    for (unsigned c = 0; c < TINY_CLASSES && h->number != HEAP_NONE; c++)
        check_first_links(h, c);
}

static void empty_class(struct heap *h, unsigned c) {
    struct slab *current = slab_leave_current(h, c);
    if (current != NULL)
        slab_let_go(h, current);
    if (unlikely(sample_on(h)))
        sample_take_back(h, c);
    for (uintptr_t block; !is_no_block(block = load_relaxed(&h->list[c]));) {
        store_relaxed(&h->list[c], block_next(block));
        ledger_add(&h->ledger[c].blocks, (uint64_t)-1);
        struct slab *s = slab_of_block(block);
        if (PROVEN(exit_owner, load_relaxed(&s->owner) == h))
            slab_free(h, s, block);
        else
            outbox_free(h, s, block);
    }
    store_relaxed(&h->list[c], 1);
    if (h->fresh[c] != NULL)
        slab_let_go(h, h->fresh[c]);
}

/* The heap is about to rest. Its next thread did not free what its slabs have listed. */
static void leave_class(struct heap *h, unsigned c) {
    if (h->current[c] == NULL && !is_no_block(load_relaxed(&h->list[c]))) /* of others' slabs */
        empty_class(h, c);
    if (h->current[c] != NULL)
        store_relaxed(&h->current[c]->tiny.own_frees, false);
    if (h->fresh[c] != NULL)
        store_relaxed(&h->fresh[c]->tiny.own_frees, false);
}

static void tiny_empty_heap(struct heap *h) {
    bool rests = load_relaxed(&h->rests);
    outbox_flush(h);
    for (unsigned c = 0; c < TINY_CLASSES; c++)
        (rests ? leave_class : empty_class)(h, c);
    outbox_flush(h);
    while (h->owned.first != 0)
        slab_let_go(h, slab_of_slot(h->owned.first - 1));
    slab_recall(h, h, 0, 1);
    h->owned_credit = 0, h->adoptions_left = 0; /* the next thread is another */
    memset(h->checks_before_giving, 0, sizeof h->checks_before_giving);
    memset(h->checks_left, 0, sizeof h->checks_left);
    memset(h->returns, 0, sizeof h->returns);
}

/* ---- whole free pages inside partly used slabs ---- */

/* Whether the free pages of a slab without owner could be worth adopting it. */
static bool may_pay(const struct slab *s, enum trim how) {
    struct slab seen;
    snapshot(&seen, s, sizeof seen);
    return pages_trim_pays(&seen, how);
}

static size_t tiny_trim_slab(struct heap *h, struct slab *s, enum trim how) {
    struct heap *owner = load_seq(&s->owner); /* pairs with superslab_note_changed */
    if (owner == h)
        return slab_is(s, PLACE_OWNED) ? pages_trim(s, how) : 0;
    if (owner != OWNER_NONE || !may_pay(s, how) || !slab_adopt(h, s))
        return 0;
    store_relaxed(&s->tiny.place, 0);
    if (load_relaxed(&s->inbox) != 0 && slab_drain_inbox(h, s))
        return 0;
    size_t trimmed = pages_trim(s, how);
    slab_put_back(h, s);
    return trimmed;
}

static size_t tiny_trim(struct heap *h, struct superslab_range in, bool all) {
    (void)all;
    if (in.first == 0)
        tiny_give_back_unused(h);
    return 0;
}

/* The end of an arena takes the slab from whatever heap of the arena has it. It is the pool's if a thread outside gives
 * the slot back (slab_give_back). */
static bool tiny_drop(struct heap *h, struct slab *s) {
    (void)h;
    struct heap *owner = load_acquire(&s->owner);
    if (owner == OWNER_NONE ? !rmw_cas(&s->owner, &owner, OWNER_POOL)
                            : owner == OWNER_POOL || !heap_is_of_arena(owner)) /* pairs with slab_adopt */
        return false;
    if (slab_purged(s) != 0)
        pages_forget(s);
    store_relaxed(&s->owner, OWNER_POOL);
    store_relaxed(&s->inbox, 0);
    return true;
}

/* ---- looking up ---- */

static void tiny_find(struct block *b, const void *p) {
    const struct slab *s = b->slab;
    const struct size_class *c = &size_classes[slab_class(s)];
    unsigned index = block_index(s->divisor, (uint16_t)(uintptr_t)p);
    b->bytes = c->block_bytes;
    if (unlikely(index >= load_folded(&s->hit_blocks) &&
                 ((uintptr_t)p & (SLOT_BYTES - 1)) / b->bytes >= slab_carved(s)))
        b->why = BLOCK_NEVER_HANDED_OUT, b->bytes = 0;
    else if (index < c->blocks)
        b->why = NULL;
}

/* A page is purged only while all blocks that touch it are free. If another thread owns the slab and is just purging
 * it, the block at hand is live, and so in none of those pages. */
static bool lies_in_purged_page(const struct block *b, const void *p) {
    uint32_t purged = slab_purged(b->slab);
    if (likely(purged == 0))
        return false;
    size_t offset = (uintptr_t)p & (SLOT_BYTES - 1), page = os_page_bytes();
    return purged >> (offset / page) & 1 || purged >> ((offset + b->bytes - 1) / page) & 1;
}

static bool tiny_is_free(const struct block *b, const void *p) {
    return lies_in_purged_page(b, p) ||
           (block_looks_free(b->slab, (uintptr_t)p) && search_lists(b->slab, (uintptr_t)p));
}

static void tiny_count(const struct slab *s, struct span_use *use) {
    unsigned class_id = slab_class(s);
    use->slots = 1;
    use->is_in_pool = class_id >= TINY_CLASSES; /* it is another kind's by now */
    if (use->is_in_pool)
        return;
    size_t bytes = size_classes[class_id].block_bytes, blocks = size_classes[class_id].blocks;
    size_t out = min_size(slab_out(s), blocks); /* likewise */
    if (unlikely(s->tiny.page_flags & PAGES_LOST))
        out -= min_size(pages_lost_blocks(s, bytes), out);
    use->class_id = class_id;
    use->cached_bytes = min_size(inbox_waiting(s), out) * bytes;
    use->out_bytes = out * bytes - use->cached_bytes;
    use->listed_bytes = min_size(slab_listed(s), blocks - out) * bytes;
    use->lazy_bytes = s->tiny.page_flags & PAGES_LAZY ? count_bits(slab_purged(s)) * os_page_bytes() : 0;
}

/* ---- freeing what is no hit ---- */

HAK_INLINE void tiny_free_live(struct heap *h, struct slab *s, uintptr_t block) {
    if (load_relaxed(&s->owner) == h)
        slab_free(h, s, block);
    else
        outbox_free(h, s, block);
}

/* A second look at a block that looks as if it could not be freed. */
HAK_NOINLINE static void tiny_free_doubtful(struct heap *h, struct slab *s, void *p) {
    if (lookup_for_free(p))
        tiny_free_live(h, s, (uintptr_t)p);
}

/* The owner may be carving meanwhile, but only behind blocks that are out. */
HAK_INLINE bool tiny_is_doubtful(const struct slab *s, uintptr_t block) {
    return unlikely(block_index(s->divisor, (uint16_t)block) >= load_folded(&s->hit_blocks) ||
                    block_looks_free(s, block));
}

static void tiny_free_past_caches(struct heap *h, struct slab *s, void *p) {
    if (tiny_is_doubtful(s, (uintptr_t)p) && !lookup_for_free(p))
        return;
    count(&h->client.counters, COUNT_free_remote);
    outbox_bypass(h, s, (uintptr_t)p);
}

static void tiny_free(struct heap *h, struct slab *s, void *p) {
    if (tiny_is_doubtful(s, (uintptr_t)p))
        tiny_free_doubtful(h, s, p);
    else
        tiny_free_live(h, s, (uintptr_t)p);
}

/* The block waits in the inbox for the next thread with a heap. */
static void tiny_free_without_heap(struct slab *s, void *p) {
    if (!tiny_is_doubtful(s, (uintptr_t)p) || lookup_for_free(p))
        inbox_push_one(s, (uintptr_t)p);
}

/* ---- moving ---- */

static bool tiny_fill(struct slab *s, struct fill *fill) {
    struct slab seen;
    snapshot(&seen, s, sizeof seen);
    unsigned c = slab_class(&seen), out = seen.tiny.countdown + seen.tiny.floor, waiting = inbox_waiting(&seen);
    if (load_relaxed(&seen.owner) == OWNER_POOL || slab_is(&seen, PLACE_CURRENT | PLACE_FRESH | PLACE_DENSE) ||
        c >= TINY_CLASSES)
        return false;
    *fill = (struct fill){s, c, out - (unsigned)min_size(waiting, out)};
    return true;
}

/* Only our own slab: another thread's could go, and its memory with it, while we read its blocks. */
static bool tiny_is_ours(const struct heap *h, const struct slab *s, unsigned class_id) {
    return load_relaxed(&s->owner) == h && slab_class(s) == class_id && !slab_is(s, PLACE_CURRENT);
}

/* Blocks that look free are, wherever they are listed, and so are those in purged pages. A live block that looks free
 * by chance is left out, and does not move. */
HAK_READS_PROGRAM_BYTES static bool tiny_is_live(const struct heap *h, const struct slab *s, unsigned class_id,
                                                 unsigned block) {
    const struct block b = {(struct slab *)s, size_classes[class_id].block_bytes, NULL}; /* NOLINT: only read */
    uintptr_t p = (uintptr_t)slab_address(s) + block * b.bytes;
    return tiny_is_ours(h, s, class_id) && block < slab_carved(s) && !lies_in_purged_page(&b, block_word(p)) &&
           !block_looks_free(s, p);
}

static void tiny_live(struct heap *h, struct slab *s, unsigned class_id, uint64_t map[LIVE_WORDS]) {
    if (h->number != HEAP_NONE && load_relaxed(&s->owner) == OWNER_NONE) /* a cursor may outlive its thread's heap */
        outbox_adopt_unheld(h, s);
    if (!tiny_is_ours(h, s, class_id))
        return;
    for (unsigned i = 0; i < slab_carved(s); i++)
        map[i / 64] |= (uint64_t)tiny_is_live(h, s, class_id, i) << i % 64;
}

static unsigned tiny_free_dense(struct heap *h, struct slab *s, void *p) {
    uintptr_t block = (uintptr_t)p;
    if (tiny_is_doubtful(s, block) && !lookup_for_free(p))
        return 0;
    if (slab_free_on_loan(h, s, block))
        return 0;
    return load_relaxed(&s->owner) == h ? slab_free(h, s, block) : outbox_free_at_once(h, s, block);
}

/* ---- the row ---- */

static void *tiny_malloc(struct heap *h, size_t bytes, size_t alignment, bool *zero) {
    (void)alignment;
    *zero = false;
    return block_word(tiny_refill(h, heap_class(h, bytes)));
}

static void tiny_empty_caches(struct heap *h) {
    outbox_flush(h);
    tiny_give_back_unused(h);
}

const struct kind kind_tiny = {
    .name = "a tiny slab",
    .malloc = tiny_malloc,
    .free = tiny_free,
    .free_without_heap = tiny_free_without_heap,
    .free_past_caches = tiny_free_past_caches,
    .find = tiny_find,
    .is_free = tiny_is_free,
    .empty_heap = tiny_empty_heap,
    .empty_caches = tiny_empty_caches,
    .trim = tiny_trim,
    .trim_slab = tiny_trim_slab,
    .drop = tiny_drop,
    .fill = tiny_fill,
    .live = tiny_live,
    .is_live = tiny_is_live,
    .free_dense = tiny_free_dense,
    .visit = pages_visit_live,
    .count = tiny_count,
};
