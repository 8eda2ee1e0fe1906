/* See purger.h. */
#include "purger.h"
#include "inspect.h"
#include "limits.h"
#include "os.h"
#include "profile.h"
#include "purge.h"
#include "remote.h"
#include "tiers.h"

#define TICK_MS 100
#define QUIET_TICKS 10

/* Empties the caches of threads that have not used them since the last look, and of heaps that have none. What slabs are
 * adopted in doing so are let go: this thread allocates from none. */
static void empty_unused_rings(struct heap *own) {
    for (struct heap *h = heap_newest(); h != NULL; h = h->next) {
        if (load_relaxed(&h->caches_flags) & CACHES_FROZEN)
            caches_thaw(h); /* by a purger that a fork has left behind */
        uint32_t use = h != own ? caches_use(h) : 0;
        bool unused = use != 0 && use == h->caches_seen;
        h->caches_seen = use;
        if (!unused)
            continue;
        bool frozen = caches_freeze(h);
        for (unsigned i = 0; frozen && i < RING_CLASSES; i++) {
            struct ring_entry entries[RING_BLOCKS_MOST];
            unsigned n = ring_take_all(h->ring[i], entries);
            if (n != 0)
                tier_of_ring(i)->give_back(own, entries, n);
        }
        if (frozen)
            outbox_send(own, h);
        caches_thaw(h);
        while (own->owned_first != 0)
            slab_let_go(own, slab_of_slot(own->owned_first - 1));
        if (frozen) {
            count(&own->pool.counters, COUNT_rings_emptied);
            pool_settle(&own->pool);
        }
    }
}

static void trim(struct heap *h, bool all) {
    for (unsigned i = 0; i < TIERS; i++)
        count_add(&h->pool.counters, COUNT_trimmed_pages, tiers[i].trim(h, all));
}

/* The heap grows: the SuperSlabs in turn are looked at for pages that stay free, each twice before the heap is a thirty-second
 * larger. Only slabs on offer: who owns others will use them. */
static void look_around(struct heap *h) {
    static _Atomic size_t hand; /* all threads', which may get in each other's way without harm */
    size_t superslabs = load_acquire(&hak_region_use.superslabs), at = load_relaxed(&hand), trimmed = 0;
    for (; h->pool.looks > 0; h->pool.looks--) {
        at = at + 1 < superslabs ? at + 1 : 0;
        size_t pages = 0;
        for (uint32_t slots = pool_offers_in(at); slots != 0; slots &= slots - 1) {
            struct slab *s = slab_of_slot(at * SUPERSLAB_SLOTS + lowest_bit(slots));
            pages += slab_kind(s) == KIND_TINY ? tiny_look(h, s) : mid_look(h, s);
        }
        if (pages != 0)
            purge_split_huge_page(at);
        trimmed += pages;
    }
    store_relaxed(&hand, at);
    count_add(&h->pool.counters, COUNT_trimmed_pages, trimmed);
}

/* Somebody outside asked for it: what threads that sleep hold back, too. */
static void purge_as_asked(struct heap *h, bool fences) {
    uint64_t wanted = load_relaxed(&hak_inspect.purge_wanted);
    if (wanted == h->purge_seen)
        return;
    for (unsigned looks = 0; fences && looks < 2; looks++) /* the second finds who did nothing since the first */
        empty_unused_rings(h);
    trim(h, true);
    pool_settle(&h->pool);
    pool_purge(&h->pool, 0);
    h->purge_seen = wanted;
}

/* Its heap is an ordinary one. */
static void *run(void *unused) {
    (void)unused;
    struct heap *h = heap_enter();
    unsigned quiet = 0, calm = 0;
    bool scarce = false;
    bool fences = os_fence_threads(); /* the first time it takes long */
    if (h != NULL)
        h->pool.is_purger = true;
    for (unsigned ticks = 1; h != NULL; ticks++) {
        if (quiet == QUIET_TICKS) {
            if (!purge_park())
                break;
            quiet = 0;
        }
        bool idle;
        os_sleep_ms(TICK_MS);
        if (ticks % QUIET_TICKS == 1)
            scarce = limits_look();
        quiet = purge_tick(&h->pool, scarce, &idle) ? 0 : quiet + 1;
        calm = idle ? calm + 1 : 0;
        if (calm >= QUIET_TICKS && pool_clients() <= 2)
            break; /* also if the system refuses to take anything back */
        bool look = quiet == 1 || quiet == 3 || quiet >= QUIET_TICKS - 2;
        if (fences && (look || ticks % QUIET_TICKS == 0)) /* in a busy program a thread may sleep, too */
            empty_unused_rings(h);
        purge_as_asked(h, fences);
        bool halfway = idle && (quiet == QUIET_TICKS / 2 || quiet == QUIET_TICKS - 1);
        if (halfway || (scarce && ticks % QUIET_TICKS == 0)) /* what stayed free from one to the other */
            trim(h, false);
    }
    if (h != NULL)
        h->pool.is_purger = false;
    heap_leave(h); /* if it was borrowed */
    purge_release_purger();
    return NULL;
}

static void mind_limits(struct heap *h) {
    unsigned due = limits_take_due(h->pool.in_callback ? LIMIT_CALLBACK : 0);
    if (due & LIMIT_REFRESH)
        limits_refresh();
    if (due & LIMIT_TRIM) {
        purge_huge_rounding(&h->pool);
        trim(h, true);
        pool_settle(&h->pool);
    }
    if (due & LIMIT_CALLBACK) {
        h->pool.in_callback = true;
        profile_write_for(OPT_SOFT_LIMIT_PROFILE);
        limits_call_back();
        h->pool.in_callback = false;
    }
}

void chores_do(struct heap *h) {
    uint8_t chores = h->pool.chores;
    h->pool.chores = 0;
    if (chores & CHORE_PURGER && purge_claim_purger() && !os_start_thread(run))
        purge_release_purger();
    if (chores & CHORE_TRIM)
        trim(h, false);
    if (chores & CHORE_LOOK)
        look_around(h);
    if (chores & CHORE_LIMITS)
        mind_limits(h);
}
