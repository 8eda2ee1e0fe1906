/* SuperSlabs: the word that tells the state of 32 slots, the sets that lead to SuperSlabs, and the slabs on offer.
 *
 *  1. The truth about a SuperSlab is one 64-bit word: the low half has a bit for each ACTIVE slot, the high half one
 *     for each resident slot. UNUSED slots have neither bit, EMPTY ones only the resident one. A span is taken or given
 *     by one compare-and-swap on the word.
 *  2. An UNUSED slot whose bit is set in `lazy` is LAZY: the system may take its pages but need not have, so its
 *     contents are old or zero. Only whoever has the slot ACTIVE changes the bit; the word carries it along to the next
 *     taker.
 *  3. Sets of SuperSlabs (bitset.h) are hints. Whoever changes a word adds the SuperSlab to the sets it now belongs to;
 *     whoever finds a member that does not belong to a set removes it and then reads the word again.
 *  4. A slab on offer has a byte with its class in the SuperSlab's record. That byte is a hint too: the slab's record
 *     decides.
 *  5. A SuperSlab belongs to the NUMA node of the thread that took it while it had no memory, and is in that node's
 *     sets. It keeps the node until it is wholly purged; then it may serve any node. A search looks at the SuperSlabs
 *     of one node; only when new memory is refused it looks at those of all nodes.
 *
 * Any thread calls anything; nothing waits. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "machine/nodes.h"
#include "region/account.h"
#include "region/region.h"
#include "space/arena_record.h"

#define ALL_SLOTS UINT32_MAX

HAK_INLINE uint32_t word_active(uint64_t w) { return (uint32_t)w; }
HAK_INLINE uint32_t word_resident(uint64_t w) { return (uint32_t)(w >> 32); }
HAK_INLINE uint64_t word_of(uint32_t active, uint32_t resident) { return active | (uint64_t)resident << 32; }
HAK_INLINE uint32_t span_mask(unsigned start, unsigned slots) { return (uint32_t)(low_bits(slots) << start); }
/* Wholly empty, and resident. */
HAK_INLINE bool word_is_cached(uint64_t w) { return word_active(w) == 0 && word_resident(w) != 0; }

/* ---- arenas ---- */

HAK_INLINE uint32_t superslab_arena(size_t superslab) { return load_relaxed(&superslab_at(superslab)->arena); }
/* Whether the SuperSlab, or the slab, belongs to the client's arena; for a client without arena, whether it belongs to
 * none. */
HAK_INLINE bool superslab_is_for(const struct client *c, size_t superslab) {
    return superslab_arena(superslab) == c->arena;
}
HAK_INLINE bool slab_is_for(const struct client *c, const struct slab *s) {
    return superslab_is_for(c, slot_of(s) / SUPERSLAB_SLOTS);
}

/* The byte that notes an offer. An arena's has a flag, so that no search of the process's takes it. */
#define OFFER_IN_ARENA 0x80u
_Static_assert((unsigned)CLASSES < OFFER_IN_ARENA, "room for the flag");
HAK_INLINE uint8_t offer_tag(uint32_t arena, unsigned class_id) {
    return (uint8_t)((class_id + 1) | (arena != 0 ? OFFER_IN_ARENA : 0));
}

/* ---- nodes ---- */

/* Stands for all nodes where a node may be named. */
#define NODE_ANY UINT32_MAX

HAK_INLINE unsigned superslab_node(size_t superslab) { return load_relaxed(&superslab_at(superslab)->node); }
/* The node on which the calling thread runs. Asked whenever a heap takes something from the pool, because the thread
 * may have moved. */
HAK_INLINE unsigned node_here(void) { return likely(hak_region.nodes == 1) ? 0 : nodes_here(); }
/* The number of a set among those of a node. */
HAK_INLINE size_t set_of_node(unsigned set, unsigned node) { return set + node * hak_region.node_sets; }

/* Whether a search of `node`, or of NODE_ANY, may take something from the SuperSlab, whose word is `w`. One without
 * memory serves any node. */
