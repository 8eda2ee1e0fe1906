/* See secure_span.h. */
/* SPDX-License-Identifier: MIT */
#include "secure/secure_span.h"
#include "base/clear.h"
#include "base/options.h"
#include "base/os.h"
#include "pool/limits.h"
#include "pool/pool.h"
#include "secure/secure_block.h"
#include "space/arena_space.h"

#define GUARDED_MAX 800 /* SuperSlabs with guards; each takes 35 of the kernel's 65,530 mappings */
#define TABLE_DUMPED_SUPERSLABS ((size_t)2048) /* whose rows are in core dumps: 4 GiB */
_Atomic(char *) span_table_made;               /* constant once set */

uint64_t secure_random(struct heap *h) {
    uint64_t *state = secure_random_state(h);
    if (unlikely(*state == 0))
        *state = canary_fold(hak_region.second_key, (uintptr_t)h ^ os_random(OS_RANDOM_SEED) ^ os_now_ms());
    return secure_next_random(h);
}

static size_t table_row_bytes(void) { return round_up(SPAN_LINES * SPAN_LINE_BYTES, os_page_bytes()); }
/* The part of a row that slabs of the class need. */
static size_t table_bytes_for(unsigned c) {
    return round_up((SPAN_STATES_LINE + (blocks_of(c) + 63) / 64) * SPAN_LINE_BYTES, os_page_bytes());
}

struct secure_span *span_at(size_t superslab, unsigned index) {
    char *row = load_acquire(&span_table_made) + superslab * table_row_bytes();
    return (struct secure_span *)(void *)row + index;
}

struct slab *span_slab(const struct secure_span *span, unsigned c) {
    size_t at = (size_t)((const char *)span - load_relaxed(&span_table_made));
    unsigned index = (unsigned)(at % table_row_bytes() / sizeof *span);
    return slab_of_slot(slot_of_span(at / table_row_bytes(), index, order_of_class(c)));
}

size_t span_states_max(const struct secure_span *span) {
    size_t superslab = (size_t)((const char *)span - load_relaxed(&span_table_made)) / table_row_bytes();
    size_t lines = load_relaxed(&superslab_at(superslab)->table_pages) * os_page_bytes() / SPAN_LINE_BYTES;
    return lines > SPAN_STATES_LINE ? (lines - SPAN_STATES_LINE) * 64 : 0;
}

struct region_range span_table(void) {
    char *begin = load_acquire(&span_table_made);
    return (struct region_range){begin,
                                 begin != NULL ? load_relaxed(&hak_region_use.superslabs) * table_row_bytes() : 0};
}

/* The reservation begins and ends with a guard. Its beginning is in core dumps, what is in use of it and what is
 * not. */
static bool reserve_table(void) {
    size_t guard = 64 * KIB, bytes = hak_region.superslabs_max * table_row_bytes() + 2 * guard;
    char *got = os_map(OS_RESERVE, NULL, bytes), *nothing = NULL;
    size_t dumped = min_size(hak_region.superslabs_max, TABLE_DUMPED_SUPERSLABS) * table_row_bytes();
    if (got != NULL && !rmw_cas(&span_table_made, &nothing, got + guard))
        os_unmap(got, bytes);
    else if (got != NULL)
        os_advise(OS_NO_DUMP, got + guard + dumped, bytes - guard - dumped);
    return load_acquire(&span_table_made) != NULL;
}

void span_start(void) {
    if (reserve_table())
        region_has_further_table(load_acquire(&span_table_made), table_row_bytes());
}

/* Makes the first `bytes` of the row accessible. No more than needed, as under mlockall all of it becomes resident; but
 * a SuperSlab without guards gets the whole row, because a part costs mappings, which may have run out. A thread that
 * does not see what another has just opened opens it again. */
static bool open_table(size_t superslab, size_t bytes) {
    struct superslab *ss = superslab_at(superslab);
    if (!ss->has_guards)
        bytes = table_row_bytes();
    if (bytes <= load_relaxed(&ss->table_pages) * os_page_bytes())
        return true;
    if (!os_commit((char *)span_at(superslab, 0), bytes))
        return false;
    store_relaxed(&ss->table_pages, (uint8_t)(bytes / os_page_bytes()));
    return true;
}

/* ---- SuperSlabs ---- The word: 16 bits for free spans, 16 bits for those of them that are accessible and resident,
 * then the order plus 1. */

#define WORD_ORDER(order) ((uint64_t)((order) + 1) << 32)

static bool has_free(uint64_t w, unsigned order) { return w >> 32 == (uint64_t)order + 1 && (uint16_t)w != 0; }

