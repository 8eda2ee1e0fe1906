/* The pool, and the bitmaps it searches with. */
/* SPDX-License-Identifier: MIT */
#include "kit.h"
#include "base/options.h"
#include "base/text.h"
#include "pool/limits.h"
#include "pool/retain.h"
#include "space/purge.h"

#define LOSES "a slot is used twice, purged while in use, or lost"

/* ---- pool: taking, giving and purging at once ---- */

void __real_retain_settle(struct client *c);
static struct client client[RACE_THREADS];
static size_t given, empty, taken;

static uint64_t *first_word(size_t slot) { return (uint64_t *)(void *)slot_address(slot); }

/* Two slots, and a third that stays in use if `kept`. */
static void slots_setup(bool kept) {
    bool zero;
    kit_setup();
    size_t first = pool_take(&client[0], 1, 1, 0, &zero);
    given = pool_take(&client[0], 1, 1, 0, &zero);
    empty = pool_take(&client[0], 1, 1, 0, &zero);
    race_expect(first == 0 && given == 1 && empty == 2);
    *first_word(given) = *first_word(empty) = 1;
    pool_give(&client[0], empty, 1, 0, true);
    if (!kept)
        pool_give(&client[0], first, 1, 0, true);
    retain_settle(&client[0]);
}
static void pool_setup(void) { slots_setup(true); }
static void pool_0(void) {
    bool zero;
    taken = pool_take(&client[0], 1, 1, 0, &zero);
    race_expect(!zero || *first_word(taken) == 0);
    *first_word(taken) = 2;
}
static void pool_1(void) {
    *first_word(given) = 3;
    pool_give(&client[1], given, 1, 0, true);
}
static void pool_2(void) { purge_empty(&client[2], 0, false); }
static void slots_check(void) {
    size_t superslab = taken / SUPERSLAB_SLOTS;
    uint64_t word = load_relaxed(&superslab_at(superslab)->word);
    race_expect(word_active(word) >> taken % SUPERSLAB_SLOTS & 1);
    race_expect(word_resident(word) >> taken % SUPERSLAB_SLOTS & 1);
    race_expect(*first_word(taken) == 2);
    race_expect(taken == given || !(word_active(word) >> given % SUPERSLAB_SLOTS & 1));
    kit_check_hints(0);
    kit_check_hints(superslab);
}
static void pool_check(void) {
    slots_check();
    race_saw(taken == given ? 0 : taken == empty ? 1 : 2);
}
const struct race pool_race = {"pool", LOSES, pool_setup, {pool_0, pool_1, pool_2}, pool_check, 3, NULL};

/* ---- cache: as before, but the slot is the last one in use of its SuperSlab ---- */

static void cache_setup(void) { slots_setup(false); }
static void cache_check(void) {
    slots_check();
    race_saw(taken / SUPERSLAB_SLOTS);
    race_saw(2 + (account_cached_superslabs() != 0));
}
static void cache_1(void) {
    pool_1();
    pool_2();
}
const struct race cache_race = {"cache", LOSES, cache_setup, {pool_0, cache_1}, cache_check, 4, NULL};
const struct race cache_long_race = {"cache_long", LOSES, cache_setup, {pool_0, pool_1, pool_2}, cache_check, 4, NULL};

/* ---- nodes: SuperSlab 0 has been node 0's and then node 1's, and has no memory. Node 0 takes it again, while a thread
 * of node 1 follows an old hint, and a third thread finds that hints are wrong ---- */

static void take_and_give(unsigned node, bool whole, bool kept) {
    struct superslab_wish wish = {.client = &client[node], .slots = 1, .align = 1, .node = node, .from = node};
    size_t slot = superslab_take(0, whole, &wish);
    if (whole)
        taken = slot;
    if (slot != BITSET_NONE && !(whole && kept))
        superslab_give(0, span_mask((unsigned)slot, 1), 0, kept);
}
static void nodes_setup(void) {
    kit_nodes = 2;
    kit_setup();
    race_expect(region_take_superslabs(1) == 0);
    take_and_give(0, true, false);
    take_and_give(1, true, false);
    race_expect(superslab_node(0) == 1 && bitset_has(&hak_region.sets, set_of_node(SET_ROOM_1, 0), 0));
    race_label(bitset_word(&hak_region.sets, set_of_node(0, 1), 0, 0), SETS * 8, "sets of node 1");
}
static void nodes_0(void) { take_and_give(0, true, true); }
static void nodes_1(void) { take_and_give(1, false, true); }
static void nodes_2(void) { superslab_check_hints_of_nodes(SET_ROOM_1, 0); }
static void nodes_check(void) {
    race_expect(superslab_node(0) == 0 && taken == 0);
    kit_check_hints(0);
    race_saw(word_resident(load_relaxed(&superslab_at(0)->word)) == 1);
}
const struct race nodes_race = {
    "nodes", "a node does not find its free memory", nodes_setup, {nodes_0, nodes_1, nodes_2}, nodes_check, 2, NULL};

