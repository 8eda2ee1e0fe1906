/* Taking and giving spans and runs, and the offers of slabs. See pool.h; giving back to the system is in purge.c. */
/* SPDX-License-Identifier: MIT */
#include "pool.h"
#include "limits.h"
#include "log.h"
#include "purge.h"

#define SEARCH_MISSES 16 /* members whose runs may fit but do not, before a set of longer runs is searched */
#define SETTLE_SLOTS 8   /* slots a client may take or give untold: 512 KiB */
#define ALL_SLOTS UINT32_MAX
#define TOUCHED_WHOLE_MOST (8 * KIB) /* of larger blocks a program may touch a part only */

/* ---- one SuperSlab's word ---- */

/* Bit i: a run of `n` slots free in `free` begins at i. */
static uint32_t run_starts(uint32_t free, unsigned n) {
    for (unsigned have = 1; have < n;) {
        unsigned step = have < n - have ? have : n - have;
        free &= free >> step;
        have += step;
    }
    return free;
}

static uint32_t span_mask(unsigned start, unsigned slots) { return (uint32_t)(low_bits(slots) << start); }

/* Bits of the sets SET_EMPTY… that a SuperSlab with this word belongs to. */
static uint32_t sets_of(uint64_t w) {
    uint32_t active = word_active(w), resident = word_resident(w);
    if (active == 0)
        return resident != 0 ? 1u << (SET_CACHED - SET_EMPTY) : 1u << (SET_CLEAN - SET_EMPTY);
    uint32_t sets = (resident & ~active) != 0, free = ~active;
    for (unsigned room = 0; free != 0; room++) { /* bit i of `free`: a run of 2^room free slots begins at i */
        sets |= 1u << (SET_ROOM_1 - SET_EMPTY + room);
        if (room == SET_ROOM_16 - SET_ROOM_1)
            break;
        free &= free >> (1u << room);
    }
    return sets;
}

static bool is_cached(uint64_t w) { return word_active(w) == 0 && word_resident(w) != 0; }

void pool_changed(size_t superslab, uint64_t before, uint64_t after) {
    if (is_cached(before) != is_cached(after))
        purge_cache_count(is_cached(after) ? 1 : -1);
    for (uint32_t news = sets_of(after) & ~sets_of(before); news != 0; news &= news - 1)
        bitset_add(&hak_region.sets, SET_EMPTY + lowest_bit(news), superslab);
}

void pool_check_hint(unsigned set, size_t superslab) {
    uint32_t bit = 1u << (set - SET_EMPTY);
    _Atomic uint64_t *word = &superslab_at(superslab)->word;
    if (sets_of(load_relaxed(word)) & bit)
        return;
    bitset_remove(&hak_region.sets, set, superslab);
    if (PROVEN(hint_look, sets_of(load_seq(word)) & bit))
        bitset_add(&hak_region.sets, set, superslab);
}

/* For the log. */
static uintptr_t address_of(size_t superslab) { return (uintptr_t)slot_address(superslab * SUPERSLAB_SLOTS); }

/* ---- taking a span ---- */

struct wish {
    struct pool_client *client;
    unsigned slots, align, tag;
    uint32_t was_resident; /* out: slots of the span that were EMPTY */
};

/* Where in the SuperSlab the span should begin: EMPTY slots before UNUSED ones, those of the same class before others,
 * the lowest first. 32 when it does not fit. */
static unsigned choose_start(const struct superslab *ss, uint64_t w, const struct wish *wish) {
    uint32_t aligned = wish->align >= SUPERSLAB_SLOTS ? 1 : UINT32_MAX / ((1u << wish->align) - 1);
    uint32_t starts = run_starts(~word_active(w), wish->slots) & aligned;
    if (starts == 0)
        return SUPERSLAB_SLOTS;
    uint32_t empty = run_starts(word_resident(w) & ~word_active(w), wish->slots) & aligned;
    if (empty != 0 && wish->tag != 0 && wish->slots == 1)
        for (uint32_t left = empty; left != 0; left &= left - 1)
            if (load_relaxed(&ss->last_class[lowest_bit(left)]) == wish->tag)
                return lowest_bit(left);
    return lowest_bit(empty != 0 ? empty : starts);
}

