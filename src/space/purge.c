/* See purge.h. */
/* SPDX-License-Identifier: MIT */
#include "space/purge.h"
#include "base/log.h"
#include "base/options.h"
#include "base/os.h"
#include "machine/page_cost.h"

#define REFUSED_MS 1000   /* after a purge that the system refused none is tried for so long */
#define RUN_SUPERSLABS 32 /* purged by one call at most */
/* SuperSlabs that age spares: 2 MiB each. Bursts of 10 MB under PURGE=never, further apart than SS_CACHE_AGE_MS, take
 * 558, 452 and 299 page faults with 0, 1 and 2 of them. */
#define CACHE_RESERVE 1
#define MAPPED_APART_MAX 4096 /* mappings, of some 65,000 */

struct purge hak_purge;

bool purge_was_refused(void) { return os_is_recent(load_relaxed(&hak_purge.refused_ms), REFUSED_MS); }
bool purge_lazy_was_refused(void) { return os_is_recent(load_relaxed(&hak_purge.lazy_refused_ms), REFUSED_MS); }

void purge_shrank_inside(struct client *c, size_t pages) {
    count_add(&c->counters, COUNT_trimmed_pages, pages);
    store_relaxed(&hak_purge.purged_ms[PURGED_PAGES], os_stamp_ms());
    rmw_add(&hak_purge.trims, 1);
}

/* ---- one SuperSlab ---- */

/* What becomes of purged slots. */
enum fate {
    FATE_KEPT, /* the system refused */
    FATE_LAZY,
    FATE_GONE,
};

/* Slots that were made ACTIVE for purging. */
struct claim {
    uint32_t slots; /* all of them */
    uint32_t empty; /* those that were EMPTY; the others share a huge page with slots in use and may be resident too */
    bool whole;     /* the SuperSlab was wholly free: all slots are claimed */
};

void purge_split_huge_page(size_t superslab) {
    uint8_t whole = HUGE_WHOLE;
    if (load_relaxed(&superslab_at(superslab)->huge) == HUGE_WHOLE)
        rmw_cas(&superslab_at(superslab)->huge, &whole, HUGE_SPLIT);
}

bool purge_begin_apart(size_t superslab) {
    return load_relaxed(&superslab_at(superslab)->huge) != HUGE_NONE && region_note_apart(superslab, true);
}

bool purge_keep_apart(void *at, size_t bytes) {
    return load_relaxed(&hak_region_use.apart) >= MAPPED_APART_MAX || region_is_read() ||
           !purge_begin_apart(region_offset(at) / SUPERSLAB_BYTES) || region_renew(at, bytes, false);
}

/* The first of the free slots, which are ours, are kept apart. Returns those that have lost their memory: they stay
 * ours for good. */
static uint32_t keep_slots_apart(size_t superslab, uint32_t slots) {
    unsigned start = lowest_bit(slots), n = lowest_bit(~((uint64_t)slots >> start));
    if (likely(purge_keep_apart(slot_address(superslab * SUPERSLAB_SLOTS + start), n * SLOT_BYTES)))
        return 0;
    uint32_t lost = (uint32_t)(low_bits(n) << start);
    superslab_end_lazy(superslab, superslab_lazy_in(superslab, lost));
    rmw_and(&superslab_at(superslab)->word, ~word_of(0, lost));
    rmw_add(&hak_purge.lost_slots, n);
    return lost;
}

/* Did all slots last hold blocks of one class, which programs touch whole? Then the next ones will, too. So a SuperSlab
 * from the time when the heap was small gets a huge page, if others have paid. With slots of several classes what the
 * next phase uses half weighs too much: the peak of `phases 8 16` is 70 MiB instead of 64 to 66. */
static bool held_small_blocks(size_t superslab) {
    const struct superslab *ss = superslab_at(superslab);
    unsigned tag = load_relaxed(&ss->last_class[0]);
    bool same = superslab_is_touched_whole(tag);
    for (unsigned i = 1; same && i < SUPERSLAB_SLOTS; i++)
        same = load_relaxed(&ss->last_class[i]) == tag;
    return same;
}

bool purge_renew(size_t superslab, bool huge) {
    if (region_is_read())
        return true;
    region_note_apart(superslab, false);
    store_relaxed(&superslab_at(superslab)->huge, huge ? HUGE_WHOLE : HUGE_NONE);
    return region_renew(slot_address(superslab * SUPERSLAB_SLOTS), SUPERSLAB_BYTES, huge);
}

