/* Which blocks are worth moving. C forbids the allocator to move a block; a program that knows all pointers to it can.
 *
 *  1. A survey counts, for one class, how many slabs have how many blocks out. It then empties slabs on paper, the
 *     emptiest first, while their blocks fit into the others (or fill less than half of a slab, and so fit into few new
 *     ones). That gives the bound of the class: a slab with fewer blocks out is sparse.
 *  2. A question about a block compares its slab with the bound: a few loads. After every ASK_BEFORE_CLOCK questions
 *     about a class a heap looks at the clock, and makes a new survey if the last one is old.
 *  3. Dense allocations (dense.c) come from slabs that are not sparse, or from new ones.
 *  4. The cursor lists the live blocks of sparse slabs, slot by slot.
 *
 * Any thread calls anything. All that is known of slabs is a guess, as other threads allocate and free meanwhile: a
 * wrong one costs a move that gains nothing, or misses one. Bounds are single words, and the last survey wins. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "blocks/kinds.h"

/* A class's bound: low | high << 16 | edge << 32. A slab with fewer blocks out than `low` is sparse, and one with fewer
 * than `high` if its slot is at least `edge`: of slabs that are equally full the upper ones are emptied. 0: no slab is
 * sparse. */
extern HAK_HIDDEN _Atomic uint64_t defrag_bounds[CLASSES];

HAK_INLINE bool defrag_is_sparse(unsigned class_id, unsigned out, size_t slot) {
    uint64_t bound = load_relaxed(&defrag_bounds[class_id]);
    return out < (uint16_t)(bound >> 16) && (out < (uint16_t)bound || slot >= bound >> 32);
}

/* May the program gain from moving the block at p? False for anything that is no block. */
bool defrag_should_move(const void *p);

/* The cursor, inside struct hak_defrag. Zero: at the lowest address. */
#define DEFRAG_DONE SIZE_MAX
struct defrag_cursor {
    size_t slot;               /* the next one to look at; DEFRAG_DONE: there is none */
    size_t live_slot;          /* that of the blocks in `live` */
    uint64_t end_ns;           /* of the time box, on os_now_ns's clock; 0: there is none */
    uint32_t calls;            /* steps in this box */
    uint32_t class_id;         /* of the blocks in `live` */
    uint64_t words;            /* of `live` that may have a bit, from the first */
    uint64_t live[LIVE_WORDS]; /* bit i: block i of the slab was live and has not been listed yet */
};
HAK_INLINE bool defrag_is_done(const struct defrag_cursor *cursor) { return cursor->slot == DEFRAG_DONE; }
/* Opens a time box of `ns` nanoseconds; 0: without end. */
void defrag_begin(struct defrag_cursor *cursor, uint64_t ns);
/* The next block, and its usable size; NULL: the time is up, or all slabs were looked at. */
void *defrag_next(struct defrag_cursor *cursor, size_t *bytes);
/* True: all slabs were looked at. The cursor is at the lowest address again. */
bool defrag_end(struct defrag_cursor *cursor);
