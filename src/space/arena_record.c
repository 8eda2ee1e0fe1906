/* See arena_record.h. */
/* SPDX-License-Identifier: MIT */
#include "space/arena_record.h"
#include "base/os.h"

#include <string.h>

#define NUMBER_BITS 16

_Static_assert(ARENAS_MAX < 1 << NUMBER_BITS, "a handle has room for the number");

HAK_APART struct arena_table hak_arenas;

static size_t chunk_bytes(void) { return round_up(ARENAS_IN_CHUNK * sizeof(struct arena), os_page_bytes()); }

static struct arena *make_chunk(_Atomic(struct arena *) *place) {
    struct arena *chunk = os_map(OS_MEMORY, NULL, chunk_bytes()), *none = NULL;
    if (chunk == NULL)
        return NULL;
    if (rmw_cas(place, &none, chunk))
        return chunk;
    os_unmap(chunk, chunk_bytes());
    return none; /* another thread's, if it was faster */
}

uint32_t arenas_made(void) { return load_acquire(&hak_arenas.made); }

struct arena *arena_numbered(uint32_t number) {
    return &load_acquire(&hak_arenas.chunk[number / ARENAS_IN_CHUNK])[number % ARENAS_IN_CHUNK];
}

struct arena *arena_of(uintptr_t handle) {
    uint32_t number = arena_number(handle);
    if (number == 0 || load_acquire(&hak_arenas.chunk[number / ARENAS_IN_CHUNK]) == NULL)
        return NULL;
    struct arena *a = arena_numbered(number);
    return load_acquire(&a->handle) == handle ? a : NULL; /* pairs with arena_open */
}

static struct arena *take_unused(void) {
    uint64_t top = load_acquire(&hak_arenas.unused), next;
    do {
        if ((uint32_t)top == 0)
            return NULL;
        next = ((top >> 32) + 1) << 32 | load_relaxed(&arena_numbered((uint32_t)top)->next_unused);
    } while (!rmw_cas(&hak_arenas.unused, &top, next)); /* pairs with arena_put */
    return arena_numbered((uint32_t)top);
}

static struct arena *make_record(void) {
    uint32_t made = load_relaxed(&hak_arenas.made);
    do {
        if (made == ARENAS_MAX)
            return NULL;
        _Atomic(struct arena *) *place = &hak_arenas.chunk[(made + 1) / ARENAS_IN_CHUNK];
        if (load_acquire(place) == NULL && make_chunk(place) == NULL)
            return NULL;
    } while (!rmw_cas(&hak_arenas.made, &made, made + 1));
    struct arena *a = arena_numbered(made + 1);
    a->number = made + 1;
    return a;
}

struct arena *arena_take(void) {
    struct arena *a = take_unused();
    return a != NULL ? a : make_record();
}

uintptr_t arena_open(struct arena *a) {
    uintptr_t number = (uintptr_t)a->number << ARENA_ENTRY_SHIFT;
    uintptr_t handle = ++a->generation << (ARENA_ENTRY_SHIFT + NUMBER_BITS) | number;
    store_release(&a->handle, handle);
    return handle;
}

bool arena_close(struct arena *a, uintptr_t handle) { return rmw_cas(&a->handle, &handle, 0); }

void arena_put(struct arena *a) {
    store_relaxed(&a->newest, 0);
    store_relaxed(&a->search_from, 0);
    store_relaxed(&a->heaps, NULL);
    store_relaxed(&a->slots, 0);
    store_relaxed(&a->peak_slots, 0);
    store_relaxed(&a->superslabs, 0);
    store_relaxed(&a->refusals, 0);
    for (unsigned c = 0; c < CLASSES; c++)
        store_relaxed(&a->offered[c], false);
    for (unsigned c = 0; c < TINY_CLASSES; c++)
        store_relaxed(&a->filled_inbox[c], false);
    uint64_t top = load_relaxed(&hak_arenas.unused);
    do
        store_relaxed(&a->next_unused, (uint32_t)top);
    while (!rmw_cas(&hak_arenas.unused, &top, ((top >> 32) + 1) << 32 | a->number)); /* pairs with take_unused */
}

/* ---- limits ---- */

struct arena_use arena_use(const struct arena *a) {
    size_t limit = load_acquire(&a->limit_slots); /* before the handle again */
    return (struct arena_use){
        .used_bytes = load_acquire(&a->slots) * SLOT_BYTES,
        .peak_bytes = load_acquire(&a->peak_slots) * SLOT_BYTES,
        .limit_bytes = limit != ARENA_UNLIMITED ? limit * SLOT_BYTES : 0,
    };
}

bool arena_admit(struct arena *a, size_t slots) {
    size_t have = load_relaxed(&a->slots), limit = load_relaxed(&a->limit_slots);
    do {
        if (slots > limit || have > limit - slots) {
            rmw_add(&a->refusals, 1);
            return false;
        }
    } while (!rmw_cas(&a->slots, &have, have + slots));
    size_t peak = load_relaxed(&a->peak_slots);
    while (peak < have + slots && !rmw_cas(&a->peak_slots, &peak, have + slots))
        ;
    return true;
}

/* A thread that was late may give slots of an arena that has ended, which are not counted any more. */
void arena_uncount(struct arena *a, size_t slots) {
    size_t have = load_relaxed(&a->slots);
    while (!rmw_cas(&a->slots, &have, have - min_size(slots, have)))
        ;
}

/* ---- what statistics see ---- */

void arena_set_name(struct arena *a, const char *name) {
    char text[ARENA_NAME_BYTES] = {0};
    for (size_t i = 0; name != NULL && i < sizeof text - 1 && name[i] != '\0'; i++)
        text[i] = name[i];
    for (unsigned i = 0; i < ARENA_NAME_WORDS; i++) {
        uint64_t word;
        memcpy(&word, text + i * sizeof word, sizeof word);
        store_release(&a->name_word[i], word); /* pairs with arena_see */
    }
}

/* Each load acquires: whoever reads what was written for the next arena sees that this one's handle is gone. */
bool arena_see(uint32_t number, struct arena_seen *seen) {
    const struct arena *a = arena_numbered(number);
    uintptr_t handle = load_acquire(&a->handle);
    if (handle == 0)
        return false;
    for (unsigned i = 0; i < ARENA_NAME_WORDS; i++) {
        uint64_t word = PROVEN(arena_name, load_acquire(&a->name_word[i]));
        memcpy(seen->name + i * sizeof word, &word, sizeof word);
    }
    seen->use = arena_use(a);
    return load_acquire(&a->handle) == handle;
}
