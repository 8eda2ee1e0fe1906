/* See pool.h. */
/* SPDX-License-Identifier: MIT */
#include "pool/pool.h"
#include "base/log.h"
#include "base/os.h"
#include "pool/huge_pages.h"
#include "pool/limits.h"
#include "pool/retain.h"
#include "space/arena_space.h"

#define SETTLE_SLOTS 8 /* slots that a client takes or gives before it settles: 512 KiB */

/* For the log. */
static uintptr_t address_of(size_t superslab) { return (uintptr_t)slot_address(superslab * SUPERSLAB_SLOTS); }

/* ---- spans ---- */

/* Counts slots that were taken; `had`: how many of them were EMPTY and LAZY. False: HARD_LIMIT does not let the others
 * become resident, or the arena has reached its limit; then the caller puts all back. */
static bool admit(struct client *c, size_t slots, struct run_contents had, size_t new_superslabs) {
    size_t empty = had.empty, unused = slots - empty;
    bool counted = unused != 0 && limits_set(); /* else they are counted when this client settles */
    if (!arena_admits(c, slots))
        return false;
    if (counted && !limits_admit(c, unused, new_superslabs)) {
        arena_lost(c->arena, slots);
        return false;
    }
    account_change(c, (int32_t)(counted ? empty : slots), -(int32_t)empty);
    c->since.unused_taken += (uint32_t)unused;
    c->since.lazy_taken += (uint32_t)had.lazy;
    c->since.soon_taken += (uint32_t)(retain_is_soon(had.lazy_ms) ? had.lazy : 0);
    if (c->since.active >= SETTLE_SLOTS || c->since.empty <= -SETTLE_SLOTS ||
        (counted && c->since.unused_taken >= SETTLE_SLOTS))
        retain_settle(c);
    return true;
}

/* New memory for a whole SuperSlab was refused: takes a span from one that gets memory in part, on any node. */
static size_t take_in_part(struct superslab_wish *wish) {
    size_t slot = BITSET_NONE, superslab;
    unsigned from = wish->from;
    for (wish->from = NODE_ANY; slot == BITSET_NONE && superslab_map_slots(wish->slots, &superslab);)
        slot = superslab_take_in_use(wish);
    wish->from = from;
    return slot;
}

/* Stage 3: a cached, a clean, a new SuperSlab. */
static size_t take_wholly_free(struct superslab_wish *wish) {
    size_t slot = superslab_take_cached(wish);
    bool from_cache = slot != BITSET_NONE;
    LOG(LOG_LRU, "[LRU_POP] class=%s (%s) (cache_size=%u/%u)", log_class(wish->tag).text, from_cache ? "hit" : "miss",
        (uint64_t)account_cached_superslabs(), option(OPT_SS_CACHE_COUNT));
    if (from_cache)
        return slot;
    slot = superslab_take_clean(wish);
    if (slot == BITSET_NONE && wish->from == NODE_ANY)
        return BITSET_NONE; /* new memory was refused before */
    while (slot == BITSET_NONE && superslab_map_waiting())
        slot = superslab_take_clean(wish);
    enum contents contents = superslab_is_touched_whole(wish->tag) ? CONTENTS_TOUCHED : CONTENTS_SPANS;
    if (slot != BITSET_NONE && !wish->was_cached && load_relaxed(&superslab_at(slot / SUPERSLAB_SLOTS)->lazy) == 0 &&
        !huge_pages_wanted_back(slot, wish->slots, contents)) {
        superslab_put_unmapped(slot / SUPERSLAB_SLOTS, 1);
        slot = BITSET_NONE;
    }
    while (slot == BITSET_NONE) {
        size_t superslab = region_take_superslabs(1);
        if (superslab == BITSET_NONE)
            return take_in_part(wish);
        if (!huge_pages_consider(superslab, 1, contents)) {
            superslab_put_unmapped(superslab, 1);
            return BITSET_NONE;
        }
        slot = superslab_take(superslab, true, wish);
    }
    wish->client->due.chores |= CHORE_DRAIN_CACHES;
    return slot;
}

