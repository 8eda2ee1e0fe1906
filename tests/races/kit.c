/* See kit.h. This file also stands in for the kernel, as far as harnesses reach it: the linker wraps (--wrap) the
 * functions whose names begin with __wrap_. */
/* SPDX-License-Identifier: MIT */
#include "kit.h"
#include "model.h"
#include "process/presence.h"
#include "base/options.h"
#include "base/os.h"

#include <errno.h>

struct heap *kit_heap[KIT_HEAPS];
bool kit_purge_is_granted;

/* ---- the kernel ---- */

_Noreturn void __wrap_abort(void);
_Noreturn void __wrap_abort(void) { race_fail("the allocator ended the program"); }

/* For each slot, whether it may be read and written. The kernel orders its own calls, but two threads that open and
 * shut the same slot without knowing of each other race all the same; the race shows on one of these bytes. */
static char open_slots[4 * SUPERSLAB_SLOTS];

static void set_open(void *address, size_t bytes, char open) {
    uintptr_t begin = (uintptr_t)address - hak_region.base, end = begin + bytes;
    for (size_t slot = begin / SLOT_BYTES; slot < sizeof open_slots && slot * SLOT_BYTES < end; slot++)
        open_slots[slot] = open;
}

bool kit_is_open(const void *address) {
    size_t slot = ((uintptr_t)address - hak_region.base) / SLOT_BYTES;
    return slot >= sizeof open_slots || open_slots[slot];
}

bool __real_os_commit(void *address, size_t bytes);
bool __wrap_os_commit(void *address, size_t bytes);
bool __wrap_os_commit(void *address, size_t bytes) {
    set_open(address, bytes, true);
    return __real_os_commit(address, bytes);
}

static void forbid(void *address, size_t bytes) { set_open(address, bytes, false); }

bool __wrap_os_forbid(void *address, size_t bytes);
bool __wrap_os_forbid(void *address, size_t bytes) {
    if (!race_put_off(forbid, address, bytes))
        forbid(address, bytes);
    return true;
}

/* Captures no callers: stack capture has its own tests, and makes many accesses. */
unsigned __wrap_stack_capture(uintptr_t *callers, unsigned most);
unsigned __wrap_stack_capture(uintptr_t *callers, unsigned most) {
    (void)callers, (void)most;
    return 0;
}

bool __wrap_os_advise(enum os_advice advice, void *address, size_t bytes);
bool __wrap_os_advise(enum os_advice advice, void *address, size_t bytes) {
    if (advice != OS_PURGE && advice != OS_LAZY)
        return true;
    if (!region_has(address)) /* a table: refused, it keeps its contents */
        return false;
    if (!kit_purge_is_granted && race_choose(2) == 1) /* refused */
        return false;
    if (advice == OS_LAZY && race_choose(2) == 1) /* the system does not need the pages */
        return true;
    /* Harnesses write nothing but these words. */
    race_zero(address, bytes, bytes < SUPERSLAB_BYTES ? 4096 : SLOT_BYTES);
    return true;
}

/* ---- what is mapped, if kit_maps ---- */

enum { PLACES = 8 }; /* SuperSlabs, then heaps */
bool kit_maps, kit_is_limited;
static _Atomic enum kit_mapped mapped[2 * PLACES];

static const char *place(unsigned i) {
    return i < PLACES ? slot_address(i * SUPERSLAB_SLOTS) : hak_region.heaps + (i - PLACES) * HEAP_BYTES;
}
static bool place_in(unsigned i, const char *address, size_t bytes) {
    return kit_maps && explore_running && (uintptr_t)place(i) - (uintptr_t)address < bytes;
}
enum kit_mapped kit_mapped(const void *address) {
    unsigned i = 0;
    while (place(i) != address)
        i++;
    return mapped[i];
}

/* False: the place is none of these. */
static bool map_places(enum os_map_kind kind, void *address, size_t bytes, void **got) {
    bool any = false;
    *got = address;
    for (unsigned i = 0; i < 2 * PLACES; i++) {
        enum kit_mapped hole = KIT_HOLE;
        if (!place_in(i, address, bytes))
            continue;
        any = true;
        if (kit_is_limited && mapped[2 * PLACES - 1] == KIT_RESERVED)
            *got = NULL;
        else if (kind >= OS_FRESH)
            mapped[i] = KIT_MAPPED;
        else if (!rmw_cas(&mapped[i], &hole, KIT_MAPPED))
            *got = OS_OCCUPIED;
    }
    return any;
}

