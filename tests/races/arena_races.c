/* The end of an arena, and threads that it does not know of. */
/* SPDX-License-Identifier: MIT */
#include "kit.h"
#include "arena/arena.h"
#include "arena/arena_heap.h"
#include "space/arena_space.h"
#include "process/tunables.h"
#include "space/purge.h"
#include "heap/ring.h"

static uintptr_t handle;
static struct heap *of; /* heap 1's in the arena */
static struct slab *slab;
static void *block[16];

/* Heap 2 ends the arena, in which heap 1 has allocated `out` blocks of `bytes` and freed the others of the slab. */
static void arena_setup(size_t bytes, unsigned blocks, unsigned out) {
    kit_setup();
    handle = arena_make(NULL, false);
    of = arena_heap(kit_heap[1], arena_checked(handle, ""));
    of->ring_top = HEAP_BYTES; /* no rings */
    race_label(of, HEAP_BYTES, "arena's heap");
    const struct kind *kind = bytes > TINY_BYTES_MAX ? &kind_mid : &kind_tiny;
    for (unsigned i = 0; i < blocks; i++) {
        bool zero;
        block[i] = kind->malloc(of, bytes, 1, &zero);
        *(uint64_t *)block[i] = 1;
    }
    slab = slab_at_offset((uintptr_t)block[0] - hak_region.base);
    for (unsigned i = out; i < blocks; i++)
        kind->free(of, slab, block[i]);
    race_label(slab, sizeof *slab, "slab");
    hak_heap = kit_heap[2];
}
static void arena_ends(void) { arena_end(handle, false, ""); }

static bool is_active(const struct slab *s) {
    uint64_t word = load_relaxed(&superslab_at(slot_of(s) / SUPERSLAB_SLOTS)->word);
    return word_active(word) >> slot_of(s) % SUPERSLAB_SLOTS & 1;
}
static void ended_check(void) {
    size_t superslab = slot_of(slab) / SUPERSLAB_SLOTS;
    race_expect(superslab_arena(superslab) == 0 && (slab_kind(slab) != KIND_FREE) == is_active(slab));
    race_expect(load_relaxed(&of->arena.handle) == 0 && !load_relaxed(&of->in_use) &&
                load_relaxed(&of->arena.holder) == NULL);
    kit_check_hints(superslab);
}

/* ---- arena_mid: a thread that found the slab when it was the process's trims it ---- */

static void arena_mid_setup(void) { arena_setup(16 * KIB, 2, 1); }
static void arena_mid_0(void) { kind_mid.trim_slab(kit_heap[3], slab, TRIM_IDLE); }
static void arena_mid_check(void) {
    ended_check();
    race_expect(slab_kind(slab) == KIND_MID || load_relaxed(&slab->free_blocks) == 0);
    race_saw(slab_kind(slab) == KIND_MID);
}
const struct race arena_mid_race = {"arena_mid",
                                    "pages of a block in use are purged after an arena has ended",
                                    arena_mid_setup,
                                    {arena_mid_0, arena_ends},
                                    arena_mid_check,
                                    2,
                                    NULL};

/* ---- arena_tiny: the same with a tiny slab that nobody owns ---- */

static void arena_tiny_setup(void) {
    arena_setup(KIB, 16, 2);
    thread_empty_heap(of);
    race_expect(load_relaxed(&slab->owner) == OWNER_NONE);
}
static void arena_tiny_0(void) { kind_tiny.trim_slab(kit_heap[3], slab, TRIM_IDLE); }
static void arena_tiny_check(void) {
    ended_check();
    race_expect(slab_kind(slab) == KIND_TINY ? load_relaxed(&slab->owner) == OWNER_NONE
                                             : load_relaxed(&slab->owner) == OWNER_POOL);
    race_saw(slab_kind(slab) == KIND_TINY);
}
const struct race arena_tiny_race = {"arena_tiny",
                                     "a thread owns a slab of an arena that has ended",
                                     arena_tiny_setup,
                                     {arena_tiny_0, arena_ends},
                                     arena_tiny_check,
                                     2,
                                     NULL};

/* ---- arena_emptied: the same, when all blocks that were out wait in the inbox, so that the thread that trims gives
 * the slot back ---- */

