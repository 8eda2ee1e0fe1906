/* See superslab.h. */
/* SPDX-License-Identifier: MIT */
#include "space/superslab.h"

#define SEARCH_MISSES_MAX                                                                                              \
    16 /* members whose runs might have fitted and did not, before a set of longer runs is tried */

/* ---- the word ---- */

/* Bit i: a run of `n` slots free in `free` begins at i. */
static uint32_t run_starts(uint32_t free, unsigned n) {
    for (unsigned have = 1; have < n;) {
        unsigned step = have < n - have ? have : n - have;
        free &= free >> step;
        have += step;
    }
    return free;
}

/* The bits of the sets, from SET_EMPTY on, to which a SuperSlab of the arena belongs when its word is `w`. */
static uint32_t sets_of(uint32_t arena, uint64_t w) {
    uint32_t active = word_active(w), resident = word_resident(w);
    if (unlikely(arena != 0))
        return (uint32_t)((resident & ~active) != 0) << (SET_ARENA_EMPTY - SET_EMPTY);
    if (active == 0)
        return resident != 0 ? 1u << (SET_CACHED - SET_EMPTY) : 1u << (SET_CLEAN - SET_EMPTY);
    _Static_assert(SET_ROOM_1 == SET_EMPTY + 1 && SET_ROOM_16 == SET_EMPTY + 5, "bits 1 to 5");
    uint32_t one = ~active; /* bit i: free slots begin at i: one, a run of two, … */
    uint32_t two = one & one >> 1, four = two & two >> 2, eight = four & four >> 4, sixteen = eight & eight >> 8;
    return (uint32_t)((resident & one) != 0) | (uint32_t)(one != 0) << 1 | (uint32_t)(two != 0) << 2 |
           (uint32_t)(four != 0) << 3 | (uint32_t)(eight != 0) << 4 | (uint32_t)(sixteen != 0) << 5;
}

/* ---- nodes ---- */

size_t superslab_find_of_nodes(unsigned set, unsigned node, size_t from) {
    if (node != NODE_ANY)
        return bitset_find(&hak_region.sets, set_of_node(set, node), from);
    size_t lowest = BITSET_NONE;
    for (node = 0; node < hak_region.nodes; node++)
        lowest = min_size(lowest, bitset_find(&hak_region.sets, set_of_node(set, node), from));
    return lowest;
}

size_t superslab_find_last_of_nodes(unsigned set, size_t below) {
    size_t highest = BITSET_NONE;
    for (unsigned node = 0; node < hak_region.nodes; node++) {
        size_t last = bitset_find_last(&hak_region.sets, set_of_node(set, node), below);
        if (highest == BITSET_NONE || (last != BITSET_NONE && last > highest))
            highest = last;
    }
    return highest;
}

/* ---- sets ---- */

HAK_INLINE void add_to(unsigned set, size_t superslab) {
    /* The node's read pairs with begin_use. */
    bitset_add(&hak_region.sets, set_of_node(set, PROVEN(node_look, load_seq(&superslab_at(superslab)->node))),
               superslab);
}

static bool is_cached(size_t superslab) {
    return word_is_cached(load_seq(&superslab_at(superslab)->word)) && superslab_arena(superslab) == 0;
}

/* `arena` is read after the word was changed, and an arena that ends clears `arena` before it changes the word: so one
 * of the two adds the SuperSlab to the sets it belongs to then. */
void superslab_changed(size_t superslab, uint64_t before, uint64_t after) {
    uint32_t arena = superslab_arena(superslab);
    /* The number of cached SuperSlabs is the number of marks, is_counted. Whoever changes the word sets the mark and
     * then reads the word again, as with hints: so the last one leaves the right mark. */
    bool counts = word_is_cached(before) != word_is_cached(after) && likely(arena == 0);
    while (counts) {
        bool is = is_cached(superslab);
        if (rmw_swap(&superslab_at(superslab)->is_counted, is) != is)
            account_count_cached(is ? 1 : -1);
        counts = PROVEN(count_look, is_cached(superslab) != is);
    }
    for (uint32_t news = sets_of(arena, after) & ~sets_of(arena, before); news != 0; news &= news - 1)
        add_to(SET_EMPTY + lowest_bit(news), superslab);
}

