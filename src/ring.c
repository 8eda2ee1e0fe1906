/* See ring.h. */
/* SPDX-License-Identifier: MIT */
#include "ring.h"
#include "base/options.h"
#include "base/os.h"
#include "presence.h"
#include "retain.h"
#include "search.h"
#include "base/snapshot.h"

#include <string.h>

#define RING_BYTES_MIN (128 * KIB) /* of a thread, however many there are */
/* A ring of large blocks has at most a quarter, or one block: the pool is nearly as fast. */
#define LARGE_RING_SHARE 4
#define RING_CAP_MIN 8 /* or 64 KiB: a thread that only frees, or only allocates, goes to the slabs in batches */
#define RING_KIB_MIN 64
#define RING_SPILLS 3
#define RING_BYTES_SHARED 8 /* times RING_BYTES: all threads together, as far as the least allows */

/* ---- giving back what is in rings ---- */

/* Takes the oldest `n` blocks. At once: a fork at any point leaves each block in one place or in none. */
static void ring_take(struct ring *ring, struct ring_entry *entries, unsigned n) {
    HAK_ASSERT(n <= RING_PIECE_BLOCKS && n <= ring->blocks);
    unsigned left = ring->blocks - n;
    memcpy(entries, ring->entry, n * sizeof *entries);
    atomic_signal_fence(memory_order_seq_cst);
    ring->blocks = 0;
    atomic_signal_fence(memory_order_seq_cst);
    memmove(ring->entry, ring->entry + n, left * sizeof ring->entry[0]);
    atomic_signal_fence(memory_order_seq_cst);
    ring->blocks = (uint16_t)left;
}

void ring_fail_twice(uintptr_t block, size_t block_bytes) {
    if (!presence_lost_threads()) /* a child of fork may have seen the ring earlier than the state */
        fail_double_free(block_word(block), block_bytes, FREER_UNKNOWN);
}

/* In pieces, as all entries together would be too much for a small stack. */
void ring_spill(struct heap *h, unsigned index, unsigned n) {
    struct ring_entry entries[RING_PIECE_BLOCKS];
    count(&h->pool.counters, COUNT_ring_spills);
    while (n != 0) {
        unsigned piece = (unsigned)min_size(n, RING_PIECE_BLOCKS);
        ring_take(h->ring[index], entries, piece);
        ring_kind(index)->give_back(h, entries, piece);
        n -= piece;
    }
}

static void spill_all(struct heap *h) {
    for (const struct ring *ring = h->rings; ring != NULL; ring = ring->next)
        if (ring->blocks != 0)
            ring_spill(h, ring->index, ring->blocks);
}

static size_t held_bytes(const struct heap *h) {
    size_t kib = 0;
    for (const struct ring *ring = h->rings; ring != NULL; ring = ring->next)
        kib += (size_t)ring->blocks * ring->block_kib;
    return kib * KIB;
}

bool rings_empty_from(struct heap *h, size_t least_bytes) {
    bool due = caches_enter(h) && held_bytes(h) >= least_bytes;
    if (due)
        spill_all(h);
    caches_leave(h);
    return due;
}

void rings_empty(struct heap *h) { rings_empty_from(h, 0); }

void rings_empty_as_due(struct heap *h) {
    h->pool.chores &= (uint8_t)~CHORE_RINGS;
    count(&h->pool.counters, COUNT_rings_emptied);
    rings_empty(h);
    retain_settle(&h->pool);
}

/* There are no rings any more, and their memory is free for new ones. They are empty, and the thread is at its caches. */
static void unmake_rings(struct heap *h) {
    memset(h->ring, 0, sizeof h->ring);
    h->rings = NULL;
    h->ring_kib = 0;
    h->ring_top = (uint32_t)round_up(sizeof *h, HAK_LINE);
}

/* The rings' pages go back; the pages of the struct stay, for whoever takes the heap next. */
void rings_forget(struct heap *h) {
    size_t used = sample_on(h) ? sizeof *h : offsetof(struct heap, sample.tiny); /* else that is not in use */
    size_t kept = round_up(used, os_page_bytes());
    bool mine = caches_enter(h);
    if (mine)
        spill_all(h); /* they may have been frozen a moment ago */
    if (mine && load_relaxed(&h->lent.slabs) == 0 && (h->ring_top > kept || option(OPT_SECURE)) && kept < HEAP_BYTES) {
        unmake_rings(h);
        os_advise(OS_PURGE, (char *)h + kept, HEAP_BYTES - kept);
    }
    caches_leave(h);
}

/* ---- how much they hold ---- */

static unsigned ring_max(unsigned index, size_t block_bytes) {
    return index < MID_CLASSES ? option_mid_ring_blocks(block_bytes) : (unsigned)option(OPT_LARGE_RING_BLOCKS);
}

