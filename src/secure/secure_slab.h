/* Secure mode's slabs: spans cut into blocks of one class. No thread owns a slab: all take from it and give to it. Used
 * by secure.c only. All functions are thread-safe. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "secure/secure_block.h"
#include "secure/secure_span.h"

/* Starts a slab and reserves `taken` of its blocks for the caller. NULL: there is no memory. */
struct secure_span *secure_slab_start(struct heap *h, unsigned c, unsigned taken);
/* Reserves up to `want` free blocks of the slab: nobody else will take that many bits. Returns how many; 0 if the slab
 * has none, or is not one of the class and the heap's arena. */
unsigned secure_slab_reserve(struct heap *h, struct secure_span *span, unsigned c, unsigned want);
/* Takes the `n` blocks that the caller reserved, at random. All are there, except that a child of fork, which saw some
 * pages earlier than others, may miss some. Returns how many it found. */
unsigned secure_slab_take(struct heap *h, struct secure_span *span, unsigned c, unsigned n,
                          struct secure_entry *entries);
/* Returns the blocks of all `entries` to their slabs; the array is overwritten. If a block's slab no longer exists, two
 * threads must have freed the block at the same moment, even if another slab has taken the place. */
void secure_slab_return(struct heap *h, struct secure_entry *entries, unsigned n);
/* The slab's arena ends: checks all blocks and gives the span back, whatever is still allocated. The slab stays if a
 * thread outside is at it. False: its SuperSlab stays cut. */
bool secure_slab_drop(struct heap *h, struct slab *s);
/* Ends a heap's claim to the slab, so that others may take blocks from it. */
void secure_slab_unclaim(struct secure_span *span, unsigned c);
/* Takes all free blocks of a slab that nobody has reserved, a bit each. Returns how many. */
unsigned secure_slab_take_all(struct heap *h, struct secure_span *span, unsigned c,
                              uint64_t taken[SPAN_BLOCKS_MAX / 64]);
void secure_slab_put_back(struct heap *h, struct secure_span *span, unsigned c, unsigned n,
                          const uint64_t taken[SPAN_BLOCKS_MAX / 64]);
/* Purges free pages of a slab, which are zero before and after. Returns how many. */
size_t secure_slab_purge(struct heap *h, struct secure_span *span, unsigned c);
