/* What the core tells its wings: the one page between the allocator and what is built onto it.
 *
 *  1. The wings are observe/, learn/, arena/, secure/, mesh/ and move/. No file of the core includes a header of
 *     theirs. Each wing fills in its row of the functions below, in its own folder, and includes what it needs of the
 *     core; the row of secure/ is base/mode.h's. Besides the rows, the core knows three things of the wings: the rows
 *     of their kinds (kinds.h), what their slabs have in the records (region.h), and what a heap has for them (heap.h).
 *     src/entry puts core and wings together.
 *  2. A wing that is off is not called: each caller first asks something that it has at hand, which the comments name.
 *     No hit path calls a hook. Whatever a hit path would have to notice, such as a wish for samples, makes the call
 *     miss (asked.h, heap_watch_sites).
 *  3. The core compiles, links and passes its tests without any wing: the rows of tests/core/no_wings.c are empty.
 *
 * The calling thread's heap is `h` throughout. Rows are constant. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "base/options.h"

struct heap;
struct kind;
struct slab;

/* ---- the process (entry/wings.c) ---- */

/* At the start, once the options are known: reads the policies of call sites. Returns whether sites are watched. */
bool hook_options_are_read(void);
/* At the start, once there is a region, and before the program's own code runs. */
void hook_start(void);
/* hook_end: the program ends, and files are written. Then hook_last_checks: what is left is checked, which may abort
 * the program. */
void hook_end(void);
void hook_last_checks(void);

/* The function that allocates: the malloc of the kind's row, or what hooks_move names. */
typedef void *take_call(struct heap *h, size_t bytes, size_t alignment, bool *zero);

struct observe_hooks {
    /* While samples are wanted (sample_wanted): allocates by `take`, and decides whether this block is a sample. */
    void *(*malloc_sampled)(struct heap *h, const struct kind *kind, take_call *take, size_t bytes, size_t alignment,
                            bool *zero);
    /* Likewise: the block at p, which is not in the profile, has a new size, in place or after its pages have moved. */
    void (*resized)(struct heap *h, const void *p, size_t bytes);
    /* The block's state has BLOCK_PROFILED: the block is about to be freed or resized. */
    void (*sampled_freed)(const void *p);
    /* Likewise: the bytes asked for when the block was allocated; SIZE_MAX: it is no sample of the profile. */
    size_t (*sampled_bytes)(const void *p);
    /* The address is in a slab of KIND_GUARD_PAGE, and the instruction at `code` faulted there, which ends the program.
     * Returns whether that could be explained, in lines of a report. */
    bool (*explain_fault)(const void *at, const char *access, uintptr_t code);
    /* SOFT_LIMIT_PROFILE names a file: the heap has passed SOFT_LIMIT. */
    void (*soft_limit)(void);
};
extern HAK_HIDDEN const struct observe_hooks hooks_observe;

/* While ACE is not 0. */
struct learn_hooks {
    void (*settled)(void); /* a heap has settled */
    void (*rests)(void);   /* the program rests: memory that was kept for its swings goes back */
};
extern HAK_HIDDEN const struct learn_hooks hooks_learn;
HAK_INLINE bool hooks_learn_on(void) { return unlikely(option(OPT_ACE) != ACE_OFF); }
HAK_INLINE bool hooks_learn_times(void) { return unlikely(option(OPT_ACE) == ACE_OBSERVE); } /* see ledger.h */

struct arena_hooks {
    /* The thread has a default arena, and so has heap_redirected: allocates there. */
    void *(*malloc_in_default)(size_t bytes, size_t alignment, bool *zero);
    /* The slab's kind has KIND_IN_ARENA: allocates in the arena of the slab. */
    void *(*malloc_near)(const struct slab *s, size_t bytes);
    /* Likewise: the heap that resizes a block of the slab, the thread's for its arena. NULL: no memory for one. */
    struct heap *(*heap_for)(struct heap *h, const struct slab *s);
    /* The heap has CACHES_SITED, as call sites are watched: allocates as the policy for the calling code says. It is
     * the last thing that alloc_slow does. */
    void *(*malloc_at_site)(struct heap *h, size_t bytes);
    /* The heap has has_arenas: the lane after `last`, or the first one, in which its thread has a heap; that heap, or
     * NULL. */
    struct heap *(*next_lane)(const struct heap *h, struct heap *last);
    /* Likewise: its thread ends. */
    void (*thread_ends)(struct heap *h);
};
extern HAK_HIDDEN const struct arena_hooks hooks_arena;

struct move_hooks {
    /* The program moves a block: what allocates blocks of the kind in slabs that are not sparse, past all caches. */
    take_call *(*dense)(const struct kind *kind);
};
extern HAK_HIDDEN const struct move_hooks hooks_move;

/* While MESH is 1. */
struct mesh_hooks {
    void (*pass)(struct heap *h); /* threads that free have looked at many slabs that changed (pages.c) */
};
extern HAK_HIDDEN const struct mesh_hooks hooks_mesh;
HAK_INLINE bool hooks_mesh_on(void) { return option(OPT_MESH) != 0; }