static bool belongs_to(unsigned set, size_t superslab, uint64_t w, uint32_t mask) {
    return set >= SET_LAZY ? mask != 0 : sets_of(superslab_arena(superslab), w) >> (set - SET_EMPTY) & 1;
}

void superslab_check_hint_of(unsigned set, unsigned node, size_t superslab) {
    if (!bitset_has(&hak_region.sets, set_of_node(set, node), superslab))
        return;
    const struct superslab *ss = superslab_at(superslab);
    bool changes = set == SET_CHANGED;
    uint32_t mask = load_relaxed(changes ? &ss->changed : &ss->lazy);
    if (belongs_to(set, superslab, load_relaxed(&ss->word), mask) && superslab_node(superslab) == node)
        return;
    bitset_remove(&hak_region.sets, set_of_node(set, node), superslab);
    mask = changes ? PROVEN(changed_look, load_seq(&ss->changed)) : PROVEN(lazy_look, load_seq(&ss->lazy));
    if (belongs_to(set, superslab, PROVEN(hint_look, load_seq(&ss->word)), mask))
        add_to(set, superslab);
}

void superslab_check_hints_of_nodes(unsigned set, size_t superslab) {
    for (unsigned node = 0; node < hak_region.nodes; node++)
        superslab_check_hint_of(set, node, superslab);
}

/* ---- LAZY slots ---- */

void superslab_begin_lazy(size_t superslab, uint32_t slots) {
    if (slots == 0)
        return;
    store_relaxed(&superslab_at(superslab)->lazy_ms, account_clock_ms());
    PROVEN(lazy_begin, rmw_or(&superslab_at(superslab)->lazy, slots));
    account_count_lazy(count_bits(slots));
    add_to(SET_LAZY, superslab);
}

void superslab_end_lazy(size_t superslab, uint32_t lazy) {
    if (lazy == 0)
        return;
    PROVEN(lazy_end, rmw_and(&superslab_at(superslab)->lazy, ~lazy));
    account_count_lazy(-(ptrdiff_t)count_bits(lazy));
}

/* ---- slabs that changed ---- */

void superslab_note_changed_anew(size_t slot) {
    uint32_t bit = 1u << slot % SUPERSLAB_SLOTS;
    if (rmw_or(&superslab_at(slot / SUPERSLAB_SLOTS)->changed, bit) & bit)
        return;
    account_count_changed(1);
    add_to(SET_CHANGED, slot / SUPERSLAB_SLOTS);
}

void superslab_forget_changed(size_t superslab, uint32_t slots) {
    if (!(load_relaxed(&superslab_at(superslab)->changed) & slots))
        return;
    uint32_t before = rmw_and(&superslab_at(superslab)->changed, ~slots);
    account_count_changed(-(ptrdiff_t)count_bits(before & slots));
}

size_t superslab_next_changed(size_t slot) {
    for (size_t at; (at = superslab_find(SET_CHANGED, NODE_ANY, slot / SUPERSLAB_SLOTS)) != BITSET_NONE;
         slot = (at + 1) * SUPERSLAB_SLOTS) {
        uint32_t slots = load_relaxed(&superslab_at(at)->changed);
        if (at == slot / SUPERSLAB_SLOTS)
            slots &= (uint32_t)(ALL_SLOTS << slot % SUPERSLAB_SLOTS);
        if (slots != 0)
            return at * SUPERSLAB_SLOTS + lowest_bit(slots);
        superslab_check_hint(SET_CHANGED, at);
    }
    return BITSET_NONE;
}

/* ---- taking a span ---- */

/* Where in the SuperSlab the span should begin: EMPTY slots come before LAZY ones and these before others, slots that
 * had the same class before others, the lowest first. 32: the span does not fit. */
