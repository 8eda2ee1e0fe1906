/* The hierarchical atomic bitmap: a family of sets of small integers, searched from the lowest member up.
 *
 *  1. Level 0 has one bit per index; level n+1 one bit per word of level n, set while that word is not zero.
 *  2. The words of all sets for the same 64 indices lie side by side, so a small heap with many sets touches few pages.
 *  3. A search climbs until it finds a word with a bit at or after its place, then descends: O(levels).
 *
 * Members are HINTS: a search may miss a member just added and may return one just removed. Whoever acts on a member
 * checks the truth elsewhere. The guarantee is: once all calls have returned, a search finds exactly the members.
 * Any thread may call any function at any time; nothing waits. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "base/base.h"

#define BITSET_NONE ((size_t)-1)
#define BITSET_LEVELS 4

struct bitset_family {
    char *level[BITSET_LEVELS];         /* constant after birth: the first row of each level */
    ptrdiff_t row_bytes[BITSET_LEVELS]; /* from one row of 64 indices to the next, which may lie below */
    size_t rows[BITSET_LEVELS];         /* at each level */
    unsigned levels;                    /* in use; the highest has one row */
};

HAK_INLINE _Atomic uint64_t *bitset_word(const struct bitset_family *f, size_t set, unsigned level, size_t row) {
    return (_Atomic uint64_t *)(void *)(f->level[level] + (ptrdiff_t)row * f->row_bytes[level] + set * 8);
}

/* How many levels `indices` need, and how many rows each has. */
HAK_INLINE unsigned bitset_shape(size_t indices, size_t rows[BITSET_LEVELS]) {
    unsigned levels = 0;
    size_t n = indices;
    do {
        n = (n + 63) / 64;
        rows[levels++] = n;
    } while (n > 1 && levels < BITSET_LEVELS);
    return levels;
}

HAK_INLINE bool bitset_has(const struct bitset_family *f, size_t set, size_t index) {
    return load_relaxed(bitset_word(f, set, 0, index >> 6)) >> (index & 63) & 1;
}

/* Would bitset_find find no member at all? */
HAK_INLINE bool bitset_is_empty(const struct bitset_family *f, size_t set) {
    return load_acquire(bitset_word(f, set, f->levels - 1, 0)) == 0;
}

/* Adds `index`. Before the call, the caller must have made its truth visible by a sequentially consistent write.
 * Store-buffer pair with bitset_remove: add sets the lower word, then reads the upper one; remove clears the upper one,
 * then reads the lower. All four accesses are sequentially consistent, so one of the two calls sees the other. */
static inline void bitset_add(const struct bitset_family *f, size_t set, size_t index) {
    for (unsigned level = 0; level < f->levels; level++, index >>= 6) {
        _Atomic uint64_t *word = bitset_word(f, set, level, index >> 6);
        uint64_t bit = (uint64_t)1 << (index & 63);
        if (load_seq(word) & bit)
            return;
        if (rmw_or(word, bit) != 0)
            return; /* whoever made the word non-zero sets the levels above, or is about to */
    }
}

/* Removes `index`. Afterwards the caller must read its truth (sequentially consistent) and add the index again if the
 * truth says that it is a member. Upper levels follow the same rule; their truth is the word below. */
static inline void bitset_remove(const struct bitset_family *f, size_t set, size_t index) {
    for (unsigned level = 0; level < f->levels; level++, index >>= 6) {
        _Atomic uint64_t *word = bitset_word(f, set, level, index >> 6);
        uint64_t bit = (uint64_t)1 << (index & 63);
        uint64_t rest = rmw_and(word, ~bit) & ~bit;
        /* another thread has added a member meanwhile */
        if (level > 0 && PROVEN(remove_look, load_seq(bitset_word(f, set, level - 1, index))) != 0) {
            for (unsigned up = level; up < f->levels; up++, index >>= 6)
                rmw_or(bitset_word(f, set, up, index >> 6), (uint64_t)1 << (index & 63));
            return;
        }
        if (rest != 0)
            return;
    }
}

/* The lowest member >= from, or BITSET_NONE. */
static inline size_t bitset_find(const struct bitset_family *f, size_t set, size_t from) {
    size_t at = from;
    unsigned level = 0;
    /* at the start of a row, search the level above instead: it tells more, and the row may not exist yet */
    for (; level + 1 < f->levels && (at & 63) == 0; level++)
        at >>= 6;
    while (level < f->levels) {
        size_t row = at >> 6;
        if (row >= f->rows[level])
            return BITSET_NONE;
        uint64_t word = load_acquire(bitset_word(f, set, level, row)) & (~(uint64_t)0 << (at & 63));
        if (word == 0) {
            at = row + 1;
            level++;
            continue;
        }
        at = row * 64 + lowest_bit(word);
        if (level == 0)
            return at;
        at *= 64;
        level--;
    }
    return BITSET_NONE;
}

/* The highest member < below, or BITSET_NONE. */
static inline size_t bitset_find_last(const struct bitset_family *f, size_t set, size_t below) {
    size_t end = below;
    for (unsigned level = 0; level < f->levels;) {
        if (end == 0)
            return BITSET_NONE;
        size_t row = (end - 1) >> 6;
        uint64_t word = 0;
        if (row < f->rows[level])
            word = load_acquire(bitset_word(f, set, level, row)) & low_bits((unsigned)(end - row * 64));
        else
            row = f->rows[level];
        if (word == 0) {
            end = row;
            level++;
            continue;
        }
        size_t at = row * 64 + highest_bit(word);
        if (level == 0)
            return at;
        end = (at + 1) * 64;
        level--;
    }
    return BITSET_NONE;
}
