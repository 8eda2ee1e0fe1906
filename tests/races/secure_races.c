/* Secure mode's slabs, which have no owner: the thread that gives the last block back gives the span back. */
/* SPDX-License-Identifier: MIT */
#include "kit.h"
#include "arena/arena.h"
#include "arena/arena_heap.h"
#include "pool/pool.h"
#include "base/options.h"
#include "secure/secure.h"
#include "secure/secure_slab.h"
#include "secure/secure_span.h"

enum { BYTES = 8000, OTHER_BYTES = 16000 }; /* of blocks in spans of one slot and of two */

static uint64_t *kept[SUPERSLAB_SLOTS * 4];
static void *block;
static size_t superslab; /* contains `block` and nothing else */
static uint64_t to_same_index;

static struct slab *slab_of(const void *p) { return slab_at_offset((uintptr_t)p - hak_region.base); }

/* Returns a seed for a heap's random numbers such that the next few numbers below `n` are all `wanted`. */
static uint64_t random_for(unsigned n, unsigned wanted) {
    struct heap *h = kit_heap[0];
    for (uint64_t seed = 1;; seed++) {
        unsigned hits = 0;
        secure_of(h)->random = seed;
        while (hits < 4 && random_below(h, n) == wanted)
            hits++;
        if (hits == 4)
            return seed;
    }
}

static void *secure_malloc(struct heap *h, size_t bytes, size_t alignment) {
    bool zero;
    return kind_secure_small.malloc(h, bytes, alignment, &zero);
}
static void give_back(struct heap *h, void *p) {
    kind_secure_small.free(h, slab_of(p), p);
    kind_secure_small.empty_heap(h);
}

/* Fills SuperSlab 0. Returns the number of its blocks. */
static unsigned full_setup(void) {
    start_options.mode = mode_secure;
    kit_setup();
    kit_purge_is_granted = true;
    /* The simulated kernel protects nothing, but in secure mode nothing is accessible at first. */
    os_commit(slot_address(0), 4 * SUPERSLAB_BYTES);
    race_unwatched(slot_address(0), 4 * SUPERSLAB_BYTES);
    for (unsigned i = 0; i < KIT_HEAPS; i++)
        secure_of(kit_heap[i])->random = 1;
    unsigned spans = spans_of(0), blocks = (unsigned)(SLOT_BYTES / (8 * KIB)), n = spans * blocks;
    /* Taking the last one would leave the heap without a free block, and it would start a slab first. */
    for (unsigned i = 0; i < n; i++) {
        kept[i] = secure_malloc(kit_heap[i + 1 < n ? 0 : 1], BYTES, 8);
        if (i + 2 == n)
            kind_secure_small.empty_heap(kit_heap[0]);
    }
    kind_secure_small.empty_heap(kit_heap[1]);
    kit_is_settled = true;
    return n;
}

/* SuperSlab 0 is full except for one span. SuperSlab 1 has one slab, on offer, with one block allocated. */
static void spans_setup(void) {
    unsigned n = full_setup(), spans = spans_of(0);
    size_t first = slot_of(slab_of(kept[0])) / SUPERSLAB_SLOTS;
    unsigned c = slab_class(slab_of(kept[0]));
    race_expect(order_of_class(c) == 0);
    secure_of(kit_heap[1])->random = random_for(spans, 2);
    block = secure_malloc(kit_heap[1], BYTES, 8);
    superslab = slot_of(slab_of(block)) / SUPERSLAB_SLOTS;
    race_expect(superslab != first && span_index(slot_of(slab_of(block)), 0) == 2);
    kind_secure_small.empty_heap(kit_heap[1]);
    struct slab *gone = slab_of(kept[0]);
    for (unsigned i = 0; i < n; i++)
        if (slab_of(kept[i]) == gone)
            give_back(kit_heap[0], kept[i]);
    race_expect(slab_kind(gone) == KIND_FREE);
    to_same_index = random_for(spans_of(1), 2);
    race_label(&superslab_at(superslab)->secure, 8, "spans' word");
    race_label(span_at(superslab, 2), sizeof(struct secure_span), "span");
}

/* ---- spans: one block comes back while another thread takes from the slab, gives all of it back, and has the
 * SuperSlab cut into spans of another size, where it starts and ends the slab with the same span number ---- */

static void spans_0(void) { kind_secure_small.free_without_heap(slab_of(block), block); }
static void spans_1(void) {
    struct heap *h = kit_heap[2];
    give_back(h, secure_malloc(h, BYTES, 8));
    secure_of(h)->random = to_same_index;
    give_back(h, secure_malloc(h, OTHER_BYTES, 8));
}

static bool has_room(const struct secure_span *span) {
    uint32_t held = load_relaxed(&span->held);
    return held != 0 && held - 1 < blocks_of(load_relaxed(&span->class_id));
}
static bool is_claimed(const struct secure_span *span) {
    bool some_heap = false;
    for (unsigned i = 0; i < KIT_HEAPS; i++)
        some_heap |= secure_of(kit_heap[i])->cache[load_relaxed(&span->class_id)].span == span;
    return some_heap && load_relaxed(&span->claimed);
}

/* A slab with free blocks belongs to a heap or is on offer. A span is free in its SuperSlab's word, held by nobody and
 * without a slab, or none of the three. Where a SuperSlab has a free span, the set of the order contains it. */
