/* See heap.h. */
/* SPDX-License-Identifier: MIT */
#include "heap/heap.h"
#include "base/log.h"
#include "base/options.h"
#include "base/os.h"
#include "process/presence.h"

#include <string.h>

_Static_assert(offsetof(struct heap, ledger[TINY_CLASSES]) <= 4096, "a thread with tiny blocks alone has one page");

// clang-format off
#define NO_BLOCKS {[0 ... TINY_CLASSES] = 1}
// clang-format on
HAK_APART_DATA struct heap heap_before_birth = {.list = NO_BLOCKS, .number = HEAP_NONE};
HAK_APART_DATA struct heap heap_afterlife = {.list = NO_BLOCKS,
                                             .number = HEAP_NONE,
                                             .ring_top = HEAP_BYTES, /* has no room for rings */
                                             .client = {.is_shared = true}};
HAK_APART_DATA struct heap heap_redirected = {.list = NO_BLOCKS, .number = HEAP_NONE, .ring_top = HEAP_BYTES};
HAK_APART struct heap heap_of_closed;
_Thread_local struct default_arena hak_default_arena __attribute__((tls_model("initial-exec")));
_Thread_local struct heap *hak_heap __attribute__((tls_model("initial-exec"))) = &heap_before_birth;

static bool sites_watched, classes_shared;                   /* constant once the program's own code runs */
static HAK_APART _Alignas(4096) char first_heap[HEAP_BYTES]; /* the first thread's: needs no system call */
_Atomic(struct heap *) heap_newest_made;                     /* push-only list of all heaps */
/* Any thread. */
static struct {
    _Atomic uint32_t made;    /* numbers given to heaps so far, from 0 */
    _Atomic uint32_t refused; /* how many of them are in refused_numbers; a hint */
    /* numbers of heaps that no thread uses: hints for take_idle, by level */
    _Atomic uint64_t idle_1[HEAPS_MAX / 64 / 64], idle_2[1];
    _Atomic size_t rest_bytes; /* of all heaps that rest */
    _Atomic bool lacked;       /* a thread got none: what it freed, it freed without one */
} heaps;
static HAK_APART _Atomic uint64_t idle_0[HEAPS_MAX / 64];
static HAK_APART _Atomic uint64_t refused_numbers[HEAPS_MAX / 64]; /* bits: the system had no memory for the heap */

struct heap *heap_newest(void) {
    struct heap *newest = PROVEN(newest, load_acquire(&heap_newest_made));
    return newest;
}

bool heap_is_the_only(void) {
    const struct heap *first = heap_newest();
    return load_relaxed(&heaps.made) == 1 && !load_relaxed(&heaps.lacked) &&
           load_relaxed(&first->client.counters.n[COUNT_heaps_born]) == 1;
}

bool heap_may_have_gathered(const struct heap *h, const struct slab *s) {
    return outbox_gathers(outbox_entry_of(h, s), s) || load_acquire(&h->caches_flags) & CACHES_FROZEN;
}

/* ---- idle heaps ----
 * Kept as a set of heap numbers; the lowest is taken first, so that few heaps are ever touched. */

_Static_assert(HEAPS_MAX <= 64 * 64 * 64, "three levels");
static const struct bitset_family idle = {
    .level = {(char *)idle_0, (char *)heaps.idle_1, (char *)heaps.idle_2},
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
    size_t number = bitset_find(&idle, 0, 0), rows = (load_relaxed(&heaps.made) + 63) / 64;
    for (size_t row = 0; PROVEN(find_idle, number == BITSET_NONE) && row < rows && row < idle.rows[0]; row++) {
        uint64_t word = load_relaxed(bitset_word(&idle, 0, 0, row));
        if (word != 0)
            number = row * 64 + lowest_bit(word);
    }
    return number;
}

/* Takes an idle heap. True: it is the caller's from now on. */
static bool take_if_idle(struct heap *h) {
    bool in_use = false;
    if (!PROVEN(take_idle, rmw_cas(&h->in_use, &in_use, true))) /* pairs with put_idle, for the heap's fields */
        return false;
    if (load_relaxed(&h->rests))
        rmw_add(&heaps.rest_bytes, -(size_t)h->rest_bytes);
    PROVEN(rest_end, store_relaxed(&h->rests, false));
    return true;
}

static struct heap *take_idle(void) {
    for (size_t number; (number = find_idle()) != BITSET_NONE;) {
        bitset_remove(&idle, 0, number);
        if (take_if_idle(heap_numbered(number)))
            return heap_numbered(number);
    }
    return NULL;
}

static void put_idle(struct heap *h) {
    PROVEN(put_idle, store_seq(&h->in_use, false));
    bitset_add(&idle, 0, h->number);
}

/* ---- birth ---- */

/* What is not zero in a heap without blocks. */
static void set_up(struct heap *h) {
    h->ring_top = offsetof(struct heap, first_rings);
    h->drained_at = heap_remote_frees(h) + 2; /* the first remote free drains */
}

