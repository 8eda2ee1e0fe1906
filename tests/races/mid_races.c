/* Mid slabs, and the rings in front of them. */
/* SPDX-License-Identifier: MIT */
#include "alloc/alloc.h"
#include "base/options.h"
#include "kit.h"

static unsigned class_id, other_class;
static struct slab *slab;
static void *block[64], *got[RACE_THREADS];

/* The program writes to the block it has, and nobody else may. */
static void *mid_new(struct heap *h, unsigned c) {
    bool zero;
    uint64_t *p = mid_malloc(h, c, &zero);
    *p = 1;
    return p;
}
static void mid_give(struct heap *h, void *p) {
    *(uint64_t *)p = 2;
    mid_free(h, slab_at_offset((uintptr_t)p - hak_region.base), p);
}

/* Without rings, so each call goes to the slab. The lowest `out` blocks of the slab are allocated. */
static void slab_setup(unsigned out) {
    kit_setup();
    for (unsigned i = 0; i < KIT_HEAPS; i++)
        kit_heap[i]->ring_top = HEAP_BYTES;
    class_id = mid_class_of(8 * KIB), other_class = mid_class_of(10 * KIB);
    mid_new(kit_heap[0], mid_class_of(2 * KIB)); /* the SuperSlab stays in use */
    unsigned n = size_classes[class_id].blocks;
    for (unsigned i = 0; i < n; i++)
        block[i] = mid_new(kit_heap[0], class_id);
    slab = slab_at_offset((uintptr_t)block[0] - hak_region.base);
    race_expect(load_relaxed(&slab->free_blocks) == 0 && size_classes[class_id].slots == 1);
    for (unsigned i = out; i < n; i++)
        mid_give(kit_heap[0], block[i]);
    race_label(slab, sizeof *slab, "slab");
}

/* Checks that each block a thread got is live, of its class, and given to no other thread; that each block of the slab
 * is free or live; and that the slab's SuperSlab is in the right sets. */
static void slab_check(unsigned in_slab) {
    unsigned live = in_slab, classes[RACE_THREADS] = {class_id, class_id, other_class};
    for (unsigned i = 0; i < RACE_THREADS; i++) {
        if (got[i] == NULL)
            continue;
        struct slab *s = slab_at_offset((uintptr_t)got[i] - hak_region.base);
        race_expect(slab_kind(s) == KIND_MID);
        s = span_first(s);
        unsigned at = mid_block_at(s, got[i]);
        race_expect(slab_class(s) == classes[i] && at < s->mid.blocks);
        race_expect(load_relaxed(&s->mid.state[at]) == BLOCK_LIVE && !(load_relaxed(&s->free_blocks) >> at & 1));
        for (unsigned j = 0; j < i; j++)
            race_expect(got[j] != got[i]);
        live += s == slab;
    }
    if (slab_kind(slab) == KIND_MID)
        race_expect(count_bits(load_relaxed(&slab->free_blocks)) + live == slab->mid.blocks);
    else
        race_expect(live == 0 && load_relaxed(&slab->free_blocks) == 0);
    uint64_t word = load_relaxed(&superslab_at(slot_of(slab) / SUPERSLAB_SLOTS)->word);
    race_expect((word_active(word) >> slot_of(slab) % SUPERSLAB_SLOTS & 1) == (slab_kind(slab) == KIND_MID));
    kit_check_hints(slot_of(slab) / SUPERSLAB_SLOTS);
}

/* Checks that free blocks of a slab from which a thread allocated can be found. */
static void offered_check(void) {
    for (unsigned i = 0; i < RACE_THREADS; i++) {
        if (got[i] == NULL)
            continue;
        struct slab *s = span_first(slab_at_offset((uintptr_t)got[i] - hak_region.base));
        race_expect(load_relaxed(&s->free_blocks) == 0 || superslab_is_offered(slot_of(s), slab_class(s)));
    }
}

/* ---- retire: the last blocks come back while another thread takes one ---- */

static void retire_setup(void) { slab_setup(2); }
static void retire_0(void) { mid_give(kit_heap[1], block[0]); }
static void retire_1(void) { got[1] = mid_new(kit_heap[2], class_id); }
static void retire_2(void) { mid_give(kit_heap[3], block[1]); }
static void retire_both(void) {
    retire_2();
    retire_1();
}
static void retire_check(void) {
    slab_check(0);
    offered_check();
    race_saw(slab_kind(slab) == KIND_MID);
}
const struct race retire_race = {
    "retire", "a mid slab is given back while in use, or never", retire_setup, {retire_0, retire_both}, retire_check, 2,
    NULL};
