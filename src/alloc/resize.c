/* The calls that know or ask a block's size: realloc, hak_expand, malloc_usable_size, and frees that name it. */
/* SPDX-License-Identifier: MIT */
#include "alloc/alloc.h"
#include "alloc/alloc_slow.h"
#include "base/fail.h"
#include "base/options.h"
#include "beside/other.h"
#include "blocks/block.h"
#include "heap/sample.h"
#include "process/hooks.h"
#include "threads/thread.h"
#include "tiers/lookup.h"
#include "tiers/mid.h"

#include <errno.h>
#include <string.h>

/* ---- freeing with a size ---- */

/* Was a tiny block of that many bytes made for the size while sizes shared classes? A C++ library that a C program has
 * loaded may name it. */
static bool is_of_shared_class(const struct block *b, size_t bytes) {
    return heap_has_shared_classes() && bytes <= TINY_BYTES_MAX &&
           size_classes[tiny_shared_class_of(bytes)].block_bytes == b->bytes;
}

/* Is `bytes` a size for such a block? `exactly`: realloc has not left the block larger than it would be made for the
 * size. */
static bool size_fits(const struct block *b, const void *p, size_t bytes, bool exactly) {
    const struct kind *kind = kind_of(b->slab);
    if (kind->size_fits != NULL)
        return kind->size_fits(p, bytes, b->bytes, exactly);
    if (bytes > b->bytes || !exactly)
        return bytes <= b->bytes;
    bool is_exact = kind == &kind_large || kind == &kind_huge;
    return (is_exact ? max_size(bytes, 1) : alloc_good_size(bytes)) == b->bytes || is_of_shared_class(b, bytes);
}

/* Which call frees a block and claims to know its size. */
enum freed_by { FREED_BY_FREE, FREED_BY_DELETE, FREED_BY_DELETE_ARRAY };

/* All calls on the way here are jumps, so the return address is the program's. The block is freed whatever its size. */
HAK_NOINLINE static void free_checking_size(void *p, size_t bytes, size_t alignment, enum freed_by by) {
    if (other_has(p))
        return other_calls()->free(p);
    if (p == NULL)
        return;
    struct block b = lookup_live(p, "free", NULL);
    if (unlikely(b.slab == NULL))
        return;
    if (unlikely(mode()->check_delete != NULL) && by != FREED_BY_FREE)
        mode()->check_delete(p, by == FREED_BY_DELETE_ARRAY);
    bool exactly = by != FREED_BY_FREE;
    /* After hak_expand a block may be used beyond the multiple of its alignment: then the size itself fits. */
    if (unlikely(!size_fits(&b, p, class_aligned_bytes(bytes, alignment), exactly) &&
                 !size_fits(&b, p, bytes, exactly)))
        fail_bad_size(p, bytes, b.bytes, __builtin_return_address(0));
    alloc_free(p, alloc_free_by_kind);
}

/* A sized free that is no hit. A mid block's record tells its class, too; all other blocks are looked up. `alignment`:
 * the one for which the block's class was chosen, else 1. */
