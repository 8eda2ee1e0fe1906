/* Where a heap finds slots and slabs: in the SuperSlabs of its arena, or in those of the process.
 *
 *  1. The process's SuperSlabs are found through the sets of superslab.h. An arena's SuperSlabs are in one of these
 *     sets alone, SET_ARENA_EMPTY, by which EMPTY slots are purged. An arena's heaps walk the arena's list of
 *     SuperSlabs instead; hints in the arena's record say when a walk is worth it.
 *  2. A SuperSlab that joins an arena is wholly free and claimed, so that nobody else takes slots of it. It stays there
 *     until the arena ends. A thread that finds it by an old hint takes the slot, the slab or the blocks first and then
 *     looks at `arena`: what is taken cannot change hands.
 *
 * Any thread calls anything, with its own client; nothing waits. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "space/arena_record.h"
#include "space/superslab.h"

/* Takes a span in the SuperSlabs of the client's arena, which gets a further SuperSlab if none has room. BITSET_NONE:
 * no memory. */
size_t arena_take_span(struct superslab_wish *wish);
/* As superslab_claim_free_run, among the arena's SuperSlabs. BITSET_NONE: there is none. */
size_t arena_claim_run(struct client *c, unsigned from, size_t n, size_t align);
/* Gives the arena SuperSlabs all of whose slots are ACTIVE. */
void arena_join(uint32_t number, size_t first, size_t n);
/* The next SuperSlab of a list, as number + 1; 0: that was the last one. */
HAK_INLINE uint32_t arena_next(uint32_t superslab) { return load_relaxed(&superslab_at(superslab - 1)->next_in_arena); }

/* Where there are several nodes: counts that the client took something in the SuperSlab of that slot, on its node or
 * another. */
HAK_INLINE void space_count_take(struct client *c, size_t slot, unsigned here) {
    count(&c->counters, superslab_node(slot / SUPERSLAB_SLOTS) == here ? COUNT_node_own : COUNT_node_other);
}
/* As superslab_take_offer and superslab_take_inbox_offer, for the client's arena, or for the process on the thread's
 * node (on any, if the client takes anywhere). */
size_t space_take_offer(struct client *c, unsigned class_id);
size_t space_take_inbox_offer(struct client *c, unsigned class_id);
/* Whether space_take_offer may find something. */
bool space_may_offer_choosily(const struct client *c, unsigned class_id);
bool space_may_offer_inbox_choosily(const struct client *c, unsigned class_id);
HAK_INLINE bool space_may_offer(const struct client *c, unsigned class_id) {
    return likely(!c->is_choosy) ? !bitset_is_empty(&hak_region.sets, SET_OFFER + class_id)
                                 : space_may_offer_choosily(c, class_id);
}
HAK_INLINE bool space_may_offer_inbox(const struct client *c, unsigned class_id) {
    return likely(!c->is_choosy) ? !bitset_is_empty(&hak_region.sets, SET_INBOX + class_id)
                                 : space_may_offer_inbox_choosily(c, class_id);
}
/* As superslab_next_active, in the SuperSlabs of the client's arena or of the process. */
size_t space_next_active(const struct client *c, size_t slot);
/* Whether a heap of the client may give back free pages of the SuperSlab. Lanes are the process's, and never end. */
HAK_INLINE bool space_may_trim(const struct client *c, size_t superslab) {
    uint32_t arena = superslab_arena(superslab);
    return arena == c->arena ||
           ((c->arena == 0 || c->is_lane) && (arena == 0 || load_relaxed(&arena_numbered(arena)->is_lane)));
}
/* As superslab_next_active_in, in the SuperSlabs where the client may do that. */
size_t space_next_to_trim(const struct client *c, size_t slot, struct superslab_range in);
