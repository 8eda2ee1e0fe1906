/* SUPERSLAB=0: libc's own allocator serves, so that a program can be compared with itself without HAKMEM.
 *
 *  1. With the switch each allocation that is no hit asks libc. No thread gets a heap, so none is a hit: the hit paths know nothing
 *     of the switch, which is read with the first allocation and stays as it is.
 *  2. Where a block lies says whose it is: in the region if it was allocated before the environment could be read, or in an arena,
 *     else libc's. So both may be mixed.
 *  3. Arenas, which libc does not have, work as ever. Limits, statistics, profiles and checks know nothing of libc's blocks. Secure
 *     mode wins over the switch.
 *
 * Any thread calls anything. */
/* SPDX-License-Identifier: MIT */
#ifndef HAK_BYPASS_H
#define HAK_BYPASS_H

#include "arena/brought.h"
#include "base/options.h"
#include "base/os_malloc.h"
#include "heap.h"

#define LIBC_ALIGNMENT 16 /* of every block that libc's malloc returns */

HAK_INLINE bool bypass_is_on(void) { return unlikely(!option(OPT_SUPERSLAB)); }
/* Does libc serve the calling thread's allocations? A default arena of the thread's comes first. A thread without a heap may be the
 * first to ask. */
HAK_INLINE bool bypass_serves(void) {
    if (unlikely(hak_heap->number == HEAP_NONE))
        options_init();
    return bypass_is_on() && hak_heap != &heap_redirected;
}
/* Does the address lie in memory of the region's? Where nothing is reserved, libc's may lie between. */
HAK_INLINE bool bypass_is_regions(const void *block) {
    size_t slot = region_offset(block) / SLOT_BYTES;
    return region_has(block) &&
           load_relaxed(&superslab_at(slot / SUPERSLAB_SLOTS)->word) >> (SUPERSLAB_SLOTS + slot % SUPERSLAB_SLOTS) & 1;
}
/* Is the block libc's? */
HAK_INLINE bool bypass_has(const void *block) {
    return bypass_is_on() && block != NULL && !bypass_is_regions(block) && brought_record(block) == NULL;
}
/* A block of libc's, with any power of two as alignment. */
HAK_INLINE void *bypass_malloc(size_t bytes, size_t alignment) {
    return alignment <= LIBC_ALIGNMENT ? os_malloc(bytes) : os_memalign(alignment, bytes);
}

#endif
