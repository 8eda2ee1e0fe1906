/* Spans of secure mode's SuperSlabs, and the table with what is known of their blocks.
 *
 *  1. A SuperSlab is cut into spans of 1, 2, 4 or 8 slots (order 0 to 3), one size in each, with a guard slot before every span
 *     and one behind the last. All of it is inaccessible but for the spans that were begun, which are chosen at random.
 *  2. Its word (struct superslab, `secure`) tells which are free and which of those are resident: that is bounded as the
 *     pool's EMPTY slots are.
 *  3. The table lies apart from the blocks, between guards, and gets memory for a SuperSlab when that is cut, until it goes
 *     back to the pool.
 *
 * Any thread calls anything; nothing waits. */
#ifndef HAK_SPANS_H
#define HAK_SPANS_H

#include "heap.h"

#define SPAN_BLOCKS_MOST 4096 /* of 16 bytes */
#define SPANS_MOST 16         /* in a SuperSlab */
enum { STATE_FREED = 0x8000 };

/* Of a slab; all of it zero before its first life. */
struct secure_span {
    _Atomic uint32_t held; /* 0: no slab; else 1 and the blocks whose bits are clear or reserved. Pairs with itself */
    _Atomic uint8_t class_id; /* constant while something is held */
    _Atomic bool claimed;     /* some heap takes its blocks from it, so it need not be on offer: a hint */
    _Atomic bool trimmed;     /* pages of free blocks were given back since `seen` changed: a hint, as that */
    char unused[49];
    _Atomic uint32_t seen; /* `held`, when the last trim looked */
    uint32_t used;         /* states that may not be 0; of whoever starts a slab here */
    _Atomic uint64_t free[SPAN_BLOCKS_MOST / 64];
    _Atomic uint16_t state[SPAN_BLOCKS_MOST]; /* 0: never handed out; STATE_FREED; the rest: unused bytes before the
                                                 canary's end, plus 1 */
};
HAK_INLINE size_t block_bytes_of(unsigned c) { return size_classes[c].block_bytes; }
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

/* A span whose bytes are all zero: the number of its first slot; BITSET_NONE without memory. */
size_t span_take(struct heap *h, unsigned order);
void span_give(struct heap *h, size_t slot, unsigned order); /* zero again */
/* How many slots may be resident though nobody uses them: of those in use, but for those that wait in quarantine, one in
 * `share`, at least, and RETAIN_BYTES. */
size_t spans_resident_bound(size_t waiting, unsigned share);
/* Of free spans all that is resident goes back. Returns how many slots. */
size_t span_purge(void);
/* The first span that is taken, at or behind this one (its SuperSlab's number times SPANS_MOST, plus its own); BITSET_NONE. */
size_t span_next(size_t from);
/* What is known of the blocks in a span, and whose record that is. */
struct secure_span *span_at(size_t superslab, unsigned index);
struct slab *span_slab(const struct secure_span *span, unsigned c);
/* The table, as far as it may have memory; for the statistics. */
extern HAK_HIDDEN _Atomic(char *) span_table_made;
struct region_range span_table(void);

#endif
