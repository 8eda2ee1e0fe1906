/* The ledger: what each class of a heap allocated, and how often that took a slow path. Written on slow paths alone, in
 * every build.
 *
 *  1. Tiny: allocations are counted exactly, though no hit counts. Each block that enters the heap's list was counted
 *     by a slow path: a refill knows how many it brings, and the current slab's countdown counts the frees that push
 *     onto the list. So allocations are the blocks that entered, less those that left with their slab, less those
 *     listed now.
 *  2. Mid and large: a ring counts what is popped from it in the word that a hit writes anyway (ring.h). Allocations
 *     are these pops plus the misses. The ledger has the misses, and the blocks that refills of mid rings brought.
 *  3. If learn/ wants to know (hooks_learn_times), one miss in LEDGER_TIMED is timed; reading the clock at each would
 *     make a miss a tenth longer.
 *
 * The heap's thread writes; any thread reads, and finds recent values. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "base/os.h"
#include "process/hooks.h"
#include "process/tunables.h"

enum { LEDGER_TIMED = 16 };

/* What a class costs; rings come behind the tiny classes, as in tunables.h. */
struct ledger_row {
    _Atomic uint64_t
        blocks; /* tiny: that entered the heap's list, less those that left with their slab; mid: of refills */
    _Atomic uint64_t misses; /* allocations that found no block in the list or ring */
    _Atomic uint64_t ns;     /* the time that the timed misses took, one in LEDGER_TIMED … */
    _Atomic uint64_t timed;  /* … and how many were timed */
};

/* The sums of rows that heaps no longer have; changed by read-modify-writes. When a thread ends its rows of rings are
 * added here, so only a heap in use has any. The rows of tiny classes stay in the heap, as its counters do, and the
 * heap's next thread goes on with them. */
extern HAK_HIDDEN struct ledger_row hak_ledger_ended[TUNED_CLASSES];
/* Adds the heap's rows from class `from` on to hak_ledger_ended, and clears them. */
void ledger_close(struct ledger_row *rows, unsigned from);

HAK_INLINE void ledger_add(_Atomic uint64_t *n, uint64_t more) { store_relaxed(n, load_relaxed(n) + more); }

/* A miss of the row begins. Returns the time, or 0: this miss is not timed. */
HAK_INLINE uint64_t ledger_begin(const struct ledger_row *row) {
    return hooks_learn_times() && load_relaxed(&row->misses) % LEDGER_TIMED == 0 ? os_now_ns() : 0;
}
/* A timed miss is over, which began at `began`. */
HAK_COLD void ledger_note_time(struct ledger_row *row, uint64_t began);
HAK_INLINE void ledger_end(struct ledger_row *row, uint64_t began) {
    unlikely(began != 0) ? ledger_note_time(row, began) : (void)0;
}
