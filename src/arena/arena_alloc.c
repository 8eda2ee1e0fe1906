/* See arena_alloc.h. */
/* SPDX-License-Identifier: MIT */
#include "arena/arena_alloc.h"
#include "alloc_slow.h"
#include "arena/arena_heap.h"
#include "base/fail.h"
#include "hooks.h"
#include "thread.h"

static void *allocate_in(struct arena *a, size_t bytes, size_t alignment, bool *zero) {
    struct heap *h = bytes <= PTRDIFF_MAX && alignment <= PTRDIFF_MAX ? thread_enter() : NULL;
    struct heap *of = h != NULL ? arena_heap(h, a) : NULL;
    void *p = of != NULL ? alloc_from(of, bytes, alignment, zero) : alloc_no_memory(h);
    if (h != NULL)
        alloc_leave(h, of != NULL ? of : h);
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

HAK_NOINLINE void *arena_malloc_any(struct arena *a, size_t bytes, size_t alignment, bool *zero) {
    for (;;) {
        size_t refusals = load_relaxed(&a->refusals);
        void *p = allocate_in(a, bytes, alignment, zero);
        if (likely(p != NULL) || load_relaxed(&a->refusals) == refusals || !callback_frees(a, bytes))
            return p;
    }
}

HAK_NOINLINE void *hook_malloc_in_default(size_t bytes, size_t alignment, bool *zero) {
    struct arena *a = arena_of(hak_default_arena.handle);
    *zero = false;
    if (likely(a != NULL))
        return arena_malloc_any(a, bytes, alignment, zero);
    fail_bad_arena("malloc", hak_default_arena.handle);
    return alloc_no_memory(NULL);
}

void *hook_malloc_near(const struct slab *s, size_t bytes) {
    bool zero;
    return arena_malloc_any(arena_of_slab(s), bytes, 1, &zero);
}