/* Takes the span in this SuperSlab, which must be in use, or wholly free if `whole`. BITSET_NONE if it does not fit. */
static size_t take_in(size_t superslab, bool whole, struct wish *wish) {
    struct superslab *ss = superslab_at(superslab);
    uint64_t w = load_acquire(&ss->word);
    for (;;) {
        if ((word_active(w) == 0) != whole)
            return BITSET_NONE;
        unsigned start = choose_start(ss, w, wish);
        if (start == SUPERSLAB_SLOTS)
            return BITSET_NONE;
        uint32_t mask = span_mask(start, wish->slots);
        uint64_t taken = w | word_of(mask, mask);
        if (PROVEN(take, rmw_cas(&ss->word, &w, taken))) { /* pairs with the give that made the slots free: records */
            wish->was_resident = word_resident(w) & mask;
            if (whole)
                pool_changed(superslab, w, taken);
            return superslab * SUPERSLAB_SLOTS + start;
        }
        count(&wish->client->counters, COUNT_pool_retries);
        wish->client->start = (uint32_t)superslab + 1; /* until the next settling this heap looks elsewhere first */
    }
}

/* Searches one set from `from` up, until `misses_most` members did not do. */
static size_t search_from(unsigned set, size_t from, bool whole, struct wish *wish, size_t misses_most) {
    size_t misses = 0;
    for (size_t at = from; misses < misses_most; at++, misses++) {
        at = bitset_find(&hak_region.sets, set, at);
        if (at == BITSET_NONE)
            break;
        size_t slot = take_in(at, whole, wish);
        if (slot != BITSET_NONE)
            return slot;
        pool_check_hint(set, at);
    }
    return BITSET_NONE;
}

static size_t search(unsigned set, bool whole, struct wish *wish) {
    uint32_t start = wish->client->start;
    size_t slot = search_from(set, start, whole, wish, SIZE_MAX);
    return slot == BITSET_NONE && start != 0 ? search_from(set, 0, whole, wish, SIZE_MAX) : slot;
}

/* Stages 1 and 2: SuperSlabs in use. */
static size_t take_in_use(struct wish *wish) {
    if (wish->slots == 1) {
        size_t slot = search(SET_EMPTY, false, wish);
        return slot != BITSET_NONE ? slot : search(SET_ROOM_1, false, wish);
    }
    unsigned least = highest_bit(wish->slots); /* 2^least <= slots: members may just fit */
    unsigned sure = highest_bit(wish->slots + wish->align - 1 - 1) + 1;
    size_t slot = least <= 4 ? search_from(SET_ROOM_1 + least, 0, false, wish, SEARCH_MISSES) : BITSET_NONE;
    return slot == BITSET_NONE && sure <= 4 && sure != least ? search(SET_ROOM_1 + sure, false, wish) : slot;
}

/* SuperSlabs that nobody has are available from now on. */
static void give_clean(size_t first, size_t n) {
    for (size_t i = 0; i < n; i++) {
        store_seq(&superslab_at(first + i)->word, 0);
        pool_changed(first + i, ALL_SLOTS, 0);
    }
}

/* One that waited for memory has it now, and is available. */
static bool map_waiting(void) {
    size_t superslab = region_map_unmapped();
    if (superslab != BITSET_NONE)
        give_clean(superslab, 1);
    return superslab != BITSET_NONE;
}