/* Near a limit, what is free on any node is better than new memory. */
static void note_among_nodes(struct client *c, size_t slot, unsigned here, bool anywhere) {
    c->node = (uint8_t)here;
    c->takes_anywhere = anywhere || limits_near();
    if (slot != BITSET_NONE)
        space_count_take(c, slot, here);
}
/* Notes for the client which node's memory it took, or that there was none. */
static void note_node(struct client *c, size_t slot, unsigned here, bool anywhere) {
    likely(hak_region.nodes == 1) ? (void)0 : note_among_nodes(c, slot, here, anywhere);
}
/* Whether the search goes on, among the SuperSlabs of all nodes. */
static bool goes_on(const struct superslab_wish *wish) { return hak_region.nodes > 1 && wish->from != NODE_ANY; }

static unsigned empty_slots_in(size_t superslab) {
    uint64_t w = load_relaxed(&superslab_at(superslab)->word);
    return count_bits(word_resident(w) & ~word_active(w));
}

/* Stage 1 has parts without a search of their own: stage 0, the slot given back last, and stage 0.5, a single slot
 * found by the scan. The lines of the log say what came out of the one search that there is. */
static void note_reuse(struct client *c, size_t slot, unsigned slots, unsigned tag) {
    size_t superslab = slot / SUPERSLAB_SLOTS, at = slot % SUPERSLAB_SLOTS;
    bool same_class = tag != 0 && load_relaxed(&superslab_at(superslab)->last_class[at]) == tag;
    bool is_last = load_relaxed(&c->last_given) == slot + 1;
    count_add(&c->counters, COUNT_stage1_same_class, same_class);
    count_add(&c->counters, COUNT_stage0_last_given, is_last);
    count_add(&c->counters, COUNT_stage05_scanned, slots == 1);
    if (is_last)
        LOG(LOG_ACQUIRE, "[SP_ACQUIRE_STAGE0_L0] class=%s using the slot given back last (ss=%x slab=%u)",
            log_class(tag).text, address_of(superslab), (uint64_t)at);
    if (slots == 1)
        LOG(LOG_ACQUIRE, "[SP_ACQUIRE_STAGE0.5_EMPTY] class=%s found by a scan (ss=%x slab=%u empty_count=%u)",
            log_class(tag).text, address_of(superslab), (uint64_t)at, (uint64_t)empty_slots_in(superslab));
    LOG(LOG_ACQUIRE, "[SP_ACQUIRE_STAGE1] class=%s reusing EMPTY slot (ss=%x slab=%u)", log_class(tag).text,
        address_of(superslab), (uint64_t)at);
}

/* Counts `n` slots of a SuperSlab that were taken, which are no longer LAZY. False: as with admit, and the slots have
 * been put back. */
static bool admit_slots(struct client *c, size_t superslab, unsigned n, uint32_t taken, uint32_t empty, bool *zero) {
    uint32_t lazy = superslab_lazy_in(superslab, taken);
    uint32_t lazy_ms = load_relaxed(&superslab_at(superslab)->lazy_ms);
    struct run_contents had = {.empty = empty == taken ? n : count_bits(empty), .lazy_ms = lazy_ms};
    if (unlikely(lazy != 0))
        had.lazy = count_bits(lazy);
    if (!admit(c, n, had, 0)) {
        PROVEN(take_refused, superslab_put_back(superslab, taken, empty));
        return false;
    }
    superslab_end_lazy(superslab, lazy);
    *zero = (empty | lazy) == 0;
    return true;
}

size_t pool_take_spans(struct client *c, unsigned slots, unsigned align, unsigned tag, unsigned further,
                       uint32_t *taken, bool *zero) {
    unsigned here = node_here();
    struct superslab_wish wish = {c, slots, align, tag, .node = here, .from = here};
    wish.further = c->arena == 0 ? further : 0;
    enum counter stage;
    size_t slot;
    for (;; wish.from = NODE_ANY) {
        slot = likely(c->arena == 0) ? superslab_take_in_use(&wish) : arena_take_span(&wish);
        stage = wish.was_resident != 0 ? COUNT_stage1_reused_empty : COUNT_stage2_used_unused;
        if (slot == BITSET_NONE && c->arena == 0) {
            slot = take_wholly_free(&wish);
            stage = wish.was_cached ? COUNT_stage3_from_cache : COUNT_stage3_new;
        }
        size_t superslab = slot / SUPERSLAB_SLOTS;
        if (slot != BITSET_NONE && admit_slots(c, superslab, wish.spans * slots, wish.taken, wish.was_resident, zero))
            break;
        note_node(c, BITSET_NONE, here, true);
        if (!goes_on(&wish))
            return BITSET_NONE;
    }
    note_node(c, slot, here, wish.from == NODE_ANY);
    count(&c->counters, stage);
    count_add(&c->counters, COUNT_cache_popped, stage == COUNT_stage3_from_cache);
    if (stage == COUNT_stage1_reused_empty)
        note_reuse(c, slot, slots, tag);
    else if (stage == COUNT_stage2_used_unused)
        LOG(LOG_ACQUIRE, "[SP_ACQUIRE_STAGE2] class=%s using UNUSED slot (ss=%x slab=%u)", log_class(tag).text,
            address_of(slot / SUPERSLAB_SLOTS), (uint64_t)(slot % SUPERSLAB_SLOTS));
    else
        LOG(LOG_ACQUIRE, "[SP_ACQUIRE_STAGE3] class=%s new SuperSlab (ss=%x from_lru=%u)", log_class(tag).text,
            address_of(slot / SUPERSLAB_SLOTS), (uint64_t)(stage == COUNT_stage3_from_cache));
    *taken = wish.taken;
    return slot;
}

