/* Hands out the region: SuperSlabs and heaps, also those for which the system has refused memory. See region.h. */
/* SPDX-License-Identifier: MIT */
#include "base/options.h"
#include "base/os.h"
#include "region/region.h"

/* Something is mapped where nothing should be. True: the SuperSlab or heap was counted while a cut went on, and has
 * kept its addresses. */
static bool is_kept(size_t number, _Atomic size_t *kept) {
    return !hak_region.window && PROVEN(kept_look, number < load_seq(kept));
}

/* How a SuperSlab that nobody has gets memory: in place of reserved addresses, if it has such. Secure mode's tiers make
 * accessible what they need. */
static enum os_map_kind superslab_mapping(size_t superslab) {
    if (hak_region.window || superslab >= load_seq(&hak_region_use.kept)) /* pairs with cut_behind */
        return OS_AT;
    if (mode()->free_is_shut)
        return OS_FRESH_SHUT;
    bool folios = superslab >= REGION_FOLIOS_FROM && load_relaxed(&hak_region_use.folios) == FOLIOS_USED;
    return folios ? OS_FRESH_PLAIN : OS_FRESH;
}

bool region_renew(void *at, size_t bytes, bool huge) {
    enum os_map_kind kind = huge ? OS_FRESH_HUGE : superslab_mapping(region_offset(at) / SUPERSLAB_BYTES);
    if (os_map(kind == OS_AT ? OS_FRESH : kind, at, bytes) == at || os_is_mapped(at, bytes)) {
        region_undump_again(at, bytes);
        return true;
    }
    if (bytes % SUPERSLAB_BYTES == 0) /* so that all of it can be mapped later */
        os_unmap(at, bytes);
    return false;
}

/* ---- core dumps ---- */

bool region_set_dumped(size_t superslab, bool dumped) {
    store_seq(&superslab_at(superslab)->undumped, !dumped); /* pairs with region_undump_again */
    return os_advise(dumped ? OS_DUMP : OS_NO_DUMP, slot_address(superslab * SUPERSLAB_SLOTS), SUPERSLAB_BYTES);
}

/* The arena may end while the purger has slots of it. Here the advice comes before the look, in region_set_dumped the
 * store before the advice: so the look finds the store, or the arena's advice is the later one. */
void region_undump_again(void *at, size_t bytes) {
    _Atomic bool *undumped = &superslab_at(region_offset(at) / SUPERSLAB_BYTES)->undumped;
    if (likely(!load_relaxed(undumped)))
        return;
    os_advise(OS_NO_DUMP, at, bytes);
    if (!load_seq(undumped))
        os_advise(OS_DUMP, at, bytes);
}

/* ---- SuperSlabs without memory ----
 * In a window: SuperSlabs that could not be mapped when they were due. Everywhere: those that a refused call has
 * unmapped. */

static _Atomic uint32_t *next_waiting(uint32_t i) { return &superslab_at(i - 1)->next_waiting; }

/* `head` is a chain of SuperSlabs, as number + 1. A list is only ever taken whole, so there is no ABA. */
static void put_chain(_Atomic uint32_t *list, uint32_t head) {
    uint32_t last = head, next;
    while ((next = load_relaxed(next_waiting(last))) != 0)
        last = next;
    uint32_t before = load_relaxed(list);
    do
        store_relaxed(next_waiting(last), before);
    while (!rmw_cas(list, &before, head)); /* pairs with take_chain, for the links */
}
static uint32_t take_chain(_Atomic uint32_t *list) { return load_relaxed(list) != 0 ? rmw_swap(list, 0) : 0; }

bool region_note_apart(size_t superslab, bool apart) {
    struct superslab *ss = superslab_at(superslab);
    if (load_relaxed(&ss->apart) == apart || rmw_swap(&ss->apart, apart) == apart)
        return false;
    rmw_add(&hak_region_use.apart, apart ? 1 : (size_t)-1);
    return true;
}

void region_put_unmapped(size_t first, size_t n) {
    for (size_t i = first; i < first + n; i++) {
        store_relaxed(&superslab_at(i)->word, (uint64_t)UINT32_MAX); /* ACTIVE, not resident: nobody's */
        store_relaxed(&superslab_at(i)->next_waiting, 0);
        put_chain(&hak_region_use.unmapped, (uint32_t)i + 1);
    }
}

