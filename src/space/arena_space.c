/* See arena_space.h. */
/* SPDX-License-Identifier: MIT */
#include "space/arena_space.h"
#include "base/text.h"

/* SuperSlabs that a search for a span looks at, before the arena gets a further one. The next search goes on behind
 * them. */
#define SEARCH_MAX 64

/* ---- SuperSlabs that come to an arena ---- */

/* Called before anybody has a block there. */
static void keep_from_dumps(size_t superslab) {
    static _Atomic bool said;
    if (!region_set_dumped(superslab, false) && !rmw_swap(&said, true))
        text_line("hakmem: core dumps may have blocks of an arena despite hak_arena_no_dump: the system refused");
}

void arena_join(uint32_t number, size_t first, size_t n) {
    struct arena *a = arena_numbered(number);
    rmw_add(&a->superslabs, n);
    for (size_t i = first; i < first + n; i++) {
        struct superslab *ss = superslab_at(i);
        for (unsigned slot = 0; slot < SUPERSLAB_SLOTS; slot++)
            store_relaxed(&ss->offer[slot], 0); /* old ones */
        store_relaxed(&ss->inbox_mask, 0);
        store_relaxed(&ss->arena_inbox_mask, 0);
        if (unlikely(load_relaxed(&a->is_undumped)))
            keep_from_dumps(i);
        store_relaxed(&ss->arena, number);
        uint32_t newest = load_relaxed(&a->newest);
        do
            store_relaxed(&ss->next_in_arena, newest);
        while (!rmw_cas(&a->newest, &newest, (uint32_t)i + 1)); /* pairs with newest_of, for next_in_arena */
    }
}

static uint32_t newest_of(const struct arena *a) { return load_acquire(&a->newest); }

/* Gives the client's arena a wholly free SuperSlab of the process, with memory of the node `from` or none, or a new
 * one. */
static size_t add_superslab(struct client *c, unsigned from) {
    size_t superslab = superslab_claim_free_run(c, from, 1, 1);
    while (superslab == BITSET_NONE && superslab_map_waiting())
        superslab = superslab_claim_free_run(c, from, 1, 1);
    if (superslab != BITSET_NONE) {
        count_add(&c->counters, COUNT_cache_popped, word_resident(load_relaxed(&superslab_at(superslab)->word)) != 0);
        arena_join(c->arena, superslab, 1);
        superslab_unclaim_run(superslab, 1);
        return superslab;
    }
    superslab = region_take_superslabs(1); /* in no set yet, so nobody else takes slots of it */
    if (superslab != BITSET_NONE)
        arena_join(c->arena, superslab, 1);
    return superslab;
}

/* ---- spans ---- */

static size_t take_in(size_t superslab, struct superslab_wish *wish) {
    bool is_free = word_active(load_relaxed(&superslab_at(superslab)->word)) == 0;
    return superslab_take(superslab, is_free, wish);
}

/* Searches the SuperSlabs of the arena's list from `from` up to, but not including, `to`. */
static size_t search(struct arena *a, uint32_t from, uint32_t to, unsigned *left, struct superslab_wish *wish) {
    for (uint32_t at = from; at != 0 && at != to && *left != 0; at = arena_next(at), (*left)--) {
        size_t slot = take_in(at - 1, wish);
        store_relaxed(&a->search_from, slot != BITSET_NONE ? at : arena_next(at));
        if (slot != BITSET_NONE)
            return slot;
    }
    return BITSET_NONE;
}

size_t arena_take_span(struct superslab_wish *wish) {
    struct arena *a = arena_numbered(wish->client->arena);
    uint32_t from = load_relaxed(&a->search_from);
    unsigned left = SEARCH_MAX;
    size_t slot = BITSET_NONE;
    if (load_relaxed(&a->superslabs) * SUPERSLAB_SLOTS >= load_relaxed(&a->slots) + wish->slots) {
        slot = search(a, from, 0, &left, wish);
        if (slot == BITSET_NONE)
            slot = search(a, newest_of(a), from, &left, wish);
    }
    while (slot == BITSET_NONE) {
        size_t superslab = add_superslab(wish->client, wish->from);
        if (superslab == BITSET_NONE)
            return BITSET_NONE;
        slot = take_in(superslab, wish);
    }
    return slot;
}