/* Stage 3: a cached, a clean, a new SuperSlab. */
static size_t take_wholly_free(struct wish *wish, bool *from_cache) {
    size_t slot = search(SET_CACHED, true, wish);
    *from_cache = slot != BITSET_NONE;
    LOG(LOG_LRU, "[LRU_POP] class=%s (%s) (cache_size=%u/%u)", log_class(wish->tag).text, *from_cache ? "hit" : "miss",
        (uint64_t)purge_cached_superslabs(), option(OPT_SS_CACHE_COUNT));
    if (slot == BITSET_NONE)
        slot = search(SET_CLEAN, true, wish);
    while (slot == BITSET_NONE && map_waiting())
        slot = search(SET_CLEAN, true, wish);
    bool touched_whole = wish->tag != 0 && size_classes[wish->tag - 1].block_bytes <= TOUCHED_WHOLE_MOST;
    if (slot != BITSET_NONE && !*from_cache)
        purge_wanted_back(slot / SUPERSLAB_SLOTS, touched_whole);
    while (slot == BITSET_NONE) {
        size_t superslab = region_take_superslabs(1);
        if (superslab == BITSET_NONE)
            return BITSET_NONE;
        purge_consider_huge_pages(superslab, 1, touched_whole);
        slot = take_in(superslab, true, wish);
    }
    return slot;
}

/* Slots are taken, `empty` of them EMPTY ones. False: the others may not become resident (HARD_LIMIT), and the caller puts
 * all back. */
static bool count_taken(struct pool_client *c, size_t slots, size_t empty) {
    size_t unused = slots - empty;
    bool told = unused != 0 && limits_set(); /* else when this client settles */
    if (told && !limits_admit(c, unused))
        return false;
    c->active_delta += (int32_t)(told ? empty : slots);
    c->empty_delta -= (int32_t)empty;
    c->unused_taken += (uint32_t)unused;
    if (c->active_delta >= SETTLE_SLOTS || c->empty_delta <= -SETTLE_SLOTS || (told && c->unused_taken >= SETTLE_SLOTS))
        pool_settle(c);
    return true;
}

/* As if the span had not been taken: nobody has touched it. */
static void put_back(size_t slot, unsigned slots, uint32_t was_resident) {
    uint32_t mask = span_mask((unsigned)(slot % SUPERSLAB_SLOTS), slots);
    uint64_t gone = word_of(mask, mask & ~was_resident);
    uint64_t before = rmw_and(&superslab_at(slot / SUPERSLAB_SLOTS)->word, ~gone);
    pool_changed(slot / SUPERSLAB_SLOTS, before, before & ~gone);
}

size_t pool_take(struct pool_client *c, unsigned slots, unsigned align, unsigned tag, bool *zero) {
    struct wish wish = {c, slots, align, tag, 0};
    size_t slot = take_in_use(&wish);
    enum counter stage = wish.was_resident != 0 ? COUNT_stage1_reused_empty : COUNT_stage2_used_unused;
    bool from_cache = false;
    if (slot == BITSET_NONE) {
        slot = take_wholly_free(&wish, &from_cache);
        if (slot == BITSET_NONE)
            return BITSET_NONE;
        stage = from_cache ? COUNT_stage3_from_cache : COUNT_stage3_new;
        c->chores |= from_cache ? 0 : CHORE_TENSION;
    }
    if (!count_taken(c, slots, count_bits(wish.was_resident))) {
        PROVEN(take_refused, put_back(slot, slots, wish.was_resident));
        return BITSET_NONE;
    }
    struct superslab *ss = superslab_at(slot / SUPERSLAB_SLOTS);
    if (stage == COUNT_stage1_reused_empty && tag != 0 && load_relaxed(&ss->last_class[slot % SUPERSLAB_SLOTS]) == tag)
        count(&c->counters, COUNT_stage1_same_class);
    count(&c->counters, stage);
    count_add(&c->counters, COUNT_cache_popped, from_cache);
    if (stage == COUNT_stage1_reused_empty)
        LOG(LOG_ACQUIRE, "[SP_ACQUIRE_STAGE1] class=%s reusing EMPTY slot (ss=%x slab=%u)", log_class(tag).text,
            address_of(slot / SUPERSLAB_SLOTS), (uint64_t)(slot % SUPERSLAB_SLOTS));
    else if (stage == COUNT_stage2_used_unused)
        LOG(LOG_ACQUIRE, "[SP_ACQUIRE_STAGE2] class=%s using UNUSED slot (ss=%x slab=%u)", log_class(tag).text,
            address_of(slot / SUPERSLAB_SLOTS), (uint64_t)(slot % SUPERSLAB_SLOTS));
    else
        LOG(LOG_ACQUIRE, "[SP_ACQUIRE_STAGE3] class=%s new SuperSlab (ss=%x from_lru=%u)", log_class(tag).text,
            address_of(slot / SUPERSLAB_SLOTS), (uint64_t)from_cache);
    *zero = wish.was_resident == 0;
    return slot;
}

