/* What malloc and free do when they miss, and the calls that are no hit path. The hit paths are in alloc.h.
 *
 *  1. A size belongs to exactly one tier: tiny to 1 KiB, mid to 64 KiB, large to 1 MiB, huge above.
 *  2. A pointer that is not a hit is looked up (lookup.h). */
/* SPDX-License-Identifier: MIT */
#include "alloc.h"
#include "alloc_slow.h"
#include "arena/arena_heap.h"
#include "arena/brought.h"
#include "arena/lane.h"
#include "beside/other.h"
#include "block.h"
#include "base/clear.h"
#include "base/fail.h"
#include "observe/dump.h"
#include "observe/guard_sample.h"
#include "observe/inspect.h"
#include "kinds.h"
#include "learn/tuner.h"
#include "lookup.h"
#include "mid.h"
#include "base/options.h"
#include "base/os.h"
#include "pool.h"
#include "purger.h"
#include "retain.h"
#include "ring.h"
#include "observe/sample.h"
#include "scarce/packed.h"
#include "secure/secure.h"
#include "zero.h"
#include "slab.h"
#include "thread.h"
#include "tiny.h"

#include <errno.h>
#include <string.h>

/* ---- allocating ---- */

static void *no_memory(struct heap *h) {
    if (h != NULL)
        count(&h->pool.counters, COUNT_out_of_memory);
    errno = ENOMEM;
    return NULL;
}

/* Another process, a tracer or another thread asks for something. The word is read first: a later request changes it
 * again. */
HAK_COLD static void do_as_asked(struct heap *h) {
    uint64_t asked = load_acquire(&hak_profile.wanted), wanted = load_relaxed(&hak_inspect.purge_wanted);
    if (wanted != h->purge_seen)
        chores_give_back(h);
    if (!sample_is_current(h)) /* the next allocation from a ring is no hit, and sees what is wanted */
        rmw_or(&h->caches_flags, CACHES_SAMPLING);
    h->purge_seen = wanted;
    h->asked_seen = asked;
}

#define LOOK_EVERY 32 /* slow mallocs: reading the clock is then no cost */

/* A slow malloc is over, and nothing is half-done. */
HAK_INLINE bool has_chores(struct heap *h) {
    return unlikely(++h->pool.due.slow_mallocs % LOOK_EVERY == 0 || h->pool.due.chores != 0 || alloc_is_asked(h) ||
                    load_relaxed(&h->caches_flags) & CACHES_STALE);
}

HAK_COLD static void do_chores(struct heap *h) {
    bool looks = h->pool.due.slow_mallocs % LOOK_EVERY == 0; /* chores may allocate, too */
    if (h->pool.due.chores != 0)
        chores_do(h);
    if (alloc_is_asked(h))
        do_as_asked(h);
    if (load_relaxed(&h->caches_flags) & CACHES_STALE)
        rings_apply_options(h);
    /* last: what this finds due in an arena's heap is for the thread's own heap, at the end of the next call */
    if (looks)
        retain_look(&h->pool);
}

HAK_COLD void *alloc_answer(struct heap *h, void *block) {
    do_as_asked(h);
    return block;
}

/* The choice of kind. Tiny and mid blocks have the alignment of their class, no other. */
static const struct kind *kind_for(size_t bytes, size_t alignment) {
    if (option(OPT_SECURE))
        return &kind_secure_small;
    if (bytes <= MID_BYTES_MAX && alignment == 1)
        return bytes <= TINY_BYTES_MAX ? &kind_tiny : &kind_mid;
    return bytes <= LARGE_BYTES_MAX && alignment <= LARGE_BYTES_MAX ? &kind_large : &kind_huge;
}

/* ---- sampling ---- */

_Static_assert(PROFILE_NAME_BYTES == (int)ARENA_NAME_BYTES, "a name fits");
/* "" if the heap belongs to no arena of the program's. */
static const char *arena_name_of(const struct heap *h) {
    return h->pool.arena != 0 && !h->pool.is_lane ? arena_numbered(h->pool.arena)->name : "";
}

