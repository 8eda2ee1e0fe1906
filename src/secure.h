/* Secure mode (HAKMEM_SECURE=1): two tiers of its own in place of the four, of which no block is ever a hit.
 *
 *  secure.c         blocks to 64 KiB, with the 8 bytes of the canary: heaps' caches and quarantines of them
 *  secure_slab.c    slabs of such blocks, which no thread owns, between guard slots
 *  secure_damage.c  what is found of overflows and writes after free
 *  spans.c          where these slabs lie
 *  guarded.c        all larger blocks: between guard pages
 *
 * Both keep of each block the size that was asked for, outside the blocks: it is the usable size, the canary begins right
 * behind it, and a sized free must name it. They keep, too, which operator made the block. The lists and rings of heaps stay
 * empty, so that malloc and free always come to the slow paths of alloc.c, which ask the option or the kind of the slab
 * there. From there the hit path of secure mode's malloc is inlined, and that of free is one jump away. */
/* SPDX-License-Identifier: MIT */
#ifndef HAK_SECURE_H
#define HAK_SECURE_H

#include "secure_block.h"

/* ---- the hit path of malloc ----
 * For sizes that classes have blocks of. What it does not know of is for secure_hand_out and secure_malloc. */

HAK_INLINE struct secure_cache *secure_cache_for(struct heap *h, size_t bytes) {
    size_t units = (bytes + CANARY_BYTES + 15) / 16; /* 0 bytes fit into a block of 16 */
    unsigned c = likely(units <= TINY_BYTES_MAX / 16) ? tiny_class_table[units * 2] : mid_class_table[(units - 1) / 8];
    return &secure_of(h)->cache[c];
}
HAK_INLINE bool secure_has_next(const struct secure_cache *cache) { return cache->pool_blocks > cache->pool_least; }
/* It was chosen the last time, and is in the cache by now. */
HAK_INLINE struct secure_entry secure_next(struct heap *h, struct secure_cache *cache) {
    unsigned left = cache->pool_blocks - 1u, next = (unsigned)((secure_next_random(h) >> 32) * left >> 32);
    struct secure_entry *pool = cache->pool, *chosen = &pool[cache->pool_next], e = *chosen;
    cache->pool_blocks = (uint16_t)left;
    atomic_signal_fence(memory_order_seq_cst); /* a child forked here by a signal's handler may lose blocks, no more */
    secure_entry_copy(chosen, &pool[left]);
    cache->pool_next = (uint16_t)next;
    prefetch(pool[next].block);
    prefetch((uintptr_t)pool[next].state);
    return e;
}
HAK_INLINE bool secure_is_simple(struct secure_entry e, size_t block_bytes) {
    return block_bytes <= NARROW_MOST && !state_is_live(load_relaxed(e.state)) && narrow_is_zero(e.block, block_bytes);
}
HAK_INLINE void *secure_finish(struct secure_entry e, size_t block_bytes, size_t bytes) {
    store_relaxed(e.state, state_of_size(block_bytes, bytes));
    secure_put_canary(e.block, block_bytes, bytes);
    return block_word(e.block);
}
/* Looks at any block. If it is not for use, `otherwise` is called, and last of all, so that alloc.c need not come back. */
void *secure_hand_out(struct secure_entry e, size_t block_bytes, size_t bytes, void *(*otherwise)(size_t bytes));

void secure_set_maker(void *p, enum secure_maker maker);
/* Of any pointer: MADE_BY_MALLOC where nothing is known. */
enum secure_maker secure_maker_of(const void *p);
/* Are the free blocks as they were left? At the program's end, when none may be handed out again. */
void secure_look_at_exit(void);
#endif
