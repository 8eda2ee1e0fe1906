/* The calls by which the core reaches what is built onto it: the one page between the allocator and its wings.
 *
 *  1. The wings are observe/, learn/, arena/, secure/, mesh/ and move/. No file of the core includes a header of
 *     theirs. A wing defines the hooks of its section below and includes what it needs of the core. Besides the hooks,
 *     the core knows three things of the wings: the rows of their kinds (kinds.h), what their slabs have in the records
 *     (region.h), and whether secure mode is on (OPT_SECURE). src/entry puts core and wings together.
 *  2. No hit path calls a hook. Whatever a hit path would have to notice, such as a wish for samples, makes the call
 *     miss (asked.h, heap_watch_sites).
 *  3. The core compiles, links and passes its tests without any wing: tests/core/no_wings.c stands in for them.
 *
 * The calling thread's heap is `h` throughout. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "base/base.h"

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

/* ---- observe/ ---- */

/* The function that allocates: the malloc or malloc_dense of the kind's row. */
typedef void *take_call(struct heap *h, size_t bytes, size_t alignment, bool *zero);
/* Allocates by `take`, a function of the kind's row, while samples are wanted, and decides whether this block is a
 * sample. */
void *hook_malloc_sampled(struct heap *h, const struct kind *kind, take_call *take, size_t bytes, size_t alignment,
                          bool *zero);
/* The block at p, in the slab, has a new size: in place, or at a new address to which its pages moved. */
void hook_resized(struct heap *h, struct slab *s, const void *p, size_t bytes);
/* A block that is marked as sampled is about to be freed or resized. */
void hook_sampled_freed(const void *p);
/* The bytes asked for when the sampled block was allocated; SIZE_MAX: the block is no sample of the profile. */
size_t hook_sampled_bytes(const void *p);
/* The instruction at `code` faulted at that address, which ends the program. Returns whether that could be explained,
 * in lines of a report. */
bool hook_explain_fault(const void *at, const char *access, uintptr_t code);
/* The heap has passed SOFT_LIMIT. */
void hook_soft_limit(void);

/* ---- learn/ ---- */

/* A heap has settled, and the option ACE is not 0. */
void hook_settled(void);
/* The program rests: memory that was kept for its swings goes back. */
void hook_rests(void);

/* ---- arena/ ---- */

/* Allocates for a thread that has set a default arena, and so has heap_redirected. */
void *hook_malloc_in_default(size_t bytes, size_t alignment, bool *zero);
/* Allocates beside a block of an arena: in that arena if it lives, else as malloc. */
void *hook_malloc_near(const struct slab *s, size_t bytes);
/* The heap that resizes a block of the slab: the thread's for its arena, `h` if the block is the process's. NULL: no
 * memory for one. */
struct heap *hook_heap_for(struct heap *h, const struct slab *s);
/* Allocates as the policy for the calling code says. Where sites are watched it is the last thing that alloc_slow
 * does. */
void *hook_malloc_at_site(struct heap *h, size_t bytes);

/* ---- move/ ---- */

/* Is a slab of the class, at that slot and with `out` blocks in use, one that the program empties by moving its
 * blocks? */
bool hook_is_sparse(unsigned class_id, unsigned out, size_t slot);
/* The malloc_dense of tiny's row. */
void *hook_tiny_malloc_dense(struct heap *h, size_t bytes, size_t alignment, bool *zero);

/* ---- secure/ ---- */

/* Allocates in secure mode. */
void *hook_malloc_secure(struct heap *h, size_t bytes);
/* Secure mode: notes that operator new, or new[] (`array`), made the block, and returns the block. NULL stays NULL. */
void *hook_made_by_new(void *p, bool array);
/* Secure mode: operator delete, or delete[] (`array`), is about to free the block. Reports the wrong operator. */
void hook_deleted(const void *p, bool array);
