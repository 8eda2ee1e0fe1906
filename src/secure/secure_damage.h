/* Damage to secure mode's blocks: overwritten canaries, and free blocks that are no longer zero. Used by secure.c and
 * secure_slab.c only. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "secure/secure_block.h"
#include "secure/secure_span.h"

HAK_INLINE unsigned secure_index(const struct slab *part, uintptr_t block) {
    return block_index(part->divisor, (uint32_t)(block - part->mid.start));
}

/* ---- canaries ---- */

/* The last word of the block before, which another thread may hold: that block's canary, or zero if it is free. The
 * other thread writes the word with one store, and before all other bytes, when it puts a canary and when it clears the
 * block. */
HAK_READS_PROGRAM_BYTES static inline uint64_t word_before(uintptr_t block) {
    return *(const volatile uint64_t *)(const volatile void *)(block_word(block) - 1);
}
/* Before the first block of a slab is a guard, which must not be read. */
HAK_INLINE bool is_intact_before(const struct slab *s, uintptr_t block) {
    if (unlikely(block == s->mid.start))
        return true;
    uint64_t found = word_before(block);
    return (found == 0) | (found == canary_of(block - s->mid.block_bytes));
}
HAK_INLINE bool secure_has_canary(const struct slab *s, uintptr_t block, size_t bytes) {
    uint64_t canary = canary_of(block), behind, end = *block_word(block + s->mid.block_bytes - CANARY_BYTES);
    memcpy(&behind, (char *)block_word(block) + bytes, CANARY_BYTES);
    return ((behind ^ secure_canary_at(canary, bytes)) | (end ^ canary)) == 0;
}
HAK_INLINE bool secure_is_intact(const struct slab *s, uintptr_t block, size_t bytes) {
    return likely(secure_has_canary(s, block, bytes)) && likely(is_intact_before(s, block));
}

/* ---- reports ---- */

/* Reports a block that was about to be handed out, and clears it. Returns false, without a report, in a child of a
 * program with threads: another thread may have held the block when it forked, so nobody is at fault, and the block is
 * lost. */
HAK_COLD bool secure_fail_hand_out(struct secure_entry e, size_t block_bytes);
/* Reports damage to a live block's canaries, by an overflow of it or an underflow of the next block, or to the word
 * before it. That word stays as it is, because it belongs to another block, whose free reports the damage, too. */
HAK_COLD void secure_fail_intact(const struct slab *s, uintptr_t block, size_t bytes);

/* ---- checks of blocks that nobody uses ---- */

/* Reports a block that was freed and written to since, and clears it. The caller must hold the block. */
void secure_check_free(struct secure_entry e, size_t block_bytes);
/* Checks in the same way the blocks that the caller took from a slab. */
void secure_check_blocks(struct secure_span *span, unsigned c, const uint64_t taken[SPAN_BLOCKS_MAX / 64]);
/* Checks in the same way the blocks of a free span that is still resident. The caller must hold the span. */
void secure_check_span(size_t slot, unsigned order);
/* Checks all blocks of a slab, which no other thread may use meanwhile: the canaries of live ones, and that free ones
 * are zero; with `listed` only those of them that the slab has, because a signal handler may have interrupted a call
 * that holds others. Returns the size of what it looked at in bytes. */
size_t secure_check_slab(struct secure_span *span, unsigned c, bool listed);
