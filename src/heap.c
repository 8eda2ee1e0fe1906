/* Birth and end of heaps, and their rings. See heap.h. */
/* SPDX-License-Identifier: MIT */
#include "heap.h"
#include "options.h"
#include "os.h"
#include "presence.h"
#include "retain.h"

#include <string.h>

_Static_assert(offsetof(struct heap, sample.tiny) <= 4096, "a thread without samples, rings and loans has one page");

#define RING_BYTES_LEAST (128 * KIB) /* of a thread, however many there are */
/* A ring of large blocks has at most a quarter, or one block: the pool is nearly as fast. */
#define LARGE_RING_SHARE 4
#define RING_CAP_LEAST 8 /* or 64 KiB: a thread that only frees, or only allocates, goes to the slabs in batches */
#define RING_KIB_LEAST 64
#define RING_SPILLS 3
#define RING_BYTES_SHARED 8 /* times RING_BYTES: all threads together, as far as the least allows */

// clang-format off
#define NO_BLOCKS {[0 ... TINY_CLASSES - 1] = 1}
// clang-format on
struct heap heap_before_birth = {.list = NO_BLOCKS, .number = HEAP_NONE};
struct heap heap_afterlife = {
    .list = NO_BLOCKS, .number = HEAP_NONE, .ring_top = HEAP_BYTES}; /* has no room for rings */
_Thread_local struct heap *hak_heap __attribute__((tls_model("initial-exec"))) = &heap_before_birth;

static _Alignas(4096) char first_heap[HEAP_BYTES]; /* the first thread's: needs no system call */
_Atomic(struct heap *) heap_newest_made;           /* push-only list of all heaps */
static _Atomic uint32_t heaps_made;

struct heap *heap_newest(void) {
    struct heap *newest = PROVEN(newest, load_acquire(&heap_newest_made));
    return newest;
}

enum freer heap_freer(void) {
    const struct heap *first = heap_newest();
    bool only = load_relaxed(&heaps_made) == 1 && load_relaxed(&first->pool.counters.n[COUNT_heaps_born]) == 1;
    return only ? FREER_THIS_THREAD : FREER_UNKNOWN;
}

/* ---- idle heaps ----
 * Kept as a set of heap numbers; the lowest is taken first, so that few heaps are ever touched. */

static _Atomic uint64_t idle_words[3][HEAPS_MAX / 64];
_Static_assert(HEAPS_MAX <= 64 * 64 * 64, "three levels");
static const struct bitset_family idle = {
    .level = {(char *)idle_words[0], (char *)idle_words[1], (char *)idle_words[2]},
    .row_bytes = {8, 8, 8},
    .rows = {HEAPS_MAX / 64, HEAPS_MAX / 64 / 64, 1},
    .levels = 3,
};

static struct heap *heap_numbered(size_t number) {
    char *memory = number == 0 ? first_heap : hak_region.heaps + number * HEAP_BYTES;
    return (struct heap *)(void *)memory;
}

/* A thread that is interrupted in bitset_remove may hide members for long: then they are looked for one level lower,
 * or else a thread that borrows a heap for each call would make one for each. */
static size_t find_idle(void) {
    size_t number = bitset_find(&idle, 0, 0), rows = (load_relaxed(&heaps_made) + 63) / 64;
    for (size_t row = 0; PROVEN(find_idle, number == BITSET_NONE) && row < rows && row < idle.rows[0]; row++) {
        uint64_t word = load_relaxed(bitset_word(&idle, 0, 0, row));
        if (word != 0)
            number = row * 64 + lowest_bit(word);
    }
    return number;
}

static struct heap *take_idle(void) {
    for (size_t number; (number = find_idle()) != BITSET_NONE;) {
        struct heap *h = heap_numbered(number);
        bool in_use = false;
        bitset_remove(&idle, 0, number);
        if (PROVEN(take_idle, rmw_cas(&h->in_use, &in_use, true))) /* pairs with put_idle, for the heap's fields */
            return h;
    }
    return NULL;
}

static void put_idle(struct heap *h) {
    PROVEN(put_idle, store_seq(&h->in_use, false));
    bitset_add(&idle, 0, h->number);
}

/* ---- birth ---- */

