/* Secure mode (HAKMEM_SECURE=1): two tiers replace the four of the default mode. None of their blocks is ever a hit.
 *
 *  secure.c         blocks up to 64 KiB, the canary's 8 bytes included: the heaps' pools and quarantines
 *  secure_slab.c    slabs of such blocks, between guard slots; no thread owns a slab
 *  secure_damage.c  finds and reports overflows and writes after free
 *  secure_span.c          the spans that these slabs are cut from
 *  secure_trace.c   who allocated and freed them, for reports
 *  secure_large.c        all larger blocks, each between guard pages
 *
 * Both tiers keep each block's requested size outside the block: malloc_usable_size returns it, the canary begins right
 * behind it, and a sized free must name it. They also keep which operator made the block. The heaps' lists and rings
 * stay empty, so malloc and free always reach the slow paths of alloc.c, which ask the mode's row (secure_alloc.c) or
 * the slab's kind: the hit paths of secure mode's malloc and free are one jump away. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "secure/secure_block.h"
#include "secure/secure_trace.h"

/* ---- the hit path of malloc ----
 * For sizes that fit into a block of a class. All that is not simple is left to secure_hand_out and secure_malloc. */

HAK_INLINE struct secure_cache *secure_cache_for(struct heap *h, size_t bytes) {
    size_t units = (bytes + CANARY_BYTES + 15) / 16; /* 0 bytes fit into a block of 16 */
    unsigned c = likely(units <= TINY_BYTES_MAX / 16) ? tiny_class_table[units * 2] : mid_class_table[(units - 1) / 8];
    return &secure_of(h)->cache[c];
}
HAK_INLINE bool secure_has_next(const struct secure_cache *cache) { return cache->stash_blocks > cache->stash_min; }
/* Takes the block that the previous call chose and prefetched, and chooses the next one. */
HAK_INLINE struct secure_entry secure_next(struct heap *h, struct secure_cache *cache) {
    unsigned left = cache->stash_blocks - 1u, next = (unsigned)((secure_next_random(h) >> 32) * left >> 32);
    struct secure_entry *pool = cache->pool, *chosen = &pool[cache->pool_next], e = *chosen;
    cache->stash_blocks = (uint16_t)left;
    atomic_signal_fence(memory_order_seq_cst); /* a child that a signal handler forks here can at worst lose blocks */
    secure_entry_copy(chosen, &pool[left]);
    cache->pool_next = (uint16_t)next;
    prefetch(pool[next].block);
    prefetch((uintptr_t)pool[next].state);
    return e;
}
HAK_INLINE bool secure_is_simple(struct secure_entry e, size_t block_bytes) {
    return block_bytes <= NARROW_MAX && !state_is_live(load_relaxed(e.state)) && narrow_is_zero(e.block, block_bytes);
}
HAK_INLINE void *secure_finish(struct secure_entry e, size_t block_bytes, size_t bytes) {
    secure_put_canary(e.block, block_bytes, bytes);
    atomic_signal_fence(memory_order_seq_cst); /* a signal handler that ends the program finds whole blocks */
    store_relaxed(e.state, state_of_size(block_bytes, bytes));
    return secure_trace(block_word(e.block), STACK_ALLOCATED);
}
/* Checks a block of any size and hands it out. If the block cannot be used, calls `otherwise` as the last step, so that
 * alloc.c has nothing left to do. */
void *secure_hand_out(struct secure_entry e, size_t block_bytes, size_t bytes, void *(*otherwise)(size_t bytes));

void secure_set_maker(void *p, enum secure_maker maker);
/* For any pointer. MADE_BY_MALLOC if nothing is known of it. */
enum secure_maker secure_maker_of(const void *p);
/* At the program's end: checks the free blocks, which no later malloc may do, and in a program with one thread also the
 * canaries of live small blocks. */
void secure_check_at_exit(void);
