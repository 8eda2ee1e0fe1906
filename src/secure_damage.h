/* Damage to secure mode's blocks: overwritten canaries, and free blocks that are no longer zero. For secure.c and
 * secure_slab.c alone. */
/* SPDX-License-Identifier: MIT */
#ifndef HAK_SECURE_DAMAGE_H
#define HAK_SECURE_DAMAGE_H

#include "secure_block.h"

HAK_INLINE unsigned secure_index(const struct slab *part, uintptr_t block) {
    return block_index(part->divisor, (uint32_t)(block - part->start));
}

/* ---- canaries ---- */

/* The last word of the block before, which another thread may have: its canary, or zero, as that of a free block is. That
 * thread writes it whole: first where it puts a canary, and first where it clears a block. */
HAK_RACY static inline uint64_t word_before(uintptr_t block) {
    return *(const volatile uint64_t *)(const volatile void *)(block_word(block) - 1);
}
/* What lies before the first block of a slab is a guard, and not to be read. */
HAK_INLINE bool is_intact_before(const struct slab *s, uintptr_t block) {
    if (unlikely(block == s->start))
        return true;
    uint64_t found = word_before(block);
    return (found == 0) | (found == canary_of(block - s->block_bytes));
}
HAK_INLINE bool secure_has_canary(const struct slab *s, uintptr_t block, size_t bytes) {
    uint64_t canary = canary_of(block), behind, end = *block_word(block + s->block_bytes - CANARY_BYTES);
    memcpy(&behind, (char *)block_word(block) + bytes, CANARY_BYTES);
    return ((behind ^ secure_canary_at(canary, bytes)) | (end ^ canary)) == 0;
}
HAK_INLINE bool secure_is_intact(const struct slab *s, uintptr_t block, size_t bytes) {
    return likely(secure_has_canary(s, block, bytes)) && likely(is_intact_before(s, block));
}

/* ---- damage was found ---- */

/* A child of a program with threads may have the block as another thread had it already: then that is nobody's fault, and
 * the block is lost. */
HAK_COLD bool secure_fail_hand_out(struct secure_entry e, size_t block_bytes);
/* A live block's canaries are damaged, by itself or by the block behind, or the word before it is. That word is left as it is, for
 * it is another block's: that one's free tells the damage, too. */
HAK_COLD void secure_fail_intact(const struct slab *s, uintptr_t block, size_t bytes);

/* ---- blocks that nobody uses just now ---- */

/* Was a free block written to? It is the caller's, and zero afterwards. */
void secure_check_free(struct secure_entry e, size_t block_bytes);
/* The same of those that were taken of a slab. */
void secure_check_blocks(struct secure_span *span, unsigned c, const uint64_t taken[SPAN_BLOCKS_MOST / 64]);
/* The same of a span that nobody has, but which was left as it was. */
void secure_check_span(size_t slot, unsigned order);
/* Blocks that the program did not free; no other thread may be at them. Returns how many bytes there are. */
size_t secure_check_live(struct secure_span *span, unsigned c);

#endif
