/* What heaps share: their outboxes, with the purger, and the heaps themselves, among threads that are born and end. */
/* SPDX-License-Identifier: MIT */
#include "kit.h"
#include "heap/ring.h"
#include "process/presence.h"

#define LOSES "a block freed by another thread is lost, or handed out twice"

static struct slab *slab;
static uintptr_t block[KIT_BLOCKS];

static void purger_sends(void) {
    if (caches_freeze(kit_heap[1]))
        outbox_send(kit_heap[3], kit_heap[1]);
    caches_thaw(kit_heap[1]);
    while (kit_heap[3]->owned.first != 0)
        slab_let_go(kit_heap[3], slab_of_slot(kit_heap[3]->owned.first - 1));
}

/* A full slab without owner, one block of which, block 0, is in heap 1's outbox. */
static void gathered_setup(void) {
    kit_setup();
    slab = kit_full_slab(kit_heap[0], block);
    kit_heap[1]->adoptions_left = 0, kit_heap[1]->drained_at = heap_remote_frees(kit_heap[1]);
    outbox_free(kit_heap[1], slab, block[0]);
    race_expect(load_relaxed(&kit_heap[1]->outbox_slabs) == 1);
}
static unsigned gathered_blocks(void) {
    const struct outbox_entry *e = &kit_heap[1]->outbox[slot_of(slab) % OUTBOX_ENTRIES];
    return load_relaxed(&e->slab) != 0 ? e->blocks : 0;
}
static void outbox_account(unsigned live) {
    const struct heap *h = kit_heap[1];
    race_expect(load_relaxed(&h->outbox_slabs) == (gathered_blocks() != 0));
    race_expect(!load_relaxed(&h->caches_busy) && !(load_relaxed(&h->caches_flags) & CACHES_FROZEN));
    kit_account(slab, live);
}

/* ---- outbox: a thread that only frees gathers and sends, while the purger sends what the thread has gathered;
 * outbox_long: while the slab is let go, too ---- */

static void outbox_setup(void) {
    gathered_setup();
    kit_free(kit_heap[2], block[2]); /* adopts it */
    race_expect(load_relaxed(&slab->owner) == kit_heap[2]);
}
static void outbox_0(void) { outbox_free(kit_heap[1], slab, block[1]); }
static void outbox_both(void) {
    outbox_0();
    outbox_flush(kit_heap[1]);
}
static void outbox_2(void) { slab_let_go(kit_heap[2], slab); }
static void outbox_check(void) {
    outbox_account(KIT_BLOCKS - 3);
    race_saw(gathered_blocks());
}
const struct race outbox_race = {"outbox", LOSES, outbox_setup, {outbox_0, purger_sends}, outbox_check, 3, NULL};
const struct race outbox_long_race = {"outbox_long", LOSES, outbox_setup, {outbox_both, purger_sends, outbox_2},
                                      outbox_check,  3,     NULL};

/* ---- home: a thread adopts the slab for which it has gathered a block, while the purger sends that block ---- */

static void home_setup(void) {
    gathered_setup();
    kit_heap[1]->adoptions_left = 1;
}
static void home_0(void) { outbox_free(kit_heap[1], slab, block[1]); }
static void home_check(void) {
    outbox_account(KIT_BLOCKS - 2);
    race_saw(gathered_blocks());
    race_expect(load_relaxed(&slab->owner) == kit_heap[1]);
}
const struct race home_race = {"home", LOSES, home_setup, {home_0, purger_sends}, home_check, 2, NULL};

/* ---- loan: a thread frees into a slab it has on loan, while the purger recalls the loan and another thread frees
 * there too ---- */

