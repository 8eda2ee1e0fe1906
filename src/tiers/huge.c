/* Huge: blocks above 1 MiB, runs of whole SuperSlabs.
 *
 *  1. The run comes from the pool, which keeps freed SuperSlabs within its bounds: that is the huge cache. What was
 *     never touched or was purged is known to be zero.
 *  2. Growth takes the SuperSlabs behind the run if they are free. Else the pages move to a longer run: the kernel
 *     changes the mapping and copies nothing. Each moved run costs mappings, so they are bounded. A freed one keeps its
 *     pages for the next block, up to a bound; beyond that its addresses are mapped afresh and merge with their
 *     neighbours again.
 *  3. Where the kernel refuses to move them, or stops after a part, os_move has put everything back, and realloc
 *     copies.
 *  4. What was asked for is what the program may use. A canary behind it and one at the run's end show overflows, and
 *     underflows of the block behind, when the block is freed or gets another size.
 *
 * A block's record is touched by whoever holds the block. */
/* SPDX-License-Identifier: MIT */
#include "base/fail.h"
#include "base/options.h"
#include "base/os.h"
#include "blocks/block.h"
#include "blocks/canary.h"
#include "blocks/kinds.h"
#include "heap/ring.h"
#include "heap/search.h"
#include "pool/huge_pages.h"
#include "pool/pool.h"
#include "space/purge.h"

#define MOVED_RUNS_MAX 8192 /* each takes up to three of the kernel's 65,530 mappings, two in the middle of others */
#define MOVED_KEPT_MAX 4096 /* SuperSlabs, a mapping each and one between */
#define HUGE_PAGE_FILLED_MIN (SUPERSLAB_BYTES / 4 * 3)

static size_t first_superslab(const struct slab *s) { return slot_of(s) / SUPERSLAB_SLOTS; }

/* ---- canaries ----
 * A block has two: one behind what was asked for, one at the run's end, where an underflow of the block behind
 * begins. */

struct canaries {
    size_t bytes; /* size of the first, which begins where the asked-for bytes end */
    size_t end;   /* where the second begins; 0: there is no room for it */
};

static struct canaries canaries_of(const struct slab *s) {
    size_t run = huge_superslabs_of(s->single.bytes) * SUPERSLAB_BYTES, room = run - asked_bytes(s);
    return (struct canaries){min_size(room, CANARY_TAIL_BYTES),
                             room >= (size_t)2 * CANARY_TAIL_BYTES ? run - CANARY_TAIL_BYTES : 0};
}

static void huge_set_bytes(struct slab *s, size_t asked, bool zero) {
    s->single.bytes = round_up(asked, os_page_bytes());
    s->single.slack_bytes = (uint32_t)(s->single.bytes - asked);
    struct canaries c = canaries_of(s);
    if (zero)
        return;
    canary_put(s, slab_address(s) + asked, c.bytes);
    if (c.end != 0)
        canary_put(s, slab_address(s) + c.end, CANARY_TAIL_BYTES);
}

/* Called before the block is freed or gets another size. */
static void check_canaries(const struct slab *s) {
    struct canaries c = canaries_of(s);
    const char *block = slab_address(s);
    if (unlikely(!canary_is_intact(s, block + asked_bytes(s), c.bytes) ||
                 (c.end != 0 && !canary_is_intact(s, block + c.end, CANARY_TAIL_BYTES))))
        fail_damage("overflow", block, asked_bytes(s));
}

/* Clears the canaries of the block of `s`, which is at `block` by now, because the program may use those bytes from now
 * on. */
static void clear_canaries(const struct slab *s, char *block) {
    struct canaries c = canaries_of(s);
    memset(block + asked_bytes(s), 0, c.bytes);
    if (c.end != 0)
        memset(block + c.end, 0, CANARY_TAIL_BYTES);
}

/* ---- runs ---- */