bool pool_extend(struct pool_client *c, size_t slot, unsigned slots, unsigned wanted) {
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
    if (count_taken(c, wanted - slots, count_bits(word_resident(w) & mask)))
        return true;
    put_back(slot + slots, wanted - slots, word_resident(w) & mask);
    return false;
}

/* ---- giving a span ---- */

static void count_given(struct pool_client *c, size_t slots, size_t empty) {
    c->active_delta -= (int32_t)slots;
    c->empty_delta += (int32_t)empty;
    if (c->empty_delta >= SETTLE_SLOTS || c->active_delta <= -SETTLE_SLOTS || option(OPT_PURGE) == PURGE_EAGER)
        pool_settle(c);
}

/* `kept`: 1 if the slots become EMPTY, 0 if UNUSED. */
static void give(struct pool_client *c, size_t slot, unsigned slots, unsigned tag, unsigned kept) {
    size_t superslab = slot / SUPERSLAB_SLOTS;
    unsigned start = (unsigned)(slot % SUPERSLAB_SLOTS);
    struct superslab *ss = superslab_at(superslab);
    for (unsigned i = 0; tag != 0 && i < slots; i++)
        store_relaxed(&ss->last_class[start + i], (uint8_t)tag);
    store_relaxed(&ss->changed_ms, purge_clock_ms());
    uint32_t span = span_mask(start, slots);
    uint64_t mask = word_of(span, kept ? 0 : span);
    uint64_t before = PROVEN(give, rmw_and(&ss->word, ~mask)); /* pairs with take_in: the next taker sees our records */
    uint64_t after = before & ~mask;
    HAK_ASSERT((before & mask) == mask);
    count(&c->counters, COUNT_slots_released);
    LOG(LOG_FREE, "[SP_SLOT_RELEASE] ss=%x slab_idx=%u class=%s used=0 (marking %s)", address_of(superslab),
        (uint64_t)start, log_class(tag).text, kept ? "EMPTY" : "UNUSED");
    pool_changed(superslab, before, after);
    if (is_cached(after)) {
        count(&c->counters, COUNT_cache_pushed);
        LOG(LOG_FREE, "[SP_SLOT_COMPLETELY_EMPTY] ss=%x active_slots=0", address_of(superslab));
        LOG(LOG_LRU, "[LRU_PUSH] ss=%x (cache_size=%u/%u)", address_of(superslab), (uint64_t)purge_cached_superslabs(),
            option(OPT_SS_CACHE_COUNT));
    }
    count_given(c, slots, kept * slots);
}

void pool_give(struct pool_client *c, size_t slot, unsigned slots, unsigned tag) { give(c, slot, slots, tag, 1); }

void pool_give_purged(struct pool_client *c, size_t slot, unsigned slots) { give(c, slot, slots, 0, 0); }

/* ---- runs of SuperSlabs ---- */

/* A SuperSlab is in these sets only after its first owner gave it back. One that region_take_superslabs is just handing out
 * has a word of 0 too, and is not free. */
static bool was_given_back(size_t superslab) {
    return bitset_has(&hak_region.sets, SET_CLEAN, superslab) || bitset_has(&hak_region.sets, SET_CACHED, superslab);
}

static void unclaim_run(size_t first, size_t n) {
    for (size_t i = 0; i < n; i++) {
        uint64_t before = rmw_and(&superslab_at(first + i)->word, ~(uint64_t)ALL_SLOTS);
        pool_changed(first + i, before, before & ~(uint64_t)ALL_SLOTS);
    }
}

/* Claims [first, first + n) if all are wholly free; resident bits stay, so that a failed claim can be undone. Returns
 * how many are free from `first` on; n when claimed. */
