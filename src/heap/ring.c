/* See ring.h. */
/* SPDX-License-Identifier: MIT */
#include "heap/ring.h"
#include "base/options.h"
#include "base/os.h"
#include "base/snapshot.h"
#include "heap/search.h"
#include "pool/retain.h"
#include "process/presence.h"
#include "process/tunables.h"

#include <string.h>

#define RING_BYTES_MIN (128 * KIB) /* for each thread, however many there are */
#define RING_ROOM 128              /* maximum of entries in a new ring */
#define RING_GROWTH 4
#define RING_MISSES_MAX 6 /* misses in a row that count: from then on each brings 7 further blocks, if there are any */
/* What heaps without a thread may leave resident behind their first pages, 704 KiB in all: `thread_churn 3000` takes
 * 190 page faults instead of 10,100. */
#define HEAPS_LEFT_WHOLE 16
#define LEFT_WHOLE_BYTES (48 * KIB)
#define RING_PROCESSORS_MIN 8 /* fewer processors count as this many */

/* ---- giving back what is in rings ---- */

void ring_fail_twice(uintptr_t block, size_t block_bytes) {
    if (!presence_lost_threads()) /* a child of fork may have seen the ring earlier than the state */
        fail_double_free(block_word(block), block_bytes, FREER_UNKNOWN);
}

struct ring_entry ring_popped_twice(struct ring_entry e) {
    struct block b = {slab_at_offset(e.block - hak_region.base), 0, ""};
    kind_of(b.slab)->find(&b, block_word(e.block));
    ring_fail_twice(e.block, b.bytes);
    return (struct ring_entry){0, NULL};
}

void *ring_after_twice(struct ring_entry e, size_t bytes, void *(*otherwise)(size_t bytes)) {
    ring_popped_twice(e);
    return otherwise(bytes);
}

/* A child that is forked meanwhile finds the ring empty: blocks are lost there, but none is in two places. The blocks
 * go in pieces, because `give_back` has little stack. */
void ring_spill(struct heap *h, unsigned index, unsigned n) {
    struct ring *ring = h->ring[index];
    unsigned left = ring->blocks - n;
    ring->misses = 0;
    count(&h->client.counters, COUNT_ring_spills);
    count_add(&h->client.counters, COUNT_ring_spilled_blocks, n);
    ring->blocks = 0;
    atomic_signal_fence(memory_order_seq_cst);
    for (unsigned at = 0, piece; at < n; at += piece) {
        piece = (unsigned)min_size(n - at, RING_PIECE_BLOCKS);
        ring_kind(index)->give_back(h, &ring->entry[at], piece);
    }
    memmove(ring->entry, ring->entry + n, left * sizeof ring->entry[0]);
    atomic_signal_fence(memory_order_seq_cst);
    ring->blocks = (uint16_t)left;
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
    h->client.due.chores &= (uint8_t)~CHORE_RINGS;
    count(&h->client.counters, COUNT_rings_emptied);
    kind_tiny.empty_caches(h);
    rings_empty(h);
    retain_settle(&h->client);
}

HAK_APART _Atomic uint64_t hak_ring_hits_ended[RING_CLASSES];

/* Removes all rings, which are empty, and frees their memory for new ones. The caller is between caches_enter and
 * caches_leave. */
static void unmake_rings(struct heap *h) {
    for (const struct ring *ring = h->rings; ring != NULL; ring = ring->next)
        rmw_add(&hak_ring_hits_ended[ring->index], ring_pops(ring));
    memset(h->ring, 0, sizeof h->ring);
    h->rings = NULL;
    h->ring_kib = 0;
    h->ring_top = offsetof(struct heap, first_rings);
}

/* Removes all rings. The pages behind the heap's first one go back, unless the heap is among the first to be taken and
 * has used few pages. */
