/* Spans of secure mode's SuperSlabs, and the table that describes their blocks.
 *
 *  1. A SuperSlab is cut into spans of one size: 1, 2, 4 or 8 slots (order 0 to 3), with a guard slot before every span
 *     and one behind the last. Only spans that are in use or still resident are accessible. Spans are taken at random,
 *     resident ones first. Where addresses were limited at the start there are no guards, and spans of one slot have
 *     two.
 *  2. The SuperSlab's word (struct superslab, `secure`) tells which spans are free and which of those are resident.
 *     Free resident spans are bounded as the pool's EMPTY slots are.
 *  3. An arena's SuperSlabs are cut in the same way, and are found through the arena's list instead of the sets.
 *  4. The table is apart from the blocks, between guards. A SuperSlab's row has memory from when the SuperSlab is cut
 *     until it goes back to the pool, as much of it as the slabs there have needed so far.
 *
 * Any thread may call any function; nothing waits. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "heap/heap.h"

#define SPAN_BLOCKS_MAX 4096 /* of 16 bytes */
#define SPANS_MAX 16         /* in a SuperSlab */

/* The table's entry for a span and its slab; all zero before the first slab. The table has one row per SuperSlab,
 * divided into lines of SPAN_LINE_BYTES, and every span has 128 bytes in each line. The first line holds this struct,
 * the next four one bit per block, and the others the states, of 64 blocks each. So slabs of few blocks touch only the
 * first pages of the row, and share them. A line has an odd number of parts, which spreads the states of a slab over
 * all sets of a cache. */
struct secure_span {
    _Atomic uint32_t held;    /* 0: no slab; else 1 + the blocks whose bits are clear or reserved. Pairs with itself */
    _Atomic uint8_t class_id; /* constant while something is held */
    _Atomic bool claimed;     /* a heap takes blocks from it, so it need not be on offer: a hint */
    _Atomic bool trimmed;     /* free pages were purged since `seen` changed; both are hints */
    char unused[49];
    _Atomic uint32_t seen; /* `held` at the last trim */
    uint32_t used;         /* states that may be non-zero; for whoever starts a slab here */
    char unused2[64];
};
_Static_assert(sizeof(struct secure_span) == 128, "a span's part of a line");
enum {
    SPAN_LINE_BYTES = (SUPERSLAB_SLOTS - 1) / 2 * sizeof(struct secure_span), /* 15 parts: one per span of order 0 */
    SPAN_FREE_LINE = 1,                                                       /* words of 64 bits, 16 in a line */
    SPAN_STATES_LINE = SPAN_FREE_LINE + SPAN_BLOCKS_MAX / 64 / 16,            /* 64 states in a line */
    SPAN_LINES = SPAN_STATES_LINE + SPAN_BLOCKS_MAX / 64,
};
/* One bit per block, from block 64 x `word` on: set while the block is free and no thread holds it. */
HAK_INLINE _Atomic uint64_t *span_free(const struct secure_span *span, unsigned word) {
    return (_Atomic uint64_t *)(uintptr_t)((const char *)span + (SPAN_FREE_LINE + word / 16) * SPAN_LINE_BYTES) +
           word % 16;
}
/* The states from block 64 x `word` on. */
HAK_INLINE _Atomic uint16_t *span_states(const struct secure_span *span, unsigned word) {
    return (_Atomic uint16_t *)(uintptr_t)((const char *)span + (SPAN_STATES_LINE + word) * SPAN_LINE_BYTES);
}
HAK_INLINE _Atomic uint16_t *span_state(const struct secure_span *span, unsigned block) {
    return span_states(span, block / 64) + block % 64;
}
/* Class 0 has no room for more than a canary, so it serves blocks of zero bytes: addresses, 32 bytes apart, in slabs
 * that stay inaccessible. */
enum { ZERO_CLASS = 0, LIKE_ZERO_CLASS = 2 };
HAK_INLINE unsigned layout_class(unsigned c) { return c != ZERO_CLASS ? c : LIKE_ZERO_CLASS; }
HAK_INLINE size_t block_bytes_of(unsigned c) { return size_classes[layout_class(c)].block_bytes; }
/* Under a limit on addresses guards would take as many as blocks do. */
HAK_INLINE unsigned span_guard_slots(void) { return hak_region.window ? 0 : 1; }
HAK_INLINE unsigned order_of_class(unsigned c) {
    size_t bytes = block_bytes_of(c);
    unsigned order = bytes <= 8 * KIB ? 0 : bytes <= 16 * KIB ? 1 : bytes <= 32 * KIB ? 2 : 3;
    bool doubles = order == 0 && hak_region.window && bytes * SPAN_BLOCKS_MAX >= 2 * SLOT_BYTES;
    return doubles ? 1 : order; /* a SuperSlab has parts of the table for no more than fifteen */
}
/* At least one slot is left as the guard behind the last span, if there are guards. */
HAK_INLINE unsigned spans_of(unsigned order) {
    unsigned guard = span_guard_slots(), fit = (SUPERSLAB_SLOTS - guard) / ((1u << order) + guard);
    return fit < SPANS_MAX ? fit : SPANS_MAX - 1;
}
HAK_INLINE unsigned blocks_of(unsigned c) { return (unsigned)((SLOT_BYTES << order_of_class(c)) / block_bytes_of(c)); }
HAK_INLINE size_t slot_of_span(size_t superslab, unsigned index, unsigned order) {
    unsigned guard = span_guard_slots();
    return superslab * SUPERSLAB_SLOTS + index * ((1u << order) + guard) + guard;
}
HAK_INLINE unsigned span_index(size_t slot, unsigned order) {
    return (unsigned)(slot % SUPERSLAB_SLOTS) / ((1u << order) + span_guard_slots());
}

typedef void span_visitor(size_t slot, unsigned order);

/* Takes a span for a slab of the class, with all bytes zero. Returns its first slot's number; BITSET_NONE: no
 * memory. */
size_t span_take(struct heap *h, unsigned c);
/* Gives a span back, which must be zero again, unless it is an arena's or was shut. `check` sees each span before its
 * memory goes. */
void span_give(struct heap *h, size_t slot, unsigned order, bool shut, span_visitor *check);
/* The SuperSlab, which was an arena's, is the process's now, with the spans that are in use. */
void span_left_arena(struct heap *h, size_t superslab);
/* Makes a span inaccessible, from span_take to span_give, unless the kernel refuses. */
void span_shut(size_t slot, unsigned order);
/* How many unused slots may stay resident: RETAIN_BYTES, and one for every `share` slots in use or more. The `waiting`
 * slots, which are in quarantine, do not count as in use. */
size_t spans_resident_bound(size_t waiting, unsigned share);
/* Calls `visit` for each free span that is resident, and holds the span meanwhile. With `purge` the span is purged
 * then. Returns how many slots were purged. */
size_t span_visit_free(span_visitor *visit, bool purge);
/* The first span that is taken, at or behind this one (its SuperSlab's number times SPANS_MAX, plus its own);
 * BITSET_NONE. */
size_t span_next(size_t from);
/* The table's entry for a span, and the slab record that an entry belongs to. */
struct secure_span *span_at(size_t superslab, unsigned index);
struct slab *span_slab(const struct secure_span *span, unsigned c);
/* How many of the span's states may be read, whatever the slab's record says. */
size_t span_states_max(const struct secure_span *span);
/* The part of the table that may have memory; for the statistics. */
extern HAK_HIDDEN _Atomic(char *) span_table_made;
/* At the start: reserves the table, since malloc does not ask for all that this takes. */
void span_start(void);
struct region_range span_table(void);
