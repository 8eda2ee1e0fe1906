/* Slabs whose blocks are to move, or whose pages are shared, against frees by other threads. */
/* SPDX-License-Identifier: MIT */
#include "kit.h"
#include "mesh/meshed.h"
#include "process/hooks.h"

static struct slab *slab;
static uintptr_t block[KIT_BLOCKS];
static void *got; /* by a dense allocation */
static bool moved;

/* ---- moving: the cursor lists a block of a slab without owner; it moves while others are freed and come ---- */

static void moving_setup(void) {
    kit_setup();
    slab = kit_full_slab(kit_heap[0], block);
    for (unsigned i = 4; i < KIT_BLOCKS; i++)
        kit_free(kit_heap[1], block[i]);
    slab_let_go(kit_heap[1], slab);
    kit_heap[2]->drained_at = heap_remote_frees(kit_heap[2]), kit_heap[2]->adoptions_left = 0;
    outbox_free(kit_heap[2], slab, block[1]);
    race_expect(load_relaxed(&slab->owner) == OWNER_NONE && load_relaxed(&kit_heap[2]->outbox_slabs) == 1);
}
static void moving_0(void) {
    uint64_t live[LIVE_WORDS] = {0};
    kind_tiny.live(kit_heap[1], slab, KIT_CLASS, live);
    unsigned index = (unsigned)(block[0] - (uintptr_t)slab_address(slab)) / 1024;
    race_expect((live[index / 64] & ~low_bits(KIT_BLOCKS)) == 0);
    moved = live[index / 64] >> index % 64 & 1 && kind_tiny.is_live(kit_heap[1], slab, KIT_CLASS, index);
    if (moved)
        kind_tiny.free_dense(kit_heap[1], slab, block_word(block[0]));
}
static void moving_1(void) { outbox_flush(kit_heap[2]); }
static void moving_2(void) {
    bool zero;
    got = hooks_move.dense(&kind_tiny)(kit_heap[3], 1024, 1, &zero);
}
static void moving_check(void) {
    bool here = got != NULL && kit_slab_of((uintptr_t)got) == slab;
    kit_account(slab, 3u - moved + here);
    race_saw(moved);
}
const struct race moving_race = {"moving",     "a block that moves is lost, or handed out twice",
                                 moving_setup, {moving_0, moving_1, moving_2},
                                 moving_check, 2,
                                 NULL};

/* ---- meshed: a pass closes a slab; one thread took it for a tiny one, another sees what it is ---- */

static void meshed_setup(void) {
    kit_setup();
    slab = kit_full_slab(kit_heap[0], block);
    for (unsigned i = 2; i < KIT_BLOCKS; i++)
        kit_free(kit_heap[1], block[i]);
    kit_heap[2]->drained_at = heap_remote_frees(kit_heap[2]);
    outbox_free(kit_heap[2], slab, block[0]);
    race_expect(load_relaxed(&kit_heap[2]->outbox_slabs) == 1 && meshed_reserve(slab) != NULL);
}
static void meshed_0(void) {
    uint64_t live[MESHED_BLOCKS_MAX / 64] = {0};
    for (unsigned i = 0; i < 2; i++)
        live[0] |= (uint64_t)1 << (block[i] - (uintptr_t)slab_address(slab)) / 1024;
    slab_unlist(kit_heap[1], slab);
    meshed_close(slab, live, 2);
    outbox_drain_closed(kit_heap[1], slab);
    meshed_closed(kit_heap[1], slab);
}
static void meshed_1(void) { outbox_flush(kit_heap[2]); }
static void meshed_2(void) {
    kinds[slab_kind(slab)]->free(kit_heap[3], slab, block_word(block[1]));
    outbox_flush(kit_heap[3]);
}
static void meshed_check(void) {
    race_expect(load_relaxed(&slab->owner) == OWNER_POOL && slab_kind(slab) == KIND_FREE);
    kit_account(slab, 0);
}
const struct race meshed_race = {"meshed",     "a slab that shared pages is never given back, or twice",
                                 meshed_setup, {meshed_0, meshed_1, meshed_2},
                                 meshed_check, 0,
                                 NULL};

/* ---- mesh_hold: two passes want a meshed slab whose last block is freed ---- */

static bool held[2];

