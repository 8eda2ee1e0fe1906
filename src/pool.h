/* The shared SuperSlab pool: slots, spans and runs for all tiers and threads.
 *
 *  1. The truth about a SuperSlab is one 64-bit word: low half slots ACTIVE, high half slots resident. Taking or giving
 *     a span is one compare-and-swap on it. UNUSED = neither, EMPTY = resident only.
 *  2. A span is looked for in three stages: EMPTY slots of a SuperSlab in use; UNUSED ones; else a SuperSlab that is
 *     wholly free (cached ones, which are resident, before clean ones before new ones). Lowest address first, which packs
 *     the heap; among the EMPTY slots of one SuperSlab those whose last class was the same go first.
 *  3. Sets of SuperSlabs (bitset.h) are hints. A giver adds its SuperSlab to the sets it belongs to; whoever finds that a
 *     member does not belong removes it and looks again at the word.
 *  4. EMPTY slots beyond a bound go back to the system, highest address first: see purge.h.
 *
 * Any thread calls anything; nothing waits. A pool_client is one thread's. */
/* SPDX-License-Identifier: MIT */
#ifndef HAK_POOL_H
#define HAK_POOL_H

#include "counters.h"
#include "region.h"

/* What settling found to be due. */
enum chore {
    CHORE_PURGER = 1, /* start the purger */
    CHORE_TRIM = 2,   /* look for pages that stayed free long */
    CHORE_LIMITS = 4, /* see limits_take_due */
    CHORE_LOOK = 8,   /* look at `looks` SuperSlabs for pages that stayed free */
    CHORE_RINGS = 16, /* empty the rings: the heap has shrunk */
    CHORE_TENSION =
        32, /* a new or purged SuperSlab was taken: empty the caches if they hold as much, before the next */
};

/* What the pool keeps for each heap. Touched by the heap's thread only. */
struct pool_client {
    struct counters counters;
    uint32_t start;        /* SuperSlab where this heap begins to look, after it met another thread at the lowest */
    int32_t active_delta;  /* slots taken since the pool's totals were told */
    int32_t empty_delta;   /* EMPTY slots likewise */
    uint32_t unused_taken; /* UNUSED slots taken likewise */
    uint32_t looks;        /* SuperSlabs to be looked at for free pages, as the heap grows */
    size_t grown_bytes;    /* by which it grew inside slabs, of less than a slot */
    uint8_t chores;        /* enum chore: to be done when the heap's thread is at a safe place */
    bool is_purger;        /* what it settles is no sign of life */
    bool in_start; /* the thread starts the purger: what libc allocates for that is not sampled, as the stack is deep */
    bool in_callback; /* the thread is in the program's callback: no other begins */
};

/* A span of `slots` (1 to 32) neighbouring slots of one SuperSlab, the first at a multiple of `align` slots (a power of
 * two). `tag` is a class + 1 for class affinity, 0 for none. Returns the first slot's number, BITSET_NONE without memory.
 * *zero tells whether all its bytes are known to be zero. */
size_t pool_take(struct pool_client *c, unsigned slots, unsigned align, unsigned tag, bool *zero);

/* Are the slot's pages resident before they are touched, zero or not? */
HAK_INLINE bool pool_in_huge_page(size_t slot) {
    return load_relaxed(&superslab_at(slot / SUPERSLAB_SLOTS)->huge) == HUGE_WHOLE;
}

/* Was the slot ever part of a slab before? */
HAK_INLINE bool pool_had_slab(size_t slot) {
    return load_relaxed(&superslab_at(slot / SUPERSLAB_SLOTS)->last_class[slot % SUPERSLAB_SLOTS]) != 0;
}

/* Gives the span back; the slots become EMPTY. The records are KIND_FREE again already. */
void pool_give(struct pool_client *c, size_t slot, unsigned slots, unsigned tag);
/* The same of a span that was purged: the slots become UNUSED. */
void pool_give_purged(struct pool_client *c, size_t slot, unsigned slots);

