/* Links of free blocks, and the inbox's word. If one of these fails, malloc follows a link out of the slab, or a
 * block that is free does not look so. */
/* SPDX-License-Identifier: MIT */
#include "prove.h"

#include "blocks/inbox.c"
#include "blocks/links.c"

struct region hak_region;
const struct size_class size_classes[CLASSES]; /* links_count's: not reached here */
static _Alignas(64 * 1024) char slot[SLOT_BYTES];

void fail_overwritten_link(const void *slab, size_t block_bytes) { (void)slab, (void)block_bytes; }

/* Any key that region.c may make, and any slab and block by address. */
static void any_key(void) { hak_region.key = nondet_u64() | (BLOCK_ALIGN - 1); }
static uintptr_t any_block_of(uintptr_t slab) {
    uintptr_t offset = nondet_u64();
    GIVEN(offset < SLOT_BYTES && offset % BLOCK_ALIGN == 0);
    return slab + offset;
}
static uintptr_t any_slab(void) {
    uintptr_t slab = nondet_u64();
    GIVEN(slab % SLOT_BYTES == 0 && slab < (uintptr_t)1 << 47);
    return slab;
}

/* Every key, slab and pair of its blocks, and every value: a link leads back to what was linked. Only a multiple of
 * 8 in the slab is taken for its block, and never its end. Zero and a pointer to any block, where a link should be,
 * lead to no block. */
void prove_link(void) {
    /* --unwind 1 */
    uintptr_t slab = any_slab(), next = any_block_of(slab), other = nondet_u64(), end = slab | 1, word;
    any_key();
    block_link((uintptr_t)&word, next);
    PROVE(block_next((uintptr_t)&word) == next && !is_no_block(next) && is_in_slab(next, slab));
    block_link((uintptr_t)&word, end);
    PROVE(block_next((uintptr_t)&word) == end && is_no_block(end) && !is_in_slab(end, slab) && is_terminator(end));
    PROVE(is_in_slab(other, slab) == (other >= slab && other - slab < SLOT_BYTES && other % BLOCK_ALIGN == 0));
    PROVE(same_slot(other, next) == (other / SLOT_BYTES == slab / SLOT_BYTES));
    word = 0;
    PROVE(is_no_block(block_next((uintptr_t)&word)));
    word = any_block_of(any_slab());
    PROVE(is_no_block(block_next((uintptr_t)&word)));
}

/* Every key, slab and pair of its blocks: all links of the slab, the end's too, have the upper half that makes a
 * block look free. A block that malloc has cleared looks free only if the mark is 0. */
void prove_link_mark(void) {
    /* --unwind 1 */
    struct slab s;
    uintptr_t slab = any_slab(), word;
    any_key();
    s.tiny.link_mark = upper_half(any_block_of(slab) ^ hak_region.key);
    block_link((uintptr_t)&word, nondet_bool() ? any_block_of(slab) : slab | 1);
    PROVE(block_looks_free(&s, (uintptr_t)&word));
    word = 0;
    PROVE(block_looks_free(&s, (uintptr_t)&word) == (s.tiny.link_mark == 0));
}

/* Every number of blocks that a slab has and every block: the inbox's word holds both, and is not 0. */
void prove_inbox_word(void) {
    /* --unwind 1 */
    uint64_t blocks = nondet_u64(), more = nondet_u64();
    uintptr_t slab = any_slab(), newest = any_block_of(slab);
    GIVEN(blocks >= 1 && blocks <= SLOT_BYTES / 8 && more <= SLOT_BYTES / 8 - blocks);
    uint64_t word = inbox_word(blocks, newest);
    PROVE(word != 0 && inbox_blocks(word) == blocks && slab + (word & (SLOT_BYTES - 1)) == newest);
    PROVE(inbox_blocks(inbox_word(inbox_blocks(word) + more, newest)) == blocks + more);
}

/* Every inbox, every chain, and up to two changes by others meanwhile: inbox_push puts the chain before what was
 * there, in one step; inbox_take then takes all of it, and leaves nothing. */
void prove_inbox(void) {
    /* --unwind 4 */
    static struct slab s;
    uint64_t retries = 0, blocks = nondet_u64();
    uintptr_t last = (uintptr_t)slot, first = any_block_of((uintptr_t)slot);
    hak_region.base = (uintptr_t)slot;
    hak_region.slabs = (char *)&s;
    any_key();
    s.inbox = nondet_u64();
    GIVEN(blocks >= 1 && blocks <= SLOT_BYTES / 8);
    others_may_write = 2;
    uint64_t now = inbox_push(&s, first, last, blocks, &retries);
    GIVEN(inbox_blocks(step.before) <= SLOT_BYTES / 8 && (step.before == 0) == (inbox_blocks(step.before) == 0));
    PROVE(step.count == 1 && step.after == s.inbox && now == inbox_blocks(step.before) + blocks);
    PROVE(inbox_newest(&s, s.inbox) == first);
    PROVE(block_next(last) == (step.before == 0 ? slab_terminator(&s) : inbox_newest(&s, step.before)));
    unsigned taken;
    others_may_write = 0;
    PROVE(inbox_take(&s, &taken) == first && taken == now && s.inbox == 0);
    PROVE(inbox_take(&s, &taken) == slab_terminator(&s) && taken == 0);
}

/* Every contents of a slab of 64 KiB, every key and every beginning of a list: a step of links_count reads a whole
 * word of the slab, or ends, and then gives 0 or a list that ends as it should. (size_classes is empty here, so
 * that it takes one step; from any block, so any number of them.) */
void prove_damaged_list(void) {
    /* --unwind 3 */
    static struct slab s;
    _Atomic uintptr_t list = nondet_u64();
    uintptr_t slab = (uintptr_t)slot, begins = list;
    hak_region.base = slab;
    hak_region.slabs = (char *)&s;
    any_key();
    __CPROVER_havoc_object(slot);
    unsigned n = links_count(&s, &list);
    PROVE(n <= 1);
    PROVE(n == 0 ? list == (slab | 1) : is_in_slab(begins, slab) && list == begins);
}