static unsigned choose_start(const struct superslab *ss, uint64_t w, const struct superslab_wish *wish) {
    uint32_t aligned = likely(wish->align == 1)         ? UINT32_MAX
                       : wish->align >= SUPERSLAB_SLOTS ? 1
                                                        : UINT32_MAX / ((1u << wish->align) - 1);
    uint32_t empty = run_starts(word_resident(w) & ~word_active(w), wish->slots) & aligned;
    if (empty != 0 && wish->tag != 0 && wish->slots == 1)
        for (uint32_t left = empty; left != 0; left &= left - 1)
            if (load_relaxed(&ss->last_class[lowest_bit(left)]) == wish->tag)
                return lowest_bit(left);
    if (empty == 0 && load_relaxed(&ss->lazy) != 0) /* a hint here */
        empty = run_starts((word_resident(w) | load_relaxed(&ss->lazy)) & ~word_active(w), wish->slots) & aligned;
    if (empty == 0)
        empty = run_starts(~word_active(w), wish->slots) & aligned;
    return empty != 0 ? lowest_bit(empty) : SUPERSLAB_SLOTS;
}

/* Returns the slots of the spans that are taken besides the first one. */
static uint32_t choose_further(uint64_t w, uint32_t first, struct superslab_wish *wish) {
    uint32_t empty = word_resident(w) & ~word_active(w), further = 0;
    uint32_t starts = (first & ~empty) == 0 ? run_starts(empty & ~first, wish->slots) : 0;
    for (; wish->spans <= wish->further && starts != 0; wish->spans++) {
        uint32_t span = span_mask(lowest_bit(starts), wish->slots);
        further |= span;
        starts &= ~span;
    }
    return further;
}

/* The SuperSlab was wholly free and is in use now. If it has no memory yet, it comes to the taker's node. Whoever has
 * changed the word meanwhile may have added the SuperSlab to the sets of the old node. */
static void begin_use(size_t superslab, uint64_t before, uint64_t after, unsigned node) {
    struct superslab *ss = superslab_at(superslab);
    if (unlikely(superslab_node(superslab) != node) && word_resident(before) == 0) {
        store_seq(&ss->node, (uint8_t)node);
        after = PROVEN(node_word, load_seq(&ss->word)); /* pairs with add_to */
    }
    superslab_changed(superslab, before, after);
}

size_t superslab_take(size_t superslab, bool whole, struct superslab_wish *wish) {
    struct superslab *ss = superslab_at(superslab);
    uint64_t w = load_acquire(&ss->word);
    for (;;) {
        if ((word_active(w) == 0) != whole || unlikely(!superslab_is_of_node(superslab, w, wish->from)))
            return BITSET_NONE;
        unsigned start = choose_start(ss, w, wish);
        if (start == SUPERSLAB_SLOTS)
            return BITSET_NONE;
        uint32_t mask = span_mask(start, wish->slots);
        wish->spans = 1;
        if (wish->further != 0)
            mask |= choose_further(w, mask, wish);
        uint64_t taken = w | word_of(mask, mask);
        if (PROVEN(take, rmw_cas(&ss->word, &w, taken))) { /* pairs with the give that made the slots free: records */
            wish->taken = mask;
            wish->was_resident = word_resident(w) & mask;
            wish->was_cached = word_is_cached(w);
            if (whole)
                begin_use(superslab, w, taken, wish->node);
            if (likely(superslab_is_for(wish->client, superslab))) /* it cannot change while we have a slot of it */
                return superslab * SUPERSLAB_SLOTS + start;
            superslab_put_back(superslab, mask,
                               wish->was_resident); /* an old hint led here: it is another arena's by now */
            return BITSET_NONE;
        }
        count(&wish->client->counters, COUNT_pool_retries);
        wish->client->start = (uint32_t)superslab + 1; /* until the next settling this heap looks elsewhere first */
    }
}

/* Searches one set of a node from `from` up and then from its beginning, until `misses_max` members were of no use.
 * Most heaps have no more than 64 SuperSlabs, so their word is read first, without the levels above. */