HAK_INLINE bool superslab_is_of_node(size_t superslab, uint64_t w, unsigned node) {
    return likely(superslab_node(superslab) == node) || node == NODE_ANY ||
           (word_resident(w) == 0 && load_relaxed(&superslab_at(superslab)->lazy) == 0);
}

size_t superslab_find_of_nodes(unsigned set, unsigned node, size_t from);
size_t superslab_find_last_of_nodes(unsigned set, size_t below);
/* The lowest member at or after `from` of the set of a node, or of all nodes. BITSET_NONE: there is none. */
HAK_INLINE size_t superslab_find(unsigned set, unsigned node, size_t from) {
    return likely(hak_region.nodes == 1) ? bitset_find(&hak_region.sets, set, from)
                                         : superslab_find_of_nodes(set, node, from);
}
/* Are the sets of all nodes empty? */
HAK_INLINE bool superslab_set_is_empty(unsigned set) {
    return likely(hak_region.nodes == 1) ? bitset_is_empty(&hak_region.sets, set)
                                         : superslab_find_of_nodes(set, NODE_ANY, 0) == BITSET_NONE;
}
/* The highest member below `below` of the sets of all nodes. */
HAK_INLINE size_t superslab_find_last(unsigned set, size_t below) {
    return likely(hak_region.nodes == 1) ? bitset_find_last(&hak_region.sets, set, below)
                                         : superslab_find_last_of_nodes(set, below);
}

/* ---- sets ---- */

/* Called by whoever has changed the word: adds the SuperSlab to the sets it now belongs to, and counts the cached
 * ones. */
void superslab_changed(size_t superslab, uint64_t before, uint64_t after);
/* Removes a member that does not belong to the set of the node, and adds it to the set of its own node if it belongs
 * there. */
void superslab_check_hint_of(unsigned set, unsigned node, size_t superslab);
void superslab_check_hints_of_nodes(unsigned set, size_t superslab);
/* Does that for the sets of all nodes. */
HAK_INLINE void superslab_check_hint(unsigned set, size_t superslab) {
    likely(hak_region.nodes == 1) ? superslab_check_hint_of(set, 0, superslab)
                                  : superslab_check_hints_of_nodes(set, superslab);
}

/* ---- spans ---- */

struct superslab_wish {
    struct client *client;
    unsigned slots, align, tag; /* see pool_take */
    unsigned further;           /* spans to take besides, if EMPTY slots allow them */
    unsigned spans;             /* out: how many were taken … */
    uint32_t taken;             /* … the slots of all of them … */
    uint32_t was_resident;      /* … and those that were EMPTY */
    bool was_cached;            /* out: the SuperSlab was wholly free, and resident */
    unsigned node, from;        /* the node where the taker runs; the node that it searches, or NODE_ANY */
};

/* Each takes a span and returns its first slot, or BITSET_NONE: in_use from SuperSlabs in use, cached from wholly free
 * ones with memory, clean from wholly free ones without; superslab_take from the SuperSlab that is named, which must be
 * in use or, with `whole`, wholly free. */
size_t superslab_take_in_use(struct superslab_wish *wish);
size_t superslab_take_cached(struct superslab_wish *wish);
size_t superslab_take_clean(struct superslab_wish *wish);
size_t superslab_take(size_t superslab, bool whole, struct superslab_wish *wish);
/* Takes just this slot, if it is the process's and free. *resident: the slot was EMPTY; *cached: its SuperSlab was a
 * cached one. */
bool superslab_take_slot(size_t slot, struct client *c, unsigned node, bool *resident, bool *cached);
bool superslab_is_free_slot(size_t slot, uint64_t w);
HAK_INLINE bool superslab_may_take_slot(size_t slot) {
    uint64_t w = load_relaxed(&superslab_at(slot / SUPERSLAB_SLOTS)->word);
    return unlikely(!(word_active(w) >> slot % SUPERSLAB_SLOTS & 1)) && superslab_is_free_slot(slot, w);
}
/* Takes the slots behind a span, so that it grows from `slots` to `wanted`. *was_resident: the bits of those that were
 * EMPTY. */
