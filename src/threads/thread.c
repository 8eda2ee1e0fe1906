/* See thread.h. */
/* SPDX-License-Identifier: MIT */
#include "threads/thread.h"
#include "base/os.h"
#include "blocks/kinds.h"
#include "heap/ring.h"
#include "heap/sample.h"
#include "heap/slab.h"
#include "pool/retain.h"
#include "process/hooks.h"
#include "process/presence.h"
#include "space/superslab.h"

#define RESTS_FROM_THREADS 4 /* that have had the heap */

static _Thread_local bool is_counted __attribute__((tls_model("initial-exec"))); /* see thread_begins */

void thread_empty_heap(struct heap *h) {
    for (unsigned i = 0; kinds[i] != NULL; i++)
        if (kinds[i]->empty_heap != NULL && kind_serves(kinds[i]))
            kinds[i]->empty_heap(h);
    rings_empty(h);
    ledger_close(h->ledger, TINY_CLASSES);
    retain_settle(&h->client);
}

void thread_empty_resting(void) {
    for (struct heap *h = heap_newest(); h != NULL; h = h->next) {
        if (!heap_take_resting(h))
            continue;
        kind_tiny.empty_heap(h);
        account_settle(&h->client);
        heap_put_emptied(h);
    }
}

/* What resting heaps hold back is bounded like EMPTY slots, and the purger takes it back. A heap rests only from its
 * fourth thread on, because the first ones may be all that the program makes. */
static bool begin_rest(struct heap *h) {
    return load_relaxed(&h->client.counters.n[COUNT_heaps_born]) >= RESTS_FROM_THREADS && presence_empties_rests() &&
           !sample_on(h) && mode()->heaps_rest && heap_begin_rest(h, slab_bytes_at_hand(h), retain_bound_bytes());
}

/* Returns whether the heap rests. */
static bool empty_or_rest(struct heap *h) {
    if (h->has_arenas)
        hooks_arena.thread_ends(h);
    bool rests = begin_rest(h);
    thread_empty_heap(h);
    return rests;
}

/* The purger may be at the caches, or find them in use because the thread is looking: then neither empties them. */
static void note_what_is_left(struct heap *h) {
    bool mine = caches_enter(h);
    h->inherits = !mine || load_relaxed(&h->outbox_slabs) != 0 || (rings_made(h) && rings_use(h) != 0);
    caches_leave(h);
}

static void put(struct heap *h, bool rests) {
    note_what_is_left(h);
    presence_heaps_changed(-1); /* first: of the last two threads to end, one must find the other gone */
    retain_thread_ended(&h->client);
    heap_put(h);
    if (rests && !presence_gathered()) /* no purger will empty it: it may have looked for the last time */
        thread_empty_resting();
}

/* The key's value says only that there is a heap: a second libc in the process (an audit module's) numbers its keys
 * from 0, too, and stores its values in the same place. */
static void end_thread(void *value) {
    struct heap *h = thread_own();
    (void)value;
    if (h->number != HEAP_NONE) {
        hak_heap = &heap_afterlife;
        hak_default_arena = (struct default_arena){NULL, 0};
        bool rests = empty_or_rest(h);
        rings_forget(h);
        /* The purger may have had the caches when this thread was to empty them. */
        bool left = caches_enter(h) && load_relaxed(&h->outbox_slabs) != 0;
        caches_leave(h);
        if (left)
            thread_empty_heap(h);
        put(h, rests);
    }
    if (is_counted) {
        is_counted = false;
        presence_thread_ends();
    }
}

void thread_begins(void) {
    is_counted = true; /* first: glibc may allocate for the key, and must not be entered again for the heap */
    if (!os_at_thread_exit(end_thread, &hak_heap))
        end_thread(NULL);
}

HAK_NOINLINE static struct heap *enter_slowly(void) {
    struct heap *h = heap_take();
    if (h == NULL)
        return NULL;
    if (unlikely(h->client.node != node_here()))
        thread_empty_heap(h); /* it may have rested, with slabs of another node */
    if (hak_heap == &heap_afterlife) {
        count(&h->client.counters, COUNT_afterlife_calls);
        return h;
    }
    hak_heap = h;                                         /* before the key: glibc may allocate for it */
    if (!is_counted && !os_at_thread_exit(end_thread, h)) /* its end would not be noticed */
        hak_heap = &heap_before_birth;                    /* this call borrows it; the next one tries again */
    return h;
}

struct heap *thread_enter(void) {
    struct heap *h = thread_own();
    if (unlikely(h->number == HEAP_NONE))
        return enter_slowly();
    return h;
}

void thread_leave(struct heap *h) {
    if (likely(h == thread_own() || h == NULL))
        return;
    put(h, empty_or_rest(h));
}

bool thread_set_default(uintptr_t handle, uintptr_t *before) {
    struct heap *h = thread_enter();
    bool done = h != NULL && h == thread_own();
    if (done) {
        *before = hak_default_arena.handle;
        hak_default_arena = (struct default_arena){handle != 0 ? h : NULL, handle};
        atomic_signal_fence(memory_order_seq_cst);
        hak_heap = handle != 0 ? &heap_redirected : h;
    }
    thread_leave(h);
    return done;
}

uintptr_t thread_suspend_default(void) {
    uintptr_t before = 0;
    return hak_heap == &heap_redirected && thread_set_default(0, &before) ? before : 0;
}

void thread_resume_default(uintptr_t handle) {
    uintptr_t ignored;
    if (handle != 0 && hak_heap != &heap_redirected)
        thread_set_default(handle, &ignored);
}
