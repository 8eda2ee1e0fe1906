/* The tables of the region: which part of them has memory, and what stays reserved when the program limits itself. See
 * region.h. */
/* SPDX-License-Identifier: MIT */
#include "base/os.h"
#include "region/region.h"

#define PACK_STEP 2048 /* slots whose packs get memory together: a page of 64 KiB */
#define TABLE_STEP 64  /* SuperSlabs whose records get memory together: 265 KiB of tables, and a row of the sets */

/* Readable and writable memory from `from` to `to`, in whole pages. */
static bool commit_table(char *from, char *to) {
    size_t page = os_page_bytes();
    uintptr_t begin = round_up((uintptr_t)from, page), bytes = round_up((uintptr_t)to, page) - begin;
    char *at = (char *)begin; /* NOLINT: the region is addresses */
    return (uintptr_t)to <= begin || os_commit(at, bytes);
}

/* The number of SuperSlabs that have tables when this many are committed. */
static size_t with_tables(size_t superslabs) {
    return min_size(round_up(superslabs, TABLE_STEP), hak_region.superslabs_max);
}
static char *rows_end(size_t superslabs) { return (char *)(hak_region.rows + (superslabs + 63) / 64); }
static char *records_end(size_t superslabs) {
    return hak_region.slabs + superslabs * SUPERSLAB_SLOTS * sizeof(struct slab);
}

/* The lowest page of the upper levels that is needed: a search looks at the row behind the last one that has a
 * member. */
static char *upper_begin(size_t superslabs) {
    const struct region *r = &hak_region;
    size_t rows = r->sets.levels > 1 ? min_size(superslabs / 64 / 64 + 2, r->sets.rows[1]) : 1;
    return r->upper - (rows - 1) * REGION_UPPER_ROW_BYTES -
           (uintptr_t)(r->upper - (rows - 1) * REGION_UPPER_ROW_BYTES) % os_page_bytes();
}

/* How far the sets of a node lie behind those of node 0. */
static size_t node_distance(unsigned node) { return node * hak_region.node_sets * sizeof(uint64_t); }

static bool commit_sets(size_t from, size_t end, size_t distance) {
    from = max_size(from, REGION_SETS_FIRST); /* map_first_sets */
    return end <= from || (commit_table(rows_end(from) + distance, rows_end(end) + distance) &&
                           commit_table(upper_begin(end) + distance, upper_begin(from) + distance));
}

/* Gives tables to the SuperSlabs from `have` to `to`; those before have theirs. */
static bool commit_tables(size_t have, size_t to) {
    size_t from = with_tables(have), end = with_tables(to);
    if (from >= end)
        return true;
    bool done = commit_table(records_end(from), records_end(end));
    for (unsigned node = 0; done && node < hak_region.nodes; node++)
        done = commit_sets(from, end, node_distance(node));
    return done;
}

bool region_commit_packs(size_t slots) {
    size_t most = hak_region.superslabs_max * SUPERSLAB_SLOTS, have = load_relaxed(&hak_region_use.packs);
    slots = min_size(round_up(slots, PACK_STEP), most);
    struct pack *packs = hak_region.packs;
    if (slots > have && !commit_table((char *)(packs + have), (char *)(packs + slots)))
        return false;
    while (have < slots && !rmw_cas(&hak_region_use.packs, &have, slots))
        ;
    return true;
}

/* ---- what stays reserved ----
 * Reserved addresses count against RLIMIT_AS, which a program may lower while it runs. Then what was never used goes
 * back, and from then on SuperSlabs and heaps are mapped where nothing is, as in a window. Tables keep addresses for as
 * many SuperSlabs as the limit lets the program have, and take more when it has come to have more.
 *
 *  1. Whoever takes SuperSlabs or heaps counts them first and then reads how many have reserved addresses. The cut
 *     stores that first and then reads the count. So one of the two sees the other: what was taken stays reserved, or
 *     the taker maps it where nothing is, if need be after the cut is done. Both may see the other, as the cut goes on
 *     until the count stays: then what was taken stays reserved, and the taker looks once more (is_kept).
 *  2. Whoever needs tables reads the frontier, then how many SuperSlabs have tables reserved, gives those memory, and
 *     moves the frontier by a compare-and-swap. The cut stores how many SuperSlabs keep their tables, and then moves
 *     the frontier, too. The frontier never goes back, so the compare-and-swap of a taker that has read the old number
 *     fails, and the taker reads again. */

