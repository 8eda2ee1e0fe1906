/* See profile.h. */
/* SPDX-License-Identifier: MIT */
#include "observe/profile.h"
#include "base/log.h"
#include "base/os.h"
#include "observe/probes.h"
#include "observe/python.h"
#include "observe/stack.h"

#include <string.h>

#define PROBES 8 /* places of each level in which a sample may be */
#define INDEX_PLACES (2u * PROFILE_STACKS)
#define SCALE 65536 /* of estimated objects */

struct profile hak_profile;

/* ---- memory ---- */

static size_t table_bytes(void) {
    return round_up(PROFILE_STACKS * sizeof(struct profile_stack) + PROFILE_SAMPLES * sizeof(struct profile_sample) +
                        PROFILE_ARENAS * sizeof(struct profile_arena) + INDEX_PLACES * sizeof(uint32_t) +
                        PYTHON_TABLE_BYTES,
                    os_page_bytes());
}

/* The tables, made at the first call. NULL: no memory. Two threads that make them at once agree on one. */
static struct profile_stack *tables(void) {
    struct profile_stack *stacks = load_acquire(&hak_profile.stacks);
    if (likely(stacks != NULL))
        return stacks;
    char *memory = load_acquire(&hak_profile.memory);
    if (memory == NULL) {
        char *mine = os_map(OS_MEMORY, NULL, table_bytes());
        if (mine == NULL)
            return NULL;
        if (!rmw_cas(&hak_profile.memory, &memory, mine))
            os_unmap(mine, table_bytes());
        else
            memory = mine;
    }
    stacks = (struct profile_stack *)(void *)memory;
    struct profile_sample *samples = (struct profile_sample *)(void *)(stacks + PROFILE_STACKS);
    store_relaxed(&hak_profile.samples, samples);
    struct profile_arena *arenas = (struct profile_arena *)(void *)(samples + PROFILE_SAMPLES);
    store_relaxed(&hak_profile.arenas, arenas);
    store_relaxed(&hak_profile.index, (_Atomic uint32_t *)(void *)(arenas + PROFILE_ARENAS));
    store_relaxed(&hak_python.codes, (struct python_code *)(void *)(load_relaxed(&hak_profile.index) + INDEX_PLACES));
    uint32_t none = 0;
    rmw_cas(&hak_profile.stacks_used, &none, 1);
    store_release(&hak_profile.stacks, stacks);
    return stacks;
}

void profile_want(uint64_t bytes) {
    if (bytes != 0)
        tables();
    store_relaxed(&hak_asked.wanted_bytes, (uint32_t)min_size(bytes, UINT32_MAX));
}

/* ---- names of arenas ---- */

/* The number of the name; 0: it is empty, or there is no room. */
static uint32_t arena_number_of(const char *name) {
    uint64_t hash = 1;
    size_t length = min_size(strlen(name), PROFILE_NAME_BYTES - 1);
    for (size_t i = 0; i < length; i++)
        hash = mix_bits(hash + (uint8_t)name[i]);
    for (uint32_t i = 1; i < PROFILE_ARENAS && length != 0; i++) {
        struct profile_arena *entry = &load_relaxed(&hak_profile.arenas)[i];
        uint64_t known = load_relaxed(&entry->hash);
        if (known == 0 && rmw_cas(&entry->hash, &known, hash)) {
            memcpy(entry->name, name, length);
            return i;
        }
        if (known == hash)
            return i;
    }
    return 0;
}

/* ---- stacks ---- */

static uint64_t hash_of(const uintptr_t *callers, unsigned depth, uint32_t arena) {
    uint64_t hash = depth + ((uint64_t)arena << 32);
    for (unsigned i = 0; i < depth; i++)
        hash = mix_bits(hash + callers[i]);
    return hash;
}

static bool is_stack(const struct profile_stack *s, uint64_t hash, const uintptr_t *callers, unsigned depth,
                     uint32_t arena) {
    return s->hash == hash && load_relaxed(&s->depth) == depth && s->arena == arena &&
           memcmp(s->callers, callers, depth * sizeof *callers) == 0;
}

