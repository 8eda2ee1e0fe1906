/* Links: the lists of free tiny blocks, stored in the blocks themselves.
 *
 * A free block's first word is the address of the next free block of the same slab, xor the region's key. In the last
 * block it is the slab's terminator, an odd address in the slab, xor the key. So all links of a slab have the same
 * upper half, its link_mark, and a block whose first word has it is probably free already, because malloc clears the
 * first word of each block it hands out. Only probably: a program may unknowingly copy a link into its own block, as
 * padding left in a register or on the stack. So a search of the lists has the last word (search_lists). */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "region/region.h"

HAK_INLINE uintptr_t slab_terminator(const struct slab *s) { return (uintptr_t)slab_address(s) | 1; }
HAK_INLINE bool is_terminator(uintptr_t block) { return block & 1; }
/* Is this the end of a list, or a damaged link? The low bits of the key are ones, so if a program overwrites a link,
 * zeroes, pointers and seven in eight other values decode to no block. */
HAK_INLINE bool is_no_block(uintptr_t block) { return block & (BLOCK_ALIGN - 1); }
HAK_INLINE uintptr_t *block_word(uintptr_t block) { return (uintptr_t *)block; /* NOLINT: blocks are addresses */ }
HAK_INLINE uintptr_t block_next(uintptr_t block) { return *block_word(block) ^ hak_region.key; }
HAK_INLINE void block_link(uintptr_t block, uintptr_t next) { *block_word(block) = next ^ hak_region.key; }
HAK_INLINE bool same_slot(uintptr_t a, uintptr_t b) { return (a ^ b) < SLOT_BYTES; }
/* Could this be a block of the slab at that address? Neither a terminator nor a damaged link (is_no_block) is. */
HAK_INLINE bool is_in_slab(uintptr_t block, uintptr_t slab) {
    return ((block ^ slab) & ~(SLOT_BYTES - BLOCK_ALIGN)) == 0;
}
HAK_INLINE uint32_t upper_half(uintptr_t link) { return (uint32_t)(link >> 32); }
/* For a block of the slab. */
HAK_INLINE bool block_looks_free(const struct slab *s, uintptr_t block) {
    return upper_half(*block_word(block)) == s->tiny.link_mark;
}

/* Owner only: the length of a list of the slab's blocks. If a link leads elsewhere, reports that and empties the
 * list. */
unsigned links_count(const struct slab *s, _Atomic uintptr_t *list);