static struct slab *make_record(struct heap *h, size_t superslab, size_t bytes, bool zero) {
    struct slab *s = slab_of_slot(superslab * SUPERSLAB_SLOTS);
    huge_set_bytes(s, bytes, zero);
    store_relaxed(&s->single.state, BLOCK_LIVE);
    store_relaxed(&s->class_id, CLASS_NONE);
    store_relaxed(&s->kind, kind_for_client(&h->client, KIND_HUGE));
    count(&h->client.counters, COUNT_huge_runs);
    return s;
}

/* Gives a run to the pool after the system refused to replace its mapping. A SuperSlab that lost pages by the attempt
 * waits to be mapped again, unless somebody else has mapped something there. */
static void give_as_mapped(struct heap *h, size_t superslab, size_t n) {
    for (size_t i = superslab; i < superslab + n; i++)
        if (os_is_mapped(slot_address(i * SUPERSLAB_SLOTS), SUPERSLAB_BYTES))
            pool_give_run(&h->client, i, 1, true);
        else
            pool_give_unmapped_run(&h->client, i, 1);
}

/* Takes the huge page from a SuperSlab that nobody has touched yet. False: it may have lost its memory. */
static bool without_huge_page(size_t superslab) {
    if (load_relaxed(&superslab_at(superslab)->huge) != HUGE_WHOLE || option(OPT_HUGE_PAGES) == HUGE_ALWAYS)
        return true;
    return purge_renew(superslab, false);
}

static void *huge_malloc(struct heap *h, size_t bytes, size_t alignment, bool *zero) {
    bytes = max_size(bytes, 1);
    size_t n = huge_superslabs_of(bytes);
    size_t superslab = pool_take_run(&h->client, n, max_size(alignment, SUPERSLAB_BYTES), zero);
    if (superslab == BITSET_NONE)
        return NULL;
    /* A huge page for the block's end would make resident what the program cannot use. */
    if (*zero && bytes - (n - 1) * SUPERSLAB_BYTES < HUGE_PAGE_FILLED_MIN && !without_huge_page(superslab + n - 1)) {
        give_as_mapped(h, superslab, n);
        return NULL;
    }
    return slab_address(make_record(h, superslab, bytes, *zero));
}

static bool is_moved_run(size_t superslab) { return load_relaxed(&superslab_at(superslab)->moved) == MOVED_RUN; }

/* Notes that the mappings that freed runs kept there are replaced. */
static void forget_kept(size_t superslab, size_t n) {
    for (size_t i = superslab; i < superslab + n; i++)
        if (load_relaxed(&superslab_at(i)->moved) == MOVED_KEPT) {
            store_relaxed(&superslab_at(i)->moved, MOVED_NOT);
            rmw_add(&hak_region_use.moved_kept, (size_t)-1);
        }
}

/* Replaces the run's mapping by an ordinary one, which is zero. False: the system refused, and a part may be
 * unmapped. */
static bool huge_remap(size_t superslab, size_t n) {
    char *p = slot_address(superslab * SUPERSLAB_SLOTS);
    for (size_t i = superslab; i < superslab + n; i++) {
        store_relaxed(&superslab_at(i)->huge, HUGE_NONE);
        region_note_apart(i, false);
    }
    forget_kept(superslab, n);
    return os_map(OS_FRESH, p, n * SUPERSLAB_BYTES) == p;
}

static void forget_move(size_t superslab) {
    if (!is_moved_run(superslab))
        return;
    store_relaxed(&superslab_at(superslab)->moved, MOVED_NOT);
    rmw_add(&hak_region_use.moved_runs, (size_t)-1);
}

/* A freed run keeps the pages that were moved there, so that the next block that grows needs no new ones. False: too
 * many SuperSlabs keep some. Two threads may both pass the bound at the same moment, which does no harm. */
static bool keep_moved(size_t superslab, size_t n) {
    if (load_relaxed(&hak_region_use.moved_kept) + n > MOVED_KEPT_MAX)
        return false;
    forget_move(superslab);
    for (size_t i = superslab; i < superslab + n; i++)
        if (load_relaxed(&superslab_at(i)->moved) != MOVED_KEPT) {
            store_relaxed(&superslab_at(i)->moved, MOVED_KEPT);
            rmw_add(&hak_region_use.moved_kept, 1);
        }
    return true;
}

