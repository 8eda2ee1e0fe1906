/* Arenas as the lower layers know them: the table of arenas, their limits, and the lists of what each one has.
 *
 *  1. An arena owns whole SuperSlabs. `arena` in the record of a SuperSlab is the arena's number, 0 is the process. A
 *     heap takes slots and blocks from the SuperSlabs of its own arena only, or of the process if it belongs to no
 *     arena.
 *  2. A handle is a number and a generation, not an address. So the handle of a destroyed arena is recognised, even if
 *     another arena has the number by then.
 *  3. While an arena lives, its two lists, of SuperSlabs and of heaps, only grow.
 *
 * Records are never unmapped. Any thread calls anything; nothing waits. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "region/account.h"
#include "region/classes.h"

struct heap;
struct hak_arena; /* hakmem.h: what a handle points to; there is no such thing */

enum {
    ARENAS_MAX = (1 << 16) - 1,
    ARENA_NAME_BYTES = 48,
    ARENA_NAME_WORDS = ARENA_NAME_BYTES / 8,
    ARENA_ENTRY_SHIFT = 4, /* the lowest bits of a handle, scaled: the thread's entry for the arena, see arena_heap.h */
};
#define ARENA_UNLIMITED SIZE_MAX

struct arena {
    _Atomic uintptr_t handle;     /* 0: there is no arena of this number now. Released when the record is filled in */
    uint64_t generation;          /* of the number; whoever has taken the record changes it */
    uint32_t number;              /* constant */
    _Atomic uint32_t next_unused; /* number of the next record on the list of unused ones */
    /* Constant while the arena lives. Statistics may read the first three at any time; their read of a handle before
     * and after pairs with the releases of the name and limit_slots. */
    union {
        char name[ARENA_NAME_BYTES]; /* for whoever knows that the arena lives */
        _Atomic uint64_t name_word[ARENA_NAME_WORDS];
    };
    _Atomic size_t limit_slots; /* ARENA_UNLIMITED: no limit */
    _Atomic bool is_lane;       /* the process's own, see lane.h */
    _Atomic bool is_undumped;   /* core dumps have none of its blocks; set before its first SuperSlab comes */
    int (*over_limit)(struct hak_arena *arena, size_t bytes, void *argument); /* NULL: none */
    void *argument;
    /* Any thread. The counts are exact after each change; the others are hints, relaxed. */
    _Atomic size_t slots, peak_slots;        /* ACTIVE slots; their maximum so far */
    _Atomic size_t superslabs;               /* on the list */
    _Atomic size_t refusals;                 /* how often the limit refused slots */
    _Atomic uint32_t newest;                 /* SuperSlab + 1; follow next_in_arena */
    _Atomic uint32_t search_from;            /* SuperSlab + 1: where the last search found a slot; 0: the newest */
    _Atomic(struct heap *) heaps;            /* newest first; follow arena.next */
    _Atomic bool offered[CLASSES];           /* a slab of the class may be on offer */
    _Atomic bool filled_inbox[TINY_CLASSES]; /* a slab of the class may have a well-filled inbox */
};

enum { ARENAS_IN_CHUNK = 64, ARENA_CHUNKS = (ARENAS_MAX + 1) / ARENAS_IN_CHUNK };

/* All records. Any thread. A chunk is published by compare-and-swap and never changes. `unused` is a stack of records.
 * Its upper half counts changes, so that nobody overlooks that a record left and came back. */
struct arena_table {
    _Atomic(struct arena *) chunk[ARENA_CHUNKS];
    _Atomic uint32_t made; /* the highest number handed out so far */
    _Atomic uint64_t unused;
};
extern HAK_HIDDEN struct arena_table hak_arenas;

/* The number in a handle. */
HAK_INLINE uint32_t arena_number(uintptr_t handle) { return (uint32_t)(handle >> ARENA_ENTRY_SHIFT) & ARENAS_MAX; }
/* The record of a live arena; NULL if the handle names none. */
struct arena *arena_of(uintptr_t handle);
/* The record of a number that has been handed out. */
struct arena *arena_numbered(uint32_t number);
/* The highest number handed out so far. */
uint32_t arenas_made(void);

/* Takes an unused record; only its number and generation are not zero. NULL: no memory. arena_open makes it an arena,
 * arena_close ends the arena: false if another thread did. arena_put gives the record back. */
struct arena *arena_take(void);
void arena_set_name(struct arena *a, const char *name); /* before arena_open. NULL: none */
uintptr_t arena_open(struct arena *a);
bool arena_close(struct arena *a, uintptr_t handle);
void arena_put(struct arena *a);

/* What an arena uses. */
struct arena_use {
    size_t used_bytes, peak_bytes, limit_bytes; /* limit 0: none */
};
struct arena_use arena_use(const struct arena *a); /* the arena lives */
/* Name and use of the arena that has the number now. False: there is none, or it has ended meanwhile. */
struct arena_seen {
    char name[ARENA_NAME_BYTES];
    struct arena_use use;
};
bool arena_see(uint32_t number, struct arena_seen *seen);

/* Counts slots that become ACTIVE. False: they would pass the limit. */
bool arena_admit(struct arena *a, size_t slots);
void arena_uncount(struct arena *a, size_t slots);
/* arena_admit for the client's arena, arena_uncount for the arena of that number, if there is one. */
HAK_INLINE bool arena_admits(const struct client *c, size_t slots) {
    return c->arena == 0 || arena_admit(arena_numbered(c->arena), slots);
}
HAK_INLINE void arena_lost(uint32_t number, size_t slots) {
    likely(number == 0) ? (void)0 : arena_uncount(arena_numbered(number), slots);
}