/* Takes the slots behind a span of one SuperSlab, so that it grows from `slots` to `wanted`. */
bool pool_extend(struct pool_client *c, size_t slot, unsigned slots, unsigned wanted);

/* A run of `n` whole SuperSlabs, the first aligned to `align` bytes (a power of two, 2 MiB or more). Number of the first
 * SuperSlab or BITSET_NONE. */
size_t pool_take_run(struct pool_client *c, size_t n, size_t align, bool *zero);
/* Gives it back; `resident`: its pages may hold data. */
void pool_give_run(struct pool_client *c, size_t first, size_t n, bool resident);
/* Gives back the addresses alone: the kernel has unmapped the run. They are used again once they can be mapped. */
void pool_give_unmapped_run(struct pool_client *c, size_t first, size_t n);
bool pool_extend_run(struct pool_client *c, size_t first, size_t n, size_t wanted);

/* ---- slabs on offer ---- */

/* Puts a slab with room on offer for `class_id`; its truth (owner, free blocks) is visible already. */
void pool_offer(size_t slot, unsigned class_id);
HAK_INLINE bool pool_offered(size_t slot, unsigned class_id) {
    return load_relaxed(&superslab_at(slot / SUPERSLAB_SLOTS)->offer[slot % SUPERSLAB_SLOTS]) == class_id + 1;
}
/* The slots of a SuperSlab that are on offer, whatever their class. */
uint32_t pool_offers_in(size_t superslab);
/* Takes one slab of the class off the offers and returns its slot, or BITSET_NONE. The caller checks the truth. */
size_t pool_take_offer(unsigned class_id);
/* The same for tiny slabs with a well-filled inbox. */
void pool_offer_inbox(size_t slot, unsigned class_id);
size_t pool_take_inbox_offer(unsigned class_id);

/* The next ACTIVE slot at or after this one, BITSET_NONE if there is none: for walks over all slabs. Records of slots in
 * SuperSlabs that were never in use are not touched. */
size_t pool_next_active(size_t slot);

/* ---- giving back ---- */

/* Tells the pool's totals what the client did since, purges what is over the bounds. */
void pool_settle(struct pool_client *c);
/* Purged pages inside a slab are used again: the heap grows by them as by UNUSED slots. */
void pool_grew_inside(struct pool_client *c, size_t bytes);
/* May this many slots that are hardly used stay resident? They count as EMPTY ones. */
bool pool_may_retain(size_t slots);
/* Were purged pages inside slabs wanted back at once, not long ago? The program swings: the same will happen again. */
bool pool_pages_are_missed(void);
/* So many pages inside a slab were purged, as it was hardly used. */
void pool_shrank_inside(struct pool_client *c, size_t slot, size_t pages);
/* Purges EMPTY slots until at most `keep_slots` are left. Returns how many slots were purged. */
size_t pool_purge(struct pool_client *c, size_t keep_slots);
/* Purges what is older than the options allow. */
void pool_decay(struct pool_client *c, uint32_t now_ms);

/* How many threads have a heap: 1 in a program without threads. */
void pool_clients_changed(int by);
unsigned pool_clients(void);
/* Slots in use, as of the last settlings. */
size_t pool_active_slots(void);
/* Slots that are resident: in use or EMPTY, as of the last settlings, and of what is added: slots that are to become so.
 * False: it would be more than `most`. */
size_t pool_resident_slots(void);
bool pool_add_resident(size_t slots, size_t most);
/* Whatever the limits: slots that did not become resident after all (negative), or count again. */
void pool_count_resident(ptrdiff_t slots);

struct pool_totals {
    size_t active_slots, empty_slots, superslabs, superslabs_peak;
};
/* Exact, by reading every word; superslabs counts those in use. */
void pool_count(struct pool_totals *totals);

HAK_INLINE uint32_t word_active(uint64_t w) { return (uint32_t)w; }
HAK_INLINE uint32_t word_resident(uint64_t w) { return (uint32_t)(w >> 32); }
HAK_INLINE uint64_t word_of(uint32_t active, uint32_t resident) { return active | (uint64_t)resident << 32; }

#endif
