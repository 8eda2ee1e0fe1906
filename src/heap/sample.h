/* Which allocations are sampled: each byte allocated is a hit with the same small chance, whatever allocates it. So a
 * block is sampled with the chance 1 - exp(-bytes / mean), and no hit path knows about sampling.
 *
 *  1. Tiny: for each heap and class, a geometric number of blocks, `left`, may be handed out before the one to sample.
 *     A list from a refill is cut to half of `left`; its rest waits beside it. The current slab's countdown is bounded
 *     by the other half. So, though pops are not counted, a slow path runs before the sample is due. The slow path
 *     recovers the count as listed before + pushed - listed now. If blocks are left, the list is cut again; if none
 *     are, the list is left empty, and the next malloc of the class is sampled.
 *  2. Larger blocks: an exponential number of bytes. A flag makes all allocations miss the rings' hit path.
 *  3. Arrivals have no memory, so each class and heap may have its own count, and a draw may be replaced by a new one.
 *  4. At its next slow path each heap notices that hak_asked.wanted or GUARD_SAMPLE_BYTES has changed, and begins
 *     anew.
 *
 * A sampled tiny request gets a block of a mid class, whose state byte marks it, so its free is no hit, either. Only
 * the heap's owner calls these functions, on slow paths, except for sample_changed. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "base/options.h"
#include "blocks/links.h"
#include "heap/heap.h"
#include "process/asked.h"

#define SAMPLE_UNCOUNTED UINT32_MAX

enum sample_purpose { SAMPLE_PROFILE = 1, SAMPLE_GUARD = 2 };

HAK_INLINE bool sample_on(const struct heap *h) { return load_relaxed(&h->sample.mean_bytes) != 0; }
/* Called after a change of what is wanted, by any thread. `more`: samples are wanted, so no ring may serve past
 * them. */
void sample_changed(bool more);
/* Whether the heap's sampling is what the profile and GUARD_SAMPLE_BYTES want now. */
HAK_INLINE bool sample_is_current(const struct heap *h) {
    return load_relaxed(&hak_asked.wanted) == h->sample.wanted &&
           option(OPT_GUARD_SAMPLE_BYTES) == h->sample.guard_wanted;
}
/* Whether slow paths have to see to sampling: it is on, or has been switched. */
HAK_INLINE bool sample_wanted(const struct heap *h) {
    return !sample_is_current(h) || load_relaxed(&h->caches_flags) & CACHES_SAMPLING;
}
/* sample_due counts an allocation of `bytes` and tells whether it is sampled. tiny_class: TINY_CLASSES if not tiny. */
struct sample {
    unsigned purposes; /* enum sample_purpose; 0: it is not sampled */
    double chance;     /* with which the block comes into the profile */
};
struct sample sample_due(struct heap *h, size_t bytes, unsigned tiny_class);

HAK_INLINE bool sample_is_set_up(const struct heap *h) { return sample_is_current(h) && sample_on(h); }
/* If the next block, of `bytes` and not tiny, is surely not sampled: counts it. False: ask sample_due. */
HAK_INLINE bool sample_passes(struct heap *h, size_t bytes) {
    if (unlikely(h->sample.bytes_left < (int64_t)bytes ||
                 !sample_is_set_up(h))) /* or bytes_left was for another profile */
        return false;
    h->sample.bytes_left -= (int64_t)bytes;
    return true;
}

/* ---- from the slow paths of tiny ---- */

/* Whether the next block of the class is surely not sampled. The refill will count the block. */
bool sample_is_far_in_class(struct heap *h, unsigned class_id);

/* Called when the current slab's countdown ends. True: it ended early, for sampling, and the slab needs nothing yet. */
bool sample_countdown_ended(struct heap *h, unsigned class_id);

/* The following are called only while there is sampling. The heap's list now holds `blocks`, or SAMPLE_UNCOUNTED, and
 * the countdown was set. */
void sample_cut(struct heap *h, unsigned class_id, unsigned blocks);
/* The list came from a slab that became current. A call of sample_cut or sample_handed_out follows. */
void sample_made_current(struct heap *h, unsigned class_id, unsigned blocks);
/* The list held `blocks`, and the first of them was handed out. */
void sample_handed_out(struct heap *h, unsigned class_id, unsigned blocks);
/* The list is about to be taken from the heap: the part that was cut off joins it again. */
void sample_take_back(struct heap *h, unsigned class_id);
/* If the list is empty, the part that was cut off becomes the list. */
void sample_rejoin(struct heap *h, unsigned class_id);

/* The blocks in the list, or SAMPLE_UNCOUNTED. */
HAK_INLINE unsigned sample_listed(const struct heap *h, unsigned c) {
    return h->sampled[c].had != 0 ? h->sampled[c].had : SAMPLE_UNCOUNTED;
}