static size_t search(unsigned set, unsigned node, size_t from, bool whole, struct superslab_wish *wish,
                     size_t misses_max) {
    size_t misses = 0;
    for (;; from = 0) {
        for (size_t at = from; misses < misses_max; at++, misses++) {
            bool low = likely(hak_region.nodes == 1) && at < 64;
            uint64_t word = low ? load_acquire(bitset_word(&hak_region.sets, set, 0, 0)) >> at : 0;
            at = word != 0 ? at + lowest_bit(word) : superslab_find(set, node, at);
            if (at == BITSET_NONE)
                break;
            size_t slot = superslab_take(at, whole, wish);
            if (slot != BITSET_NONE)
                return slot;
            superslab_check_hint(set, at);
        }
        if (from == 0)
            return BITSET_NONE;
    }
}

size_t superslab_take_in_use(struct superslab_wish *wish) {
    if (wish->slots == 1) {
        size_t slot = search(SET_EMPTY, wish->from, wish->client->start, false, wish, SIZE_MAX);
        if (slot == BITSET_NONE)
            slot = search(SET_LAZY, wish->from, wish->client->start, false, wish, SEARCH_MISSES_MAX);
        return slot != BITSET_NONE ? slot : search(SET_ROOM_1, wish->from, wish->client->start, false, wish, SIZE_MAX);
    }
    unsigned min = highest_bit(wish->slots); /* 2^min <= slots: members may just fit */
    unsigned fitting_order = highest_bit(wish->slots + wish->align - 1 - 1) + 1;
    size_t slot = min <= 4 ? search(SET_ROOM_1 + min, wish->from, 0, false, wish, SEARCH_MISSES_MAX) : BITSET_NONE;
    if (slot != BITSET_NONE || fitting_order > 4 || fitting_order == min)
        return slot;
    return search(SET_ROOM_1 + fitting_order, wish->from, wish->client->start, false, wish, SIZE_MAX);
}

size_t superslab_take_cached(struct superslab_wish *wish) {
    return search(SET_CACHED, wish->from, wish->client->start, true, wish, SIZE_MAX);
}
size_t superslab_take_clean(struct superslab_wish *wish) {
    size_t slot = search(SET_LAZY, wish->from, wish->client->start, true, wish, SEARCH_MISSES_MAX);
    return slot != BITSET_NONE ? slot : search(SET_CLEAN, NODE_ANY, wish->client->start, true, wish, SIZE_MAX);
}

bool superslab_extend(size_t slot, unsigned slots, unsigned wanted, unsigned *was_resident) {
    unsigned start = (unsigned)(slot % SUPERSLAB_SLOTS);
    if (start + wanted > SUPERSLAB_SLOTS)
        return false;
    uint32_t mask = span_mask(start + slots, wanted - slots);
    struct superslab *ss = superslab_at(slot / SUPERSLAB_SLOTS);
    uint64_t w = load_acquire(&ss->word);
    do {
        if (word_active(w) & mask)
            return false;
    } while (!rmw_cas(&ss->word, &w, w | word_of(mask, mask)));
    *was_resident = word_resident(w) & mask;
    return true;
}

/* ---- giving a span ---- */

void superslab_put_back(size_t superslab, uint32_t taken, uint32_t was_resident) {
    uint64_t gone = word_of(taken, taken & ~was_resident);
    uint64_t before = rmw_and(&superslab_at(superslab)->word, ~gone);
    superslab_changed(superslab, before, before & ~gone);
}

void superslab_note_class(size_t superslab, uint32_t slots, unsigned tag) {
    for (uint32_t left = tag != 0 ? slots : 0; left != 0; left &= left - 1)
        store_relaxed(&superslab_at(superslab)->last_class[lowest_bit(left)], (uint8_t)tag);
}

uint64_t superslab_give(size_t superslab, uint32_t slots, unsigned tag, bool kept) {
    struct superslab *ss = superslab_at(superslab);
    superslab_note_class(superslab, slots, tag);
    store_relaxed(&ss->changed_ms, account_clock_ms());
    superslab_forget_changed(superslab, slots);
    uint64_t mask = word_of(slots, kept ? 0 : slots);
    uint64_t before =
        PROVEN(give, rmw_and(&ss->word, ~mask)); /* pairs with superslab_take: the next taker sees our records */
    HAK_ASSERT((before & mask) == mask);
    superslab_changed(superslab, before, before & ~mask);
    return before & ~mask;
}