static void arena_emptied_setup(void) {
    arena_tiny_setup();
    for (unsigned i = 0; i < 2; i++)
        inbox_push_one(slab, (uintptr_t)block[i]);
}
static void arena_emptied_check(void) {
    size_t superslab = slot_of(slab) / SUPERSLAB_SLOTS;
    race_expect(superslab_arena(superslab) == 0 && slab_kind(slab) == KIND_FREE && !is_active(slab));
    race_expect(load_relaxed(&slab->owner) == OWNER_POOL);
    kit_check_hints(superslab);
    race_saw(0);
}
const struct race arena_emptied_race = {"arena_emptied",
                                        "the end of an arena ends the program",
                                        arena_emptied_setup,
                                        {arena_tiny_0, arena_ends},
                                        arena_emptied_check,
                                        1,
                                        NULL};

/* ---- arena_cursor: the cursor over sparse slabs finds the same slab ---- */

static bool kept;

static void arena_cursor_0(void) {
    uint64_t live[LIVE_WORDS] = {0};
    kind_tiny.live(kit_heap[3], slab, KIT_CLASS, live);
    kept = load_relaxed(&slab->owner) == kit_heap[3];
    race_expect(!kept || superslab_arena(slot_of(slab) / SUPERSLAB_SLOTS) == 0);
}
static void arena_cursor_check(void) {
    ended_check();
    race_expect(load_relaxed(&slab->owner) == (kept                           ? kit_heap[3]
                                               : slab_kind(slab) == KIND_TINY ? OWNER_NONE
                                                                              : OWNER_POOL));
    race_saw(kept);
}
const struct race arena_cursor_race = {"arena_cursor",
                                       "the process allocates in a slab of an arena, and the blocks go with that",
                                       arena_tiny_setup,
                                       {arena_cursor_0, arena_ends},
                                       arena_cursor_check,
                                       2,
                                       NULL};

/* ---- arena_sent: a slab ends while a sender looks whether anybody owns it, and the next there is the arena's ---- */

static void arena_sent_setup(void) {
    kit_setup();
    kit_is_settled = kit_purge_is_granted = true;
    store_relaxed(&hak_tunables.word[TUNE_batch_blocks], 1);
    hak_heap = kit_heap[2];
    handle = arena_make(NULL, false);
    of = arena_heap(kit_heap[2], arena_checked(handle, ""));
    of->ring_top = HEAP_BYTES; /* no rings */
    race_label(of, HEAP_BYTES, "arena's heap");
    block[0] = (void *)kit_malloc(kit_heap[1]);
    slab = kit_slab_of((uintptr_t)block[0]);
    race_label(slab, sizeof *slab, "slab");
}
static void arena_sent_0(void) {
    outbox_free(kit_heap[3], slab, (uintptr_t)block[0]);
    kept = load_relaxed(&slab->owner) == kit_heap[3];
    race_expect(!kept || superslab_arena(slot_of(slab) / SUPERSLAB_SLOTS) == 0);
}
static void arena_sent_1(void) {
    bool zero;
    thread_empty_heap(kit_heap[1]);
    if (slab_kind(slab) != KIND_FREE)
        return;
    purge_empty(&kit_heap[1]->client, 0, false);
    block[1] = kind_tiny.malloc(of, KIB, 1, &zero);
    thread_empty_heap(of);
}
static void arena_sent_check(void) {
    bool is_arenas = superslab_arena(slot_of(slab) / SUPERSLAB_SLOTS) != 0;
    race_expect(!is_arenas || load_relaxed(&slab->owner) == OWNER_NONE);
    race_saw(is_arenas);
}
const struct race arena_sent_race = {"arena_sent",
                                     "the process allocates in a slab of an arena, and the blocks go with that",
                                     arena_sent_setup,
                                     {arena_sent_0, arena_sent_1},
                                     arena_sent_check,
                                     2,
                                     NULL};

/* ---- arena_inbox: a refill of the process follows an old hint to the slab's inbox ---- */

static void arena_inbox_setup(void) {
    arena_setup(KIB, 16, 2);
    thread_empty_heap(of);
    kind_tiny.free_past_caches(kit_heap[2], slab, block[1]);
    race_expect(load_relaxed(&slab->inbox) != 0);
    store_relaxed(&superslab_at(slot_of(slab) / SUPERSLAB_SLOTS)->inbox_mask, 1u << slot_of(slab) % SUPERSLAB_SLOTS);
    bitset_add(&hak_region.sets, SET_INBOX + KIT_CLASS, slot_of(slab) / SUPERSLAB_SLOTS);
}
static void arena_inbox_0(void) { race_expect(tiny_refill(kit_heap[3], KIT_CLASS) != 0); }
static void arena_inbox_check(void) {
    ended_check();
    race_expect(load_relaxed(&slab->inbox) == 0); /* else the next slab there hands out a block twice */
    race_saw(slab_kind(slab) == KIND_TINY);       /* the refill began that one */
}
const struct race arena_inbox_race = {"arena_inbox",
                                      "blocks of an arena that has ended are handed out again",
                                      arena_inbox_setup,
                                      {arena_inbox_0, arena_ends},
                                      arena_inbox_check,
                                      2,
                                      NULL};

