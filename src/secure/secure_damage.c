/* Damage to secure mode's blocks. See secure_damage.h. */
/* SPDX-License-Identifier: MIT */
#include "secure/secure_damage.h"
#include "base/fail.h"
#include "process/presence.h"

enum { BESIDE_BYTES = 64 }; /* of a block that was never handed out, beside one that was */

/* ---- reports ---- */

HAK_COLD bool secure_fail_hand_out(struct secure_entry e, size_t block_bytes) {
    uint16_t before = load_relaxed(e.state);
    size_t bytes = before != 0 ? secure_size_of_state(block_bytes, before) : block_bytes - CANARY_BYTES;
    if (presence_lost_threads())
        return false;
    if (state_is_live(before) || memory_is_zero(e.block, block_bytes)) /* two threads freed it at the same moment */
        fail_double_free(block_word(e.block), bytes, FREER_UNKNOWN);
    else
        fail_damage("write after free", block_word(e.block), bytes);
    memset(block_word(e.block), 0, block_bytes);
    return true;
}

/* Whether the damage begins right behind the requested bytes, as an overflow of the block does. An underflow of the
 * next block begins at this block's last byte. */
HAK_READS_PROGRAM_BYTES static bool is_damaged_from_start(uintptr_t block, size_t bytes) {
    uint8_t first = *((const volatile uint8_t *)(const volatile void *)block_word(block) + bytes);
    return first != (uint8_t)secure_canary_at(canary_of(block), bytes);
}
static bool is_live_with(const struct slab *s, uintptr_t block, size_t *bytes) {
    uint16_t state = load_relaxed(span_state(s->mid.secure, secure_index(s, block)));
    *bytes = state_is_live(state) ? secure_size_of_state(s->mid.block_bytes, state) : 0;
    return state_is_live(state);
}

static void fail_canary(const struct slab *s, uintptr_t block, size_t bytes) {
    uintptr_t next = block + s->mid.block_bytes;
    size_t bytes_next;
    if (!is_damaged_from_start(block, bytes) && secure_index(s, block) + 1 < s->mid.blocks &&
        is_live_with(s, next, &bytes_next))
        fail_damage("underflow", block_word(next), bytes_next);
    else
        fail_damage("overflow", block_word(block), bytes);
}

HAK_COLD void secure_fail_intact(const struct slab *s, uintptr_t block, size_t bytes) {
    size_t bytes_before;
    uintptr_t before = block - s->mid.block_bytes;
    if (!secure_has_canary(s, block, bytes))
        fail_canary(s, block, bytes);
    else if (is_live_with(s, before, &bytes_before) && is_damaged_from_start(before, bytes_before))
        fail_damage("overflow", block_word(before), bytes_before);
    else
        fail_damage("underflow", block_word(block), bytes);
}

/* ---- checks of blocks that nobody uses ---- */

void secure_check_free(struct secure_entry e, size_t block_bytes) {
    uint16_t state = load_relaxed(e.state);
    if (!(state & STATE_FREED) || likely(memory_is_zero(e.block, block_bytes)) || presence_lost_threads())
        return;
    fail_damage("write after free", block_word(e.block), secure_size_of_state(block_bytes, state));
    memset(block_word(e.block), 0, block_bytes);
}

/* Checks block `i` of the `blocks` of a slab. A block that was never handed out may have no memory yet: it is looked at
 * only where it borders on one that was. */
static void check_free_in(const struct secure_span *span, uintptr_t start, unsigned i, unsigned blocks,
                          size_t block_bytes) {
    struct secure_entry e = {start + i * block_bytes, span_state(span, i)};
    if (load_relaxed(e.state) != 0) {
        secure_check_free(e, block_bytes);
        return;
    }
    size_t beside = min_size(block_bytes, BESIDE_BYTES);
    bool behind = i != 0 && load_relaxed(span_state(span, i - 1)) != 0;
    bool before = i + 1 < blocks && load_relaxed(span_state(span, i + 1)) != 0;
    if ((!behind || likely(narrow_is_zero(e.block, beside))) &&
        (!before || likely(narrow_is_zero(e.block + block_bytes - beside, beside))))
        return;
    if (presence_lost_threads())
        return;
    fail_damage("write after free", block_word(e.block), block_bytes - CANARY_BYTES);
    memset(block_word(e.block), 0, block_bytes);
}

void secure_check_blocks(struct secure_span *span, unsigned c, const uint64_t taken[SPAN_BLOCKS_MAX / 64]) {
    uintptr_t start = (uintptr_t)slab_address(span_slab(span, c));
    for (unsigned at = 0; at < SPAN_BLOCKS_MAX / 64; at++)
        for (uint64_t left = taken[at]; left != 0; left &= left - 1) {
            unsigned i = at * 64 + lowest_bit(left);
            secure_check_free((struct secure_entry){start + i * block_bytes_of(c), span_state(span, i)},
                              block_bytes_of(c));
        }
}

void secure_check_span(size_t slot, unsigned order) {
    struct secure_span *span = span_at(slot / SUPERSLAB_SLOTS, span_index(slot, order));
    unsigned c = load_relaxed(&span->class_id);
    uintptr_t start = (uintptr_t)slot_address(slot);
    for (unsigned i = 0; i < span->used && c != ZERO_CLASS && order_of_class(c) == order; i++)
        check_free_in(span, start, i, span->used, block_bytes_of(c));
}

size_t secure_check_slab(struct secure_span *span, unsigned c, bool listed) {
    const struct slab *s = span_slab(span, c);
    size_t block_bytes = block_bytes_of(c), bytes;
    for (unsigned i = 0; i < blocks_of(c);
         i++) { /* first: they tell an underflow into a free block from a write after free */
        uintptr_t block = s->mid.start + i * block_bytes;
        if (is_live_with(s, block, &bytes) && unlikely(!secure_is_intact(s, block, bytes)))
            secure_fail_intact(s, block, bytes);
    }
    for (unsigned i = 0; i < blocks_of(c); i++)
        if (!listed || load_relaxed(span_free(span, i / 64)) >> i % 64 & 1)
            check_free_in(span, s->mid.start, i, blocks_of(c), block_bytes);
    return blocks_of(c) * block_bytes;
}
