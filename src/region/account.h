/* What is resident: the totals of all heaps, and what one heap adds to them.
 *
 *  1. A heap's thread counts the slots that it takes and gives in its own struct client. account_settle adds these
 *     counts to the totals; retain.c says when. Until then the totals lag by a few slots for each thread.
 *  2. While a limit is set, slots are added to the totals before they become resident (account_add_resident), so that
 *     the sum is exact.
 *
 * Any thread calls anything; nothing waits. A client belongs to its heap's thread. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "base/counters.h"

/* Work that a thread found to be due, for the end of malloc's slow path (chores.h). */
enum chore {
    CHORE_PURGER = 1, /* start the purger */
    CHORE_TRIM = 2,   /* look for pages that have been free for long */
    CHORE_LIMITS = 4, /* see limits_take_due */
    CHORE_LOOK = 8,   /* at slabs that changed, as the heap grows */
    CHORE_RINGS = 16, /* empty the caches: the heap has shrunk */
    CHORE_DRAIN_CACHES =
        32,           /* a new or purged SuperSlab was taken: empty the caches if they hold as much, before the next */
    CHORE_MERGE = 64, /* share pages between slabs */
};

/* What a heap has done since account_settle last added it to the totals. */
struct deltas {
    int32_t active, empty;  /* change of the number of its slots, and of EMPTY slots */
    uint32_t unused_taken;  /* UNUSED slots taken */
    uint32_t lazy_taken;    /* how many of them were LAZY … */
    uint32_t soon_taken;    /* … and had not been LAZY for long */
    bool emptied_by_moving; /* the program emptied slots by moving blocks, and wants their memory back */
};

/* What is to be done at the end of malloc's slow path. */
struct due {
    uint32_t slow_mallocs; /* how many have ended */
    uint32_t trim_at;      /* the SuperSlab where CHORE_TRIM goes on */
    uint32_t grown_bytes;  /* growth inside slabs that does not make up a slot yet */
    uint8_t chores;        /* enum chore */
};

/* The part of a heap that the layers below the tiers use: its counters, what it has done and what is due, and what the
 * pool has to know of it. Only the heap's thread touches it, except that any thread may read the counters. The client
 * of heap_afterlife is used by any thread, for frees: only its counters change, which are hints there. */
struct client {
    struct counters counters;
    uint32_t start; /* the SuperSlab where searches begin, once this heap has met another thread at the lowest one */
    uint32_t arena; /* number of the arena that the heap belongs to; 0: the process (arena_record.h) */
    _Atomic uint32_t last_given; /* slot + 1 of the last span given back; any thread writes a shared client's */
    uint8_t node;                /* the node of the thread when it last took something; 0 if there is one node */
    bool is_shared : 1;          /* the client is heap_afterlife's; constant */
    bool is_lane : 1;            /* the arena is a lane of the process, which never ends (lane.h) */
    bool is_choosy : 1;          /* the heap is an arena's, or there are several NUMA nodes: not all slots are for it */
    bool takes_anywhere : 1;     /* memory is scarce: the heap takes what other nodes have rather than new memory */
    bool is_purger : 1;          /* the heap is the purger's, whose settling does not make the program busy */
    bool in_start : 1;    /* the thread starts the purger: libc's allocations are not sampled, as the stack is deep */
    bool in_callback : 1; /* the thread is in the program's callback: no other call begins */
    struct deltas since;
    struct due due;
};

/* Written by any thread. Relaxed accesses are enough: no other memory depends on these words, read-modify-writes keep
 * the sums exact, and a reader of an older value only acts a little earlier or later. */
struct HAK_OWN_LINES account {
    _Atomic int64_t slots;             /* ACTIVE, plus EMPTY << 32: one word, so that their sum is never torn */
    _Atomic int64_t lazy_slots;        /* below 0 for a moment, likewise */
    _Atomic int64_t inside_bytes;      /* likewise */
    _Atomic int64_t changed_slabs;     /* noted to have changed (pages.h), likewise */
    _Atomic int64_t cached_superslabs; /* wholly empty and resident; below 0 for a moment while two threads count */
    _Atomic uint32_t clock_ms;         /* os_now_ms() at the last settling */
};
extern HAK_HIDDEN struct account hak_account;

