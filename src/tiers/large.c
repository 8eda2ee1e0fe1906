/* Large: blocks above 64 KiB and up to 1 MiB, spans of whole slots.
 *
 *  1. A block is a span of the pool with one record. The program may use what it asked for; behind that lies a canary,
 *     which free and realloc check.
 *  2. A small ring per heap and size keeps the newest freed blocks, which are hot; the others go back to the pool,
 *     neighbours together. When the ring runs empty again and again, a miss brings further spans for it.
 *  3. The first SHUT_FIRST blocks of SHUT_BYTES and more that the process frees, and later one in SHUT_EVERY that a
 *     heap frees, are purged and made inaccessible until they leave the ring. So reading or writing such a block after
 *     it was freed ends the program at the access, as where libc unmaps such blocks, and what it held is not handed
 *     out. That costs two calls, and the faults of the next use.
 *  4. Growth takes the slots behind the span if they are free; shrinking gives slots back.
 *
 * Any thread may free: a block's record is touched by whoever holds the block. */
/* SPDX-License-Identifier: MIT */
#include "tiers/large.h"
#include "base/fail.h"
#include "base/options.h"
#include "base/os.h"
#include "blocks/block.h"
#include "blocks/canary.h"
#include "blocks/kinds.h"
#include "heap/ring.h"
#include "pool/huge_pages.h"
#include "pool/pool.h"

static void large_set_bytes(struct slab *s, size_t asked, bool zero) {
    s->single.slack_bytes = (uint32_t)(s->single.bytes - asked);
    if (!zero)
        canary_put(s, slab_address(s) + asked, s->single.slack_bytes);
}

static void check_canary(const struct slab *s) {
    if (unlikely(!canary_is_intact(s, slab_address(s) + asked_bytes(s), s->single.slack_bytes)))
        fail_damage("overflow", slab_address(s), asked_bytes(s));
}

/* ---- blocks that are shut ---- */

#define SHUT_FIRST 4
#define SHUT_EVERY (UINT8_MAX + 1)
/* Only blocks that libc would unmap: programs get away with reading smaller ones after they freed them. CPython 3.10
 * does so when a daemon thread ends after the interpreter, whose state is 113,528 bytes. */
#define SHUT_BYTES (128 * KIB)

static _Atomic uint32_t shut_blocks; /* up to SHUT_FIRST; a hint */

static bool is_to_be_shut(struct heap *h, const struct slab *s) {
    if (asked_bytes(s) < SHUT_BYTES)
        return false;
    if (unlikely(h->client.is_shared)) /* it has counters alone, and no ring in which a block could wait */
        return false;
    bool due = unlikely(load_relaxed(&shut_blocks) < SHUT_FIRST) || unlikely(++h->large_frees == 0);
    return due && h->client.arena == 0 && !region_is_scarce() && !hak_region.window &&
           option(OPT_PURGE) != PURGE_NEVER && !region_is_read();
}

/* Shuts a free block that the caller holds. The pages go back even if the block cannot be made inaccessible. */
static void shut(struct slab *s) {
    if (!os_advise(OS_PURGE, slab_address(s), s->single.bytes))
        return;
    s->single.is_shut = os_forbid(slab_address(s), s->single.bytes);
    if (!s->single.is_shut)
        os_commit(slab_address(s), s->single.bytes); /* a part may be inaccessible */
    else if (load_relaxed(&shut_blocks) < SHUT_FIRST)
        rmw_add(&shut_blocks, 1);
}

/* Makes a block accessible again. False: the process may have no more mappings, or no more data. */
static bool unshut(struct slab *s) {
    if (likely(!s->single.is_shut))
        return true;
    s->single.is_shut = !os_commit(slab_address(s), s->single.bytes);
    return !s->single.is_shut;
}

/* ---- spans ---- */

/* Looking at a part of a block that the program did not touch takes a page fault, and reads a page of zeros: 2,500
 * instructions. */
#define FREES_PER_LOOK 64

/* Ends a block whose span is about to go to the pool. */
static void end_block(struct heap *h, struct slab *s, bool resident) {
    if (resident && !h->client.is_shared && h->large_given++ % FREES_PER_LOOK == 0)
        huge_pages_freed_large(slab_address(s), asked_bytes(s));
    store_relaxed(&s->single.state, BLOCK_FREE);
    store_relaxed(&s->kind, KIND_FREE);
}

static void give_open_span(struct heap *h, struct slab *s, bool resident) {
    end_block(h, s, resident);
    pool_give(&h->client, slot_of(s), s->slots, 0, resident);
}

/* Spans that the system would not make accessible, as slot + 1, linked by span_slots. Pushed one at a time and taken
 * whole, so that whoever has one has it alone; the read-modify-writes carry the links along. */
static _Atomic uint32_t waiting_spans;