/* ---- runs of whole SuperSlabs ---- */

/* A SuperSlab is in these sets only after its first owner gave it back. One that region_take_superslabs is just handing
 * out has a word of 0 too, and is not free. */
static bool was_given_back(size_t superslab) {
    unsigned node = superslab_node(superslab);
    return bitset_has(&hak_region.sets, set_of_node(SET_CLEAN, node), superslab) ||
           bitset_has(&hak_region.sets, set_of_node(SET_CACHED, node), superslab);
}

bool superslab_is_free_slot(size_t slot, uint64_t w) {
    return !(word_active(w) >> slot % SUPERSLAB_SLOTS & 1) && superslab_arena(slot / SUPERSLAB_SLOTS) == 0 &&
           (word_active(w) != 0 || was_given_back(slot / SUPERSLAB_SLOTS));
}

bool superslab_take_slot(size_t slot, struct client *c, unsigned node, bool *resident, bool *cached) {
    size_t superslab = slot / SUPERSLAB_SLOTS;
    uint32_t mask = span_mask((unsigned)(slot % SUPERSLAB_SLOTS), 1);
    struct superslab *ss = superslab_at(superslab);
    uint64_t w = load_acquire(&ss->word);
    do {
        if (!superslab_is_free_slot(slot, w))
            return false;
    } while (!rmw_cas(&ss->word, &w, w | word_of(mask, mask)));
    *resident = word_resident(w) & mask;
    *cached = word_is_cached(w);
    if (word_active(w) == 0)
        begin_use(superslab, w, w | word_of(mask, mask), node);
    if (likely(superslab_is_for(c, superslab))) /* it cannot change while we have a slot of it */
        return true;
    superslab_put_back(superslab, mask, *resident ? mask : 0);
    return false;
}

void superslab_unclaim_run(size_t first, size_t n) {
    for (size_t i = 0; i < n; i++) {
        uint64_t before = rmw_and(&superslab_at(first + i)->word, ~(uint64_t)ALL_SLOTS);
        superslab_changed(first + i, before, before & ~(uint64_t)ALL_SLOTS);
    }
}

/* Resident bits stay, so that a failed claim can be undone. */
size_t superslab_claim_run(struct client *c, uint32_t arena, unsigned from, size_t first, size_t n) {
    size_t limit = load_acquire(&hak_region_use.superslabs);
    for (size_t i = 0; i < n; i++) {
        if (first + i >= limit || superslab_arena(first + i) != arena || (arena == 0 && !was_given_back(first + i)))
            return i;
        uint64_t w = load_relaxed(&superslab_at(first + i)->word);
        if (word_active(w) != 0 || !superslab_is_of_node(first + i, w, from))
            return i;
    }
    for (size_t i = 0; i < n; i++) {
        _Atomic uint64_t *word = &superslab_at(first + i)->word;
        uint64_t w = load_relaxed(word);
        while (word_active(w) == 0 && !rmw_cas(word, &w, w | ALL_SLOTS))
            count(&c->counters, COUNT_pool_retries);
        if (word_active(w) == 0) {
            superslab_changed(first + i, w, w | ALL_SLOTS);
            if (likely(superslab_arena(first + i) == arena && superslab_is_of_node(first + i, w, from)))
                continue;
            superslab_unclaim_run(first + i, 1); /* another's by now */
        }
        superslab_unclaim_run(first, i);
        return i;
    }
    return n;
}

static size_t next_free(unsigned node, size_t from) {
    if (from >= load_acquire(&hak_region_use.superslabs))
        return BITSET_NONE; /* no row may exist for it yet */
    return min_size(superslab_find(SET_CACHED, node, from), superslab_find(SET_CLEAN, NODE_ANY, from));
}

size_t superslab_claim_free_run(struct client *c, unsigned from, size_t n, size_t align) {
    size_t base_number = hak_region.base / SUPERSLAB_BYTES;
    for (size_t at = next_free(from, 0); at != BITSET_NONE;) {
        size_t first = round_up(at + base_number, align) - base_number;
        size_t free = superslab_claim_run(c, 0, from, first, n);
        if (free == n)
            return first;
        if (free == 0) {
            superslab_check_hint(SET_CACHED, at);
            superslab_check_hint(SET_CLEAN, at);
        }
        at = next_free(from, first + free + 1);
    }
    return BITSET_NONE;
}

