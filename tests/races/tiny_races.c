/* Owner lists: adopting, letting go, keeping and thread exit, against frees by other threads. Heap 0 belongs to the
 * threads that allocated everything, and does nothing more. */
/* SPDX-License-Identifier: MIT */
#include "kit.h"
#include "heap/pages.h"

#define LOSES "a block freed by another thread is lost, or handed out twice"

static struct slab *slab;
static uintptr_t block[KIT_BLOCKS];
static uintptr_t got; /* by a thread that allocates */
static bool kept;

static void free_and_send(unsigned heap, uintptr_t b) {
    outbox_free(kit_heap[heap], slab, b);
    outbox_flush(kit_heap[heap]);
}

static unsigned got_of_slab(void) { return got != 0 && kit_slab_of(got) == slab; }

static void drain_by_owner(void) {
    struct heap *owner = load_relaxed(&slab->owner);
    if (owner != OWNER_NONE && owner != OWNER_POOL)
        slab_drain_inbox(owner, slab);
}

/* ---- adopt: three threads free blocks of a slab without owner; one of them lets it go again at once ---- */

static void adopt_setup(void) {
    kit_setup();
    slab = kit_full_slab(kit_heap[0], block);
}
static void adopt_0(void) {
    free_and_send(1, block[0]);
    if (load_relaxed(&slab->owner) == kit_heap[1])
        slab_let_go(kit_heap[1], slab);
}
static void adopt_1(void) { free_and_send(2, block[1]); }
static void adopt_2(void) { free_and_send(3, block[2]); }
static void adopt_check(void) {
    kit_account(slab, KIT_BLOCKS - 3);
    struct heap *owner = load_relaxed(&slab->owner);
    race_expect(owner == OWNER_NONE || owner == kit_heap[2] || owner == kit_heap[3]);
    race_saw(owner == OWNER_NONE ? 0 : owner == kit_heap[2] ? 1 : 2);
}
const struct race adopt_race = {"adopt", LOSES, adopt_setup, {adopt_0, adopt_1, adopt_2}, adopt_check, 3, NULL};

/* ---- let_go: the owner lets go of a slab with room while another thread frees into it and a third allocates ---- */

static void owned_setup(unsigned out) {
    kit_setup();
    slab = kit_full_slab(kit_heap[0], block);
    for (unsigned i = out; i < KIT_BLOCKS; i++)
        kit_free(kit_heap[1], block[i]);
    race_expect(load_relaxed(&slab->owner) == kit_heap[1] && slab->tiny.floor == 0);
}
static void let_go_setup(void) { owned_setup(4); }
static void let_go_0(void) { slab_let_go(kit_heap[1], slab); }
static void let_go_1(void) { free_and_send(2, block[0]); }
static void let_go_2(void) { got = kit_malloc(kit_heap[3]); }
static void let_go_check(void) {
    kit_account(slab, 3 + got_of_slab());
    race_saw(got_of_slab());
}
const struct race let_go_race = {"let_go", LOSES, let_go_setup, {let_go_0, let_go_1, let_go_2}, let_go_check, 2, NULL};

/* ---- freer: the owner, who freed all that the slab has listed, lets go of it while another thread adopts it; then the
 * owner frees such a block again ---- */

#define MISNAMES "the line about a double free names a thread that did not free the block"

static enum freer freer;

static void freer_0(void) {
    slab_let_go(kit_heap[1], slab);
    freer = search_freer(kit_heap[1], slab, block[KIT_BLOCKS - 1]);
}
static void freer_check(void) {
    race_expect(freer != FREER_OTHER_THREAD);
    race_saw(load_relaxed(&slab->owner) == kit_heap[2]);
}
const struct race freer_race = {"freer", MISNAMES, let_go_setup, {freer_0, let_go_1}, freer_check, 2, NULL};

/* ---- freer_sent: a thread frees again what it freed into another's slab, while the purger sends it there and the
 * owner takes it in ---- */