#define CUT_BLINDLY_BYTES                                                                                              \
    (512 * MIB) /* room that tables have after a cut without a known limit; secure mode's are large */
enum { CUT_WAIT_MS = 1, CUT_WAITS = 3000 };

/* A table has a row for each SuperSlab, but never fewer than `at_least`. */
struct table {
    char *begin;
    size_t each, at_least; /* bytes of a row; rows that were mapped at the start */
};
static unsigned tables_count(void) { return 2 + hak_region.nodes + (load_acquire(&hak_region_use.further) != NULL); }
static struct table table_numbered(unsigned number) {
    switch (number) {
    case 0: return (struct table){hak_region.slabs, SUPERSLAB_SLOTS * sizeof(struct slab), 0};
    case 1: return (struct table){(char *)hak_region.packs, SUPERSLAB_SLOTS * sizeof(struct pack), 0};
    default:
        if (number == 2 + hak_region.nodes)
            return (struct table){load_relaxed(&hak_region_use.further), load_relaxed(&hak_region_use.further_bytes),
                                  0};
        return (struct table){(char *)hak_region.rows + node_distance(number - 2), sizeof(struct superslab_row) / 64,
                              REGION_SETS_FIRST};
    }
}
static char *table_end(unsigned number, size_t superslabs) {
    struct table t = table_numbered(number);
    char *end = t.begin + min_size(max_size(superslabs, t.at_least), hak_region.superslabs_max) * t.each;
    return end + -(uintptr_t)end % os_page_bytes();
}

void region_has_further_table(char *begin, size_t bytes_each) {
    store_relaxed(&hak_region_use.further_bytes, bytes_each);
    store_release(&hak_region_use.further, begin); /* pairs with tables_count */
}

/* One thread at a time changes what is kept; a fork's child does not wait for a thread of its parent. False: another
 * thread has begun a cut and does not end it, perhaps because this one is a signal handler that has interrupted it. */
static bool begin_cut(void) {
    uint32_t own = os_process(), holder = 0;
    for (unsigned waited = 0; !rmw_cas(&hak_region_use.cutting, &holder, own);) {
        if (holder != own)
            continue;
        if (waited++ == CUT_WAITS)
            return false;
        os_wait(&hak_region_use.cutting, own, CUT_WAIT_MS);
        holder = 0;
    }
    return true;
}
static void end_cut(void) {
    store_release(&hak_region_use.cutting, 0); /* pairs with begin_cut */
    os_wake(&hak_region_use.cutting);
}

void *region_map_at(char *at, size_t bytes) {
    bool cut = region_was_cut();
    void *got = os_map(OS_AT, at, bytes);
    return got == at || cut || !region_cut_blindly() ? got : os_map(OS_AT, at, bytes);
}

static size_t cut_behind(_Atomic size_t *kept, _Atomic size_t *taken) {
    size_t n;
    do {
        n = load_seq(taken);
        store_seq(kept, n);
    } while (load_seq(taken) > n);
    return n;
}

static void cut_superslabs_and_heaps(void) {
    const struct region *r = &hak_region;
    size_t superslabs = cut_behind(&hak_region_use.kept, &hak_region_use.superslabs);
    size_t heaps = min_size(cut_behind(&hak_region_use.kept_heaps, &hak_region_use.heaps), r->heaps_max);
    size_t behind = (r->superslabs_max - superslabs) * SUPERSLAB_BYTES;
    os_unmap(slot_address(superslabs * SUPERSLAB_SLOTS), behind);
    if (os_end_templates())
        os_unmap(slot_address(r->superslabs_max * SUPERSLAB_SLOTS), OS_TEMPLATES_BYTES);
    os_unmap(r->heaps + heaps * HEAP_BYTES, (r->heaps_max - heaps) * HEAP_BYTES);
}