struct run_contents superslab_run_contents(size_t first, size_t n) {
    struct run_contents run = {0};
    for (size_t i = first; i < first + n; i++) {
        unsigned empty = count_bits(word_resident(load_relaxed(&superslab_at(i)->word)));
        run.empty += empty;
        run.cached += empty != 0;
        uint32_t lazy = superslab_lazy_in(i, ALL_SLOTS);
        run.lazy += count_bits(lazy);
        run.lazy_ms = lazy != 0 ? load_relaxed(&superslab_at(i)->lazy_ms) : run.lazy_ms;
    }
    return run;
}

void superslab_occupy_run(size_t first, size_t n, unsigned node) {
    for (size_t i = 0; i < n; i++) {
        superslab_end_lazy(first + i, superslab_lazy_in(first + i, ALL_SLOTS));
        struct superslab *ss = superslab_at(first + i);
        ss->in_run = true;
        if (word_resident(load_relaxed(&ss->word)) == 0) /* all slots are ours: nobody adds it to a set now */
            store_relaxed(&ss->node, (uint8_t)node);
        rmw_or(&ss->word, word_of(0, ALL_SLOTS));
    }
}

void superslab_begin_run(size_t first, size_t n, unsigned node) {
    for (size_t i = 0; i < n; i++) {
        superslab_at(first + i)->in_run = true;
        store_relaxed(&superslab_at(first + i)->node, (uint8_t)node);
        store_release(&superslab_at(first + i)->word, word_of(ALL_SLOTS, ALL_SLOTS));
    }
}

void superslab_give_run(size_t first, size_t n, bool resident) {
    uint64_t after = resident ? word_of(0, ALL_SLOTS) : 0;
    for (size_t i = 0; i < n; i++) {
        struct superslab *ss = superslab_at(first + i);
        store_relaxed(&ss->changed_ms, account_clock_ms());
        ss->in_run = false;
        /* The run was ours alone until now; pairs with superslab_claim_run and superslab_take. A swap and not a store,
         * because the run may have belonged to an arena that ends meanwhile: see superslab_changed. */
        rmw_swap(&ss->word, after);
        superslab_changed(first + i, word_of(ALL_SLOTS, ALL_SLOTS), after);
    }
}

void superslab_give_new(size_t first, size_t n) {
    for (size_t i = 0; i < n; i++) {
        superslab_at(first + i)->in_run = false;
        store_seq(&superslab_at(first + i)->word, 0);
        superslab_changed(first + i, ALL_SLOTS, 0);
    }
}

void superslab_put_unmapped(size_t first, size_t n) {
    for (size_t i = first; i < first + n; i++) {
        superslab_at(i)->in_run = false;
        superslab_end_lazy(i, superslab_lazy_in(i, ALL_SLOTS));
    }
    region_put_unmapped(first, n);
}

bool superslab_map_waiting(void) {
    size_t superslab = region_map_unmapped();
    if (superslab != BITSET_NONE)
        superslab_give_new(superslab, 1);
    return superslab != BITSET_NONE;
}

bool superslab_map_slots(unsigned slots, size_t *superslab) {
    uint64_t mapped = region_map_slots(slots, superslab);
    if (mapped == 0)
        return false;
    uint64_t before = rmw_and(&superslab_at(*superslab)->word, ~mapped); /* pairs with superslab_take */
    superslab_changed(*superslab, before, before & ~mapped);
    return true;
}

/* ---- slabs on offer ---- */

/* An arena's offer is no offer to the process: a search for the process that follows an old hint must not get a slab
 * that may end with its arena. */