/* All blocks but the first are freed, and the heap owns the slab. */
static void leave_one_block(struct heap *h, struct slab *s, const uintptr_t blocks[KIT_BLOCKS]) {
    for (unsigned i = 1; i < KIT_BLOCKS; i++)
        kit_free(h, blocks[i]);
    slab_unlist(h, s);
}
static void close_with_one_block(struct heap *h, struct slab *s, uintptr_t first) {
    uint64_t live[MESHED_BLOCKS_MAX / 64] = {0};
    live[0] = (uint64_t)1 << (first - (uintptr_t)slab_address(s)) / 1024;
    meshed_close(s, live, 1);
    outbox_drain_closed(h, s);
    meshed_closed(h, s);
}
static void mesh_hold_setup(void) {
    kit_setup();
    slab = kit_full_slab(kit_heap[0], block);
    leave_one_block(kit_heap[1], slab, block);
    race_expect(meshed_reserve(slab) != NULL);
    close_with_one_block(kit_heap[1], slab, block[0]);
}
static bool pass(struct heap *h) {
    uint64_t live[MESHED_BLOCKS_MAX / 64];
    struct meshed *m = slab_kind(slab) == KIND_MESHED ? meshed_hold(h, slab, live) : NULL;
    if (m == NULL)
        return false;
    race_expect(slab_kind(slab) == KIND_MESHED);
    m->unused++;
    meshed_release(h, slab);
    return true;
}
static void mesh_hold_0(void) { held[0] = pass(kit_heap[1]); }
static void mesh_hold_1(void) { held[1] = pass(kit_heap[2]); }
static void mesh_hold_2(void) { kind_meshed.free(kit_heap[3], slab, block_word(block[0])); }
static void mesh_hold_check(void) {
    race_expect(load_relaxed(&slab->owner) == OWNER_POOL && slab_kind(slab) == KIND_FREE);
    kit_account(slab, 0);
    race_saw(held[0] + held[1]);
}
const struct race mesh_hold_race = {"mesh_hold",
                                    "pages that share memory are merged by two passes, or their slab ends meanwhile",
                                    mesh_hold_setup,
                                    {mesh_hold_0, mesh_hold_1, mesh_hold_2},
                                    mesh_hold_check,
                                    3,
                                    NULL};

/* ---- mesh_reuse: a pass is late, and the slab's record is another slab's by then ---- */

static struct slab *other;
static uintptr_t in_other[KIT_BLOCKS];

static void mesh_reuse_setup(void) {
    kit_setup();
    slab = kit_full_slab(kit_heap[0], block);
    other = kit_full_slab(kit_heap[3], in_other);
    leave_one_block(kit_heap[1], slab, block);
    leave_one_block(kit_heap[2], other, in_other);
    race_expect(meshed_reserve(slab) != NULL);
    close_with_one_block(kit_heap[1], slab, block[0]);
}
static void mesh_reuse_0(void) { held[0] = pass(kit_heap[1]); }
static void mesh_reuse_1(void) {
    kind_meshed.free(kit_heap[2], slab, block_word(block[0]));
    if (slab_kind(slab) == KIND_FREE && meshed_reserve(other) != NULL)
        close_with_one_block(kit_heap[2], other, in_other[0]);
}
static void mesh_reuse_check(void) {
    race_expect(slab_kind(slab) == KIND_FREE);
    race_saw(slab_kind(other) == KIND_MESHED ? 0 : 1);
}
const struct race mesh_reuse_race = {"mesh_reuse",
                                     "a late pass takes another slab's pages for those of its own",
                                     mesh_reuse_setup,
                                     {mesh_reuse_0, mesh_reuse_1},
                                     mesh_reuse_check,
                                     2,
                                     NULL};

/* ---- mesh_next: a pass is late, and the record is another meshed slab's by then, at a new place in the table ---- */

static bool began;

static void mesh_next_1(void) {
    uint64_t live[MESHED_BLOCKS_MAX / 64] = {1};
    unsigned n;
    kind_meshed.free(kit_heap[2], slab, block_word(block[0]));
    if (slab_kind(slab) != KIND_FREE)
        return;
    meshed_reserve(other); /* the place that the slab had */
    began = tiny_start_slab(kit_heap[2], KIT_CLASS, 0) == slab;
    if (!began) /* the pass has not given the slot back yet */
        return;
    tiny_cut_blocks(KIT_CLASS, slab, &n);
    *block_word(block[0]) = 1;
    meshed_reserve(slab);
    meshed_close(slab, live, 1);
    outbox_drain_closed(kit_heap[2], slab);
    meshed_closed(kit_heap[2], slab);
}
static void mesh_next_check(void) {
    race_saw(began);
    if (began) {
        race_expect(slab_kind(slab) == KIND_MESHED && *block_word(block[0]) == 1);
        kind_meshed.free(kit_heap[3], slab, block_word(block[0]));
    }
    race_expect(slab_kind(slab) == KIND_FREE);
}
const struct race mesh_next_race = {"mesh_next",
                                    "a late pass gives a slab back whose blocks are in use",
                                    mesh_reuse_setup,
                                    {mesh_reuse_0, mesh_next_1},
                                    mesh_next_check,
                                    2,
                                    NULL};