static void give_run(struct heap *h, struct slab *s, bool resident) {
    size_t n = huge_superslabs_of(s->single.bytes), superslab = first_superslab(s);
    bool moved = is_moved_run(superslab) && !(resident && keep_moved(superslab, n));
    bool is_fresh = moved && !region_is_read() && huge_remap(superslab, n);
    bool broken = moved && !is_fresh && !os_is_mapped(slab_address(s), n * SUPERSLAB_BYTES);
    if (is_fresh || broken)
        forget_move(superslab);
    store_relaxed(&s->kind, KIND_FREE);
    if (broken)
        give_as_mapped(h, superslab, n);
    else
        pool_give_run(&h->client, superslab, n, resident && !is_fresh);
}

/* Gives a run that is not mapped. */
static void give_unmapped(struct heap *h, struct slab *s) {
    forget_move(first_superslab(s));
    store_relaxed(&s->kind, KIND_FREE);
    pool_give_unmapped_run(&h->client, first_superslab(s), huge_superslabs_of(s->single.bytes));
}

/* If several threads free the block at the same moment, only one finds it live: that thread alone makes the state free,
 * and holds the record from then on. */
static bool take_back(struct slab *s) {
    uint8_t state = load_relaxed(&s->single.state);
    while ((state & BLOCK_STATE) == BLOCK_LIVE)
        if (PROVEN(huge_twice, rmw_cas(&s->single.state, &state, BLOCK_FREE))) { /* pairs with itself */
            if (state & BLOCK_PROFILED)
                hooks_observe.sampled_freed(slab_address(s));
            return true;
        }
    return false;
}

/* Notes the run for the last look (observe/exit_check.c), unless pages were moved there: these may be lost when they go
 * back. */
static void note_freed(const struct slab *s) {
    size_t first = first_superslab(s);
    if (!is_moved_run(first))
        for (size_t i = 0; i < min_size(huge_superslabs_of(s->single.bytes), HAD_HUGE_MAX); i++)
            store_relaxed(&superslab_at(first + i)->had_huge, true);
}

static void huge_free(struct heap *h, struct slab *s, void *p) {
    if (unlikely((char *)p != slab_address(s))) {
        fail_bad_pointer("free", p, "", asked_bytes(s));
        return;
    }
    if (unlikely(!take_back(s))) {
        fail_double_free(p, asked_bytes(s), search_only_freer());
        return;
    }
    check_canaries(s);
    huge_pages_freed_large(p, asked_bytes(s));
    note_freed(s);
    give_run(h, s, true);
    rings_shrink(h);
}

static bool huge_resize(struct heap *h, struct slab *s, void *p, size_t bytes) {
    (void)p;
    size_t have = huge_superslabs_of(s->single.bytes), wanted = huge_superslabs_of(bytes);
    if (bytes <= LARGE_BYTES_MAX)
        return false;
    check_canaries(s);
    if (wanted > have) {
        if (!pool_extend_run(&h->client, first_superslab(s), have, wanted))
            return false;
        count(&h->client.counters, COUNT_grown_in_place);
    }
    uint8_t state = block_begin_change(s);
    clear_canaries(s, slab_address(s));
    huge_set_bytes(s, bytes, false);
    block_end_change(s, state);
    if (wanted < have)
        pool_give_run(&h->client, first_superslab(s) + wanted, have - wanted, true);
    return true;
}

/* Moves the whole run, with what lies behind the block, so that what stays is known to be zero. If nothing moves, the
 * target goes back to the pool. */