bool __real_os_unmap(void *address, size_t bytes);
bool __wrap_os_unmap(void *address, size_t bytes);
bool __wrap_os_unmap(void *address, size_t bytes) {
    for (unsigned i = 0; i < 2 * PLACES; i++)
        if (place_in(i, address, bytes))
            mapped[i] = KIT_HOLE;
    return (kit_maps && explore_running) || __real_os_unmap(address, bytes);
}

/* Who waits goes on once for no reason. */
static _Atomic unsigned waits;
void __real_os_wait(_Atomic uint32_t *word, uint32_t value, unsigned ms);
void __wrap_os_wait(_Atomic uint32_t *word, uint32_t value, unsigned ms);
void __wrap_os_wait(_Atomic uint32_t *word, uint32_t value, unsigned ms) {
    if (!explore_running)
        __real_os_wait(word, value, ms);
    else if (rmw_add(&waits, 1) != 0)
        race_leave();
}

/* ---- other mappings ---- */

void *__real_os_map(enum os_map_kind kind, void *address, size_t bytes);
void *__wrap_os_map(enum os_map_kind kind, void *address, size_t bytes);
void *__wrap_os_map(enum os_map_kind kind, void *address, size_t bytes) {
    void *got;
    if (map_places(kind, address, bytes, &got))
        return got;
    if (kind < OS_FRESH)
        return __real_os_map(kind, address, bytes);
    set_open(address, bytes, kind != OS_FRESH_SHUT);
    /* Before an execution, and for tables, nobody has had this memory. */
    if (!explore_running || !region_has(address))
        return __real_os_map(OS_FRESH, address, bytes); /* protects nothing */
    if (!__real_os_commit(address, bytes))
        return NULL;
    race_zero(address, bytes, 4096);
    return address;
}

int __wrap_os_open_input(const char *path);
int __wrap_os_open_input(const char *path) {
    (void)path;
    return -1;
}

bool __wrap_os_fence_threads(void);
bool __wrap_os_fence_threads(void) {
    race_fence_threads();
    return true;
}

uint32_t __wrap_os_now_ms(void);
uint32_t kit_now_ms;
uint32_t __wrap_os_now_ms(void) { return kit_now_ms; }

/* Settling, and the purges that follow from it, have harnesses of their own and make many accesses. */
bool kit_is_settled;
void __real_retain_settle(struct client *c);
void __wrap_retain_settle(struct client *c);
void __wrap_retain_settle(struct client *c) {
    if (!kit_is_settled)
        __real_retain_settle(c);
}

bool kit_lends;
bool __wrap_presence_has_purger(void);
bool __wrap_presence_has_purger(void) { return kit_lends; }

unsigned kit_nodes = 1;
unsigned __wrap_nodes_count(void);
unsigned __wrap_nodes_count(void) { return kit_nodes; }

/* ---- heaps and slabs ---- */

void kit_setup(void) {
    kit_now_ms = 1000000;
    presence_start();
    store_relaxed(option_word(OPT_PURGER), 0);
    store_relaxed(option_word(OPT_PURGE), PURGE_NEVER); /* settling purges nothing; a harness purges */
    for (unsigned i = 0; i < KIT_HEAPS; i++) {
        hak_heap = &heap_before_birth;
        kit_heap[i] = thread_enter();
        kit_heap[i]->adoptions_left = 4096; /* as a thread that allocates */
        race_label(kit_heap[i], HEAP_BYTES, "heap");
    }
    hak_heap = &heap_before_birth;
    race_private(&rmw_count, sizeof rmw_count);
    race_private(&errno, sizeof errno);
    race_label(&hak_region, sizeof hak_region, "region");
    race_label(superslab_at(0), sizeof(struct superslab), "superslab");
    race_label(bitset_word(&hak_region.sets, 0, 0, 0), SETS * 8, "sets");
    race_label(hak_region.upper, SETS * 8, "upper sets");
}

uintptr_t kit_malloc(struct heap *h) {
    uintptr_t block = load_relaxed(&h->list[KIT_CLASS]);
    if (is_terminator(block))
        return tiny_refill(h, KIT_CLASS);
    store_relaxed(&h->list[KIT_CLASS], block_next(block));
    *block_word(block) = 0;
    return block;
}

struct slab *kit_slab_of(uintptr_t block) {
    struct slab *s = slab_at_offset(block - hak_region.base);
    return s;
}