void superslab_offer(size_t slot, unsigned class_id) {
    uint32_t arena = superslab_arena(slot / SUPERSLAB_SLOTS);
    /* A swap and not a store, so that we see what the maker of the overwritten offer wrote before (mid_offer). */
    rmw_swap(&superslab_at(slot / SUPERSLAB_SLOTS)->offer[slot % SUPERSLAB_SLOTS], offer_tag(arena, class_id));
    if (unlikely(arena != 0))
        store_seq(&arena_numbered(arena)->offered[class_id], true); /* pairs with space_take_offer */
    else
        add_to(SET_OFFER + class_id, slot / SUPERSLAB_SLOTS);
}

unsigned superslab_take_offer_in(struct superslab *ss, uint8_t offer) {
    for (unsigned i = 0; i < SUPERSLAB_SLOTS; i++) {
        uint8_t tag = offer;
        if (load_seq(&ss->offer[i]) == tag && rmw_cas(&ss->offer[i], &tag, 0))
            return i;
    }
    return SUPERSLAB_SLOTS;
}

/* A slot of the SuperSlab that was on offer for the class a moment ago; 32: there was none. Eight bytes are compared at
 * a time. */
HAK_READS_WHOLE_WORDS static unsigned guess_offer(struct superslab *ss, unsigned class_id) {
    const uint64_t ones = UINT64_MAX / UINT8_MAX;
    for (unsigned i = 0; i < SUPERSLAB_SLOTS; i += 8) {
        uint64_t differ = *(const volatile uint64_t *)(const volatile void *)&ss->offer[i] ^ ones * (class_id + 1);
        uint64_t equal =
            (differ - ones) & ~differ & ones << 7; /* the lowest bit is right, those above it need not be */
        if (equal != 0)
            return i + lowest_bit(equal) / 8;
    }
    return SUPERSLAB_SLOTS;
}

size_t superslab_take_offer(struct client *c, unsigned class_id, unsigned node) {
    size_t set = set_of_node(SET_OFFER + class_id, node);
    for (size_t at = 0;; at++) {
        at = bitset_find(&hak_region.sets, set, at);
        if (at == BITSET_NONE)
            return BITSET_NONE;
        struct superslab *ss = superslab_at(at);
        uint8_t offer = offer_tag(0, class_id), tag = offer;
        bool is_near = superslab_node(at) == node, is_ours = is_near && superslab_arena(at) == 0;
        unsigned slot = is_ours ? guess_offer(ss, class_id) : SUPERSLAB_SLOTS;
        if (slot != SUPERSLAB_SLOTS && !rmw_cas(&ss->offer[slot], &tag, 0)) {
            count(&c->counters, COUNT_offer_retries);
            slot = SUPERSLAB_SLOTS;
        }
        if (slot == SUPERSLAB_SLOTS) { /* the bytes are the truth about offers: remove the hint, then look again */
            bitset_remove(&hak_region.sets, set, at);
            slot = is_ours ? superslab_take_offer_in(ss, offer) : SUPERSLAB_SLOTS;
            if (slot != SUPERSLAB_SLOTS || !is_near) /* to the set of its own node, which may be this one by now */
                add_to(SET_OFFER + class_id, at);
            if (slot == SUPERSLAB_SLOTS)
                continue;
        }
        return at * SUPERSLAB_SLOTS + slot;
    }
}

/* Finds an offer of the process. A SuperSlab in the set may be an arena's by now: then it has that arena's offers. */
static size_t offer_from(unsigned class_id, unsigned node, size_t slot) {
    for (size_t at; (at = superslab_find(SET_OFFER + class_id, node, slot / SUPERSLAB_SLOTS)) != BITSET_NONE;
         slot = (at + 1) * SUPERSLAB_SLOTS)
        for (slot = max_size(slot, at * SUPERSLAB_SLOTS); slot < (at + 1) * SUPERSLAB_SLOTS; slot++)
            if (load_relaxed(&superslab_at(at)->offer[slot % SUPERSLAB_SLOTS]) == offer_tag(0, class_id))
                return slot;
    return BITSET_NONE;
}

size_t superslab_next_offer(unsigned class_id, size_t slot) {
    unsigned node = node_here();
    size_t found = offer_from(class_id, node, slot);
    return found == BITSET_NONE && slot != 0 ? offer_from(class_id, node, 0) : found;
}