static size_t claim_run(size_t first, size_t n, struct pool_client *c) {
    size_t limit = load_acquire(&hak_region_use.superslabs);
    for (size_t i = 0; i < n; i++)
        if (first + i >= limit || !was_given_back(first + i) ||
            word_active(load_relaxed(&superslab_at(first + i)->word)) != 0)
            return i;
    for (size_t i = 0; i < n; i++) {
        _Atomic uint64_t *word = &superslab_at(first + i)->word;
        uint64_t w = load_relaxed(word);
        while (word_active(w) == 0 && !rmw_cas(word, &w, w | ALL_SLOTS))
            count(&c->counters, COUNT_pool_retries);
        if (word_active(w) == 0) {
            pool_changed(first + i, w, w | ALL_SLOTS);
            continue;
        }
        unclaim_run(first, i);
        return i;
    }
    return n;
}

/* After a claim: all resident from now on. False: they may not be, and the claim is undone. */
static bool occupy_run(size_t first, size_t n, struct pool_client *c, bool *zero) {
    size_t resident = 0, cached = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned slots = count_bits(word_resident(load_relaxed(&superslab_at(first + i)->word)));
        resident += slots;
        cached += slots != 0;
    }
    if (!count_taken(c, n * SUPERSLAB_SLOTS, resident)) {
        unclaim_run(first, n);
        return false;
    }
    for (size_t i = 0; i < n; i++)
        rmw_or(&superslab_at(first + i)->word, word_of(0, ALL_SLOTS));
    count_add(&c->counters, COUNT_cache_popped, cached);
    *zero = resident == 0;
    return true;
}

/* SuperSlabs never used before. They are counted first: what is refused shall not have been committed. */
static size_t take_new_superslabs(struct pool_client *c, size_t n, size_t used) {
    if (n > hak_region.superslabs_max) /* more than can be counted, perhaps */
        return BITSET_NONE;
    if (!count_taken(c, used * SUPERSLAB_SLOTS, 0))
        return BITSET_NONE;
    size_t got = region_take_superslabs(n);
    if (got == BITSET_NONE)
        pool_count_resident(-(ptrdiff_t)(used * SUPERSLAB_SLOTS));
    return got;
}

static size_t next_free(size_t from) {
    if (from >= load_acquire(&hak_region_use.superslabs))
        return BITSET_NONE; /* no row may exist for it yet */
    size_t cached = bitset_find(&hak_region.sets, SET_CACHED, from);
    size_t clean = bitset_find(&hak_region.sets, SET_CLEAN, from);
    return min_size(cached, clean);
}

static size_t take_free_run(struct pool_client *c, size_t n, size_t align_superslabs, bool *zero) {
    size_t base_number = hak_region.base / SUPERSLAB_BYTES;
    for (size_t at = next_free(0); at != BITSET_NONE;) {
        size_t first = round_up(at + base_number, align_superslabs) - base_number;
        size_t free = claim_run(first, n, c);
        if (free == n)
            return occupy_run(first, n, c, zero) ? first : BITSET_NONE;
        pool_check_hint(SET_CACHED, at);
        pool_check_hint(SET_CLEAN, at);
        at = next_free(first + free + 1);
    }
    return BITSET_NONE;
}

static void log_run(size_t first, bool from_cache) {
    LOG(LOG_ACQUIRE, "[SP_ACQUIRE_STAGE3] class=huge new SuperSlab (ss=%x from_lru=%u)", address_of(first),
        (uint64_t)from_cache);
}

size_t pool_take_run(struct pool_client *c, size_t n, size_t align, bool *zero) {
    size_t align_superslabs = align / SUPERSLAB_BYTES;
    size_t base_number = hak_region.base / SUPERSLAB_BYTES;
    size_t free = take_free_run(c, n, align_superslabs, zero);
    while (free == BITSET_NONE && n == 1 && map_waiting())
        free = take_free_run(c, n, align_superslabs, zero);
    if (free != BITSET_NONE) {
        c->chores |= *zero ? CHORE_TENSION : 0;
        log_run(free, !*zero);
        return free;
    }
    size_t whole;
    if (__builtin_add_overflow(n, align_superslabs - 1, &whole))
        return BITSET_NONE;
    size_t got = take_new_superslabs(c, whole, n);
    if (got == BITSET_NONE)
        return BITSET_NONE;
    size_t first = round_up(got + base_number, align_superslabs) - base_number;
    give_clean(got, first - got);
    give_clean(first + n, got + whole - (first + n));
    for (size_t i = 0; i < n; i++)
        store_release(&superslab_at(first + i)->word, ~(uint64_t)0);
    purge_consider_huge_pages(first, n, false);
    c->chores |= CHORE_TENSION;
    log_run(first, false);
    *zero = true;
    return first;
}