HAK_INLINE int64_t account_pair(int64_t active, int64_t empty) { return active + empty * ((int64_t)1 << 32); }
HAK_INLINE int64_t account_active_of(int64_t pair) { return (int32_t)pair; }
HAK_INLINE int64_t account_empty_of(int64_t pair) { return (pair - (int32_t)pair) >> 32; }
HAK_INLINE int64_t account_resident_of(int64_t pair) { return account_active_of(pair) + account_empty_of(pair); }
/* A number is negative for a moment while threads settle in another order than they took slots. */
HAK_INLINE size_t account_not_negative(int64_t n) { return n > 0 ? (size_t)n : 0; }

/* Slots by state, as of the last settlings and additions; resident are ACTIVE and EMPTY ones. */
HAK_INLINE size_t account_active_slots(void) {
    return account_not_negative(account_active_of(load_relaxed(&hak_account.slots)));
}
HAK_INLINE size_t account_empty_slots(void) {
    return account_not_negative(account_empty_of(load_relaxed(&hak_account.slots)));
}
/* Likewise, with what heaps have not added yet: `unsettled` is the sum of what they have (deltas). */
HAK_INLINE size_t account_empty_slots_with(int64_t unsettled) {
    return account_not_negative(account_empty_of(load_relaxed(&hak_account.slots)) + unsettled);
}
HAK_INLINE size_t account_resident_slots(void) {
    return account_not_negative(account_resident_of(load_relaxed(&hak_account.slots)));
}

/* Adds to the ACTIVE and EMPTY slots of the client's heap; a shared client updates the totals directly. */
HAK_INLINE void account_change(struct client *c, int32_t active, int32_t empty) {
    unlikely(c->is_shared) ? (void)rmw_add(&hak_account.slots, account_pair(active, empty))
                           : (void)(c->since.active += active, c->since.empty += empty);
}
/* Adds to the totals what the client has counted, which counts from 0 again. Returns how many EMPTY slots there are
 * then. */
size_t account_settle(struct client *c);
/* Counts `slots` that are to become resident. False: there would be more than `max`, and nothing is counted. */
bool account_add_resident(size_t slots, size_t max);
/* Counts slots that become resident, whatever the limits. Negative: slots that did not become resident after all. */
HAK_INLINE void account_count_resident(ptrdiff_t slots) { rmw_add(&hak_account.slots, account_pair(slots, 0)); }
/* The number of EMPTY slots changes at once: nobody is refused what is being purged. */
HAK_INLINE void account_count_empty(ptrdiff_t slots) { rmw_add(&hak_account.slots, account_pair(0, slots)); }

/* Counts LAZY slots, which are not among the resident ones. Negative: there are fewer. */
HAK_INLINE void account_count_lazy(ptrdiff_t slots) { rmw_add(&hak_account.lazy_slots, slots); }
HAK_INLINE size_t account_lazy_slots(void) { return account_not_negative(load_relaxed(&hak_account.lazy_slots)); }

/* Bytes of ACTIVE slots that were given back inside slabs, and not used again since. */
HAK_INLINE void account_count_inside(ptrdiff_t bytes) { rmw_add(&hak_account.inside_bytes, bytes); }
HAK_INLINE size_t account_inside_bytes(void) { return account_not_negative(load_relaxed(&hak_account.inside_bytes)); }

/* Slabs that are noted to have changed. */
HAK_INLINE void account_count_changed(ptrdiff_t slabs) { rmw_add(&hak_account.changed_slabs, slabs); }
HAK_INLINE size_t account_changed_slabs(void) { return account_not_negative(load_relaxed(&hak_account.changed_slabs)); }

/* SuperSlabs that are wholly empty and resident. */
HAK_INLINE void account_count_cached(int change) { rmw_add(&hak_account.cached_superslabs, change); }
HAK_INLINE size_t account_cached_superslabs(void) {
    return account_not_negative(load_relaxed(&hak_account.cached_superslabs));
}

/* The time of the last settling in milliseconds: a cheap clock that may be slow. */
HAK_INLINE uint32_t account_clock_ms(void) { return load_relaxed(&hak_account.clock_ms); }
HAK_INLINE void account_set_clock(uint32_t now_ms) { store_relaxed(&hak_account.clock_ms, now_ms); }
