/* Secure mode's slabs. See secure_slab.h.
 *
 * A thread raises `held`, which reserves blocks, before it clears their bits, and lowers `held` after it has set bits.
 * The thread that brings the last block back sets `held` to 0 in the same compare-and-swap, and gives the span back. */
/* SPDX-License-Identifier: MIT */
#include "secure/secure_slab.h"
#include "base/fail.h"
#include "base/os.h"
#include "blocks/block.h"
#include "blocks/kinds.h"
#include "process/presence.h"
#include "secure/secure_damage.h"
#include "secure/secure_span.h"
#include "space/superslab.h"

static struct slab *slab_of_block(uintptr_t block) { return span_first(slab_at_offset(block - hak_region.base)); }

static void secure_slab_set_kind(struct slab *s, uint8_t kind) {
    for (unsigned i = 0; i < s->slots; i++)
        store_relaxed(&s[i].kind, kind);
}

/* Writes all that free has to know into the record of every slot. */
static void secure_slab_set_records(struct slab *s, struct secure_span *span, unsigned c) {
    for (unsigned i = 0; i < 1u << order_of_class(c); i++) {
        s[i].mid.start = (uintptr_t)slab_address(s);
        s[i].mid.block_bytes = (uint32_t)block_bytes_of(c);
        s[i].divisor = size_classes[layout_class(c)].divisor;
        s[i].mid.blocks = blocks_of(c);
        s[i].slots = (uint8_t)(1u << order_of_class(c));
        s[i].first_offset = (uint8_t)i;
        s[i].mid.secure = span;
        store_relaxed(&s[i].class_id, (uint8_t)c);
    }
}

struct secure_span *secure_slab_start(struct heap *h, unsigned c, unsigned taken) {
    unsigned order = order_of_class(c), blocks = blocks_of(c);
    size_t slot = span_take(h, c);
    if (slot == BITSET_NONE)
        return NULL;
    struct secure_span *span = span_at(slot / SUPERSLAB_SLOTS, span_index(slot, order));
    struct slab *s = slab_of_slot(slot);
    secure_slab_set_records(s, span, c);
    if (c == ZERO_CLASS)
        span_shut(slot, order);
    for (unsigned i = 0; i < span->used; i++) /* statistics may be at the slab that was here */
        store_relaxed(span_state(span, i), 0);
    span->used = blocks;
    for (unsigned i = 0; i < blocks; i += 64)
        store_relaxed(span_free(span, i / 64), low_bits(blocks - i));
    store_relaxed(&span->class_id, (uint8_t)c);
    store_relaxed(&span->claimed, true);
    secure_slab_set_kind(s, kind_for_client(&h->client, KIND_SECURE_SMALL));
    store_release(&span->held, taken + 1);
    count(&h->client.counters, COUNT_slabs_started);
    return span;
}

/* As in mid.c: another thread may have reused the slot for a slab of another class meanwhile. Our offer would then hide
 * that slab's offer, so we offer again. The same if the slab's arena has ended: either the end sees our offer and makes
 * it the process's, or we see the end. */
static void secure_slab_offer(struct slab *s) {
    const struct superslab *ss = superslab_at(slot_of(s) / SUPERSLAB_SLOTS);
    unsigned c;
    uint32_t arena;
    do {
        arena = load_seq(&ss->arena);
        c = slab_class(s);
        if (!superslab_is_offered(slot_of(s), c))
            superslab_offer(slot_of(s), c);
    } while (PROVEN(offer_class, slab_class(s) != c) || load_seq(&ss->arena) != arena);
}

/* For whoever has set `held` to 0. */
static void end_slab(struct heap *h, struct slab *s, unsigned c) {
    store_relaxed(&s->mid.secure->claimed, false);
    secure_slab_set_kind(s, KIND_FREE);
    count(&h->client.counters, COUNT_slabs_emptied);
    span_give(h, slot_of(s), order_of_class(c), c == ZERO_CLASS, secure_check_span);
}

/* Lowers `held` by `n` blocks whose bits are set. The slab may be gone afterwards. The thread that lets go of the last
 * block gets the slab in the same step: otherwise another thread could give the slab away as soon as nothing is held,
 * and this thread would touch the next slab in its place. */