void pool_give_run(struct pool_client *c, size_t first, size_t n, bool resident) {
    LOG(LOG_FREE, "[SP_SLOT_COMPLETELY_EMPTY] ss=%x active_slots=0", address_of(first));
    for (size_t i = 0; i < n; i++) {
        struct superslab *ss = superslab_at(first + i);
        uint64_t after = resident ? word_of(0, ALL_SLOTS) : 0;
        store_relaxed(&ss->changed_ms, purge_clock_ms());
        store_seq(&ss->word, after); /* ours alone until now; pairs with claim_run and take_in */
        pool_changed(first + i, ~(uint64_t)0, after);
    }
    count_add(&c->counters, COUNT_cache_pushed, resident ? n : 0);
    c->active_delta -= (int32_t)(n * SUPERSLAB_SLOTS);
    c->empty_delta += (int32_t)(resident ? n * SUPERSLAB_SLOTS : 0);
    pool_settle(c);
}

void pool_give_unmapped_run(struct pool_client *c, size_t first, size_t n) {
    LOG(LOG_FREE, "[SP_SLOT_COMPLETELY_EMPTY] ss=%x active_slots=0", address_of(first));
    region_put_unmapped(first, n);
    c->active_delta -= (int32_t)(n * SUPERSLAB_SLOTS);
    pool_settle(c);
}

bool pool_extend_run(struct pool_client *c, size_t first, size_t n, size_t wanted) {
    size_t more = wanted - n;
    size_t end = first + n;
    if (end == load_relaxed(&hak_region_use.superslabs) && more < hak_region.superslabs_max - end) {
        size_t got = take_new_superslabs(c, more, more);
        if (got == BITSET_NONE)
            return false;
        for (size_t i = 0; i < more; i++)
            store_release(&superslab_at(got + i)->word, ~(uint64_t)0);
        if (got == end)
            return true;
        pool_give_run(c, got, more, false); /* another thread was faster */
        return false;
    }
    bool zero;
    return claim_run(end, more, c) == more && occupy_run(end, more, c, &zero);
}

/* ---- offers ---- */

void pool_offer(size_t slot, unsigned class_id) {
    /* A swap and no store: what the overwritten offer's maker wrote before is ours to see (mid.c, offer). */
    rmw_swap(&superslab_at(slot / SUPERSLAB_SLOTS)->offer[slot % SUPERSLAB_SLOTS], (uint8_t)(class_id + 1));
    bitset_add(&hak_region.sets, class_id, slot / SUPERSLAB_SLOTS);
}

HAK_RACY uint32_t pool_offers_in(size_t superslab) {
    struct superslab *ss = superslab_at(superslab);
    uint32_t slots = 0;
    if (load_relaxed(&ss->word) == 0)
        return 0;
    for (unsigned i = 0; i < SUPERSLAB_SLOTS; i += 8) { /* eight bytes at a look: mostly there is none */
        uint64_t eight = *(const volatile uint64_t *)(const volatile void *)&ss->offer[i];
        while (eight != 0) {
            unsigned at = lowest_bit(eight) / 8;
            slots |= (uint32_t)1 << (i + at);
            eight &= ~((uint64_t)UINT8_MAX << at * 8);
        }
    }
    return slots;
}

/* The lowest slot of the SuperSlab on offer for the class, taken off; 32 if there is none. */
static unsigned take_offer_in(struct superslab *ss, unsigned class_id) {
    for (unsigned i = 0; i < SUPERSLAB_SLOTS; i++) {
        uint8_t tag = (uint8_t)(class_id + 1);
        if (load_seq(&ss->offer[i]) == tag && rmw_cas(&ss->offer[i], &tag, 0))
            return i;
    }
    return SUPERSLAB_SLOTS;
}

