/* See arena_heap.h. */
/* SPDX-License-Identifier: MIT */
#include "arena/arena_heap.h"
#include "base/options.h"
#include "blocks/kinds.h"
#include "heap/ring.h"
#include "threads/thread.h"

#include <string.h>

static struct heap *held(struct heap *h, const struct arena *a) {
    struct heap *of = load_acquire(&a->heaps);
    while (of != NULL && load_relaxed(&of->arena.holder) != h) /* only this thread makes itself the holder */
        of = of->arena.next;
    return of;
}

static struct heap *take_over(struct heap *h, const struct arena *a) {
    for (struct heap *of = load_acquire(&a->heaps); of != NULL; of = of->arena.next) {
        struct heap *nobody = NULL;
        if (load_relaxed(&of->arena.holder) != NULL ||
            !rmw_cas(&of->arena.holder, &nobody, h)) /* pairs with arena_leave_all */
            continue;
        of->inherits = true; /* also what this thread may have freed past all caches */
        return of;
    }
    return NULL;
}

static bool holds_nothing(struct heap *of) {
    bool nothing = caches_enter(of) && rings_use(of) == 0;
    caches_leave(of);
    return nothing;
}

/* Takes a heap that holds nothing. A heap that rested has slabs of the process. A thread that ended while the purger
 * was at its caches has left blocks in them, which the arena must not hand out. If the purger is still there, or seems
 * to be in a child of fork, another heap is taken. */
static struct heap *take_empty(void) {
    struct heap *of, *passed = NULL, *next;
    while ((of = heap_take_for_arena()) != NULL) {
        thread_empty_heap(of);
        if (likely(holds_nothing(of)))
            break;
        of->arena.next = passed;
        passed = of;
    }
    for (; passed != NULL; passed = next) {
        next = passed->arena.next;
        passed->arena.next = NULL;
        heap_untake_for_arena(passed);
    }
    return of;
}

static struct heap *make(struct heap *h, struct arena *a) {
    struct heap *of = take_empty();
    if (of == NULL)
        return NULL;
    of->client.arena = a->number;
    of->client.is_choosy = true;
    of->client.is_lane = load_relaxed(&a->is_lane);
    store_relaxed(&of->arena.holder, h);
    store_relaxed(&of->arena.handle, load_relaxed(&a->handle));
    struct heap *newest = load_relaxed(&a->heaps);
    do
        of->arena.next = newest;
    while (!rmw_cas(&a->heaps, &newest, of)); /* pairs with the loads above */
    if (of->client.is_lane)                   /* the purger looks after it, as after the process's heaps */
        store_release(&of->is_of_arena, false);
    return of;
}

static struct heap *note(struct heap *h, uintptr_t handle, struct heap *of) {
    if (of != NULL)
        *arena_entry_of(h, handle) = (struct arena_entry){handle - 1, of};
    return of;
}

struct heap *arena_heap(struct heap *h, struct arena *a) {
    uintptr_t handle = load_relaxed(&a->handle);
    struct heap *noted = arena_heap_noted(h, handle);
    if (noted != NULL)
        return noted;
    struct heap *of = held(h, a);
    if (of == NULL) {
        h->has_arenas = true;
        of = take_over(h, a);
    }
    return note(h, handle, of != NULL ? of : make(h, a));
}

/* ---- all heaps that the thread has in arenas ---- */

struct heap *arena_next_lane(const struct heap *h, struct heap *last) {
    struct heap *of = last != NULL ? last->next : heap_newest();
    while (of != NULL && (load_relaxed(&of->arena.holder) != h || heap_is_of_arena(of)))
        of = of->next;
    return of;
}

void arena_leave_all(struct heap *h) {
    for (struct heap *of = heap_newest(); of != NULL; of = of->next) {
        struct heap *holder = h;
        /* A lane's; in this order, because the end of an arena clears the holder first. Only this thread sets
         * itself. */
        if (!heap_is_of_arena(of) && load_relaxed(&of->arena.holder) == h)
            thread_empty_heap(of);
        if (load_relaxed(&of->arena.holder) == h)
            rmw_cas(&of->arena.holder, &holder, NULL); /* pairs with take_over; an arena that ends clears it, too */
    }
    memset(h->arena.noted, 0, sizeof h->arena.noted);
    h->has_arenas = false;
}

/* ---- freeing ---- */

static void free_past_caches(struct heap *h, struct slab *s, void *p) {
    const struct kind *kind = kind_of(s);
    (kind->free_past_caches != NULL ? kind->free_past_caches : kind->free)(h, s, p);
}

/* As arena_heap_noted, by the arena's number, which is in the entry's handle. */
static struct heap *noted_for(struct heap *h, uint32_t number) {
    struct arena_entry e = h->arena.noted[number % ARENA_ENTRIES];
    uintptr_t handle = e.handle_less_1 + 1;
    bool mine = e.heap != NULL && arena_number(handle) == number && load_relaxed(&e.heap->arena.handle) == handle;
    return mine ? e.heap : NULL;
}

/* The thread has not noted a heap of the arena. */
HAK_NOINLINE static void free_unnoted(struct heap *h, struct slab *s, void *p, uint32_t number) {
    struct arena *a = arena_numbered(number);
    struct heap *of = h->has_arenas ? note(h, load_relaxed(&a->handle), held(h, a)) : NULL;
    if (of == NULL && kind_of(s)->is_secure) /* freed blocks have to wait in a quarantine */
        of = arena_heap(h, a);
    if (of != NULL)
        kind_of(s)->free(of, s, p);
    else
        free_past_caches(h, s, p);
}

static void arena_free(struct heap *h, struct slab *s, void *p) {
    uint32_t number = superslab_arena(slot_of(s) / SUPERSLAB_SLOTS);
    struct heap *of = noted_for(h, number);
    if (likely(of != NULL))
        kind_of(s)->free(of, s, p);
    else
        free_unnoted(h, s, p, number);
}

static void arena_free_without_heap(struct slab *s, void *p) {
    if (kind_of(s)->free_without_heap != NULL)
        kind_of(s)->free_without_heap(s, p);
    else
        free_past_caches(&heap_afterlife, s, p);
}

const struct kind kind_arena = {
    .name = "an arena's slab",
    .free = arena_free,
    .free_without_heap = arena_free_without_heap,
};