struct ring *ring_get(struct heap *h, unsigned index, size_t block_bytes) {
    struct ring *ring = h->ring[index];
    unsigned room = ring_max(index, block_bytes);
    if (likely(ring != NULL && ring->room >= room))
        return ring;
    if (ring != NULL) {
        spill_all(h);
        unmake_rings(h);
    }
    size_t bytes = round_up(sizeof *ring + room * sizeof ring->entry[0], HAK_LINE);
    if (h->ring_top + bytes > HEAP_BYTES - (option(OPT_SECURE) ? HEAP_SECURE_BYTES : 0))
        return NULL;
    ring = (struct ring *)(void *)((char *)h + h->ring_top);
    h->ring_top += (uint32_t)bytes;
    *ring = (struct ring){.room = (uint16_t)room,
                          .block_kib = (uint16_t)((block_bytes + KIB - 1) / KIB),
                          .refilled = 1,
                          .index = (uint8_t)index,
                          .next = h->rings};
    h->ring[index] = ring;
    h->rings = ring;
    ring_adapt(h, ring, index, block_bytes, true);
    return ring;
}

static size_t ring_bytes_of_thread(void) {
    size_t bytes = option(OPT_RING_BYTES);
    unsigned sharing = presence_clients();
    if (sharing <= RING_BYTES_SHARED)
        return bytes;
    return min_size(bytes, max_size(RING_BYTES_MIN, bytes * RING_BYTES_SHARED / sharing));
}

/* The ring ran full, or else empty. Is this the first time since it ran the other way? */
static bool ring_turns(struct ring *ring, bool full) {
    bool turned = full ? ring->refilled : ring->spills != 0;
    ring->refilled = !full;
    ring->spills = full ? (uint8_t)min_size(ring->spills + 1u, UINT8_MAX) : 0;
    return turned;
}

/* The cap it should have, options aside. */
static size_t ring_wish(const struct ring *ring, bool turned) {
    if (turned)
        return ring->turn_cap * 2u;
    return ring->spills >= RING_SPILLS ? ring->cap / 2u : ring->cap;
}

static size_t ring_cap_kib(const struct ring *ring) { return (size_t)ring->cap * ring->block_kib; }

/* The ring besides this one that may hold the most bytes. */
static struct ring *ring_largest(const struct heap *h, const struct ring *except) {
    struct ring *largest = NULL;
    size_t max = 0;
    for (struct ring *ring = h->rings; ring != NULL; ring = ring->next)
        if (ring != except && ring_cap_kib(ring) > max) {
            max = ring_cap_kib(ring);
            largest = ring;
        }
    return largest;
}

/* The ring's cap is to be at most `max`; what the ring holds beyond it goes back. */
static void ring_lower(struct heap *h, struct ring *ring, unsigned max) {
    if (ring->cap <= max)
        return;
    h->ring_kib -= (size_t)(ring->cap - max) * ring->block_kib;
    ring->cap = ring->turn_cap = (uint16_t)max;
    if (ring->blocks > max)
        ring_spill(h, ring->index, ring->blocks - max);
}

static void ring_age(struct heap *h, const struct ring *except) {
    unsigned index = h->ring_hand++ % RING_CLASSES;
    struct ring *ring = h->ring[index];
    if (ring == NULL || ring == except)
        return;
    ring_lower(h, ring, ring_max(index, ring->block_kib * KIB));
    if (ring->blocks != 0 && ring->blocks == ring->seen)
        ring_spill(h, index, (ring->blocks + 1u) / 2);
    ring->seen = ring->blocks;
}

void ring_adapt(struct heap *h, struct ring *ring, unsigned index, size_t block_bytes, bool full) {
    size_t max_kib = ring_bytes_of_thread() / KIB;
    size_t others_kib = h->ring_kib - ring_cap_kib(ring);
    size_t min = max_size(RING_KIB_MIN / ring->block_kib, RING_CAP_MIN);
    size_t max = min_size(ring_max(index, block_bytes), ring->room);
    bool turned = ring_turns(ring, full);
    size_t cap = min_size(max_size(ring_wish(ring, turned), min), max);
    if (index >= MID_CLASSES)
        cap = min_size(cap, max_size(max_kib / LARGE_RING_SHARE / ring->block_kib, 1));
    cap = min_size(cap, max_kib / ring->block_kib);
    while (others_kib + cap * ring->block_kib > max_kib) {
        struct ring *other = ring_largest(h, ring);
        if (other == NULL) { /* a signal's handler forked between a cap and the sum, and this is the child */
            others_kib = 0;
            break;
        }
        size_t other_kib = ring_cap_kib(other);
        while (others_kib + cap * ring->block_kib > max_kib && other_kib <= cap * ring->block_kib)
            cap /= 2;
        if (others_kib + cap * ring->block_kib <= max_kib)
            break;
        others_kib -= (size_t)(other->cap - other->cap / 2) * other->block_kib;
        other->cap /= 2;
        other->turn_cap = other->cap;
        if (other->blocks > other->cap)
            ring_spill(h, other->index, other->blocks - other->cap);
    }
    ring->cap = (uint16_t)cap;
    if (turned)
        ring->turn_cap = ring->cap;
    h->ring_kib = others_kib + cap * ring->block_kib;
    ring_age(h, ring);
}