size_t arena_claim_run(struct client *c, unsigned from, size_t n, size_t align) {
    size_t base_number = hak_region.base / SUPERSLAB_BYTES;
    unsigned left = SEARCH_MAX;
    for (uint32_t at = newest_of(arena_numbered(c->arena)); at != 0 && left != 0; at = arena_next(at), left--)
        if ((at - 1 + base_number) % align == 0 && superslab_claim_run(c, c->arena, from, at - 1, n) == n)
            return at - 1;
    return BITSET_NONE;
}

/* ---- offers ---- */

/* The hint is cleared before the search and set again after a find. So an offer that is made meanwhile is found by this
 * search or leaves the hint set. */
static size_t arena_take_offer(struct arena *a, unsigned class_id) {
    if (!load_relaxed(&a->offered[class_id]))
        return BITSET_NONE;
    rmw_swap(&a->offered[class_id], false);
    for (uint32_t at = newest_of(a); at != 0; at = arena_next(at)) {
        unsigned slot = superslab_take_offer_in(superslab_at(at - 1), offer_tag(a->number, class_id));
        if (slot == SUPERSLAB_SLOTS)
            continue;
        store_seq(&a->offered[class_id], true);
        return (at - 1) * (size_t)SUPERSLAB_SLOTS + slot;
    }
    return BITSET_NONE;
}

static size_t arena_take_inbox_offer(struct arena *a, unsigned class_id) {
    for (uint32_t at = newest_of(a); at != 0; at = arena_next(at)) {
        size_t slot = superslab_take_inbox_offer_in(at - 1, &superslab_at(at - 1)->arena_inbox_mask, class_id);
        if (slot != BITSET_NONE)
            return slot;
    }
    store_relaxed(&a->filled_inbox[class_id], false); /* a lost hint is no harm: the owner empties the inbox */
    return BITSET_NONE;
}

/* Tries the thread's node first, then the others if the client may take something there. */
typedef size_t take_offer_call(struct client *c, unsigned class_id, unsigned node);
HAK_INLINE size_t take_near(struct client *c, unsigned class_id, take_offer_call *take) {
    unsigned nodes = hak_region.nodes, here = node_here();
    size_t slot = take(c, class_id, here);
    c->node = (uint8_t)here;
    for (unsigned i = 1; slot == BITSET_NONE && i < nodes && c->takes_anywhere; i++)
        slot = take(c, class_id, (here + i) % nodes);
    if (slot != BITSET_NONE)
        space_count_take(c, slot, here);
    return slot;
}

size_t space_take_offer(struct client *c, unsigned class_id) {
    if (likely(!c->is_choosy))
        return superslab_take_offer(c, class_id, 0);
    return c->arena != 0 ? arena_take_offer(arena_numbered(c->arena), class_id)
                         : take_near(c, class_id, superslab_take_offer);
}

size_t space_take_inbox_offer(struct client *c, unsigned class_id) {
    if (likely(!c->is_choosy))
        return superslab_take_inbox_offer(c, class_id, 0);
    return c->arena != 0 ? arena_take_inbox_offer(arena_numbered(c->arena), class_id)
                         : take_near(c, class_id, superslab_take_inbox_offer);
}

/* Asks for the node where the thread last took something. A thread that has moved since finds out when it next takes
 * something. */
static bool may_have(const struct client *c, unsigned set) {
    return !bitset_is_empty(&hak_region.sets, set_of_node(set, c->node)) ||
           (c->takes_anywhere && !superslab_set_is_empty(set));
}

bool space_may_offer_choosily(const struct client *c, unsigned class_id) {
    return c->arena != 0 ? load_relaxed(&arena_numbered(c->arena)->offered[class_id])
                         : may_have(c, SET_OFFER + class_id);
}

bool space_may_offer_inbox_choosily(const struct client *c, unsigned class_id) {
    return c->arena != 0 ? load_relaxed(&arena_numbered(c->arena)->filled_inbox[class_id])
                         : may_have(c, SET_INBOX + class_id);
}

size_t space_next_to_trim(const struct client *c, size_t slot, struct superslab_range in) {
    while ((slot = superslab_next_active_in(slot, in)) != BITSET_NONE && !space_may_trim(c, slot / SUPERSLAB_SLOTS))
        slot = round_up(slot + 1, SUPERSLAB_SLOTS);
    return slot;
}

size_t space_next_active(const struct client *c, size_t slot) {
    while ((slot = superslab_next_active(slot)) != BITSET_NONE && !superslab_is_for(c, slot / SUPERSLAB_SLOTS))
        slot = round_up(slot + 1, SUPERSLAB_SLOTS);
    return slot;
}