/* Any thread. Each stands for itself: bounds that may be missed by a little. */
static struct {
    _Atomic uint32_t guarded_superslabs;
    _Atomic int64_t resident_slots; /* of free spans */
} spans_all;

static unsigned random_bit(struct heap *h, uint64_t bits) {
    for (unsigned skip = random_below(h, count_bits(bits)); skip != 0; skip--)
        bits &= bits - 1;
    return lowest_bit(bits);
}

/* The set of those with room on the node of this SuperSlab. Its node does not change while it is cut into spans. */
static size_t set_with(size_t superslab, unsigned order) {
    return set_of_node(SET_SECURE + order, superslab_node(superslab));
}

/* Called by whoever has changed the word. Those of arenas are in no set. An arena that ends clears its number before it
 * reads the word, so one of the two adds the SuperSlab. */
static void add_to_set(size_t superslab, unsigned order) {
    if (likely(superslab_arena(superslab) == 0))
        bitset_add(&hak_region.sets, set_with(superslab, order), superslab);
}

/* Removes a member of the node's set; it goes to the set of its own node if it has a free span. */
static void check_hint(size_t superslab, unsigned node, unsigned order) {
    bitset_remove(&hak_region.sets, set_of_node(SET_SECURE + order, node), superslab);
    if (has_free(load_seq(&superslab_at(superslab)->secure), order))
        add_to_set(superslab, order);
}

static void secure_span_add(size_t superslab, uint64_t bits, unsigned order) {
    rmw_or(&superslab_at(superslab)->secure, bits); /* pairs with span_left_arena */
    add_to_set(superslab, order);
}

/* If the kernel has no mappings left, the whole SuperSlab is opened and does without guards. */
static bool open_span(size_t slot, unsigned order) {
    return os_commit(slot_address(slot), SLOT_BYTES << order) ||
           os_commit(slot_address(round_down(slot, SUPERSLAB_SLOTS)), SUPERSLAB_BYTES);
}
/* If the pages cannot be given back, the span is cleared, and stays resident and accessible. */
static void close_span(size_t slot, unsigned order) {
    char *at = slot_address(slot);
    if (superslab_at(slot / SUPERSLAB_SLOTS)->has_guards)
        os_forbid(at, SLOT_BYTES << order);
    make_zero(at, SLOT_BYTES << order);
}

static size_t take_span_in(struct heap *h, size_t superslab, unsigned order) {
    _Atomic uint64_t *word = &superslab_at(superslab)->secure;
    uint64_t w = load_acquire(word);
    while (has_free(w, order)) {
        uint64_t resident = w >> 16 & UINT16_MAX;
        unsigned index = random_bit(h, resident != 0 ? resident : w & UINT16_MAX);
        uint64_t bit = (uint64_t)1 << index;
        if (!rmw_cas(word, &w, w & ~(bit | bit << 16)))
            continue;
        size_t slot = slot_of_span(superslab, index, order);
        if (unlikely(!superslab_is_for(&h->client, superslab))) { /* found by an old hint: another's by now */
            secure_span_add(superslab, w & (bit | bit << 16), order);
            break;
        }
        if (resident != 0)
            rmw_add(&spans_all.resident_slots, -((int64_t)1 << order));
        else if (!open_span(slot, order)) {
            secure_span_add(superslab, bit, order);
            return BITSET_NONE;
        }
        return slot;
    }
    check_hint(superslab, superslab_node(superslab), order);
    return BITSET_NONE;
}

/* The slots outside of all spans in a SuperSlab of this order: never resident, so not counted against limits. */
static ptrdiff_t guard_slots(unsigned order) { return SUPERSLAB_SLOTS - (ptrdiff_t)(spans_of(order) << order); }

/* Returns the number of the new SuperSlab; BITSET_NONE: no memory. An arena does not count it, but the spans that it
 * takes: so the SuperSlab comes from the process, by the heap of the thread itself. */
