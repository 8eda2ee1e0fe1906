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

#include "os.h"
#include "spans.h"
#include "slab.h"
#include "zero.h"

#define CANARY_BYTES 8

/* ---- what a heap has ---- */

struct secure_entry {
    _Alignas(vector) uintptr_t block; /* 0: none */
    _Atomic uint16_t *state;          /* as in struct secure_span */
};
/* In one piece, as they are read: of two stores a load of both would have to wait. */
HAK_INLINE void secure_entry_copy(struct secure_entry *to, const struct secure_entry *from) {
    *(vector *)(void *)to = *(const vector *)(const void *)from;
}
/* So that the child that a signal's handler forks meanwhile does not meet half of it. */
HAK_INLINE void secure_entry_put(struct secure_entry *to, struct secure_entry e) {
    *(vector *)(void *)to = (vector){e.block, (uintptr_t)e.state};
}
enum { SLACK_MOST = STATE_SLACK - 1 /* unused bytes of a block: a small one that is aligned to much */ };

/* Of a class. All zero before its first use: no blocks, no room. */
struct secure_cache {
    uint16_t pool_blocks;
    uint16_t pool_least; /* 1 at least: malloc leaves so many before it refills, to have something to choose from */
    uint16_t pool_room;
    uint16_t pool_full; /* a free that finds so many takes the slow way: pool_room, 0 until the quarantine is full */
    uint16_t pool_next; /* of the pool, the one malloc hands out next */
    uint8_t fifo_blocks;
    uint8_t fifo_room;
    uint8_t fifo_at;
    uint8_t slabs_started; /* or more */
    uint32_t block_bytes;
    struct secure_entry *pool; /* behind it the quarantine, a ring */
    struct secure_span *span;  /* claimed: blocks are taken from it */
};

/* At the end of a heap's memory; zero at first. The entries follow as classes are first used. */
struct secure_heap {
    _Alignas(vector) uint64_t random;
    size_t used_bytes;   /* behind this */
    uint32_t trims_seen; /* of secure.c's `trims` */
    struct secure_cache cache[CLASSES];
};
HAK_INLINE struct secure_heap *secure_of(struct heap *h) {
    return (struct secure_heap *)(void *)((char *)h + HEAP_BYTES - HEAP_SECURE_BYTES);
}

/* ---- secrets ---- */

HAK_INLINE uint64_t secure_fold(uint64_t a, uint64_t b) {
    __uint128_t product = (__uint128_t)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}
/* Depends on two secrets and the block's address; from it they can't be told. No byte of it is zero: so a text that is one
 * byte too long always shows. */
HAK_INLINE uint64_t secure_canary(uintptr_t block) {
    return secure_fold(block ^ hak_region.key, hak_region.second_key) | 0x0101010101010101;
}
/* As a word of the eight bytes from `bytes` on: the byte at an address depends on the address modulo 8 alone, so that the
 * canary behind the program's bytes and that at the block's end may overlap. */
HAK_INLINE uint64_t secure_canary_at(uint64_t canary, size_t bytes) {
    unsigned bits = (unsigned)bytes * 8 & 63;
    return canary >> bits | canary << (-bits & 63);
}
/* Not for ciphers: fast. Of a heap that has a cache. */
HAK_INLINE uint64_t secure_next_random(struct secure_heap *sh) {
    sh->random += 0xa0761d6478bd642f;
    return secure_fold(sh->random, sh->random ^ 0xe7037ed1a0b428db);
}
uint64_t secure_random(struct heap *h); /* of any */
HAK_INLINE unsigned random_below(struct heap *h, unsigned n) { return (unsigned)((secure_random(h) >> 32) * n >> 32); }

/* ---- blocks ---- */

HAK_INLINE bool state_is_live(uint16_t state) { return (uint16_t)(state - 1) < STATE_FREED - 1; }
HAK_INLINE uint16_t state_of_size(size_t block_bytes, size_t bytes) {
    return (uint16_t)(block_bytes - CANARY_BYTES - bytes + 1);
}
HAK_INLINE size_t secure_size_of_state(size_t block_bytes, uint16_t state) {
    return block_bytes - CANARY_BYTES - ((state & STATE_SLACK) - 1u);
}
/* Two of them: right behind what was asked for, and at the block's end, which is before the next block. */
HAK_INLINE void secure_put_canary(uintptr_t block, size_t block_bytes, size_t bytes) {
    uint64_t canary = secure_canary(block), behind = secure_canary_at(canary, bytes);
    *block_word(block + block_bytes - CANARY_BYTES) = canary; /* whole, for word_before */
    memcpy((char *)block_word(block) + bytes, &behind, CANARY_BYTES);
}

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
    unsigned left = cache->pool_blocks - 1u, next = (unsigned)((secure_next_random(secure_of(h)) >> 32) * left >> 32);
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

/* A block, zero but for its canary; NULL without memory. */
void *secure_malloc(struct heap *h, size_t bytes, size_t alignment);
/* `s` is the record of the slot p lies in. */
void secure_free(struct heap *h, struct slab *s, void *p);
void secure_free_homeless(struct slab *s, void *p); /* there is no memory for a heap */
/* Which operator made the block, if one did: it may be freed by that operator's counterpart, or as one of malloc's. */
enum secure_maker { MADE_BY_MALLOC, MADE_BY_NEW = STATE_BY_NEW, MADE_BY_NEW_ARRAY = STATE_BY_NEW_ARRAY };
void secure_set_maker(void *p, enum secure_maker maker);
/* Of any pointer: MADE_BY_MALLOC where nothing is known. */
enum secure_maker secure_maker_of(const void *p);
/* In place, if there is room and not too much of it. Only of live blocks. */
bool secure_resize(struct slab *s, void *p, size_t bytes);
/* Whether a block of `bytes` may be freed as one of `told`: as it was asked for, or, by pvalloc, before rounding. */
HAK_INLINE bool secure_size_fits(const void *p, size_t told, size_t bytes) {
    size_t page = os_page_bytes();
    return told == bytes || ((uintptr_t)p % page == 0 && told < bytes && round_up(told, page) == bytes);
}
/* What p is: SECURE_NO_BLOCK, or else with the size that was asked for in *bytes. */
enum secure_state { SECURE_NO_BLOCK, SECURE_NEVER, SECURE_LIVE, SECURE_FREED };
enum secure_state secure_find(struct slab *s, const void *p, size_t *bytes);
/* Gives back what the heap holds: all free blocks it has, in quarantine or not. */
void secure_empty(struct heap *h);
/* Pages of free blocks go back: those that stayed free since the last call, or all, and then what waits in quarantine before;
 * other heaps empty theirs when they come to it. Returns how many pages. */
size_t secure_trim(struct heap *h, bool all);
/* Are the free blocks as they were left? At the program's end, when none may be handed out again. */
void secure_look_at_exit(void);
/* Bytes that were asked for in the slab's live blocks, and those of the blocks that threads keep back. */
void secure_count(const struct slab *s, size_t *live, size_t *kept);

/* guarded.c: the same for large and huge blocks. `h` may be heap_afterlife in a free. */
void *guarded_malloc(struct heap *h, size_t bytes, size_t alignment);
void guarded_free(struct heap *h, struct slab *s, void *p);
bool guarded_resize(struct heap *h, struct slab *s, size_t bytes);
enum secure_state guarded_find(struct slab *s, const void *p, size_t *bytes);
void guarded_empty(struct heap *h);   /* the quarantine, which all threads share */
size_t guarded_purge(struct heap *h); /* what is resident there; in pages */

#endif