size_t pool_take(struct client *c, unsigned slots, unsigned align, unsigned tag, bool *zero) {
    return pool_take_spans(c, slots, align, tag, 0, &(uint32_t){0}, zero);
}

enum pool_answer pool_take_slot(struct client *c, size_t slot, bool *zero) {
    bool resident, cached;
    if (!superslab_take_slot(slot, c, node_here(), &resident, &cached))
        return POOL_TAKEN;
    uint32_t bit = span_mask((unsigned)(slot % SUPERSLAB_SLOTS), 1);
    if (admit_slots(c, slot / SUPERSLAB_SLOTS, 1, bit, resident ? bit : 0, zero)) {
        count(&c->counters, cached     ? COUNT_stage3_from_cache
                            : resident ? COUNT_stage1_reused_empty
                                       : COUNT_stage2_used_unused);
        count_add(&c->counters, COUNT_cache_popped, cached);
        return POOL_TOOK;
    }
    return POOL_REFUSED;
}

size_t pool_grow(unsigned slots) {
    size_t superslab = region_map_unmapped();
    if (superslab == BITSET_NONE)
        superslab = region_take_superslabs(1);
    if (superslab == BITSET_NONE)
        return superslab_map_slots(slots, &superslab) ? superslab : BITSET_NONE;
    superslab_give_new(superslab, 1);
    return superslab;
}

bool pool_extend(struct client *c, size_t slot, unsigned slots, unsigned wanted) {
    uint32_t was_resident;
    bool zero;
    uint32_t more = span_mask((unsigned)(slot % SUPERSLAB_SLOTS) + slots, wanted - slots);
    return superslab_extend(slot, slots, wanted, &was_resident) &&
           admit_slots(c, slot / SUPERSLAB_SLOTS, wanted - slots, more, was_resident, &zero);
}

/* `count` are the EMPTY slots of the SuperSlab, whatever their class was. */
static void log_give(uintptr_t ss, uint64_t at, unsigned tag, bool resident, uint64_t after, bool pushed) {
    LOG(LOG_FREE, "[EMPTY detected] ss=%x slab_idx=%u class=%s", ss, at, log_class(tag).text);
    LOG(LOG_FREE, "[SP_SLOT_RELEASE] ss=%x slab_idx=%u class=%s used=0 (marking %s)", ss, at, log_class(tag).text,
        resident ? "EMPTY" : "UNUSED");
    if (resident)
        LOG(LOG_FREE, "[SP_SLOT_FREELIST] class=%s pushed slot (ss=%x slab=%u) count=%u active_slots=%u/32",
            log_class(tag).text, ss, at, (uint64_t)count_bits(word_resident(after) & ~word_active(after)),
            (uint64_t)count_bits(word_active(after)));
    if (pushed) {
        LOG(LOG_FREE, "[SP_SLOT_COMPLETELY_EMPTY] ss=%x active_slots=0", ss);
        LOG(LOG_LRU, "[LRU_PUSH] ss=%x (cache_size=%u/%u)", ss, (uint64_t)account_cached_superslabs(),
            option(OPT_SS_CACHE_COUNT));
    }
}