static void put_waiting(struct slab *s) {
    store_relaxed(&s->single.state, BLOCK_CACHED | BLOCK_TAKEN); /* no ring says any more who freed it */
    uint32_t first = load_relaxed(&waiting_spans);
    do
        s->single.span_slots = first;
    while (!rmw_cas(&waiting_spans, &first, (uint32_t)slot_of(s) + 1));
}

static void large_empty_caches(struct heap *h) {
    uint32_t at = load_relaxed(&waiting_spans) != 0 ? rmw_swap(&waiting_spans, 0) : 0;
    while (at != 0) {
        struct slab *s = slab_of_slot(at - 1);
        at = (uint32_t)s->single.span_slots;
        unshut(s) ? give_open_span(h, s, false) : put_waiting(s);
    }
}

static void give_span(struct heap *h, struct slab *s) {
    bool resident = !s->single.is_shut;
    if (likely(unshut(s)))
        give_open_span(h, s, resident);
    else
        put_waiting(s);
}

/* All entries are of one ring, so all blocks have the same number of slots. */
static void large_give_back(struct heap *h, const struct ring_entry *entries, unsigned n) {
    uint32_t first_slots[RING_PIECE_BLOCKS];
    unsigned open = 0, slots = 0;
    for (unsigned i = 0; i < n; i++) {
        struct slab *s = slab_at_offset(entries[i].block - hak_region.base);
        if (unlikely(!ring_had(load_relaxed(entries[i].state)))) {
            ring_fail_twice(entries[i].block, asked_bytes(s));
        } else if (unlikely(s->single.is_shut)) {
            give_span(h, s);
        } else {
            end_block(h, s, true);
            first_slots[open++] = (uint32_t)slot_of(s);
            slots = s->slots;
        }
    }
    pool_give_spans(&h->client, first_slots, open, slots);
}

/* Makes the record of a new block, of which `asked` bytes are the program's. */
static struct slab *begin_block(struct heap *h, size_t slot, unsigned slots, size_t asked, bool zero, uint8_t state) {
    struct slab *s = slab_of_slot(slot);
    count(&h->client.counters, COUNT_large_spans);
    s->slots = (uint8_t)slots;
    s->single.bytes = slots * SLOT_BYTES;
    s->single.is_shut = false;
    large_set_bytes(s, asked, zero);
    store_relaxed(&s->single.state, state);
    store_relaxed(&s->class_id, CLASS_NONE);
    store_relaxed(&s->kind, kind_for_client(&h->client, KIND_LARGE));
    return s;
}

/* Puts spans that were taken besides into the ring, the lowest on top. */
static void keep_further(struct heap *h, size_t superslab, uint32_t left, unsigned slots) {
    struct ring *ring = caches_enter(h) ? h->ring[ring_of_slots(slots)] : NULL;
    for (unsigned start; left != 0; left &= (uint32_t)low_bits(start)) {
        start = highest_bit(left) + 1 - slots;
        size_t slot = superslab * SUPERSLAB_SLOTS + start;
        count(&h->client.counters, COUNT_stage1_reused_empty);
        uint8_t state = BLOCK_CACHED | BLOCK_TAKEN;
        struct slab *s = begin_block(h, slot, slots, slots * SLOT_BYTES, true, state);
        if (!ring_put(ring, (uintptr_t)slab_address(s), &s->single.state, state))
            give_span(h, s);
    }
    caches_leave(h);
}

static void *take_span(struct heap *h, size_t bytes, size_t alignment, unsigned further, bool *zero) {
    unsigned slots = large_slots_of(bytes);
    unsigned align = alignment <= SLOT_BYTES ? 1 : (unsigned)(alignment / SLOT_BYTES);
    uint32_t taken;
    size_t slot = pool_take_spans(&h->client, slots, align, 0, further, &taken, zero);
    if (slot == BITSET_NONE)
        return NULL;
    taken &= ~span_mask(slot % SUPERSLAB_SLOTS, slots);
    if (taken != 0)
        keep_further(h, slot / SUPERSLAB_SLOTS, taken, slots);
    return slab_address(begin_block(h, slot, slots, bytes, *zero, BLOCK_LIVE));
}

/* Hands out a block from the ring. NULL: the block can't be made accessible. */
HAK_INLINE void *hand_out(struct ring_entry cached, size_t bytes, bool *zero) {
    struct slab *s = slab_at_offset(cached.block - hak_region.base);
    *zero = s->single.is_shut;
    if (unlikely(!unshut(s))) {
        put_waiting(s);
        return NULL;
    }
    large_set_bytes(s, bytes, false);
    store_relaxed(cached.state, BLOCK_LIVE);
    return block_word(cached.block);
}

void *large_hit(struct heap *h, size_t bytes) {
    struct ring_entry cached = ring_pop_unsampled(h, ring_of_slots(large_slots_of(bytes)), bytes, CACHES_SITED);
    bool zero;
    if (unlikely(cached.block == 0) || unlikely(ring_checked(cached).block == 0))
        return NULL;
    return hand_out(cached, bytes, &zero);
}

