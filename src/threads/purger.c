/* See purger.h. */
/* SPDX-License-Identifier: MIT */
#include "threads/purger.h"
#include "base/os.h"
#include "base/snapshot.h"
#include "beside/other.h"
#include "heap/outbox.h"
#include "heap/pages.h"
#include "heap/ring.h"
#include "heap/slab.h"
#include "pool/limits.h"
#include "pool/retain.h"
#include "pool/retain_rules.h"
#include "process/presence.h"
#include "space/purge.h"
#include "threads/thread.h"

#define TICK_MS 100
#define REST_MS 1000 /* between ticks while threads only use what they hold */
#define IDLE_TICKS_MAX 10
#define LEAN_TICKS (LEAN_MS / TICK_MS)
#define LOANS_TURN 4 /* looks after which all slabs that a thread has on loan are new ones */

/* Empties the caches of a thread that is frozen. */
static void empty_caches(struct heap *own, struct heap *h) {
    for (unsigned i = 0; i < RING_CLASSES; i++) {
        struct ring_entry entries[RING_PIECE_BLOCKS];
        count_add(&own->client.counters, COUNT_ring_spills, h->ring[i] != NULL && h->ring[i]->blocks != 0);
        for (unsigned n; (n = ring_take_piece(h->ring[i], entries)) != 0;) {
            count_add(&own->client.counters, COUNT_ring_spilled_blocks, n);
            ring_kind(i)->give_back(own, entries, n);
        }
    }
    outbox_send(own, h);
    count(&own->client.counters, COUNT_rings_emptied);
}

/* Is there any use, and has its number not changed since the last call? Stores only what changes: after a fork the
 * first store to a page copies it, and thousands of heaps may have no thread. */
static bool is_unused(uint32_t use, uint32_t *seen) {
    if (use == *seen)
        return use != 0;
    *seen = use;
    return false;
}

/* Closes the caches of a heap if there may be anything to take. A purger that a fork has left behind may have been in
 * the middle of that. */
static bool close_idle(const struct heap *own, struct heap *h) {
    if (load_relaxed(&h->caches_flags) & CACHES_FROZEN)
        caches_thaw(h);
    bool may_close = h != own && !heap_is_of_arena(h); /* whose thread may end the arena at any moment */
    bool idle = may_close && is_unused(rings_use(h), &h->caches_seen);
    if (idle != h->found_idle)
        h->found_idle = idle;
    if (idle)
        caches_close(h);
    return idle;
}

/* Empties closed caches that are not in use. Slabs adopted on the way are let go, as this thread allocates from
 * none. */
static void empty_closed(struct heap *own, struct heap *h) {
    bool frozen =
        caches_are_frozen(h) && !heap_is_of_arena(h); /* else it became one, and holds nothing before it thaws */
    if (frozen)
        empty_caches(own, h);
    h->found_idle = false;
    caches_thaw(h);
    while (own->owned.first != 0)
        slab_let_go(own, slab_of_slot(own->owned.first - 1));
    if (frozen)
        retain_settle(&own->client);
}

/* Lets go of what threads have on loan that has not used its loans since the last call, and of a part of all other
 * loans. */
static void recall_loans(struct heap *own) {
    static unsigned turn;
    turn = (turn + 1) % LOANS_TURN;
    for (struct heap *h = heap_newest(); h != NULL; h = h->next) {
        bool unused = is_unused(loans_use(h), &h->loans_seen);
        slab_recall(own, h, unused ? 0 : turn, unused ? 1 : LOANS_TURN);
    }
}

/* Empties heaps that rest, and the caches of threads that have not used them since the last call, and of heaps without
 * a thread, and takes back the slabs that they have on loan. One fence serves all of them. */
static void purger_empty_idle_caches(struct heap *own) {
    bool any = false;
    thread_empty_resting();
    recall_loans(own);
    for (struct heap *h = heap_newest(); h != NULL; h = h->next)
        any |= close_idle(own, h);
    if (!any)
        return;
    os_fence_threads(); /* pairs with caches_enter */
    for (struct heap *h = heap_newest(); h != NULL; h = h->next)
        if (h->found_idle)
            empty_closed(own, h);
}

/* EMPTY slots that threads have given and taken, and have not settled. Some for each of them, which may sleep. */
static int64_t unsettled_empty(void) {
    int64_t sum = 0;
    for (const struct heap *h = heap_newest(); h != NULL; h = h->next) {
        struct deltas since;
        snapshot(&since, &h->client.since, sizeof since);
        sum += since.empty;
    }
    return sum;
}

/* Asked before the purger parks: do threads hold anything that it would have to empty if they fell asleep? From now on
 * each thread wakes the purger when it next puts something into a ring. */
static bool caches_hold_blocks(const struct heap *own) {
    bool hold = false;
    presence_gathers_anew(); /* first: what gathered before is seen below */
    for (struct heap *h = heap_newest(); h != NULL; h = h->next)
        caches_watch(h);
    os_fence_threads(); /* pairs with caches_enter: what was put before the thread saw the flag is seen here */
    for (struct heap *h = heap_newest(); h != NULL; h = h->next)
        hold |= heap_rests(h) || (h != own && !heap_is_of_arena(h) && (rings_use(h) != 0 || loans_use(h) != 0));
    return hold;
}

