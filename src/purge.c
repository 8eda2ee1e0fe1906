/* See purge.h. */
/* SPDX-License-Identifier: MIT */
#include "purge.h"
#include "limits.h"
#include "log.h"
#include "options.h"
#include "os.h"

#define REGRET_MS 1000
#define QUIET_MS 10000
#define REGRETS_BEFORE_DOUBLING 3
#define BOOST_MOST 6            /* doublings: 1 MiB to 64 MiB. A program without threads may fall asleep with so much */
#define THIN_BOOST 4            /* 16 MiB of thin slabs: with 1 MiB `phases`, of 16 MiB each, took 15 % more time */
#define REFUSED_MS 1000         /* after a refused purge none is tried for so long */
#define NEAR_TRIM_MS 1000       /* between two looks for free pages inside slabs near a limit */
#define RUN_SUPERSLABS 64       /* purged by one call at the most */
#define SLOTS_HELD_BY_THREAD 48 /* partly used: `soak` has 45 to 50 a thread */
#define ADVICE_CHANGES_MOST 64
#define CYCLE_FROM_SUPERSLABS 8   /* a thread: 16 MiB purged and wanted back, and the program will do so again */
#define ADVISED_ALONE_MOST 4096   /* mappings, of some 65,000 */
#define PURGER_FROM_SLOTS 64      /* 4 MiB in use: then a program with threads has a purger */
#define PURGER_AGAIN_MS 100       /* from one purger's end to the next one's start: a thread costs some 50 us … */
#define PURGER_AGAIN_SETTLINGS 64 /* … but 32 MiB that were taken and given meanwhile cost far more */
#define LOOKS_A_SLOT 4            /* SuperSlabs looked at for free pages, for each slot by which the heap grows … */
#define LOOKS_MOST 64             /* … and at most at once */
#define LOOKS_FROM_SLOTS 1024     /* 64 MiB in use: the pages of a smaller heap would soon be wanted back */
#define SHRUNK_SHARE 8            /* a heap that goes up and down by less than an eighth does not grow */
#define SHRUNK_SLOTS 16           /* 1 MiB: rings are not emptied for less */
#define PURGER_ALONE_CLIENTS 2u   /* the purger and one thread of the program */
#define FAR_OVER 4                /* times the bound, and so many slots: then a freeing thread does not leave it */
#define FAR_OVER_SLOTS 512        /* to the purger */

/* All written by any thread, with read-modify-writes where they add up; each stands for itself, so relaxed reads do. */
static _Atomic int64_t totals; /* slots ACTIVE, plus slots EMPTY << 32: one atomic tells both */
static _Atomic int64_t cached_superslabs;
static _Atomic int32_t clients;
static _Atomic uint32_t clock_ms;
static _Atomic uint32_t last_decay_ms, refused_ms;
/* What was purged and wanted back: of each kind of free memory, as one's end must not keep the other resident. */
static struct retention {
    _Atomic uint32_t last_purge_ms, last_regret_ms;
    _Atomic uint32_t purges, regretted_purge; /* rounds, and the one last regretted */
    _Atomic uint32_t regrets, boost;          /* doublings of RETAIN_BYTES */
    uint32_t boost_least;
} of_slots, of_pages = {.boost = THIN_BOOST, .boost_least = THIN_BOOST}; /* EMPTY slots; free pages inside slabs */
static _Atomic uint32_t settlings;  /* while this number changes the program is not idle */
static uint32_t settlings_seen;     /* by the purger, whose own this is */
static _Atomic bool gathered;       /* something began to gather in a cache since the purger last wanted to park */
static _Atomic bool without_fences; /* a purger found that it cannot fence other threads */
static _Atomic uint32_t last_trim_ms;
static _Atomic uint32_t purger_ended_ms;        /* 0: none has yet */
static _Atomic uint32_t purger_ended_settlings; /* `settlings` then */

_Atomic(struct fork_page *) purge_fork_page; /* NULL until there is one */
static _Atomic bool forked_with_threads;

static int64_t total_of(int64_t active, int64_t empty) { return active + empty * ((int64_t)1 << 32); }
static int64_t total_active(int64_t t) { return (int32_t)t; }
static int64_t total_empty(int64_t t) { return (t - (int32_t)t) >> 32; }

