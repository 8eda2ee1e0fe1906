/* Spans of secure mode's SuperSlabs, and the table with what is known of their blocks.
 *
 *  1. A SuperSlab is cut into spans of 1, 2, 4 or 8 slots (order 0 to 3), one size in each, with a guard slot before every span
 *     and one behind the last. All of it is inaccessible but for the spans that were begun, which are chosen at random.
 *  2. Its word (struct superslab, `secure`) tells which are free and which of those are resident: that is bounded as the
 *     pool's EMPTY slots are.
 *  3. The table lies apart from the blocks, between guards, and gets memory for a SuperSlab when that is cut, until it goes
 *     back to the pool: of its row as much as the slabs there needed so far.
 *
 * Any thread calls anything; nothing waits. */
/* SPDX-License-Identifier: MIT */
#ifndef HAK_SPANS_H
#define HAK_SPANS_H

#include "heap.h"

#define SPAN_BLOCKS_MOST 4096 /* of 16 bytes */
#define SPANS_MOST 16         /* in a SuperSlab */
/* What is known of a block: 0, it was never handed out; else STATE_FREED, or the operator that made it, and the unused
 * bytes before the end of the block, plus 1. */
enum {
    STATE_SLACK = 0x1fff, /* mask of the unused bytes */
    STATE_BY_NEW = 0x2000,
    STATE_BY_NEW_ARRAY = 0x4000,
    STATE_FREED = 0x8000,
};

/* What is known of a slab; all of it zero before its first life. The table has a row a SuperSlab, and the row lines of
 * SPAN_LINE_BYTES: in each line every span has its 128 bytes. This struct is in the first, a bit a block in the next four, and
 * the states follow, those of 64 blocks in each: so slabs of few blocks touch the first pages of the row, and share them. Lines
 * have an odd number of parts, so that the states of a slab are in all sets of a cache. */
struct secure_span {
    _Atomic uint32_t held; /* 0: no slab; else 1 and the blocks whose bits are clear or reserved. Pairs with itself */
    _Atomic uint8_t class_id; /* constant while something is held */
    _Atomic bool claimed;     /* some heap takes its blocks from it, so it need not be on offer: a hint */
    _Atomic bool trimmed;     /* pages of free blocks were given back since `seen` changed: a hint, as that */
    char unused[49];
    _Atomic uint32_t seen; /* `held`, when the last trim looked */
    uint32_t used;         /* states that may not be 0; of whoever starts a slab here */
    char unused2[64];
};
_Static_assert(sizeof(struct secure_span) == 128, "a span's part of a line");
enum {
    SPAN_LINE_BYTES = (SUPERSLAB_SLOTS - 1) / 2 * sizeof(struct secure_span), /* 15 parts: of spans of order 0 */
    SPAN_FREE_LINE = 1,                                                       /* words of 64 bits, 16 in a line */
    SPAN_STATES_LINE = SPAN_FREE_LINE + SPAN_BLOCKS_MOST / 64 / 16,           /* 64 states in a line */
    SPAN_LINES = SPAN_STATES_LINE + SPAN_BLOCKS_MOST / 64,
};
/* A bit a block that is free and nobody's, of blocks 64 x `word` and on. */
HAK_INLINE _Atomic uint64_t *span_free(const struct secure_span *span, unsigned word) {
    return (_Atomic uint64_t *)(uintptr_t)((const char *)span + (SPAN_FREE_LINE + word / 16) * SPAN_LINE_BYTES) +
           word % 16;
}
/* The states of blocks 64 x `word` and on. */
HAK_INLINE _Atomic uint16_t *span_states(const struct secure_span *span, unsigned word) {
    return (_Atomic uint16_t *)(uintptr_t)((const char *)span + (SPAN_STATES_LINE + word) * SPAN_LINE_BYTES);
}
HAK_INLINE _Atomic uint16_t *span_state(const struct secure_span *span, unsigned block) {
    return span_states(span, block / 64) + block % 64;
}
/* Class 0, of which nothing else is left when a canary is added, is that of blocks of zero bytes: addresses, 32 bytes apart, in
 * slabs that stay inaccessible. */
enum { ZERO_CLASS = 0, LIKE_ZERO_CLASS = 2 };
HAK_INLINE unsigned layout_class(unsigned c) { return c != ZERO_CLASS ? c : LIKE_ZERO_CLASS; }
HAK_INLINE size_t block_bytes_of(unsigned c) { return size_classes[layout_class(c)].block_bytes; }
HAK_INLINE unsigned order_of_class(unsigned c) {
    size_t bytes = block_bytes_of(c);
    return bytes <= 8 * KIB ? 0 : bytes <= 16 * KIB ? 1 : bytes <= 32 * KIB ? 2 : 3;
}
/* A slot at least is left as the guard of the last. */
HAK_INLINE unsigned spans_of(unsigned order) { return (SUPERSLAB_SLOTS - 1) / ((1u << order) + 1); }
HAK_INLINE unsigned blocks_of(unsigned c) { return (unsigned)((SLOT_BYTES << order_of_class(c)) / block_bytes_of(c)); }
HAK_INLINE size_t slot_of_span(size_t superslab, unsigned index, unsigned order) {
    return superslab * SUPERSLAB_SLOTS + index * ((1u << order) + 1) + 1;
}
HAK_INLINE unsigned span_index(size_t slot, unsigned order) {
    return (unsigned)(slot % SUPERSLAB_SLOTS) / ((1u << order) + 1);
}

/* A span for a slab of the class, whose bytes are all zero: the number of its first slot; BITSET_NONE without memory. */
size_t span_take(struct heap *h, unsigned c);
void span_give(struct heap *h, size_t slot, unsigned order); /* zero again */
/* From span_take to span_give_shut the span is inaccessible, if the kernel does it. */
void span_shut(size_t slot, unsigned order);
void span_give_shut(struct heap *h, size_t slot, unsigned order);
/* How many slots may be resident though nobody uses them: of those in use, but for those that wait in quarantine, one in
 * `share`, at least, and RETAIN_BYTES. */
size_t spans_resident_bound(size_t waiting, unsigned share);
/* Calls `visit` for each free span that is resident, which nobody else has meanwhile; with `purge` it goes back then. Returns how
 * many slots did. */
size_t span_visit_free(void (*visit)(size_t slot, unsigned order), bool purge);
/* The first span that is taken, at or behind this one (its SuperSlab's number times SPANS_MOST, plus its own); BITSET_NONE. */
size_t span_next(size_t from);
/* What is known of the blocks in a span, and whose record that is. */
struct secure_span *span_at(size_t superslab, unsigned index);
struct slab *span_slab(const struct secure_span *span, unsigned c);
/* How many states of a slab there may be read, whatever is in the slab's record. */
size_t span_states_most(const struct secure_span *span);
/* The table, as far as it may have memory; for the statistics. */
extern HAK_HIDDEN _Atomic(char *) span_table_made;
struct region_range span_table(void);

#endif