HAK_INLINE void add_sample(struct heap *h, const void *p, size_t bytes, double chance) {
    bool added = profile_add(p, bytes, chance, arena_name_of(h), h->sample.callers);
    count(&h->pool.counters, added ? COUNT_samples_taken : COUNT_samples_dropped);
    struct slab *s = slab_at_offset(region_offset(p));
    if (added)
        store_relaxed(kind_of(s)->state(s, p), BLOCK_LIVE | BLOCK_PROFILED);
    if (unlikely(dump_may_be_due()))
        dump_if_due();
}

/* The alignment of a tiny or mid block for that many bytes. Callers that want an aligned one rely on it. */
static size_t natural_alignment(size_t bytes) {
    size_t block = size_classes[bytes <= TINY_BYTES_MAX ? tiny_class_of(bytes) : mid_class_of(bytes)].block_bytes;
    return block & -block;
}

/* What allocates: the malloc or malloc_dense of the kind's row. */
typedef void *take_call(struct heap *h, size_t bytes, size_t alignment, bool *zero);

/* Allocates while there is sampling. A tiny request that is sampled gets a mid block, aligned as the tiny one would
 * have been. */
HAK_NOINLINE static void *take_sampled(struct heap *h, const struct kind *kind, take_call *take, size_t bytes,
                                       size_t alignment, bool *zero) {
    bool tiny = kind == &kind_tiny;
    unsigned c = tiny && take == kind->malloc ? tiny_class_of(bytes) : TINY_CLASSES; /* a dense one is from no list */
    size_t of_bytes = tiny ? size_classes[tiny_class_of(bytes)].block_bytes : max_size(bytes, 1);
    struct sample sample = sample_due(h, of_bytes, c);
    if (likely(sample.purposes == 0) || h->pool.in_start)
        return take(h, bytes, alignment, zero);
    void *p = NULL;
    if (sample.purposes & SAMPLE_GUARD && (tiny || kind == &kind_mid) && h->pool.arena == 0)
        p = guard_malloc(h, bytes, natural_alignment(bytes));
    if (p == NULL && tiny && sample.purposes & SAMPLE_PROFILE)
        p = kind_mid.malloc(h, round_up(TINY_BYTES_MAX + 1, natural_alignment(bytes)), alignment, zero);
    else if (p == NULL)
        p = take(h, bytes, alignment, zero);
    if (p != NULL && sample.purposes & SAMPLE_PROFILE)
        add_sample(h, p, bytes, sample.chance);
    return p;
}

/* The block at p has another size now, and so another chance: as if it were freed and allocated. */
static void resample(struct heap *h, struct slab *s, const void *p, size_t bytes) {
    if (kind_of(s)->state == NULL)
        return;
    block_unsample(kind_of(s)->state(s, p), p);
    struct sample sample = {0, 0};
    if (sample_wanted(h))
        sample = sample_due(h, bytes, TINY_CLASSES);
    if (sample.purposes & SAMPLE_PROFILE)
        add_sample(h, p, bytes, sample.chance);
}

/* ---- the ways in ---- */

static void count_dense(struct heap *h, const void *p) {
    count(&h->pool.counters, COUNT_dense_allocations);
    count_add(&h->pool.counters, COUNT_dense_bytes, alloc_usable(p, ""));
}

/* Ends a call that entered with `h` and used the heap `of`, which may be an arena's: then what is due for the whole
 * process is for `h` to do. */
static void leave(struct heap *h, struct heap *of) {
    if (unlikely(of != h)) {
        h->pool.due.chores |= of->pool.due.chores & (CHORE_PURGER | CHORE_LIMITS);
        of->pool.due.chores &= (uint8_t) ~(CHORE_PURGER | CHORE_LIMITS);
        if (has_chores(of))
            do_chores(of);
    }
    if (h == thread_own() && has_chores(h))
        do_chores(h);
    thread_leave(h);
}

HAK_INLINE void *allocate_from(struct heap *h, size_t bytes, size_t alignment, bool *zero, bool dense) {
    bool packs = unlikely(region_is_scarce()) && packed_serves(h, bytes, alignment);
    void *p = NULL;
    for (unsigned tries = 0; tries < 2u + packs && p == NULL; tries++) {
        const struct kind *kind = packs && tries < 2 ? &kind_packed : kind_for(bytes, alignment);
        take_call *take = dense && kind->malloc_dense != NULL ? kind->malloc_dense : kind->malloc;
        if (unlikely(tries != 0))
            chores_empty_caches(h);
        bool samples = unlikely(sample_wanted(h)) && !option(OPT_SECURE);
        p = samples ? take_sampled(h, kind, take, bytes, alignment, zero) : take(h, bytes, alignment, zero);
    }
    if (unlikely(p == NULL))
        no_memory(h);
    else if (dense)
        count_dense(h, p);
    return p;
}

