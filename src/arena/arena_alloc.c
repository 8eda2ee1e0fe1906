/* Malloc in arenas, and where the policy of the calling code (HAKMEM_POLICY) or of the call (hak_alloc_site) says where
 * the block goes.
 *
 *  1. The heaps of a process with a policy are never hit by alloc.h and alloc_slow: heap_watch_sites has pointed every
 *     size at the empty list, and CACHES_SITED keeps the rings from answering. So each malloc comes to
 *     malloc_at_site.
 *  2. policy.h finds the policy of whoever called. Without one the block comes from the heap's own lists and rings.
 *  3. A policy with a lane (lane.h) allocates in the heap that the thread has there, a dense one past all caches. */
/* SPDX-License-Identifier: MIT */
#include "arena/arena_alloc.h"
#include "alloc/alloc.h"
#include "alloc/alloc_slow.h"
#include "arena/arena_heap.h"
#include "arena/lane.h"
#include "arena/policy.h"
#include "base/fail.h"
#include "beside/other.h"
#include "process/hooks.h"
#include "threads/thread.h"

/* ---- in arenas ---- */

static void *allocate_in(struct arena *a, size_t bytes, size_t alignment, bool *zero) {
    struct heap *h = bytes <= PTRDIFF_MAX && alignment <= PTRDIFF_MAX ? thread_enter() : NULL;
    struct heap *of = h != NULL ? arena_heap(h, a) : NULL;
    void *p = of != NULL ? alloc_from(of, bytes, alignment, zero) : alloc_no_memory(h);
    if (h != NULL)
        alloc_leave(h, of != NULL ? of : h);
    return p;
}

/* The thread has no default arena while the callback runs, or else the limit would call it again. */
static bool callback_frees(const struct arena *a, size_t bytes) {
    struct hak_arena *arena = (struct hak_arena *)load_relaxed(&a->handle); /* NOLINT: a handle is no address */
    if (a->over_limit == NULL)
        return false;
    uintptr_t before = thread_suspend_default();
    int again = a->over_limit(arena, bytes, a->argument);
    thread_resume_default(before);
    return again != 0;
}

HAK_NOINLINE void *arena_malloc_any(struct arena *a, size_t bytes, size_t alignment, bool *zero) {
    for (;;) {
        size_t refusals = load_relaxed(&a->refusals);
        void *p = allocate_in(a, bytes, alignment, zero);
        if (likely(p != NULL) || load_relaxed(&a->refusals) == refusals || !callback_frees(a, bytes))
            return p;
    }
}

static void *malloc_in_default(size_t bytes, size_t alignment, bool *zero) {
    struct arena *a = arena_of(hak_default_arena.handle);
    *zero = false;
    if (likely(a != NULL))
        return arena_malloc_any(a, bytes, alignment, zero);
    fail_bad_arena("malloc", hak_default_arena.handle);
    return alloc_no_memory(NULL);
}

static void *malloc_near(const struct slab *s, size_t bytes) {
    bool zero;
    return arena_malloc_any(arena_of_slab(s), bytes, 1, &zero);
}

static struct heap *arena_heap_for(struct heap *h, const struct slab *s) { return arena_heap(h, arena_of_slab(s)); }

/* ---- by policy ---- */

void *alloc_in_lane(unsigned lane, size_t bytes, size_t alignment) {
    bool fits = bytes <= MID_BYTES_MAX && alignment <= MID_BYTES_MAX && is_power_of_two(alignment);
    uintptr_t handle = fits && !other_serves() ? lane_handle(lane) : 0;
    if (handle == 0)
        return NULL;
    bytes = class_aligned_bytes(max_size(bytes, 1), alignment);
    struct heap *h = arena_heap_noted(hak_heap, handle);
    void *p = likely(h != NULL) ? alloc_malloc_from(h, bytes, alloc_no_hit) : NULL;
    bool zero;
    return likely(p != NULL) ? p : arena_malloc_any(arena_numbered(arena_number(handle)), bytes, 1, &zero);
}

void *alloc_for_policy(size_t bytes, unsigned policy) {
    void *p = alloc_in_lane(policy, bytes, 1);
    if (p != NULL)
        return p;
    return policy == HAK_POLICY_DENSE ? alloc_malloc_dense(bytes) : alloc_malloc(bytes, alloc_slow);
}

HAK_NOINLINE static void *refill_here(size_t bytes) { return alloc_tiny(hak_heap, tiny_class_of(bytes), bytes); }

/* The hit paths of malloc in such a heap: those of alloc.h and alloc_slow. */
HAK_INLINE void *allocate_here(struct heap *h, size_t bytes) {
    if (bytes <= TINY_BYTES_MAX)
        return alloc_pop(h, tiny_class_of(bytes), bytes, refill_here);
    struct ring_entry cached = {0, NULL};
    if (bytes <= MID_BYTES_MAX)
        cached = ring_pop_unsampled(h, ring_of_class(mid_class_of(bytes)), bytes, 0);
    if (cached.block == 0)
        return alloc_any(bytes);
    return alloc_from_ring(h, cached, bytes);
}

/* Who called alloc_slow is above this frame, as the call of this function is the last thing done there; and mostly that
 * is who called malloc. */
static void *malloc_at_site(struct heap *h, size_t bytes) {
    const uintptr_t *frame = __builtin_frame_address(0);
    unsigned policy = policy_cached(code_address(frame[1]));
    if (unlikely(policy > HAK_POLICY_DENSE))
        policy = policy_of(frame);
    if (likely(policy <= HAK_POLICY_SHORT_LIVED || bytes > MID_BYTES_MAX))
        return allocate_here(h, bytes);
    if (policy == HAK_POLICY_DENSE)
        return alloc_malloc_dense(bytes);
    void *p = alloc_in_lane(policy, bytes, 1);
    return likely(p != NULL) ? p : allocate_here(h, bytes); /* not by alloc_slow, which would come here again */
}

/* ---- what the wing hears ---- */

const struct arena_hooks hooks_arena = {
    .malloc_in_default = malloc_in_default,
    .malloc_near = malloc_near,
    .heap_for = arena_heap_for,
    .malloc_at_site = malloc_at_site,
    .next_lane = arena_next_lane,
    .thread_ends = arena_leave_all,
};