static void share_classes(struct heap *h) {
    for (size_t i = 0; i <= TINY_BYTES_MAX / 8; i++)
        h->class_table[i] = (uint8_t)tiny_shared_class_of(i * 8);
    rmw_or(&h->caches_flags, HEAP_SHARING);
}

/* Numbers are never lost, however many threads are refused at once: there may be few of them, and a program that is
 * near its limit asks for a heap at each malloc. Each bit pairs with itself. */
static void put_refused(uint32_t number) {
    rmw_or(&refused_numbers[number / 64], (uint64_t)1 << number % 64);
    rmw_add(&heaps.refused, 1);
}

static uint32_t take_refused(void) {
    uint32_t rows = load_relaxed(&heaps.refused) != 0 ? (load_relaxed(&heaps.made) + 63) / 64 : 0;
    for (uint32_t row = 0; row < rows; row++)
        for (uint64_t word; (word = load_relaxed(&refused_numbers[row])) != 0;) {
            uint64_t bit = word & -word;
            if (!(rmw_and(&refused_numbers[row], ~bit) & bit))
                continue;
            rmw_add(&heaps.refused, -1u);
            return row * 64 + lowest_bit(bit);
        }
    return HEAP_NONE;
}

static uint32_t take_number(void) {
    uint32_t number = take_refused(), made = load_relaxed(&heaps.made);
    while (number == HEAP_NONE && made < hak_region.heaps_max)
        if (rmw_cas(&heaps.made, &made, made + 1))
            number = made;
    if (number == HEAP_NONE)
        LOG_TABLE_FULL("heaps", hak_region.heaps_max);
    return number;
}

static struct heap *make_heap(void) {
    uint32_t number = take_number();
    if (number == HEAP_NONE || (number != 0 && region_commit_heap(number) == NULL)) {
        store_relaxed(&heaps.lacked, true);
        if (number != HEAP_NONE)
            put_refused(number);
        return NULL;
    }
    struct heap *h = heap_numbered(number);
    memcpy(h->list, heap_before_birth.list, sizeof h->list);
    memcpy(h->class_table, tiny_class_table, sizeof h->class_table);
    h->number = number;
    store_relaxed(&h->in_use, true);
    set_up(h);
    if (number == 0) {
        h->ring[0] = NULL; /* as in region_touch */
        region_touch();
    }
    /* The purger may be parked, and has watched the heaps that there were. */
    uint8_t sampling = option(OPT_GUARD_SAMPLE_BYTES) ? CACHES_SAMPLING : 0;
    PROVEN(born_watched, store_relaxed(&h->caches_flags, CACHES_WATCHED | sampling));
    if (number == 0 && classes_shared)
        share_classes(h);
    struct heap *head = load_relaxed(&heap_newest_made);
    do
        h->next = head;
    while (!rmw_cas(&heap_newest_made, &head, h)); /* pairs with heap_newest */
    return h;
}

static struct heap *take(void) {
    if (!region_init())
        return NULL;
    struct heap *h = take_idle();
    if (h == NULL)
        h = make_heap();
    if (h != NULL)
        h->client.is_choosy = hak_region.nodes > 1;
    return h;
}

static void watch_sites(struct heap *h) {
    memset(h->class_table, TINY_CLASSES, sizeof h->class_table);
    rmw_or(&h->caches_flags, CACHES_SITED);
}

void heap_watch_sites(void) {
    sites_watched = true;
    if (hak_heap->number != HEAP_NONE)
        watch_sites(hak_heap);
}

/* ---- sizes that share classes ---- */

/* Page faults of perl -e 1 and bash -c : with 12 pages 243 and 160, with 16 237 and 162, with 20 to 128 231 and 161;
 * without 248 and 173. */
#define SHARED_CUTS 20

void heap_share_classes(void) {
    classes_shared = true;
    if (hak_heap->number == 0)
        share_classes(hak_heap);
}

bool heap_has_shared_classes(void) { return classes_shared; }

void heap_end_sharing(struct heap *h) {
    if (!(load_relaxed(&h->caches_flags) & HEAP_SHARING))
        return;
    memcpy(h->class_table, tiny_class_table, sizeof h->class_table);
    rmw_and(&h->caches_flags, (uint8_t)~HEAP_SHARING);
}

unsigned heap_shared_class(struct heap *h, size_t bytes) {
    if (load_relaxed(&h->client.counters.n[COUNT_refill_by_carving]) >= SHARED_CUTS)
        heap_end_sharing(h);
    return h->class_table[(bytes + 7) / 8];
}

struct heap *heap_take(void) {
    struct heap *h = take();
    if (h == NULL)
        return NULL;
    if (unlikely(sites_watched))
        watch_sites(h);
    count(&h->client.counters, COUNT_heaps_born);
    presence_heaps_changed(1);
    return h;
}