static size_t cut_superslab(struct heap *h, unsigned c) {
    unsigned order = order_of_class(c);
    uint32_t arena = h->client.arena;
    bool zero;
    if (load_acquire(&span_table_made) == NULL && !reserve_table())
        return BITSET_NONE;
    if (arena != 0)
        h = load_relaxed(&h->arena.holder);
    size_t superslab = pool_take_run(&h->client, 1, SUPERSLAB_BYTES, &zero);
    if (superslab == BITSET_NONE)
        return BITSET_NONE;
    superslab_at(superslab)->has_guards = rmw_add(&spans_all.guarded_superslabs, 1) < GUARDED_MAX;
    char *at = slot_address(superslab * SUPERSLAB_SLOTS);
    if (!open_table(superslab, table_bytes_for(c)) || (!zero && !make_zero(at, SUPERSLAB_BYTES))) {
        rmw_add(&spans_all.guarded_superslabs, (uint32_t)-1);
        pool_give_run(&h->client, superslab, 1, !zero);
        return BITSET_NONE;
    }
    for (unsigned i = 0; i < SUPERSLAB_SLOTS; i++)
        slab_of_slot(superslab * SUPERSLAB_SLOTS + i)->single.is_shut = false;
    if (!superslab_at(superslab)->has_guards || !os_forbid(at, SUPERSLAB_BYTES)) {
        superslab_at(superslab)->has_guards = false;
        rmw_add(&spans_all.guarded_superslabs, (uint32_t)-1);
        os_commit(at, SUPERSLAB_BYTES); /* one mapping, with its neighbours */
    }
    account_count_resident(-guard_slots(order));
    if (arena != 0)
        arena_join(arena, superslab, 1);
    secure_span_add(superslab, WORD_ORDER(order) | low_bits(spans_of(order)), order);
    return superslab;
}

static size_t search_sets(struct heap *h, unsigned node, unsigned order) {
    size_t slot = BITSET_NONE;
    for (size_t at = 0; slot == BITSET_NONE; at++) {
        at = superslab_find(SET_SECURE + order, node, at);
        if (at == BITSET_NONE)
            break;
        if (unlikely(node != NODE_ANY && superslab_node(at) != node))
            check_hint(at, node, order); /* it was this node's once */
        else
            slot = take_span_in(h, at, order);
    }
    return slot;
}

static size_t search_arena(struct heap *h, unsigned order) {
    size_t slot = BITSET_NONE;
    uint32_t at = load_acquire(&arena_numbered(h->client.arena)->newest);
    for (; slot == BITSET_NONE && at != 0; at = arena_next(at))
        if (has_free(load_relaxed(&superslab_at(at - 1)->secure), order))
            slot = take_span_in(h, at - 1, order);
    return slot;
}

/* Cuts a SuperSlab if the search fails, and takes a span directly from it. Another search might miss the new member
 * while another thread is interrupted inside the set, and each failed search would cut one more SuperSlab. */
static size_t take_span(struct heap *h, unsigned c) {
    unsigned order = order_of_class(c);
    size_t slot = likely(h->client.arena == 0) ? search_sets(h, node_here(), order) : search_arena(h, order);
    for (size_t cut; slot == BITSET_NONE && (cut = cut_superslab(h, c)) != BITSET_NONE;) {
        slot = take_span_in(h, cut, order);
        if (slot == BITSET_NONE && has_free(load_acquire(&superslab_at(cut)->secure), order))
            return BITSET_NONE; /* some are free, but the kernel opens none */
    }
    if (slot == BITSET_NONE && hak_region.nodes > 1 && h->client.arena == 0)
        slot = search_sets(h, NODE_ANY, order);
    return slot;
}

/* For a span that has not been used, and for an arena's SuperSlab, whose free spans are not resident. */
static void unchecked(size_t slot, unsigned order) { (void)slot, (void)order; }

size_t span_take(struct heap *h, unsigned c) {
    unsigned order = order_of_class(c);
    if (!arena_admits(&h->client, (size_t)1 << order))
        return BITSET_NONE;
    size_t slot = take_span(h, c);
    if (slot != BITSET_NONE && open_table(slot / SUPERSLAB_SLOTS, table_bytes_for(c)))
        return slot;
    if (slot != BITSET_NONE)
        span_give(h, slot, order, true, unchecked);
    else
        arena_lost(h->client.arena, (size_t)1 << order);
    return BITSET_NONE;
}

/* Gives a SuperSlab back to the pool if none of its spans is in use. The caller found another one with room. */
static void give_superslab(struct heap *h, size_t superslab, unsigned order, span_visitor *check) {
    struct superslab *ss = superslab_at(superslab);
    char *at = slot_address(superslab * SUPERSLAB_SLOTS);
    uint64_t w = load_relaxed(&ss->secure);
    if (order >= SECURE_ORDERS || w >> 32 != (uint64_t)order + 1 || (uint16_t)w != low_bits(spans_of(order)) ||
        !rmw_cas(&ss->secure, &w, 0))
        return;
    for (uint64_t left = w >> 16 & UINT16_MAX; left != 0; left &= left - 1)
        check(slot_of_span(superslab, lowest_bit(left), order), order);
    os_forbid(at, SUPERSLAB_BYTES);                                        /* makes it one mapping again */
    os_advise(OS_PURGE, (char *)span_at(superslab, 0), table_row_bytes()); /* if refused, the row keeps its contents */
    unsigned resident = count_bits(w >> 16 & UINT16_MAX);
    rmw_add(&spans_all.resident_slots, -((int64_t)resident << order));
    if (ss->has_guards)
        rmw_add(&spans_all.guarded_superslabs, (uint32_t)-1);
    account_count_resident(guard_slots(order));
    pool_give_run(&h->client, superslab, 1, resident != 0);
}