/* ---- node_offer: the SuperSlab has had the same two nodes, and node 0's set of those with offers still has it. Node 0
 * takes it again and offers a slab there, while another thread of node 0 follows the old hint ---- */

static size_t found;

static void node_offer_setup(void) {
    kit_nodes = 2;
    kit_setup();
    race_expect(region_take_superslabs(1) == 0);
    struct superslab_wish wish = {.client = &client[0], .slots = 1, .align = 1};
    size_t slot = superslab_take(0, true, &wish);
    superslab_offer(slot, KIT_CLASS);
    race_expect(superslab_take_offer_in(superslab_at(0), offer_tag(0, KIT_CLASS)) == slot);
    superslab_give(0, span_mask((unsigned)slot, 1), 0, false);
    take_and_give(1, true, false);
    race_expect(superslab_node(0) == 1 && bitset_has(&hak_region.sets, set_of_node(SET_OFFER + KIT_CLASS, 0), 0));
}
static void node_offer_0(void) {
    take_and_give(0, true, true);
    superslab_offer(taken, KIT_CLASS);
}
static void node_offer_1(void) { found = superslab_take_offer(&client[1], KIT_CLASS, 0); }
static void node_offer_check(void) {
    race_expect(found == taken || bitset_has(&hak_region.sets, set_of_node(SET_OFFER + KIT_CLASS, 0), 0));
    race_saw(found == taken);
}
const struct race node_offer_race = {"node_offer",
                                     "a node does not find the slabs on offer there",
                                     node_offer_setup,
                                     {node_offer_0, node_offer_1},
                                     node_offer_check,
                                     2,
                                     NULL};

/* ---- limit: two threads take; one more slot is allowed, and one is EMPTY ---- */

static size_t most;
static size_t got[2];

static void limit_setup(void) {
    char bytes[24] = {0};
    slots_setup(true);
    most = account_resident_slots() + 1;
    struct text t = {bytes, sizeof bytes - 1, 0, -1};
    text_number(&t, limits_counted_bytes() + SLOT_BYTES);
    race_expect(option_set("HARD_LIMIT", bytes) == 0);
}
static void limit_0(void) {
    bool zero;
    got[0] = pool_take(&client[0], 1, 1, 0, &zero);
    race_expect(account_resident_slots() <= most);
}
static void limit_1(void) {
    bool zero;
    got[1] = pool_take(&client[1], 2, 1, 0, &zero);
    race_expect(account_resident_slots() <= most);
}
static void limit_check(void) {
    struct superslab_totals slots;
    superslab_count(&slots);
    race_expect(account_resident_slots() == slots.active_slots + slots.empty_slots);
    race_expect(slots.active_slots + slots.empty_slots <= most);
    race_expect(got[0] != BITSET_NONE || got[1] != BITSET_NONE);
    race_saw(got[1] != BITSET_NONE);
    kit_check_hints(0);
}
const struct race limit_race = {"limit", "the heap outgrows its limit", limit_setup, {limit_0, limit_1}, limit_check, 2,
                                NULL};

/* ---- lazy: one thread takes a slot, while another gives one and makes what is EMPTY LAZY, and a third makes what is
 * LAZY UNUSED. One slot is LAZY already ---- */

