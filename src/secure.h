/* Secure mode (HAKMEM_SECURE=1): two tiers of its own in place of the four, of which no block is ever a hit.
 *
 *  secure.c   blocks to 64 KiB, with the 8 bytes of the canary; slabs between guard slots
 *  guarded.c  all others: between guard pages
 *  spans.c    where the slabs of secure.c lie
 *
 * Both keep of each block the size that was asked for, outside the blocks: it is the usable size, the canary begins right
 * behind it, and a sized free must name it. The lists and rings of heaps stay empty, so that malloc and free always come
 * to the slow paths of alloc.c, which ask the option or the kind of the slab there. */
#ifndef HAK_SECURE_H
#define HAK_SECURE_H

#include "heap.h"
#include "os.h"

#define CANARY_BYTES 8

/* A block, zero but for its canary; NULL without memory. */
void *secure_malloc(struct heap *h, size_t bytes, size_t alignment);
/* `s` is the record of the slot p lies in. h: NULL without memory for one. */
void secure_free(struct heap *h, struct slab *s, void *p);
/* In place, if there is room and not too much of it. Only of live blocks. */
bool secure_resize(struct slab *s, void *p, size_t bytes);
/* Whether a block of `bytes` may be freed as one of `told`: as it was asked for, or, by pvalloc, before rounding. */
HAK_INLINE bool secure_size_fits(const void *p, size_t told, size_t bytes) {
    size_t page = os_page_bytes();
    return told == bytes || ((uintptr_t)p % page == 0 && told < bytes && round_up(told, page) == bytes);
}
/* What p is: SECURE_NO_BLOCK, or else with the size that was asked for in *bytes. */
enum secure_state { SECURE_NO_BLOCK, SECURE_NEVER, SECURE_LIVE, SECURE_FREED };
enum secure_state secure_find(struct slab *s, const void *p, size_t *bytes);
/* Gives back what the heap holds: all free blocks it has, in quarantine or not. */
void secure_empty(struct heap *h);
size_t secure_trim(struct heap *h, bool all); /* in pages */
/* Bytes that were asked for in the slab's live blocks, and those of the blocks that threads keep back. */
void secure_count(const struct slab *s, size_t *live, size_t *kept);

/* guarded.c: the same for large and huge blocks. `h` may be heap_afterlife in a free. */
void *guarded_malloc(struct heap *h, size_t bytes, size_t alignment);
void guarded_free(struct heap *h, struct slab *s, void *p);
bool guarded_resize(struct slab *s, size_t bytes);
enum secure_state guarded_find(struct slab *s, const void *p, size_t *bytes);
void guarded_empty(struct heap *h); /* the quarantine, which all threads share */

/* Depends on two secrets and the block's address; from it they can't be told. */
uint64_t secure_canary(uintptr_t block);
uint64_t secure_random(struct heap *h); /* not for ciphers: fast */
HAK_INLINE unsigned random_below(struct heap *h, unsigned n) { return (unsigned)((secure_random(h) >> 32) * n >> 32); }

#endif
