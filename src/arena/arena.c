/* See arena.h. */
/* SPDX-License-Identifier: MIT */
#include "arena/arena.h"
#include "base/fail.h"
#include "base/log.h"
#include "base/options.h"
#include "base/os.h"
#include "blocks/kinds.h"
#include "pool/retain.h"
#include "secure/secure_span.h"
#include "space/arena_space.h"
#include "threads/thread.h"

#include <errno.h>
#include <string.h>

struct arena *arena_checked(uintptr_t handle, const char *call) {
    struct arena *a = arena_of(handle);
    if (unlikely(a == NULL)) {
        fail_bad_arena(call, handle);
        errno = EINVAL;
    }
    return a;
}

/* ---- making ---- */

uintptr_t arena_make(const hak_arena_options *options, bool is_lane) {
    static const hak_arena_options none;
    const hak_arena_options *o = options != NULL ? options : &none;
    struct arena *a = region_init() ? arena_take() : NULL;
    if (a == NULL) {
        if (arenas_made() == ARENAS_MAX)
            LOG_TABLE_FULL("arenas", ARENAS_MAX);
        errno = ENOMEM;
        return 0;
    }
    arena_set_name(a, o->name);
    store_relaxed(&a->is_lane, is_lane);
    store_relaxed(&a->is_undumped, false);
    store_release(&a->limit_slots, o->limit_bytes != 0 ? o->limit_bytes / SLOT_BYTES : ARENA_UNLIMITED);
    a->over_limit = o->over_limit;
    a->argument = o->argument;
    return arena_open(a);
}

/* ---- ending ---- */

/* Adds the SuperSlab to all sets that it belongs to: until now it was in none of the process's. */
static void enter_sets(struct heap *h, size_t superslab, uint64_t word) {
    count_add(&h->client.counters, COUNT_cache_pushed, word_is_cached(word));
    superslab_changed(superslab, word_of(ALL_SLOTS, ALL_SLOTS), word);
}

/* Leaves the slab to the process, unless the thread that is at it has just made the slot free. */
static void leave_slab(struct slab *s, unsigned slots) {
    for (unsigned i = 0; i < slots; i++) {
        uint8_t kind = slab_kind(s + i);
        if (kind >= KIND_IN_ARENA)
            rmw_cas(&s[i].kind, &kind, (uint8_t)slab_tier(s + i));
    }
}

/* Makes the slab that begins at the record free. Returns how many slots it has in this SuperSlab; 0: it stays, with its
 * blocks out. `kind`: what the record said. By now it may say that the slot is free: a thread outside gives the slot
 * back, and `drop` tells. */
static unsigned drop_slab(struct heap *h, struct slab *s, uint8_t kind) {
    unsigned tier = kind & (KIND_IN_ARENA - 1), slots = tier == KIND_LARGE || tier == KIND_MID ? s->slots : 1;
    if (kinds[tier]->drop != NULL && !kinds[tier]->drop(h, s)) {
        leave_slab(s, slots);
        return 0;
    }
    slab_end_hits(s);
    unsigned tag = tier == KIND_TINY || tier == KIND_MID ? slab_class(s) + 1 : 0;
    superslab_note_class(slot_of(s) / SUPERSLAB_SLOTS, span_mask(slot_of(s) % SUPERSLAB_SLOTS, slots), tag);
    for (unsigned i = 0; i < slots; i++)
        store_relaxed(&s[i].kind, KIND_FREE);
    return slots;
}

/* Drops all slabs of a SuperSlab. Returns their slots. Records of other slots may be another thread's. */
static uint32_t drop_slabs(struct heap *h, size_t superslab) {
    uint32_t mask = 0;
    for (unsigned i = 0; i < SUPERSLAB_SLOTS;) {
        struct slab *s = slab_of_slot(superslab * SUPERSLAB_SLOTS + i);
        uint8_t kind = slab_kind(s);
        unsigned slots = kind >= KIND_IN_ARENA ? drop_slab(h, s, kind) : 0;
        mask |= (uint32_t)(low_bits(slots) << i);
        i += slots != 0 ? slots : 1;
    }
    return mask;
}

/* Contents that were kept out of core dumps are gone before the memory is in dumps again. A locked page keeps its
 * contents, so the page is cleared. */
