/* Huge: blocks above 1 MiB, runs of whole SuperSlabs.
 *
 *  1. The run comes from the pool, which keeps freed SuperSlabs within its bounds: that is the huge cache. What was never
 *     touched or was purged is known to be zero.
 *  2. Growth takes the SuperSlabs behind the run if they are free. Else the pages move to a longer run: the kernel changes
 *     the mapping and copies nothing. Each moved run costs mappings, so there are few; when one is freed its addresses are
 *     mapped afresh and merge with their neighbours again.
 *
 * A block's record is touched by whoever holds the block. */
#include "os.h"
#include "tiers.h"

#define MOVED_RUNS_MOST 1024 /* of the kernel's 65,530 mappings; each takes up to three */

static size_t first_superslab(const struct slab *s) { return slot_of(s) / SUPERSLAB_SLOTS; }

static struct slab *make_record(struct heap *h, size_t superslab, size_t bytes) {
    struct slab *s = slab_of_slot(superslab * SUPERSLAB_SLOTS);
    s->bytes = round_up(bytes, os_page_bytes());
    store_relaxed(&s->state[0], BLOCK_LIVE);
    store_relaxed(&s->class_id, LARGE_CLASS);
    store_relaxed(&s->kind, KIND_HUGE);
    count(&h->pool.counters, COUNT_huge_runs);
    return s;
}

void *huge_malloc(struct heap *h, size_t bytes, size_t alignment, bool *zero) {
    size_t superslab = pool_take_run(&h->pool, huge_superslabs_of(bytes), max_size(alignment, SUPERSLAB_BYTES), zero);
    return superslab != BITSET_NONE ? slab_address(make_record(h, superslab, bytes)) : NULL;
}

/* A call that replaces the run's mapping has failed: the kernel may have unmapped it all the same. */
static bool is_unmapped(size_t superslab, size_t n) {
    return !os_is_mapped(slot_address(superslab * SUPERSLAB_SLOTS), n * SUPERSLAB_BYTES);
}

/* Back to an ordinary mapping. */
static bool settle_moved(void *p, size_t n) {
    return os_map(OS_FRESH, p, n * SUPERSLAB_BYTES) == p && (os_advise(OS_NO_HUGE, p, n * SUPERSLAB_BYTES), true);
}

static void give_run(struct heap *h, struct slab *s, bool resident) {
    size_t n = huge_superslabs_of(s->bytes), superslab = first_superslab(s);
    struct superslab *ss = superslab_at(superslab);
    bool moved = load_relaxed(&ss->moved), settled = moved && settle_moved(slab_address(s), n);
    bool unmapped = moved && !settled && is_unmapped(superslab, n);
    if (settled || unmapped) {
        store_relaxed(&ss->moved, 0);
        rmw_add(&hak_region_use.moved_runs, (size_t)-1);
    }
    store_relaxed(&s->kind, KIND_FREE);
    if (unmapped)
        pool_give_unmapped_run(&h->pool, superslab, n);
    else
        pool_give_run(&h->pool, superslab, n, resident && !settled);
}

void huge_free(struct heap *h, struct slab *s) {
    block_unsample(&s->state[0], slab_address(s));
    give_run(h, s, true);
}

bool huge_resize(struct heap *h, struct slab *s, size_t bytes) {
    size_t have = huge_superslabs_of(s->bytes), wanted = huge_superslabs_of(bytes);
    if (bytes <= LARGE_BYTES_MAX)
        return false;
    if (wanted > have) {
        if (!pool_extend_run(&h->pool, first_superslab(s), have, wanted))
            return false;
        count(&h->pool.counters, COUNT_huge_grown_in_place);
    }
    s->bytes = round_up(bytes, os_page_bytes());
    if (wanted < have)
        pool_give_run(&h->pool, first_superslab(s) + wanted, have - wanted, true);
    return true;
}

/* The run to which nothing was moved. Kernels before 6.17 may have unmapped as much of it as was to be moved. */
static void give_target(struct heap *h, size_t superslab, size_t n, size_t moved, bool zero) {
    bool unmapped = is_unmapped(superslab, moved);
    if (unmapped)
        pool_give_unmapped_run(&h->pool, superslab, moved);
    pool_give_run(&h->pool, superslab + unmapped * moved, n - unmapped * moved, !zero);
}

void *huge_move(struct heap *h, struct slab *s, size_t bytes) {
    if (load_relaxed(&hak_region_use.moved_runs) >= MOVED_RUNS_MOST)
        return NULL;
    bool zero;
    size_t have = huge_superslabs_of(s->bytes), wanted = huge_superslabs_of(bytes);
    ptrdiff_t moved_slots = (ptrdiff_t)(have * SUPERSLAB_SLOTS);
    pool_count_resident(-moved_slots); /* its pages will be those of the other run */
    size_t to = pool_take_run(&h->pool, wanted, SUPERSLAB_BYTES, &zero);
    pool_count_resident(moved_slots);
    if (to == BITSET_NONE)
        return NULL;
    rmw_add(&hak_region_use.moved_runs, 1);
    /* All of the run moves, what lies behind the block too: what stays is known to be zero. */
    if (!os_move(slab_address(s), slot_address(to * SUPERSLAB_SLOTS), have * SUPERSLAB_BYTES)) {
        rmw_add(&hak_region_use.moved_runs, (size_t)-1);
        give_target(h, to, wanted, have, zero);
        return NULL;
    }
    store_relaxed(&superslab_at(to)->moved, 1);
    count(&h->pool.counters, COUNT_huge_moved_pages);
    give_run(h, s, false);
    return slab_address(make_record(h, to, bytes));
}
