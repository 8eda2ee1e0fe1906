/* The hit paths of malloc and free, whole. Everything else is a call into alloc.c.
 *
 *  malloc  1. the thread's heap  2. the class's list  3. pop: done.      Empty list or one with an overwritten link
 *          (which the test for its end mostly shows, too: is_no_block), other size: alloc_slow.
 *  free    1. the address's slab record  2. is the slab mine?  3. is it a block, and not free already?
 *          4. push on the slab's list or, if the class is being served from this slab, on the heap's: the next malloc
 *             takes the block that is still in the cache. Count down: done. Anything else: alloc_free_slow.
 *
 * Both are inlined into every exported function, so that malloc is one call and not two; so is a free that names the
 * size. malloc_usable_size and realloc have their hits in resize.c. A test counts the instructions
 * (tests/fast_path.golden). */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "blocks/links.h"
#include "heap/heap.h"

void *alloc_slow(size_t bytes);
void alloc_free_slow(void *p);                    /* NULL, bad, looks free, or in a slab with purged pages */
void alloc_free_by_kind(struct slab *s, void *p); /* the slab is not this heap's, or not tiny: by its kind's row */
void alloc_countdown_ended(struct slab *s);
/* As alloc_slow and alloc_free_by_kind, for C++'s operators: secure mode, which has no hits, notes which operator
 * made a block. */
void *alloc_slow_new(size_t bytes);
void *alloc_slow_new_array(size_t bytes);
void alloc_delete_by_kind(struct slab *s, void *p);
void alloc_delete_array_by_kind(struct slab *s, void *p);

/* From the heap's list of the class. `slow`: one of the above. */
HAK_INLINE void *alloc_pop(struct heap *h, unsigned c, size_t bytes, void *(*slow)(size_t bytes)) {
    uintptr_t block = load_folded(&h->list[c]);
    if (unlikely(is_no_block(block)))
        return slow(bytes);
    uintptr_t next = block_next(block);
    store_folded(&h->list[c], next);
    prefetch(next);         /* the next malloc of the class reads its link */
    *block_word(block) = 0; /* what is handed out does not look free */
    return block_word(block);
}
HAK_INLINE void *alloc_malloc_from(struct heap *h, size_t bytes, void *(*slow)(size_t bytes)) {
    if (unlikely(bytes > TINY_BYTES_MAX))
        return slow(bytes);
    return alloc_pop(h, h->class_table[(bytes + 7) / 8], bytes, slow);
}
HAK_INLINE void *alloc_no_hit(size_t bytes) {
    (void)bytes;
    return NULL;
}
HAK_INLINE void *alloc_malloc(size_t bytes, void *(*slow)(size_t bytes)) {
    return alloc_malloc_from(hak_heap, bytes, slow);
}

/* An aligned block by malloc's hit. `alignment` is a power of two; a class for a multiple of it has blocks that are all
 * aligned. NULL: no hit. */
HAK_INLINE void *alloc_aligned_hit(size_t alignment, size_t bytes) {
    size_t whole = class_aligned_bytes(bytes, alignment); /* 0 if bytes is 0 or the sum overflows */
    return likely(whole - 1 < TINY_BYTES_MAX) ? alloc_malloc(whole, alloc_no_hit) : NULL;
}

/* p lies in the slab's slot. */
HAK_INLINE void alloc_free_in(struct slab *s, void *p, void (*by_kind)(struct slab *s, void *p)) {
    uintptr_t block = (uintptr_t)p;
    if (unlikely(load_relaxed(&s->owner) != hak_heap))
        return by_kind(s, p);
    if (unlikely(block_index(s->divisor, (uint16_t)block) >= load_folded(&s->hit_blocks)))
        return alloc_free_slow(p);
    if (unlikely(block_looks_free(s, block)))
        return alloc_free_slow(p);
    _Atomic uintptr_t *list = s->tiny.free_to;
    block_link(block, load_folded(list));
    store_folded(list, block);
    if (unlikely(--s->tiny.countdown == 0))
        alloc_countdown_ended(s);
}

/* `frontier`: addresses above it are no hits; `outside` gets them, and NULL. */
HAK_INLINE void alloc_free_below(size_t frontier, void *p, void (*outside)(void *p),
                                 void (*by_kind)(struct slab *s, void *p)) {
    uintptr_t offset = region_offset(p);
    if (unlikely(offset >= frontier))
        return outside(p);
    alloc_free_in(slab_at_offset(offset), p, by_kind);
}
HAK_INLINE void alloc_free(void *p, void (*by_kind)(struct slab *s, void *p)) {
    alloc_free_below(region_frontier(), p, alloc_free_slow, by_kind);
}

/* Sized frees that are no hit: by free_sized, whose block realloc may have left larger; by delete; by delete[]. */
void alloc_free_sized_else(void *p, size_t bytes);
void alloc_delete_sized_else(void *p, size_t bytes);
void alloc_delete_array_sized_else(void *p, size_t bytes);

/* A size of the tiny slab's class is a hit. `exactly`: the block is no larger than malloc makes it for the size, as no
 * realloc has shrunk it. `no_hit`: one of the above. */
HAK_INLINE void alloc_free_sized(size_t frontier, void *p, size_t bytes, bool exactly,
                                 void (*outside)(void *p, size_t bytes), void (*no_hit)(void *p, size_t bytes)) {
    uintptr_t offset = region_offset(p);
    if (HAK_IS_CHECKED || unlikely(offset >= frontier))
        return outside(p, bytes);
    struct slab *s = slab_at_offset(offset);
    if (exactly) { /* a hit keeps no copy of the size, or of first_size */
        bytes -= s->tiny.first_size;
        HAK_FORGET(bytes);
        if (unlikely(bytes >= s->sizes)) {
            HAK_FORGET(s);
            return no_hit(p, bytes + s->tiny.first_size);
        }
    } else if (unlikely(bytes - 1 >= s->tiny_bytes)) {
        return no_hit(p, bytes);
    }
    alloc_free_in(s, p, alloc_free_by_kind);
}

/* The rest of the interface, as the exported functions need it. All set errno as glibc does. */
void *alloc_calloc(size_t count, size_t bytes);
void *alloc_realloc(void *p, size_t bytes);
void *alloc_aligned(size_t alignment, size_t bytes); /* alignment: a power of two */
/* new[] and delete[] come here as such. False before the start, and where the program has an operator of its own that
 * they call, or is not position-independent and takes such an operator's address: then new[] may come here as new. Any
 * thread reads the flag, which stands for itself. */
extern HAK_HIDDEN _Atomic bool hak_arrays_known;
/* Where the aligned operators have no hit; `array`: it is new[] or delete[]. */
void *alloc_new_aligned_else(size_t alignment, size_t bytes, bool array);
void alloc_delete_aligned_else(void *p, size_t bytes, size_t alignment, bool array);
size_t alloc_usable(const void *p, const char *call);
size_t alloc_good_size(size_t bytes);
bool alloc_expand(void *p, size_t bytes);
size_t alloc_trim(void);
void alloc_limit(size_t addresses, size_t data); /* the program limits itself: see region_limit */
/* These go past all caches, for blocks that the program moves: see move/defrag.h. */
void *alloc_malloc_dense(size_t bytes);
void alloc_free_dense(void *p);