static struct heap *make_heap(void) {
    uint32_t number = rmw_add(&heaps_made, 1), taken = number + 1;
    if (number >= REGION_FORK_PAGE || (number != 0 && region_commit_heap(number) == NULL)) {
        rmw_cas(&heaps_made, &taken, number); /* or else a number is lost */
        return NULL;
    }
    struct heap *h = heap_numbered(number);
    memcpy(h->list, heap_before_birth.list, sizeof h->list);
    memcpy(h->class_table, tiny_class_table, sizeof h->class_table);
    h->number = number;
    h->ring_top = (uint32_t)round_up(sizeof *h, HAK_LINE);
    store_relaxed(&h->in_use, true);
    h->undrained_frees = UINT32_MAX - 1; /* the first remote free drains */
    store_relaxed(&h->caches_flags, option(OPT_GUARD_SAMPLE_BYTES) ? CACHES_SAMPLED : 0);
    struct heap *head = load_relaxed(&heap_newest_made);
    do
        h->next = head;
    while (!rmw_cas(&heap_newest_made, &head, h)); /* pairs with heap_newest */
    return h;
}

static struct heap *take_heap(void) {
    if (!region_init())
        return NULL;
    struct heap *h = take_idle();
    if (h == NULL)
        h = make_heap();
    if (h == NULL)
        return NULL;
    count(&h->pool.counters, COUNT_heaps_born);
    presence_clients_changed(1);
    return h;
}

static void empty_heap(struct heap *h) {
    tiers[TIER_TINY].empty(h);
    if (option(OPT_SECURE))
        tiers[TIER_SECURE].empty(h);
    rings_empty(h);
    retain_settle(&h->pool);
}

static void put_heap_back(struct heap *h) {
#ifdef HAK_CHECKED
    count_add(&h->pool.counters, COUNT_atomic_rmw, rmw_count);
    rmw_count = 0;
#endif
    count(&h->pool.counters, COUNT_heaps_ended);
    h->pool.chores = 0;
    presence_clients_changed(-1);
    put_idle(h);
}

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

/* In pieces, as all entries together would be too much for a small stack. */
void ring_spill(struct heap *h, unsigned index, unsigned n) {
    struct ring_entry entries[RING_PIECE_BLOCKS];
    count(&h->pool.counters, COUNT_ring_spills);
    while (n != 0) {
        unsigned piece = (unsigned)min_size(n, RING_PIECE_BLOCKS);
        ring_take(h->ring[index], entries, piece);
        tier_of_ring(index)->give_back(h, entries, piece);
        n -= piece;
    }
}

static void spill_all(struct heap *h) {
    for (unsigned i = 0; i < RING_CLASSES; i++)
        if (h->ring[i] != NULL && h->ring[i]->blocks != 0)
            ring_spill(h, i, h->ring[i]->blocks);
}

static size_t held_bytes(const struct heap *h) {
    size_t kib = 0;
    for (unsigned i = 0; i < RING_CLASSES; i++)
        kib += h->ring[i] != NULL ? (size_t)h->ring[i]->blocks * h->ring[i]->block_kib : 0;
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
    h->ring_kib = 0;
    h->ring_top = (uint32_t)round_up(sizeof *h, HAK_LINE);
}

/* The rings' pages go back; the pages of the struct stay, for whoever takes the heap next. */
static void forget_rings(struct heap *h) {
    size_t used =
        h->sample.mean_bytes != 0 ? sizeof *h : offsetof(struct heap, sample.tiny); /* else that is not in use */
    size_t kept = round_up(used, os_page_bytes());
    bool mine = caches_enter(h);
    if (mine)
        spill_all(h); /* they may have been frozen a moment ago */
    if (mine && h->lent.slabs == 0 && (h->ring_top > kept || option(OPT_SECURE)) && kept < HEAP_BYTES) {
        unmake_rings(h);
        os_advise(OS_PURGE, (char *)h + kept, HEAP_BYTES - kept);
    }
    caches_leave(h);
}

/* The key's value says only that there is a heap: a second libc in the process (an audit module's) numbers its keys from
 * 0, too, and stores its values in the same place. */
static void end_thread(void *value) {
    struct heap *h = hak_heap;
    (void)value;
    if (h->number == HEAP_NONE)
        return;
    hak_heap = &heap_afterlife;
    empty_heap(h);
    forget_rings(h);
    bool left = caches_enter(h) &&
                (h->outbox_blocks != 0 || h->lent.slabs != 0); /* the purger may have been at the caches before */
    caches_leave(h);
    if (left)
        empty_heap(h);
    put_heap_back(h);
}

HAK_COLD static struct heap *enter_slowly(void) {
    struct heap *h = take_heap();
    if (h == NULL)
        return NULL;
    if (hak_heap == &heap_afterlife) {
        count(&h->pool.counters, COUNT_afterlife_calls);
        return h;
    }
    hak_heap = h;                          /* before the key: glibc may allocate for it */
    if (!os_at_thread_exit(end_thread, h)) /* its end would not be noticed */
        hak_heap = &heap_before_birth;     /* this call borrows it; the next one tries again */
    return h;
}

struct heap *heap_enter(void) {
    struct heap *h = hak_heap;
    if (unlikely(h->number == HEAP_NONE))
        return enter_slowly();
    return h;
}

