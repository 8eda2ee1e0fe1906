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
    store_relaxed(&s->kind, KIND_HUGE);
    count(&h->pool.counters, COUNT_huge_runs);
    return s;
}

void *huge_malloc(struct heap *h, size_t bytes, size_t alignment, bool *zero) {
    size_t superslab = pool_take_run(&h->pool, huge_superslabs_of(bytes), max_size(alignment, SUPERSLAB_BYTES), zero);
    return superslab != BITSET_NONE ? slab_address(make_record(h, superslab, bytes)) : NULL;
}

/* Back to an ordinary mapping. */
static bool settle_moved(struct superslab *ss, void *p, size_t n) {
    if (os_map(OS_FRESH, p, n * SUPERSLAB_BYTES) != p)
        return false;
    os_advise(OS_NO_HUGE, p, n * SUPERSLAB_BYTES);
    store_relaxed(&ss->moved, 0);
    rmw_add(&hak_region.moved_runs, (size_t)-1);
    return true;
}

static void give_run(struct heap *h, struct slab *s, bool resident) {
    size_t n = huge_superslabs_of(s->bytes), superslab = first_superslab(s);
    struct superslab *ss = superslab_at(superslab);
    if (load_relaxed(&ss->moved) && settle_moved(ss, slab_address(s), n))
        resident = false;
    store_relaxed(&s->kind, KIND_FREE);
    pool_give_run(&h->pool, superslab, n, resident);
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

void *huge_move(struct heap *h, struct slab *s, size_t bytes) {
    if (load_relaxed(&hak_region.moved_runs) >= MOVED_RUNS_MOST)
        return NULL;
    bool zero;
    size_t to = pool_take_run(&h->pool, huge_superslabs_of(bytes), SUPERSLAB_BYTES, &zero);
    if (to == BITSET_NONE)
        return NULL;
    char *target = slot_address(to * SUPERSLAB_SLOTS);
    rmw_add(&hak_region.moved_runs, 1);
    /* All of the run moves, what lies behind the block too: what stays is known to be zero. */
    size_t moved_bytes = huge_superslabs_of(s->bytes) * SUPERSLAB_BYTES;
    if (!os_move(slab_address(s), target, moved_bytes)) {
        rmw_add(&hak_region.moved_runs, (size_t)-1);
        /* Kernels before 6.17 may have unmapped the target already. If it cannot be mapped again, it is lost. */
        if (os_map(OS_FRESH, target, moved_bytes) == target) {
            os_advise(OS_NO_HUGE, target, moved_bytes);
            pool_give_run(&h->pool, to, huge_superslabs_of(bytes), !zero);
        }
        return NULL;
    }
    store_relaxed(&superslab_at(to)->moved, 1);
    count(&h->pool.counters, COUNT_huge_moved_pages);
    give_run(h, s, false);
    return slab_address(make_record(h, to, bytes));
}
