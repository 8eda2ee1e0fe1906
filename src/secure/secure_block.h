/* What secure mode knows of a block, and what a heap has of its blocks. See secure.h. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "base/os.h"
#include "blocks/canary.h"
#include "blocks/links.h"
#include "blocks/zero.h"
#include "heap/heap.h"

struct secure_span; /* secure_span.h */

#define CANARY_BYTES 8

/* The state of a block: 0 if it was never handed out. Else the unused bytes before the canary at the block's end, plus
 * 1, with the operator that made the block and, once it was freed, STATE_FREED. */
enum {
    STATE_SLACK = 0x1fff, /* mask of the unused bytes */
    STATE_BY_NEW = 0x2000,
    STATE_BY_NEW_ARRAY = 0x4000,
    STATE_LARGER =
        STATE_BY_NEW | STATE_BY_NEW_ARRAY, /* than it is meant to be: realloc found no memory for a smaller one */
    STATE_FREED = 0x8000,
};

/* ---- random numbers: a heap's own, seeded from the system's ---- */

/* The generator's state is the first word of what secure mode has at the end of a heap's memory. 0: not seeded yet. */
HAK_INLINE uint64_t *secure_random_state(struct heap *h) {
    return (uint64_t *)(void *)((char *)h + HEAP_BYTES - HEAP_SECURE_BYTES);
}
/* Fast, and not for ciphers. The heap was seeded. */
HAK_INLINE uint64_t secure_next_random(struct heap *h) {
    uint64_t *state = secure_random_state(h);
    *state += 0xa0761d6478bd642f;
    return canary_fold(*state, *state ^ 0xe7037ed1a0b428db);
}
uint64_t secure_random(struct heap *h); /* for any heap */
HAK_INLINE unsigned random_below(struct heap *h, unsigned n) { return (unsigned)((secure_random(h) >> 32) * n >> 32); }

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
enum { SLACK_MAX = STATE_SLACK - 1 /* unused bytes of a block: a small one that is aligned to much */ };

/* A heap's free blocks of one class. All zero before its first use: no blocks, no room. */
struct secure_cache {
    uint16_t stash_blocks;
    uint16_t stash_min; /* at least 1: malloc refills when no more than these are left, so it always has a choice */
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
_Static_assert(offsetof(struct secure_heap, random) == 0, "secure_random_state");
HAK_INLINE struct secure_heap *secure_of(struct heap *h) {
    return (struct secure_heap *)(void *)((char *)h + HEAP_BYTES - HEAP_SECURE_BYTES);
}

/* ---- blocks ---- */

HAK_INLINE bool state_is_live(uint16_t state) { return (uint16_t)(state - 1) < STATE_FREED - 1; }
HAK_INLINE uint16_t state_of_size(size_t block_bytes, size_t bytes) {
    return (uint16_t)(block_bytes - CANARY_BYTES - bytes + 1);
}
HAK_INLINE size_t secure_size_of_state(size_t block_bytes, uint16_t state) {
    return block_bytes - CANARY_BYTES - ((state & STATE_SLACK) - 1u);
}
/* The canary as it appears in the eight bytes from offset `bytes` on. The byte at an address depends only on the
 * address modulo 8, so the canary behind the program's bytes and the one at the block's end may overlap. */
HAK_INLINE uint64_t secure_canary_at(uint64_t canary, size_t bytes) {
    unsigned bits = (unsigned)bytes * 8 & 63;
    return canary >> bits | canary << (-bits & 63);
}
/* Writes both canaries: one right behind the requested bytes, one at the block's end, right before the next block. */
HAK_INLINE void secure_put_canary(uintptr_t block, size_t block_bytes, size_t bytes) {
    uint64_t canary = canary_of(block), behind = secure_canary_at(canary, bytes);
    *block_word(block + block_bytes - CANARY_BYTES) = canary; /* one store, for word_before */
    memcpy((char *)block_word(block) + bytes, &behind, CANARY_BYTES);
}

/* Which operator made a block, if one did: it may be freed by that operator's counterpart, or as one of malloc's. */
enum secure_maker { MADE_BY_MALLOC, MADE_BY_NEW = STATE_BY_NEW, MADE_BY_NEW_ARRAY = STATE_BY_NEW_ARRAY };
/* What an address is. */
enum secure_state { SECURE_NO_BLOCK, SECURE_NEVER, SECURE_LIVE, SECURE_FREED };
/* Whether a block of `bytes` may be freed as one of `claimed`: as it was asked for, or, from pvalloc, before rounding.
 * No operator rounds: for those, `exactly`. */
HAK_INLINE bool secure_size_fits(const void *p, size_t claimed, size_t bytes, bool exactly) {
    size_t page = os_page_bytes();
    return claimed == bytes ||
           (!exactly && (uintptr_t)p % page == 0 && claimed < bytes && round_up(claimed, page) == bytes);
}