void heap_put(struct heap *h) {
#ifdef HAK_CHECKED
    count_add(&h->client.counters, COUNT_atomic_rmw, rmw_count);
    rmw_count = 0;
#endif
    count(&h->client.counters, COUNT_heaps_ended);
    heap_put_emptied(h);
}

/* ---- heaps that rest ---- */

bool heap_begin_rest(struct heap *h, size_t bytes, size_t max) {
    bool rests = rmw_add(&heaps.rest_bytes, bytes) + bytes <= max;
    if (!rests)
        rmw_add(&heaps.rest_bytes, -bytes);
    h->rest_bytes = (uint32_t)bytes;
    store_relaxed(&h->rests, rests);
    count_add(&h->client.counters, COUNT_heaps_rested, rests);
    return rests;
}

/* Pairs with put_idle, as presence_gathered does and presence_leave: the heap is seen to rest, or its thread sees that
 * the purger will look no more. */
bool heap_rests(const struct heap *h) { return !PROVEN(rest_look, load_seq(&h->in_use)) && load_relaxed(&h->rests); }

bool heap_take_resting(struct heap *h) { return heap_rests(h) && take_if_idle(h); }

void heap_put_emptied(struct heap *h) {
    h->client.due.chores = 0;
    put_idle(h);
}

/* ---- heaps of arenas ---- */

/* Others may look at the heap meanwhile: for statistics, and for a block that they think is free. */
static void clear_words(void *from, void *to) {
    for (_Atomic uint64_t *word = from; word < (_Atomic uint64_t *)to; word++)
        store_relaxed(word, 0);
}

_Static_assert(offsetof(struct heap, current) % 8 == 0 && offsetof(struct heap, caches_busy) % 8 == 0 &&
                   offsetof(struct heap, purge_seen) % 8 == 0 && offsetof(struct client, start) % 8 == 0 &&
                   offsetof(struct heap, sites) % 8 == 0 && offsetof(struct heap, sample) % 8 == 0 &&
                   offsetof(struct heap, lent) % 8 == 0 && offsetof(struct heap, ledger) % 8 == 0,
               "whole words");

struct heap *heap_take_for_arena(void) {
    struct heap *h = take();
    if (h != NULL) {
        memcpy(h->class_table, tiny_class_table, sizeof h->class_table);
        rmw_and(&h->caches_flags, (uint8_t) ~(CACHES_SITED | HEAP_SHARING));
        ledger_close(h->ledger, 0); /* the arena's end clears it */
        h->sample.wanted = 0;       /* no sampling, whatever the heap's last thread did */
        store_relaxed(&h->sample.mean_bytes, 0);
        store_seq(&h->is_of_arena,
                  true); /* before it holds anything: the purger looks at it after it has frozen the heap */
    }
    return h;
}

void heap_untake_for_arena(struct heap *h) {
    store_release(&h->is_of_arena, false);
    put_idle(h);
}

void heap_put_from_arena(struct heap *h) {
    clear_words(h->current, &h->caches_busy);
    clear_words(&h->purge_seen, &h->client);
    clear_words(&h->client.start, (void *)&h->sites);
    clear_words(&h->sample, &h->lent); /* not `lent`: whoever ended a loan of its last thread may yet count that */
    clear_words(h->ledger, h + 1);
    for (unsigned c = 0; c < TINY_CLASSES; c++)
        store_relaxed(&h->list[c], 1);
    set_up(h);
    h->inherits = false;
    store_release(&h->is_of_arena, false);
    size_t rest = HEAP_BYTES - round_up(sizeof *h, os_page_bytes());
    if (!os_advise(OS_PURGE, (char *)h + HEAP_BYTES - rest, rest))
        memset((char *)h + HEAP_BYTES - mode()->heap_end_bytes, 0, mode()->heap_end_bytes); /* what it held is gone */
    put_idle(h);
}

/* ---- the purger at another thread's rings ---- */

void caches_close(struct heap *h) { rmw_or(&h->caches_flags, CACHES_FROZEN); }
bool caches_are_frozen(const struct heap *h) {
    return !load_acquire(&h->caches_busy); /* acquire: what the thread did to its caches */
}
bool caches_freeze(struct heap *h) {
    caches_close(h);
    return PROVEN(freeze_fence, os_fence_threads()) && caches_are_frozen(h);
}

/* Where the flag is still set, the thread clears it after presence_gathers_anew, and then tells of what it gathers. */
void caches_watch(struct heap *h) {
    if (!(load_seq(&h->caches_flags) & CACHES_WATCHED))
        rmw_or(&h->caches_flags, CACHES_WATCHED);
}

void caches_notice(struct heap *h) {
    if (likely(!(load_relaxed(&h->caches_flags) & CACHES_WATCHED)))
        return;
    rmw_and(&h->caches_flags, (uint8_t)~CACHES_WATCHED);
    presence_gathered();
}

void caches_thaw(struct heap *h) { PROVEN(thaw, rmw_and(&h->caches_flags, (uint8_t)~CACHES_FROZEN)); }