void heap_leave(struct heap *h) {
    if (likely(h == hak_heap || h == NULL))
        return;
    empty_heap(h);
    put_heap_back(h);
}

/* ---- rings ----
 * What the rings may hold together, cap by cap, is bounded, so that the hit path counts nothing.
 *  1. A ring that runs full after it ran empty, or empty after full, is too small: its cap doubles.
 *  2. One that runs full RING_SPILLS times running is in a phase that only frees: its cap halves, so that little stays.
 *     When it runs empty again its cap is twice what it was before the phase.
 *  3. If the bytes are used up, the largest ring's cap is halved, be it this one's, and what it holds beyond goes back.
 *  4. Each time one more ring is looked at: what it holds beyond its option goes. If it holds what it held at the last
 *     look it is not in use, and half goes.
 *  5. A ring has room for what its option allowed when it was made. Once the option allows more, the thread's rings are
 *     all made anew, each at its next use: this happens only when the option is raised, and leaves no gaps.
 *  6. A ring that is neither empty nor full has no slow path. So hak_option_set tells every heap, whose next allocation
 *     from a ring takes the slow path and lowers the caps. */

static unsigned ring_most(unsigned index, size_t block_bytes) {
    return index < MID_CLASSES ? option_l2_ring_cap(block_bytes) : (unsigned)option(OPT_L25_RING_CAP);
}

struct ring *heap_ring(struct heap *h, unsigned index, size_t block_bytes) {
    struct ring *ring = h->ring[index];
    unsigned room = ring_most(index, block_bytes);
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
    *ring =
        (struct ring){.room = (uint16_t)room, .block_kib = (uint16_t)((block_bytes + KIB - 1) / KIB), .refilled = 1};
    h->ring[index] = ring;
    ring_adapt(h, ring, index, block_bytes, true);
    return ring;
}