static enum os_moved move_run(struct heap *h, struct slab *s, size_t to, size_t wanted, bool zero) {
    size_t have = huge_superslabs_of(s->single.bytes);
    char *from = slab_address(s), *target = slot_address(to * SUPERSLAB_SLOTS);
    if (!zero && !os_advise(OS_PURGE, target, have * SUPERSLAB_BYTES)) {
        pool_give_run(&h->client, to, wanted, true);
        return OS_MOVED_NOTHING;
    }
    enum os_moved moved = os_move(from, target, have * SUPERSLAB_BYTES);
    if (moved != OS_MOVED_NOTHING)
        return moved;
    bool is_fresh = os_is_mapped(target, have * SUPERSLAB_BYTES) && huge_remap(to, have);
    if (is_fresh)
        pool_give_run(&h->client, to, have, false);
    else
        give_as_mapped(h, to, have);
    pool_give_run(&h->client, to + have, wanted - have, !zero);
    return OS_MOVED_NOTHING;
}

/* Records that what is known of the memory has moved with it: whether huge pages were advised, and its node. */
static void take_mapping(size_t from, size_t to, size_t n) {
    forget_kept(to, n);
    for (size_t i = 0; i < n; i++) {
        bool advised = load_relaxed(&superslab_at(from + i)->huge) != HUGE_NONE;
        store_relaxed(&superslab_at(to + i)->huge, advised ? HUGE_WHOLE : HUGE_NONE);
        region_note_apart(to + i, load_relaxed(&superslab_at(from + i)->apart));
        store_relaxed(&superslab_at(to + i)->node, load_relaxed(&superslab_at(from + i)->node));
    }
    store_relaxed(&superslab_at(to)->moved, MOVED_RUN);
}

static void *huge_move(struct heap *h, struct slab *s, size_t bytes) {
    block_unsample(&s->single.state, slab_address(s)); /* before its address is another block's */
    /* the addresses that the pages have left would be lost to the arena */
    if (load_relaxed(&hak_region_use.moved_runs) >= MOVED_RUNS_MAX || h->client.arena != 0)
        return NULL;
    bool zero;
    size_t have = huge_superslabs_of(s->single.bytes), wanted = huge_superslabs_of(bytes);
    int32_t moved_slots = (int32_t)(have * SUPERSLAB_SLOTS);
    account_count_resident(-moved_slots); /* its pages will be those of the other run */
    size_t to = pool_take_run(&h->client, wanted, SUPERSLAB_BYTES, &zero);
    if (to == BITSET_NONE) {
        account_count_resident(moved_slots);
        return NULL;
    }
    account_change(&h->client, moved_slots, 0); /* settled once one of the runs has been given */
    rmw_add(&hak_region_use.moved_runs, 1);
    uint8_t state = block_begin_change(s);
    enum os_moved moved = move_run(h, s, to, wanted, zero);
    if (moved == OS_MOVED_NOTHING) {
        block_end_change(s, state);
        rmw_add(&hak_region_use.moved_runs, (size_t)-1);
        return NULL;
    }
    clear_canaries(s, slot_address(to * SUPERSLAB_SLOTS));
    take_mapping(first_superslab(s), to, have);
    count(&h->client.counters, COUNT_huge_moved_pages);
    if (moved == OS_MOVED_PAGES)
        give_run(h, s, false);
    else
        give_unmapped(h, s);
    return slab_address(make_record(h, to, bytes, false));
}

/* ---- looking up ---- */

static void huge_check(struct slab *s) {
    if (single_state(s) == BLOCK_LIVE && canary_is_there(slab_address(s) + asked_bytes(s), canaries_of(s).bytes))
        check_canaries(s);
}

static void huge_count(const struct slab *s, struct span_use *use) {
    use->out_bytes = s->single.bytes;
    use->slots = huge_superslabs_of(use->out_bytes) * SUPERSLAB_SLOTS;
}

const struct kind kind_huge = {
    .name = "a huge block",
    .malloc = huge_malloc,
    .free = huge_free,
    .resize = huge_resize,
    .resize_from_bytes = MID_BYTES_MAX + 1,
    .move = huge_move,
    .find = block_find_only,
    .is_free = block_is_only_free, /* a freed run's record is soon of no kind */
    .state = block_only_state,
    .check = huge_check,
    .drop = block_drop_only,
    .visit = kind_visit_first,
    .count = huge_count,
};