static void forget_undumped(size_t superslab) {
    char *at = slot_address(superslab * SUPERSLAB_SLOTS);
    if (likely(!load_relaxed(&superslab_at(superslab)->undumped)))
        return;
    if (!os_advise(OS_PURGE, at, SUPERSLAB_BYTES) && os_is_mapped(at, SUPERSLAB_BYTES))
        memset(at, 0, SUPERSLAB_BYTES);
    region_set_dumped(superslab, true);
}

/* Drops all slabs of the SuperSlab and hands it over to the process. Returns the slots that were ACTIVE. What was on
 * offer in the arena stays noted, which no search of the process's takes for its own (offer_tag); arena_join forgets
 * it. */
static unsigned drop_superslab(struct heap *h, size_t superslab) {
    struct superslab *ss = superslab_at(superslab);
    uint32_t mask = drop_slabs(h, superslab);
    forget_undumped(superslab);
    store_relaxed(&ss->changed_ms, account_clock_ms());
    if (ss->in_run)
        mask = ALL_SLOTS;
    ss->in_run = false;
    store_relaxed(&ss->arena, 0);
    uint64_t before = rmw_and(&ss->word, ~(uint64_t)mask); /* pairs with superslab_changed, and superslab_take */
    enter_sets(h, superslab, before & ~(uint64_t)mask);
    return count_bits(mask);
}

/* Hands the SuperSlab over to the process, with what is in use. In secure mode another thread may be freeing a block
 * there from the quarantine meanwhile. */
static void hand_over_superslab(struct heap *h, size_t superslab) {
    struct superslab *ss = superslab_at(superslab);
    leave_slab(slab_of_slot(superslab * SUPERSLAB_SLOTS), SUPERSLAB_SLOTS);
    if (load_relaxed(&ss->undumped))
        region_set_dumped(superslab, true);
    store_seq(&ss->arena, 0); /* pairs with secure_slab_offer: one of the two offers the slab to the process */
    enter_sets(h, superslab, rmw_or(&ss->word, 0));
    for (unsigned i = 0; i < SUPERSLAB_SLOTS; i++) {
        uint8_t offer = load_seq(&ss->offer[i]);
        if (offer >= OFFER_IN_ARENA)
            superslab_offer(superslab * SUPERSLAB_SLOTS + i, (offer & (OFFER_IN_ARENA - 1u)) - 1);
    }
    span_left_arena(h, superslab);
}

static void end_superslabs(struct heap *h, struct arena *a, bool keep_blocks) {
    size_t active = 0;
    for (uint32_t at = load_acquire(&a->newest), next; at != 0; at = next) {
        next = arena_next(at); /* another arena's from now on, perhaps */
        if (!keep_blocks && mode()->has_quarantine)
            drop_slabs(h, at - 1); /* one by one; what is left is in the quarantine */
        if (keep_blocks || mode()->has_quarantine)
            hand_over_superslab(h, at - 1);
        else
            active += drop_superslab(h, at - 1);
    }
    account_change(&h->client, -(int32_t)active, (int32_t)active);
}

static void end_heaps(struct arena *a) {
    for (struct heap *of = load_acquire(&a->heaps), *next; of != NULL; of = next) {
        next = of->arena.next;
        account_settle(&of->client);
        heap_put_from_arena(of);
    }
}

static void end_blocks(struct arena *a, bool keep_blocks) {
    struct heap *h = thread_enter(), *own = h != NULL ? h : &heap_afterlife;
    for (struct heap *of = load_acquire(&a->heaps); of != NULL; of = of->arena.next) {
        if (keep_blocks)
            thread_empty_heap(of);
        store_release(&of->arena.handle, 0);
    }
    end_superslabs(own, a, keep_blocks);
    end_heaps(a);
    retain_settle(&own->client);
    thread_leave(h);
}

void arena_end(uintptr_t handle, bool keep_blocks, const char *call) {
    struct arena *a = arena_of(handle);
    if (a == NULL || !arena_close(a, handle)) {
        fail_bad_arena(call, handle);
        return;
    }
    end_blocks(a, keep_blocks);
    arena_put(a);
}

uintptr_t arena_of_block(const void *block) {
    uint32_t number = region_has(block) ? superslab_arena(region_offset(block) / SUPERSLAB_BYTES) : 0;
    return number != 0 ? load_relaxed(&arena_numbered(number)->handle) : 0;
}
