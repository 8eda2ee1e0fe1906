/* See guard_sample.h. */
/* SPDX-License-Identifier: MIT */
#include "observe/guard_sample.h"
#include "base/fail.h"
#include "base/log.h"
#include "base/os.h"
#include "base/os_crash.h"
#include "base/snapshot.h"
#include "base/text.h"
#include "blocks/block.h"
#include "blocks/kinds.h"
#include "pool/pool.h"

enum { GUARD_SLOTS = SUPERSLAB_SLOTS, AT_BEGINNING_EVERY = 4 };

enum guard_state { GUARD_UNUSED, GUARD_BUSY, GUARD_LIVE, GUARD_FREED };

struct guard_place {
    uintptr_t block;    /* 0: there was none yet */
    size_t bytes;       /* requested */
    uintptr_t begin;    /* of the accessible pages */
    size_t pages_bytes; /* of these */
};

struct guard_slot {
    _Atomic uint32_t state;    /* enum guard_state: whoever makes it BUSY holds the rest */
    _Atomic uint32_t freed_at; /* `frees` at that time */
    struct guard_place at;
    struct stack_taken allocated, freed;
};

static HAK_APART struct {
    struct guard_slot slot[GUARD_SLOTS];
    _Atomic size_t first_slot; /* of the pool, + 1; 0: not taken yet. Pairs with itself, for the records */
    _Atomic uint32_t frees;    /* only orders the slots by age */
} guard_pool;

/* NULL: the address is not in the pool. */
static struct guard_slot *slot_at(const void *address) {
    size_t first = load_acquire(&guard_pool.first_slot);
    if (first == 0 || !region_has(address))
        return NULL;
    size_t i = region_offset(address) / SLOT_BYTES - (first - 1);
    return i < GUARD_SLOTS ? &guard_pool.slot[i] : NULL;
}

static struct guard_slot *slot_of_slab(const struct slab *s) { return slot_at(slab_address(s)); }

static void capture(struct stack_taken *stack) {
    stack->thread = os_thread();
    stack->depth = stack_capture(stack->callers, STACK_CALLERS);
}

/* ---- reports ---- */

/* These read a slot that another thread may be using meanwhile. */

/* The slot at the address, and its place; NULL: there was no block yet. */
static const struct guard_slot *see_slot(const void *address, struct guard_place *place) {
    const struct guard_slot *slot = slot_at(address);
    if (slot == NULL)
        return NULL;
    snapshot(place, &slot->at, sizeof *place);
    return place->block != 0 ? slot : NULL;
}

bool guard_stack(const void *p, enum stack_event event, struct stack_taken *stack) {
    struct guard_place place;
    const struct guard_slot *slot = see_slot(p, &place);
    if (slot == NULL || (event == STACK_FREED && load_acquire(&slot->state) != GUARD_FREED))
        return false;
    snapshot(stack, event == STACK_FREED ? &slot->freed : &slot->allocated, sizeof *stack);
    stack->depth = (uint32_t)min_size(stack->depth, STACK_CALLERS);
    return true;
}

bool guard_describe(struct text *line, const void *address, const char *how) {
    struct guard_place place;
    const struct guard_slot *slot = see_slot(address, &place);
    if (slot == NULL)
        return false;
    uintptr_t at = (uintptr_t)address, end = place.block + place.bytes;
    if (load_acquire(&slot->state) == GUARD_FREED && at >= place.begin && at < place.begin + place.pages_bytes)
        text_format(line, "hakmem: use after free of %x (%u-byte block), %s at byte %u", place.block,
                    (uint64_t)place.bytes, how, (uint64_t)(at - place.block));
    else if (at >= end)
        text_format(line, "hakmem: overflow of %x (%u-byte block) by %u bytes, %s", place.block, (uint64_t)place.bytes,
                    (uint64_t)(at - end + 1), how);
    else
        text_format(line, "hakmem: underflow of %x (%u-byte block) by %u bytes, %s", place.block, (uint64_t)place.bytes,
                    (uint64_t)(place.block - at), how);
    return true;
}