const struct race retire_long_race = {"retire_long", "a mid slab is given back while in use, or never",
                                      retire_setup,  {retire_0, retire_1, retire_2},
                                      retire_check,  2,
                                      NULL};

/* ---- reuse: the slab is given back and its slot gets one of another class, while another thread takes from it ---- */

static void reuse_setup(void) {
    slab_setup(1);
    other_class = mid_class_of(5 * KIB);
    race_expect(size_classes[other_class].slots == 1);
}
static void reuse_1(void) { got[1] = mid_new(kit_heap[2], class_id); }
static void reuse_2(void) {
    mid_give(kit_heap[3], block[0]);
    got[2] = mid_new(kit_heap[3], other_class);
}
static void reuse_check(void) {
    slab_check(0);
    offered_check();
    race_saw(slab_at_offset((uintptr_t)got[1] - hak_region.base) == slab);
    race_saw(2 + (slab_at_offset((uintptr_t)got[2] - hak_region.base) == slab));
}
const struct race reuse_race = {"reuse",     "a block is handed out in the place of a larger or smaller one",
                                reuse_setup, {reuse_2, reuse_1},
                                reuse_check, 4,
                                NULL};

/* ---- refill: the same, but the thread that takes follows no offer: its ring was filled from there ---- */

static void refill_setup(void) {
    reuse_setup();
    struct heap *h = kit_heap[2];
    h->ring_top = (uint32_t)round_up(sizeof *h, HAK_LINE);
    struct ring *ring = ring_get(h, ring_of_class(class_id), 8 * KIB);
    h->ring_top = HEAP_BYTES;
    ring->cap = ring->room = 1; /* a refill takes no more than the caller gets */
    ring->from = slab;
}
const struct race refill_race = {"refill",     "a block is handed out in the place of a larger or smaller one",
                                 refill_setup, {reuse_2, reuse_1},
                                 reuse_check,  4,
                                 NULL};

/* ---- next_life: a thread is about to retire the slab, but another thread does so first and makes it a slab of another
 * class that has exactly these blocks free and four more in use ---- */

enum { OTHER_BLOCKS = 12 };
static void *others[OTHER_BLOCKS];

static void next_life_1(void) {
    mid_give(kit_heap[3], mid_new(kit_heap[3], class_id));
    for (unsigned i = 0; i < OTHER_BLOCKS; i++)
        others[i] = mid_new(kit_heap[3], other_class);
    for (unsigned i = 0; i < size_classes[class_id].blocks; i++)
        mid_give(kit_heap[3], others[i]);
    got[2] = others[OTHER_BLOCKS - 1];
}
static void next_life_check(void) {
    unsigned kept = 0; /* blocks of `others` in the slab, besides the last */
    race_expect(size_classes[other_class].blocks == OTHER_BLOCKS && size_classes[class_id].blocks == OTHER_BLOCKS - 4);
    for (unsigned i = OTHER_BLOCKS - 4; i < OTHER_BLOCKS - 1; i++)
        kept += slab_at_offset((uintptr_t)others[i] - hak_region.base) == slab;
    slab_check(kept);
    race_saw(kept != 0);
}
const struct race next_life_long_race = {"next_life_long",
                                         "a mid slab is given back while in use",
                                         reuse_setup,
                                         {retire_0, next_life_1},
                                         next_life_check,
                                         2,
                                         NULL};

/* As before; an offer that comes late must not hide the offer of the slab's next life. */
static void late_offer_check(void) {
    next_life_check();
    offered_check();
}
const struct race late_offer_race = {
    "late_offer", "free blocks of a mid slab are not found", reuse_setup, {retire_0, next_life_1}, late_offer_check, 2,
    NULL};

/* ---- trim: the free memory of the slab is purged while one block comes back and another is taken ---- */