static void let_go_of(struct heap *h, struct slab *s, unsigned c, unsigned n) {
    struct secure_span *span = s->mid.secure;
    uint32_t held = load_relaxed(&span->held), left;
    if (n == 0)
        return;
    do
        left = held - n;
    while (!PROVEN(let_go_held, rmw_cas(&span->held, &held, left == 1 ? 0 : left))); /* pairs with reserve */
    if (left == 1)
        end_slab(h, s, c);
    else if (!load_seq(&span->claimed))
        secure_slab_offer(s);
}

/* How many blocks have their bits clear. */
static uint32_t taken_blocks(const struct secure_span *span, unsigned c) {
    uint32_t free = 0;
    for (unsigned i = 0; i < blocks_of(c); i += 64)
        free += count_bits(load_relaxed(span_free(span, i / 64)));
    return blocks_of(c) - free;
}

/* A thread may have reserved blocks of the slab by an old hint, unaware that the slab is an arena's. It has taken none
 * yet: so more are held than taken. */
bool secure_slab_drop(struct heap *h, struct slab *s) {
    unsigned c = slab_class(s);
    if (s->first_offset != 0)
        return false;
    if (c != ZERO_CLASS && !presence_lost_threads())
        secure_check_slab(s->mid.secure, c, false);
    uint32_t held = 1 + taken_blocks(s->mid.secure, c);
    if (rmw_cas(&s->mid.secure->held, &held, 0)) /* pairs with reserve, and let_go_of */
        end_slab(h, s, c);
    return false;
}

unsigned secure_slab_reserve(struct heap *h, struct secure_span *span, unsigned c, unsigned want) {
    uint32_t held = load_acquire(&span->held), blocks = blocks_of(c), n;
    do {
        if (held == 0 || held - 1 >= blocks)
            return 0;
        n = (unsigned)min_size(want, blocks - (held - 1));
    } while (!rmw_cas(&span->held, &held, held + n));
    unsigned now = load_relaxed(&span->class_id);
    if (now == c &&
        PROVEN(reserve_mine,
               likely(slab_is_for(&h->client, span_slab(span, c))))) /* neither changes while blocks are reserved */
        return n;
    let_go_of(h, span_slab(span, now), now, n);
    return 0;
}

unsigned secure_slab_take(struct heap *h, struct secure_span *span, unsigned c, unsigned n,
                          struct secure_entry *entries) {
    uintptr_t start = (uintptr_t)slab_address(span_slab(span, c));
    size_t bytes = block_bytes_of(c);
    unsigned words = (blocks_of(c) + 63) / 64;
    struct secure_entry *to = entries, *end = to + n;
    for (unsigned at = random_below(h, words), vain = 0; to < end && vain < 2 * words;
         at = at + 1 == words ? 0 : at + 1) {
        uint64_t free = load_relaxed(span_free(span, at)), some = free & secure_random(h);
        if (free == 0) {
            vain++;
            continue;
        }
        vain = 0;
        some = some != 0 ? some : free & -free;
        for (ptrdiff_t over = (ptrdiff_t)count_bits(some) - (end - to); over > 0; over--)
            some &= some - 1;
        some &= rmw_and(span_free(span, at), ~some); /* pairs with set_free */
        _Atomic uint16_t *states = span_states(span, at);
        uintptr_t first = start + at * 64 * bytes;
        prefetch((uintptr_t)states);
        prefetch((uintptr_t)&states[32]);
        for (; some != 0; some &= some - 1, to++) {
            *to = (struct secure_entry){first + lowest_bit(some) * bytes, states + lowest_bit(some)};
            prefetch(to->block);
        }
    }
    return (unsigned)(to - entries);
}

/* Sets the bits of those entries that are blocks of the slab, and moves the others to the front: *n of them are left.
 * Returns how many bits it set. Not inlined, so that its large mask is off the stack when the caller goes on to the
 * pool. */