/* ---- the pool ---- */

static void guard_set_records(size_t slot, enum slab_kind kind) {
    for (unsigned i = 0; i < GUARD_SLOTS; i++) {
        struct slab *s = slab_of_slot(slot + i);
        s->single.bytes = 0;
        store_relaxed(&s->single.state, BLOCK_FREE);
        store_relaxed(&s->class_id, CLASS_NONE);
        store_relaxed(&s->kind, (uint8_t)kind);
    }
}

/* Gives back slots of which some may be inaccessible: if they stay so, they wait to be mapped again. */
static void guard_give_slots(struct heap *h, size_t slot) {
    char *at = slot_address(slot);
    guard_set_records(slot, KIND_FREE);
    if (os_commit(at, GUARD_SLOTS * SLOT_BYTES) || os_is_mapped(at, GUARD_SLOTS * SLOT_BYTES))
        pool_give(&h->client, slot, GUARD_SLOTS, 0, true);
    else if (os_unmap(at, GUARD_SLOTS * SLOT_BYTES))
        pool_give_unmapped_run(&h->client, slot / SUPERSLAB_SLOTS, 1);
}

/* Takes the pool. It is published last, because from then on other threads make pages of it accessible. False: there is
 * no room for a pool, or the kernel does not protect it, or a thread may read there. */
static bool guard_take_slots(struct heap *h) {
    bool zero;
    size_t none = 0, slot = pool_take(&h->client, GUARD_SLOTS, 1, 0, &zero);
    if (slot == BITSET_NONE)
        return false;
    char *at = slot_address(slot);
    guard_set_records(slot, KIND_GUARD_PAGE);
    os_advise(OS_PURGE, at, GUARD_SLOTS * SLOT_BYTES);
    bool shut = !region_is_read() && PROVEN(guard_shut, os_forbid(at, GUARD_SLOTS * SLOT_BYTES));
    if (shut && PROVEN(guard_publish, rmw_cas(&guard_pool.first_slot, &none, slot + 1))) {
        os_catch_crashes(false); /* here if another process has set the option; else it is done, and asks for nothing */
        return true;
    }
    guard_give_slots(h, slot);
    return none != 0; /* then another thread was faster */
}

/* Claims the slot that was freed longest ago, never used ones first; NULL: all are live. */
static struct guard_slot *guard_claim_slot(void) {
    for (;;) {
        struct guard_slot *oldest = NULL;
        uint32_t now = load_relaxed(&guard_pool.frees), age = 0, state = GUARD_UNUSED;
        for (unsigned i = 0; i < GUARD_SLOTS; i++) {
            struct guard_slot *slot = &guard_pool.slot[i];
            uint32_t s = load_relaxed(&slot->state);
            if ((s != GUARD_UNUSED && s != GUARD_FREED) ||
                (oldest != NULL && (s == GUARD_UNUSED || now - load_relaxed(&slot->freed_at) <= age)))
                continue;
            oldest = slot, state = s;
            if (s == GUARD_UNUSED)
                break;
            age = now - load_relaxed(&slot->freed_at);
        }
        if (oldest == NULL ||
            PROVEN(guard_claim, rmw_cas(&oldest->state, &state, GUARD_BUSY))) /* pairs with guard_free */
            return oldest;
    }
}

static void *place(struct guard_slot *slot, size_t bytes, size_t alignment) {
    size_t page = os_page_bytes(), i = (size_t)(slot - guard_pool.slot);
    uintptr_t end = (uintptr_t)slot_address(load_acquire(&guard_pool.first_slot) - 1 + i) + SLOT_BYTES - page;
    uintptr_t block = round_down(end - bytes, alignment), begin = round_down(block, page);
    if (i % AT_BEGINNING_EVERY == AT_BEGINNING_EVERY - 1)
        block = round_up(begin, alignment);
    end = round_up(block + bytes, page);
    if (!os_commit((void *)begin, end - begin)) /* NOLINT: slots are addresses */
        return NULL;
    slot->at.block = block, slot->at.bytes = bytes;
    slot->at.begin = begin, slot->at.pages_bytes = end - begin;
    return (void *)block; /* NOLINT: likewise */
}

