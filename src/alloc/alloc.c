/* What malloc and free do when they miss, and the calls that have no hit path. The hit paths are in alloc.h.
 *
 *  1. A size belongs to exactly one tier: tiny to 1 KiB, mid to 64 KiB, large to 1 MiB, huge above.
 *  2. A pointer that is not a hit is looked up (lookup.h). */
/* SPDX-License-Identifier: MIT */
#include "alloc/alloc.h"
#include "alloc/alloc_slow.h"
#include "base/clear.h"
#include "base/options.h"
#include "beside/other.h"
#include "blocks/kinds.h"
#include "blocks/zero.h"
#include "heap/ring.h"
#include "heap/sample.h"
#include "heap/slab.h"
#include "pool/pool.h"
#include "process/hooks.h"
#include "threads/thread.h"
#include "tiers/large.h"
#include "tiers/lookup.h"
#include "tiers/mid.h"
#include "tiers/packed.h"
#include "tiers/tiny.h"

#include <errno.h>
#include <string.h>

/* ---- allocating ---- */

void *alloc_no_memory(struct heap *h) {
    if (h != NULL)
        count(&h->client.counters, COUNT_out_of_memory);
    errno = ENOMEM;
    return NULL;
}

HAK_COLD void *alloc_answer(struct heap *h, void *block) {
    chores_answer(h);
    return block;
}

/* The choice of kind. Tiny and mid blocks have the alignment of their class, no other. */
static const struct kind *kind_for(size_t bytes, size_t alignment) {
    if (mode()->front_kind != NULL)
        return mode()->front_kind;
    if (bytes <= MID_BYTES_MAX && alignment == 1)
        return bytes <= TINY_BYTES_MAX ? &kind_tiny : &kind_mid;
    return bytes <= LARGE_BYTES_MAX && alignment <= LARGE_BYTES_MAX ? &kind_large : &kind_huge;
}

/* ---- the ways in ---- */

static void count_dense(struct heap *h, const void *p) {
    count(&h->client.counters, COUNT_dense_allocations);
    count_add(&h->client.counters, COUNT_dense_bytes, alloc_usable(p, ""));
}

void alloc_leave(struct heap *h, struct heap *of) {
    if (unlikely(of != h)) {
        h->client.due.chores |= of->client.due.chores & (CHORE_PURGER | CHORE_LIMITS);
        of->client.due.chores &= (uint8_t) ~(CHORE_PURGER | CHORE_LIMITS);
        if (chores_are_due(of))
            chores_do(of);
    }
    if (h == thread_own() && chores_are_due(h))
        chores_do(h);
    thread_leave(h);
}

HAK_INLINE void *allocate_from(struct heap *h, size_t bytes, size_t alignment, bool *zero, bool dense) {
    const struct kind *usual = kind_for(bytes, alignment);
    bool sampled = sample_wanted(h); /* asked once: what is packed is in no profile that begins meanwhile */
    bool packs = unlikely(region_is_scarce()) && !usual->is_secure && !sampled && packed_serves(h, bytes, alignment);
    void *p = NULL;
    for (unsigned tries = 0; tries < 2u + packs && p == NULL; tries++) {
        const struct kind *kind = packs && tries < 2 ? &kind_packed : usual;
        take_call *take = dense ? hooks_move.dense(kind) : kind->malloc;
        if (unlikely(tries != 0))
            chores_empty_caches(h);
        p = unlikely(sampled) ? hooks_observe.malloc_sampled(h, kind, take, bytes, alignment, zero)
                              : take(h, bytes, alignment, zero);
    }
    if (unlikely(p == NULL))
        alloc_no_memory(h);
    else if (dense)
        count_dense(h, p);
    return p;
}

void *alloc_from(struct heap *h, size_t bytes, size_t alignment, bool *zero) {
    return allocate_from(h, bytes, alignment, zero, false);
}

HAK_INLINE void *allocate(size_t bytes, size_t alignment, bool *zero, bool dense) {
    if (unlikely(bytes > PTRDIFF_MAX || alignment > PTRDIFF_MAX))
        return alloc_no_memory(NULL);
    if (unlikely(hak_heap == &heap_redirected))
        return hooks_arena.malloc_in_default(bytes, alignment, zero);
    if (other_serves())
        return other_malloc(bytes, alignment);
    struct heap *h = thread_enter();
    if (unlikely(h == NULL))
        return alloc_no_memory(NULL);
    void *p = allocate_from(h, bytes, alignment, zero, dense);
    alloc_leave(h, h);
    return p;
}

HAK_NOINLINE void *alloc_any(size_t bytes) {
    bool zero;
    return allocate(bytes, 1, &zero, false);
}

