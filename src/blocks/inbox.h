/* A tiny slab's inbox: blocks that threads other than its owner freed.
 *
 *  1. One word holds the number of blocks and the place of the newest; links lead to older ones, the last to the slab's
 *     terminator. So one compare-and-swap adds a chain of any length, and one exchange takes all blocks.
 *  2. The inbox belongs to the slab and not to a heap: it stays with the slab when that changes hands.
 *  3. Any thread may take the blocks. They count as out, so malloc can hand them out again without a change to the
 *     slab.
 *
 * A taker takes all blocks, so there is no ABA problem. A push pairs with the exchange, for the blocks' links. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "blocks/links.h"

/* The inbox word: blocks << 16 | offset of the newest in the slot. */
HAK_INLINE uint64_t inbox_word(uint64_t blocks, uintptr_t newest) { return blocks << 16 | (newest & (SLOT_BYTES - 1)); }
HAK_INLINE uint64_t inbox_blocks(uint64_t word) { return word >> 16; }
HAK_INLINE uintptr_t inbox_newest(const struct slab *s, uint64_t word) {
    return (uintptr_t)slab_address(s) + (word & (SLOT_BYTES - 1));
}
HAK_INLINE unsigned inbox_waiting(const struct slab *s) { return (unsigned)inbox_blocks(load_relaxed(&s->inbox)); }

/* Puts a chain of `blocks` blocks into the inbox. Returns how many blocks wait there now. *retries grows by one each
 * time that another thread was faster. */
uint64_t inbox_push(struct slab *s, uintptr_t first, uintptr_t last, uint64_t blocks, uint64_t *retries);
HAK_INLINE void inbox_push_one(struct slab *s, uintptr_t block) {
    uint64_t ignored = 0;
    inbox_push(s, block, block, 1, &ignored);
}
/* Takes all blocks: returns a chain that ends in the slab's terminator, or the terminator alone. *blocks: how many
 * there are. */
uintptr_t inbox_take(struct slab *s, unsigned *blocks);
