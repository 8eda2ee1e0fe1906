/* See purger.h. */
/* SPDX-License-Identifier: MIT */
#include "purger.h"
#include "arena/arena_heap.h"
#include "space/arena_space.h"
#include "arena/lane.h"
#include "beside/other.h"
#include "observe/inspect.h"
#include "kinds.h"
#include "limits.h"
#include "base/log.h"
#include "base/os.h"
#include "outbox.h"
#include "pages.h"
#include "presence.h"
#include "observe/dump.h"
#include "mesh/mesh.h"
#include "purge.h"
#include "retain.h"
#include "ring.h"
#include "slab.h"
#include "thread.h"

#define TICK_MS 100
#define REST_MS 1000 /* between ticks while threads only use what they hold */
#define IDLE_TICKS_MAX 10
#define TRIM_SUPERSLABS 16 /* looked at by one malloc: 32 MiB */
#define LOANS_TURN 4       /* looks after which all slabs that a thread has on loan are new ones */

/* Empties the caches of a thread that is frozen. */
static void empty_caches(struct heap *own, struct heap *h) {
    for (unsigned i = 0; i < RING_CLASSES; i++) {
        struct ring_entry entries[RING_PIECE_BLOCKS];
        count_add(&own->pool.counters, COUNT_ring_spills, h->ring[i] != NULL && h->ring[i]->blocks != 0);
        for (unsigned n; (n = ring_take_piece(h->ring[i], entries)) != 0;) {
            count_add(&own->pool.counters, COUNT_ring_spilled_blocks, n);
            ring_kind(i)->give_back(own, entries, n);
        }
    }
    outbox_send(own, h);
    count(&own->pool.counters, COUNT_rings_emptied);
}

/* Is there any use, and has its number not changed since the last call? */
static bool is_unused(uint32_t use, uint32_t *seen) {
    bool unused = use != 0 && use == *seen;
    *seen = use;
    return unused;
}