uint32_t purge_clock_ms(void) { return load_relaxed(&clock_ms); }

void purge_cache_count(int change) { rmw_add(&cached_superslabs, change); }
size_t purge_cached_superslabs(void) {
    int64_t n = load_relaxed(&cached_superslabs);
    return n > 0 ? (size_t)n : 0;
}

static void make_fork_page(void) {
    void *page = region_commit_heap(REGION_FORK_PAGE); /* by two threads at once: harmless */
    if (page == NULL)
        return;
    if (!os_advise(OS_WIPE, page, HEAP_BYTES)) {
        if (hak_region.window)
            os_unmap(page, HEAP_BYTES); /* so that the next thread can try again */
        return;
    }
    store_relaxed(&((struct fork_page *)page)->known, 1);
    store_release(&purge_fork_page, page);
}

/* In a new child: the other threads are not here. What ran between the fork and now counted on top of theirs. */
static void notice_fork(void) {
    struct fork_page *page = load_acquire(&purge_fork_page);
    if (page != NULL && load_relaxed(&page->known) == 0 && rmw_swap(&page->known, 1) == 0) {
        store_relaxed(&clients, 1);
        store_relaxed(&forked_with_threads, true);
    }
}

bool purge_forked_with_threads(void) {
    notice_fork();
    return load_relaxed(&forked_with_threads);
}

/* Pairs with purge_park: it sees what was settled before, or it is parked and we see that. */
static void wake_purger(struct fork_page *page) {
    uint32_t parked = PURGER_PARKED;
    if (load_seq(&page->purger) == PURGER_PARKED && rmw_cas(&page->purger, &parked, PURGER_RUNS))
        os_wake(&page->purger);
}

void purge_gathered(void) {
    struct fork_page *page = load_acquire(&purge_fork_page);
    if (page == NULL || load_relaxed(&gathered))
        return;
    store_seq(&gathered, true); /* pairs with purge_park, as settlings do */
    wake_purger(page);
}

/* The purger and one thread of the program are left: it ends now, also while that thread is busy, which may want to be alone
 * in the process (unshare, setns). Pairs with purge_pause: it sees the count, or its word has changed. */
static void call_purger(struct fork_page *page) {
    uint32_t runs = PURGER_RUNS;
    if (load_seq(&page->purger) == PURGER_RUNS && rmw_cas(&page->purger, &runs, PURGER_CALLED))
        os_wake(&page->purger);
}

void pool_clients_changed(int by) {
    notice_fork();
    int32_t before = rmw_add(&clients, by);
    if (before >= 1 && by > 0 && load_relaxed(&purge_fork_page) == NULL)
        make_fork_page();
    struct fork_page *page = load_acquire(&purge_fork_page);
    if (by > 0 || page == NULL)
        return;
    wake_purger(page);
    if (before + by <= (int32_t)PURGER_ALONE_CLIENTS)
        call_purger(page);
}

unsigned pool_clients(void) {
    int32_t n = load_seq(&clients);
    return n > 1 ? (unsigned)n : 1;
}

size_t pool_active_slots(void) {
    int64_t n = total_active(load_relaxed(&totals));
    return n > 0 ? (size_t)n : 0;
}

static int64_t resident_of(int64_t t) { return total_active(t) + total_empty(t); }

size_t pool_resident_slots(void) {
    int64_t n = resident_of(load_relaxed(&totals));
    return n > 0 ? (size_t)n : 0;
}

bool pool_add_resident(size_t slots, size_t most) {
    int64_t t = load_relaxed(&totals);
    do
        if (slots > most || resident_of(t) > (int64_t)(most - slots))
            return false;
    while (!PROVEN(add_resident, rmw_cas(&totals, &t, t + total_of((int64_t)slots, 0))));
    return true;
}

void pool_count_resident(ptrdiff_t slots) { rmw_add(&totals, total_of(slots, 0)); }

/* A thread holds one or two half-used slots a class it uses. With huge pages these are wholly resident, so they must be few
 * against all slots in use: a tenth. Advice differs between neighbours only a few times, as each change is a mapping. */
