/* See chores.h. */
/* SPDX-License-Identifier: MIT */
#include "threads/chores.h"
#include "base/log.h"
#include "base/os.h"
#include "blocks/kinds.h"
#include "heap/outbox.h"
#include "heap/pages.h"
#include "heap/ring.h"
#include "heap/sample.h"
#include "pool/limits.h"
#include "pool/retain.h"
#include "process/hooks.h"
#include "space/purge.h"
#include "threads/purger.h"
#include "threads/thread.h"

#define TRIM_SUPERSLABS 16 /* looked at by one malloc: 32 MiB */

/* ---- what is due ---- */

/* A pass by a thread of the program: a part at each slow malloc, so that none takes long, however large the heap. */
static void trim_part(struct heap *h) {
    struct superslab_range part = {h->client.due.trim_at, h->client.due.trim_at + TRIM_SUPERSLABS};
    bool more = part.end < load_acquire(&hak_region_use.superslabs);
    pages_trim_all(h, part, false);
    h->client.due.trim_at = more ? (uint32_t)part.end : 0;
    h->client.due.chores |= more ? CHORE_TRIM : 0;
}

/* The heap grows. If the thread's caches hold as much as a SuperSlab, empties them, so that the next spans come from
 * there. */
static void drain_caches(struct heap *h) {
    thread_empty_resting();
    uint64_t before = load_relaxed(&h->client.counters.n[COUNT_slots_released]);
    if (!rings_empty_from(h, SUPERSLAB_BYTES))
        return;
    outbox_flush(h);
    retain_settle(&h->client);
    count(&h->client.counters, COUNT_tension_drains);
    uint64_t freed = load_relaxed(&h->client.counters.n[COUNT_slots_released]) - before;
    count_add(&h->client.counters, COUNT_tension_freed_spans, freed);
    LOG(LOG_DRAIN, "[TENSION_DRAIN] a new SuperSlab was taken: %u spans came back from rings and outbox", freed);
}

static size_t trim_slabs_of(struct heap *h) {
    size_t pages = pages_trim_all(h, SUPERSLABS_ALL, true);
    retain_settle(&h->client);
    return pages;
}

static void mind_limits(struct heap *h) {
    unsigned due = limits_take_due(h->client.in_callback ? LIMIT_CALLBACK : 0);
    if (due & LIMIT_TRIM) {
        thread_empty_resting();
        purge_huge_rounding(&h->client);
        trim_slabs_of(h);
    }
    if (due & LIMIT_CALLBACK) {
        h->client.in_callback = true;
        if (option_text(OPT_SOFT_LIMIT_PROFILE)[0] != '\0')
            hooks_observe.soft_limit();
        uintptr_t before = thread_suspend_default();
        limits_call_back();
        thread_resume_default(before);
        h->client.in_callback = false;
    }
}

static void do_due(struct heap *h) {
    uint8_t chores = h->client.due.chores;
    h->client.due.chores = 0;
    if (chores & CHORE_PURGER)
        purger_start(h);
    if (chores & CHORE_RINGS) { /* there is no purger */
        thread_empty_resting();
        rings_empty_as_due(h);
    }
    if (chores & CHORE_DRAIN_CACHES)
        drain_caches(h);
    if (chores & CHORE_TRIM)
        trim_part(h);
    if (chores & CHORE_LOOK)
        pages_look_as_grown(h);
    if (chores & CHORE_MERGE)
        hooks_mesh.pass(h);
    if (chores & CHORE_LIMITS)
        mind_limits(h);
}

/* The word is read first: a later request changes it again. */
HAK_COLD void chores_answer(struct heap *h) {
    uint64_t asked = load_acquire(&hak_asked.wanted), wanted = load_relaxed(&hak_asked.purge_wanted);
    if (wanted != h->purge_seen)
        chores_give_back(h);
    if (!sample_is_current(h)) /* the next allocation from a ring is no hit, and sees what is wanted */
        rmw_or(&h->caches_flags, CACHES_SAMPLING);
    h->purge_seen = wanted;
    h->asked_seen = asked;
}

HAK_COLD void chores_do(struct heap *h) {
    bool looks = h->client.due.slow_mallocs % LOOK_EVERY == 0; /* chores may allocate, too */
    if (h->client.due.chores != 0)
        do_due(h);
    if (chores_are_asked(h))
        chores_answer(h);
    if (load_relaxed(&h->caches_flags) & CACHES_STALE)
        rings_apply_options(h);
    /* last: what this finds due in an arena's heap is for the thread's own heap, at the end of the next call */
    if (looks)
        retain_look(&h->client);
}

/* ---- all at once ---- */

static void empty_caches_of(struct heap *h) {
    for (unsigned i = 0; kinds[i] != NULL; i++)
        if (kinds[i]->empty_caches != NULL && kind_serves(kinds[i]))
            kinds[i]->empty_caches(h);
    rings_empty(h);
    retain_settle(&h->client);
}

HAK_INLINE struct heap *next_lane(const struct heap *h, struct heap *last) {
    return unlikely(h->has_arenas) ? hooks_arena.next_lane(h, last) : NULL;
}

void chores_empty_caches(struct heap *h) {
    struct heap *own = thread_own();
    thread_empty_resting();
    empty_caches_of(h);
    if (h->client.is_lane && own->number != HEAP_NONE)
        empty_caches_of(own);
    for (struct heap *of = NULL; (of = next_lane(own, of)) != NULL;)
        if (of != h)
            empty_caches_of(of);
}

void chores_rest(void) {
    struct heap *h = thread_own();
    if (h->number == HEAP_NONE)
        return;
    thread_empty_heap(h);
    if (!h->has_arenas) /* the heap's further pages name those */
        rings_forget(h);
    for (struct heap *of = NULL; (of = next_lane(h, of)) != NULL;)
        thread_empty_heap(of);
}

size_t chores_give_back(struct heap *h) {
    chores_empty_caches(h);
    size_t pages = trim_slabs_of(h);
    for (struct heap *of = NULL; (of = next_lane(h, of)) != NULL;)
        pages += trim_slabs_of(of);
    size_t slots = purge_empty(&h->client, 0, false) + purge_lazy(&h->client, SIZE_MAX, 0);
    purge_huge_rounding(&h->client);
    return pages * os_page_bytes() + slots * SLOT_BYTES;
}