HAK_INLINE void free_claimed_else(void *p, size_t bytes, size_t alignment, enum freed_by by) {
    size_t whole = class_aligned_bytes(bytes, alignment);
    if (region_has(p) && whole > TINY_BYTES_MAX && whole <= MID_BYTES_MAX) {
        struct slab *s = slab_at_offset(region_offset(p));
        unsigned claimed = mid_class_of(whole), c = slab_class(s);
        if (likely(slab_kind(s) == KIND_MID && (by != FREED_BY_FREE ? claimed == c : claimed <= c)))
            return alloc_free_by_kind(s, p);
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

/* The bytes of a tiny or mid block, by its record; 0: ask lookup_live. The state of a mid block tells whether the block
 * is live. A tiny block's first word tells that, which is read only with `looks`. */
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
    return likely(i < s->mid.blocks && load_relaxed(&s->mid.state[i]) == BLOCK_LIVE) ? s->mid.block_bytes : 0;
}

HAK_NOINLINE static size_t usable_else(const void *p, const char *call) {
    return p != NULL ? lookup_live(p, call, __builtin_return_address(0)).bytes : 0;
}

/* Does not touch a tiny block: a program that asks about every block would pay for a cache miss each time. */
size_t alloc_usable(const void *p, const char *call) {
    size_t bytes = bytes_at_once(p, false);
    return likely(bytes != 0) ? bytes : usable_else(p, call);
}

size_t alloc_good_size(size_t bytes) {
    if (bytes > PTRDIFF_MAX)
        return 0;
    if (bytes > MID_BYTES_MAX || mode()->front_kind != NULL)
        return bytes;
    return size_classes[bytes <= TINY_BYTES_MAX ? tiny_class_of(bytes) : mid_class_of(bytes)].block_bytes;
}

/* The block has a new size: its old one leaves the profile. */
HAK_INLINE void note_resized(struct heap *h, struct slab *s, const void *p, size_t bytes) {
    if (kind_of(s)->state == NULL)
        return;
    block_unsample(kind_of(s)->state(s, p), p);
    if (unlikely(sample_wanted(h)))
        hooks_observe.resized(h, p, bytes);
}

static bool resize_in_place(struct heap *h, const struct block *b, void *p, size_t bytes) {
    const struct kind *kind = kind_of(b->slab);
    bool done = kind->resize != NULL && kind->resize(h, b->slab, p, bytes);
    if (done)
        note_resized(h, b->slab, p, bytes);
    return done;
}

/* The heap that resizes a block of the slab; NULL: no memory for one. `h` may be NULL. */
HAK_INLINE struct heap *heap_to_resize(struct heap *h, const struct slab *s) {
    return h == NULL || likely(slab_kind(s) < KIND_IN_ARENA) ? h : hooks_arena.heap_for(h, s);
}

bool alloc_expand(void *p, size_t bytes) {
    if (other_has(p))
        return bytes <= other_calls()->usable_size(p);
    struct block b = lookup_live(p, "hak_expand", __builtin_return_address(0));
    if (b.slab == NULL || bytes <= b.bytes)
        return b.slab != NULL;
    struct heap *h = bytes <= PTRDIFF_MAX ? thread_enter() : NULL;
    struct heap *of = heap_to_resize(h, b.slab);
    bool done = of != NULL && resize_in_place(of, &b, p, bytes);
    thread_leave(h);
    return done;
}

/* In place or by moving pages; NULL: copy. */
static void *realloc_without_copy(void *p, const struct block *b, size_t bytes) {
    const struct kind *kind = kind_of(b->slab);
    bool can = kind->resize != NULL && min_size(bytes, b->bytes) >= kind->resize_from_bytes && bytes <= PTRDIFF_MAX;
    struct heap *h = can ? thread_enter() : NULL;
    struct heap *of = heap_to_resize(h, b->slab);
    if (of == NULL) {
        thread_leave(h);
        return NULL;
    }
    void *moved = resize_in_place(of, b, p, bytes) ? p : NULL;
    if (moved == NULL && bytes > b->bytes && kind->move != NULL) {
        moved = kind->move(of, b->slab, bytes);
        if (moved != NULL)
            note_resized(of, slab_at_offset(region_offset(moved)), moved, bytes);
    }
    alloc_leave(h, of);
    return moved;
}

/* Whether the block stays where it is: while the program wants at least 3/8 of it, so that most blocks stay when they
 * are halved, although rounding up had made them larger. */
HAK_INLINE bool stays_in_class(size_t had_bytes, size_t bytes) {
    return bytes <= had_bytes && bytes >= had_bytes * 3 / 8;
}

HAK_INLINE void *copied_to(void *moved, void *p, size_t bytes) {
    memcpy(moved, p, bytes);
    alloc_free(p, alloc_free_by_kind);
    if (hak_heap->number != HEAP_NONE)
        count(&hak_heap->client.counters, COUNT_realloc_copied);
    return moved;
}

/* `had`: what bytes_at_once says. */
HAK_NOINLINE static void *realloc_else(void *p, size_t bytes, size_t had) {
    if (other_has(p))
        return other_calls()->realloc(p, bytes);
    struct block b =
        had != 0 ? (struct block){slab_at_offset(region_offset(p)), had, NULL} : lookup_live(p, "realloc", NULL);
    if (unlikely(b.slab == NULL))
        return errno = EINVAL, NULL;
    if (bytes == 0) { /* as glibc */
        alloc_free(p, alloc_free_by_kind);
        return NULL;
    }
    if (stays_in_class(b.bytes, bytes) && b.bytes <= MID_BYTES_MAX && kind_of(b.slab)->size_fits == NULL)
        return p;
    void *moved = had == 0 ? realloc_without_copy(p, &b, bytes) : NULL;
    if (moved != NULL)
        return moved;
    int error = errno;
    bool of_arena = unlikely(slab_kind(b.slab) >= KIND_IN_ARENA);
    moved = of_arena ? hooks_arena.malloc_near(b.slab, bytes) : alloc_malloc(bytes, alloc_slow);
    if (moved == NULL) { /* shrinking always succeeds; growing in place may, after the caches were emptied */
        moved = bytes <= b.bytes ? p : realloc_without_copy(p, &b, bytes);
        if (bytes < b.bytes && kind_of(b.slab)->shrink != NULL)
            kind_of(b.slab)->shrink(b.slab, p, bytes);
        if (moved != NULL)
            errno = error;
        return moved;
    }
    return copied_to(moved, p, min_size(bytes, b.bytes));
}

/* A tiny block grows, as the arrays of interpreters do: the block is always copied. */
HAK_NOINLINE static void *realloc_tiny(void *p, size_t bytes, size_t had) {
    if (unlikely(slab_kind(slab_at_offset(region_offset(p))) >= KIND_IN_ARENA))
        return realloc_else(p, bytes, had);
    void *moved = alloc_malloc(bytes, alloc_slow);
    return moved != NULL ? copied_to(moved, p, had) : NULL;
}

void *alloc_realloc(void *p, size_t bytes) {
    size_t had = bytes_at_once(p, true);
    if (likely(had != 0 && stays_in_class(had, bytes)))
        return p;
    if (had != 0 && had < bytes && had <= TINY_BYTES_MAX)
        return realloc_tiny(p, bytes, had);
    return p != NULL ? realloc_else(p, bytes, had) : alloc_malloc(bytes, alloc_slow);
}