static bool huge_pages_pay(size_t superslab) {
    if (option(OPT_HUGE_PAGES) == HUGE_ALWAYS)
        return true;
    int64_t held = (int64_t)pool_clients() * SLOTS_HELD_BY_THREAD;
    return superslab * SUPERSLAB_BYTES >= option(OPT_HUGE_PAGES_FROM) && (int64_t)pool_active_slots() > 10 * held;
}

/* Does the program touch its larger blocks whole? A part of what it took a while ago is looked at, unless that is in huge
 * pages; without an answer the last one holds. */
static bool touches_whole(size_t superslab) {
    static _Atomic bool touches = true; /* of any thread; a hint, so relaxed */
    enum { BACK = 8, SLOTS = 4, PAGES_MOST = SLOTS * SLOT_BYTES / 4096 };
    unsigned char pages[PAGES_MOST];
    size_t look = superslab - BACK, all = SLOTS * SLOT_BYTES / os_page_bytes(), resident = 0;
    if (option(OPT_HUGE_PAGES) == HUGE_ALWAYS)
        return true;
    if (superslab < BACK || load_relaxed(&superslab_at(look)->huge) == HUGE_WHOLE ||
        (word_active(load_relaxed(&superslab_at(look)->word)) & low_bits(SLOTS)) != low_bits(SLOTS) ||
        os_is_confined() || !os_resident(slot_address(look * SUPERSLAB_SLOTS), SLOTS * SLOT_BYTES, pages))
        return load_relaxed(&touches);
    for (size_t i = 0; i < all; i++)
        resident += pages[i] & 1;
    store_relaxed(&touches, resident >= all / 4 * 3);
    return resident >= all / 4 * 3;
}

void purge_consider_huge_pages(size_t first, size_t n, bool touched_whole) {
    static _Atomic uint32_t changes; /* relaxed: an estimate */
    static _Atomic bool advising;
    if (option(OPT_HUGE_PAGES) == HUGE_NEVER || load_relaxed(&changes) > ADVICE_CHANGES_MOST)
        return;
    bool pay = !limits_near() && huge_pages_pay(first) && (touched_whole || touches_whole(first));
    if (pay != load_relaxed(&advising)) {
        store_relaxed(&advising, pay);
        rmw_add(&changes, 1);
    }
    for (size_t i = 0; pay && i < n; i++)
        store_relaxed(&superslab_at(first + i)->huge, HUGE_WHOLE);
    if (pay)
        os_advise(OS_HUGE, slot_address(first * SUPERSLAB_SLOTS), n * SUPERSLAB_BYTES);
}

void purge_wanted_back(size_t superslab, bool touched_whole) {
    static _Atomic uint32_t in_a_row; /* relaxed: an estimate */
    struct superslab *ss = superslab_at(superslab);
    uint8_t none = HUGE_NONE;
    if (age_ms(os_now_ms(), load_relaxed(&ss->changed_ms)) >= REGRET_MS)
        store_relaxed(&in_a_row, 0);
    else if (rmw_add(&in_a_row, 1) >= pool_clients() * CYCLE_FROM_SUPERSLABS && option(OPT_HUGE_PAGES) != HUGE_NEVER &&
             !limits_near() && load_relaxed(&ss->huge) == HUGE_NONE && (touched_whole || touches_whole(superslab)) &&
             rmw_cas(&ss->huge, &none, HUGE_WHOLE))
        os_advise(OS_HUGE, slot_address(superslab * SUPERSLAB_SLOTS), SUPERSLAB_BYTES);
}

/* ---- the bound ---- */

static size_t boosted_slots(const struct retention *r) {
    return option(OPT_RETAIN_BYTES) / SLOT_BYTES << load_relaxed(&r->boost);
}

/* EMPTY slots that may stay resident. */
static size_t bound_slots(void) {
    if (limits_near() && option(OPT_PURGE) != PURGE_NEVER)
        return 0;
    size_t live = pool_active_slots();
    size_t most = option(OPT_SS_CACHE_BYTES) / SLOT_BYTES;
    size_t bound = 0;
    switch ((enum purge_mode)option(OPT_PURGE)) {
    case PURGE_NEVER: return SIZE_MAX / 2;
    case PURGE_LAZY: bound = max_size(live, option(OPT_RETAIN_BYTES) / SLOT_BYTES); break;
    case PURGE_AUTO: bound = boosted_slots(&of_slots) + live * option(OPT_RETAIN_PERCENT) / 100; break;
    case PURGE_EAGER: break;
    }
    return min_size(bound, most);
}

