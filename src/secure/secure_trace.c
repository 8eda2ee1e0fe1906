/* See secure_trace.h. */
/* SPDX-License-Identifier: MIT */
#include "secure/secure_trace.h"
#include "base/os.h"
#include "blocks/block.h"
#include "blocks/kinds.h"
#include "threads/thread.h"

#include <string.h>

enum {
    PLACE_BITS = 20,
    THREAD_BITS = 22, /* Linux gives threads no larger numbers */
    NUMBER_BITS = 20,
    BLOCK_UNIT_BYTES = 16, /* secure mode's blocks start at multiples of these */
    STACKS = 1 << 15,      /* the first is none */
    CALLERS = 23,
    PLACES = 2 * STACKS, /* of the index */
    PROBES = 64,
    SPREAD = 0x9e375, /* odd: where the places of the next 16 MiB begin */
};

struct stack {
    uint64_t hash, depth;
    uintptr_t callers[CALLERS];
};

struct trace {
    /* a block's last allocation and free; 0: not known. Each pairs with itself: a word tells all there is to know, and
     * the stack it names was published before */
    _Atomic uint64_t word[1 << PLACE_BITS][STACK_EVENTS];
    struct stack stack[STACKS];     /* constant once the index leads there, or a word does */
    _Atomic uint32_t index[PLACES]; /* numbers of stacks, by hash; 0: none. Pairs with itself, for the stack */
};

static _Atomic(struct trace *) trace_made; /* NULL until the first block is noted. Pairs with itself */
static _Atomic uint32_t stacks_used;       /* numbers given out; may exceed STACKS */

static size_t trace_bytes(void) { return round_up(sizeof(struct trace), os_page_bytes()); }

/* NULL: no memory. Two threads that make it at once agree on one. */
static struct trace *trace_make(void) {
    struct trace *t = load_acquire(&trace_made), *mine;
    if (likely(t != NULL) || (mine = os_map(OS_MEMORY, NULL, trace_bytes())) == NULL)
        return t;
    if (rmw_cas(&trace_made, &t, mine))
        return mine;
    os_unmap(mine, trace_bytes());
    return t;
}

/* ---- stacks ---- */

static uint64_t hash_of(const uintptr_t *callers, unsigned depth) {
    uint64_t hash = depth;
    for (unsigned i = 0; i < depth; i++)
        hash = (hash ^ callers[i]) * 0x9e3779b97f4a7c15u;
    return mix_bits(hash);
}

static bool is_stack(const struct stack *s, uint64_t hash, const uintptr_t *callers, unsigned depth) {
    return s->hash == hash && s->depth == depth && memcmp(s->callers, callers, depth * sizeof *callers) == 0;
}

/* Returns the number of a new stack; 0: there is no room left. */
static uint32_t add(struct trace *t, uint64_t hash, const uintptr_t *callers, unsigned depth) {
    uint32_t n = load_relaxed(&stacks_used);
    n = n < STACKS - 1 ? rmw_add(&stacks_used, 1) + 1 : STACKS;
    if (n >= STACKS)
        return 0;
    t->stack[n].hash = hash;
    t->stack[n].depth = depth;
    memcpy(t->stack[n].callers, callers, depth * sizeof *callers);
    return n;
}

/* Two threads that add the same stack at once may add it twice, which does no harm. */
static uint32_t number_of(struct trace *t, const uintptr_t *callers, unsigned depth) {
    uint64_t hash = hash_of(callers, depth);
    uint32_t mine = 0;
    for (unsigned i = 0; i < PROBES && depth != 0; i++) {
        _Atomic uint32_t *place = &t->index[(hash + i) % PLACES];
        uint32_t number = load_acquire(place);
        if (number == 0) {
            mine = mine != 0 ? mine : add(t, hash, callers, depth);
            if (mine == 0 || rmw_cas(place, &number, mine)) /* pairs with the load above */
                return mine;
        }
        if (is_stack(&t->stack[number], hash, callers, depth))
            return number;
    }
    return mine;
}

/* ---- words ---- */

/* The word of the block without stack and thread, and its place: together they tell the address. */
static uint64_t trace_word_of(uintptr_t offset, uint32_t *place) {
    uint64_t unit = offset / BLOCK_UNIT_BYTES, piece = unit >> PLACE_BITS;
    *place = (uint32_t)(unit + piece * SPREAD) % (1u << PLACE_BITS);
    return piece << (THREAD_BITS + NUMBER_BITS);
}
_Static_assert(PLACE_BITS + 64 - THREAD_BITS - NUMBER_BITS == 42 && (uint64_t)64 * TIB / BLOCK_UNIT_BYTES == 1ull << 42,
               "a word and its place tell apart all blocks of the largest region");
_Static_assert(STACKS <= 1 << NUMBER_BITS, "a word has room for a stack's number");

static uint32_t number_of_stack(struct trace *t, struct heap *h) {
    bool may_take = heap_begin_stack(h);
    uint32_t number = may_take ? number_of(t, h->callers, stack_capture(h->callers, CALLERS)) : 0;
    heap_end_stack(h, may_take);
    return number;
}

HAK_NOINLINE void *secure_trace_note(void *p, enum stack_event event) {
    struct heap *h = thread_own();
    struct trace *t = trace_make();
    if (unlikely(t == NULL))
        return p;
    uint32_t number = 0, place;
    /* Else nothing here is the thread's alone, or libc allocates for a thread that malloc starts, on what may be a
     * small stack. */
    if (likely(h != NULL && h->number != HEAP_NONE && !h->client.in_start))
        number = number_of_stack(t, h);
    uint64_t word = trace_word_of(region_offset(p), &place);
    word |= (uint64_t)(os_thread() % (1u << THREAD_BITS)) << NUMBER_BITS | number;
    if (event == STACK_ALLOCATED)
        store_relaxed(&t->word[place][STACK_FREED], 0);
    store_release(&t->word[place][event], number != 0 ? word : 0);
    return p;
}

/* The start of the block that has the address, as its record tells; or the address. */
static uintptr_t start_of(uintptr_t p) {
    const struct slab *s = slab_at_offset(p - hak_region.base);
    if (slab_tier(s) == KIND_SECURE_LARGE)
        return (uintptr_t)slab_address(s) + s->single.lead_bytes % SLOT_BYTES;
    if (slab_tier(s) != KIND_SECURE_SMALL)
        return p;
    s = span_first(s);
    return p - (p - s->mid.start) % s->mid.block_bytes;
}

bool secure_trace_find(const void *p, enum stack_event event, struct stack_taken *stack) {
    const struct trace *t = load_acquire(&trace_made);
    if (t == NULL || !region_has(p))
        return false;
    uint32_t place;
    uint64_t of_block = trace_word_of(start_of((uintptr_t)p) - hak_region.base, &place),
             word = load_acquire(&t->word[place][event]);
    const struct stack *s = &t->stack[word % (1u << NUMBER_BITS)];
    if (word == 0 || word >> (THREAD_BITS + NUMBER_BITS) != of_block >> (THREAD_BITS + NUMBER_BITS))
        return false;
    stack->thread = (uint32_t)(word >> NUMBER_BITS) % (1u << THREAD_BITS);
    stack->depth = (uint32_t)s->depth;
    memcpy(stack->callers, s->callers, s->depth * sizeof *s->callers);
    return true;
}