void kit_free(struct heap *h, uintptr_t block) {
    struct slab *s = kit_slab_of(block);
    if (load_relaxed(&s->owner) == h)
        slab_free(h, s, block);
    else
        outbox_free(h, s, block);
}

struct slab *kit_full_slab(struct heap *h, uintptr_t blocks[KIT_BLOCKS]) {
    for (unsigned i = 0; i < KIT_BLOCKS; i++)
        blocks[i] = kit_malloc(h);
    kit_malloc(h); /* from the next slab */
    struct slab *s = kit_slab_of(blocks[0]);
    race_expect(s == kit_slab_of(blocks[KIT_BLOCKS - 1]) && load_relaxed(&s->owner) == OWNER_NONE);
    race_label(s, sizeof *s, "slab");
    return s;
}

/* ---- accounting ---- */

struct tally {
    const struct slab *slab;
    bool seen[KIT_BLOCKS];
};

/* Counts the slab's blocks in this list; none of them may have been seen before. */
static unsigned walk(struct tally *t, uintptr_t list) {
    unsigned n = 0;
    for (; !is_terminator(list); list = block_next(list)) {
        race_expect(same_slot(list, (uintptr_t)slab_address(t->slab)));
        unsigned i = (unsigned)((list & (SLOT_BYTES - 1)) / size_classes[KIT_CLASS].block_bytes);
        race_expect(i < KIT_BLOCKS && !t->seen[i]); /* otherwise it is free twice */
        t->seen[i] = true;
        n++;
    }
    return n;
}

void kit_account(const struct slab *s, unsigned live) {
    struct tally t = {.slab = s};
    struct heap *owner = load_relaxed(&s->owner);
    if (owner == OWNER_POOL) {
        race_expect(live == 0 && load_relaxed(&s->inbox) == 0);
        uint64_t word = load_relaxed(&superslab_at(slot_of(s) / SUPERSLAB_SLOTS)->word);
        race_expect(!(word_active(word) >> slot_of(s) % SUPERSLAB_SLOTS & 1));
        return;
    }
    uint64_t inbox = load_relaxed(&s->inbox);
    unsigned waiting = inbox != 0 ? walk(&t, (uintptr_t)slab_address(s) + (inbox & (SLOT_BYTES - 1))) : 0;
    race_expect(waiting == inbox >> 16);
    unsigned cached = 0;
    for (unsigned i = 0; i < KIT_HEAPS; i++) {
        const struct heap *h = kit_heap[i];
        for (unsigned e = 0; e < OUTBOX_ENTRIES; e++)
            if (load_relaxed(&h->outbox[e].slab) == slot_of(s) + 1)
                waiting += walk(&t, (uintptr_t)slab_address(s) + h->outbox[e].first);
        if (same_slot(load_relaxed(&h->list[KIT_CLASS]), (uintptr_t)slab_address(s)))
            cached += walk(&t, load_relaxed(&h->list[KIT_CLASS]));
    }
    if (!slab_is(s, PLACE_CURRENT))
        race_expect(walk(&t, load_relaxed(&s->tiny.list)) == slab_listed(s));
    race_expect(slab_carved(s) == slab_listed(s) + waiting + cached + live);
    if (owner != OWNER_NONE)
        return;
    race_expect(inbox >> 16 < slab_out(s)); /* otherwise nobody would look into it */
    race_expect(s->tiny.floor == 0 || inbox >> 16 < s->tiny.countdown || superslab_is_offered(slot_of(s), KIT_CLASS));
    race_expect(s->tiny.floor != 0 || superslab_is_offered(slot_of(s), KIT_CLASS));
    race_expect(s->tiny.floor != 0 || bitset_find(&hak_region.sets, SET_OFFER + KIT_CLASS, 0) != BITSET_NONE);
}

/* Is the SuperSlab in that set of its own node? */
static bool is_in(unsigned set, size_t superslab) {
    return bitset_find(&hak_region.sets, set_of_node(set, superslab_node(superslab)), superslab) == superslab;
}

void kit_check_hints(size_t superslab) {
    uint64_t word = load_relaxed(&superslab_at(superslab)->word);
    uint32_t active = word_active(word), resident = word_resident(word);
    race_expect(active != 0 || resident == 0 || is_in(SET_CACHED, superslab));
    race_expect(active != 0 || resident != 0 || is_in(SET_CLEAN, superslab));
    if (active == 0)
        return;
    race_expect((resident & ~active) == 0 || is_in(SET_EMPTY, superslab));
    race_expect(active == UINT32_MAX || is_in(SET_ROOM_1, superslab));
}