static void note_purge(struct retention *r, uint32_t now) {
    store_relaxed(&r->last_purge_ms, now);
    rmw_add(&r->purges, 1);
}

/* Was memory `taken` that is not resident? If that is what a recent purge gave away, count a regret; else let the bound fall. */
static void judge_last_purge(struct pool_client *c, struct retention *r, bool taken, uint32_t now) {
    uint32_t round = load_relaxed(&r->purges);
    if (!taken || round == load_relaxed(&r->regretted_purge) ||
        age_ms(now, load_relaxed(&r->last_purge_ms)) >= REGRET_MS) {
        if (load_relaxed(&r->boost) > r->boost_least && age_ms(now, load_relaxed(&r->last_regret_ms)) > QUIET_MS) {
            store_relaxed(&r->last_regret_ms, now);
            store_relaxed(&r->boost, load_relaxed(&r->boost) - 1);
            store_relaxed(&r->regrets, 0);
        }
        return;
    }
    store_relaxed(&r->regretted_purge, round);
    store_relaxed(&r->last_regret_ms, now);
    count(&c->counters, COUNT_purge_regrets);
    uint32_t seen = load_relaxed(&r->regrets) + 1;
    store_relaxed(&r->regrets, seen);
    if (seen >= REGRETS_BEFORE_DOUBLING && load_relaxed(&r->boost) < BOOST_MOST)
        store_relaxed(&r->boost, load_relaxed(&r->boost) + 1);
}

static void expect_quiet(void) {
    store_relaxed(&of_slots.boost, of_slots.boost_least);
    store_relaxed(&of_pages.boost, of_pages.boost_least);
}

/* In a program with threads the purger purges, unless the excess is large. If it does not run it is wanted, but starting a
 * thread must wait for malloc's slow path: glibc calls free with a lock held that pthread_create takes. */
static bool has_purger(struct pool_client *c, bool wanted) {
    notice_fork();
    struct fork_page *page = load_acquire(&purge_fork_page);
    if (page == NULL || option(OPT_PURGE) != PURGE_AUTO)
        return false;
    bool there = load_relaxed(&page->purger) != PURGER_NONE; /* then it has a heap, too */
    if (!option(OPT_PURGER)) {
        if (there)
            wake_purger(page); /* it ends */
        return false;
    }
    if (pool_clients() < PURGER_ALONE_CLIENTS + there)
        return false;
    wake_purger(page);
    if (!there && wanted)
        c->chores |= CHORE_PURGER;
    return there;
}

/* The heap grew by so many slots. */
static void look_about(struct pool_client *c, size_t slots) {
    if (slots == 0 || pool_active_slots() < LOOKS_FROM_SLOTS || option(OPT_PURGE) < PURGE_AUTO)
        return;
    c->looks = (uint32_t)min_size(c->looks + LOOKS_A_SLOT * slots, LOOKS_MOST);
    c->chores |= CHORE_LOOK;
}

/* Slots by which more is in use than ever, but for what it shrank by since: growth, be it into EMPTY slots: that costs no memory
 * while there are some, but free pages gather meanwhile, as much as 45 MiB in `soak`, where mid slabs thin out. */
static size_t growth_slots(void) {
    static _Atomic size_t most; /* of any thread; a hint, so relaxed */
    size_t active = pool_active_slots(), seen = load_relaxed(&most);
    size_t now = min_size(max_size(seen, active), active + active / SHRUNK_SHARE);
    if (now != seen)
        store_relaxed(&most, now);
    return active > seen ? active - seen : 0;
}

bool pool_pages_are_missed(void) {
    return load_relaxed(&of_pages.regrets) != 0 &&
           age_ms(os_now_ms(), load_relaxed(&of_pages.last_regret_ms)) <= QUIET_MS;
}

void pool_grew_inside(struct pool_client *c, size_t bytes) {
    c->grown_bytes += bytes;
    size_t slots = c->grown_bytes / SLOT_BYTES;
    if (slots == 0)
        return;
    c->grown_bytes %= SLOT_BYTES;
    judge_last_purge(c, &of_pages, true, os_now_ms());
    if (!pool_pages_are_missed())
        look_about(c, slots);
}

