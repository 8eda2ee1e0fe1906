/* Tiny: blocks of at most 1 KiB, by owner lists. See tiny.c. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "heap/heap.h"

/* The heap's list of the class is empty. A block, its first word cleared; 0 without memory. */
uintptr_t tiny_refill(struct heap *h, unsigned class_id);
/* At the program's end: does what its last thread would hand out next still have its links? */
void tiny_check_at_exit(void);

/* For tiny.c and move/dense.c alone. */
/* A slab from a new slot; NULL without memory. `place`: PLACE_FRESH, and the caller makes it the heap's fresh slab, or
 * 0. */
struct slab *tiny_start_slab(struct heap *h, unsigned class_id, uint8_t place);
/* Carves a page's worth of blocks and links them; *end: how many of the slab's are carved then. */
uintptr_t tiny_cut_blocks(unsigned class_id, struct slab *s, unsigned *end);
/* Links the blocks of the slab's lowest run of purged pages; *blocks: how many. */
uintptr_t tiny_link_purged(struct heap *h, unsigned class_id, struct slab *s, unsigned *blocks);