void ring_ran_empty(struct heap *h, unsigned index, size_t block_bytes) {
    if (caches_enter(h) && h->ring[index] != NULL && h->ring[index]->blocks == 0)
        ring_adapt(h, h->ring[index], index, block_bytes, false);
    caches_leave(h);
}

void rings_mark_stale(void) {
    for (struct heap *h = heap_newest(); h != NULL; h = h->next)
        rmw_or(&h->caches_flags, CACHES_STALE);
}

void rings_apply_options(struct heap *h) {
    size_t max_kib = ring_bytes_of_thread() / KIB;
    bool mine = caches_enter(h);
    if (mine)
        rmw_and(&h->caches_flags, (uint8_t)~CACHES_STALE);
    for (struct ring *ring = h->rings; mine && ring != NULL; ring = ring->next)
        ring_lower(h, ring, ring_max(ring->index, ring->block_kib * KIB));
    for (struct ring *ring; mine && h->ring_kib > max_kib && (ring = ring_largest(h, NULL)) != NULL;)
        ring_lower(h, ring, ring->cap / 2u);
    caches_leave(h);
}

struct ring *ring_with_room(struct heap *h, unsigned index, size_t block_bytes) {
    struct ring *ring = ring_get(h, index, block_bytes);
    if (ring == NULL)
        return NULL;
    if (ring->blocks >= ring->cap)
        ring_adapt(h, ring, index, block_bytes, true);
    if (ring->blocks >= ring->cap && ring->blocks != 0)
        ring_spill(h, index, ring->blocks - ring->cap / 2u); /* leaves room for at least one */
    return ring->blocks < ring->cap ? ring : NULL;
}

/* ---- who freed a block ---- */

static bool ring_has(const struct heap *h, unsigned index, const _Atomic uint8_t *state) {
    const struct ring *ring = h->ring[index];
    unsigned i = ring != NULL ? ring->blocks : 0;
    while (i != 0 && ring->entry[i - 1].state != state)
        i--;
    return i != 0;
}

enum freer ring_freer(struct heap *h, unsigned index, const _Atomic uint8_t *state) {
    enum freer freer = search_only_freer();
    if (freer == FREER_UNKNOWN && caches_enter(h) &&
        (load_relaxed(state) & (BLOCK_STATE | BLOCK_TAKEN)) == BLOCK_CACHED)
        freer = ring_has(h, index, state) ? FREER_THIS_THREAD : FREER_OTHER_THREAD;
    caches_leave(h);
    return freer;
}

/* ---- the purger's side ---- */

/* The thread may be making its rings anew meanwhile: their memory stays readable. */
uint32_t rings_use(const struct heap *h) {
    struct ring *rings[RING_CLASSES];
    snapshot(rings, h->ring, sizeof rings);
    uint32_t blocks = 0, use = (uint32_t)(load_relaxed(&h->pool.counters.n[COUNT_ring_refills]) +
                                          load_relaxed(&h->pool.counters.n[COUNT_ring_spills]) +
                                          load_relaxed(&h->pool.counters.n[COUNT_free_remote]));
    for (unsigned i = 0; i < RING_CLASSES; i++) {
        struct ring ring = {.blocks = 0};
        if (rings[i] != NULL)
            snapshot(&ring, rings[i], sizeof ring);
        blocks += ring.blocks;
        use = use * 31 + ring.blocks;
    }
    blocks += load_relaxed(&h->outbox_blocks);
    return blocks == 0 ? 0 : max_size(use, 1);
}

uint32_t loans_use(const struct heap *h) {
    if (load_relaxed(&h->lent.slabs) == 0)
        return 0;
    return (uint32_t)max_size((uint32_t)load_relaxed(&h->pool.counters.n[COUNT_free_on_loan]), 1);
}

unsigned ring_take_piece(struct ring *ring, struct ring_entry *entries) {
    unsigned n = ring != NULL ? (unsigned)min_size(ring->blocks, RING_PIECE_BLOCKS) : 0;
    if (n != 0)
        ring_take(ring, entries, n);
    return n;
}