bool pool_may_retain(size_t slots) {
    size_t bound = bound_slots();
    if (option(OPT_PURGE) == PURGE_AUTO && bound != 0)
        bound = max_size(bound, boosted_slots(&of_pages));
    return (int64_t)slots + total_empty(load_relaxed(&totals)) <= (int64_t)bound;
}

void pool_shrank_inside(struct pool_client *c, size_t slot, size_t pages) {
    count_add(&c->counters, COUNT_trimmed_pages, pages);
    note_purge(&of_pages, os_now_ms());
    purge_split_huge_page(slot / SUPERSLAB_SLOTS);
}

/* ---- purging ---- */

/* Slots that were made ACTIVE for purging. */
struct claim {
    uint32_t slots; /* all of them */
    uint32_t empty; /* those that were EMPTY; the others share a huge page with slots in use and may be resident too */
    bool whole;     /* the SuperSlab was wholly free: all slots are claimed */
};

/* The kernel's own collector makes a huge page of any 2 MiB that have one page resident, unless it is told not to: it would
 * undo the purge of a part. Each change of advice is a mapping, of which a process may have some 65,000. */
static void advise_superslab(size_t superslab, enum os_advice advice) {
    static _Atomic int32_t alone; /* how many, about */
    if (advice == OS_HUGE || load_relaxed(&alone) < ADVISED_ALONE_MOST) {
        rmw_add(&alone, advice == OS_HUGE ? -1 : 1);
        os_advise(advice, slot_address(superslab * SUPERSLAB_SLOTS), SUPERSLAB_BYTES);
    }
}

void purge_split_huge_page(size_t superslab) {
    uint8_t whole = HUGE_WHOLE;
    if (load_relaxed(&superslab_at(superslab)->huge) == HUGE_WHOLE &&
        rmw_cas(&superslab_at(superslab)->huge, &whole, HUGE_SPLIT))
        advise_superslab(superslab, OS_NO_HUGE);
}

/* Claims the EMPTY slots of a SuperSlab. `unused`: though there be none, the UNUSED ones that huge pages made resident. */
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
            return (struct claim){0, 0, false};
        /* pairs with pool_give: the pages are nobody's now */
    } while (!PROVEN(purge_claim, rmw_cas(&ss->word, &w, w | claim.slots)));
    pool_changed(superslab, w, w | claim.slots);
    rmw_add(&totals, -total_of(0, count_bits(claim.empty))); /* at once: nobody is refused what is just being purged */
    if (huge && !claim.whole)
        purge_split_huge_page(superslab);
    return claim;
}

/* Makes the slots `active` free again: `empty` of them became UNUSED if they were purged, else are EMPTY as before. */
static size_t release_claimed(struct pool_client *c, size_t superslab, uint32_t active, uint32_t empty, bool purged) {
    uint64_t gone = word_of(active, purged ? empty : 0);
    uint64_t before = rmw_and(&superslab_at(superslab)->word, ~gone);
    pool_changed(superslab, before, before & ~gone);
    if (!purged) {
        rmw_add(&totals, total_of(0, count_bits(empty)));
        count(&c->counters, COUNT_purge_failures);
        store_relaxed(&refused_ms, os_now_ms());
        return 0;
    }
    count_add(&c->counters, COUNT_purged_slots, count_bits(empty));
    return count_bits(empty);
}

/* Purges claimed slots of a SuperSlab in use, run by run. */
static size_t purge_slots(struct pool_client *c, size_t superslab, struct claim claim) {
    size_t purged = 0;
    for (uint32_t left = claim.slots; left != 0;) {
        unsigned start = lowest_bit(left);
        unsigned slots = lowest_bit(~((uint64_t)left >> start));
        uint32_t run = (uint32_t)(low_bits(slots) << start);
        bool done = os_advise(OS_PURGE, slot_address(superslab * SUPERSLAB_SLOTS + start), slots * SLOT_BYTES);
        count(&c->counters, COUNT_purge_calls);
        purged += release_claimed(c, superslab, run, run & claim.empty, done);
        left &= ~run;
    }
    return purged;
}

/* Purges the SuperSlab's EMPTY slots. If it is wholly free, those just below it that are so too go with it, with one call
 * for all, as long as there are fewer than `most_slots`. `why`: counts those that are. */
