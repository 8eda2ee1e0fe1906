/* The pool: where all tiers and threads take spans of slots and runs of SuperSlabs, and give them back.
 *
 *  1. The search for a span has three stages: EMPTY slots of a SuperSlab in use; UNUSED slots of one; a wholly free
 *     SuperSlab (a cached one, which is resident, before a clean one before a new one). The lowest address goes first,
 *     which packs the heap; among the EMPTY slots of one SuperSlab, those that last had the same class go first.
 *  2. A span is admitted (limits.h), then counted for its heap (account.h); after every few slots the heap settles,
 *     which may give memory back to the system (retain.h).
 *
 * Any thread calls anything, with its own client; nothing waits. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "space/superslab.h"

/* A span of `slots` (1 to 32) neighbouring slots of one SuperSlab, the first at a multiple of `align` slots (a power of
 * two). `tag` is a class + 1 for class affinity, 0 for none. Returns the first slot's number; BITSET_NONE: there is no
 * memory. *zero: all bytes of the span are known to be zero. */
size_t pool_take(struct client *c, unsigned slots, unsigned align, unsigned tag, bool *zero);
/* As pool_take, but also takes up to `further` more such spans from EMPTY slots of the same SuperSlab, which cost
 * hardly more and need not be aligned. *taken has the bits of all slots. */
size_t pool_take_spans(struct client *c, unsigned slots, unsigned align, unsigned tag, unsigned further,
                       uint32_t *taken, bool *zero);
/* Gives the span back; the slots become EMPTY or, if they were purged and are not `resident`, UNUSED. The records are
 * KIND_FREE again already. */
void pool_give(struct client *c, size_t slot, unsigned slots, unsigned tag, bool resident);
/* Gives `n` spans of `slots` slots each, which are resident and have no class. Neighbours cost hardly more than one. */
void pool_give_spans(struct client *c, const uint32_t *first_slots, unsigned n, unsigned slots);
/* Takes the slots behind a span of one SuperSlab, so that it grows from `slots` to `wanted`. */
bool pool_extend(struct client *c, size_t slot, unsigned slots, unsigned wanted);

/* Takes just this slot. POOL_TAKEN: it is not free. POOL_REFUSED: it is free, but HARD_LIMIT allows no more. */
enum pool_answer { POOL_TOOK, POOL_TAKEN, POOL_REFUSED };
enum pool_answer pool_take_slot(struct client *c, size_t slot, bool *zero);
/* Makes one more SuperSlab with free slots; if the system refuses a whole one, `slots` of one, or what is left of it.
 * Returns the SuperSlab's number, or BITSET_NONE. */
size_t pool_grow(unsigned slots);

/* Takes a run of `n` whole SuperSlabs, the first aligned to `align_bytes` (a power of two, 2 MiB or more). Returns the
 * number of the first, or BITSET_NONE. */
size_t pool_take_run(struct client *c, size_t n, size_t align_bytes, bool *zero);
/* Gives a run back; `resident`: its pages may hold data. */
void pool_give_run(struct client *c, size_t first, size_t n, bool resident);
/* Gives back the addresses alone: the kernel has unmapped the run. They are used again once they can be mapped. */
void pool_give_unmapped_run(struct client *c, size_t first, size_t n);
/* Gives back the addresses of all SuperSlabs that are free, unless a thread may read there (region_is_read). */
void pool_unmap_free(struct client *c);
/* Takes the SuperSlabs behind a run, so that it grows from `n` to `wanted`. */
bool pool_extend_run(struct client *c, size_t first, size_t n, size_t wanted);