static void *allocate_brought(struct arena *a, size_t bytes, size_t alignment, bool *zero) {
    void *p = bytes <= PTRDIFF_MAX && alignment <= PTRDIFF_MAX ? brought_malloc(a, bytes, alignment) : NULL;
    *zero = false;
    return p != NULL ? p : no_memory(NULL);
}

static void *allocate_in(struct arena *a, size_t bytes, size_t alignment, bool *zero) {
    if (unlikely(a->brought != NULL))
        return allocate_brought(a, bytes, alignment, zero);
    struct heap *h = bytes <= PTRDIFF_MAX && alignment <= PTRDIFF_MAX ? thread_enter() : NULL;
    struct heap *of = h != NULL ? arena_heap(h, a) : NULL;
    void *p = of != NULL ? allocate_from(of, bytes, alignment, zero, false) : no_memory(h);
    if (h != NULL)
        leave(h, of != NULL ? of : h);
    return p;
}

/* What the callback allocates is not in the default arena, or else the limit would call it again. */
static bool callback_frees(const struct arena *a, size_t bytes) {
    struct hak_arena *arena = (struct hak_arena *)load_relaxed(&a->handle); /* NOLINT: a handle is no address */
    if (a->over_limit == NULL)
        return false;
    uintptr_t before = thread_suspend_default();
    int again = a->over_limit(arena, bytes, a->argument);
    thread_resume_default(before);
    return again != 0;
}

HAK_NOINLINE void *alloc_in_arena(struct arena *a, size_t bytes, size_t alignment, bool *zero) {
    for (;;) {
        size_t refusals = load_relaxed(&a->refusals);
        void *p = allocate_in(a, bytes, alignment, zero);
        if (likely(p != NULL) || load_relaxed(&a->refusals) == refusals || !callback_frees(a, bytes))
            return p;
    }
}

/* Allocates for a thread that has set a default arena. */
HAK_NOINLINE static void *allocate_in_default(size_t bytes, size_t alignment, bool *zero) {
    struct arena *a = arena_of(hak_default_arena.handle);
    *zero = false;
    if (likely(a != NULL))
        return alloc_in_arena(a, bytes, alignment, zero);
    fail_bad_arena("malloc", hak_default_arena.handle);
    return no_memory(NULL);
}

HAK_INLINE void *allocate(size_t bytes, size_t alignment, bool *zero, bool dense) {
    if (unlikely(bytes > PTRDIFF_MAX || alignment > PTRDIFF_MAX))
        return no_memory(NULL);
    if (unlikely(hak_heap == &heap_redirected))
        return allocate_in_default(bytes, alignment, zero);
    if (other_serves())
        return other_malloc(bytes, alignment);
    struct heap *h = thread_enter();
    if (unlikely(h == NULL))
        return no_memory(NULL);
    void *p = allocate_from(h, bytes, alignment, zero, dense);
    leave(h, h);
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

/* The hit path of secure mode. */
HAK_NOINLINE static void *allocate_secure(struct heap *h, size_t bytes) {
    if (unlikely(bytes - 1 > MID_BYTES_MAX - CANARY_BYTES - 1)) /* 0, too */
        return alloc_any(bytes);
    struct secure_cache *cache = secure_cache_for(h, bytes);
    if (unlikely(!secure_has_next(cache)) || alloc_is_asked(h))
        return alloc_any(bytes);
    struct secure_entry e = secure_next(h, cache);
    if (!secure_is_simple(e, cache->block_bytes))
        return secure_hand_out(e, cache->block_bytes, bytes, alloc_any);
    return secure_finish(e, cache->block_bytes, bytes);
}

HAK_NOINLINE void *alloc_tiny(struct heap *h, size_t bytes) {
    unsigned c = tiny_class_of(bytes);
    if (unlikely(sample_wanted(h)) && !sample_is_far_in_class(h, c))
        return alloc_any(bytes);
    uint64_t began = ledger_begin(&h->ledger[c]);
    uintptr_t block = tiny_refill(h, c);
    if (unlikely(began != 0))
        tuner_missed(h->ledger, c, began);
    if (has_chores(h))
        do_chores(h);
    return likely(block != 0) ? block_word(block) : alloc_any(bytes);
}

HAK_NOINLINE static void *alloc_without_heap(size_t bytes) {
    return other_serves() ? other_calls()->malloc(bytes) : alloc_any(bytes);
}

/* Whatever is no hit of alloc.h's comes here: the hit path of mid first. Rings are empty without a heap. All calls are
 * the last thing done, so nothing is saved for them. */
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
        return alloc_at_site(h, bytes);
    if (option(OPT_SECURE))
        return allocate_secure(h, bytes);
    return bytes <= TINY_BYTES_MAX && !other_is_on() ? alloc_tiny(h, bytes) : alloc_any(bytes);
}