/* All of the SuperSlab was purged and is ours still. Changes whether its next touch brings a huge page. False: it may
 * have lost its memory. */
static bool renew_whole(size_t superslab) {
    struct superslab *ss = superslab_at(superslab);
    uint8_t was = load_relaxed(&ss->huge);
    bool fits = was == HUGE_WHOLE && !load_relaxed(&ss->apart);
    bool wants = was != HUGE_NONE || load_relaxed(&hak_purge.comes_back) || held_small_blocks(superslab),
         pays = wants && page_cost_pays(was != HUGE_NONE);
    return !wants || pays == fits || mode()->free_is_shut || purge_renew(superslab, pays);
}

/* Claims the EMPTY slots of a SuperSlab. If `unused`, also claims UNUSED slots that a huge page keeps resident, even
 * when no slot is EMPTY. */
static struct claim claim_free(size_t superslab, bool unused) {
    struct superslab *ss = superslab_at(superslab);
    bool huge = load_relaxed(&ss->huge) == HUGE_WHOLE;
    uint64_t w = load_acquire(&ss->word);
    struct claim claim;
    do {
        claim.empty = word_resident(w) & ~word_active(w);
        claim.whole = word_active(w) == 0;
        claim.slots = claim.whole || huge ? ~word_active(w) : claim.empty;
        if (claim.empty == 0 && !(unused && huge && !claim.whole && claim.slots != 0))
            return (struct claim){0};
        /* pairs with superslab_give: the pages are nobody's now */
    } while (!PROVEN(purge_claim, rmw_cas(&ss->word, &w, w | claim.slots)));
    superslab_changed(superslab, w, w | claim.slots);
    account_count_empty(-(ptrdiff_t)count_bits(claim.empty));
    if (huge && !claim.whole) {
        purge_split_huge_page(superslab);
        uint32_t lost = keep_slots_apart(superslab, claim.slots);
        claim.slots &= ~lost;
        claim.empty &= ~lost;
    }
    return claim;
}

/* Makes the slots `active` free again. Those in `empty` are EMPTY as before if they were kept. Returns how many
 * left. */
static size_t release_claimed(struct client *c, size_t superslab, uint32_t active, uint32_t empty, enum fate fate) {
    uint32_t lazy = fate == FATE_GONE ? superslab_lazy_in(superslab, active) : 0;
    superslab_end_lazy(superslab, lazy);
    if (fate == FATE_LAZY)
        superslab_begin_lazy(superslab, empty);
    uint64_t gone = word_of(active, fate != FATE_KEPT ? empty : 0);
    uint64_t before = rmw_and(&superslab_at(superslab)->word, ~gone); /* carries the lazy bits along */
    superslab_changed(superslab, before, before & ~gone);
    /* The last slot in use was given back meanwhile. */
    bool pushed = active != UINT32_MAX && word_is_cached(before & ~gone) && superslab_arena(superslab) == 0;
    count_add(&c->counters, COUNT_cache_pushed, pushed);
    if (fate == FATE_KEPT) {
        account_count_empty(count_bits(empty));
        count(&c->counters, COUNT_purge_failures);
        store_relaxed(&hak_purge.refused_ms, os_stamp_ms());
        return 0;
    }
    count_add(&c->counters, fate == FATE_LAZY ? COUNT_lazy_slots : COUNT_purged_slots, count_bits(empty | lazy));
    return count_bits(empty | lazy);
}

/* Where the system refuses to have pages lazily, as locked ones, it may take them at once. */
static enum fate give_pages(void *address, size_t bytes, bool lazy) {
    if (lazy && os_advise(OS_LAZY, address, bytes))
        return FATE_LAZY;
    if (lazy)
        store_relaxed(&hak_purge.lazy_refused_ms, os_stamp_ms());
    return os_advise(OS_PURGE, address, bytes) ? FATE_GONE : FATE_KEPT;
}

bool purge_pages(void *address, size_t bytes, bool lazy) { return give_pages(address, bytes, lazy) != FATE_KEPT; }