void *guard_malloc(struct heap *h, size_t bytes, size_t alignment) {
    size_t page = os_page_bytes();
    if (round_up(bytes, max_size(page, alignment)) + 2 * max_size(page, alignment) > SLOT_BYTES ||
        (load_acquire(&guard_pool.first_slot) == 0 && !guard_take_slots(h)))
        return NULL;
    struct guard_slot *slot = guard_claim_slot();
    if (slot == NULL) {
        LOG_TABLE_FULL("guarded samples", GUARD_SLOTS);
        count(&h->client.counters, COUNT_guard_full);
        return NULL;
    }
    void *p = place(slot, max_size(bytes, 1), alignment);
    if (p != NULL) {
        count(&h->client.counters, COUNT_guard_sampled);
        struct slab *s = slab_at_offset(region_offset(p));
        s->single.bytes = slot->at.bytes;
        s->single.lead_bytes = slot->at.block % SLOT_BYTES;
        store_relaxed(&s->single.state, BLOCK_LIVE);
        capture(&slot->allocated);
    }
    store_release(&slot->state, p != NULL ? GUARD_LIVE : GUARD_FREED);
    return p;
}

/* Whether p is the start of the block that the slot has or had. */
static bool guard_is_block(const struct slab *s, const void *p) {
    const struct guard_slot *slot = slot_of_slab(s);
    return slot != NULL && slot->at.block == (uintptr_t)p;
}

static void guard_free(struct heap *h, struct slab *s, void *p) {
    (void)h;
    struct guard_slot *slot = slot_of_slab(s);
    uint32_t live = GUARD_LIVE;
    if (unlikely(!guard_is_block(s, p))) {
        size_t bytes = slot != NULL ? slot->at.bytes : 0; /* NULL: the pool is just being made */
        fail_bad_pointer("free", p, "a block that was never handed out", bytes);
        return;
    }
    if (unlikely(!rmw_cas(&slot->state, &live, GUARD_BUSY))) { /* pairs with guard_malloc */
        fail_double_free(p, slot->at.bytes, FREER_UNKNOWN);    /* the report says who */
        return;
    }
    block_unsample(&s->single.state, p);
    store_relaxed(&s->single.state, BLOCK_FREE);
    capture(&slot->freed);
    void *begin = (void *)slot->at.begin; /* NOLINT: slots are addresses */
    os_forbid(begin, slot->at.pages_bytes);
    os_advise(OS_PURGE, begin, slot->at.pages_bytes);
    store_relaxed(&slot->freed_at, rmw_add(&guard_pool.frees, 1) + 1);
    PROVEN(guard_freed, store_release(&slot->state, GUARD_FREED));
}

bool guard_is_live(const struct slab *s) {
    const struct guard_slot *slot = slot_of_slab(s);
    return slot != NULL && load_acquire(&slot->state) == GUARD_LIVE;
}

static void guard_find(struct block *b, const void *p) {
    b->bytes = b->slab->single.bytes;
    if (b->bytes == 0)
        b->why = BLOCK_NEVER_HANDED_OUT;
    else if (guard_is_block(b->slab, p))
        b->why = NULL;
}

static bool guard_is_free(const struct block *b, const void *p) {
    (void)p;
    return !guard_is_live(b->slab);
}

static bool guard_size_fits(const void *p, size_t claimed, size_t bytes, bool exactly) {
    (void)p;
    return exactly ? claimed == bytes : claimed <= bytes;
}

static void guard_count(const struct slab *s, struct span_use *use) {
    use->slots = 1;
    use->out_bytes = single_state(s) == BLOCK_LIVE ? s->single.bytes : 0;
}

const struct kind kind_guard_page = {
    .name = "a sampled block",
    .free = guard_free,
    .find = guard_find,
    .is_free = guard_is_free,
    .size_fits = guard_size_fits,
    .state = block_only_state,
    .count = guard_count,
};