/* A slot of the SuperSlab that was on offer for the class a moment ago, if one is found so: eight bytes at a look. */
HAK_RACY static unsigned guess_offer(struct superslab *ss, unsigned class_id) {
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

size_t pool_take_offer(unsigned class_id) {
    for (size_t at = 0;; at++) {
        at = bitset_find(&hak_region.sets, class_id, at);
        if (at == BITSET_NONE)
            return BITSET_NONE;
        struct superslab *ss = superslab_at(at);
        unsigned slot = guess_offer(ss, class_id);
        uint8_t tag = (uint8_t)(class_id + 1);
        if (slot != SUPERSLAB_SLOTS && !rmw_cas(&ss->offer[slot], &tag, 0))
            slot = SUPERSLAB_SLOTS;
        if (slot == SUPERSLAB_SLOTS) { /* the offers' truth is the bytes: remove the hint, then look again */
            bitset_remove(&hak_region.sets, class_id, at);
            slot = take_offer_in(ss, class_id);
            if (slot == SUPERSLAB_SLOTS)
                continue;
            bitset_add(&hak_region.sets, class_id, at);
        }
        return at * SUPERSLAB_SLOTS + slot;
    }
}

void pool_offer_inbox(size_t slot, unsigned class_id) {
    struct superslab *ss = superslab_at(slot / SUPERSLAB_SLOTS);
    uint32_t bit = 1u << slot % SUPERSLAB_SLOTS;
    if (!(load_relaxed(&ss->inbox_mask) & bit))
        rmw_or(&ss->inbox_mask, bit);
    bitset_add(&hak_region.sets, SET_INBOX + class_id, slot / SUPERSLAB_SLOTS);
}

size_t pool_take_inbox_offer(unsigned class_id) {
    for (size_t at = 0;; at++) {
        at = bitset_find(&hak_region.sets, SET_INBOX + class_id, at);
        if (at == BITSET_NONE)
            return BITSET_NONE;
        struct superslab *ss = superslab_at(at);
        uint32_t mask = load_relaxed(&ss->inbox_mask);
        for (; mask != 0; mask &= mask - 1) {
            unsigned i = lowest_bit(mask);
            const struct slab *s = slab_of_slot(at * SUPERSLAB_SLOTS + i);
            if (slab_class(s) == class_id && (rmw_and(&ss->inbox_mask, ~(1u << i)) >> i & 1))
                return at * SUPERSLAB_SLOTS + i;
        }
        bitset_remove(&hak_region.sets, SET_INBOX + class_id,
                      at); /* a set bit of this class is added again by its pusher:
                                                                      inboxes are looked at by their owner in any case */
    }
}

size_t pool_next_active(size_t slot) {
    size_t superslabs = load_acquire(&hak_region_use.superslabs);
    for (size_t at = slot / SUPERSLAB_SLOTS; at < superslabs; at++) {
        uint64_t w = load_relaxed(&superslab_at(at)->word);
        uint32_t active = word_active(w) & word_resident(w); /* what is being purged or has no memory is not resident */
        if (at == slot / SUPERSLAB_SLOTS)
            active &= (uint32_t)(ALL_SLOTS << slot % SUPERSLAB_SLOTS);
        if (active != 0)
            return at * SUPERSLAB_SLOTS + lowest_bit(active);
    }
    return BITSET_NONE;
}

void pool_count(struct pool_totals *totals) {
    *totals = (struct pool_totals){0, 0, 0, 0};
    size_t n = load_acquire(&hak_region_use.superslabs);
    for (size_t i = 0; i < n; i++) {
        uint64_t w = load_relaxed(&superslab_at(i)->word);
        totals->active_slots += count_bits(word_active(w) & word_resident(w));
        totals->empty_slots += count_bits(word_resident(w) & ~word_active(w));
        totals->superslabs += (word_active(w) & word_resident(w)) != 0;
    }
    totals->superslabs_peak = n;
}
