/* What the harnesses have in common: heaps and full slabs made by the allocator itself, and where their blocks are. */
#ifndef HAKMEM_TESTS_RACES_KIT_H
#define HAKMEM_TESTS_RACES_KIT_H

#include "explore.h"
#include "inbox.h"
#include "kinds.h"
#include "mid.h"
#include "outbox.h"
#include "search.h"
#include "thread.h"
#include "tiny.h"

enum { KIT_HEAPS = 4, KIT_CLASS = TINY_CLASSES - 1, KIT_BLOCKS = 64 /* of 1 KiB, in a slab */ };

extern struct heap *kit_heap[KIT_HEAPS];
void kit_setup(void); /* makes them */

uintptr_t kit_malloc(struct heap *h); /* a block of KIT_CLASS */
void kit_free(struct heap *h, uintptr_t block);
struct slab *kit_slab_of(uintptr_t block);
/* A slab whose blocks are all out, and of which the heap knows nothing any more: it was let go. */
struct slab *kit_full_slab(struct heap *h, uintptr_t blocks[KIT_BLOCKS]);

/* Else a purge may be refused. For harnesses in which that changes nothing. */
extern bool kit_purge_is_granted;
/* Else clients settle with the pool. */
extern bool kit_is_settled;
/* There is a purger, so slabs are lent. */
extern bool kit_lends;
/* The kernel lets the program read and write there. */
bool kit_is_open(const void *address);

/* All blocks of the slab are accounted for: each is in one list, or with the program, which holds `live` of them. What the
 * slab's record says agrees, and nobody's slab hides something that could be used. */
void kit_account(const struct slab *s, unsigned live);
/* The SuperSlab is in the sets of the pool that its word says it belongs to. */
void kit_check_hints(size_t superslab);

#endif