static void *large_malloc(struct heap *h, size_t bytes, size_t alignment, bool *zero) {
    bytes = max_size(bytes, 1);
    unsigned ring = ring_of_slots(large_slots_of(bytes));
    *zero = false;
    if (alignment <= SLOT_BYTES) {
        struct ring_entry cached = ring_pop(h, ring);
        void *p = cached.block != 0 ? hand_out(cached, bytes, zero) : NULL;
        if (p != NULL)
            return p;
    }
    struct ledger_row *row = &h->ledger[TINY_CLASSES + ring];
    ledger_add(&row->misses, 1);
    uint64_t began = ledger_begin(row);
    unsigned further = alignment <= SLOT_BYTES ? ring_ran_empty(h, ring) : 0;
    void *p = take_span(h, bytes, alignment, further, zero);
    ledger_end(row, began);
    return p;
}

/* May the block at p be freed? If not, that is reported. */
HAK_INLINE bool may_free(struct heap *h, struct slab *s, void *p) {
    if (unlikely((char *)p != slab_address(s))) {
        fail_bad_pointer("free", p, "", asked_bytes(s));
        return false;
    }
    if (unlikely(load_relaxed(&s->single.state) != BLOCK_LIVE) && !block_unsample(&s->single.state, p)) {
        fail_double_free(p, asked_bytes(s), ring_freer(h, ring_of_slots(s->slots), &s->single.state));
        return false;
    }
    check_canary(s);
    return true;
}

static void large_free_past_caches(struct heap *h, struct slab *s, void *p) {
    if (may_free(h, s, p))
        give_span(h, s);
}

/* Only one of the threads that free the block at the same moment may shut it. */
static bool shut_free(struct slab *s) {
    uint8_t live = BLOCK_LIVE;
    bool mine = rmw_cas(&s->single.state, &live, BLOCK_CACHED | BLOCK_TAKEN); /* pairs with itself */
    if (mine)
        shut(s);
    else
        ring_fail_twice((uintptr_t)slab_address(s), asked_bytes(s));
    return mine;
}

static void large_free(struct heap *h, struct slab *s, void *p) {
    size_t block_bytes = s->single.bytes;
    unsigned index = ring_of_slots(s->slots);
    if (!may_free(h, s, p) || (is_to_be_shut(h, s) && !shut_free(s)))
        return;
    if (ring_push(h, index, (uintptr_t)p, &s->single.state))
        return;
    caches_notice(h);
    struct ring *ring = caches_enter(h) ? ring_with_room(h, index, block_bytes) : NULL;
    bool kept = ring_put(ring, (uintptr_t)p, &s->single.state, BLOCK_CACHED);
    caches_leave(h);
    if (!kept)
        give_span(h, s);
    rings_shrink(h);
}

static bool large_resize(struct heap *h, struct slab *s, void *p, size_t bytes) {
    (void)p;
    unsigned wanted = large_slots_of(bytes), have = s->slots;
    if (bytes > LARGE_BYTES_MAX || bytes <= MID_BYTES_MAX)
        return false;
    check_canary(s);
    if (wanted > have) {
        if (!pool_extend(&h->client, slot_of(s), have, wanted))
            return false;
        count(&h->client.counters, COUNT_grown_in_place);
    }
    uint8_t state = block_begin_change(s);
    memset(slab_address(s) + asked_bytes(s), 0, min_size(s->single.slack_bytes, CANARY_TAIL_BYTES));
    s->slots = (uint8_t)wanted;
    s->single.bytes = wanted * SLOT_BYTES;
    large_set_bytes(s, bytes, false);
    block_end_change(s, state);
    if (wanted < have)
        pool_give(&h->client, slot_of(s) + wanted, have - wanted, 0, true);
    return true;
}

/* ---- looking up ---- */

static void large_check(struct slab *s) {
    if (single_state(s) == BLOCK_LIVE &&
        canary_is_there(slab_address(s) + asked_bytes(s), min_size(s->single.slack_bytes, CANARY_TAIL_BYTES)))
        check_canary(s);
}

static void large_count(const struct slab *s, struct span_use *use) {
    bool live = single_state(s) == BLOCK_LIVE;
    use->slots = s->slots;
    use->out_bytes = live ? s->single.bytes : 0;
    use->cached_bytes = live ? 0 : s->single.bytes;
}

const struct kind kind_large = {
    .name = "a large block",
    .malloc = large_malloc,
    .free = large_free,
    .free_past_caches = large_free_past_caches,
    .resize = large_resize,
    .resize_from_bytes = MID_BYTES_MAX + 1,
    .find = block_find_only,
    .is_free = block_is_only_free,
    .state = block_only_state,
    .give_back = large_give_back,
    .empty_caches = large_empty_caches,
    .check = large_check,
    .drop = block_drop_only,
    .visit = kind_visit_first,
    .count = large_count,
};
