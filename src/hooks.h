/* Where the core calls what is built onto it: the one page between the allocator and its wings.
 *
 *  1. The wings are observe/, learn/, arena/, secure/, mesh/ and move/. No file of the core includes a header of
 *     theirs. A wing defines the hooks of its section below, in terms of the core's headers. The rest of a wing is the
 *     rows of its kinds, which kinds.h names too, and what src/entry puts together.
 *  2. No hit path calls a hook. What a hit path has to notice, such as a wish for samples, makes it miss (asked.h,
 *     heap_watch_sites).
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
/* At the end of the program: files are written. Then: what is left is checked, and may abort the program. */
void hook_end(void);
void hook_last_checks(void);

/* ---- observe/ ---- */

/* What allocates: the malloc or malloc_dense of the kind's row. */
typedef void *take_call(struct heap *h, size_t bytes, size_t alignment, bool *zero);
/* Allocates by `take` of the kind's row while samples are wanted, and finds out whether this block is one. */
void *hook_malloc_sampled(struct heap *h, const struct kind *kind, take_call *take, size_t bytes, size_t alignment,
                          bool *zero);
/* The block at p, in the slab, has this size now, where it was or after its pages moved. */
void hook_resized(struct heap *h, struct slab *s, const void *p, size_t bytes);
/* A block that is marked as sampled is about to be freed or resized. */
void hook_sampled_freed(const void *p);
/* What was asked for when the sampled block was allocated, in bytes; SIZE_MAX: it is no sample of the profile. */
size_t hook_sampled_bytes(const void *p);
/* The instruction at `code` faulted at that address, which ends the program. Returns whether that could be explained,
 * in lines of a report. */
bool hook_explain_fault(const void *at, const char *access, uintptr_t code);
/* The heap has passed SOFT_LIMIT. */
void hook_soft_limit(void);

/* ---- learn/ ---- */

/* A heap has settled, and ACE is not 0. */
void hook_settled(void);
/* The program rests: what swings need goes back. */
void hook_rests(void);

/* ---- arena/ ---- */

/* Allocates for a thread that has set a default arena, and so has heap_redirected. */
void *hook_malloc_in_default(size_t bytes, size_t alignment, bool *zero);
/* Allocates beside a block of an arena's: there if the arena lives, else as malloc. */
void *hook_malloc_near(const struct slab *s, size_t bytes);
/* The heap that resizes a block of the slab: the thread's for its arena, `h` if the block is the process's. NULL: no
 * memory for one. */
struct heap *hook_heap_for(struct heap *h, const struct slab *s);
/* Allocates as the policy of the calling code says; the last thing that alloc_slow does where sites are watched. */
void *hook_malloc_at_site(struct heap *h, size_t bytes);

/* ---- move/ ---- */

/* Does the program empty a slab of the class, at that slot and with `out` blocks in use, by moving its blocks? */
bool hook_is_sparse(unsigned class_id, unsigned out, size_t slot);
/* As malloc_dense of a kind's row: for tiny blocks. */
void *hook_tiny_malloc_dense(struct heap *h, size_t bytes, size_t alignment, bool *zero);

/* ---- secure/ ---- */

/* Allocates in secure mode. */
void *hook_malloc_secure(struct heap *h, size_t bytes);
/* Secure mode: the block was made by an operator new, or new[] (`array`), and returns it; NULL if it is NULL. */
void *hook_made_by_new(void *p, bool array);
/* Secure mode: the block is about to be freed by an operator delete, or delete[]. Reports the wrong one. */
void hook_deleted(const void *p, bool array);
