/* Secure mode's slabs: a slab is a span cut into blocks of one class, and no thread's own: all take from them and give to
 * them. For secure.c alone. All functions are
 * thread-safe. */
/* SPDX-License-Identifier: MIT */
#ifndef HAK_SECURE_SLAB_H
#define HAK_SECURE_SLAB_H

#include "secure_block.h"

/* A new slab, of which `taken` blocks are reserved for the caller. NULL: there is no memory. */
struct secure_span *secure_slab_start(struct heap *h, unsigned c, unsigned taken);
/* Up to `want` blocks of the slab whose bits nobody else will take; 0 if it has none or is no slab of the class. */
unsigned secure_slab_reserve(struct heap *h, struct secure_span *span, unsigned c, unsigned want);
/* Of the `n` that the caller reserved, at random. They are there; but a child of fork, which saw some pages earlier than
 * others, may miss some. Returns how many there were. */
unsigned secure_slab_take(struct heap *h, struct secure_span *span, unsigned c, unsigned n,
                          struct secure_entry *entries);
/* All of `entries`, which are used up, go back to their slabs. Two threads freed a block at the same moment if its slab has gone,
 * whatever lies there now. */
void secure_slab_return(struct heap *h, struct secure_entry *entries, unsigned n);
/* The heap that claimed the slab takes no more of it: others may. */
void secure_slab_unclaim(struct secure_span *span, unsigned c);
/* All free blocks of a slab that nobody has reserved, a bit each. Returns how many. */
unsigned secure_slab_take_all(struct heap *h, struct secure_span *span, unsigned c,
                              uint64_t taken[SPAN_BLOCKS_MOST / 64]);
void secure_slab_put_back(struct heap *h, struct secure_span *span, unsigned c, unsigned n,
                          const uint64_t taken[SPAN_BLOCKS_MOST / 64]);
/* Free pages of a slab go back: they are zero before and after. Returns how many. */
size_t secure_slab_purge(struct heap *h, struct secure_span *span, unsigned c);

#endif