static void freer_sent_setup(void) {
    let_go_setup(); /* heap 1 owns the slab */
    kit_heap[2]->drained_at = heap_remote_frees(kit_heap[2]);
    outbox_free(kit_heap[2], slab, block[0]);
    race_expect(load_relaxed(&kit_heap[2]->outbox_slabs) == 1 && load_relaxed(&slab->tiny.own_frees));
}
static void freer_sent_0(void) { freer = search_freer(kit_heap[2], slab, block[0]); }
static void freer_sent_1(void) { outbox_send(kit_heap[3], kit_heap[2]); }
static void freer_sent_2(void) { slab_drain_inbox(kit_heap[1], slab); }
static void freer_sent_check(void) {
    race_expect(freer != FREER_OTHER_THREAD);
    race_saw(freer == FREER_THIS_THREAD);
}
const struct race freer_sent_race = {
    "freer_sent", MISNAMES, freer_sent_setup, {freer_sent_0, freer_sent_1, freer_sent_2}, freer_sent_check, 2, NULL};

/* ---- noted: the purger looks at the slab, which was noted to have changed before, while its owner lets go of it
 * ---- */

static void noted_setup(void) {
    owned_setup(4);
    kit_purge_is_granted = true;
    superslab_note_changed(slot_of(slab));
    store_relaxed(&slab->idle_looks, 1);
}
static void noted_1(void) { pages_look(kit_heap[3]); }
static void noted_check(void) {
    size_t slot = slot_of(slab);
    uint32_t changed = load_relaxed(&superslab_at(slot / SUPERSLAB_SLOTS)->changed);
    race_expect(slab_purged(slab) != 0 || (changed >> slot % SUPERSLAB_SLOTS & 1));
    race_saw(slab_purged(slab) != 0);
}
const struct race noted_race = {
    "noted", "free pages of a slab stay for long", noted_setup, {let_go_0, noted_1}, noted_check, 2, NULL};

/* ---- last: as before, and the two allocated blocks come back; the slot must go back to the pool ---- */

static void last_long_setup(void) { owned_setup(2); }
static void last_long_1(void) { free_and_send(2, block[0]); }
static void last_long_2(void) { free_and_send(3, block[1]); }
static void last_setup(void) { /* the blocks are already gathered */
    last_long_setup();
    kit_heap[2]->drained_at = heap_remote_frees(kit_heap[2]);
    kit_heap[3]->drained_at = heap_remote_frees(kit_heap[3]);
    outbox_free(kit_heap[2], slab, block[0]);
    outbox_free(kit_heap[3], slab, block[1]);
    race_expect(load_relaxed(&kit_heap[2]->outbox_slabs) == 1 && load_relaxed(&kit_heap[3]->outbox_slabs) == 1);
}
static void last_1(void) { outbox_flush(kit_heap[2]); }
static void last_2(void) { outbox_flush(kit_heap[3]); }
static void last_check(void) {
    race_saw(load_relaxed(&slab->owner) == OWNER_POOL);
    drain_by_owner();
    kit_account(slab, 0);
    race_expect(load_relaxed(&slab->owner) == OWNER_POOL);
}
const struct race last_race = {
    "last", "memory is never given back", last_setup, {let_go_0, last_1, last_2}, last_check, 0, NULL};
const struct race last_long_race = {
    "last_long", "memory is never given back", last_long_setup, {let_go_0, last_long_1, last_long_2}, last_check, 2,
    NULL};

/* ---- exit: a thread ends while another frees into its current slab and a third allocates ---- */

static void exit_setup(void) {
    kit_setup();
    for (unsigned i = 0; i < 6; i++) /* 8 are carved, so 2 stay in the list */
        block[i] = kit_malloc(kit_heap[1]);
    slab = kit_slab_of(block[0]);
    race_label(slab, sizeof *slab, "slab");
}
static void exit_0(void) { kind_tiny.empty_heap(kit_heap[1]); }
static void exit_1(void) { free_and_send(2, block[0]); }
static void exit_2(void) { got = kit_malloc(kit_heap[3]); }
static void exit_check(void) {
    race_expect(kit_heap[1]->owned.first == 0 && load_relaxed(&slab->owner) != kit_heap[1]);
    kit_account(slab, 5 + got_of_slab());
    race_saw(got_of_slab());
}
const struct race exit_race = {"exit", LOSES, exit_setup, {exit_0, exit_1, exit_2}, exit_check, 2, NULL};

