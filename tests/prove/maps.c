/* Maps of the free blocks of a slab, by which pages go back. If this fails, a page with a live block is purged. */
/* SPDX-License-Identifier: MIT */
#include "prove.h"

#include "region/classes.c"
#include "heap/pages.c"
#include "blocks/links.c"

struct region hak_region;
enum { BLOCKS = 3, BYTES = 16, END = BLOCKS };
static uintptr_t words[BLOCKS * BYTES / sizeof(uintptr_t)]; /* the slab, as far as it is carved */

void fail_overwritten_link(const void *slab, size_t block_bytes) { (void)slab, (void)block_bytes; }
size_t os_page_bytes(void) { return 4096; }

/* Every key, and every list over up to three blocks of 16 bytes, in any order, whatever is written in the other
 * blocks: map_list marks the blocks of the list, and no others. */
void prove_map_of_list(void) {
    /* --unwind 5 */
    static struct slab s;
    static struct slab_map map;
    unsigned next[BLOCKS], head = nondet_unsigned(), n = 0, listed = 0;
    uintptr_t slab = (uintptr_t)words;
    hak_region.base = slab;
    hak_region.slabs = (char *)&s;
    hak_region.key = nondet_u64() | (BLOCK_ALIGN - 1);
    for (unsigned i = 0; i < BLOCKS; i++) {
        next[i] = nondet_unsigned();
        GIVEN(next[i] <= END);
    }
    GIVEN(head <= END);
    for (unsigned at = head; at != END && n <= BLOCKS; at = next[at], n++)
        listed |= 1u << at;
    GIVEN(n <= BLOCKS); /* it ends */
    for (unsigned i = 0; i < BLOCKS; i++) {
        words[i * 2] = nondet_u64();
        words[i * 2 + 1] = nondet_u64();
        if (listed >> i & 1)
            block_link(slab + i * BYTES, next[i] == END ? slab_terminator(&s) : slab + next[i] * BYTES);
    }
    s.class_id = CLASS_16;
    s.tiny.link_mark = upper_half(slab ^ hak_region.key);
    s.tiny.list = head == END ? slab_terminator(&s) : slab + head * BYTES;
    s.tiny.carved = BLOCKS;
    s.tiny.countdown = BLOCKS - n;
    PROVE(map_list(&s, &map));
    PROVE((map.free[0] & low_bits(BLOCKS)) == listed);
    for (unsigned i = 0; i < BLOCKS; i++)
        PROVE(range_is_free(&map, i, i + 1) == (listed >> i & 1));
}