void superslab_offer_inbox(size_t slot, unsigned class_id) {
    struct superslab *ss = superslab_at(slot / SUPERSLAB_SLOTS);
    uint32_t bit = 1u << slot % SUPERSLAB_SLOTS, arena = superslab_arena(slot / SUPERSLAB_SLOTS);
    _Atomic uint32_t *mask = arena == 0 ? &ss->inbox_mask : &ss->arena_inbox_mask;
    if (!(load_relaxed(mask) & bit))
        rmw_or(mask, bit);
    if (unlikely(arena != 0))
        store_relaxed(&arena_numbered(arena)->filled_inbox[class_id], true);
    else
        add_to(SET_INBOX + class_id, slot / SUPERSLAB_SLOTS);
}

size_t superslab_take_inbox_offer_in(size_t superslab, _Atomic uint32_t *slots, unsigned class_id) {
    for (uint32_t mask = load_relaxed(slots); mask != 0; mask &= mask - 1) {
        unsigned i = lowest_bit(mask);
        const struct slab *s = slab_of_slot(superslab * SUPERSLAB_SLOTS + i);
        if (slab_class(s) == class_id && (rmw_and(slots, ~(1u << i)) >> i & 1))
            return superslab * SUPERSLAB_SLOTS + i;
    }
    return BITSET_NONE;
}

size_t superslab_take_inbox_offer(struct client *c, unsigned class_id, unsigned node) {
    size_t set = set_of_node(SET_INBOX + class_id, node);
    (void)c;
    for (size_t at = 0;; at++) {
        at = bitset_find(&hak_region.sets, set, at);
        if (at == BITSET_NONE)
            return BITSET_NONE;
        bool is_near = superslab_node(at) == node;
        size_t slot =
            is_near ? superslab_take_inbox_offer_in(at, &superslab_at(at)->inbox_mask, class_id) : BITSET_NONE;
        if (slot != BITSET_NONE)
            return slot;
        /* Whoever set a bit since we looked adds the SuperSlab to the set after that. If the offer is lost
         * nevertheless, the owner of the slab still empties the inbox. */
        bitset_remove(&hak_region.sets, set, at);
        if (!is_near)
            add_to(SET_INBOX + class_id, at);
    }
}

/* ---- walks ---- */

size_t superslab_next_active(size_t slot) { return superslab_next_active_in(slot, SUPERSLABS_ALL); }

size_t superslab_next_active_in(size_t slot, struct superslab_range in) {
    size_t superslabs = min_size(load_acquire(&hak_region_use.superslabs), in.end);
    for (size_t at = max_size(slot / SUPERSLAB_SLOTS, in.first); at < superslabs; at++) {
        uint64_t w = load_relaxed(&superslab_at(at)->word);
        uint32_t active = word_active(w) & word_resident(w); /* what is being purged or has no memory is not resident */
        if (at == slot / SUPERSLAB_SLOTS)
            active &= (uint32_t)(ALL_SLOTS << slot % SUPERSLAB_SLOTS);
        if (active != 0)
            return at * SUPERSLAB_SLOTS + lowest_bit(active);
    }
    return BITSET_NONE;
}

void superslab_count(struct superslab_totals *totals) {
    *totals = (struct superslab_totals){0};
    size_t n = load_acquire(&hak_region_use.superslabs);
    for (size_t i = 0; i < n; i++) {
        uint64_t w = load_relaxed(&superslab_at(i)->word);
        totals->active_slots += count_bits(word_active(w) & word_resident(w));
        totals->empty_slots += count_bits(word_resident(w) & ~word_active(w));
        totals->lazy_slots += count_bits(load_relaxed(&superslab_at(i)->lazy));
        totals->superslabs += (word_active(w) & word_resident(w)) != 0;
    }
    totals->superslabs_peak = n;
}

size_t superslab_slots_of_node(unsigned node) {
    size_t n = load_acquire(&hak_region_use.superslabs), slots = 0;
    for (size_t i = 0; i < n; i++)
        if (superslab_node(i) == node)
            slots += count_bits(word_resident(load_relaxed(&superslab_at(i)->word)));
    return slots;
}