static void trim_setup(void) { slab_setup(2); }
static void trim_0(void) { kind_mid.trim_slab(kit_heap[1], slab, TRIM_ALL); }
static void trim_1(void) {
    mid_give(kit_heap[2], block[0]);
    got[1] = mid_new(kit_heap[2], class_id);
}
static void trim_check(void) {
    slab_check(1);
    offered_check();
    race_saw(slab_at_offset((uintptr_t)got[1] - hak_region.base) == slab);
}
const struct race trim_race = {"trim", "pages of live blocks are purged", trim_setup, {trim_0, trim_1}, trim_check, 2,
                               NULL};

/* ---- unborn_look: a thread for which there is no memory for a heap frees a mid block, after which a look at a slab
 * that changed is due; a thread that has ended frees into that slab ---- */

static struct slab *noted;
static uintptr_t tiny_block[KIT_BLOCKS];

static void unborn_look_setup(void) {
    slab_setup(2);
    noted = kit_full_slab(kit_heap[0], tiny_block);
    for (unsigned i = 0; i < KIT_BLOCKS - 4; i++)
        kit_free(kit_heap[0], tiny_block[i]);
    slab_let_go(kit_heap[0], noted);
    store_relaxed(option_word(OPT_PURGE), PURGE_AUTO);
    store_relaxed(option_word(OPT_RETAIN_BYTES), 0); /* no slab may stay noted */
    store_relaxed(option_word(OPT_RETAIN_PERCENT), 0);
    kit_is_settled = kit_purge_is_granted = true;
    hak_heap = &heap_afterlife;
}
static void unborn_look_0(void) { mid_give(&heap_afterlife, block[0]); }
static void free_without_heap(struct slab *s, void *p) { kind_tiny.free_without_heap(s, p); }
static void unborn_look_1(void) { alloc_free_in(noted, block_word(tiny_block[KIT_BLOCKS - 1]), free_without_heap); }
static void unborn_look_check(void) {
    kit_account(noted, 3);
    race_expect(load_relaxed(&noted->owner) == OWNER_NONE && slab_listed(noted) == KIT_BLOCKS - 4);
    race_saw(0);
}
const struct race unborn_look_race = {"unborn_look",
                                      "two threads without a heap own the same slab",
                                      unborn_look_setup,
                                      {unborn_look_0, unborn_look_1},
                                      unborn_look_check,
                                      1,
                                      NULL};

/* ---- rings: a thread uses its ring while the purger empties it ---- */

static unsigned ring_index, taken;
static struct ring_entry mine[2], took[RING_PIECE_BLOCKS];

static void rings_setup(void) {
    kit_setup();
    class_id = mid_class_of(8 * KIB);
    ring_index = ring_of_class(class_id);
    for (unsigned i = 0; i < 5; i++)
        block[i] = mid_new(kit_heap[1], class_id);
    for (unsigned i = 0; i < 3; i++)
        mid_give(kit_heap[1], block[i]);
    slab = span_first(slab_at_offset((uintptr_t)block[0] - hak_region.base));
}
static void rings_0(void) {
    struct heap *h = kit_heap[1];
    for (unsigned i = 0; i < 2; i++) {
        mine[i] = ring_pop(h, ring_index);
        if (mine[i].block != 0 && ring_push(h, ring_index, mine[i].block, mine[i].state))
            mine[i].block = 0;
    }
}
static void rings_1(void) {
    if (caches_freeze(kit_heap[1]))
        taken = ring_take_piece(kit_heap[1]->ring[ring_index], took);
    caches_thaw(kit_heap[1]);
}
/* Checks that the program has `live` blocks of the slab, and that all others are in the slab, in the ring, or in a
 * harness's hands. */
static void rings_account(unsigned live) {
    bool seen[64] = {false};
    const struct ring *ring = kit_heap[1]->ring[ring_index];
    unsigned n = 0;
    for (unsigned i = 0; i < ring->blocks + taken + 2u; i++) {
        struct ring_entry e = i < ring->blocks           ? ring->entry[i]
                              : i - ring->blocks < taken ? took[i - ring->blocks]
                                                         : mine[i - ring->blocks - taken];
        if (e.block == 0 || span_first(slab_at_offset(e.block - hak_region.base)) != slab)
            continue;
        unsigned at = mid_block_at(slab, (void *)e.block); /* NOLINT: rings hold addresses */
        race_expect(at < 64 && !seen[at]);
        seen[at] = true;
        n++;
    }
    unsigned out = size_classes[class_id].blocks - count_bits(load_relaxed(&slab->free_blocks));
    race_expect(n == out - live);
    race_expect(!load_relaxed(&kit_heap[1]->caches_busy) && !load_relaxed(&kit_heap[1]->caches_flags));
}
static void rings_check(void) {
    rings_account(2);
    race_saw(taken != 0);
}
const struct race rings_race = {
    "rings", "a block in a ring is lost or handed out twice", rings_setup, {rings_0, rings_1}, rings_check, 2, NULL};