size_t region_map_unmapped(void) {
    uint32_t head = take_chain(&hak_region_use.unmapped);
    if (head == 0)
        return BITSET_NONE;
    struct superslab *ss = superslab_at(head - 1);
    char *at = slot_address((size_t)(head - 1) * SUPERSLAB_SLOTS);
    void *got = os_map(OS_AT, at, SUPERSLAB_BYTES);
    uint32_t rest = got == at || got == OS_OCCUPIED ? load_relaxed(&ss->next_waiting) : head;
    if (rest != 0)
        put_chain(&hak_region_use.unmapped, rest);
    if (got != at)
        return BITSET_NONE;
    region_undump_again(at, SUPERSLAB_BYTES);
    store_relaxed(&ss->huge, HUGE_NONE);
    region_note_apart(head - 1, false);
    return head - 1;
}

/* The system has refused `n` SuperSlabs. Memory is scarce then, unless that is more than the program has. */
static size_t refused(size_t n, size_t first) {
    if (n <= first)
        store_relaxed(&hak_region_use.scarce_from, 0);
    return BITSET_NONE;
}

/* Prepares a SuperSlab that is to get memory from the lowest slot up. Returns its number + 1. */
static uint32_t without_memory(size_t superslab) {
    struct superslab *ss = superslab_at(superslab);
    store_relaxed(&ss->word, (uint64_t)UINT32_MAX);
    store_relaxed(&ss->mapped_slots, 0);
    store_relaxed(&ss->next_waiting, 0);
    return (uint32_t)superslab + 1;
}

/* Gives back the addresses of the SuperSlabs whose addresses are reserved; what lies behind may be another thread's.
 * False: there are none. */
static bool unmap_kept(size_t first, size_t n) {
    size_t kept = load_seq(&hak_region_use.kept);
    if (hak_region.window || first >= kept)
        return false;
    os_unmap(slot_address(first * SUPERSLAB_SLOTS), min_size(kept - first, n) * SUPERSLAB_BYTES);
    return true;
}

/* Gives the SuperSlabs memory. If that fails they go back, or wait to be mapped later; with somebody else's mapping in
 * the way they are given up for good (*blocked). */
static bool map_superslabs(size_t first, size_t n, bool *blocked) {
    char *at = slot_address(first * SUPERSLAB_SLOTS);
    enum os_map_kind kind = superslab_mapping(first + n - 1);
    bool reserved = kind != OS_AT;
    bool partly = !reserved && unmap_kept(first, n);
    void *got = reserved ? os_map(kind, at, n * SUPERSLAB_BYTES) : region_map_at(at, n * SUPERSLAB_BYTES);
    if (got == OS_OCCUPIED && !reserved && !partly && unmap_kept(first, n)) {
        partly = true;
        got = region_map_at(at, n * SUPERSLAB_BYTES);
    }
    /* A process that has no mappings left may still unmap the beginning of one and make the one before it longer. */
    if (got == NULL && reserved && os_unmap(at, n * SUPERSLAB_BYTES)) {
        got = os_map(OS_AT, at, n * SUPERSLAB_BYTES);
        void *again = got == NULL ? os_map(OS_RESERVE, at, n * SUPERSLAB_BYTES) : NULL;
        reserved = again == at;
        got = again == OS_OCCUPIED ? OS_OCCUPIED : got;
    }
    if (got == at)
        return true;
    *blocked = got == OS_OCCUPIED;
    size_t taken = first + n;
    if (!*blocked && (reserved || kind == OS_AT) && !partly && rmw_cas(&hak_region_use.superslabs, &taken, first))
        return false;
    for (size_t i = first; *blocked && i < first + n; i++)
        store_relaxed(&superslab_at(i)->word, (uint64_t)UINT32_MAX);
    for (size_t i = first; !*blocked && reserved && i < first + n; i++)
        put_chain(&hak_region_use.parts, without_memory(i));
    if (!*blocked && !reserved)
        region_put_unmapped(first, n);
    return false;
}

/* ---- SuperSlabs that have memory in part ----
 * Their slots get memory from the lowest up. The bits of the others say ACTIVE, not resident: nobody's. They are in a
 * list, which a thread takes whole to give slots of the first one memory; meanwhile others begin a further one. */

