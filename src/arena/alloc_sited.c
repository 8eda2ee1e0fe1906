/* Malloc where the policy of the calling code (HAKMEM_POLICY) or of the call (hak_alloc_site) says where the block
 * goes.
 *
 *  1. Such a process's heaps are never hit by alloc.h and alloc_slow: heap_watch_sites has pointed every size at the
 *     empty list, and CACHES_SITED keeps the rings from answering. So each malloc comes to hook_malloc_at_site.
 *  2. policy.h finds the policy of whoever called. Without one the block comes from the heap's own lists and rings.
 *  3. A policy with a lane (lane.h) allocates in the heap that the thread has there, a dense one past all caches. */
/* SPDX-License-Identifier: MIT */
#include "alloc.h"
#include "alloc_slow.h"
#include "arena/arena_alloc.h"
#include "arena/arena_heap.h"
#include "arena/lane.h"
#include "beside/other.h"
#include "arena/policy.h"
#include "hooks.h"

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
HAK_NOINLINE void *hook_malloc_at_site(struct heap *h, size_t bytes) {
    const uintptr_t *frame = __builtin_frame_address(0);
    unsigned policy = policy_cached(code_address(frame[1]));
    if (unlikely(policy > HAK_POLICY_DENSE))
        policy = policy_of(frame);
    if (likely(policy <= HAK_POLICY_SHORT_LIVED || bytes > MID_BYTES_MAX))
        return allocate_here(h, bytes);
    return alloc_for_policy(bytes, policy);
}