static void purger_recalls(void) { slab_recall(kit_heap[3], kit_heap[1], 0, 1); }
static void free_and_send(unsigned heap, uintptr_t b) {
    outbox_free(kit_heap[heap], slab, b);
    outbox_flush(kit_heap[heap]);
}
static bool is_on_loan(void) { return load_relaxed(&slab->owner) == slab_on_loan_to(kit_heap[1]); }
static void loan_setup(void) {
    kit_setup();
    kit_lends = true;
    kit_heap[1]->adoptions_left = 0;
    slab = kit_full_slab(kit_heap[0], block);
    race_expect(slab_adopt(kit_heap[1], slab));
    store_relaxed(&slab->tiny.place, 0);
    slab_lend(kit_heap[1], slab);
    outbox_free(kit_heap[1], slab, block[0]);
    race_expect(is_on_loan() && load_relaxed(&kit_heap[1]->lent.slabs) == 1 && slab_out(slab) == KIT_BLOCKS - 1);
}
static void loan_0(void) { free_and_send(1, block[1]); }
static void loan_2(void) { inbox_push_one(slab, block[2]); }
static void loan_account(unsigned live) {
    outbox_account(live);
    race_expect(load_relaxed(&kit_heap[1]->lent.slabs) == is_on_loan());
}
static void loan_check(void) {
    loan_account(KIT_BLOCKS - 3);
    race_saw(is_on_loan());
}
const struct race loan_race = {"loan", LOSES, loan_setup, {loan_0, purger_recalls, loan_2}, loan_check, 2, NULL};

/* ---- loan_end: as before, when one more free makes the slab worth using, and a thread finds it on offer ---- */

static unsigned freed_before;

static void loan_end_setup(void) {
    loan_setup();
    for (freed_before = 1; slab->tiny.countdown > 1; freed_before++)
        outbox_free(kit_heap[1], slab, block[freed_before]);
    slab_recall(kit_heap[3], kit_heap[1], 1, 2); /* of another part */
    race_expect(is_on_loan() && !slab_is_usable(slab));
}
static void loan_end_0(void) {
    free_and_send(1, block[freed_before]);
    free_and_send(1, block[freed_before + 1]);
}
static uintptr_t got;
static void loan_end_1(void) { got = kit_malloc(kit_heap[2]); }
static void loan_end_check(void) {
    bool taken = kit_slab_of(got) == slab;
    loan_account(KIT_BLOCKS - freed_before - 2 + taken);
    race_expect(taken == (load_relaxed(&slab->owner) == kit_heap[2]));
    race_expect(taken || is_on_loan());
    race_saw(taken);
}
const struct race loan_end_race = {"loan_end", LOSES, loan_end_setup, {loan_end_0, loan_end_1}, loan_end_check,
                                   2,          NULL};

/* ---- lend: a thread borrows a slab that another adopts, and into which a third frees ---- */

static void lend_setup(void) {
    kit_setup();
    kit_lends = true;
    kit_heap[1]->adoptions_left = 0, kit_heap[1]->drained_at = heap_remote_frees(kit_heap[1]);
    kit_heap[1]->bulk_from = heap_remote_frees(kit_heap[1]) + KIT_BLOCKS; /* long ago */
    slab = kit_full_slab(kit_heap[0], block);
    outbox_free(kit_heap[1], slab, block[0]);
    outbox_entry_of(kit_heap[1], slab)->full_blocks = 2;
    store_relaxed(&kit_heap[1]->owned.slabs, KIT_BLOCKS); /* it may own no more */
}
static void lend_0(void) {
    outbox_free(kit_heap[1], slab, block[1]);
    outbox_free(kit_heap[1], slab, block[3]);
}
static void lend_1(void) { kit_free(kit_heap[2], block[2]); }
static void lend_check(void) {
    struct heap *holder = slab_holder(slab); /* NULL if the borrower saw that another thread frees there too */
    race_expect(holder == NULL || is_on_loan() || holder == kit_heap[2]);
    loan_account(KIT_BLOCKS - 4);
    race_saw(holder == NULL ? 0 : is_on_loan() ? 1 : 2);
}
const struct race lend_race = {"lend", LOSES, lend_setup, {lend_0, lend_1}, lend_check, 2, NULL};

/* ---- watched: the purger is about to park, and looks whether anybody's caches hold something; a thread is born and
 * puts a block into its ring ---- */

static void *mid_block;
static bool hold;

