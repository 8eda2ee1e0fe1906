/* The pool of guarded samples: two threads compete for a block of it. */
/* SPDX-License-Identifier: MIT */
#include "kit.h"
#include "observe/guard_sample.h"

static uint64_t *block[2];

/* The program takes the block and writes to it. */
static void get(unsigned i) {
    block[i] = guard_malloc(kit_heap[i], 200, 8);
    if (block[i] == NULL)
        return;
    race_expect(kit_is_open(block[i]));
    *block[i] = i + 1;
}
static void put(unsigned i) {
    if (block[i] == NULL)
        return;
    race_expect(kit_is_open(block[i]) && *block[i] == i + 1);
    kind_guard_page.free(kit_heap[0], slab_at_offset((uintptr_t)block[i] - hak_region.base), block[i]);
}

static void guard_0(void) { get(0); }
static void guard_1(void) { get(1); }
static void guard_both(void) {
    get(0);
    put(0);
    block[0] = NULL;
}

/* In the guard pool only the pages of live blocks are accessible; everywhere else all pages are. */
static void guard_check(void) {
    size_t slots = load_relaxed(&hak_region_use.superslabs) * SUPERSLAB_SLOTS, live[2];
    for (unsigned i = 0; i < 2; i++) {
        race_expect(block[i] == NULL || (kit_is_open(block[i]) && *block[i] == i + 1));
        live[i] = block[i] != NULL ? ((uintptr_t)block[i] - hak_region.base) / SLOT_BYTES : BITSET_NONE;
    }
    race_expect(live[0] != live[1] || block[0] == NULL);
    for (size_t slot = 0; slot < slots; slot++) {
        const struct slab *s = slab_of_slot(slot);
        bool is_live = slot == live[0] || slot == live[1];
        race_expect(!is_live || guard_is_live(s));
        race_expect(kit_is_open(slot_address(slot)) == (slab_kind(s) != KIND_GUARD_PAGE || is_live));
    }
}

/* ---- guard: both threads want the first block, for which the pool has to be created ---- */

static void guard_setup(void) {
    bool zero;
    kit_setup();
    kit_purge_is_granted = true;
    pool_take(&kit_heap[0]->client, 1, 1, 0, &zero);
    /* Two more SuperSlabs are committed. A thread that committed some later would reopen what had been forbidden
     * there. */
    pool_give_run(&kit_heap[0]->client, pool_take_run(&kit_heap[0]->client, 2, SUPERSLAB_BYTES, &zero), 2, false);
    kit_is_settled = true;
}
static void first_check(void) {
    guard_check();
    race_expect(block[0] != NULL && block[1] != NULL);
    race_saw(block[0] < block[1]);
}
const struct race guard_race = {
    "guard", "a live block is zeroed and made inaccessible", guard_setup, {guard_0, guard_1}, first_check, 2, NULL};

/* ---- guard_again: the pool exists, one of its slots was freed, and all others are live ---- */

static void again_setup(void) {
    guard_setup();
    for (unsigned i = 0; i < SUPERSLAB_SLOTS; i++)
        get(0);
    put(0);
    block[0] = NULL;
}
static void again_check(void) { /* block 0 is freed, those before it are live */
    race_expect(block[1] == NULL || (kit_is_open(block[1]) && *block[1] == 2));
    race_saw(block[1] != NULL);
}
const struct race guard_again_race = {
    "guard_again", "two blocks lie in one place", again_setup, {guard_both, guard_1}, again_check, 2, NULL};