HAK_COLD static void *made_by(enum secure_maker maker, void *p) {
    if (p != NULL)
        secure_set_maker(p, maker);
    return p;
}
HAK_NOINLINE void *alloc_slow_new(size_t bytes) {
    return unlikely(option(OPT_SECURE)) ? made_by(MADE_BY_NEW, alloc_slow(bytes)) : alloc_slow(bytes);
}
HAK_NOINLINE void *alloc_slow_new_array(size_t bytes) {
    return unlikely(option(OPT_SECURE)) ? made_by(MADE_BY_NEW_ARRAY, alloc_slow(bytes)) : alloc_slow(bytes);
}

/* Is an aligned block one of the classes? Its size is then that of a class, not the one asked for. */
HAK_INLINE bool classes_align(size_t bytes, size_t alignment) {
    return bytes <= MID_BYTES_MAX && alignment - 1 < MID_BYTES_MAX && !option(OPT_SECURE) && !other_serves();
}

HAK_NOINLINE static void *aligned_past_classes(size_t alignment, size_t bytes) {
    bool zero;
    return allocate(bytes, alignment, &zero, false);
}
HAK_NOINLINE static void *new_aligned_past_classes(size_t alignment, size_t bytes, bool array) {
    void *p = aligned_past_classes(alignment, bytes);
    return unlikely(option(OPT_SECURE)) ? made_by(array ? MADE_BY_NEW_ARRAY : MADE_BY_NEW, p) : p;
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
    /* What lies outside the region is in memory of the program's, which may be shared or a file: nothing is purged
     * there. */
    bool by_hand = whole < CLEAR_BY_PAGE_BYTES || !region_has(p);
    return by_hand ? memset(p, 0, whole) : clear_pages(p, whole);
}

/* malloc has cleared the first word. Larger blocks are multiples of 16 bytes. */
void *alloc_calloc(size_t n, size_t bytes) {
    size_t whole;
    if (unlikely(__builtin_mul_overflow(n, bytes, &whole)))
        return no_memory(NULL);
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
            count(&hak_heap->pool.counters, COUNT_free_null);
        return;
    }
    if (other_has(p))
        return other_calls()->free(p);
    struct slab *brought = region_has(p) ? NULL : brought_record(p);
    if (brought != NULL)
        alloc_free_other(brought, p);
    else if (!region_has(p))
        fail_bad_pointer("free", p, "not a block of this heap", 0);
    else if (region_has(p) && lookup_for_free(p)) /* this heap's, with purged pages */
        slab_free(hak_heap, slab_at_offset(region_offset(p)), (uintptr_t)p);
}

/* The thread has no heap: it is born now, or borrows one, or there is no memory for one. */
HAK_NOINLINE static void free_unborn(struct slab *s, void *p) {
    struct heap *h = thread_enter();
    const struct kind *kind = kinds[slab_kind(s)]; /* an arena's too */
    if (h == NULL && kind->free_without_heap != NULL)
        kind->free_without_heap(s, p);
    else
        kind->free(h != NULL ? h : &heap_afterlife, s, p); /* that has no rings: blocks go straight to the pool */
    thread_leave(h);
}