static void spans_check(void) {
    for (size_t i = 0; i < load_relaxed(&hak_region_use.superslabs); i++) {
        uint64_t w = load_relaxed(&superslab_at(i)->secure);
        if (w == 0)
            continue;
        unsigned order = (unsigned)(w >> 32) - 1;
        race_expect((uint16_t)w == 0 || bitset_has(&hak_region.sets, SET_SECURE + order, i));
        for (unsigned at = 0; at < spans_of(order); at++) {
            const struct slab *s = slab_of_slot(slot_of_span(i, at, order));
            race_expect(!has_room(span_at(i, at)) || is_claimed(span_at(i, at)) ||
                        superslab_is_offered(slot_of(s), slab_class(s)));
            bool is_free = w >> at & 1;
            race_expect(is_free == (load_relaxed(&span_at(i, at)->held) == 0));
            race_expect(is_free == (slab_kind(s) == KIND_FREE));
        }
    }
}
static void recut_check(void) {
    spans_check();
    race_saw(load_relaxed(&superslab_at(superslab)->secure) >> 32 == 2);
}
const struct race spans_race = {
    "spans", "a span of secure mode is used twice, or never again", spans_setup, {spans_0, spans_1}, recut_check, 2,
    NULL};

/* ---- node_spans: SuperSlab 1 has no memory; it was node 1's last, and node 0's before, whose set still has it. A
 * thread of node 0 takes it again and has a free span there, while another one, which needs a span, follows the old
 * hint ---- */

static size_t span;

static void node_spans_setup(void) {
    kit_nodes = 2;
    full_setup();
    race_expect(region_take_superslabs(1) == 1);
    superslab_begin_run(1, 1, 1);
    span = span_take(kit_heap[2], slab_class(slab_of(kept[0])));
    race_expect(span / SUPERSLAB_SLOTS == 2);
    superslab_give_run(1, 1, false);
    bitset_add(&hak_region.sets, SET_SECURE, 1);
}
static void node_spans_0(void) {
    bool zero;
    race_expect(pool_take_run(&kit_heap[1]->client, 1, SUPERSLAB_BYTES, &zero) == 1);
    store_seq(&superslab_at(1)->secure, (uint64_t)1 << 32 | 1);
    span_left_arena(kit_heap[1], 1); /* adds it to its set */
}
static void node_spans_1(void) { span = span_take(kit_heap[2], slab_class(slab_of(kept[0]))); }
static void node_spans_check(void) {
    race_expect(superslab_node(1) == 0);
    race_expect((uint16_t)load_relaxed(&superslab_at(1)->secure) == 0 || bitset_has(&hak_region.sets, SET_SECURE, 1));
    race_saw(span / SUPERSLAB_SLOTS - 1);
}
const struct race node_spans_race = {"node_spans",
                                     "a node does not find its free spans of secure mode",
                                     node_spans_setup,
                                     {node_spans_0, node_spans_1},
                                     node_spans_check,
                                     2,
                                     NULL};

/* ---- offer: one block of a full slab comes back while another thread gives back all others, then starts and offers a
 * slab of another class in the same place ---- */

enum { THIRD_BYTES = 4000 }; /* also in spans of one slot */
static void *third;

static void offer_setup(void) {
    unsigned n = full_setup(), held = 0;
    block = kept[n - 1];
    for (unsigned i = 0; i + 1 < n; i++)
        if (slab_of(kept[i]) == slab_of(block))
            kind_secure_small.free(kit_heap[held++ < 5 ? 2 : 3], slab_of(kept[i]), kept[i]);
    race_expect(held == 7 && load_relaxed(&slab_of(block)->mid.secure->held) == 9);
    race_expect(!superslab_is_offered(slot_of(slab_of(block)), slab_class(slab_of(block))));
    race_label(slab_of(block)->mid.secure, sizeof(struct secure_span), "span");
}
static void offer_1(void) {
    kind_secure_small.empty_heap(kit_heap[2]);
    kind_secure_small.empty_heap(kit_heap[3]);
    third = secure_malloc(kit_heap[2], THIRD_BYTES, 8);
    kind_secure_small.empty_heap(kit_heap[2]);
}
static void offer_check(void) {
    spans_check();
    race_saw(slab_of(third) == slab_of(block));
}
const struct race offer_race = {
    "offer", "free blocks of a slab of secure mode are not found", offer_setup, {spans_0, offer_1}, offer_check, 2,
    NULL};

/* ---- arena_secure: a thread that found the slab when it was the process's trims it, while its arena ends ---- */

static uintptr_t handle;

static void arena_secure_setup(void) {
    full_setup();
    handle = arena_make(NULL, false);
    struct heap *of = arena_heap(kit_heap[1], arena_checked(handle, ""));
    block = secure_malloc(of, BYTES, 8);
    superslab = slot_of(slab_of(block)) / SUPERSLAB_SLOTS;
    race_expect(superslab_arena(superslab) != 0);
    kind_secure_small.empty_heap(of); /* so that some blocks are free, and held by nobody */
    race_label(of, HEAP_BYTES, "arena's heap");
    race_label(&superslab_at(superslab)->secure, 8, "spans' word");
    race_label(slab_of(block)->mid.secure, sizeof(struct secure_span), "span");
    hak_heap = kit_heap[2];
}
static void arena_secure_0(void) {
    struct slab *s = slab_of(block);
    secure_slab_purge(kit_heap[3], s->mid.secure, slab_class(s));
}
static void arena_secure_1(void) { arena_end(handle, false, ""); }
static void arena_secure_check(void) {
    spans_check();
    race_expect(superslab_arena(superslab) == 0);
    race_expect((slab_kind(slab_of(block)) == KIND_FREE) == (load_relaxed(&slab_of(block)->mid.secure->held) == 0));
    race_saw(slab_kind(slab_of(block)) == KIND_SECURE_SMALL);
}
const struct race arena_secure_race = {"arena_secure",
                                       "blocks of a slab are taken after its arena has ended",
                                       arena_secure_setup,
                                       {arena_secure_0, arena_secure_1},
                                       arena_secure_check,
                                       2,
                                       NULL};