/* ---- mid_rings: as before, but by malloc and free, and the purger gives the blocks back to their slab ---- */

static void mid_rings_0(void) {
    struct ring_entry e = ring_pop(kit_heap[1], ring_index);
    bool zero;
    got[0] = e.block != 0 ? ring_hand_out(e, &zero) : mid_new(kit_heap[1], class_id);
    mid_give(kit_heap[1], block[3]);
}
static void mid_rings_1(void) {
    rings_1();
    kind_mid.give_back(kit_heap[2], took, taken);
}
static void mid_rings_check(void) {
    struct slab *s = span_first(slab_at_offset((uintptr_t)got[0] - hak_region.base));
    race_expect(load_relaxed(&s->mid.state[mid_block_at(s, got[0])]) == BLOCK_LIVE);
    race_saw(taken != 0);
    taken = 0; /* the blocks that were taken are in the slab again */
    rings_account(1 + (s == slab));
}
const struct race mid_rings_race = {"mid_rings",
                                    "a block in a ring is lost or handed out twice",
                                    rings_setup,
                                    {mid_rings_0, mid_rings_1},
                                    mid_rings_check,
                                    2,
                                    NULL};

/* ---- same_moment: two threads free the same block at the same moment, and it is in both rings ---- */

static _Atomic uint32_t freed;

static void same_moment_setup(void) {
    store_relaxed(&freed, 0);
    rings_setup();
    store_relaxed(option_word(OPT_ON_ERROR), ON_ERROR_IGNORE);
    for (unsigned i = 2; i < 4; i++)
        mid_give(kit_heap[i], mid_new(kit_heap[i], class_id)); /* they have rings */
}
/* Once both have freed the block, each heap allocates, one after the other. */
static void same_moment_free(struct heap *h) {
    mid_free(h, slab, block[3]);
    if (rmw_add(&freed, 1) == 1)
        for (unsigned i = 0; i < 2; i++)
            got[i] = mid_new(kit_heap[2 + i], class_id);
}
static void same_moment_0(void) { same_moment_free(kit_heap[2]); }
static void same_moment_1(void) { same_moment_free(kit_heap[3]); }
static void same_moment_check(void) {
    race_expect(got[0] != got[1]);
    race_expect(got[0] == block[3] || got[1] == block[3]);
    race_saw(got[1] == block[3]);
}
const struct race same_moment_race = {"same_moment",
                                      "two allocations get the same mid block",
                                      same_moment_setup,
                                      {same_moment_0, same_moment_1},
                                      same_moment_check,
                                      2,
                                      NULL};

/* ---- huge_twice: the same of a huge block, which goes back at once ---- */

static size_t active_before;
static void *huge_block;

static void huge_twice_setup(void) {
    bool zero;
    kit_setup();
    store_relaxed(option_word(OPT_ON_ERROR), ON_ERROR_IGNORE);
    active_before = account_active_slots();
    huge_block = kind_huge.malloc(kit_heap[0], SUPERSLAB_BYTES + 1, 1, &zero);
}
static void huge_twice_free(struct heap *h) {
    struct slab *s = slab_at_offset((uintptr_t)huge_block - hak_region.base);
    if (slab_kind(s) == KIND_HUGE)
        kind_huge.free(h, s, huge_block);
}
static void huge_twice_0(void) { huge_twice_free(kit_heap[1]); }
static void huge_twice_1(void) { huge_twice_free(kit_heap[2]); }
static void huge_twice_check(void) {
    race_expect(account_active_slots() == active_before);
    kit_check_hints((size_t)((uintptr_t)huge_block - hak_region.base) / SUPERSLAB_BYTES);
}
const struct race huge_twice_race = {"huge_twice",
                                     "a huge block is given back twice",
                                     huge_twice_setup,
                                     {huge_twice_0, huge_twice_1},
                                     huge_twice_check,
                                     0,
                                     NULL};
