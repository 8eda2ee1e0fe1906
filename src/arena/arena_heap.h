/* A heap for each thread and arena.
 *
 *  1. A thread takes a heap of an arena at its first allocation there: one that no thread holds, or a new one. `holder`
 *     names the thread that has it, by that thread's own heap. So a heap serves one thread at a time, as the process's
 *     heaps do.
 *  2. A thread that ends empties its heaps of lanes and leaves those of other arenas as they are. The next thread that
 *     comes to the arena takes them over, with the blocks in their lists and rings. So the end of a thread never
 *     touches an arena that may be ending.
 *  3. A thread finds its heap through a small table in its own heap. An entry counts if both it and the heap name the
 *     arena's handle: an arena that ends clears that of the heap, and no handle is ever used again.
 *  4. Any thread may free a block of an arena. A thread that holds a heap there frees with it. Any other puts the block
 *     back into its slab at once: nothing of an arena is ever in a ring or an outbox of another heap.
 *
 * The calling thread calls all this with its own heap `h`. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "heap/heap.h"
#include "space/superslab.h"

/* Where a thread notes its heap for the arena: the lowest byte of a handle is the entry's offset, which saves two
 * instructions. */
_Static_assert(sizeof(struct arena_entry) == 1 << ARENA_ENTRY_SHIFT &&
                   sizeof((struct heap *)0)->arena.noted == UINT8_MAX + 1,
               "a byte is an offset");
HAK_INLINE struct arena_entry *arena_entry_of(struct heap *h, uintptr_t handle) {
    char *at = (char *)h + (uint8_t)handle;
    __asm__("" : "+r"(at)); /* one addition: else the compiler adds the offset of the table by a further instruction */
    return (struct arena_entry *)(void *)(at + offsetof(struct heap, arena.noted));
}
/* The hit: the thread's heap for the arena, if the entry has it; else NULL. */
HAK_INLINE struct heap *arena_heap_noted(struct heap *h, uintptr_t handle) {
    const struct arena_entry *e = arena_entry_of(h, handle);
    if (unlikely(e->handle_less_1 != handle - 1) || unlikely(load_folded(&e->heap->arena.handle) != handle))
        return NULL;
    return e->heap;
}

/* The thread's heap for an arena that lives. NULL: no memory for one. */
struct heap *arena_heap(struct heap *h, struct arena *a);
/* Walks the heaps that the thread has in lanes: returns the one after `last`, or the first one if `last` is NULL; NULL
 * where there is none. */
struct heap *arena_next_lane(const struct heap *h, struct heap *last);
/* The thread ends: its heaps of arenas are anybody's. Those of lanes are emptied: no lane ends meanwhile. */
void arena_leave_all(struct heap *h);
/* The arena of a block in such a slab; NULL: the process's own. */
HAK_INLINE struct arena *arena_of_slab(const struct slab *s) {
    uint32_t number = superslab_arena(slot_of(s) / SUPERSLAB_SLOTS);
    return number != 0 ? arena_numbered(number) : NULL;
}