/* Follows the pool's rule for EMPTY slots. */
size_t spans_resident_bound(size_t waiting, unsigned share) {
    size_t active = account_active_slots();
    active -= min_size(waiting, active);
    if (option(OPT_PURGE) == PURGE_NEVER)
        return PTRDIFF_MAX / SLOT_BYTES;
    if (option(OPT_PURGE) == PURGE_EAGER || limits_near())
        return 0;
    if (option(OPT_PURGE) == PURGE_LAZY)
        share = 1;
    return option(OPT_RETAIN_BYTES) / SLOT_BYTES + max_size(active / share, active * option(OPT_RETAIN_PERCENT) / 100);
}

/* Returns whether a span of the order may stay resident, and if so adds it to the total. */
static bool stays_resident(unsigned order) {
    int64_t slots = (int64_t)1 << order;
    if (rmw_add(&spans_all.resident_slots, slots) + slots <= (int64_t)spans_resident_bound(0, 100))
        return true;
    rmw_add(&spans_all.resident_slots, -slots);
    return false;
}

/* A span that was shut is closed like any span that does not stay resident; span_take opens it. No span of an arena
 * stays resident, and its SuperSlab stays the arena's. */
void span_give(struct heap *h, size_t slot, unsigned order, bool shut, span_visitor *check) {
    size_t superslab = slot / SUPERSLAB_SLOTS;
    uint64_t bit = (uint64_t)1 << span_index(slot, order);
    uint32_t arena = superslab_arena(superslab);
    if (!shut && arena == 0 && stays_resident(order)) {
        bit |= bit << 16;
    } else {
        if (!shut)
            check(slot, order);
        close_span(slot, order);
    }
    secure_span_add(superslab, bit, order);
    if (arena != 0) {
        arena_lost(arena, (size_t)1 << order);
        return;
    }
    size_t set = set_with(superslab, order), another = bitset_find(&hak_region.sets, set, 0);
    if (another == superslab)
        another = bitset_find(&hak_region.sets, set, superslab + 1);
    if (another != BITSET_NONE)
        give_superslab(h, superslab, order, check);
}

void span_left_arena(struct heap *h, size_t superslab) {
    uint64_t w = rmw_or(&superslab_at(superslab)->secure, 0); /* pairs with secure_span_add */
    if (w >> 32 == 0)
        return;
    unsigned order = (unsigned)(w >> 32) - 1;
    if (has_free(w, order))
        add_to_set(superslab, order);
    give_superslab(h, superslab, order, unchecked); /* an arena's free spans are not resident */
}

void span_shut(size_t slot, unsigned order) { os_forbid(slot_address(slot), SLOT_BYTES << order); }

size_t span_visit_free(span_visitor *visit, bool purge) {
    size_t slots = 0;
    for (unsigned order = 0; order < SECURE_ORDERS; order++)
        for (size_t at = 0; (at = superslab_find(SET_SECURE + order, NODE_ANY, at)) != BITSET_NONE; at++) {
            _Atomic uint64_t *word = &superslab_at(at)->secure;
            uint64_t w = load_acquire(word), seen = 0, left;
            while ((left = (w >> 16 & UINT16_MAX) & ~seen) != 0 && has_free(w, order)) {
                uint64_t bit = left & -left;
                if (!rmw_cas(word, &w, w & ~(bit | bit << 16)))
                    continue;
                size_t slot = slot_of_span(at, lowest_bit(bit), order);
                visit(slot, order);
                seen |= bit;
                if (purge) {
                    close_span(slot, order);
                    rmw_add(&spans_all.resident_slots, -((int64_t)1 << order));
                    slots += (size_t)1 << order;
                }
                secure_span_add(at, purge ? bit : bit | bit << 16, order);
                w = load_acquire(word);
            }
        }
    return slots;
}

size_t span_next(size_t from) {
    for (size_t at = from; at < load_acquire(&hak_region_use.superslabs) * SPANS_MAX; at++) {
        uint64_t w = load_acquire(&superslab_at(at / SPANS_MAX)->secure);
        unsigned order = (unsigned)(w >> 32), index = at % SPANS_MAX;
        if (order == 0 || index >= spans_of(order - 1))
            at |= SPANS_MAX - 1;
        else if (!(w >> index & 1))
            return at;
    }
    return BITSET_NONE;
}