void rings_forget(struct heap *h) {
    size_t used = sample_on(h) ? sizeof *h : offsetof(struct heap, ledger[TINY_CLASSES]); /* the rest is empty */
    size_t kept = round_up(used, os_page_bytes());
    bool mine = caches_enter(h);
    if (mine)
        spill_all(h); /* the caches may have been frozen a moment ago */
    bool empty = load_relaxed(&h->outbox_slabs) == 0;
    bool stays = h->number < HEAPS_LEFT_WHOLE && h->ring_top <= LEFT_WHOLE_BYTES;
    bool purges = ((h->ring_top > kept && !stays) || mode()->heap_end_bytes != 0) && kept < HEAP_BYTES;
    if (mine && empty && h->rings != NULL)
        unmake_rings(h);
    if (mine && empty && purges)
        os_advise(OS_PURGE, (char *)h + kept, HEAP_BYTES - kept);
    caches_leave(h);
}

/* ---- how much they hold ---- */

static size_t ring_max(const struct ring *ring) { return tuned_ring(TUNE_ring_blocks, ring->index); }

unsigned ring_part(const struct ring *ring, enum class_tunable percent) {
    return (unsigned)max_size(ring->cap * tuned_ring(percent, ring->index) / 100, 1);
}

/* With no more threads than processors, each has RING_BYTES. More threads cannot run at once, so they share what the
 * processors need. */
static size_t ring_bytes_of_thread(void) {
    size_t bytes = option(OPT_RING_BYTES), total = option(OPT_RING_BYTES_TOTAL);
    unsigned sharing = presence_heaps();
    if (total == 0 && sharing <= RING_PROCESSORS_MIN)
        return bytes;
    if (total == 0)
        total = bytes * max_size(os_processors(), RING_PROCESSORS_MIN);
    return min_size(bytes, max_size(RING_BYTES_MIN, total / sharing));
}

/* The ring ran full (`full`) or empty. Is this the first time since it ran the other way? */
static bool ring_turns(struct ring *ring, bool full) {
    bool turned = full ? ring->refilled : ring->spills != 0;
    ring->refilled = !full;
    ring->spills = full ? (uint8_t)min_size(ring->spills + 1u, UINT8_MAX) : 0;
    return turned;
}

/* How many of the bytes of all rings this one may have. A ring of large blocks may have one block at least. */
static size_t kind_max_kib(const struct ring *ring, size_t max_kib) {
    if (ring->index < MID_CLASSES)
        return max_kib;
    size_t kept_kib = max_size(max_kib * tuned(TUNE_large_ring_percent) / 100, retain_bound_bytes() / KIB);
    return min_size(max_kib, max_size(kept_kib, ring->block_kib));
}

