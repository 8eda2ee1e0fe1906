/* Shared by the harnesses: heaps and full slabs, made by the allocator itself, and checks of where their blocks are. */
/* SPDX-License-Identifier: MIT */
#ifndef HAKMEM_TESTS_RACES_KIT_H
#define HAKMEM_TESTS_RACES_KIT_H

#include "explore.h"
#include "blocks/inbox.h"
#include "blocks/kinds.h"
#include "heap/outbox.h"
#include "heap/search.h"
#include "pool/pool.h"
#include "threads/thread.h"
#include "tiers/mid.h"
#include "tiers/tiny.h"

enum { KIT_HEAPS = 4, KIT_CLASS = TINY_CLASSES - 1, KIT_BLOCKS = 64 /* of 1 KiB, in a slab */ };

extern struct heap *kit_heap[KIT_HEAPS];
void kit_setup(void); /* makes kit_heap */

uintptr_t kit_malloc(struct heap *h); /* a block of KIT_CLASS */
void kit_free(struct heap *h, uintptr_t block);
struct slab *kit_slab_of(uintptr_t block);
/* Returns a slab whose blocks are all allocated and that the heap has let go of. */
struct slab *kit_full_slab(struct heap *h, uintptr_t blocks[KIT_BLOCKS]);

/* If false, a purge may also be refused. Harnesses in which a refusal makes no difference set it. */
extern bool kit_purge_is_granted;
/* If false, clients add their counts to the pool's totals. */
extern bool kit_is_settled;
extern uint32_t kit_now_ms; /* the clock; kit_setup sets it */
/* There is a purger, so slabs are lent. */
extern bool kit_lends;
/* What is mapped in the places of the first SuperSlabs and heaps is what is said here, not what the kernel has. */
enum kit_mapped { KIT_RESERVED, KIT_HOLE, KIT_MAPPED };
extern bool kit_maps, kit_is_limited; /* limited: nothing is mapped as long as the last heap's addresses are reserved */
enum kit_mapped kit_mapped(const void *address);
/* How many NUMA nodes there are; set it before kit_setup. 1 by default. */
extern unsigned kit_nodes;
/* Whether the kernel lets the program read and write there. */
bool kit_is_open(const void *address);

/* Checks that every block of the slab is accounted for: it is in exactly one list, or the program holds it, as it does
 * `live` of them. Checks that the slab's record agrees and that no slab without an owner hides usable blocks. */
void kit_account(const struct slab *s, unsigned live);
/* Checks that the SuperSlab is in those sets of the pool to which its word says it belongs. */
void kit_check_hints(size_t superslab);

#endif
