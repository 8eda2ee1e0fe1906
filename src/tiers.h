/* The four tiers as alloc.c uses them. They do not know each other.
 *
 * Every function takes the calling thread's heap. A block pointer given to one of them has been found to lie in a slab of
 * its tier; the tier checks the rest and fails on a bad one (fail.h). *zero, where given, tells whether the whole block
 * is known to be zero. */
/* SPDX-License-Identifier: MIT */
#ifndef HAK_TIERS_H
#define HAK_TIERS_H

#include "fail.h"
#include "sample.h"
#include "secure.h"

#include <string.h>

enum mid_state {
    BLOCK_FREE,
    BLOCK_LIVE,
    BLOCK_CACHED,
    BLOCK_STATE = 3,   /* mask of these */
    BLOCK_CLEAN = 4,   /* never handed out, zero */
    BLOCK_PURGED = 16, /* free, and its pages were given back since, but for those it shares with blocks in use */
    BLOCK_SAMPLED = 8, /* live, and in the profile: so that no free of it is a hit */
    BLOCK_TAKEN = 32,  /* cached, by a thread that did not free it */
};

/* The block is about to be freed, or is another from now on. True: it was in the profile, and is not any more. */
HAK_INLINE bool block_unsample(_Atomic uint8_t *state, const void *p) {
    if (likely(load_relaxed(state) != (BLOCK_LIVE | BLOCK_SAMPLED)))
        return false;
    profile_remove(p);
    store_relaxed(state, BLOCK_LIVE);
    return true;
}

/* tiny: the heap's list of the class is empty. A block, its first word cleared; 0 without memory. */
uintptr_t tiny_refill(struct heap *h, unsigned class_id);
void tiny_empty(struct heap *h);
size_t tiny_trim(struct heap *h, bool all);
/* Of one slab, if it is within the heap's reach: gives back the free pages if it was not allocated from since the last look,
 * and most of it is free. Returns how many. */
size_t tiny_look(struct heap *h, struct slab *s);
/* Gives back slabs of the heap none of whose blocks are with the program, what others freed into them included. */
void tiny_release_unused(struct heap *h);
/* At the program's end: does what its last thread would hand out next still have its links? */
void tiny_look_at_exit(void);

/* The hit paths of mid and large: the newest block of the ring, block 0 if there is none … */
HAK_INLINE struct ring_entry ring_pop(struct heap *h, unsigned index) {
    struct ring_entry e = {0, NULL};
    if (likely(caches_enter(h))) {
        struct ring *ring = h->ring[index];
        if (likely(ring != NULL && ring->blocks != 0))
            e = ring->entry[--ring->blocks];
    }
    caches_leave(h);
    return e;
}
/* The same if the next block of so many bytes is not to be sampled: then it is counted. */
HAK_INLINE struct ring_entry ring_pop_unsampled(struct heap *h, unsigned index, size_t bytes) {
    struct ring_entry e = {0, NULL};
    struct ring *ring = h->ring[index];
    bool mine = caches_enter_unless(h, CACHES_FROZEN | CACHES_SAMPLED | CACHES_TOLD);
    if (unlikely(!mine))
        mine = caches_enter_unless(h, CACHES_FROZEN | CACHES_TOLD) && ring != NULL && ring->blocks != 0 &&
               sample_passes(h, bytes);
    if (likely(mine && ring != NULL && ring->blocks != 0))
        e = ring->entry[--ring->blocks];
    caches_leave(h);
    return e;
}
/* … and what becomes of it. *zero as everywhere here. */
HAK_INLINE void *ring_hand_out(struct ring_entry e, bool *zero) {
    *zero = load_relaxed(e.state) & BLOCK_CLEAN;
    store_relaxed(e.state, BLOCK_LIVE);
    return block_word(e.block);
}
/* Between caches_enter and caches_leave. */
HAK_INLINE bool ring_put(struct ring *ring, uintptr_t block, _Atomic uint8_t *state) {
    if (unlikely(ring == NULL || ring->blocks >= ring->cap))
        return false;
    unsigned blocks = ring->blocks;
    store_relaxed(state, BLOCK_CACHED);
    ring->entry[blocks] = (struct ring_entry){block, state};
    atomic_signal_fence(memory_order_seq_cst); /* a child forked here by a signal's handler may lose it, no more */
    ring->blocks = (uint16_t)(blocks + 1);
    return true;
}
HAK_INLINE bool ring_push(struct heap *h, unsigned index, uintptr_t block, _Atomic uint8_t *state) {
    bool done = caches_enter_unless(h, CACHES_FROZEN | CACHES_WATCHED) && ring_put(h->ring[index], block, state);
    caches_leave(h);
    return done;
}