HAK_NOINLINE void *alloc_malloc_dense(size_t bytes) {
    bool zero;
    return allocate(bytes, 1, &zero, true);
}

HAK_NOINLINE void *alloc_tiny(struct heap *h, unsigned c, size_t bytes) {
    if (unlikely(sample_wanted(h)) && !sample_is_far_in_class(h, c))
        return alloc_any(bytes);
    uint64_t began = ledger_begin(&h->ledger[c]);
    uintptr_t block = tiny_refill(h, c);
    ledger_end(&h->ledger[c], began);
    if (chores_are_due(h))
        chores_do(h);
    return likely(block != 0) ? block_word(block) : alloc_any(bytes);
}

HAK_NOINLINE static void *alloc_without_heap(size_t bytes) {
    return other_serves() ? other_calls()->malloc(bytes) : alloc_any(bytes);
}

/* The hit path of large; `h` is the thread's. */
HAK_NOINLINE static void *alloc_large(struct heap *h, size_t bytes) {
    void *p = large_hit(h, bytes);
    if (unlikely(p == NULL))
        return alloc_any(bytes);
    return chores_are_asked(h) ? alloc_answer(h, p) : p;
}

/* Every malloc that is no hit of alloc.h comes here. The hit path of mid is first; without a heap all rings are empty.
 * Each call is the last thing done, so no register is saved for it. */
HAK_NOINLINE void *alloc_slow(size_t bytes) {
    struct heap *h = hak_heap;
    if (bytes > TINY_BYTES_MAX && bytes <= MID_BYTES_MAX) {
        struct ring_entry cached = ring_pop_unsampled(h, ring_of_class(mid_class_of(bytes)), bytes, CACHES_SITED);
        if (likely(cached.block != 0))
            return alloc_from_ring(h, cached, bytes);
    }
    if (unlikely(h->number == HEAP_NONE))
        return alloc_without_heap(bytes);
    if (unlikely(load_relaxed(&h->caches_flags) & CACHES_SITED))
        return hooks_arena.malloc_at_site(h, bytes);
    if (mode()->malloc != NULL)
        return mode()->malloc(h, bytes);
    if (bytes <= TINY_BYTES_MAX && !other_is_on())
        return alloc_tiny(h, heap_class(h, bytes), bytes);
    return bytes > MID_BYTES_MAX && bytes <= LARGE_BYTES_MAX ? alloc_large(h, bytes) : alloc_any(bytes);
}

_Atomic bool hak_arrays_known;

/* A function of its own, so that no register is saved where nobody needs to know. */
HAK_COLD static void *new_noted(void *p, bool array) { return mode()->note_new(p, array); }

HAK_NOINLINE void *alloc_slow_new(size_t bytes) {
    return unlikely(mode()->note_new != NULL) ? new_noted(alloc_slow(bytes), false) : alloc_slow(bytes);
}
HAK_NOINLINE void *alloc_slow_new_array(size_t bytes) {
    return unlikely(mode()->note_new != NULL) ? new_noted(alloc_slow(bytes), true) : alloc_slow(bytes);
}

HAK_NOINLINE static void *aligned_past_classes(size_t alignment, size_t bytes) {
    bool zero;
    return allocate(bytes, alignment, &zero, false);
}
HAK_NOINLINE static void *new_aligned_past_classes(size_t alignment, size_t bytes, bool array) {
    void *p = aligned_past_classes(alignment, bytes);
    return unlikely(mode()->note_new != NULL) ? new_noted(p, array) : p;
}

HAK_INLINE void *aligned_of_class(size_t alignment, size_t bytes) {
    return alloc_malloc(class_aligned_bytes(max_size(bytes, 1), alignment), alloc_slow);
}

HAK_NOINLINE static void *aligned_else(size_t alignment, size_t bytes) {
    return likely(classes_align(bytes, alignment)) ? aligned_of_class(alignment, bytes)
                                                   : aligned_past_classes(alignment, bytes);
}

void *alloc_aligned(size_t alignment, size_t bytes) {
    void *p = alloc_aligned_hit(alignment, bytes);
    return likely(p != NULL) ? p : aligned_else(alignment, bytes);
}

void *alloc_new_aligned_else(size_t alignment, size_t bytes, bool array) {
    return likely(classes_align(bytes, alignment)) ? aligned_of_class(alignment, bytes)
                                                   : new_aligned_past_classes(alignment, bytes, array);
}

