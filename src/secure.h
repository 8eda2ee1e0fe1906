/* Secure mode (HAKMEM_SECURE=1): two tiers replace the four of the default mode. None of their blocks is ever a hit.
 *
 *  secure.c         blocks up to 64 KiB, the canary's 8 bytes included: the heaps' pools and quarantines
 *  secure_slab.c    slabs of such blocks, between guard slots; no thread owns a slab
 *  secure_damage.c  finds and reports overflows and writes after free
 *  spans.c          the spans that these slabs are cut from
 *  guarded.c        all larger blocks, each between guard pages
 *
 * Both tiers keep each block's requested size outside the block: malloc_usable_size returns it, the canary begins right
 * behind it, and a sized free must name it. They also keep which operator made the block. The heaps' lists and rings
 * stay empty, so malloc and free always reach the slow paths of alloc.c, which check the option or the slab's kind. The
 * hit path of secure mode's malloc is inlined there, and that of free is one jump away. */
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
/* Copies the entry as one vector, because entries are read as one: a vector load would have to wait for two separate
 * stores. */
HAK_INLINE void secure_entry_copy(struct secure_entry *to, const struct secure_entry *from) {
    *(vector *)(void *)to = *(const vector *)(const void *)from;
}
/* Writes the entry with one store, so that a child forked by a signal handler never sees half an entry. */
HAK_INLINE void secure_entry_put(struct secure_entry *to, struct secure_entry e) {
    *(vector *)(void *)to = (vector){e.block, (uintptr_t)e.state};
}
/* Unused bytes of a block, at most. Only small requests with a large alignment would need more. */
enum { SLACK_MOST = STATE_SLACK - 1 };

/* A heap's free blocks of one class. All zero before its first use: no blocks, no room. */
struct secure_cache {
    uint16_t pool_blocks;
    uint16_t pool_least; /* at least 1: malloc refills when no more than these are left, so it always has a choice */
    uint16_t pool_room;
    uint16_t pool_full; /* at this many blocks free is slow: pool_room, or 0 until the quarantine is full */
    uint16_t pool_next; /* index of the block that malloc hands out next */
    uint8_t fifo_blocks;
    uint8_t fifo_room;
    uint8_t fifo_at;
    uint8_t slabs_started; /* stops at POPULATE_FROM_SLABS */
    uint32_t block_bytes;
    struct secure_entry *pool; /* followed by the quarantine, a ring */
    struct secure_span *span;  /* claimed: refills take blocks from it */
};