/* Gives `n` spans of one SuperSlab, `slots` slots in all, the last of which begins at `last`. */
HAK_INLINE void give(struct client *c, uint32_t spans, unsigned n, unsigned slots, size_t last, unsigned tag,
                     bool resident) {
    size_t superslab = last / SUPERSLAB_SLOTS;
    arena_lost(superslab_arena(superslab), slots);
    uint64_t after = superslab_give(superslab, spans, tag, resident);
    bool pushed = word_is_cached(after) && superslab_arena(superslab) == 0;
    store_relaxed(&c->last_given, (uint32_t)last + 1);
    count_add(&c->counters, COUNT_slots_released, n);
    count_add(&c->counters, COUNT_cache_pushed, pushed);
    if (HAK_IS_CHECKED)
        log_give(address_of(superslab), last % SUPERSLAB_SLOTS, tag, resident, after, pushed);
    account_change(c, -(int32_t)slots, resident ? (int32_t)slots : 0);
}

static bool settles(const struct client *c) {
    return c->since.empty >= SETTLE_SLOTS || c->since.active <= -SETTLE_SLOTS || unlikely(c->is_shared) ||
           option(OPT_PURGE) == PURGE_EAGER;
}

void pool_give(struct client *c, size_t slot, unsigned slots, unsigned tag, bool resident) {
    give(c, span_mask((unsigned)(slot % SUPERSLAB_SLOTS), slots), 1, slots, slot, tag, resident);
    (settles(c) ? retain_settle : retain_gave_few)(c);
}

void pool_give_spans(struct client *c, const uint32_t *first_slots, unsigned n, unsigned slots) {
    for (unsigned at = 0, end; at < n; at = end) {
        uint32_t spans = 0;
        for (end = at; end < n && (first_slots[end] ^ first_slots[at]) < SUPERSLAB_SLOTS; end++)
            spans |= span_mask(first_slots[end] % SUPERSLAB_SLOTS, slots);
        give(c, spans, end - at, (end - at) * slots, first_slots[end - 1], 0, true);
    }
    (settles(c) ? retain_settle : retain_gave_few)(c);
}

/* ---- runs of SuperSlabs ---- */

/* Makes all slots of a claimed run resident. False: HARD_LIMIT forbids it, and the claim is undone. */
static bool occupy_claimed_run(struct client *c, size_t first, size_t n, unsigned here, bool *zero) {
    struct run_contents run = superslab_run_contents(first, n);
    if (!admit(c, n * SUPERSLAB_SLOTS, run, 0)) {
        superslab_unclaim_run(first, n);
        return false;
    }
    superslab_occupy_run(first, n, here);
    count_add(&c->counters, COUNT_cache_popped, superslab_arena(first) == 0 ? run.cached : 0);
    *zero = run.empty + run.lazy == 0;
    return true;
}

/* Takes a wholly free run that has memory of the node `from` (NODE_ANY: of any) or none. */
static size_t take_free_run(struct client *c, unsigned from, size_t n, size_t align, bool *zero) {
    size_t first = c->arena != 0 ? arena_claim_run(c, from, n, align) : BITSET_NONE;
    bool joins = c->arena != 0 && first == BITSET_NONE;
    if (first == BITSET_NONE)
        first = superslab_claim_free_run(c, from, n, align);
    if (first == BITSET_NONE || !occupy_claimed_run(c, first, n, node_here(), zero))
        return BITSET_NONE;
    if (joins)
        arena_join(c->arena, first, n);
    return first;
}

/* Takes SuperSlabs that were never used before. Counts `used` of them first, so that a run that is refused is not
 * committed. */
static size_t take_new_superslabs(struct client *c, size_t n, size_t used) {
    if (n > hak_region.superslabs_max) /* more than can be counted, perhaps */
        return BITSET_NONE;
    if (!admit(c, used * SUPERSLAB_SLOTS, (struct run_contents){0}, n))
        return BITSET_NONE;
    size_t got = region_take_superslabs(n);
    if (got == BITSET_NONE) {
        account_count_resident(-(ptrdiff_t)(used * SUPERSLAB_SLOTS));
        arena_lost(c->arena, used * SUPERSLAB_SLOTS);
    }
    return got;
}

static void log_run(size_t first, bool from_cache) {
    LOG(LOG_ACQUIRE, "[SP_ACQUIRE_STAGE3] class=huge new SuperSlab (ss=%x from_lru=%u)", address_of(first),
        (uint64_t)from_cache);
}

