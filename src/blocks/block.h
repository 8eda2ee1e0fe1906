/* The state of a block that is not tiny: one byte, written by whoever holds the block. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "blocks/kinds.h"
#include "process/hooks.h"

/* The first record of the span, given any record of a mid span or of one of secure mode. */
HAK_INLINE struct slab *span_first(const struct slab *part) {
    return (struct slab *)(uintptr_t)(part - part->first_offset); /* NOLINT: records are addresses */
}

enum block_state {
    BLOCK_FREE,
    BLOCK_LIVE,
    BLOCK_CACHED,
    BLOCK_STATE = 3,    /* the mask of the states above; the others are flags */
    BLOCK_CLEAN = 4,    /* never handed out, zero */
    BLOCK_PURGED = 16,  /* free, and its pages were given back, except those it shares with blocks in use */
    BLOCK_LAZY = 64,    /* purged, and may be resident: the system may take its pages, and need not */
    BLOCK_PROFILED = 8, /* live, and in the profile, so that no free of it is a hit */
    BLOCK_TAKEN = 32,   /* cached, by a thread that did not free it */
};

static inline unsigned block_state(const struct slab *s, unsigned i) {
    return load_relaxed(&s->mid.state[i]) & BLOCK_STATE;
}

/* ---- kinds whose slabs are one block ---- */

static inline unsigned single_state(const struct slab *s) { return load_relaxed(&s->single.state) & BLOCK_STATE; }
static inline _Atomic uint8_t *block_only_state(struct slab *s, const void *p) {
    (void)p;
    return &s->single.state;
}

/* While a block gets another size, or moves, it does not count as live: a signal handler may end the program meanwhile,
 * and the last look (observe/exit_check.c) would find a canary of the one size where the other says, or no memory.
 * block_end_change gets what block_begin_change returned. */
HAK_INLINE uint8_t block_begin_change(struct slab *s) {
    uint8_t state = load_relaxed(&s->single.state);
    store_relaxed(&s->single.state, BLOCK_FREE);
    atomic_signal_fence(memory_order_seq_cst);
    return state;
}
HAK_INLINE void block_end_change(struct slab *s, uint8_t state) {
    atomic_signal_fence(memory_order_seq_cst);
    store_relaxed(&s->single.state, state);
}

/* For kinds whose usable size is what was asked for: large and huge. */
HAK_INLINE size_t asked_bytes(const struct slab *s) { return s->single.bytes - s->single.slack_bytes; }
static inline void block_find_only(struct block *b, const void *p) {
    b->bytes = asked_bytes(b->slab);
    if ((const char *)p == slab_address(b->slab))
        b->why = NULL;
}
static inline bool block_is_only_free(const struct block *b, const void *p) {
    (void)p;
    return single_state(b->slab) != BLOCK_LIVE;
}

/* Removes the block from the profile before it is freed or resized. Returns whether it was there. */
HAK_INLINE bool block_unsample(_Atomic uint8_t *state, const void *p) {
    if (likely(load_relaxed(state) != (BLOCK_LIVE | BLOCK_PROFILED)))
        return false;
    hooks_observe.sampled_freed(p);
    store_relaxed(state, BLOCK_LIVE);
    return true;
}
/* For kinds whose slabs have one block: the block's arena ends. */
static inline bool block_drop_only(struct heap *h, struct slab *s) {
    (void)h;
    block_unsample(&s->single.state, slab_address(s));
    return true;
}