HAK_NOINLINE void alloc_free_other(struct slab *s, void *p) {
    struct heap *h = hak_heap;
    unsigned kind = slab_kind(s);
    if (likely(kind == KIND_MID) && likely(mid_free_to_ring(h, s, p))) /* there are no rings without a heap */
        return;
    if (unlikely(h->number == HEAP_NONE))
        free_unborn(s, p);
    else
        kinds[kind]->free(h, s, p);
}

/* Was the block made by the other operator new? One that malloc made may be freed by any. */
HAK_COLD static void check_maker(const void *p, bool array) {
    if (secure_maker_of(p) == (array ? MADE_BY_NEW : MADE_BY_NEW_ARRAY))
        fail_operator(p, array, alloc_usable(p, "free"));
}
HAK_NOINLINE void alloc_delete_other(struct slab *s, void *p) {
    if (unlikely(option(OPT_SECURE)))
        check_maker(p, false);
    alloc_free_other(s, p);
}
HAK_NOINLINE void alloc_delete_array_other(struct slab *s, void *p) {
    if (unlikely(option(OPT_SECURE)))
        check_maker(p, true);
    alloc_free_other(s, p);
}

void alloc_free_dense(void *p) {
    struct slab *s = region_has(p) ? slab_at_offset(region_offset(p)) : NULL;
    unsigned (*free_dense)(struct heap *, struct slab *, void *) = s != NULL ? kinds[slab_kind(s)]->free_dense : NULL;
    struct heap *h = free_dense != NULL ? thread_enter() : NULL;
    if (h == NULL) {
        alloc_free(p, alloc_free_other);
        return;
    }
    unsigned slots = free_dense(h, s, p);
    h->pool.since.emptied_by_moving |= slots != 0;
    count_add(&h->pool.counters, COUNT_dense_emptied_slots, slots);
    thread_leave(h);
}

HAK_NOINLINE void alloc_countdown_ended(struct slab *s) {
    struct heap *h = hak_heap;
    slab_countdown_ended(h, s);
    rings_shrink(h);
}

/* ---- freeing with a size ---- */

/* Is `bytes` a size for such a block? `exactly`: realloc has not left the block larger than it would be made for the
 * size. */
static bool size_fits(const struct block *b, const void *p, size_t bytes, bool exactly) {
    const struct kind *kind = kind_of(b->slab);
    if (kind->size_fits != NULL)
        return kind->size_fits(p, bytes, b->bytes, exactly);
    if (bytes > b->bytes || !exactly)
        return bytes <= b->bytes;
    bool is_exact = kind == &kind_large || kind == &kind_huge;
    return (is_exact ? max_size(bytes, 1) : alloc_good_size(bytes)) == b->bytes;
}

/* Which call frees a block and claims to know its size. */
enum freed_by { FREED_BY_FREE, FREED_BY_DELETE, FREED_BY_DELETE_ARRAY };

/* All calls on the way here are jumps, so it returns to the program. The block is freed whatever its size. */
HAK_NOINLINE static void free_checking_size(void *p, size_t bytes, size_t alignment, enum freed_by by) {
    if (other_has(p))
        return other_calls()->free(p);
    if (p == NULL)
        return;
    struct block b = lookup_live(p, "free", NULL);
    if (unlikely(b.slab == NULL))
        return;
    if (unlikely(option(OPT_SECURE)) && by != FREED_BY_FREE)
        check_maker(p, by == FREED_BY_DELETE_ARRAY);
    bool exactly = by != FREED_BY_FREE;
    /* hak_expand lets a block be used past a multiple of its alignment: then its own size fits. */
    if (unlikely(!size_fits(&b, p, class_aligned_bytes(bytes, alignment), exactly) &&
                 !size_fits(&b, p, bytes, exactly)))
        fail_bad_size(p, bytes, b.bytes, __builtin_return_address(0));
    alloc_free(p, alloc_free_other);
}

/* No hit. A mid block's record tells its class, too; all other blocks are looked up. `alignment`: of a block whose
 * class was chosen for it, else 1. */