/* ---- foreign: a thread ends whose list comes from a slab that another thread owns and lets go of ---- */

/* Heap 2 owns the slab; 50 of its blocks wait in the inbox, and the slab is on offer. */
static void offered_setup(void) {
    kit_setup();
    slab = kit_full_slab(kit_heap[0], block);
    kit_free(kit_heap[2], block[0]);
    for (unsigned i = 1; i < 51; i++)
        kit_free(kit_heap[3], block[i]);
    outbox_flush(kit_heap[3]);
    race_expect(load_relaxed(&slab->owner) == kit_heap[2]);
}
static void foreign_setup(void) {
    offered_setup();
    for (unsigned i = 1; i < 49; i++) /* heap 1 takes the inbox, and keeps 2 */
        race_expect(kit_slab_of(kit_malloc(kit_heap[1])) == slab);
    race_expect(kit_heap[1]->current[KIT_CLASS] == NULL);
}
static void foreign_check(void) {
    kit_account(slab, KIT_BLOCKS - 4);
    race_saw(load_relaxed(&slab->owner) == OWNER_NONE);
}
static void foreign_0(void) { kind_tiny.empty_heap(kit_heap[1]); } /* 2 blocks */
static void foreign_1(void) { slab_let_go(kit_heap[2], slab); }
static void foreign_2(void) { free_and_send(3, block[63]); }
static void foreign_both(void) {
    foreign_1();
    foreign_2();
}
const struct race foreign_race = {"foreign", LOSES, foreign_setup, {foreign_0, foreign_both}, foreign_check, 2, NULL};
const struct race foreign_long_race = {"foreign_long", LOSES, foreign_setup, {foreign_0, foreign_1, foreign_2},
                                       foreign_check,  2,     NULL};

/* ---- stale: a thread takes a slab's inbox while its owner empties it and another thread frees into it ---- */

static void stale_0(void) { got = kit_malloc(kit_heap[1]); }
static void stale_1(void) { slab_drain_inbox(kit_heap[2], slab); }
static void stale_2(void) { free_and_send(3, block[63]); }
static void stale_check(void) {
    kit_account(slab, KIT_BLOCKS - 52 + got_of_slab());
    race_saw(got_of_slab());
}
const struct race stale_race = {"stale", LOSES, offered_setup, {stale_0, stale_1, stale_2}, stale_check, 2, NULL};

/* ---- keep: a heap keeps a full slab while another frees into it and a third allocates; then its thread ends ---- */

enum { REUSE_AT = 8 };
static void keep_setup(void) {
    kit_setup();
    for (unsigned i = 0; i < KIT_BLOCKS; i++)
        block[i] = kit_malloc(kit_heap[1]);
    slab = kit_slab_of(block[0]);
    race_expect(kit_heap[1]->current[KIT_CLASS] == slab && size_classes[KIT_CLASS].reuse_at == REUSE_AT);
    kit_heap[1]->returns[KIT_CLASS] = 1;
    kit_heap[2]->adoptions_left = 0; /* it only frees, through its outbox */
    race_label(slab, sizeof *slab, "slab");
}
static void keep_0(void) {
    slab_give_up_current(kit_heap[1], KIT_CLASS);
    kept = load_relaxed(&slab->owner) == kit_heap[1];
    kit_free(kit_heap[1], block[KIT_BLOCKS - 1]);
    kind_tiny.empty_heap(kit_heap[1]);
}
static void keep_1(void) {
    outbox_free(kit_heap[2], slab, block[0]);
    for (unsigned i = 1; i < REUSE_AT; i++)
        outbox_gather(kit_heap[2], slab, block[i]); /* what outbox_free comes to, without more reads of the owner */
    outbox_flush(kit_heap[2]);
}
static void keep_2(void) { got = kit_malloc(kit_heap[3]); }
static void keep_both(void) {
    keep_1();
    keep_2();
}
static void keep_check(void) {
    race_expect(kit_heap[1]->owned.first == 0 && load_relaxed(&kit_heap[1]->owned.class_first[KIT_CLASS]) == 0);
    race_expect(load_relaxed(&slab->owner) != kit_heap[1]);
    kit_account(slab, KIT_BLOCKS - REUSE_AT - 1 + got_of_slab());
    race_saw(got_of_slab());
    race_saw(2 + kept);
}
const struct race keep_race = {"keep", LOSES, keep_setup, {keep_0, keep_both}, keep_check, 4, NULL};
const struct race keep_long_race = {"keep_long", LOSES, keep_setup, {keep_0, keep_1, keep_2}, keep_check, 4, NULL};

