/* Another allocator serves the program: libc's own with SUPERSLAB=0, so that a program can be compared with itself
 * without HAKMEM; or a tool's. valgrind replaces functions where they lie, but each version only those that it knows,
 * so whatever else allocates has to ask what is replaced.
 *
 *  1. Each allocation that is no hit asks the other allocator. No heap is ever filled, so none is a hit: the hit paths
 *     know nothing of all this.
 *  2. The switch is SUPERSLAB, which is turned off where a tool is found: before main, or with the first allocation.
 *  3. Where a block lies says whose it is: in the region if it was allocated before the environment could be read, or
 *     in an arena, else the other allocator's. So both may be mixed.
 *  4. Arenas, which others do not have, work as ever. Limits, statistics, profiles and checks know nothing of the
 *     others' blocks. Secure mode wins over SUPERSLAB=0, a tool over secure mode.
 *
 * Any thread calls anything. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "base/options.h"
#include "base/os_malloc.h"
#include "heap/heap.h"

extern const struct os_malloc_calls own_calls HAK_WEAK
    HAK_HIDDEN; /* malloc and its like as the program finds them; not in a library without malloc */
extern HAK_HIDDEN _Atomic(const struct os_malloc_calls *) other_allocators; /* relaxed: points to what is constant */

HAK_INLINE bool other_is_on(void) { return unlikely(!option(OPT_SUPERSLAB)); }
HAK_INLINE const struct os_malloc_calls *other_calls(void) { return load_relaxed(&other_allocators); }
/* Finds out whether another one serves. Again at no cost. */
void other_ask(void);
/* Does it serve the calling thread's allocations? A default arena of the thread's comes first. A thread without a heap
 * may be the first to ask. */
HAK_INLINE bool other_serves(void) {
    if (unlikely(hak_heap->number == HEAP_NONE))
        other_ask();
    return other_is_on() && hak_heap != &heap_redirected;
}
/* Does the address lie in memory of the region's? Where nothing is reserved, others' may lie between. */
HAK_INLINE bool other_lies_in_region(const void *block) {
    size_t slot = region_offset(block) / SLOT_BYTES;
    return region_has(block) &&
           load_relaxed(&superslab_at(slot / SUPERSLAB_SLOTS)->word) >> (SUPERSLAB_SLOTS + slot % SUPERSLAB_SLOTS) & 1;
}
/* Is the block another allocator's? */
HAK_INLINE bool other_has(const void *block) { return other_is_on() && block != NULL && !other_lies_in_region(block); }
/* A block of the other allocator's, with any power of two as alignment. */
void *other_malloc(size_t bytes, size_t alignment);