bool superslab_extend(size_t slot, unsigned slots, unsigned wanted, unsigned *was_resident);
/* Undoes one of these: nobody has touched the slots that were taken. */
void superslab_put_back(size_t superslab, uint32_t taken, uint32_t was_resident);
/* The slots were part of slabs of a class; `tag` is that class + 1. Nothing happens if `tag` is 0. */
void superslab_note_class(size_t superslab, uint32_t slots, unsigned tag);
/* Gives these slots of one SuperSlab, whole spans. They become EMPTY if `kept`, else UNUSED. Returns the word
 * afterwards. */
uint64_t superslab_give(size_t superslab, uint32_t slots, unsigned tag, bool kept);

/* Marks slots that are ACTIVE and the caller's: they become LAZY as soon as the caller gives them as UNUSED. */
void superslab_begin_lazy(size_t superslab, uint32_t slots);
/* Which of the slots, ACTIVE and the caller's, are still marked as LAZY, and so are not known to be zero. The word has
 * carried the bits along, so relaxed is enough. */
HAK_INLINE uint32_t superslab_lazy_in(size_t superslab, uint32_t slots) {
    return load_relaxed(&superslab_at(superslab)->lazy) & slots;
}
/* The slots `lazy` are no longer LAZY. */
void superslab_end_lazy(size_t superslab, uint32_t lazy);

/* Programs touch all of a block up to this size, but may touch only a part of a larger one. `tag`: class + 1, or 0. */
#define TOUCHED_WHOLE_MAX (8 * KIB)
HAK_INLINE bool superslab_is_touched_whole(unsigned tag) {
    return tag != 0 && size_classes[tag - 1].block_bytes <= TOUCHED_WHOLE_MAX;
}
/* Is the slot's memory resident before it is touched, zero or not? */
HAK_INLINE bool superslab_has_huge_page(size_t slot) {
    return load_relaxed(&superslab_at(slot / SUPERSLAB_SLOTS)->huge) == HUGE_WHOLE;
}
/* Does the first touch of the slot make all of it resident? */
HAK_INLINE bool superslab_has_folios(size_t slot) {
    return load_relaxed(&hak_region_use.folios) == FOLIOS_USED && slot >= REGION_FOLIOS_FROM * SUPERSLAB_SLOTS &&
           load_relaxed(&superslab_at(slot / SUPERSLAB_SLOTS)->huge) == HUGE_NONE;
}
/* The slots that are UNUSED and not LAZY: their memory is zero. Whoever gave a LAZY slot had set the bit before the
 * word. */
HAK_INLINE uint32_t superslab_zero_slots(size_t superslab) {
    uint64_t w = load_acquire(&superslab_at(superslab)->word);
    return ~(word_active(w) | word_resident(w) | superslab_lazy_in(superslab, UINT32_MAX));
}
/* Was the slot ever part of a slab? */
HAK_INLINE bool superslab_had_slab(size_t slot) {
    return load_relaxed(&superslab_at(slot / SUPERSLAB_SLOTS)->last_class[slot % SUPERSLAB_SLOTS]) != 0;
}

/* ---- slabs that changed ---- */

/* Notes that the slab at `slot` changed, after the change: it may have got whole free pages (pages.h). A hint. The
 * load pairs with a look, which forgets the bit and then reads whether it may have the slab: one sees the other. */
void superslab_note_changed_anew(size_t slot);
HAK_INLINE void superslab_note_changed(size_t slot) {
    _Atomic uint32_t *changed = &superslab_at(slot / SUPERSLAB_SLOTS)->changed;
    if (!(PROVEN(note_look, load_seq(changed)) >> slot % SUPERSLAB_SLOTS & 1))
        superslab_note_changed_anew(slot);
}
/* Forgets the notes of these slots. */
void superslab_forget_changed(size_t superslab, uint32_t slots);
/* The first slot at or after this one whose slab is noted, or BITSET_NONE. */
size_t superslab_next_changed(size_t slot);

/* ---- runs of whole SuperSlabs ---- */

/* Claims a run of `n` wholly free SuperSlabs of the process, the first at a multiple of `align` SuperSlabs, which have
 * memory of the node `from` (or NODE_ANY) or none. BITSET_NONE if there is none. */