static void lazy_setup(void) {
    slots_setup(true);
    purge_empty(&client[0], 0, true);
}
static void lazy_1(void) {
    pool_1();
    purge_empty(&client[1], 0, true);
}
static void lazy_2(void) { purge_lazy(&client[2], SIZE_MAX, 0); }
static void lazy_0(void) {
    lazy_2();
    pool_0();
}
static void lazy_hint_0(void) {
    lazy_2();
    lazy_2(); /* finds nothing LAZY, and drops the hint */
}
static void lazy_hint_check(void) {
    struct superslab_totals slots;
    superslab_count(&slots);
    uint64_t word = load_relaxed(&superslab_at(0)->word);
    uint32_t lazy = load_relaxed(&superslab_at(0)->lazy);
    race_expect((lazy & (word_active(word) | word_resident(word))) == 0);
    race_expect(account_lazy_slots() == slots.lazy_slots);
    race_expect(lazy == 0 || bitset_has(&hak_region.sets, set_of_node(SET_LAZY, 0), 0));
    race_saw(lazy != 0);
}
static void lazy_check(void) {
    slots_check();
    lazy_hint_check();
    race_saw(2 + (taken == given));
}
const struct race lazy_race = {"lazy", LOSES, lazy_setup, {lazy_0, lazy_1}, lazy_check, 4, NULL};
const struct race lazy_hint_race = {
    "lazy_hint", "LAZY memory stays for good", lazy_setup, {lazy_hint_0, lazy_1}, lazy_hint_check, 2, NULL};
const struct race lazy_long_race = {"lazy_long", LOSES, lazy_setup, {pool_0, lazy_1, lazy_2}, lazy_check, 4, NULL};

/* ---- changed: a slab is noted to have changed, while another thread forgets that of all and drops the hint ---- */

static void changed_setup(void) {
    slots_setup(true);
    superslab_note_changed(0);
}
static void changed_0(void) {
    superslab_forget_changed(0, ALL_SLOTS);
    superslab_next_changed(0);
}
static void changed_1(void) { superslab_note_changed(1); }
static void changed_check(void) {
    uint32_t changed = load_relaxed(&superslab_at(0)->changed);
    race_expect(account_changed_slabs() == count_bits(changed));
    race_expect(changed == 0 || bitset_has(&hak_region.sets, set_of_node(SET_CHANGED, 0), 0));
    race_saw(changed != 0);
}
const struct race changed_race = {
    "changed", "free pages of a slab stay for good", changed_setup, {changed_0, changed_1}, changed_check, 2, NULL};

/* ---- unborn: two threads for which there is no memory for a heap free large blocks, when the first blocks of the
 * process have been shut ---- */

static void *large[2];

static void unborn_setup(void) {
    bool zero;
    kit_setup();
    kit_purge_is_granted = true;
    store_relaxed(option_word(OPT_PURGE), PURGE_AUTO);
    for (unsigned i = 0; i < 4; i++) {
        large[0] = kind_large.malloc(kit_heap[0], (2 + i) * SLOT_BYTES, 1, &zero);
        kind_large.free(kit_heap[0], slab_at_offset((uintptr_t)large[0] - hak_region.base), large[0]);
    }
    for (unsigned i = 0; i < 2; i++)
        large[i] = kind_large.malloc(kit_heap[0], 2 * SLOT_BYTES, 1, &zero);
    __real_retain_settle(&kit_heap[0]->client);
}
static void free_unborn(void *p) {
    kind_large.free(&heap_afterlife, slab_at_offset((uintptr_t)p - hak_region.base), p);
}
static void unborn_0(void) { free_unborn(large[0]); }
static void unborn_1(void) { free_unborn(large[1]); }
static void unborn_check(void) {
    struct superslab_totals slots;
    superslab_count(&slots);
    race_expect(account_active_slots() == slots.active_slots && account_empty_slots() == slots.empty_slots);
    race_saw(0);
}
const struct race unborn_race = {
    "unborn", "limits count slots that are free", unborn_setup, {unborn_0, unborn_1}, unborn_check, 1, NULL};

/* ---- cut: the program limits its addresses while two threads take new SuperSlabs; cut_heap: while a thread is
 * born ---- */

static size_t new_superslab[2];
static void *new_heap;

static void cut_setup(void) {
    kit_setup();
    kit_maps = true;
    new_superslab[0] = new_superslab[1] = BITSET_NONE;
}
static void cut_0(void) { region_limit(64 * MIB, SIZE_MAX); }
static void cut_1(void) { new_superslab[0] = region_take_superslabs(1); }
static void cut_2(void) { new_superslab[1] = region_take_superslabs(1); }
static void cut_check(void) {
    unsigned taken = 0;
    for (unsigned i = 0; i < 2; i++)
        if (new_superslab[i] != BITSET_NONE) {
            race_expect(kit_mapped(slot_address(new_superslab[i] * SUPERSLAB_SLOTS)) == KIT_MAPPED);
            taken++;
        }
    race_expect(load_relaxed(&hak_region_use.superslabs) == taken);
    race_saw(load_relaxed(&hak_region_use.kept) != 0);
}
const struct race cut_race = {
    "cut", "memory in use is unmapped, or addresses are lost", cut_setup, {cut_1, cut_2, cut_0}, cut_check, 2, NULL};