/* Parks, at most until more grows old than what is `aged_ms` old. Returns how long nothing came meanwhile; 0: something
 * did, or it may not park. */
static unsigned park(const struct heap *own, unsigned aged_ms) {
    if (caches_hold_blocks(own))
        return 0;
    unsigned ms = retain_age_ms(unsettled_empty(), aged_ms);
    return presence_park(ms) ? 0 : ms;
}

/* Another process asked for it (asked.h): gives back what sleeping threads hold, too. */
static void purge_as_asked(struct heap *h) {
    uint64_t wanted = load_relaxed(&hak_asked.purge_wanted);
    if (wanted == h->purge_seen)
        return;
    for (unsigned passes = 0; passes < 2; passes++) /* the second finds who slept since the first */
        purger_empty_idle_caches(h);
    pages_trim_all(h, SUPERSLABS_ALL, true);
    retain_settle(&h->client);
    purge_empty(&h->client, 0, false);
    purge_lazy(&h->client, SIZE_MAX, 0);
    purge_huge_rounding(&h->client);
    h->purge_seen = wanted;
}

/* Gives back until the purger is to end. A tick is idle if nothing was settled and it gave nothing back. */
static void tick_until_end(struct heap *h) {
    unsigned idle_ticks = 0, tick_ms = TICK_MS;
    unsigned aged_ms = 0; /* what is so old has left, and nothing was settled since */
    bool scarce = false;
    for (unsigned ticks = 1;; ticks++) {
        if (idle_ticks == IDLE_TICKS_MAX) {
            aged_ms = park(h, aged_ms);
            idle_ticks = aged_ms != 0 ? IDLE_TICKS_MAX - 1 : 0; /* what is old by now leaves at the next tick */
            tick_ms = aged_ms != 0 || presence_has_news() ? TICK_MS : REST_MS;
        }
        if (!presence_pause(tick_ms))
            return;
        bool each_second = ticks % IDLE_TICKS_MAX == 0; /* in a busy program a thread may sleep, too */
        if (ticks % IDLE_TICKS_MAX == 1)
            scarce = limits_poll_pressure();
        bool quiet = presence_tick_is_idle();
        idle_ticks = quiet ? idle_ticks + 1 : 0;
        if (idle_ticks == IDLE_TICKS_MAX - 1)
            retain_rests(&h->client);
        bool gave = retain_tick(&h->client, scarce || idle_ticks >= LEAN_TICKS, unsettled_empty());
        idle_ticks -= gave && idle_ticks != 0;
        if (!quiet) {
            tick_ms = TICK_MS;
            aged_ms = 0;
        }
        if (each_second || idle_ticks == 1 || idle_ticks == 3 || idle_ticks >= IDLE_TICKS_MAX - 2)
            purger_empty_idle_caches(h);
        purge_as_asked(h);
        if (each_second || quiet || scarce)
            pages_look(h);
        bool halfway = idle_ticks == LEAN_TICKS || idle_ticks == IDLE_TICKS_MAX - 1;
        if ((halfway && option(OPT_PURGE) != PURGE_NEVER) || (scarce && each_second))
            pages_trim_all(h, SUPERSLABS_ALL, false); /* gives back what stayed free from one to the other */
    }
}

/* The purger at work. Its heap is an ordinary one. */
static void purger_work(void) {
    struct heap *h = thread_enter();
    if (h != NULL) {
        thread_empty_heap(h); /* it may have rested */
        h->client.is_purger = true;
        tick_until_end(h);
    }
    presence_leave(); /* first: who has left something to the purger before finds that done */
    if (h != NULL) {
        for (unsigned passes = 0; passes < 2; passes++) /* the second takes back all loans */
            purger_empty_idle_caches(h);
        retain_hand_over(&h->client);
        h->client.is_purger = false;
    }
    thread_leave(h);
}

static void *purger_run(void *unused) {
    (void)unused;
    hak_heap = &heap_afterlife; /* so that it borrows one for its work, and has none while it waits */
    while (presence_await()) {
        purger_work();
        presence_rest();
    }
    thread_empty_resting(); /* threads that ended while it waited to be called may have left it their heaps */
    return NULL;
}

static bool start_thread(struct heap *h) {
    if (h != NULL)
        h->client.in_start = true;
    uintptr_t before = thread_suspend_default(); /* libc keeps a thread's blocks for threads that come later */
    bool done = os_start_thread(purger_run);
    if (!done)
        presence_release_purger();
    thread_resume_default(before);
    if (h != NULL)
        h->client.in_start = false;
    return done;
}

void purger_make(void) {
    struct heap *h = thread_own();
    other_ask(); /* before main, perhaps */
    if (presence_thread_made() && start_thread(h->number != HEAP_NONE ? h : NULL))
        presence_wait_for_start();
    if (retain_has_some_size())
        presence_want_purger();
}

void purger_start(struct heap *h) {
    if (!os_had_filter() && presence_claim_purger())
        start_thread(h);
}