/* The blocks that a new ring may hold. The cap falls below this only where the heap's rings would hold too much. */
static size_t ring_first_cap(const struct ring *ring) {
    return max_size(tuned(TUNE_ring_min_bytes) / KIB / ring->block_kib, tuned(TUNE_ring_min_blocks));
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

/* Lowers the ring's cap to `max`; what the ring holds beyond that goes back. */
static void ring_lower(struct heap *h, struct ring *ring, unsigned max) {
    if (ring->cap <= max)
        return;
    h->ring_kib -= (uint32_t)(ring->cap - max) * ring->block_kib;
    ring->cap = ring->turn_cap = (uint16_t)max;
    if (ring->blocks > max)
        ring_spill(h, ring->index, ring->blocks - max);
}

static void ring_age(struct heap *h, const struct ring *except) {
    unsigned index = h->ring_hand++ % RING_CLASSES;
    struct ring *ring = h->ring[index];
    if (ring == NULL || ring == except)
        return;
    ring_lower(h, ring, ring_max(ring));
    if (ring->blocks != 0 && ring->seen == (uint32_t)ring->held_and_popped)
        ring_spill(h, index, (ring->blocks + 1u) / 2);
    ring->seen = (uint32_t)ring->held_and_popped;
}

/* Where in the heap's memory a ring of `bytes` begins, if it fits: beside the first rings, else in further pages. */
static size_t ring_place(const struct heap *h, size_t bytes) {
    size_t first_end = offsetof(struct heap, first_rings) + HEAP_FIRST_RINGS;
    return h->ring_top + bytes <= first_end ? h->ring_top : max_size(h->ring_top, round_up(sizeof *h, 4 * KIB));
}

/* The most entries that a ring may have. A ring with fewer is replaced by one in memory that no ring has used yet. */
static size_t ring_room_max(const struct heap *h, const struct ring *ring) {
    size_t end = HEAP_BYTES - mode()->heap_end_bytes;
    size_t made = ring_place(h, HEAP_BYTES) + sizeof *ring;
    return max_size(ring->room, made < end ? (end - made) / sizeof ring->entry[0] : 0);
}

/* A ring with room for that many blocks, which takes over those of `from`; NULL if the heap's memory is used up. */
static struct ring *ring_make(struct heap *h, const struct ring *from, size_t room) {
    if (room > ring_room_max(h, from))
        return NULL;
    size_t bytes = round_up(sizeof *from + room * sizeof from->entry[0], HAK_LINE), at = ring_place(h, bytes);
    struct ring *ring = (struct ring *)(void *)((char *)h + at);
    h->ring_top = (uint32_t)(at + bytes);
    memcpy(ring, from, sizeof *from + from->blocks * sizeof from->entry[0]);
    ring->room = (uint16_t)room;
    struct ring **link = &h->rings;
    while (*link != NULL && *link != from)
        link = &(*link)->next;
    ring->next = *link != NULL ? from->next : NULL;
    atomic_signal_fence(memory_order_seq_cst); /* a child that a signal handler forks here finds the ring whole */
    *link = h->ring[ring->index] = ring;
    return ring;
}

/* Sets the ring's cap to `cap` blocks. While the bytes of all rings do not suffice, the largest ring gives way. */
static struct ring *ring_set_cap(struct heap *h, struct ring *ring, size_t cap, size_t max_kib) {
    size_t others_kib = h->ring_kib - ring_cap_kib(ring);
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
    if (cap > ring->room) {
        size_t room = max_size(cap, min_size(ring->room * RING_GROWTH, RING_BLOCKS_MAX));
        ring = ring_make(h, ring, min_size(room, ring_room_max(h, ring)));
    }
    ring->cap = (uint16_t)cap;
    h->ring_kib = (uint32_t)(others_kib + cap * ring->block_kib);
    return ring;
}

struct ring *ring_adapt(struct heap *h, struct ring *ring, bool full) {
    size_t max_kib = ring_bytes_of_thread() / KIB;
    size_t min_blocks = tuned(TUNE_ring_min_blocks);
    bool turned = ring_turns(ring, full), shrinks = ring->spills >= tuned(TUNE_ring_spills) && ring->cap > min_blocks;
    if (turned || shrinks || h->ring_kib > max_kib) {
        size_t cap = turned ? ring->turn_cap * 2u : shrinks ? ring->cap / 2u : ring->cap;
        cap = min_size(max_size(cap, ring_first_cap(ring)), min_size(ring_max(ring), ring_room_max(h, ring)));
        ring = ring_set_cap(h, ring, min_size(cap, kind_max_kib(ring, max_kib) / ring->block_kib), max_kib);
        if (turned)
            ring->turn_cap = ring->cap;
    }
    ring_age(h, ring);
    return ring;
}

struct ring *ring_get(struct heap *h, unsigned index, size_t block_bytes) {
    if (likely(h->ring[index] != NULL))
        return h->ring[index];
    const struct ring none = {
        .block_kib = (uint16_t)((block_bytes + KIB - 1) / KIB), .refilled = 1, .index = (uint8_t)index};
    size_t room = 2 * ring_first_cap(&none); /* the first miss of malloc doubles the cap */
    struct ring *ring = ring_make(h, &none, min_size(ring_max(&none), min_size(room, RING_ROOM)));
    return ring != NULL ? ring_adapt(h, ring, true) : NULL;
}

unsigned ring_ran_empty(struct heap *h, unsigned index) {
    unsigned wanted = 0;
    if (caches_enter(h) && h->ring[index] != NULL && h->ring[index]->blocks == 0) {
        struct ring *ring = ring_adapt(h, h->ring[index], false);
        uint32_t pops = (uint32_t)ring_pops(ring);
        bool again = pops - ring->missed_at <= ring->came_besides; /* nothing was freed since the last miss */
        ring->misses = (uint8_t)(again ? min_size(ring->misses + 1u, RING_MISSES_MAX) : 1);
        wanted = (unsigned)min_size(low_bits(ring->misses) / 8, ring->cap / 2u);
        ring->missed_at = pops;
        ring->came_besides = (uint8_t)wanted;
    }
    caches_leave(h);
    return wanted;
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
        ring_lower(h, ring, ring_max(ring));
    for (struct ring *ring; mine && h->ring_kib > max_kib && (ring = ring_largest(h, NULL)) != NULL;)
        ring_lower(h, ring, ring->cap / 2u);
    caches_leave(h);
}

struct ring *ring_with_room(struct heap *h, unsigned index, size_t block_bytes) {
    struct ring *ring = ring_get(h, index, block_bytes);
    if (ring == NULL)
        return NULL;
    if (ring->blocks >= ring->cap)
        ring = ring_adapt(h, ring, true);
    if (ring->blocks >= ring->cap && ring->blocks != 0)
        ring_spill(h, index,
                   ring->blocks - ring->cap + (unsigned)min_size(ring_part(ring, TUNE_spill_percent), ring->cap));
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

/* A thread without a heap of its own borrows one for each call. */
static bool thread_borrows(void) { return hak_heap->number == HEAP_NONE && hak_heap != &heap_redirected; }

enum freer ring_freer(struct heap *h, unsigned index, const _Atomic uint8_t *state) {
    enum freer freer = search_only_freer();
    bool waits = freer == FREER_UNKNOWN && caches_enter(h) &&
                 (load_relaxed(state) & (BLOCK_STATE | BLOCK_TAKEN)) == BLOCK_CACHED;
    if (waits && ring_has(h, index, state))
        freer = h->inherits ? FREER_UNKNOWN : FREER_THIS_THREAD;
    else if (waits && !thread_borrows() && !presence_lost_threads())
        freer = FREER_OTHER_THREAD;
    caches_leave(h);
    return freer;
}

/* ---- the purger's side ---- */

bool rings_made(const struct heap *h) {
    uintptr_t newest;
    snapshot(&newest, &h->rings, sizeof newest);
    return newest != 0;
}

/* The thread may be making new rings meanwhile: the memory of the old ones stays readable. */
uint32_t rings_use(const struct heap *h) {
    struct ring *rings[RING_CLASSES] = {NULL};
    if (rings_made(h)) /* else a page of the heap may stay untouched */
        snapshot(rings, h->ring, sizeof rings);
    uint32_t blocks = 0, use = (uint32_t)(load_relaxed(&h->client.counters.n[COUNT_ring_refills]) +
                                          load_relaxed(&h->client.counters.n[COUNT_ring_spills]) +
                                          load_relaxed(&h->client.counters.n[COUNT_free_remote]));
    for (unsigned i = 0; i < RING_CLASSES; i++) {
        struct ring ring = {.held_and_popped = 0};
        if (rings[i] != NULL)
            snapshot(&ring, rings[i], sizeof ring);
        blocks += ring.blocks;
        use = use * 31 + (uint32_t)ring.held_and_popped;
    }
    blocks += load_relaxed(&h->outbox_slabs);
    return blocks == 0 ? 0 : max_size(use, 1);
}

uint32_t loans_use(const struct heap *h) {
    if (load_relaxed(&h->lent.slabs) == 0)
        return 0;
    return (uint32_t)max_size((uint32_t)load_relaxed(&h->client.counters.n[COUNT_free_on_loan]), 1);
}

unsigned ring_take_piece(struct ring *ring, struct ring_entry *entries) {
    unsigned n = ring != NULL ? (unsigned)min_size(ring->blocks, RING_PIECE_BLOCKS) : 0;
    if (n == 0)
        return 0;
    memcpy(entries, ring->entry + ring->blocks - n, n * sizeof *entries);
    atomic_signal_fence(memory_order_seq_cst); /* in a child forked here each block is in one place or in none */
    ring->blocks = (uint16_t)(ring->blocks - n);
    return n;
}