/* At the end of a heap's memory, zero at first. The entries follow it, those of each class added at its first use. */
struct secure_heap {
    _Alignas(vector) uint64_t random;
    size_t used_bytes;   /* of entries, behind this struct */
    uint32_t trims_seen; /* secure.c's `trims` when the heap last emptied its caches */
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
/* Computed from two secrets and the block's address, in a way that does not reveal the secrets. No byte of it is zero,
 * so a string that is one byte too long always changes it. */
HAK_INLINE uint64_t secure_canary(uintptr_t block) {
    return secure_fold(block ^ hak_region.key, hak_region.second_key) | 0x0101010101010101;
}
/* The canary as it appears in the eight bytes from offset `bytes` on. The byte at an address depends only on the
 * address modulo 8, so the canary behind the program's bytes and the one at the block's end may overlap. */
HAK_INLINE uint64_t secure_canary_at(uint64_t canary, size_t bytes) {
    unsigned bits = (unsigned)bytes * 8 & 63;
    return canary >> bits | canary << (-bits & 63);
}
/* Fast, not cryptographic. For heaps that have a cache: the first cache seeds `random`. */
HAK_INLINE uint64_t secure_next_random(struct secure_heap *sh) {
    sh->random += 0xa0761d6478bd642f;
    return secure_fold(sh->random, sh->random ^ 0xe7037ed1a0b428db);
}
uint64_t secure_random(struct heap *h); /* for any heap */
HAK_INLINE unsigned random_below(struct heap *h, unsigned n) { return (unsigned)((secure_random(h) >> 32) * n >> 32); }

/* ---- blocks ---- */

HAK_INLINE bool state_is_live(uint16_t state) { return (uint16_t)(state - 1) < STATE_FREED - 1; }
HAK_INLINE uint16_t state_of_size(size_t block_bytes, size_t bytes) {
    return (uint16_t)(block_bytes - CANARY_BYTES - bytes + 1);
}
HAK_INLINE size_t secure_size_of_state(size_t block_bytes, uint16_t state) {
    return block_bytes - CANARY_BYTES - ((state & STATE_SLACK) - 1u);
}
/* Writes both canaries: one right behind the requested bytes, one at the block's end, right before the next block. */
HAK_INLINE void secure_put_canary(uintptr_t block, size_t block_bytes, size_t bytes) {
    uint64_t canary = secure_canary(block), behind = secure_canary_at(canary, bytes);
    *block_word(block + block_bytes - CANARY_BYTES) = canary; /* one store, for word_before */
    memcpy((char *)block_word(block) + bytes, &behind, CANARY_BYTES);
}

/* ---- the hit path of malloc ----
 * For sizes that fit into a block of a class. All that is not simple is left to secure_hand_out and secure_malloc. */

HAK_INLINE struct secure_cache *secure_cache_for(struct heap *h, size_t bytes) {
    size_t units = (bytes + CANARY_BYTES + 15) / 16; /* 0 bytes fit into a block of 16 */
    unsigned c = likely(units <= TINY_BYTES_MAX / 16) ? tiny_class_table[units * 2] : mid_class_table[(units - 1) / 8];
    return &secure_of(h)->cache[c];
}
HAK_INLINE bool secure_has_next(const struct secure_cache *cache) { return cache->pool_blocks > cache->pool_least; }
/* Takes the block that the previous call chose and prefetched, and chooses the next one. */
HAK_INLINE struct secure_entry secure_next(struct heap *h, struct secure_cache *cache) {
    unsigned left = cache->pool_blocks - 1u, next = (unsigned)((secure_next_random(secure_of(h)) >> 32) * left >> 32);
    struct secure_entry *pool = cache->pool, *chosen = &pool[cache->pool_next], e = *chosen;
    cache->pool_blocks = (uint16_t)left;
    atomic_signal_fence(memory_order_seq_cst); /* a child that a signal handler forks here can at worst lose blocks */
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
/* Checks a block of any size and hands it out. If the block cannot be used, calls `otherwise` as the last step, so that
 * alloc.c has nothing left to do. */
void *secure_hand_out(struct secure_entry e, size_t block_bytes, size_t bytes, void *(*otherwise)(size_t bytes));

/* Returns a block that is zero except for its canaries; NULL without memory. */
void *secure_malloc(struct heap *h, size_t bytes, size_t alignment);
/* `s` is the record of the slot that contains p. */
void secure_free(struct heap *h, struct slab *s, void *p);
void secure_free_homeless(struct slab *s, void *p); /* for threads that could get no memory for a heap */
/* The operator that made the block, if one did. Such a block may be freed by the operator's counterpart or by free. */
enum secure_maker { MADE_BY_MALLOC, MADE_BY_NEW = STATE_BY_NEW, MADE_BY_NEW_ARRAY = STATE_BY_NEW_ARRAY };
void secure_set_maker(void *p, enum secure_maker maker);
/* For any pointer. MADE_BY_MALLOC if nothing is known of it. */
enum secure_maker secure_maker_of(const void *p);
/* Resizes in place. Returns false if the block is not live, has no room, or would be less than half used. */
bool secure_resize(struct slab *s, void *p, size_t bytes);
/* Whether a sized free may name `told` for a block of `bytes`: the requested size, or pvalloc's before rounding to
 * pages. */
HAK_INLINE bool secure_size_fits(const void *p, size_t told, size_t bytes) {
    size_t page = os_page_bytes();
    return told == bytes || ((uintptr_t)p % page == 0 && told < bytes && round_up(told, page) == bytes);
}
/* What p points to. *bytes becomes the requested size of the block that p points to or into. */
enum secure_state { SECURE_NO_BLOCK, SECURE_NEVER, SECURE_LIVE, SECURE_FREED };
enum secure_state secure_find(struct slab *s, const void *p, size_t *bytes);
/* Returns all free blocks that the heap holds, in pools and quarantines, to their slabs. */
void secure_empty(struct heap *h);
/* Purges pages of free blocks: those that stayed free since the last call or, with `all`, every one. `all` first
 * empties the quarantines: this heap's and the large blocks' at once, another heap's when it next refills or spills.
 * Returns how many pages went back. */
size_t secure_trim(struct heap *h, bool all);
/* At the program's end: checks the free blocks, which no later malloc may do, and in a program with one thread also the
 * canaries of live small blocks. */
void secure_look_at_exit(void);
/* *live: bytes requested in the slab's live blocks. *kept: bytes of the free blocks that threads hold. */
void secure_count(const struct slab *s, size_t *live, size_t *kept);

/* guarded.c: the same for large and huge blocks. `h` may be heap_afterlife in a free. */
void *guarded_malloc(struct heap *h, size_t bytes, size_t alignment);
void guarded_free(struct heap *h, struct slab *s, void *p);
bool guarded_resize(struct heap *h, struct slab *s, size_t bytes);
enum secure_state guarded_find(struct slab *s, const void *p, size_t *bytes);
void guarded_empty(struct heap *h);   /* empties the quarantine, which all threads share */
size_t guarded_purge(struct heap *h); /* purges what is resident in the quarantine; returns pages */

#endif