static size_t take_new_run(struct client *c, size_t n, size_t align, bool *zero) {
    size_t base_number = hak_region.base / SUPERSLAB_BYTES, whole;
    if (__builtin_add_overflow(n, align - 1, &whole))
        return BITSET_NONE;
    size_t got = take_new_superslabs(c, whole, n);
    if (got == BITSET_NONE)
        return BITSET_NONE;
    size_t first = round_up(got + base_number, align) - base_number;
    superslab_give_new(got, first - got);
    superslab_give_new(first + n, got + whole - (first + n));
    if (!huge_pages_consider(first, n, CONTENTS_RUN)) {
        superslab_put_unmapped(first, n);
        account_count_resident(-(ptrdiff_t)(n * SUPERSLAB_SLOTS));
        arena_lost(c->arena, n * SUPERSLAB_SLOTS);
        return BITSET_NONE;
    }
    superslab_begin_run(first, n, node_here());
    if (c->arena != 0)
        arena_join(c->arena, first, n);
    *zero = true;
    return first;
}

size_t pool_take_run(struct client *c, size_t n, size_t align_bytes, bool *zero) {
    size_t align = align_bytes / SUPERSLAB_BYTES;
    unsigned here = node_here();
    size_t first = take_free_run(c, here, n, align, zero);
    while (first == BITSET_NONE && n == 1 && superslab_map_waiting())
        first = take_free_run(c, here, n, align, zero);
    if (first == BITSET_NONE)
        first = take_new_run(c, n, align, zero);
    bool anywhere = first == BITSET_NONE && hak_region.nodes > 1;
    if (anywhere)
        first = take_free_run(c, NODE_ANY, n, align, zero);
    note_node(c, first != BITSET_NONE ? first * SUPERSLAB_SLOTS : BITSET_NONE, here, anywhere);
    if (first == BITSET_NONE)
        return BITSET_NONE;
    c->due.chores |= *zero ? CHORE_DRAIN_CACHES : 0;
    log_run(first, !*zero);
    return first;
}

void pool_give_run(struct client *c, size_t first, size_t n, bool resident) {
    LOG(LOG_FREE, "[SP_SLOT_COMPLETELY_EMPTY] ss=%x active_slots=0", address_of(first));
    uint32_t arena = superslab_arena(first);
    arena_lost(arena, n * SUPERSLAB_SLOTS);
    superslab_give_run(first, n, resident);
    count_add(&c->counters, COUNT_cache_pushed, resident && arena == 0 ? n : 0);
    account_change(c, -(int32_t)(n * SUPERSLAB_SLOTS), (int32_t)(resident ? n * SUPERSLAB_SLOTS : 0));
    retain_settle(c);
}

void pool_give_unmapped_run(struct client *c, size_t first, size_t n) {
    LOG(LOG_FREE, "[SP_SLOT_COMPLETELY_EMPTY] ss=%x active_slots=0", address_of(first));
    arena_lost(superslab_arena(first), n * SUPERSLAB_SLOTS);
    superslab_put_unmapped(first, n);
    account_change(c, -(int32_t)(n * SUPERSLAB_SLOTS), 0);
    retain_settle(c);
}

void pool_unmap_free(struct client *c) {
    size_t first;
    bool zero, done = true;
    while (done && (first = superslab_claim_free_run(c, NODE_ANY, 1, 1)) != BITSET_NONE &&
           occupy_claimed_run(c, first, 1, node_here(), &zero)) {
        done = !region_is_read() && os_unmap(slot_address(first * SUPERSLAB_SLOTS), SUPERSLAB_BYTES);
        if (done)
            pool_give_unmapped_run(c, first, 1);
        else
            pool_give_run(c, first, 1, !zero);
    }
}

bool pool_extend_run(struct client *c, size_t first, size_t n, size_t wanted) {
    size_t extra = wanted - n;
    size_t end = first + n;
    if (c->arena == 0 && end == load_relaxed(&hak_region_use.superslabs) && extra < hak_region.superslabs_max - end) {
        size_t got = take_new_superslabs(c, extra, extra);
        if (got == BITSET_NONE)
            return false;
        superslab_begin_run(got, extra, node_here());
        if (got == end)
            return true;
        pool_give_run(c, got, extra, false); /* another thread was faster */
        return false;
    }
    unsigned here = node_here();
    bool zero;
    return superslab_claim_run(c, c->arena, here, end, extra) == extra &&
           occupy_claimed_run(c, end, extra, here, &zero);
}