/* ---- half_listed: not a race between threads but with a signal handler. The child that it forks gets the list of
 * owned slabs
 * as it was between any two stores of list_owned and slab_unlist, and the child's thread ends ---- */

enum { OWNED = 3 };
static struct slab *owned[OWNED];

static void half_listed_setup(void) {
    kit_setup();
    uintptr_t blocks[OWNED * KIT_BLOCKS];
    for (unsigned i = 0; i < OWNED * KIT_BLOCKS; i++)
        blocks[i] = kit_malloc(kit_heap[0]);
    kit_malloc(kit_heap[0]); /* the last slab is full and let go, too */
    for (unsigned i = 0; i < OWNED; i++) {
        owned[i] = kit_slab_of(blocks[i * KIT_BLOCKS]);
        for (unsigned j = 0; j < KIT_BLOCKS / 2; j++)
            kit_free(kit_heap[1], blocks[i * KIT_BLOCKS + j]);
        race_expect(load_relaxed(&owned[i]->owner) == kit_heap[1] && slab_is(owned[i], PLACE_OWNED));
    }
}
/* Performs the first `stores` of the stores that take a slab off the list. */
static void take_off(struct heap *h, unsigned at, unsigned stores) {
    struct slab *s = owned[at], *next = at + 1 < OWNED ? owned[at + 1] : NULL, *prev = at > 0 ? owned[at - 1] : NULL;
    if (stores > 0)
        *(prev != NULL ? &prev->tiny.next : &h->owned.first) = s->tiny.next;
    if (stores > 1)
        *(next != NULL ? &next->tiny.prev : &h->owned.last) = s->tiny.prev;
    if (stores > 2)
        slab_leave(s, PLACE_OWNED);
    add_owned(&h->owned.slabs, -(stores > 3));
}
/* Performs the first `stores` of the stores that put the last slab on the list. */
static void put_on(struct heap *h, unsigned stores) {
    struct slab *s = owned[OWNED - 1], *prev = owned[OWNED - 2];
    s->tiny.next = 0, s->tiny.prev = h->owned.last;
    add_owned(&h->owned.slabs, +(stores > 0));
    if (stores > 1)
        slab_enter(s, PLACE_OWNED);
    if (stores > 2)
        prev->tiny.next = (uint32_t)slot_of(s) + 1;
}
static void half_listed_0(void) {
    struct heap *h = kit_heap[1];
    bool on = race_choose(2);
    take_off(h, on ? OWNED - 1 : race_choose(OWNED), on ? 4 : race_choose(5));
    if (on)
        put_on(h, race_choose(4));
    kind_tiny.empty_heap(h);
    race_expect(h->owned.first == 0 && load_relaxed(&h->owned.slabs) <= 1);
}
static void half_listed_check(void) {
    unsigned lost = 0;
    for (unsigned i = 0; i < OWNED; i++)
        lost += load_relaxed(&owned[i]->owner) == kit_heap[1];
    race_expect(lost <= 1);
    race_saw(lost);
}
const struct race half_listed_race = {"half_listed",
                                      "a child forked in a signal's handler hangs",
                                      half_listed_setup,
                                      {half_listed_0},
                                      half_listed_check,
                                      1,
                                      NULL};