/* `more`: how many SuperSlabs the program may come to have besides those that it has. */
static void cut_tables(size_t more) {
    size_t had = load_relaxed(&hak_region_use.kept_tables), have = region_frontier(), kept;
    do {
        kept = with_tables(have / SUPERSLAB_BYTES + min_size(more, hak_region.superslabs_max) + 1);
        if (kept >= min_size(had, hak_region.superslabs_max) ||
            !commit_tables(have / SUPERSLAB_BYTES, have / SUPERSLAB_BYTES + 1)) {
            store_seq(&hak_region_use.kept_tables, had);
            return;
        }
        store_seq(&hak_region_use.kept_tables, kept);
    } while (
        !rmw_cas(&hak_region_use.frontier, &have, have + SUPERSLAB_BYTES)); /* pairs with region_commit_superslabs */
    for (unsigned i = 0; i < tables_count(); i++) {
        char *from = table_end(i, kept), *to = table_end(i, had);
        if (from != to)
            os_unmap(from, (size_t)(to - from));
    }
}

/* `again`: cuts the tables even if a cut was made before. The first cut stores `cut` once nothing is reserved any more:
 * a thread that was refused memory and had not seen that comes here, waits for the thread that cuts, and may be granted
 * memory now. */
static bool cut_reserved(size_t bytes, bool again) {
    if (hak_region.window || !begin_cut())
        return false;
    bool first = !region_was_cut();
    if (first)
        cut_superslabs_and_heaps();
    if (first || again)
        cut_tables(bytes / SUPERSLAB_BYTES);
    store_release(&hak_region_use.cut, true); /* pairs with region_was_cut */
    end_cut();
    return true;
}

void region_cut(size_t bytes) { cut_reserved(bytes, true); }
bool region_cut_blindly(void) { return cut_reserved(CUT_BLINDLY_BYTES, false); }

/* After a cut: reserves addresses for the tables of this number of SuperSlabs. */
HAK_COLD static bool reserve_tables(size_t superslabs) {
    if (!begin_cut())
        return false;
    size_t had = load_relaxed(&hak_region_use.kept_tables), kept = with_tables(superslabs);
    bool done = true;
    for (unsigned i = 0; done && kept > had && i < tables_count(); i++) {
        char *from = table_end(i, had), *to = table_end(i, kept);
        done = from == to || os_map(OS_RESERVE, from, (size_t)(to - from)) == from;
        for (; !done && i > 0; i--)
            os_unmap(table_end(i - 1, had), (size_t)(table_end(i - 1, kept) - table_end(i - 1, had)));
    }
    if (done && kept > had)
        store_seq(&hak_region_use.kept_tables, kept);
    end_cut();
    return done;
}

bool region_commit_superslabs(size_t superslabs) {
    size_t have = load_acquire(&hak_region_use.frontier), to = superslabs * SUPERSLAB_BYTES;
    while (have < to) {
        if (superslabs > load_seq(&hak_region_use.kept_tables) && !reserve_tables(superslabs))
            return false;
        if (!commit_tables(have / SUPERSLAB_BYTES, superslabs))
            return false;
        if (rmw_cas(&hak_region_use.frontier, &have, to)) /* pairs with cut_tables */
            break;
    }
    return true;
}

struct region_range region_table(unsigned number) {
    size_t superslabs = with_tables(region_frontier() / SUPERSLAB_BYTES);
    size_t rows = max_size(superslabs, min_size(REGION_SETS_FIRST, hak_region.superslabs_max));
    char *upper = upper_begin(rows);
    if (number == hak_region.nodes + 1)
        return (struct region_range){hak_region.packs, load_relaxed(&hak_region_use.packs) * sizeof(struct pack)};
    if (number == hak_region.nodes)
        return (struct region_range){hak_region.slabs, (size_t)(records_end(superslabs) - hak_region.slabs)};
    return (struct region_range){upper + node_distance(number), (size_t)(rows_end(rows) - upper)};
}
