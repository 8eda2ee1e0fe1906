/* Which allocations are sampled: each byte allocated is a hit with the same small chance, whatever allocates it, so a block
 * is sampled with the chance 1 - exp(-bytes / mean), and no hit path knows about it.
 *
 *  1. Tiny: for each heap and class a geometric number of blocks, `left`, may be handed out before the one to be sampled. Of a
 *     list that a refill yields the heap gets at most half of that, the rest waits beside it; and the countdown of the current
 *     slab is bounded by the other half. So, though pops are not counted, a slow path comes before the sampled one is due.
 *     There they are counted: what was in the list, and was pushed, and is not there any more. If some blocks are left the list
 *     is cut again; if none are it is left empty, and the next malloc of the class is sampled.
 *  2. Above: an exponential number of bytes. A flag makes all allocations miss the rings' hit path.
 *  3. Arrivals have no memory, so each class and each heap may have its own; and a draw may be thrown away for a new one.
 *  4. Each heap sees at its next slow path that hak_profile.wanted_bytes is another, and begins anew.
 *
 * A sampled tiny request gets a block of a mid class, whose state byte shows it: so no free of it is a hit, either. All is
 * for the owner of the heap, on slow paths. */
/* SPDX-License-Identifier: MIT */
#ifndef HAK_SAMPLE_H
#define HAK_SAMPLE_H

#include "heap.h"
#include "links.h"

#define SAMPLE_UNCOUNTED UINT32_MAX

enum sample_kind { SAMPLE_PROFILE = 1, SAMPLE_GUARD = 2 };

HAK_INLINE bool sample_on(const struct heap *h) { return h->sample.mean_bytes != 0; }
/* Begins, or ends with 0, the heap profile. Any thread. */
void sample_switch(uint64_t mean_bytes);
/* Something is to be done: slow paths ask. */
HAK_INLINE bool sample_wanted(const struct heap *h) {
    return load_relaxed(&hak_profile.wanted_bytes) != h->sample.wanted ||
           load_relaxed(&h->caches_flags) & CACHES_SAMPLED;
}
/* One allocation of so many bytes; of that class if it is tiny, else TINY_CLASSES. */
struct sample {
    unsigned kinds; /* enum sample_kind; 0: it is not sampled */
    double chance;  /* that it had to come into the profile */
};
struct sample sample_due(struct heap *h, size_t bytes, unsigned tiny_class);

HAK_INLINE bool sample_is_set_up(const struct heap *h) {
    return load_relaxed(&hak_profile.wanted_bytes) == h->sample.wanted && sample_on(h);
}
/* The next block, of so many bytes and not tiny, is not sampled: it is counted. False: sample_due knows. */
HAK_INLINE bool sample_passes(struct heap *h, size_t bytes) {
    if (unlikely(h->sample.bytes_left < (int64_t)bytes || !sample_is_set_up(h))) /* of another profile */
        return false;
    h->sample.bytes_left -= (int64_t)bytes;
    return true;
}

/* ---- from the slow paths of tiny ---- */

/* The next block of the class is not sampled; refills count it. */
bool sample_is_far_in_class(struct heap *h, unsigned class_id);

/* The countdown of the current slab ended. True: nothing is to be done about the slab yet. */
bool sample_look(struct heap *h, unsigned class_id);
void sample_cut(struct heap *h, unsigned class_id, unsigned blocks);
void sample_take_back(struct heap *h, unsigned class_id);

/* The heap's list holds `blocks`, or SAMPLE_UNCOUNTED, and the countdown was set. */
HAK_INLINE void sample_refilled(struct heap *h, unsigned c, unsigned blocks) {
    if (unlikely(sample_on(h)))
        sample_cut(h, c, blocks);
}
/* The list is that of a slab that became current; sample_refilled or sample_handed_out follows. */
HAK_INLINE void sample_made_current(struct heap *h, unsigned c, unsigned blocks) {
    if (unlikely(sample_on(h)))
        h->sample.tiny[c].had = blocks, h->sample.tiny[c].seen = h->current[c]->countdown;
}
/* It held `blocks`, and the first was handed out. */
HAK_INLINE void sample_handed_out(struct heap *h, unsigned c, unsigned blocks) {
    if (likely(!sample_on(h)))
        return;
    h->sample.tiny[c].left -= h->sample.tiny[c].left != 0;
    sample_cut(h, c, blocks != SAMPLE_UNCOUNTED ? blocks - 1 : blocks);
}
/* The list is about to be taken from the heap: it becomes whole. */
HAK_INLINE void sample_emptied(struct heap *h, unsigned c) {
    if (unlikely(sample_on(h)))
        sample_take_back(h, c);
}
/* If the list is empty, what was cut off becomes it. */
HAK_INLINE void sample_rejoin(struct heap *h, unsigned c) {
    if (unlikely(h->sample.tiny[c].rest != 0) && is_no_block(h->list[c]))
        sample_take_back(h, c);
}
/* Blocks in the list, if that is known. */
HAK_INLINE unsigned sample_listed(const struct heap *h, unsigned c) {
    return h->sample.tiny[c].had != 0 ? h->sample.tiny[c].had : SAMPLE_UNCOUNTED;
}

#endif