static size_t purge_superslab(struct pool_client *c, size_t last, size_t most_slots, bool unused, enum counter why) {
    struct claim claim = claim_free(last, unused);
    uint32_t empty[RUN_SUPERSLABS] = {claim.empty}; /* of those that are wholly claimed */
    if (claim.slots == 0)
        return 0;
    if (!claim.whole)
        return purge_slots(c, last, claim);
    size_t n = 1, purged = count_bits(claim.empty), below = 0;
    for (; n < RUN_SUPERSLABS && n <= last && purged < most_slots; n++) {
        if (word_active(load_relaxed(&superslab_at(last - n)->word)) != 0)
            break;
        claim = claim_free(last - n, false);
        if (claim.slots == 0)
            break;
        if (!claim.whole) { /* taken into use just now */
            below = purge_slots(c, last - n, claim);
            break;
        }
        empty[n] = claim.empty;
        purged += count_bits(claim.empty);
    }
    bool done = os_advise(OS_PURGE, slot_address((last - (n - 1)) * SUPERSLAB_SLOTS), n * SUPERSLAB_BYTES);
    count(&c->counters, COUNT_purge_calls);
    count_add(&c->counters, why, done ? n : 0);
    for (size_t i = 0; i < n; i++) {
        if (load_relaxed(&superslab_at(last - i)->huge) == HUGE_SPLIT) { /* its next touch gets a huge page again */
            advise_superslab(last - i, OS_HUGE);
            store_relaxed(&superslab_at(last - i)->huge, HUGE_WHOLE);
        }
        release_claimed(c, last - i, UINT32_MAX, empty[i], done);
    }
    return below + (done ? purged : 0);
}

void purge_huge_rounding(struct pool_client *c) {
    size_t superslabs = load_acquire(&hak_region_use.superslabs);
    for (size_t i = 0; i < superslabs; i++)
        if (load_relaxed(&superslab_at(i)->huge) == HUGE_WHOLE &&
            word_active(load_relaxed(&superslab_at(i)->word)) != 0)
            purge_superslab(c, i, 1, true, COUNT_cache_evicted_bytes);
}

/* A walk over the wholly empty SuperSlabs that are resident. */
struct cache_walk {
    size_t at;    /* the last one */
    uint32_t age; /* of it, milliseconds */
};

static uint32_t age_of(size_t superslab, uint32_t now) {
    return age_ms(now, load_relaxed(&superslab_at(superslab)->changed_ms));
}

/* The next one, the oldest first, from a walk of zeroes on; of equally old ones, as thousands may be, the highest first. They are
 * to be purged or found to be in use, or the walk does not end. */
static size_t next_cached(struct cache_walk *walk, uint32_t now) {
    size_t top = load_acquire(&hak_region_use.superslabs), at = walk->at;
    while ((at = bitset_find_last(&hak_region.sets, SET_CACHED, at)) != BITSET_NONE && age_of(at, now) < walk->age)
        ;
    if (at == BITSET_NONE) {
        walk->age = 0;
        for (size_t i = top; (i = bitset_find_last(&hak_region.sets, SET_CACHED, i)) != BITSET_NONE;)
            if (at == BITSET_NONE || age_of(i, now) > walk->age)
                walk->age = age_of(i, now), at = i;
    }
    walk->at = at;
    return at;
}

static bool was_refused_of_late(uint32_t now) { return age_ms(now, load_relaxed(&refused_ms)) < REFUSED_MS; }

size_t pool_purge(struct pool_client *c, size_t keep_slots) {
    size_t purged = 0;
    uint32_t now = os_now_ms();
    note_purge(&of_slots, now);
    for (unsigned pass = 0; pass < 2; pass++) {
        unsigned set = pass == 0 ? SET_CACHED : SET_EMPTY;
        struct cache_walk walk = {0, 0};
        size_t at = load_acquire(&hak_region_use.superslabs);
        while ((at = pass == 0 ? next_cached(&walk, now) : bitset_find_last(&hak_region.sets, set, at)) !=
               BITSET_NONE) {
            int64_t empty = total_empty(load_relaxed(&totals)); /* of which up to 7 a thread are not told */
            if ((keep_slots != 0 && empty <= (int64_t)keep_slots) || was_refused_of_late(now))
                return purged;
            size_t most = keep_slots != 0 ? (size_t)empty - keep_slots : SIZE_MAX;
            purged += purge_superslab(c, at, most, false, COUNT_cache_evicted_bytes);
            pool_check_hint(set, at);
        }
    }
    return purged;
}