/* Who freed a block that is not live. While the purger is at the rings it may have the block in its hands. */
HAK_INLINE enum freer ring_freer(struct heap *h, unsigned index, const _Atomic uint8_t *state) {
    enum freer freer = heap_freer();
    if (freer == FREER_UNKNOWN && caches_enter(h) &&
        (load_relaxed(state) & (BLOCK_STATE | BLOCK_TAKEN)) == BLOCK_CACHED)
        freer = ring_has(h, index, state) ? FREER_THIS_THREAD : FREER_OTHER_THREAD;
    caches_leave(h);
    return freer;
}

/* Nothing was to be had from the ring. */
void *mid_malloc(struct heap *h, unsigned class_id, bool *zero);
/* `s` may be the record of any slot of the span. */
#define mid_first(s) ((s) - (s)->first_offset)
void mid_free_slowly(struct heap *h, struct slab *s, unsigned i, void *p); /* the ring is full, or there is none yet */
void mid_free_odd(struct heap *h, struct slab *s, unsigned i, void *p);    /* it is sampled, or bad */
HAK_INLINE void mid_free(struct heap *h, struct slab *part, void *p) {
    struct slab *s = mid_first(part);
    unsigned i = block_index(s->divisor, (uint32_t)((uintptr_t)p - s->start));
    if (unlikely(i >= s->blocks || load_relaxed(&s->state[i]) != BLOCK_LIVE))
        mid_free_odd(h, s, i, p);
    else if (unlikely(!ring_push(h, ring_of_class(slab_class(s)), (uintptr_t)p, &s->state[i])))
        mid_free_slowly(h, s, i, p);
}
void mid_give_back(struct heap *h, struct ring_entry *entries, unsigned n);
size_t mid_look(struct heap *h, struct slab *s);
size_t mid_trim(struct heap *h, bool all);
/* Index of the block p starts, or the slab's number of blocks if it starts none. */
unsigned mid_block_at(const struct slab *s, const void *p);

/* ---- large and huge blocks: what was asked for is usable ----
 * Behind that lies a canary. Where memory is new the canary is not written, and the memory may stay untouched: zero is as
 * good. So a program may also give the pages back in which its block ends. */
#define LAST_BYTES 32 /* an overflow that begins so far behind the block is seen */

HAK_INLINE size_t asked_bytes(const struct slab *s) { return s->bytes - s->slack_bytes; }
HAK_INLINE void last_put(const struct slab *s, char *at, size_t bytes) {
    uint64_t canary = secure_canary((uintptr_t)s), words[] = {canary, canary, canary, canary};
    if (likely(bytes >= sizeof words))
        memcpy(at, words, sizeof words);
    else
        memcpy(at, words, bytes);
}
HAK_INLINE bool last_is_intact(const struct slab *s, const char *at, size_t bytes) {
    static const char zeroes[LAST_BYTES];
    uint64_t canary = secure_canary((uintptr_t)s), words[] = {canary, canary, canary, canary}, found[4];
    if (unlikely(bytes < sizeof words))
        return memcmp(at, words, bytes) == 0 || memcmp(at, zeroes, bytes) == 0;
    memcpy(found, at, sizeof words);
    return likely(((found[0] ^ canary) | (found[1] ^ canary) | (found[2] ^ canary) | (found[3] ^ canary)) == 0) ||
           (found[0] | found[1] | found[2] | found[3]) == 0;
}
_Static_assert(LAST_BYTES == 4 * sizeof(uint64_t), "so many words");

void *large_malloc(struct heap *h, size_t bytes, size_t alignment, bool *zero);
void large_free(struct heap *h, struct slab *s, void *p);
bool large_resize(struct heap *h, struct slab *s, size_t bytes); /* in place */
void large_give_back(struct heap *h, struct ring_entry *entries, unsigned n);

void *huge_malloc(struct heap *h, size_t bytes, size_t alignment, bool *zero);
void huge_free(struct heap *h, struct slab *s);
bool huge_resize(struct heap *h, struct slab *s, size_t bytes); /* in place */
/* Another block of `bytes` with the contents, made by moving pages; NULL if the kernel will not: then copy. */
void *huge_move(struct heap *h, struct slab *s, size_t bytes);

#endif