/* ---- arena_cached: the purger is at a wholly EMPTY SuperSlab of the arena ---- */

static void arena_cached_setup(void) { arena_setup(16 * KIB, 1, 0); }
static void arena_cached_0(void) { purge_empty(&kit_heap[3]->client, 0, false); }
static void arena_cached_check(void) {
    size_t superslab = slot_of(slab) / SUPERSLAB_SLOTS;
    ended_check();
    bool is_cached = word_is_cached(load_relaxed(&superslab_at(superslab)->word));
    race_expect(load_relaxed(&hak_account.cached_superslabs) == is_cached);
    race_saw(is_cached);
}
const struct race arena_cached_race = {"arena_cached",
                                       "SuperSlabs stay resident that the cache's bounds would give back",
                                       arena_cached_setup,
                                       {arena_cached_0, arena_ends},
                                       arena_cached_check,
                                       2,
                                       NULL};

/* ---- arena_exit: a thread that has a heap there ends ---- */

static struct heap *next;

static void arena_exit_setup(void) { arena_setup(16 * KIB, 2, 1); }
static void arena_exit_0(void) { arena_leave_all(kit_heap[1]); }
static void arena_exit_1(void) {
    arena_ends();
    next = heap_take_for_arena();
    store_relaxed(&next->arena.holder, kit_heap[2]);
}
static void arena_exit_check(void) {
    race_expect(!kit_heap[1]->has_arenas && load_relaxed(&next->arena.holder) == kit_heap[2]);
    race_expect(next != of || load_relaxed(&of->arena.handle) == 0);
    race_saw(0);
}
const struct race arena_exit_race = {"arena_exit",
                                     "a heap of an arena serves two threads",
                                     arena_exit_setup,
                                     {arena_exit_0, arena_exit_1},
                                     arena_exit_check,
                                     1,
                                     NULL};

/* ---- arena_named: statistics meet an arena that ends while another takes its record ---- */

static struct arena_seen report;
static bool seen;

static void arena_named_setup(void) {
    kit_setup();
    kit_is_settled = true;
    hak_heap = kit_heap[2];
    handle = arena_make(&(hak_arena_options){.name = "a", .limit_bytes = SLOT_BYTES}, false);
}
static void arena_named_0(void) { seen = arena_see(arena_number(handle), &report); }
static void arena_named_1(void) {
    arena_ends();
    arena_make(&(hak_arena_options){.name = "b", .limit_bytes = 2 * SLOT_BYTES}, false);
}
static void arena_named_check(void) {
    race_saw(!seen ? 0 : report.name[0] == 'a' ? 1 : 2);
    race_expect(!seen || report.use.limit_bytes == (report.name[0] == 'a' ? 1 : 2) * SLOT_BYTES);
}
const struct race arena_named_race = {"arena_named",
                                      "a report has one arena's name beside another's figures",
                                      arena_named_setup,
                                      {arena_named_0, arena_named_1},
                                      arena_named_check,
                                      3,
                                      NULL};

/* ---- arena_left: a thread ends while the purger is at its caches, and an arena takes the thread's heap ---- */

static void arena_left_setup(void) {
    bool zero;
    kit_setup();
    kit_is_settled = true;
    hak_heap = &heap_afterlife;
    handle = arena_make(NULL, false);
    void *p = kind_mid.malloc(kit_heap[1], 16 * KIB, 1, &zero);
    kind_mid.free(kit_heap[1], slab_at_offset((uintptr_t)p - hak_region.base), p); /* into the ring */
    race_expect(rings_use(kit_heap[1]) != 0);
}
static void arena_left_0(void) {
    caches_freeze(kit_heap[1]); /* they are in use, and stay as they are */
    caches_thaw(kit_heap[1]);
}
static void arena_left_1(void) {
    bool zero;
    thread_leave(kit_heap[1]);
    of = arena_heap(kit_heap[2], arena_checked(handle, ""));
    block[0] = kind_mid.malloc(of, 16 * KIB, 1, &zero);
}
static void arena_left_check(void) {
    race_expect(arena_of_block(block[0]) == handle);
    race_saw(of == kit_heap[1]);
}
const struct race arena_left_race = {"arena_left",
                                     "an arena hands out blocks of the process",
                                     arena_left_setup,
                                     {arena_left_0, arena_left_1},
                                     arena_left_check,
                                     2,
                                     NULL};