static void watched_setup(void) {
    bool zero;
    kit_setup();
    mid_block = kind_mid.malloc(kit_heap[0], 8 * KIB, 1, &zero);
    rings_empty(kit_heap[0]);
    hak_heap = &heap_before_birth;
    store_relaxed(&hak_presence.gathered, false);
}
/* As caches_hold_blocks. */
static void watched_0(void) {
    for (struct heap *h = heap_newest(); h != NULL; h = h->next)
        caches_watch(h);
    race_fence_threads();
    for (struct heap *h = heap_newest(); h != NULL; h = h->next)
        hold |= rings_use(h) != 0;
}
static void watched_1(void) {
    kind_mid.free(thread_enter(), slab_at_offset((uintptr_t)mid_block - hak_region.base), mid_block);
}
static void watched_check(void) {
    race_expect(hold || load_relaxed(&hak_presence.gathered));
    race_saw(hold);
}
const struct race watched_race = {"watched",     "what a thread leaves in its ring stays there while it sleeps",
                                  watched_setup, {watched_0, watched_1},
                                  watched_check, 2,
                                  NULL};

/* ---- birth: a thread is born and ends, another is born, and the purger walks the heaps ---- */

static struct heap *born, *died;
static unsigned heaps_before, heaps_met;

/* The next thread to get this heap must see what this one did to it. */
static void live_in(struct heap *h) { h->slabs_given_back++; }

static unsigned heaps_there_are(void) {
    unsigned n = 0;
    for (const struct heap *h = heap_newest(); h != NULL; h = h->next)
        n++;
    return n;
}
static void birth_setup(void) {
    kit_setup();
    hak_heap = &heap_afterlife; /* thread_enter takes a heap, thread_leave puts it back */
    thread_leave(kit_heap[3]);
    heaps_before = heaps_there_are();
}
static void birth_0(void) {
    died = thread_enter();
    live_in(died);
    thread_leave(died);
}
static void birth_1(void) {
    born = thread_enter();
    live_in(born);
}
static void birth_2(void) {
    for (const struct heap *h = heap_newest(); h != NULL; h = h->next)
        heaps_met += h->number < HEAPS_MAX;
}
/* No more heaps exist than were in use at once, and heaps without a thread are found when they are needed. */
static void birth_check(void) {
    unsigned heaps = heaps_there_are(), idle = 0;
    race_expect(born != NULL && died != NULL && load_relaxed(&born->in_use));
    race_expect(heaps_met <= heaps && heaps <= heaps_before + 1);
    race_saw(heaps == heaps_before ? 0 : born == kit_heap[3] ? 1 : 2);
    for (const struct heap *h = heap_newest(); h != NULL; h = h->next)
        idle += !load_relaxed(&h->in_use);
    while (idle-- > 0)
        thread_enter();
    race_expect(heaps_there_are() == heaps);
}
const struct race birth_race = {
    "birth", "two threads have one heap, or heaps are lost", birth_setup, {birth_0, birth_1, birth_2}, birth_check, 3,
    NULL};

/* ---- borrow: as before, but the first thread is followed by another ---- */

static void borrow_0(void) {
    birth_0();
    birth_0();
}
const struct race borrow_race = {
    "borrow", "ended threads that call free make a heap each time", birth_setup, {borrow_0, birth_1}, birth_check, 3,
    NULL};

/* ---- rest: a thread ends and its heap rests, while the purger looks and another thread is born, which allocates
 * ---- */

static struct heap *resting;

static void rest_setup(void) {
    kit_setup();
    kit_lends = true;
    resting = kit_heap[2];
    hak_heap = &heap_afterlife; /* as above */
    thread_leave(kit_heap[3]);
    block[0] = kit_malloc(resting);
    slab = kit_slab_of(block[0]);
    kit_free(kit_heap[0], block[0]); /* waits in its outbox, then in the inbox */
    outbox_flush(kit_heap[0]);
    block[0] = kit_malloc(resting);
    race_label(slab, sizeof *slab, "slab");
    store_relaxed(&resting->client.counters.n[COUNT_heaps_born], KIT_HEAPS);
    store_relaxed(&load_relaxed(&hak_presence.page)->purger, PURGER_RUNS);
    store_relaxed(&hak_presence.gathered, false);
}
static void rest_0(void) { thread_leave(resting); }
static void rest_2(void) {
    born = thread_enter();
    got = kit_malloc(born);
}
static void rest_check(void) {
    bool hits = kit_slab_of(got) == slab;
    race_expect(born == resting || born == kit_heap[3]);
    race_expect(load_relaxed(&born->in_use) && !load_relaxed(&born->rests));
    kit_account(slab, 1 + hits);
    race_saw(!hits ? 0 : born == resting ? 1 : 2);
}
const struct race rest_race = {"rest",     "two threads have one heap, or a block twice",
                               rest_setup, {rest_0, thread_empty_resting, rest_2},
                               rest_check, 3,
                               NULL};

