/* See links.h. */
/* SPDX-License-Identifier: MIT */
#include "links.h"
#include "base/fail.h"

unsigned links_count(const struct slab *s, _Atomic uintptr_t *list) {
    unsigned n = 0, max = size_classes[slab_class(s)].blocks;
    uintptr_t block = load_relaxed(list), slab = (uintptr_t)slab_address(s);
    for (; is_in_slab(block, slab) && n <= max; n++)
        block = block_next(block);
    if (likely(block == slab_terminator(s)))
        return n;
    fail_overwritten_link(slab_address(s), size_classes[slab_class(s)].block_bytes);
    store_relaxed(list, slab_terminator(s));
    return 0;
}