/* Adds an entry and returns its number; 0: there is no room left. */
static uint32_t add_stack(struct profile_stack *stacks, uint64_t hash, const uintptr_t *callers, unsigned depth,
                          uint32_t arena) {
    uint32_t n = load_relaxed(&hak_profile.stacks_used);
    if (n < PROFILE_STACKS)
        n = rmw_add(&hak_profile.stacks_used, 1);
    if (n >= PROFILE_STACKS)
        return 0;
    stacks[n].hash = hash;
    stacks[n].arena = arena;
    memcpy(stacks[n].callers, callers, depth * sizeof *callers);
    store_release(&stacks[n].depth, depth);
    return n;
}

static uint32_t intern(struct profile_stack *stacks, const uintptr_t *callers, unsigned depth, uint32_t arena) {
    uint64_t hash = hash_of(callers, depth, arena);
    uint32_t mine = 0;
    if (depth == 0)
        return 0;
    for (unsigned i = 0; i < INDEX_PLACES; i++) {
        _Atomic uint32_t *place = &load_relaxed(&hak_profile.index)[(hash + i) % INDEX_PLACES];
        uint32_t number = load_acquire(place);
        if (number == 0) {
            if (mine == 0)
                mine = add_stack(stacks, hash, callers, depth, arena);
            if (mine == 0 || rmw_cas(place, &number, mine)) /* pairs with the load above */
                return mine;
        }
        if (is_stack(&stacks[number], hash, callers, depth, arena))
            return number; /* if another thread was faster, an entry has no samples for ever */
    }
    return 0;
}

/* ---- samples ---- */

/* The i-th place where a sample of this address may be, level by level. */
static struct profile_sample *place_of(uintptr_t address, unsigned i) {
    unsigned level = i / PROBES;
    uint64_t size = (uint64_t)PROFILE_SAMPLES_MIN << level, first = size - PROFILE_SAMPLES_MIN;
    return &load_relaxed(&hak_profile.samples)[first + (mix_bits(address >> 4) + i % PROBES) % size];
}

static struct profile_sample *profile_claim(uintptr_t address) {
    for (unsigned i = 0; i < PROBES * PROFILE_LEVELS; i++) {
        struct profile_sample *sample = place_of(address, i);
        uintptr_t unused = 0;
        if (load_relaxed(&sample->address) != 0 ||
            !rmw_cas(&sample->address, &unused, 1)) /* pairs with profile_freed */
            continue;
        uint32_t used = load_relaxed(&hak_profile.levels_used);
        while (used <= i / PROBES && !rmw_cas(&hak_profile.levels_used, &used, i / PROBES + 1))
            ;
        return sample;
    }
    return NULL;
}

static struct profile_sample *profile_find(const void *p) {
    unsigned places = load_acquire(&hak_profile.stacks) != NULL ? PROBES * load_acquire(&hak_profile.levels_used) : 0;
    for (unsigned i = 0; i < places; i++) {
        struct profile_sample *sample = place_of((uintptr_t)p, i);
        if (load_acquire(&sample->address) == (uintptr_t)p)
            return sample;
    }
    return NULL;
}

static void add_to(struct profile_total *total, const struct profile_sample *sample) {
    rmw_add(&total->samples, 1);
    rmw_add(&total->bytes, sample->bytes);
    rmw_add(&total->estimated_bytes, sample->estimated_bytes);
    rmw_add(&total->estimated_objects, sample->estimated_objects);
}

/* ---- the high-water mark ---- */

static struct profile_held held_now(const struct profile_stack *s) {
    /* Freed first: what was freed by then was allocated before. Pairs with the adds in profile_freed */
    struct profile_held freed = {load_acquire(&s->freed.estimated_bytes), load_acquire(&s->freed.estimated_objects)};
    return (struct profile_held){load_relaxed(&s->allocated.estimated_bytes) - freed.bytes,
                                 load_relaxed(&s->allocated.estimated_objects) - freed.objects};
}