/* A new SuperSlab without memory, as number + 1; 0: there is none. Its tables come first: walks look at all that are
 * handed out. */
static uint32_t begin_part(void) {
    size_t first = load_relaxed(&hak_region_use.superslabs);
    do
        if (first == hak_region.superslabs_max || !region_commit_superslabs(first + 1))
            return 0;
    while (!rmw_cas(&hak_region_use.superslabs, &first, first + 1));
    return without_memory(first);
}

bool region_begin_in_part(void) {
    uint32_t first = mode()->free_is_shut ? 0 : begin_part();
    if (first != 0)
        put_chain(&hak_region_use.parts, first);
    return first != 0;
}

static bool map_slots(size_t slot, unsigned n, bool *blocked) {
    char *at = slot_address(slot);
    bool reserved = superslab_mapping(slot / SUPERSLAB_SLOTS) != OS_AT;
    void *got = reserved ? os_map(OS_FRESH, at, n * SLOT_BYTES) : region_map_at(at, n * SLOT_BYTES);
    if (got == OS_OCCUPIED && is_kept(slot / SUPERSLAB_SLOTS, &hak_region_use.kept))
        got = os_map(OS_FRESH, at, n * SLOT_BYTES);
    *blocked = got == OS_OCCUPIED;
    return got == at;
}

uint32_t region_map_slots(unsigned slots, size_t *superslab) {
    if (mode()->free_is_shut) /* its tiers make accessible what they need */
        return 0;
    uint32_t head = take_chain(&hak_region_use.parts);
    if (head == 0 && (head = begin_part()) == 0)
        return 0;
    struct superslab *ss = superslab_at(head - 1);
    unsigned have = load_relaxed(&ss->mapped_slots), n = (unsigned)min_size(slots, SUPERSLAB_SLOTS - have);
    bool blocked = false;
    if (!map_slots((size_t)(head - 1) * SUPERSLAB_SLOTS + have, n, &blocked))
        n = 0;
    store_relaxed(&ss->mapped_slots, (uint8_t)(have + n));
    uint32_t rest = have + n == SUPERSLAB_SLOTS || blocked ? load_relaxed(&ss->next_waiting) : head;
    if (rest != 0)
        put_chain(&hak_region_use.parts, rest);
    *superslab = head - 1;
    return (uint32_t)(low_bits(n) << have);
}

size_t region_take_superslabs(size_t n) {
    struct region *r = &hak_region;
    size_t first = load_relaxed(&hak_region_use.superslabs);
    for (;;) {
        if (n > r->superslabs_max || first > r->superslabs_max - n)
            return BITSET_NONE;
        if ((first + n) * SUPERSLAB_BYTES > region_frontier() && !region_commit_superslabs(first + n))
            return refused(n, first);
        if (!rmw_cas(&hak_region_use.superslabs, &first, first + n))
            continue;
        bool blocked;
        bool cut = region_was_cut();
        if (map_superslabs(first, n, &blocked))
            return first;
        if (!blocked && (cut || n > first || !region_cut_blindly()))
            return refused(n, first);
        first = load_relaxed(&hak_region_use.superslabs);
    }
}

void *region_commit_heap(size_t index) {
    if (index >= hak_region.heaps_max)
        return NULL;
    char *at = hak_region.heaps + index * HEAP_BYTES;
    if (!hak_region.window) {
        size_t taken = load_relaxed(&hak_region_use.heaps);
        while (taken <= index && !rmw_cas(&hak_region_use.heaps, &taken, index + 1)) /* pairs with cut_behind */
            ;
        bool cut = PROVEN(cut_look, region_was_cut());
        if (index < load_seq(&hak_region_use.kept_heaps)) {
            bool done = os_map(OS_FRESH, at, HEAP_BYTES) == at;
            done = done || (!cut && region_cut_blindly() && os_map(OS_FRESH, at, HEAP_BYTES) == at);
            return done ? at : NULL;
        }
    }
    if (region_map_at(at, HEAP_BYTES) == at)
        return at;
    return is_kept(index, &hak_region_use.kept_heaps) && os_map(OS_FRESH, at, HEAP_BYTES) == at ? at : NULL;
}
