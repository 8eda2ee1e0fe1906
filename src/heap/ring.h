/* Rings: for each mid class and large size a heap keeps an array of free blocks, the newest on top. malloc takes the
 * newest, free puts one on top; neither touches the block.
 *
 * The sum of the rings' caps is bounded, not what they hold, so that the hit path counts nothing.
 *  1. A ring that runs full after it ran empty, or empty after full, is too small: its cap doubles.
 *  2. A ring that runs full ring_spills times (tunables.h) in a row is in a phase that only frees: its cap halves, so
 *     that little stays. When it runs empty again its cap is twice what it was before the phase.
 *  3. When the bytes are used up, the cap of the largest ring is halved, even if that is the ring that wants more, and
 *     the blocks beyond the new cap go back.
 *  4. Each of these times one other ring is checked: blocks beyond the cap that its option allows go back, and half of
 *     all its blocks if none was put in or taken since its last check.
 *  5. A ring whose cap is to grow beyond its room moves to a place with more room; the old place stays unused.
 *  6. A ring that is neither empty nor full has no slow path. So hak_option_set tells every heap, whose next allocation
 *     from a ring takes the slow path and lowers the caps.
 *
 * The heap's thread touches a ring between caches_enter and caches_leave, the purger while the caches are frozen
 * (heap.h). */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "base/fail.h"
#include "blocks/block.h"
#include "blocks/kinds.h"
#include "heap/sample.h"
#include "process/tunables.h"

enum { RING_BLOCKS_MAX = 1024, RING_PIECE_BLOCKS = 24, RING_HELD_BITS = 16 };

/* A free block of a mid class or large size, and its state byte, so that malloc need not look anything up. */
struct ring_entry {
    uintptr_t block;
    _Atomic uint8_t *state;
};

/* A stack of them, newest on top. Above the bits of `blocks`, `held_and_popped` counts the blocks that malloc took from
 * the ring: one addition changes both, so that hits are counted at no cost. */
struct ring {
    union {
        uint64_t held_and_popped;
        uint16_t blocks; /* held now */
    };
    uint16_t cap;         /* how many it may hold; adapted on slow paths */
    uint16_t room;        /* length of `entry` */
    uint16_t block_kib;   /* size of a block, rounded up */
    uint32_t seen;        /* the lower half of held_and_popped at the last check */
    uint16_t turn_cap;    /* cap when it last ran full after empty, or empty after full */
    uint8_t spills;       /* times it ran full since it last ran empty */
    uint8_t refilled;     /* it ran empty since it last ran full */
    uint8_t index;        /* its index in the heap's table */
    uint8_t misses;       /* large: misses of malloc in a row, with nothing freed or spilled in between */
    uint8_t came_besides; /* large: further blocks that the last miss asked for … */
    uint32_t missed_at;   /* … and how many had been popped then, modulo 2^32 */
    struct ring *next;    /* the heap's next ring */
    struct slab *from;    /* mid: the slab in which the last refill left blocks; a hint */
    struct ring_entry entry[];
};

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "blocks are the low bits");
HAK_INLINE uint64_t ring_pops(const struct ring *ring) { return ring->held_and_popped >> RING_HELD_BITS; }
/* Takes the newest block out of a ring that is not empty. */
HAK_INLINE struct ring_entry ring_take(struct ring *ring) {
    struct ring_entry newest = ring->entry[ring->blocks - 1];
    ring->held_and_popped += ((uint64_t)1 << RING_HELD_BITS) - 1;
    return newest;
}
/* How many blocks were popped from the rings of threads that have ended. Changed by read-modify-writes. */
extern HAK_HIDDEN _Atomic uint64_t hak_ring_hits_ended[RING_CLASSES];

/* The kind of the blocks in a ring. */
HAK_INLINE const struct kind *ring_kind(unsigned index) { return index < MID_CLASSES ? &kind_mid : &kind_large; }

/* ---- a block in, a block out ---- */

/* The state of a block that leaves a ring. False: two threads freed the block at the same moment, and the other's ring
 * has given it back or handed it out. */
HAK_INLINE bool ring_had(uint8_t state) { return state & BLOCK_CACHED; }
_Static_assert((BLOCK_CACHED & (BLOCK_LIVE | BLOCK_FREE)) == 0, "no other state has the bit");
/* Reports two such frees; the block is left alone. */
HAK_COLD void ring_fail_twice(uintptr_t block, size_t block_bytes);
/* Report the same of a block that was to be handed out. The first returns no block; the second, as its last step, what
 * `otherwise` allocates. */
HAK_COLD struct ring_entry ring_popped_twice(struct ring_entry e);
HAK_COLD void *ring_after_twice(struct ring_entry e, size_t bytes, void *(*otherwise)(size_t bytes));
/* The last writer of the state decides: whoever takes the block out while it is cached owns it, and makes it live. */
HAK_INLINE struct ring_entry ring_checked(struct ring_entry e) {
    return likely(PROVEN(popped_twice, ring_had(load_relaxed(e.state)))) ? e : ring_popped_twice(e);
}

/* The hit paths of mid and large: the newest block of the ring, block 0 if there is none … */
HAK_INLINE struct ring_entry ring_pop(struct heap *h, unsigned index) {
    struct ring_entry e = {0, NULL};
    if (likely(caches_enter(h))) {
        struct ring *ring = h->ring[index];
        if (likely(ring != NULL && ring->blocks != 0))
            e = ring_checked(ring_take(ring));
    }
    caches_leave(h);
    return e;
}
/* As ring_pop, but unchecked, and counts the block for sampling. No hit if a block of `bytes` is due to be sampled, or
 * if one of the flags `never` is set. */