HAK_NOINLINE static void *calloc_else(size_t whole) {
    if (other_serves())
        return other_calls()->calloc(1, whole);
    if (whole <= TINY_BYTES_MAX) {
        void *p = alloc_slow(whole);
        return p != NULL ? memset(p, 0, whole) : NULL;
    }
    bool zero = false, sited = unlikely(load_relaxed(&hak_heap->caches_flags) & CACHES_SITED) && whole <= MID_BYTES_MAX;
    void *p = sited ? alloc_slow(whole) : allocate(whole, 1, &zero, false);
    if (p == NULL || zero)
        return p;
    return whole < CLEAR_BY_PAGE_BYTES ? memset(p, 0, whole) : clear_pages(p, whole);
}

/* malloc has cleared the first word. Larger blocks are multiples of 16 bytes. */
void *alloc_calloc(size_t n, size_t bytes) {
    size_t whole;
    if (unlikely(__builtin_mul_overflow(n, bytes, &whole)))
        return alloc_no_memory(NULL);
    void *p = alloc_malloc(whole, alloc_no_hit);
    if (unlikely(p == NULL))
        return calloc_else(whole);
    if (whole > NARROW_MAX)
        return memset(p, 0, whole);
    if (whole > sizeof(uintptr_t))
        narrow_clear((uintptr_t)p, round_up(whole, 16));
    return p;
}

/* ---- freeing ---- */

HAK_NOINLINE void alloc_free_slow(void *p) {
    if (p == NULL) {
        if (hak_heap->number != HEAP_NONE)
            count(&hak_heap->client.counters, COUNT_free_null);
        return;
    }
    if (other_has(p))
        return other_calls()->free(p);
    if (lookup_for_free(p)) /* this heap's, with purged pages */
        slab_free(hak_heap, slab_at_offset(region_offset(p)), (uintptr_t)p);
}

/* The thread has no heap: it gets one now, or borrows one, or there is no memory for one. */
HAK_NOINLINE static void free_unborn(struct slab *s, void *p) {
    struct heap *h = thread_enter();
    const struct kind *kind = kinds[slab_kind(s)]; /* an arena's too */
    if (h == NULL && kind->free_without_heap != NULL)
        kind->free_without_heap(s, p);
    else
        kind->free(h != NULL ? h : &heap_afterlife, s, p); /* which has no rings: blocks go straight to the pool */
    thread_leave(h);
}

HAK_NOINLINE void alloc_free_by_kind(struct slab *s, void *p) {
    struct heap *h = hak_heap;
    unsigned kind = slab_kind(s);
    if (likely(kind == KIND_MID) && likely(mid_free_to_ring(h, s, p))) /* there are no rings without a heap */
        return;
    if (unlikely(h->number == HEAP_NONE))
        free_unborn(s, p);
    else
        kinds[kind]->free(h, s, p);
}

HAK_INLINE void delete_by_kind(struct slab *s, void *p, bool array) {
    if (unlikely(mode()->check_delete != NULL))
        mode()->check_delete(p, array);
    alloc_free_by_kind(s, p);
}
HAK_NOINLINE void alloc_delete_by_kind(struct slab *s, void *p) { delete_by_kind(s, p, false); }
HAK_NOINLINE void alloc_delete_array_by_kind(struct slab *s, void *p) { delete_by_kind(s, p, true); }

void alloc_free_dense(void *p) {
    struct slab *s = region_has(p) ? slab_at_offset(region_offset(p)) : NULL;
    unsigned (*free_dense)(struct heap *, struct slab *, void *) = s != NULL ? kinds[slab_kind(s)]->free_dense : NULL;
    struct heap *h = free_dense != NULL ? thread_enter() : NULL;
    if (h == NULL) {
        alloc_free(p, alloc_free_by_kind);
        return;
    }
    unsigned slots = free_dense(h, s, p);
    h->client.since.emptied_by_moving |= slots != 0;
    count_add(&h->client.counters, COUNT_dense_emptied_slots, slots);
    thread_leave(h);
}

HAK_NOINLINE void alloc_countdown_ended(struct slab *s) {
    struct heap *h = hak_heap;
    slab_countdown_ended(h, s);
    rings_shrink(h);
}

/* ---- all at once ---- */

void alloc_limit(size_t addresses, size_t data) {
    size_t had = load_relaxed(&hak_region_use.superslabs) * SUPERSLAB_BYTES;
    region_limit(addresses, data);
    struct heap *h = had > min_size(addresses, data) / 2 ? thread_enter() : NULL;
    if (h != NULL) {
        chores_give_back(h);
        pool_unmap_free(&h->client);
    }
    thread_leave(h);
}

size_t alloc_trim(void) {
    struct heap *h = thread_enter();
    size_t bytes = h != NULL ? chores_give_back(h) : 0;
    thread_leave(h);
    return bytes;
}