static size_t cache_most(void) {
    return min_size(option(OPT_SS_CACHE_COUNT), option(OPT_SS_CACHE_BYTES) / SUPERSLAB_BYTES);
}

/* The bounds of the cache of SuperSlabs, whatever the mode: the oldest goes first. */
static void bound_cache(struct pool_client *c, uint32_t now) {
    struct cache_walk walk = {0, 0};
    size_t oldest, cached;
    while ((cached = purge_cached_superslabs()) != 0 && (oldest = next_cached(&walk, now)) != BITSET_NONE) {
        enum counter why;
        if (cached > option(OPT_SS_CACHE_COUNT))
            why = COUNT_cache_evicted_count;
        else if (cached > cache_most())
            why = COUNT_cache_evicted_bytes;
        else if (walk.age > option(OPT_SS_CACHE_AGE_MS) && cached > option(OPT_SS_RESERVE))
            why = COUNT_cache_evicted_age;
        else
            return;
        size_t excess = cached > cache_most() ? (cached - cache_most()) * SUPERSLAB_SLOTS : 1;
        size_t purged = was_refused_of_late(now) ? 0 : purge_superslab(c, oldest, excess, false, why);
        pool_check_hint(SET_CACHED, oldest);
        if (purged == 0)
            return; /* refused, or taken into use: the next settling looks again */
    }
}

void pool_decay(struct pool_client *c, uint32_t now) {
    bound_cache(c, now);
    uint64_t slot_age = option(OPT_DECAY_MS);
    size_t at = load_acquire(&hak_region_use.superslabs);
    while (option(OPT_PURGE) != PURGE_NEVER &&
           (at = bitset_find_last(&hak_region.sets, SET_EMPTY, at)) != BITSET_NONE) {
        if (age_ms(now, load_relaxed(&superslab_at(at)->changed_ms)) > slot_age)
            purge_superslab(c, at, 1, false, COUNT_cache_evicted_bytes);
        pool_check_hint(SET_EMPTY, at);
    }
}

/* ---- settling ---- */

/* Where no purger empties the rings of a thread that falls asleep: has the heap shrunk by half since they were last emptied? */
static bool shrank(void) {
    static _Atomic size_t most; /* slots in use since; of any thread, a hint, so relaxed */
    size_t active = pool_active_slots(), seen = load_relaxed(&most);
    bool half = active <= seen / 2 && seen - active >= SHRUNK_SLOTS;
    if (active > seen || half)
        store_relaxed(&most, active);
    return half;
}

void pool_settle(struct pool_client *c) {
    int64_t change = total_of(c->active_delta, c->empty_delta);
    c->active_delta = 0, c->empty_delta = 0, c->start = 0;
    int64_t empty = total_empty(change != 0 ? rmw_add(&totals, change) + change : load_relaxed(&totals));
    uint32_t now = os_now_ms();
    store_relaxed(&clock_ms, now);
    judge_last_purge(c, &of_slots, c->unused_taken != 0, now);
    judge_last_purge(c, &of_pages, false, now);
    look_about(c, max_size(c->unused_taken, growth_slots()));
    c->unused_taken = 0;
    if (!c->is_purger)
        rmw_add(&settlings, 1);
    limits_settled(c);
    size_t bound = bound_slots();
    bool over = empty > (int64_t)bound && age_ms(now, load_relaxed(&refused_ms)) >= REFUSED_MS;
    bool purger = has_purger(c, over || pool_active_slots() >= PURGER_FROM_SLOTS);
    if (over && !(purger && !limits_near() && empty <= (int64_t)(bound * FAR_OVER + FAR_OVER_SLOTS)))
        pool_purge(c, bound - bound / 4);
    if (purge_cached_superslabs() > cache_most())
        bound_cache(c, now);
    if (!purger && shrank())
        c->chores |= CHORE_RINGS;
    if (age_ms(now, load_relaxed(&last_decay_ms)) >= 1000) {
        store_relaxed(&last_decay_ms, now);
        pool_decay(c, now);
    }
    uint32_t last_trim = load_relaxed(&last_trim_ms);
    uint64_t trim_ms = option(OPT_DECAY_MS);
    if (last_trim == 0 || age_ms(now, last_trim) >= (limits_near() ? min_size(trim_ms, NEAR_TRIM_MS) : trim_ms)) {
        store_relaxed(&last_trim_ms, now);
        c->chores |= last_trim != 0 ? CHORE_TRIM : 0;
    }
}

