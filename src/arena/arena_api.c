/* The hak_arena_* functions of hakmem.h: the hit path of malloc in an arena, and what looks at its blocks.
 *
 * The hit path is that of alloc.h with the thread's heap for the arena; fast_path_test counts what it takes more. */
/* SPDX-License-Identifier: MIT */
#include "alloc/alloc.h"
#include "alloc/alloc_slow.h"
#include "arena/arena.h"
#include "arena/arena_alloc.h"
#include "arena/arena_heap.h"
#include "blocks/kinds.h"
#include "entry/start.h"
#include "hakmem.h"
#include "space/arena_space.h"
#include "threads/thread.h"
#include "tiers/lookup.h"

#include <errno.h>
#include <string.h>

START_LIBRARY_WANTED;

hak_arena *hak_arena_new(const hak_arena_options *options) {
    return (hak_arena *)arena_make(options, false); /* NOLINT: a handle is no address */
}

void hak_arena_destroy(hak_arena *arena) {
    if (arena != NULL)
        arena_end((uintptr_t)arena, false, "hak_arena_destroy");
}

void hak_arena_release(hak_arena *arena) {
    if (arena != NULL)
        arena_end((uintptr_t)arena, true, "hak_arena_release");
}

static void *allocate(hak_arena *arena, size_t size, size_t alignment, bool *zero, const char *call) {
    struct arena *a = arena_checked((uintptr_t)arena, call);
    return a != NULL ? arena_malloc_any(a, size, alignment, zero) : NULL;
}

HAK_NOINLINE static void *arena_malloc_slow(hak_arena *arena, size_t size) {
    bool zero;
    return allocate(arena, size, 1, &zero, "hak_arena_malloc");
}

void *hak_arena_malloc(hak_arena *arena, size_t size) {
    uintptr_t handle = (uintptr_t)arena;
    struct heap *h = arena_heap_noted(hak_heap, handle);
    void *block = likely(h != NULL) ? alloc_malloc_from(h, size, alloc_no_hit) : NULL;
    return likely(block != NULL) ? block : arena_malloc_slow(arena, size);
}

void *hak_arena_calloc(hak_arena *arena, size_t count, size_t size) {
    size_t whole;
    bool zero = false;
    if (__builtin_mul_overflow(count, size, &whole))
        return errno = ENOMEM, NULL;
    void *block =
        whole <= TINY_BYTES_MAX ? hak_arena_malloc(arena, whole) : allocate(arena, whole, 1, &zero, "hak_arena_calloc");
    return block == NULL || zero ? block : memset(block, 0, whole);
}

void *hak_arena_realloc(hak_arena *arena, void *block, size_t size) {
    if (block == NULL)
        return hak_arena_malloc(arena, size);
    if (arena_of_block(block) == (uintptr_t)arena)
        return alloc_realloc(block, size);
    struct block b = lookup_live(block, "hak_arena_realloc", NULL);
    size_t had = b.bytes;
    if (had == 0 && b.slab == NULL) /* in secure mode a live block may have no bytes */
        return NULL;
    void *moved = size != 0 ? hak_arena_malloc(arena, size) : NULL;
    if (moved != NULL)
        memcpy(moved, block, min_size(had, size));
    if (moved != NULL || size == 0)
        alloc_free(block, alloc_free_by_kind);
    return moved;
}

void *hak_arena_aligned_alloc(hak_arena *arena, size_t alignment, size_t size) {
    bool zero;
    if (!is_power_of_two(alignment))
        return errno = EINVAL, NULL;
    if (heaps_classes_align(size, alignment))
        return hak_arena_malloc(arena, class_aligned_bytes(max_size(size, 1), alignment));
    return allocate(arena, size, alignment, &zero, "hak_arena_aligned_alloc");
}

char *hak_arena_strdup(hak_arena *arena, const char *text) {
    size_t bytes = strlen(text) + 1;
    char *copy = hak_arena_malloc(arena, bytes);
    return copy != NULL ? memcpy(copy, text, bytes) : NULL;
}

hak_arena *hak_arena_of(const void *block) {
    uintptr_t handle = arena_of_block(block);
    const struct arena *a = arena_of(handle);
    return a != NULL && !load_relaxed(&a->is_lane) ? (hak_arena *)handle : NULL; /* NOLINT: a handle is no address */
}

int hak_arena_set_default(hak_arena *arena, hak_arena **before) {
    uintptr_t handle = 0;
    if (arena != NULL && arena_checked((uintptr_t)arena, "hak_arena_set_default") == NULL)
        return EINVAL;
    if (!thread_set_default((uintptr_t)arena, &handle))
        return ENOMEM;
    if (before != NULL)
        *before = (hak_arena *)handle; /* NOLINT: a handle is no address */
    return 0;
}

int hak_arena_no_dump(hak_arena *arena) {
    struct arena *a = arena_checked((uintptr_t)arena, "hak_arena_no_dump");
    if (a == NULL)
        return EINVAL;
    if (load_relaxed(&a->superslabs) != 0)
        return EBUSY;
    store_relaxed(&a->is_undumped, true);
    return 0;
}

/* ---- figures, visiting ---- */

int hak_arena_get_stats(hak_arena *arena, hak_arena_stats *stats) {
    const struct arena *a = arena_checked((uintptr_t)arena, "hak_arena_get_stats");
    if (a == NULL)
        return EINVAL;
    struct arena_use use = arena_use(a);
    *stats = (hak_arena_stats){
        .used_bytes = use.used_bytes,
        .peak_bytes = use.peak_bytes,
        .limit_bytes = use.limit_bytes,
        .reserved_bytes = load_relaxed(&a->superslabs) * SUPERSLAB_BYTES,
        .refusals = load_relaxed(&a->refusals),
    };
    for (const struct heap *of = load_acquire(&a->heaps); of != NULL; of = of->arena.next)
        stats->heaps++;
    return 0;
}

struct visit {
    hak_arena_visitor *call;
    void *argument;
    int answer; /* of the last call; not 0: it was the last */
};

static bool call_visitor(void *block, size_t bytes, void *visit) {
    struct visit *v = visit;
    v->answer = v->call(block, bytes, v->argument);
    return v->answer == 0;
}

int hak_arena_visit(hak_arena *arena, hak_arena_visitor *visit, void *argument) {
    struct arena *a = arena_checked((uintptr_t)arena, "hak_arena_visit");
    struct visit v = {visit, argument, 0};
    if (a == NULL)
        return -1;
    for (struct heap *of = load_acquire(&a->heaps); of != NULL && !mode()->has_quarantine; of = of->arena.next)
        thread_empty_heap(of); /* so that what is free is in its slab; a quarantine keeps a state for each block */
    for (uint32_t at = load_acquire(&a->newest); at != 0; at = arena_next(at))
        for (unsigned i = 0; i < SUPERSLAB_SLOTS && v.answer == 0; i++) {
            struct slab *s = slab_of_slot((at - 1) * (size_t)SUPERSLAB_SLOTS + i);
            if (slab_kind(s) >= KIND_IN_ARENA && kind_of(s)->visit != NULL)
                kind_of(s)->visit(s, call_visitor, &v);
        }
    return v.answer;
}
