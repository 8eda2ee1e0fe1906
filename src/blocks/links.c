/* See links.h. */
/* SPDX-License-Identifier: MIT */
#include "blocks/links.h"
#include "base/fail.h"

unsigned links_count(const struct slab *s, _Atomic uintptr_t *list) {
    unsigned n = 0, max = size_classes[slab_class(s)].blocks;
    uintptr_t slab = (uintptr_t)slab_address(s), key = hak_region.key ^ slab;
    const uintptr_t beyond = ~(SLOT_BYTES - BLOCK_ALIGN);
    /* A block xor the slab's address: where in the slab it begins, if the slab has it (is_in_slab); the terminator is 1
     * then. So the loop has 8 instructions. */
    uintptr_t offset = load_relaxed(list) ^ slab;
    for (; (offset & beyond) == 0 && n <= max; n++)
        offset = *block_word(slab + offset) ^ key;
    if (likely(offset == 1))
        return n;
    fail_overwritten_link(slab_address(s), size_classes[slab_class(s)].block_bytes);
    store_relaxed(list, slab_terminator(s));
    return 0;
}