/* Purges claimed slots of a SuperSlab, run by run. Returns how many left. */
static size_t purge_runs(struct client *c, size_t superslab, struct claim claim, bool lazy) {
    size_t purged = 0;
    for (uint32_t left = claim.slots; left != 0;) {
        unsigned start = lowest_bit(left), slots = lowest_bit(~((uint64_t)left >> start));
        uint32_t run = (uint32_t)(low_bits(slots) << start);
        enum fate fate = give_pages(slot_address(superslab * SUPERSLAB_SLOTS + start), slots * SLOT_BYTES, lazy);
        count(&c->counters, COUNT_purge_calls);
        purged += release_claimed(c, superslab, run, run & claim.empty, fate);
        left &= ~run;
    }
    return purged;
}

/* Purges the SuperSlab's EMPTY slots. If it is wholly free, its wholly free neighbours below go with it in one call,
 * until `max_slots` are reached; the counter `why` counts all of them. */
static size_t purge_superslab(struct client *c, size_t last, size_t max_slots, bool lazy, enum counter why) {
    struct claim claim = claim_free(last, false);
    uint32_t empty[RUN_SUPERSLABS] = {claim.empty}; /* of those that are wholly claimed */
    if (!claim.whole)
        return purge_runs(c, last, claim, lazy);
    size_t n = 1, purged = count_bits(claim.empty), below = 0;
    for (; n < RUN_SUPERSLABS && n <= last && purged < max_slots; n++) {
        if (word_active(load_relaxed(&superslab_at(last - n)->word)) != 0)
            break;
        claim = claim_free(last - n, false);
        if (!claim.whole) { /* taken into use just now, or nothing of it is EMPTY */
            below = purge_runs(c, last - n, claim, lazy);
            break;
        }
        empty[n] = claim.empty;
        purged += count_bits(claim.empty);
    }
    enum fate fate = give_pages(slot_address((last - (n - 1)) * SUPERSLAB_SLOTS), n * SUPERSLAB_BYTES, lazy);
    count(&c->counters, COUNT_purge_calls);
    count_add(&c->counters, why, fate != FATE_KEPT ? n : 0);
    for (size_t i = 0; i < n; i++) {
        if (fate != FATE_KEPT)
            LOG(LOG_FREE, "[SS_FREE] ss=%x evicted: %s (cache_size=%u/%u)",
                (uintptr_t)slot_address((last - i) * SUPERSLAB_SLOTS), counter_names[why],
                (uint64_t)account_cached_superslabs(), option(OPT_SS_CACHE_COUNT));
        if (fate != FATE_GONE || renew_whole(last - i))
            release_claimed(c, last - i, UINT32_MAX, empty[i], fate);
        else
            superslab_put_unmapped(last - i, 1);
    }
    return below + (fate != FATE_KEPT ? purged : 0);
}

void purge_huge_rounding(struct client *c) {
    size_t superslabs = load_acquire(&hak_region_use.superslabs);
    for (size_t i = 0; i < superslabs; i++)
        if (load_relaxed(&superslab_at(i)->huge) == HUGE_WHOLE &&
            word_active(load_relaxed(&superslab_at(i)->word)) != 0)
            purge_runs(c, i, claim_free(i, true), false);
}

/* A walk over the wholly empty SuperSlabs that are resident. */
struct cache_walk {
    size_t at;    /* the last one */
    uint32_t age; /* of it, milliseconds */
};

static uint32_t age_of(size_t superslab, uint32_t now) {
    return os_age_ms(now, load_relaxed(&superslab_at(superslab)->changed_ms));
}

/* The next SuperSlab of the walk, which begins with zeroes: the oldest first, and the highest first among equally old
 * ones, of which there may be thousands. The caller purges each or finds it in use, or else the walk does not end: so
 * callers end it when the system refuses a purge. */
static size_t next_cached(struct cache_walk *walk, uint32_t now) {
    size_t top = load_acquire(&hak_region_use.superslabs), at = walk->at;
    while ((at = superslab_find_last(SET_CACHED, at)) != BITSET_NONE && age_of(at, now) < walk->age)
        ;
    if (at == BITSET_NONE) {
        walk->age = 0;
        for (size_t i = top; (i = superslab_find_last(SET_CACHED, i)) != BITSET_NONE;)
            if (at == BITSET_NONE || age_of(i, now) > walk->age)
                walk->age = age_of(i, now), at = i;
    }
    walk->at = at;
    return at;
}