HAK_INLINE void free_claimed_else(void *p, size_t bytes, size_t alignment, enum freed_by by) {
    size_t whole = class_aligned_bytes(bytes, alignment);
    if (region_has(p) && whole > TINY_BYTES_MAX && whole <= MID_BYTES_MAX) {
        struct slab *s = slab_at_offset(region_offset(p));
        unsigned claimed = mid_class_of(whole), c = slab_class(s);
        if (likely(slab_kind(s) == KIND_MID && (by != FREED_BY_FREE ? claimed == c : claimed <= c)))
            return alloc_free_other(s, p);
    }
    return free_checking_size(p, bytes, alignment, by);
}
HAK_NOINLINE void alloc_free_sized_else(void *p, size_t bytes) { free_claimed_else(p, bytes, 1, FREED_BY_FREE); }
HAK_NOINLINE void alloc_delete_sized_else(void *p, size_t bytes) { free_claimed_else(p, bytes, 1, FREED_BY_DELETE); }
HAK_NOINLINE void alloc_delete_array_sized_else(void *p, size_t bytes) {
    free_claimed_else(p, bytes, 1, FREED_BY_DELETE_ARRAY);
}

void alloc_delete_aligned_else(void *p, size_t bytes, size_t alignment, bool array) {
    enum freed_by by = array ? FREED_BY_DELETE_ARRAY : FREED_BY_DELETE;
    if (likely(classes_align(bytes, alignment)))
        free_claimed_else(p, max_size(bytes, 1), alignment, by);
    else
        free_claimed_else(p, bytes, 1, by);
}

/* ---- sizes ---- */

/* The bytes of a tiny or mid block, as its record shows; 0: lookup_live knows. A mid block's state tells whether it is
 * live. Whether a tiny block is, its own first word tells: `looks` there. */
HAK_INLINE size_t bytes_at_once(const void *p, bool looks) {
    uintptr_t offset = region_offset(p);
    if (unlikely(offset >= region_frontier())) /* NULL too */
        return 0;
    struct slab *s = slab_at_offset(offset);
    if (likely(block_index(s->divisor, (uint16_t)(uintptr_t)p) < load_folded(&s->hit_blocks))) {
        if (looks && unlikely(block_looks_free(s, (uintptr_t)p)))
            return 0;
        if (s->tiny_bytes == 0)
            __builtin_unreachable(); /* so the caller need not ask whether the answer is 0 */
        return s->tiny_bytes;
    }
    if (slab_kind(s) != KIND_MID)
        return 0;
    s = span_first(s);
    unsigned i = mid_index(s, p);
    return likely(i < s->blocks && load_relaxed(&s->state[i]) == BLOCK_LIVE) ? s->block_bytes : 0;
}

HAK_NOINLINE static size_t usable_else(const void *p, const char *call) {
    return p != NULL ? lookup_live(p, call, __builtin_return_address(0)).bytes : 0;
}

/* Does not touch a tiny block: programs that ask for each of theirs would pay for a cache miss each. */
size_t alloc_usable(const void *p, const char *call) {
    size_t bytes = bytes_at_once(p, false);
    return likely(bytes != 0) ? bytes : usable_else(p, call);
}

size_t alloc_good_size(size_t bytes) {
    if (bytes > PTRDIFF_MAX)
        return 0;
    if (bytes > MID_BYTES_MAX || option(OPT_SECURE))
        return bytes;
    return size_classes[bytes <= TINY_BYTES_MAX ? tiny_class_of(bytes) : mid_class_of(bytes)].block_bytes;
}

static bool resize_in_place(struct heap *h, const struct block *b, void *p, size_t bytes) {
    const struct kind *kind = kind_of(b->slab);
    bool done = kind->resize != NULL && kind->resize(h, b->slab, p, bytes);
    if (done)
        resample(h, b->slab, p, bytes);
    return done;
}

bool alloc_expand(void *p, size_t bytes) {
    if (other_has(p))
        return bytes <= other_calls()->usable_size(p);
    struct block b = lookup_live(p, "hak_expand", __builtin_return_address(0));
    if (b.slab == NULL || bytes <= b.bytes)
        return b.slab != NULL;
    struct heap *h = bytes <= PTRDIFF_MAX ? thread_enter() : NULL;
    struct heap *of = h != NULL ? arena_heap_near(h, b.slab) : NULL;
    bool done = of != NULL && resize_in_place(of, &b, p, bytes);
    thread_leave(h);
    return done;
}