size_t superslab_claim_free_run(struct client *c, unsigned from, size_t n, size_t align);
/* Claims just this run, which is the arena's (0: the process's). Returns how many of its SuperSlabs, from `first` on,
 * are free; `n`: the run is claimed. */
size_t superslab_claim_run(struct client *c, uint32_t arena, unsigned from, size_t first, size_t n);
void superslab_unclaim_run(size_t first, size_t n);
/* What a claimed run has: EMPTY and LAZY slots, SuperSlabs with EMPTY slots, and when a slot last became LAZY. */
struct run_contents {
    size_t empty, lazy, cached;
    uint32_t lazy_ms;
};
struct run_contents superslab_run_contents(size_t first, size_t n);
/* Both make all slots of a run ACTIVE and resident: superslab_occupy_run those of a claimed run, superslab_begin_run
 * those of a new one. SuperSlabs that had no memory are the node's from now on. */
void superslab_occupy_run(size_t first, size_t n, unsigned node);
void superslab_begin_run(size_t first, size_t n, unsigned node);
/* Gives a run, whose slots become EMPTY if `resident`, else UNUSED. */
void superslab_give_run(size_t first, size_t n, bool resident);
/* SuperSlabs that nobody has had yet become available. */
void superslab_give_new(size_t first, size_t n);
/* The caller's SuperSlabs have lost their memory, and wait to be mapped again. */
void superslab_put_unmapped(size_t first, size_t n);
/* One SuperSlab that waited for memory gets it and becomes available. False: there is none, or still no memory. */
bool superslab_map_waiting(void);
/* Gives memory to `slots` slots, or to what is left, of a SuperSlab that cannot have memory as a whole: *superslab. */
bool superslab_map_slots(unsigned slots, size_t *superslab);

/* ---- slabs on offer ---- */

/* Puts a slab with free blocks on offer for `class_id`; its owner and its blocks are visible already. */
void superslab_offer(size_t slot, unsigned class_id);
HAK_INLINE bool superslab_is_offered(size_t slot, unsigned class_id) {
    size_t superslab = slot / SUPERSLAB_SLOTS;
    uint8_t offer = load_relaxed(&superslab_at(superslab)->offer[slot % SUPERSLAB_SLOTS]);
    return offer == offer_tag(superslab_arena(superslab), class_id);
}
/* Takes an offer of the class on the node and returns its slot, or BITSET_NONE. The caller checks the slab's record. */
size_t superslab_take_offer(struct client *c, unsigned class_id, unsigned node);
/* The first slot of this thread's node at or after this one that is on offer for the class, else the lowest one, or
 * BITSET_NONE. It stays on offer. */
size_t superslab_next_offer(unsigned class_id, size_t slot);
/* Offers, and takes, tiny slabs with a well-filled inbox. */
void superslab_offer_inbox(size_t slot, unsigned class_id);
size_t superslab_take_inbox_offer(struct client *c, unsigned class_id, unsigned node);
/* Both look in one SuperSlab. The first takes the lowest slot with this offer; 32: there is none. The second takes one
 * of the `slots` whose slab has the class, or returns BITSET_NONE. */
unsigned superslab_take_offer_in(struct superslab *ss, uint8_t offer);
size_t superslab_take_inbox_offer_in(size_t superslab, _Atomic uint32_t *slots, unsigned class_id);

/* ---- walks ---- */

/* The next ACTIVE slot at or after this one, or BITSET_NONE. Does not touch the records of slots in SuperSlabs that
 * were never in use. */
size_t superslab_next_active(size_t slot);
/* As superslab_next_active, in the SuperSlabs of the range. */
size_t superslab_next_active_in(size_t slot, struct superslab_range in);

struct superslab_totals {
    size_t active_slots, empty_slots, lazy_slots, superslabs, superslabs_peak;
};
/* Exact, by reading every word; `superslabs` counts those in use. */
void superslab_count(struct superslab_totals *totals);
/* ACTIVE and EMPTY slots in the SuperSlabs of a node, by reading every word. */
size_t superslab_slots_of_node(unsigned node);
