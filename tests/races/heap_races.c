/* What heaps share: their outboxes with the purger, and themselves with the threads that are born and end. */
#include "kit.h"

#define LOSES "a block freed by another thread is lost, or handed out twice"

static struct slab *slab;
static uintptr_t block[KIT_BLOCKS];

static void purger_sends(void) {
    if (caches_freeze(kit_heap[1]))
        outbox_send(kit_heap[3], kit_heap[1]);
    caches_thaw(kit_heap[1]);
    while (kit_heap[3]->owned_first != 0)
        slab_let_go(kit_heap[3], slab_of_slot(kit_heap[3]->owned_first - 1));
}

/* A full slab without owner; block 0 of it is in heap 1's outbox. */
static void gathered_setup(void) {
    kit_setup();
    slab = kit_full_slab(kit_heap[0], block);
    kit_heap[1]->adoptions_left = 0, kit_heap[1]->drain_countdown = 1024;
    remote_free(kit_heap[1], slab, block[0]);
    race_expect(kit_heap[1]->outbox_blocks == 1);
}
static void outbox_account(unsigned live) {
    const struct heap *h = kit_heap[1];
    const struct outbox_entry *e = &h->outbox[slot_of(slab) % OUTBOX_ENTRIES];
    race_expect(h->outbox_blocks == (e->slab != 0 ? e->blocks : 0));
    race_expect(!load_relaxed(&h->caches_busy) && !(load_relaxed(&h->caches_flags) & CACHES_FROZEN));
    kit_account(slab, live);
}

/* ---- outbox: a thread that only frees gathers and sends while the purger sends what it has ---- */

static void outbox_setup(void) {
    gathered_setup();
    kit_free(kit_heap[2], block[2]); /* adopts it */
    race_expect(load_relaxed(&slab->owner) == kit_heap[2]);
}
static void outbox_0(void) { remote_free(kit_heap[1], slab, block[1]); }
static void outbox_both(void) {
    outbox_0();
    outbox_flush(kit_heap[1]);
}
static void outbox_2(void) { slab_let_go(kit_heap[2], slab); }
static void outbox_check(void) {
    outbox_account(KIT_BLOCKS - 3);
    race_saw(kit_heap[1]->outbox_blocks);
}
const struct race outbox_race = {"outbox",     LOSES, outbox_setup, {outbox_0, purger_sends, outbox_2},
                                 outbox_check, 3,     NULL};
const struct race outbox_long_race = {"outbox_long", LOSES, outbox_setup, {outbox_both, purger_sends, outbox_2},
                                      outbox_check,  3,     NULL};

/* ---- home: a thread adopts the slab for which it has gathered a block, while the purger sends that ---- */

static void home_setup(void) {
    gathered_setup();
    kit_heap[1]->adoptions_left = 1;
}
static void home_0(void) { remote_free(kit_heap[1], slab, block[1]); }
static void home_check(void) {
    outbox_account(KIT_BLOCKS - 2);
    race_saw(kit_heap[1]->outbox_blocks);
    race_saw(2 + (load_relaxed(&slab->owner) == kit_heap[1]));
}
const struct race home_race = {"home", LOSES, home_setup, {home_0, purger_sends}, home_check, 4, NULL};

/* ---- birth: a thread is born and ends, another is born, and the purger looks through the heaps ---- */

static struct heap *born, *died;
static unsigned heaps_before, heaps_met;

/* What a thread does to its heap is there when the next has it. */
static void live_in(struct heap *h) { h->releases++; }

static unsigned heaps_there_are(void) {
    unsigned n = 0;
    for (const struct heap *h = heap_newest(); h != NULL; h = h->next)
        n++;
    return n;
}
static void birth_setup(void) {
    kit_setup();
    hak_heap = &heap_afterlife; /* heap_enter takes a heap, heap_leave puts it back */
    heap_leave(kit_heap[3]);
    heaps_before = heaps_there_are();
}
static void birth_0(void) {
    died = heap_enter();
    live_in(died);
    heap_leave(died);
}
static void birth_1(void) {
    born = heap_enter();
    live_in(born);
}
static void birth_2(void) {
    for (const struct heap *h = heap_newest(); h != NULL; h = h->next)
        heaps_met += h->number < HEAPS_MAX;
}
/* There are no more than are had at once, and those that nobody has are found when they are wanted. */
static void birth_check(void) {
    unsigned heaps = heaps_there_are(), idle = 0;
    race_expect(born != NULL && died != NULL && load_relaxed(&born->in_use));
    race_expect(heaps_met <= heaps && heaps <= heaps_before + 1);
    race_saw(heaps == heaps_before ? 0 : born == kit_heap[3] ? 1 : 2);
    for (const struct heap *h = heap_newest(); h != NULL; h = h->next)
        idle += !load_relaxed(&h->in_use);
    while (idle-- > 0)
        heap_enter();
    race_expect(heaps_there_are() == heaps);
}
const struct race birth_race = {
    "birth", "two threads have one heap, or heaps are lost", birth_setup, {birth_0, birth_1, birth_2}, birth_check, 3,
    NULL};

/* ---- borrow: the same, and the first thread is followed by one more ---- */

static void borrow_0(void) {
    birth_0();
    birth_0();
}
const struct race borrow_race = {
    "borrow", "ended threads that call free make a heap each time", birth_setup, {borrow_0, birth_1}, birth_check, 3,
    NULL};