static size_t ring_bytes_of_thread(void) {
    size_t bytes = option(OPT_RING_BYTES);
    unsigned sharing = presence_clients();
    if (sharing <= RING_BYTES_SHARED)
        return bytes;
    return min_size(bytes, max_size(RING_BYTES_LEAST, bytes * RING_BYTES_SHARED / sharing));
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

/* The ring besides this one that may hold the most bytes. */
static unsigned ring_largest(const struct heap *h, const struct ring *but) {
    unsigned largest = RING_CLASSES;
    size_t most = 0;
    for (unsigned i = 0; i < RING_CLASSES; i++) {
        const struct ring *ring = h->ring[i];
        if (ring != NULL && ring != but && (size_t)ring->cap * ring->block_kib > most) {
            most = (size_t)ring->cap * ring->block_kib;
            largest = i;
        }
    }
    return largest;
}

/* The ring's cap is to be `most` at most; what the ring holds beyond it goes back. */
static void ring_lower(struct heap *h, unsigned index, unsigned most) {
    struct ring *ring = h->ring[index];
    if (ring->cap <= most)
        return;
    h->ring_kib -= (size_t)(ring->cap - most) * ring->block_kib;
    ring->cap = ring->turn_cap = (uint16_t)most;
    if (ring->blocks > most)
        ring_spill(h, index, ring->blocks - most);
}

static void ring_age(struct heap *h, const struct ring *but) {
    unsigned index = h->ring_hand++ % RING_CLASSES;
    struct ring *ring = h->ring[index];
    if (ring == NULL || ring == but)
        return;
    ring_lower(h, index, ring_most(index, ring->block_kib * KIB));
    if (ring->blocks != 0 && ring->blocks == ring->seen)
        ring_spill(h, index, (ring->blocks + 1u) / 2);
    ring->seen = ring->blocks;
}

void ring_adapt(struct heap *h, struct ring *ring, unsigned index, size_t block_bytes, bool full) {
    size_t most_kib = ring_bytes_of_thread() / KIB;
    size_t others_kib = h->ring_kib - (size_t)ring->cap * ring->block_kib;
    size_t least = max_size(RING_KIB_LEAST / ring->block_kib, RING_CAP_LEAST);
    size_t most = min_size(ring_most(index, block_bytes), ring->room);
    bool turned = ring_turns(ring, full);
    size_t cap = min_size(max_size(ring_wish(ring, turned), least), most);
    if (index >= MID_CLASSES)
        cap = min_size(cap, max_size(most_kib / LARGE_RING_SHARE / ring->block_kib, 1));
    cap = min_size(cap, most_kib / ring->block_kib);
    while (others_kib + cap * ring->block_kib > most_kib) {
        unsigned largest = ring_largest(h, ring);
        if (largest == RING_CLASSES) { /* a signal's handler forked between a cap and the sum, and this is the child */
            others_kib = 0;
            break;
        }
        struct ring *other = h->ring[largest];
        size_t other_kib = (size_t)other->cap * other->block_kib;
        while (others_kib + cap * ring->block_kib > most_kib && other_kib <= cap * ring->block_kib)
            cap /= 2;
        if (others_kib + cap * ring->block_kib <= most_kib)
            break;
        others_kib -= (size_t)(other->cap - other->cap / 2) * other->block_kib;
        other->cap /= 2;
        other->turn_cap = other->cap;
        if (other->blocks > other->cap)
            ring_spill(h, largest, other->blocks - other->cap);
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

void rings_tell(void) {
    for (struct heap *h = heap_newest(); h != NULL; h = h->next)
        rmw_or(&h->caches_flags, CACHES_TOLD);
}

void rings_heed(struct heap *h) {
    size_t most_kib = ring_bytes_of_thread() / KIB;
    bool mine = caches_enter(h);
    if (mine)
        rmw_and(&h->caches_flags, (uint8_t)~CACHES_TOLD);
    for (unsigned i = 0; mine && i < RING_CLASSES; i++)
        if (h->ring[i] != NULL)
            ring_lower(h, i, ring_most(i, h->ring[i]->block_kib * KIB));
    for (unsigned i; mine && h->ring_kib > most_kib && (i = ring_largest(h, NULL)) != RING_CLASSES;)
        ring_lower(h, i, h->ring[i]->cap / 2u);
    caches_leave(h);
}

struct ring *ring_with_room(struct heap *h, unsigned index, size_t block_bytes) {
    struct ring *ring = heap_ring(h, index, block_bytes);
    if (ring == NULL)
        return NULL;
    if (ring->blocks >= ring->cap)
        ring_adapt(h, ring, index, block_bytes, true);
    if (ring->blocks >= ring->cap && ring->blocks != 0)
        ring_spill(h, index, ring->blocks - ring->cap / 2u); /* leaves room for at least one */
    return ring->blocks < ring->cap ? ring : NULL;
}

bool ring_has(const struct heap *h, unsigned index, const _Atomic uint8_t *state) {
    const struct ring *ring = h->ring[index];
    unsigned i = ring != NULL ? ring->blocks : 0;
    while (i != 0 && ring->entry[i - 1].state != state)
        i--;
    return i != 0;
}

/* ---- the purger at another thread's rings ---- */

HAK_RACY uint32_t caches_use(const struct heap *h) {
    uint32_t blocks = 0, use = (uint32_t)(load_relaxed(&h->pool.counters.n[COUNT_ring_refills]) +
                                          load_relaxed(&h->pool.counters.n[COUNT_ring_spills]) +
                                          load_relaxed(&h->pool.counters.n[COUNT_free_remote]));
    for (unsigned i = 0; i < RING_CLASSES; i++) {
        const struct ring *ring = *(struct ring *const volatile *)&h->ring[i];
        unsigned held = ring != NULL ? *(const volatile uint16_t *)&ring->blocks : 0;
        blocks += held;
        use = use * 31 + held;
    }
    blocks += *(const volatile uint32_t *)&h->outbox_blocks;
    return blocks == 0 ? 0 : max_size(use, 1);
}

HAK_RACY uint32_t loans_use(const struct heap *h) {
    if (*(const volatile uint32_t *)&h->lent.slabs == 0)
        return 0;
    return (uint32_t)max_size((uint32_t)load_relaxed(&h->pool.counters.n[COUNT_free_on_loan]), 1);
}

unsigned ring_take_piece(struct ring *ring, struct ring_entry *entries) {
    unsigned n = ring != NULL ? (unsigned)min_size(ring->blocks, RING_PIECE_BLOCKS) : 0;
    if (n != 0)
        ring_take(ring, entries, n);
    return n;
}

bool caches_freeze(struct heap *h) {
    rmw_or(&h->caches_flags, CACHES_FROZEN);
    bool fenced = PROVEN(freeze_fence, os_fence_threads());
    if (!fenced) /* the program is in a sandbox by now */
        presence_cannot_fence();
    return fenced && !load_acquire(&h->caches_busy); /* acquire: what the thread did to its caches */
}

void caches_watch(struct heap *h) { rmw_or(&h->caches_flags, CACHES_WATCHED); }

void caches_notice(struct heap *h) {
    if (likely(!(load_relaxed(&h->caches_flags) & CACHES_WATCHED)))
        return;
    rmw_and(&h->caches_flags, (uint8_t)~CACHES_WATCHED);
    presence_gathered();
}

void caches_thaw(struct heap *h) { PROVEN(thaw, rmw_and(&h->caches_flags, (uint8_t)~CACHES_FROZEN)); }