/* ---- rest_end: a thread ends and its heap rests, while the purger looks for the last time, or before it parks ---- */

static bool parks;

/* As caches_hold_blocks, or as at the end of purger_work. */
static void rest_end_1(void) {
    parks = race_choose(2);
    if (parks) {
        presence_gathers_anew();
        hold = heap_rests(resting);
    } else {
        presence_leave();
        thread_empty_resting();
    }
}
static void rest_end_check(void) {
    bool rests = heap_rests(resting);
    race_expect(!rests || (parks && (hold || load_relaxed(&hak_presence.gathered))));
    kit_account(slab, 1);
    race_saw(rests ? 1 + hold : 0);
}
const struct race rest_end_race = {"rest_end",
                                   "what a thread leaves stays when nobody looks any more",
                                   rest_setup,
                                   {rest_0, rest_end_1},
                                   rest_end_check,
                                   3,
                                   NULL};

/* ---- forked: in a new child a thread is born, while the first one notices that this is a child ---- */

static void forked_setup(void) {
    kit_setup();
    store_relaxed(&load_relaxed(&hak_presence.page)->known, 0);
    race_expect(presence_heaps() == KIT_HEAPS);
}
static void forked_0(void) {
    presence_heaps_changed(1);
    race_expect(presence_lost_threads());
}
static void forked_1(void) { race_expect(presence_lost_threads()); }
static void forked_check(void) {
    race_expect(load_relaxed(&hak_presence.heaps) == 2 && load_relaxed(&hak_presence.several));
    race_saw(0);
}
const struct race forked_race = {
    "forked",     "a child with two threads never gets a purger, or reports what nobody did",
    forked_setup, {forked_0, forked_1},
    forked_check, 1,
    NULL};

/* ---- fork_page: a process forks while its second thread is born: the child has both as they are then ---- */

static int32_t copied;
static struct fork_page *page_copied;

static void fork_page_setup(void) {
    kit_setup();
    store_relaxed(&hak_presence.page, NULL);
    store_relaxed(&hak_presence.heaps, 1);
}
static void fork_page_0(void) { presence_heaps_changed(1); }
static void fork_page_1(void) {
    copied = load_acquire(&hak_presence.heaps);
    page_copied = load_relaxed(&hak_presence.page);
}
static void fork_page_check(void) {
    race_expect(load_relaxed(&hak_presence.heaps) == 2 && load_relaxed(&hak_presence.page) != NULL);
    race_expect(copied == 1 || page_copied != NULL); /* else it counts a thread that is not there, for good */
    race_saw((unsigned)copied - 1);
}
const struct race fork_page_race = {"fork_page",
                                    "a child with one thread takes itself for one with two",
                                    fork_page_setup,
                                    {fork_page_0, fork_page_1},
                                    fork_page_check,
                                    2,
                                    NULL};

/* ---- several: a thread is born and ends, while another is born ---- */

static void several_setup(void) {
    kit_setup();
    store_relaxed(&hak_presence.heaps, 1);
    store_relaxed(&hak_presence.several, false);
}
static void several_0(void) {
    presence_heaps_changed(1);
    presence_heaps_changed(-1);
}
static void several_1(void) { presence_heaps_changed(1); }
static void several_check(void) {
    race_expect(load_relaxed(&hak_presence.heaps) == 2 && load_relaxed(&hak_presence.several));
    race_saw(0);
}
const struct race several_race = {"several",     "a thread goes on as if it were alone, for good",
                                  several_setup, {several_0, several_1},
                                  several_check, 1,
                                  NULL};