struct profile_held profile_at_mark(const struct profile_stack *s) {
    if (load_acquire(&s->kept_mark) != load_relaxed(&hak_profile.mark))
        return held_now(s);
    return (struct profile_held){load_relaxed(&s->kept_bytes), load_relaxed(&s->kept_objects)};
}

/* The stack is about to change: keeps what it holds, if that is what it held at the mark. */
static void mark_keep(struct profile_stack *s) {
    uint64_t mark = load_relaxed(&hak_profile.mark);
    if (load_relaxed(&s->kept_mark) == mark)
        return;
    struct profile_held now = held_now(s);
    store_relaxed(&s->kept_bytes, now.bytes);
    store_relaxed(&s->kept_objects, now.objects);
    store_release(&s->kept_mark, mark);
}

/* A sample is about to be added to the stack. */
static void mark_add(struct profile_stack *s, uint64_t bytes) {
    uint64_t live = rmw_add(&hak_profile.live_bytes, bytes) + bytes, most = load_relaxed(&hak_profile.most_bytes);
    if (live <= most) {
        mark_keep(s);
        return;
    }
    while (live > most && !rmw_cas(&hak_profile.most_bytes, &most, live))
        ;
    rmw_add(&hak_profile.mark, 1);
}

/* The calls that led here; behind them the words of Python's frames (python.h). These are found first, so that deep
 * calls in C leave room for them. */
static unsigned capture(uintptr_t *callers) {
    unsigned frames = option(OPT_PROFILE_PYTHON) ? python_capture(callers, PYTHON_FRAMES) : 0;
    uintptr_t *last = callers + PROFILE_CALLERS - frames;
    memmove(last, callers, frames * sizeof *callers);
    unsigned calls = stack_capture(callers, PROFILE_CALLERS - frames);
    memmove(callers + calls, last, frames * sizeof *callers);
    return calls + frames;
}

bool profile_add(const void *p, size_t bytes, double chance, const char *arena, uintptr_t *callers) {
    struct profile_stack *stacks = tables();
    struct profile_sample *sample = stacks != NULL ? profile_claim((uintptr_t)p) : NULL;
    if (sample == NULL) {
        if (stacks != NULL)
            LOG_TABLE_FULL("samples", PROFILE_SAMPLES);
        rmw_add(&hak_profile.dropped, 1);
        return false;
    }
    unsigned depth = capture(callers);
    sample->bytes = bytes;
    sample->estimated_bytes = (uint64_t)((double)bytes / chance + 0.5);
    sample->estimated_objects = (uint64_t)(SCALE / chance + 0.5);
    sample->stack = intern(stacks, callers, depth, arena_number_of(arena));
    sample->birth_ms = os_now_ms();
    sample->thread = os_thread();
    mark_add(&stacks[sample->stack], sample->estimated_bytes);
    add_to(&stacks[sample->stack].allocated, sample);
    store_release(&sample->address, (uintptr_t)p);
    if (unlikely(hak_asked.alloc_tracers != 0))
        probe_alloc(p, bytes, sample->estimated_bytes);
    return true;
}

void profile_freed(const void *p) {
    struct profile_sample *sample = profile_find(p);
    if (sample == NULL)
        return;
    struct profile_stack *stack = &load_acquire(&hak_profile.stacks)[sample->stack];
    uint32_t ms = os_now_ms() - sample->birth_ms;
    unsigned lifetime = ms != 0 ? highest_bit(ms) + 1 : 0;
    rmw_add(&stack->lifetimes[min_size(lifetime, PROFILE_LIFETIMES - 1)], 1);
    mark_keep(stack);
    add_to(&stack->freed, sample);
    rmw_add(&hak_profile.live_bytes, -sample->estimated_bytes);
    store_release(&sample->address, 0); /* pairs with claim */
    if (unlikely(hak_asked.free_tracers != 0))
        probe_free(p);
}

size_t profile_asked_bytes(const void *p) {
    const struct profile_sample *sample = profile_find(p);
    return sample != NULL ? sample->bytes : SIZE_MAX;
}