HAK_INLINE struct ring_entry ring_pop_unsampled(struct heap *h, unsigned index, size_t bytes, uint8_t never) {
    struct ring_entry e = {0, NULL};
    struct ring *ring = h->ring[index];
    bool mine = caches_enter_unless(h, CACHES_FROZEN | CACHES_SAMPLING | CACHES_STALE | never);
    if (unlikely(!mine))
        mine = caches_enter_unless(h, CACHES_FROZEN | CACHES_STALE | never) && ring != NULL && ring->blocks != 0 &&
               sample_passes(h, bytes);
    if (likely(mine && ring != NULL && ring->blocks != 0))
        e = ring_take(ring);
    caches_leave(h);
    return e;
}
/* … and the block that malloc returns. *zero: its bytes are known to be zero. */
HAK_INLINE void *ring_hand_out(struct ring_entry e, bool *zero) {
    *zero = load_relaxed(e.state) & BLOCK_CLEAN;
    store_relaxed(e.state, BLOCK_LIVE);
    return block_word(e.block);
}
/* Between caches_enter and caches_leave. `now`: BLOCK_CACHED, with BLOCK_TAKEN unless this thread freed the block. */
HAK_INLINE bool ring_put(struct ring *ring, uintptr_t block, _Atomic uint8_t *state, uint8_t now) {
    if (unlikely(ring == NULL || ring->blocks >= ring->cap))
        return false;
    unsigned blocks = ring->blocks;
    store_relaxed(state, now);
    ring->entry[blocks] = (struct ring_entry){block, state};
    atomic_signal_fence(memory_order_seq_cst); /* a child that a signal handler forks here may lose the block */
    ring->held_and_popped++;                   /* in full width, as the hit that wrote it last */
    return true;
}
HAK_INLINE bool ring_push(struct heap *h, unsigned index, uintptr_t block, _Atomic uint8_t *state) {
    bool done =
        caches_enter_unless(h, CACHES_FROZEN | CACHES_WATCHED) && ring_put(h->ring[index], block, state, BLOCK_CACHED);
    caches_leave(h);
    return done;
}

/* Who freed a block that is not live; h is the calling thread's heap, or one that it has in an arena. Unknown while the
 * purger is at the rings, which may have the block in its hands; and of what is in no ring of h in a child of fork,
 * whose parent's purger may have had it. */
enum freer ring_freer(struct heap *h, unsigned index, const _Atomic uint8_t *state);

/* ---- how much they hold ---- */

/* Between caches_enter and caches_leave: a ring for blocks of `block_bytes`, made at its first use; NULL if the heap's
 * memory is used up. */
struct ring *ring_get(struct heap *h, unsigned index, size_t block_bytes);
/* Adapts the cap of a ring that ran full (`full`) or empty. Returns the ring, which may have moved to where there is
 * room. */
struct ring *ring_adapt(struct heap *h, struct ring *ring, bool full);
/* The share of the ring's cap that the tunable says, at least one block. */
unsigned ring_part(const struct ring *ring, enum class_tunable percent);
/* The ring, if there is one, had no block: adapts its cap. Returns how many blocks the ring should get besides the one
 * that is wanted: at misses in a row, without a free in between, 0, 0, 0, 1, 3, 7 and so on, up to half its cap. With
 * further blocks from the second miss on, these took the room behind blocks that grow in place. */
unsigned ring_ran_empty(struct heap *h, unsigned index);
/* The options of rings may have changed: every thread applies them at the end of its next slow path, which comes
 * soon. */
void rings_mark_stale(void);
void rings_apply_options(struct heap *h);
/* Between caches_enter and caches_leave: returns the ring, with room for at least one more block; NULL if the block is
 * not to be kept. */
struct ring *ring_with_room(struct heap *h, unsigned index, size_t block_bytes);
/* Gives the oldest `n` blocks back. */
void ring_spill(struct heap *h, unsigned index, unsigned n);
/* Gives all blocks of all rings back. */
void rings_empty(struct heap *h);
/* As rings_empty, if the rings hold `least_bytes` or more. Returns whether they did. */
bool rings_empty_from(struct heap *h, size_t least_bytes);
/* Does CHORE_RINGS: empties the rings, and gives back current slabs of which no block is in use. A slow path that gave
 * something back ends with rings_shrink. */
HAK_COLD void rings_empty_as_due(struct heap *h);
HAK_INLINE void rings_shrink(struct heap *h) {
    if (unlikely(h->client.due.chores & CHORE_RINGS))
        rings_empty_as_due(h);
}
/* The thread ends: the rings' memory goes back, too. */
void rings_forget(struct heap *h);

/* ---- the purger's side ---- */

/* Has the heap's thread made a ring since it was born? Any thread may ask. */
bool rings_made(const struct heap *h);
/* A number that changes when the thread uses its rings or its outbox; 0: there is nothing in them. */
uint32_t rings_use(const struct heap *h);
/* A number that changes when the heap uses its slabs on loan; 0: it has none. */
uint32_t loans_use(const struct heap *h);
/* Between caches_freeze and caches_thaw: takes the newest blocks of a ring (or NULL), RING_PIECE_BLOCKS at most.
 * Returns how many; 0: it is empty. */
unsigned ring_take_piece(struct ring *ring, struct ring_entry *entries);
