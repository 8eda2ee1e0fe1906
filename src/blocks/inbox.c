/* See inbox.h. */
/* SPDX-License-Identifier: MIT */
#include "blocks/inbox.h"

uint64_t inbox_push(struct slab *s, uintptr_t first, uintptr_t last, uint64_t blocks, uint64_t *retries) {
    uint64_t old = load_relaxed(&s->inbox), word;
    for (;; (*retries)++) {
        block_link(last, old != 0 ? inbox_newest(s, old) : slab_terminator(s));
        word = inbox_word(inbox_blocks(old) + blocks, first);
        if (PROVEN(push, rmw_cas(&s->inbox, &old, word)))
            return inbox_blocks(word);
    }
}

uintptr_t inbox_take(struct slab *s, unsigned *blocks) {
    uint64_t word = load_relaxed(&s->inbox) != 0 ? PROVEN(take_inbox, rmw_swap(&s->inbox, 0)) : 0;
    *blocks = (unsigned)inbox_blocks(word);
    return word != 0 ? inbox_newest(s, word) : slab_terminator(s);
}