/* In place or by moving pages; NULL: copy. */
static void *realloc_without_copy(void *p, const struct block *b, size_t bytes) {
    const struct kind *kind = kind_of(b->slab);
    bool can = kind->resize != NULL && min_size(bytes, b->bytes) >= kind->resize_from_bytes && bytes <= PTRDIFF_MAX;
    struct heap *h = can ? thread_enter() : NULL;
    struct heap *of = h != NULL ? arena_heap_near(h, b->slab) : NULL;
    if (of == NULL) {
        thread_leave(h);
        return NULL;
    }
    void *moved = resize_in_place(of, b, p, bytes) ? p : NULL;
    if (moved == NULL && bytes > b->bytes && kind->move != NULL) {
        moved = kind->move(of, b->slab, bytes);
        if (moved != NULL)
            resample(of, slab_at_offset(region_offset(moved)), moved, bytes);
    }
    leave(h, of);
    return moved;
}

/* Does a block stay where it is? One that the program halves does, whatever rounding up added. */
HAK_INLINE bool stays_in_class(size_t had_bytes, size_t bytes) {
    return bytes <= had_bytes && bytes >= had_bytes * 3 / 8;
}

/* Returns the arena of a block that is in an arena's memory, or NULL if that arena was released. */
static struct arena *arena_near(const struct slab *s) {
    return slab_kind(s) == KIND_BROUGHT ? brought_arena(s) : arena_of_slab(s);
}

/* `had`: what bytes_at_once says. */
HAK_NOINLINE static void *realloc_else(void *p, size_t bytes, size_t had) {
    if (other_has(p))
        return other_calls()->realloc(p, bytes);
    struct block b =
        had != 0 ? (struct block){slab_at_offset(region_offset(p)), had, NULL} : lookup_live(p, "realloc", NULL);
    if (unlikely(b.slab == NULL)) {
        errno = EINVAL;
        return NULL;
    }
    if (bytes == 0) { /* as glibc */
        alloc_free(p, alloc_free_other);
        return NULL;
    }
    if (stays_in_class(b.bytes, bytes) && b.bytes <= MID_BYTES_MAX && kind_of(b.slab)->size_fits == NULL)
        return p;
    void *moved = had == 0 ? realloc_without_copy(p, &b, bytes) : NULL;
    if (moved != NULL)
        return moved;
    int error = errno;
    bool zero;
    struct arena *a = likely(slab_kind(b.slab) < KIND_BROUGHT) ? NULL : arena_near(b.slab);
    moved = likely(a == NULL) ? alloc_malloc(bytes, alloc_slow) : alloc_in_arena(a, bytes, 1, &zero);
    if (moved == NULL) { /* shrinking always succeeds, growing where it is perhaps, after all that was given back */
        moved = bytes <= b.bytes ? p : realloc_without_copy(p, &b, bytes);
        if (bytes < b.bytes && kind_of(b.slab)->shrink != NULL)
            kind_of(b.slab)->shrink(b.slab, p, bytes);
        if (moved != NULL)
            errno = error;
        return moved;
    }
    memcpy(moved, p, min_size(bytes, b.bytes));
    alloc_free(p, alloc_free_other);
    if (hak_heap->number != HEAP_NONE)
        count(&hak_heap->pool.counters, COUNT_realloc_copied);
    return moved;
}

void *alloc_realloc(void *p, size_t bytes) {
    size_t had = bytes_at_once(p, true);
    if (likely(had != 0 && stays_in_class(had, bytes)))
        return p;
    return p != NULL ? realloc_else(p, bytes, had) : alloc_malloc(bytes, alloc_slow);
}

void alloc_limit(size_t addresses, size_t data) {
    size_t had = load_relaxed(&hak_region_use.superslabs) * SUPERSLAB_BYTES;
    region_limit(addresses, data);
    struct heap *h = had > min_size(addresses, data) / 2 ? thread_enter() : NULL;
    if (h != NULL) {
        chores_give_back(h);
        pool_unmap_free(&h->pool);
    }
    thread_leave(h);
}

size_t alloc_trim(void) {
    struct heap *h = thread_enter();
    size_t bytes = h != NULL ? chores_give_back(h) : 0;
    thread_leave(h);
    return bytes;
}