static void cut_heap_1(void) { new_heap = region_commit_heap(KIT_HEAPS); }
static void cut_heap_check(void) {
    race_expect(new_heap != NULL && kit_mapped(new_heap) == KIT_MAPPED);
    race_saw(load_relaxed(&hak_region_use.kept_heaps) > KIT_HEAPS);
}
const struct race cut_heap_race = {
    "cut_heap", "a thread finds no memory, of which there is enough", cut_setup, {cut_0, cut_heap_1}, cut_heap_check, 2,
    NULL};

/* The program has limited itself by a call that nobody saw: two threads are refused memory, and one of them cuts. */
static void *further_heap;
static void cut_blindly_setup(void) {
    cut_setup();
    kit_is_limited = true;
}
static void cut_blindly_2(void) { further_heap = region_commit_heap(KIT_HEAPS + 1); }
static void cut_blindly_check(void) {
    race_expect(new_heap != NULL && kit_mapped(new_heap) == KIT_MAPPED);
    race_expect(further_heap != NULL && kit_mapped(further_heap) == KIT_MAPPED);
    race_saw(load_relaxed(&hak_region_use.kept_heaps) == KIT_HEAPS + 1);
}
const struct race cut_blindly_race = {"cut_blindly",
                                      "a thread finds no memory, as another one is about to give back what is reserved",
                                      cut_blindly_setup,
                                      {cut_heap_1, cut_blindly_2},
                                      cut_blindly_check,
                                      2,
                                      NULL};

/* ---- bitset: truths and their hints, as the pool uses them ---- */

enum { FIRST = 64, INDICES = 2 }; /* neighbours, outside the first word */
static _Atomic uint64_t words[64], upper;
static const struct bitset_family family = {
    .level = {(char *)words, (char *)&upper}, .row_bytes = {8, 8}, .rows = {64, 1}, .levels = 2};
static _Atomic bool truth[INDICES];

static void come(unsigned i) {
    store_seq(&truth[i], true);
    bitset_add(&family, 0, FIRST + i);
}
/* As superslab_check_hint does. */
static void look_at(size_t index) {
    if (load_relaxed(&truth[index - FIRST]))
        return;
    bitset_remove(&family, 0, index);
    if (load_seq(&truth[index - FIRST]))
        bitset_add(&family, 0, index);
}

static void bitset_setup(void) {
    kit_setup();
    come(0);
    race_label(&words[1], sizeof words[1], "word");
    race_label(&upper, sizeof upper, "upper");
    race_label(truth, sizeof truth, "truth");
}
static void bitset_0(void) { /* takes the existing member, and gives it back */
    bool is = true;
    if (rmw_cas(&truth[0], &is, false))
        look_at(FIRST);
    come(0);
}
static void bitset_1(void) { come(1); }
static void bitset_2(void) { /* takes what it finds */
    size_t found = bitset_find(&family, 0, 0);
    if (found == BITSET_NONE)
        return;
    bool is = true;
    rmw_cas(&truth[found - FIRST], &is, false);
    look_at(found);
}
static void bitset_check(void) {
    size_t found = BITSET_NONE;
    for (unsigned i = INDICES; i-- > 0;) {
        race_expect(!load_relaxed(&truth[i]) || bitset_has(&family, 0, FIRST + i));
        if (bitset_has(&family, 0, FIRST + i))
            found = FIRST + i;
    }
    race_expect(bitset_find(&family, 0, 0) == found);
    size_t last = bitset_find_last(&family, 0, 4096);
    race_expect((last == BITSET_NONE) == (found == BITSET_NONE) && (last == BITSET_NONE || last >= found));
    race_saw(found == FIRST);
}
const struct race bitset_race = {
    "bitset", "free memory is never found again", bitset_setup, {bitset_0, bitset_1, bitset_2}, bitset_check, 2, NULL};