/* ---- the purger's side ---- */

bool purge_purger_is_early(void) {
    uint32_t ended = load_relaxed(&purger_ended_ms);
    uint32_t since = load_relaxed(&settlings) - load_relaxed(&purger_ended_settlings);
    return ended != 0 && since < PURGER_AGAIN_SETTLINGS && age_ms(os_now_ms(), ended) < PURGER_AGAIN_MS;
}

bool purge_claim_purger(void) {
    struct fork_page *page = load_acquire(&purge_fork_page);
    uint32_t no = 0;
    return page != NULL && pool_clients() >= PURGER_ALONE_CLIENTS && rmw_cas(&page->purger, &no, PURGER_RUNS);
}

void purge_release_purger(void) { store_release(&load_acquire(&purge_fork_page)->purger, PURGER_NONE); }

bool purge_pause(unsigned ms) {
    struct fork_page *page = load_acquire(&purge_fork_page);
    if (pool_clients() > PURGER_ALONE_CLIENTS)
        os_wait(&page->purger, PURGER_RUNS, ms);
    store_seq(&page->purger, PURGER_RUNS); /* pairs with call_purger, as the load of the count does */
    return pool_clients() > PURGER_ALONE_CLIENTS;
}

bool purge_park(void) {
    struct fork_page *page = load_acquire(&purge_fork_page);
    store_seq(&page->purger, PURGER_PARKED);
    while (load_seq(&settlings) == settlings_seen && !load_seq(&gathered) && pool_clients() > PURGER_ALONE_CLIENTS &&
           load_relaxed(&page->purger) == PURGER_PARKED)
        os_wait(&page->purger, PURGER_PARKED, OS_WITHOUT_END);
    store_relaxed(&gathered, false);
    store_seq(&page->purger, PURGER_RUNS);
    return pool_clients() > PURGER_ALONE_CLIENTS;
}

void purge_without_fences(void) { store_relaxed(&without_fences, true); }
bool purge_minds_sleepers(void) {
    const struct fork_page *page = load_acquire(&purge_fork_page);
    return page != NULL && load_relaxed(&page->purger) != PURGER_NONE && !load_relaxed(&without_fences);
}

bool purge_has_news(void) { return load_relaxed(&settlings) != settlings_seen; }

void purge_hand_over(struct pool_client *c) {
    expect_quiet();
    pool_settle(c);
    size_t bound = bound_slots();
    if (total_empty(load_relaxed(&totals)) > (int64_t)bound)
        pool_purge(c, bound - bound / 4);
    store_relaxed(&purger_ended_settlings, load_relaxed(&settlings));
    store_relaxed(&purger_ended_ms, (uint32_t)max_size(os_now_ms(), 1));
}

bool purge_tick(struct pool_client *c, bool scarce, bool *idle) {
    uint32_t now_seen = load_relaxed(&settlings);
    *idle = now_seen == settlings_seen;
    settlings_seen = now_seen;
    uint32_t now = os_now_ms();
    store_relaxed(&clock_ms, now);
    if (*idle)
        expect_quiet();
    size_t bound = bound_slots();
    if ((*idle || scarce) && option(OPT_PURGE) == PURGE_AUTO)
        bound = min_size(bound, option(OPT_RETAIN_BYTES) / SLOT_BYTES);
    int64_t empty = total_empty(load_relaxed(&totals));
    bool over = empty > (int64_t)bound && age_ms(now, load_relaxed(&refused_ms)) >= REFUSED_MS;
    if (over)
        pool_purge(c, bound - bound / 4);
    if ((*idle || scarce) && option(OPT_PURGE) != PURGE_NEVER)
        purge_huge_rounding(c);
    pool_decay(c, now);
    return over || !*idle;
}