/* Closes the caches of a heap if there may be anything to take. */
static bool close_idle(const struct heap *own, struct heap *h) {
    if (load_relaxed(&h->caches_flags) & CACHES_FROZEN)
        caches_thaw(h); /* by a purger that a fork has left behind */
    h->found_idle = false;
    if (h == own || heap_is_of_arena(h)) /* whose thread may end the arena at any moment */
        return false;
    h->found_idle = is_unused(rings_use(h), &h->caches_seen);
    if (h->found_idle)
        caches_close(h);
    return h->found_idle;
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
        retain_settle(&own->pool);
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

/* Empties the caches of threads that have not used them since the last call, and of heaps without a thread, and takes
 * back the slabs that they have on loan. One fence serves all of them. */
static void purger_empty_idle_caches(struct heap *own) {
    bool any = false;
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

/* Asked before the purger parks: do threads hold anything that it would have to empty if they fell asleep? From now on
 * each thread wakes the purger when it next puts something into a ring. */
static bool caches_hold_blocks(const struct heap *own) {
    bool hold = false;
    presence_gathers_anew(); /* first: what gathered before is seen below */
    for (struct heap *h = heap_newest(); h != NULL; h = h->next)
        caches_watch(h);
    os_fence_threads(); /* pairs with caches_enter: what was put before the thread saw the flag is seen here */
    for (struct heap *h = heap_newest(); h != NULL; h = h->next)
        hold |= h != own && !heap_is_of_arena(h) && (rings_use(h) != 0 || loans_use(h) != 0);
    return hold;
}

static void purger_trim(struct heap *h, struct superslab_range in, bool all) {
    if (in.first == 0)
        mesh_slabs(h, all);
    for (unsigned i = 0; kinds[i] != NULL; i++)
        if (kinds[i]->trim != NULL)
            count_add(&h->pool.counters, COUNT_trimmed_pages, kinds[i]->trim(h, in, all));
    pages_trim_in(h, in, all);
}

/* A pass by a thread of the program: a part at each slow malloc, so that none takes long, however large the heap. */
static void purger_trim_part(struct heap *h) {
    struct superslab_range part = {h->pool.due.trim_at, h->pool.due.trim_at + TRIM_SUPERSLABS};
    bool more = part.end < load_acquire(&hak_region_use.superslabs);
    purger_trim(h, part, false);
    h->pool.due.trim_at = more ? (uint32_t)part.end : 0;
    h->pool.due.chores |= more ? CHORE_TRIM : 0;
}

/* Another process asked for it (inspect.h): gives back what sleeping threads hold, too. */
static void purge_as_asked(struct heap *h) {
    uint64_t wanted = load_relaxed(&hak_inspect.purge_wanted);
    if (wanted == h->purge_seen)
        return;
    for (unsigned passes = 0; passes < 2; passes++) /* the second finds who slept since the first */
        purger_empty_idle_caches(h);
    purger_trim(h, SUPERSLABS_ALL, true);
    retain_settle(&h->pool);
    purge_empty(&h->pool, 0, false);
    purge_lazy(&h->pool, SIZE_MAX, 0);
    h->purge_seen = wanted;
}

/* The purger at work. Its heap is an ordinary one. */
static void purger_work(void) {
    struct heap *h = thread_enter();
    unsigned idle_ticks = 0, tick_ms = TICK_MS;
    bool scarce = false;
    if (h != NULL)
        h->pool.is_purger = true;
    for (unsigned ticks = 1; h != NULL; ticks++) {
        if (idle_ticks == IDLE_TICKS_MAX) {
            if (!caches_hold_blocks(h))
                presence_park();
            idle_ticks = 0;
            tick_ms = presence_has_news() ? TICK_MS : REST_MS;
        }
        if (!presence_pause(tick_ms))
            break;
        bool idle;
        if (!option(OPT_PURGER))
            break;
        if (ticks % IDLE_TICKS_MAX == 1)
            scarce = limits_poll_pressure();
        idle_ticks = retain_tick(&h->pool, scarce, &idle) ? 0 : idle_ticks + 1;
        if (!idle)
            tick_ms = TICK_MS;
        bool look = idle_ticks == 1 || idle_ticks == 3 || idle_ticks >= IDLE_TICKS_MAX - 2;
        if (look || ticks % IDLE_TICKS_MAX == 0) /* in a busy program a thread may sleep, too */
            purger_empty_idle_caches(h);
        purge_as_asked(h);
        if (idle && idle_ticks == IDLE_TICKS_MAX - 1)
            retain_rests(&h->pool);
        if (idle || scarce || ticks % IDLE_TICKS_MAX == 0)
            pages_look(h);
        bool halfway = idle && (idle_ticks == IDLE_TICKS_MAX / 2 || idle_ticks == IDLE_TICKS_MAX - 1);
        halfway &= option(OPT_PURGE) != PURGE_NEVER;
        if (halfway || (scarce && ticks % IDLE_TICKS_MAX == 0)) /* gives back what stayed free from one to the other */
            purger_trim(h, SUPERSLABS_ALL, false);
    }
    presence_leave(); /* first: who has left something to the purger before finds that done */
    if (h != NULL) {
        for (unsigned passes = 0; passes < 2; passes++) /* the second takes back all loans */
            purger_empty_idle_caches(h);
        retain_hand_over(&h->pool);
        h->pool.is_purger = false;
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
    return NULL;
}

static void purger_mind_limits(struct heap *h) {
    unsigned due = limits_take_due(h->pool.in_callback ? LIMIT_CALLBACK : 0);
    if (due & LIMIT_TRIM) {
        purge_huge_rounding(&h->pool);
        purger_trim(h, SUPERSLABS_ALL, true);
        retain_settle(&h->pool);
    }
    if (due & LIMIT_CALLBACK) {
        h->pool.in_callback = true;
        dump_at_soft_limit();
        uintptr_t before = thread_suspend_default();
        limits_call_back();
        thread_resume_default(before);
        h->pool.in_callback = false;
    }
}

static bool start_thread(struct heap *h) {
    if (h != NULL)
        h->pool.in_start = true;
    uintptr_t before = thread_suspend_default(); /* libc keeps a thread's blocks for threads that come later */
    bool done = os_start_thread(purger_run);
    if (!done)
        presence_release_purger();
    thread_resume_default(before);
    if (h != NULL)
        h->pool.in_start = false;
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

static void purger_start(struct heap *h) {
    if (!os_had_filter() && presence_claim_purger())
        start_thread(h);
}

/* The heap grows. If the thread's caches hold as much as a SuperSlab, empties them, so that the next spans come from
 * there. */
static void drain_caches(struct heap *h) {
    uint64_t before = load_relaxed(&h->pool.counters.n[COUNT_slots_released]);
    if (!rings_empty_from(h, SUPERSLAB_BYTES))
        return;
    outbox_flush(h);
    retain_settle(&h->pool);
    count(&h->pool.counters, COUNT_tension_drains);
    uint64_t freed = load_relaxed(&h->pool.counters.n[COUNT_slots_released]) - before;
    count_add(&h->pool.counters, COUNT_tension_freed_spans, freed);
    LOG(LOG_DRAIN, "[TENSION_DRAIN] a new SuperSlab was taken: %u spans came back from rings and outbox", freed);
}

void chores_do(struct heap *h) {
    uint8_t chores = h->pool.due.chores;
    h->pool.due.chores = 0;
    if (chores & CHORE_PURGER)
        purger_start(h);
    if (chores & CHORE_RINGS)
        rings_empty_as_due(h);
    if (chores & CHORE_DRAIN_CACHES)
        drain_caches(h);
    if (chores & CHORE_TRIM)
        purger_trim_part(h);
    if (chores & CHORE_LOOK)
        pages_look_as_grown(h);
    if (chores & CHORE_MESH)
        mesh_slabs(h, false);
    if (chores & CHORE_LIMITS)
        purger_mind_limits(h);
}

/* ---- all at once ---- */

static void empty_caches_of(struct heap *h) {
    for (unsigned i = 0; kinds[i] != NULL; i++)
        if (kinds[i]->release != NULL)
            kinds[i]->release(h);
    rings_empty(h);
    retain_settle(&h->pool);
}

/* The heap that the thread with this heap has in the policy's lane; NULL: none. */
static struct heap *heap_in_lane(struct heap *h, unsigned policy) {
    uintptr_t handle = load_acquire(&lane_handles[policy]);
    return handle != 0 ? arena_heap_noted(h, handle) : NULL;
}

void chores_empty_caches(struct heap *h) {
    struct heap *own = thread_own(), *of;
    empty_caches_of(h);
    if (h->pool.is_lane && own->number != HEAP_NONE)
        empty_caches_of(own);
    for (unsigned policy = 0; policy < POLICIES; policy++)
        if ((of = heap_in_lane(own, policy)) != NULL && of != h)
            empty_caches_of(of);
}

void chores_rest(void) {
    struct heap *h = thread_own(), *of;
    if (h->number == HEAP_NONE)
        return;
    thread_empty_heap(h);
    if (!h->has_arenas) /* which the heap's further pages name */
        rings_forget(h);
    for (unsigned policy = 0; policy < POLICIES; policy++)
        if ((of = heap_in_lane(h, policy)) != NULL)
            thread_empty_heap(of);
}

static size_t trim_slabs_of(struct heap *h) {
    size_t pages = 0;
    for (unsigned i = 0; kinds[i] != NULL; i++)
        if (kinds[i]->trim != NULL)
            pages += kinds[i]->trim(h, SUPERSLABS_ALL, true);
    count_add(&h->pool.counters, COUNT_trimmed_pages, pages);
    pages += pages_trim_in(h, SUPERSLABS_ALL, true);
    mesh_slabs(h, true);
    retain_settle(&h->pool);
    return pages;
}

size_t chores_give_back(struct heap *h) {
    chores_empty_caches(h);
    size_t pages = trim_slabs_of(h);
    for (unsigned policy = 0; policy < POLICIES; policy++) {
        struct heap *of = heap_in_lane(h, policy);
        pages += of != NULL ? trim_slabs_of(of) : 0;
    }
    size_t slots = purge_empty(&h->pool, 0, false) + purge_lazy(&h->pool, SIZE_MAX, 0);
    return pages * os_page_bytes() + slots * SLOT_BYTES;
}