size_t purge_empty(struct client *c, size_t keep_slots, bool lazy) {
    size_t purged = 0;
    uint32_t now = os_now_ms();
    store_relaxed(&hak_purge.purged_ms[PURGED_SLOTS], os_stamp_ms());
    static const uint8_t sets[] = {SET_CACHED, SET_EMPTY, SET_ARENA_EMPTY};
    for (unsigned pass = 0; pass < sizeof sets; pass++) {
        unsigned set = sets[pass];
        struct cache_walk walk = {0, 0};
        size_t at = load_acquire(&hak_region_use.superslabs);
        if (superslab_set_is_empty(set))
            continue;
        while ((at = pass == 0 ? next_cached(&walk, now) : superslab_find_last(set, at)) != BITSET_NONE) {
            size_t empty = account_empty_slots(); /* up to 7 for each thread are not counted yet */
            if ((keep_slots != 0 && empty <= keep_slots) || purge_was_refused())
                return purged;
            size_t max = keep_slots != 0 ? empty - keep_slots : SIZE_MAX;
            purged += purge_superslab(c, at, max, lazy, COUNT_cache_evicted_bytes);
            superslab_check_hint(set, at);
        }
    }
    return purged;
}

/* Claims the SuperSlab's LAZY slots. */
static struct claim claim_lazy(size_t superslab) {
    struct superslab *ss = superslab_at(superslab);
    uint64_t w = load_acquire(&ss->word);
    uint32_t lazy;
    do {
        /* A hint until they are ours: another may take and give them. */
        lazy = load_relaxed(&ss->lazy) & ~word_active(w);
        if (lazy == 0)
            return (struct claim){0};
    } while (!PROVEN(lazy_claim, rmw_cas(&ss->word, &w, w | lazy)));
    superslab_changed(superslab, w, w | lazy);
    return (struct claim){.slots = lazy, .empty = word_resident(w) & lazy};
}

size_t purge_lazy(struct client *c, size_t slots, uint64_t age_ms) {
    size_t purged = 0, claimed = 0;
    uint32_t now = os_now_ms();
    for (size_t at = load_acquire(&hak_region_use.superslabs);
         claimed < slots && !purge_was_refused() && (at = superslab_find_last(SET_LAZY, at)) != BITSET_NONE;
         superslab_check_hint(SET_LAZY, at)) {
        if (os_age_ms(now, load_relaxed(&superslab_at(at)->lazy_ms)) < age_ms)
            continue;
        struct claim claim = claim_lazy(at);
        if (claim.empty != 0) /* taken and given since we looked */
            account_count_empty(-(ptrdiff_t)count_bits(claim.empty));
        claimed += count_bits(claim.slots);
        purged += purge_runs(c, at, claim, false);
    }
    return purged;
}

size_t purge_cache_max(void) {
    return min_size(option(OPT_SS_CACHE_COUNT), option(OPT_SS_CACHE_BYTES) / SUPERSLAB_BYTES);
}

void purge_bound_cache(struct client *c, uint32_t now, bool lazy) {
    struct cache_walk walk = {0, 0};
    size_t oldest, cached;
    while ((cached = account_cached_superslabs()) != 0 && !purge_was_refused() &&
           (oldest = next_cached(&walk, now)) != BITSET_NONE) {
        enum counter why;
        if (cached > option(OPT_SS_CACHE_COUNT))
            why = COUNT_cache_evicted_count;
        else if (cached > purge_cache_max())
            why = COUNT_cache_evicted_bytes;
        else if (walk.age > option(OPT_SS_CACHE_AGE_MS) && cached > CACHE_RESERVE)
            why = COUNT_cache_evicted_age;
        else
            return;
        size_t excess = cached > purge_cache_max() ? (cached - purge_cache_max()) * SUPERSLAB_SLOTS : 1;
        purge_superslab(c, oldest, excess, lazy, why);
        superslab_check_hint(SET_CACHED, oldest); /* it may be old: purged with the one above, or taken into use */
    }
}

/* Purges what is older than DECAY_MS in one set of SuperSlabs that have EMPTY slots. */
static void decay_in(struct client *c, unsigned set, uint32_t now) {
    for (size_t at = load_acquire(&hak_region_use.superslabs); (at = superslab_find_last(set, at)) != BITSET_NONE;
         superslab_check_hint(set, at))
        if (age_of(at, now) > option(OPT_DECAY_MS))
            purge_superslab(c, at, 1, false, COUNT_cache_evicted_bytes);
}

void purge_decay(struct client *c, uint32_t now) {
    purge_bound_cache(c, now, false);
    if (option(OPT_PURGE) != PURGE_NEVER) {
        decay_in(c, SET_EMPTY, now);
        decay_in(c, SET_ARENA_EMPTY, now);
    }
}