HAK_NOINLINE static unsigned set_free(const struct slab *s, struct secure_entry *entries, unsigned *n) {
    struct secure_span *span = s->mid.secure;
    uint64_t mask[SPAN_BLOCKS_MAX / 64], words = 0, twice; /* bit i of `words`: mask[i] is in use */
    unsigned all = *n, others = 0, blocks = 0;
    for (unsigned i = 0; i < all; i++) {
        unsigned index = secure_index(s, entries[i].block);
        if (index >= s->mid.blocks ||
            entries[i].state != span_state(span, index)) { /* of another slab, or of an earlier one here */
            secure_entry_copy(&entries[others++], &entries[i]);
            continue;
        }
        uint64_t bit = (uint64_t)1 << index % 64, before = words >> index / 64 & 1 ? mask[index / 64] : 0;
        if (unlikely(before & bit)) {
            fail_double_free(block_word(entries[i].block), s->mid.block_bytes - CANARY_BYTES, FREER_UNKNOWN);
            blocks--;
        }
        mask[index / 64] = before | bit;
        words |= (uint64_t)1 << index / 64;
    }
    blocks += all - others;
    *n = others;
    for (; words != 0; words &= words - 1) {
        unsigned at = lowest_bit(words);
        twice =
            rmw_or(span_free(span, at), mask[at]) & mask[at]; /* pairs with secure_slab_take, for states and zeroes */
        if (likely(twice == 0) || presence_lost_threads())
            continue;
        size_t index = at * 64 + lowest_bit(twice);
        fail_double_free(slab_address(s) + index * s->mid.block_bytes, s->mid.block_bytes - CANARY_BYTES,
                         FREER_UNKNOWN);
        blocks -= count_bits(twice);
    }
    return blocks;
}

void secure_slab_return(struct heap *h, struct secure_entry *entries, unsigned n) {
    while (n != 0) {
        struct slab *s = slab_of_block(entries[0].block);
        unsigned all = n, blocks = slab_tier(s) == KIND_SECURE_SMALL ? set_free(s, entries, &n) : 0;
        if (likely(n < all)) {
            let_go_of(h, s, slab_class(s), blocks);
            continue;
        }
        if (!presence_lost_threads())
            fail_bad_pointer("free", block_word(entries[0].block), "a block that is free", 0);
        secure_entry_copy(&entries[0], &entries[--n]);
    }
}

void secure_slab_unclaim(struct secure_span *span, unsigned c) {
    store_seq(&span->claimed, false); /* pairs with let_go_of: one of the two offers the slab */
    uint32_t held = load_seq(&span->held);
    if (held != 0 && held - 1 < blocks_of(c) && load_relaxed(&span->class_id) == c)
        secure_slab_offer(span_slab(span, c));
}

unsigned secure_slab_take_all(struct heap *h, struct secure_span *span, unsigned c,
                              uint64_t taken[SPAN_BLOCKS_MAX / 64]) {
    unsigned n = secure_slab_reserve(h, span, c, blocks_of(c)), had = 0;
    for (unsigned at = 0; at < SPAN_BLOCKS_MAX / 64; at++) {
        uint64_t some = n != had ? load_relaxed(span_free(span, at)) : 0;
        while (count_bits(some) > n - had)
            some &= some - 1;
        taken[at] = some != 0 ? some & rmw_and(span_free(span, at), ~some) : 0; /* pairs with set_free */
        had += count_bits(taken[at]);
    }
    /* Others came back to words that were passed, and whoever reserved these took some ahead. In a child the other
     * threads' blocks may be missing. */
    if (had < n && !presence_lost_threads())
        let_go_of(h, span_slab(span, c), c, n - had);
    return had;
}

void secure_slab_put_back(struct heap *h, struct secure_span *span, unsigned c, unsigned n,
                          const uint64_t taken[SPAN_BLOCKS_MAX / 64]) {
    for (unsigned at = 0; at < SPAN_BLOCKS_MAX / 64; at++)
        if (taken[at] != 0)
            rmw_or(span_free(span, at), taken[at]); /* pairs with secure_slab_take */
    let_go_of(h, span_slab(span, c), c, n);
}

static bool has_all_bits(const uint64_t *bits, size_t from, size_t to) {
    while (from < to && bits[from / 64] >> from % 64 & 1)
        from++;
    return from >= to;
}

size_t secure_slab_purge(struct heap *h, struct secure_span *span, unsigned c) {
    uint64_t taken[SPAN_BLOCKS_MAX / 64];
    size_t page = os_page_bytes(), block_bytes = block_bytes_of(c), purged = 0;
    unsigned n = c != ZERO_CLASS ? secure_slab_take_all(h, span, c, taken) : 0;
    if (n == 0)
        return 0;
    secure_check_blocks(span, c, taken);
    char *begin = slab_address(span_slab(span, c));
    for (size_t at = 0; at < SLOT_BYTES << order_of_class(c); at += page) {
        size_t end = min_size((at + page - 1) / block_bytes + 1, blocks_of(c));
        if (has_all_bits(taken, at / block_bytes, end) && memory_is_zero((uintptr_t)begin + at, page))
            purged += os_advise(OS_PURGE, begin + at, page);
    }
    secure_slab_put_back(h, span, c, n, taken);
    return purged;
}
