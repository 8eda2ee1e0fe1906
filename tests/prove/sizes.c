/* Sizes and classes: what a request gets, and which block begins where. If one of these fails, a block is too small
 * for what was asked, or free takes an address inside a block for a block. */
/* SPDX-License-Identifier: MIT */
#include "prove.h"

#include <string.h>

#include "alloc/alloc.h"
#include "region/classes.c"

struct region hak_region;
_Thread_local struct heap *hak_heap;

static unsigned any_class(void) {
    unsigned c = nondet_unsigned();
    GIVEN(c < CLASSES);
    return c;
}
static unsigned class_of(size_t bytes) { return bytes <= TINY_BYTES_MAX ? tiny_class_of(bytes) : mid_class_of(bytes); }

/* Each size up to 64 KiB has a class of its tier; its blocks hold the size, and those of the class below do not.
 * Above 256 bytes no more than an eighth is lost. */
void prove_size_has_class(void) {
    /* --unwind 1 */
    size_t bytes = nondet_size();
    GIVEN(bytes <= MID_BYTES_MAX);
    unsigned c = class_of(bytes);
    PROVE(c < CLASSES);
    PROVE((c < TINY_CLASSES) == (bytes <= TINY_BYTES_MAX));
    size_t block = size_classes[c].block_bytes;
    PROVE(block >= bytes);
    PROVE(c == 0 || bytes == 0 || size_classes[c - 1].block_bytes < bytes);
    PROVE(bytes <= 256 || block - bytes <= bytes / 8);
    PROVE(block % BLOCK_ALIGN == 0);
}

/* For every size and every alignment (a power of two) up to 64 KiB each: the rounded size has a class, whose blocks
 * hold the size and are multiples of the alignment. */
void prove_class_is_aligned(void) {
    /* --unwind 1 */
    size_t bytes = nondet_size(), alignment = nondet_size();
    GIVEN(is_power_of_two(alignment) && alignment <= MID_BYTES_MAX && bytes >= 1 && bytes <= MID_BYTES_MAX);
    size_t whole = class_aligned_bytes(bytes, alignment);
    PROVE(whole <= MID_BYTES_MAX);
    size_t block = size_classes[class_of(whole)].block_bytes;
    PROVE(block >= bytes);
    PROVE(block % alignment == 0);
}

/* For every size and every alignment (a power of two) at all: an aligned malloc that is a hit takes from a class
 * whose blocks hold the size and are multiples of the alignment, whether or not sizes share classes; 0 bytes are no
 * hit. */
void prove_aligned_hit(void) {
    /* --unwind 1 */
    static uintptr_t block[2];
    static struct heap heap;
    size_t bytes = nondet_size(), alignment = nondet_size();
    unsigned c = any_class();
    GIVEN(is_power_of_two(alignment) && c < TINY_CLASSES);
    __CPROVER_array_set(heap.list, (uintptr_t)1);
    memcpy(heap.class_table, tiny_class_table, sizeof heap.class_table);
    size_t whole = class_aligned_bytes(bytes, alignment);
    if (whole - 1 < TINY_BYTES_MAX && nondet_unsigned() != 0) /* as heap_share_classes does */
        heap.class_table[(whole + 7) / 8] = (uint8_t)tiny_shared_class_of(round_up(whole, 8));
    heap.list[c] = (uintptr_t)block;
    hak_heap = &heap;
    if (alloc_aligned_hit(alignment, bytes) != NULL) {
        PROVE(size_classes[c].block_bytes >= bytes && bytes != 0);
        PROVE(size_classes[c].block_bytes % alignment == 0);
    }
}

/* Every size from 64 KiB to PTRDIFF_MAX: the slots of a large block, the SuperSlabs of a huge one hold it, and one
 * fewer would not. */
void prove_size_has_slots(void) {
    /* --unwind 1 */
    size_t bytes = nondet_size();
    GIVEN(bytes > MID_BYTES_MAX && bytes <= PTRDIFF_MAX);
    if (bytes <= LARGE_BYTES_MAX) {
        size_t slots = large_slots_of(bytes);
        PROVE(slots >= 1 && slots <= LARGE_SLOTS_MAX);
        PROVE(slots * SLOT_BYTES >= bytes && (slots - 1) * SLOT_BYTES < bytes);
        PROVE(ring_of_slots((unsigned)slots) < RING_CLASSES);
    }
    size_t superslabs = huge_superslabs_of(bytes);
    PROVE(superslabs * SUPERSLAB_BYTES >= bytes && (superslabs - 1) * SUPERSLAB_BYTES < bytes);
}

/* Each class and each offset in a slab of it: block_index is below the number of blocks if a block begins there,
 * and only then, and is that block's number. */
void prove_block_starts(void) {
    /* --unwind 1 */
    const struct size_class *c = &size_classes[any_class()];
    uint32_t offset = nondet_u32();
    GIVEN(offset < c->slots * SLOT_BYTES);
    uint32_t index = block_index(c->divisor, offset);
    bool begins = offset % c->block_bytes == 0 && offset / c->block_bytes < c->blocks;
    PROVE((index < c->blocks) == begins);
    PROVE(!begins || index == offset / c->block_bytes);
}

/* Each class: the blocks lie in the slab, have bits or a number, and a ring. */
void prove_class_is_sound(void) {
    /* --unwind 1 */
    unsigned number = any_class();
    const struct size_class *c = &size_classes[number];
    PROVE(c->blocks >= 1 && (size_t)c->blocks * c->block_bytes <= c->slots * SLOT_BYTES);
    PROVE((size_t)(c->blocks + 1) * c->block_bytes > c->slots * SLOT_BYTES);
    if (number < TINY_CLASSES) {
        PROVE(c->slots == 1 && c->blocks <= 8192 && c->reuse_at >= 1 && c->reuse_at <= c->blocks);
    } else {
        PROVE(c->slots <= LARGE_SLOTS_MAX && c->blocks <= MID_BLOCKS_MAX);
        PROVE(ring_of_class(number) < MID_CLASSES);
    }
}
