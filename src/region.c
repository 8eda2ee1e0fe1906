/* Reserving, committing, and the addresses of everything. See region.h. */
/* SPDX-License-Identifier: MIT */
#include "region.h"
#include "base/nodes.h"
#include "base/options.h"
#include "base/os.h"

#include <string.h>

#define THP "/sys/kernel/mm/transparent_hugepage/"
#define GUARD_BYTES (64 * KIB)
#define PACK_STEP 2048 /* slots whose packs get memory together: a page of 64 KiB */
#define SCARCE_SHARE                                                                                                   \
    8 /* of a limit: what is handed out before that may lose half by rounding, which is 6 % of the whole */
#define TABLE_STEP 64 /* SuperSlabs whose records get memory together: 265 KiB of tables, and a row of the sets */
/* SuperSlabs whose tables are in core dumps: 16 GiB. gdb's gcore writes as much of the tables as may be in dumps, used
 * or not: 34 MiB. */
#define DUMPED_SUPERSLABS ((size_t)8192)
#define SETS_FIRST ((size_t)2048) /* SuperSlabs whose rows of sets get memory at once: 300 KiB, and in dumps */
#define RESERVE_MIN (256 * MIB)   /* below that the window does better */
enum { WINDOW_BITS_MIN = 36, WINDOW_BITS_MAX = 46 }; /* the window begins between half and three quarters of 2^bits */

HAK_AMONG_FROZEN struct region hak_region;
extern char __start_hak_frozen[] HAK_HIDDEN, __stop_hak_frozen[] HAK_HIDDEN; /* NOLINT: the linker's names */
struct region_use hak_region_use __attribute__((aligned(HAK_LINE))) = {
    .scarce_from = SIZE_MAX, .kept = SIZE_MAX, .kept_heaps = SIZE_MAX, .kept_tables = SIZE_MAX};

/* How far the region is made. Any thread; sequentially consistent unless noted. */
static struct region_birth {
    /* base (a multiple of 2 MiB) | window bit | log2 of the SuperSlabs. 0 until one caller wins. */
    _Atomic uintptr_t published;
    /* Stored when hak_region holds what follows from `published`; acquired by every later caller of region_init. */
    _Atomic bool derived;
    /* The start is over. Relaxed: in the rare case that both sides miss the other, the region just stays writable. */
    _Atomic bool freezing;
    /* Threads inside derive(). Pairs with region_freeze: either it sees a non-zero count, or the thread sees
     * `derived`. */
    _Atomic uint32_t deriving;
    /* os_address_limit() when the library started; 0: not asked yet. Relaxed: it stands for itself. */
    _Atomic size_t limit_at_start;
} region_birth;
#define PUBLISHED_WINDOW 64u
#define UPPER_ROW_BYTES (SETS * sizeof(uint64_t))
_Static_assert(BITSET_LEVELS == 4, "derive places four levels");

/* What lies where, from the base down. */
struct layout {
    size_t superslabs;
    size_t heaps_bytes, packs_bytes, upper_bytes, rows_bytes, slabs_bytes;
    size_t set_rows[BITSET_LEVELS];
    unsigned levels;
};

static struct layout layout_for(unsigned log2_superslabs, bool window) {
    struct layout l = {.superslabs = (size_t)1 << log2_superslabs};
    l.levels = bitset_shape(l.superslabs, l.set_rows);
    for (unsigned level = 1; level < l.levels; level++)
        l.upper_bytes += l.set_rows[level] * UPPER_ROW_BYTES;
    l.upper_bytes = round_up(l.upper_bytes, HAK_LINE);
    l.rows_bytes = l.set_rows[0] * sizeof(struct superslab_row);
    l.slabs_bytes = l.superslabs * SUPERSLAB_SLOTS * sizeof(struct slab);
    l.packs_bytes = l.superslabs * SUPERSLAB_SLOTS * sizeof(struct pack);
    /* A window holds as many heaps as its memory could feed; a page of threads' stacks costs more than a heap. */
    size_t heaps = window ? min_size(HEAPS_MAX, max_size(64, l.superslabs * 4)) : HEAPS_MAX;
    l.heaps_bytes = heaps * HEAP_BYTES;
    return l;
}

/* A table's size with its guard: multiples of the largest page size there is (64 KiB). */
static size_t table_bytes(size_t bytes) { return round_up(bytes, GUARD_BYTES) + GUARD_BYTES; }
/* Of the sets of one node. Those of further nodes have the shape of the first, rows of SuperSlabs included, of which no
 * page is ever touched. */
static size_t sets_bytes(const struct layout *l) { return table_bytes(l->upper_bytes + l->rows_bytes); }
static size_t tables_bytes(const struct layout *l) {
    return table_bytes(l->heaps_bytes) + table_bytes(l->packs_bytes) + nodes_count() * sets_bytes(l) +
           table_bytes(l->slabs_bytes);
}

/* The first row of level 1, in a table that begins at `at`. The others lie below it: so as the heap grows both they and
 * level 0, behind the upper levels, get memory as they are needed, in one mapping. */
static char *upper_row(const struct layout *l, char *at) {
    return l->levels > 1 ? at + (l->set_rows[1] - 1) * UPPER_ROW_BYTES : at;
}

/* Fills hak_region from what was published; every caller stores the same values. */
HAK_WRITES_SAME_VALUES static void derive(uintptr_t word) {
    unsigned log2_superslabs = word & (PUBLISHED_WINDOW - 1);
    struct region *r = &hak_region;
    struct layout l = layout_for(log2_superslabs, word & PUBLISHED_WINDOW);
    r->base = round_down(word, SUPERSLAB_BYTES);
    r->window = word & PUBLISHED_WINDOW;
    r->superslabs_max = l.superslabs;
    r->key = (uintptr_t)os_random() | (BLOCK_ALIGN - 1); /* is_no_block says why */
    r->second_key = (r->key * 0x9e3779b97f4a7c15 ^ r->key >> 29) | 1;
    r->wide = option(OPT_SECURE) && os_has_wide();
    char *at = (char *)r->base; /* NOLINT: the region is addresses */
    r->nodes = nodes_count();
    r->node_sets = sets_bytes(&l) / sizeof(uint64_t);
    at -= r->nodes * sets_bytes(&l);
    r->rows = (struct superslab_row *)(void *)(at + l.upper_bytes);
    r->upper = upper_row(&l, at);
    at -= table_bytes(l.packs_bytes);
    r->packs = (struct pack *)(void *)at;
    if (!r->window) /* whose heaps are mapped one by one, below what is reserved */
        r->heaps = at -= table_bytes(l.heaps_bytes);
    at -= table_bytes(l.slabs_bytes);
    r->slabs = at;
    if (r->window)
        r->heaps = at -= table_bytes(l.heaps_bytes);
    r->tables = at;
    r->heaps_max = l.heaps_bytes / HEAP_BYTES;
    r->sets.levels = l.levels;
    for (unsigned level = 0; level < l.levels; level++)
        r->sets.rows[level] = l.set_rows[level];
    r->sets.row_bytes[0] = sizeof(struct superslab_row), r->sets.level[0] = (char *)r->rows[0].set;
    r->sets.row_bytes[1] = -(size_t)UPPER_ROW_BYTES, r->sets.level[1] = r->upper;
    for (unsigned level = 2; level < l.levels; level++) {
        r->sets.row_bytes[level] = UPPER_ROW_BYTES;
        r->sets.level[level] = r->upper + (level == 2 ? 1 : 1 + l.set_rows[2]) * UPPER_ROW_BYTES;
    }
}

static bool publish(uintptr_t word) {
    uintptr_t nothing = 0;
    return rmw_cas(&region_birth.published, &nothing, word);
}

/* Are there addresses at all, if the most that is wanted is more than there is? */
static bool has_addresses(size_t bytes) {
    void *got = os_map(OS_RESERVE, NULL, bytes);
    return got != NULL && os_unmap(got, bytes);
}

/* Does the system give pages of 64 KiB to whoever has no wishes, and no larger ones? */
static bool has_folios(void) {
    char text[64];
    return option(OPT_HUGE_PAGES) == HUGE_AUTO && !option(OPT_SECURE) && os_page_bytes() < SLOT_BYTES &&
           os_read_file(THP "hugepages-64kB/enabled", text, sizeof text) != 0 && strstr(text, "[always]") != NULL &&
           (os_read_file(THP "enabled", text, sizeof text) == 0 || strstr(text, "[always]") == NULL);
}

/* Memory for the sets of a node that are in use from the first SuperSlab on. `at`: where its sets begin. */
static bool map_first_sets(const struct layout *l, char *at) {
    char *begin = upper_row(l, at) - (l->levels > 1 ? min_size(1, l->set_rows[1] - 1) : 0) * UPPER_ROW_BYTES;
    char *end = at + l->upper_bytes + min_size(SETS_FIRST / 64, l->set_rows[0]) * sizeof(struct superslab_row);
    size_t page = os_page_bytes();
    begin -= (uintptr_t)begin % page;
    end += -(uintptr_t)end % page;
    return os_map(OS_FRESH, begin, (size_t)(end - begin)) == begin;
}

/* Before main all advice is harmless, and none is given later. gdb's gcore reads what cannot be accessed, too, and
 * writes it as zeroes: all 16 TiB, were they not hidden from dumps. What is mapped over them is not hidden; of the
 * records, which become accessible where they are, the first are not. `end`: of the reservation. */
static bool prepare(const struct layout *l, uintptr_t base, char *end) {
    size_t shown = min_size(l->superslabs, DUMPED_SUPERSLABS) * SUPERSLAB_SLOTS * sizeof(struct slab);
    char *sets = (char *)base - nodes_count() * sets_bytes(l); /* NOLINT: the region is addresses */
    bool window = end == (char *)base, done = true;
    char *records =
        sets - table_bytes(l->packs_bytes) - (window ? 0 : table_bytes(l->heaps_bytes)) - table_bytes(l->slabs_bytes);
    os_advise(OS_NO_DUMP, records + shown, (size_t)(end - records) - shown);
    for (unsigned node = 0; done && node < nodes_count(); node++)
        done = map_first_sets(l, sets + node * sets_bytes(l));
    return done;
}

static bool reserve(size_t bytes) {
    bool tried = false;
    for (unsigned log2 = highest_bit(bytes / SUPERSLAB_BYTES | 1); (SUPERSLAB_BYTES << log2) >= RESERVE_MIN; log2--) {
        struct layout l = layout_for(log2, false);
        size_t tables = tables_bytes(&l);
        size_t whole = tables + (l.superslabs + 1) * SUPERSLAB_BYTES + OS_TEMPLATES_BYTES;
        char *got = os_map(OS_RESERVE, NULL, whole);
        if (got == NULL && !tried && (os_address_limit() != SIZE_MAX || !has_addresses(RESERVE_MIN)))
            return false; /* the program has limited itself since the start, or nothing is to be had */
        tried = true;
        if (got == NULL)
            continue;
        uintptr_t base = round_up((uintptr_t)got + tables, SUPERSLAB_BYTES);
        char *end = (char *)base + l.superslabs * SUPERSLAB_BYTES; /* NOLINT: the region is addresses */
        bool ready = prepare(&l, base, end);
        if (!ready || !publish(base | log2)) {
            os_unmap(got, whole);
            return ready;
        }
        store_relaxed(&hak_region_use.folios, has_folios() ? FOLIOS_USED : FOLIOS_REFUSED);
        os_make_templates(end, option(OPT_HUGE_PAGES) != HUGE_NEVER);
        return true;
    }
    return false;
}

/* The tables are reserved at an address that leaves room above: tried from large address spaces to small ones while
 * something else is there. The stack is near the end of the addresses that a program may use, so beyond them none is
 * tried, and NULL means that there is no memory (*refused). */
static bool open_window_of(unsigned log2, bool *refused) {
    struct layout l = layout_for(log2, true);
    size_t mapped = tables_bytes(&l) - table_bytes(l.heaps_bytes);
    uint64_t random = os_random();
    unsigned bits = (unsigned)min_size(WINDOW_BITS_MAX, highest_bit((uintptr_t)&l));
    for (; bits >= WINDOW_BITS_MIN && !*refused; bits--, random = random >> 7 | random << 57) {
        uintptr_t base = round_down(((uintptr_t)1 << (bits - 1)) + (random & low_bits(bits - 2)), SUPERSLAB_BYTES);
        void *table = (void *)(base - mapped); /* NOLINT: the region is addresses */
        void *got = os_map(OS_RESERVE, table, mapped);
        *refused = got == NULL;
        if (got != table)
            continue;
        bool ready = prepare(&l, base, (char *)base); /* NOLINT: the region is addresses */
        if (!ready || !publish(base | PUBLISHED_WINDOW | log2))
            os_unmap(table, mapped);
        return ready;
    }
    return false;
}

/* Tables take a 500th of the window, so a small one may be larger than the limit, which the program may raise. Secure
 * mode's take a 16th. Where that is refused, a window for less than that is large enough. */
static bool open_window(size_t limit) {
    unsigned log2 = option(OPT_SECURE) ? 3 : 5;
    bool opened = false, refused = true;
    while (log2 < 19 && (SUPERSLAB_BYTES << log2) < limit)
        log2++;
    for (; log2 > 2 && !opened && refused; log2 /= 2)
        refused = false, opened = open_window_of(log2, &refused);
    return opened;
}

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

/* The lowest page of level 1 that is needed: a search looks at the row behind the last one that has a member. */
static char *upper_begin(size_t superslabs) {
    const struct region *r = &hak_region;
    size_t rows = r->sets.levels > 1 ? min_size(superslabs / 64 / 64 + 2, r->sets.rows[1]) : 1;
    return r->upper - (rows - 1) * UPPER_ROW_BYTES -
           (uintptr_t)(r->upper - (rows - 1) * UPPER_ROW_BYTES) % os_page_bytes();
}

/* How far the sets of a node lie behind those of node 0. */
static size_t node_distance(unsigned node) { return node * hak_region.node_sets * sizeof(uint64_t); }

static bool commit_sets(size_t from, size_t end, size_t distance) {
    from = max_size(from, SETS_FIRST); /* map_first_sets */
    return end <= from || (commit_table(rows_end(from) + distance, rows_end(end) + distance) &&
                           commit_table(upper_begin(end) + distance, upper_begin(from) + distance));
}

/* Tables for the SuperSlabs from `have` to `to`; those before have theirs. */
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
 *     the taker maps it where nothing is, if need be after the cut is done.
 *  2. Whoever needs tables reads the frontier, then how many SuperSlabs have tables reserved, gives those memory, and
 *     moves the frontier by a compare-and-swap. The cut stores how many and then moves the frontier, too, which never
 *     goes back: a taker that has read the old number fails, and reads again. */

#define CUT_BLINDLY_BYTES                                                                                              \
    (512 * MIB) /* room that tables have after a cut without a known limit; secure mode's are large */
enum { CUT_WAIT_MS = 1, CUT_WAITS = 100 };

/* A table has a row for each SuperSlab, or so many for all of them. */
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
                              SETS_FIRST};
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
 * one does, and goes on doing so: a signal's handler may have interrupted it. */
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

/* Memory where nothing is reserved any more, or soon will be. */
static void *map_at(char *at, size_t bytes) {
    bool cutting = load_acquire(&hak_region_use.cutting) != 0;
    void *got = os_map(OS_AT, at, bytes);
    if (got == at || !(cutting || load_acquire(&hak_region_use.cutting) != 0) || !begin_cut())
        return got;
    end_cut();
    return os_map(OS_AT, at, bytes);
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
    } while (!rmw_cas(&hak_region_use.frontier, &have, have + SUPERSLAB_BYTES)); /* pairs with commit_superslabs */
    for (unsigned i = 0; i < tables_count(); i++) {
        char *from = table_end(i, kept), *to = table_end(i, had);
        if (from != to)
            os_unmap(from, (size_t)(to - from));
    }
}

/* Gives back what is reserved and was never used, unless another thread does. */
HAK_COLD static bool cut(size_t bytes) {
    if (hak_region.window || !begin_cut())
        return false;
    if (load_relaxed(&hak_region_use.kept) == SIZE_MAX)
        cut_superslabs_and_heaps();
    cut_tables(bytes / SUPERSLAB_BYTES);
    end_cut();
    return true;
}

/* The system has refused a little, when so many SuperSlabs had reserved addresses: the program may have limited itself
 * by a call that nobody saw. True: try again. */
static bool cut_blindly(size_t kept) {
    return kept == SIZE_MAX && (load_relaxed(&hak_region_use.kept) != SIZE_MAX || cut(CUT_BLINDLY_BYTES));
}

/* Addresses for the tables of so many SuperSlabs, again. */
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

/* Tables for at least `superslabs` SuperSlabs. Several threads may do so at once: committing again is harmless, and the
 * frontier only grows. */
static bool commit_superslabs(size_t superslabs) {
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

static void note_limits(size_t least) {
    size_t from = least != SIZE_MAX ? least / SCARCE_SHARE / SUPERSLAB_BYTES : SIZE_MAX;
    store_relaxed(&hak_region_use.scarce_from, from);
}

void region_limit(size_t addresses, size_t data) {
    if (!load_acquire(&region_birth.derived))
        return;
    note_limits(min_size(addresses, data));
    if (addresses / SUPERSLAB_BYTES < hak_region.superslabs_max)
        cut(addresses);
}

/* Whether there is no limit on addresses. After the start that is known without a system call. */
static bool is_unlimited(void) {
    size_t limit = load_relaxed(&region_birth.limit_at_start);
    if (limit == 0) {
        limit = os_address_limit();
        note_limits(min_size(limit, os_data_limit()));
    }
    store_relaxed(&region_birth.limit_at_start, limit);
    return limit == SIZE_MAX;
}

static bool begin_in_part(void);

static void find_nodes(void) {
    static const uint8_t wanted[] = {[NUMA_OFF] = 1, [NUMA_AUTO] = 0, [NUMA_TWO] = 2, [NUMA_FOUR] = 4};
    nodes_init(wanted[option(OPT_NUMA)]);
}

void region_start(void) {
    os_is_emulated();
    region_init();
}

bool region_init(void) {
    if (likely(load_acquire(&region_birth.derived)))
        return true;
    options_init();
    find_nodes();
    if (load_acquire(&region_birth.published) == 0) {
        size_t wanted = os_is_emulated() ? 0 : option(OPT_REGION_BYTES);
        if (!(wanted != 0 && is_unlimited() && reserve(wanted)) &&
            !open_window(min_size(os_address_limit(), 256 * GIB)))
            return false;
    }
    rmw_add(&region_birth.deriving, 1);
    if (!load_seq(&region_birth.derived))
        derive(load_acquire(&region_birth.published));
    rmw_add(&region_birth.deriving, (uint32_t)-1);
    if (region_frontier() == 0 && !commit_superslabs(1) && !begin_in_part())
        return false;
    store_seq(&region_birth.derived, true);
    if (load_relaxed(&region_birth.freezing))
        region_freeze();
    return true;
}

void region_freeze(void) {
    store_relaxed(&region_birth.freezing, true);
    if (load_seq(&region_birth.derived) && load_seq(&region_birth.deriving) == 0)
        os_freeze(__start_hak_frozen, (size_t)(__stop_hak_frozen - __start_hak_frozen));
}

/* How a SuperSlab that nobody has gets memory: where addresses are reserved, in their place. Secure mode's tiers make
 * accessible what they need. */
static enum os_map_kind superslab_mapping(size_t superslab) {
    if (hak_region.window || superslab >= load_seq(&hak_region_use.kept)) /* pairs with cut_behind */
        return OS_AT;
    if (option(OPT_SECURE))
        return OS_FRESH_SHUT;
    bool folios = superslab >= REGION_FOLIOS_FROM && load_relaxed(&hak_region_use.folios) == FOLIOS_USED;
    return folios ? OS_FRESH_PLAIN : OS_FRESH;
}

bool region_renew(size_t slot, size_t bytes, bool huge) {
    enum os_map_kind kind = huge ? OS_FRESH_HUGE : superslab_mapping(slot / SUPERSLAB_SLOTS);
    char *at = slot_address(slot);
    if (os_map(kind == OS_AT ? OS_FRESH : kind, at, bytes) == at || os_is_mapped(at, bytes))
        return true;
    if (bytes % SUPERSLAB_BYTES == 0) /* so that all of it can be mapped later */
        os_unmap(at, bytes);
    return false;
}

/* ---- SuperSlabs without memory ----
 * In a window: those that could not be mapped when they were due. Everywhere: those that a refused call has
 * unmapped. */

static _Atomic uint32_t *next_unmapped(uint32_t i) { return &superslab_at(i - 1)->next_unmapped; }
static _Atomic uint32_t *next_part(uint32_t i) { return &superslab_at(i - 1)->next_part; }

/* `head` is a chain of SuperSlabs, as number + 1. A list is only ever taken whole, so there is no ABA. */
static void put_chain(_Atomic uint32_t *list, _Atomic uint32_t *(*next_of)(uint32_t), uint32_t head) {
    uint32_t last = head, next;
    while ((next = load_relaxed(next_of(last))) != 0)
        last = next;
    uint32_t before = load_relaxed(list);
    do
        store_relaxed(next_of(last), before);
    while (!rmw_cas(list, &before, head)); /* pairs with take_chain, for the links */
}
static uint32_t take_chain(_Atomic uint32_t *list) { return load_relaxed(list) != 0 ? rmw_swap(list, 0) : 0; }

void region_put_unmapped(size_t first, size_t n) {
    for (size_t i = first; i < first + n; i++) {
        store_relaxed(&superslab_at(i)->word, (uint64_t)UINT32_MAX); /* ACTIVE, not resident: nobody's */
        store_relaxed(&superslab_at(i)->next_unmapped, 0);
        put_chain(&hak_region_use.unmapped, next_unmapped, (uint32_t)i + 1);
    }
}

size_t region_map_unmapped(void) {
    uint32_t head = take_chain(&hak_region_use.unmapped);
    if (head == 0)
        return BITSET_NONE;
    struct superslab *ss = superslab_at(head - 1);
    char *at = slot_address((size_t)(head - 1) * SUPERSLAB_SLOTS);
    void *got = os_map(OS_AT, at, SUPERSLAB_BYTES);
    uint32_t rest = got == at || got == OS_OCCUPIED ? load_relaxed(&ss->next_unmapped) : head;
    if (rest != 0)
        put_chain(&hak_region_use.unmapped, next_unmapped, rest);
    if (got != at)
        return BITSET_NONE;
    store_relaxed(&ss->huge, HUGE_NONE);
    return head - 1;
}

/* The system refuses `n` SuperSlabs. One that refuses more than there are has said little. */
static size_t refused(size_t n, size_t first) {
    if (n <= first)
        store_relaxed(&hak_region_use.scarce_from, 0);
    return BITSET_NONE;
}

/* A SuperSlab whose addresses are reserved, and which is to get memory from the lowest slot up. */
static void put_reserved(size_t superslab) {
    struct superslab *ss = superslab_at(superslab);
    store_relaxed(&ss->word, (uint64_t)UINT32_MAX);
    store_relaxed(&ss->mapped_slots, 0);
    store_relaxed(&ss->next_part, 0);
    put_chain(&hak_region_use.parts, next_part, (uint32_t)superslab + 1);
}

/* Gives the SuperSlabs memory. If that fails they go back, or wait to be mapped later; with somebody else's mapping in
 * the way they are given up for good (*blocked). */
static bool map_superslabs(size_t first, size_t n, bool *blocked) {
    char *at = slot_address(first * SUPERSLAB_SLOTS);
    enum os_map_kind kind = superslab_mapping(first + n - 1);
    bool reserved = kind != OS_AT;
    size_t kept = !reserved && !hak_region.window ? load_seq(&hak_region_use.kept) : first;
    bool partly = first < kept; /* those that have reserved addresses are ours */
    if (unlikely(partly))
        os_unmap(at, (kept - first) * SUPERSLAB_BYTES);
    void *got = reserved ? os_map(kind, at, n * SUPERSLAB_BYTES) : map_at(at, n * SUPERSLAB_BYTES);
    /* A process that has no mappings left may still unmap the begin of one and make the one before it longer. */
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
        put_reserved(i);
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
        if (first == hak_region.superslabs_max || !commit_superslabs(first + 1))
            return 0;
    while (!rmw_cas(&hak_region_use.superslabs, &first, first + 1));
    struct superslab *ss = superslab_at(first);
    store_relaxed(&ss->word, (uint64_t)UINT32_MAX);
    store_relaxed(&ss->mapped_slots, 0);
    store_relaxed(&ss->next_part, 0);
    return (uint32_t)first + 1;
}

/* Makes the first SuperSlab one that has memory in part. */
static bool begin_in_part(void) {
    uint32_t first = option(OPT_SECURE) ? 0 : begin_part();
    if (first != 0)
        put_chain(&hak_region_use.parts, next_part, first);
    return first != 0;
}

static bool map_slots(size_t slot, unsigned n, bool *blocked) {
    char *at = slot_address(slot);
    bool reserved = superslab_mapping(slot / SUPERSLAB_SLOTS) != OS_AT;
    void *got = reserved ? os_map(OS_FRESH, at, n * SLOT_BYTES) : map_at(at, n * SLOT_BYTES);
    *blocked = got == OS_OCCUPIED;
    return got == at;
}

uint32_t region_map_slots(unsigned slots, size_t *superslab) {
    if (option(OPT_SECURE)) /* whose tiers make accessible what they need */
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
    uint32_t rest = have + n == SUPERSLAB_SLOTS || blocked ? load_relaxed(&ss->next_part) : head;
    if (rest != 0)
        put_chain(&hak_region_use.parts, next_part, rest);
    *superslab = head - 1;
    return (uint32_t)(low_bits(n) << have);
}

size_t region_take_superslabs(size_t n) {
    struct region *r = &hak_region;
    size_t first = load_relaxed(&hak_region_use.superslabs);
    for (;;) {
        if (n > r->superslabs_max || first > r->superslabs_max - n)
            return BITSET_NONE;
        if ((first + n) * SUPERSLAB_BYTES > region_frontier() && !commit_superslabs(first + n))
            return refused(n, first);
        if (!rmw_cas(&hak_region_use.superslabs, &first, first + n))
            continue;
        bool blocked;
        size_t kept = load_relaxed(&hak_region_use.kept);
        if (map_superslabs(first, n, &blocked))
            return first;
        if (!blocked && !(n <= first && cut_blindly(kept)))
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
        size_t kept = load_relaxed(&hak_region_use.kept);
        if (index < load_seq(&hak_region_use.kept_heaps)) {
            bool done = os_map(OS_FRESH, at, HEAP_BYTES) == at;
            done = done || (cut_blindly(kept) && os_map(OS_FRESH, at, HEAP_BYTES) == at);
            return done ? at : NULL;
        }
    }
    return map_at(at, HEAP_BYTES) == at ? at : NULL;
}

void region_extent(uintptr_t *begin, uintptr_t *end) {
    *begin = (uintptr_t)hak_region.tables;
    size_t used = max_size(load_relaxed(&hak_region_use.kept), load_relaxed(&hak_region_use.superslabs));
    *end =
        hak_region.base +
        (hak_region.window ? hak_region.superslabs_max : min_size(used, hak_region.superslabs_max)) * SUPERSLAB_BYTES;
}

struct region_range region_table(unsigned number) {
    size_t superslabs = with_tables(region_frontier() / SUPERSLAB_BYTES);
    size_t rows = max_size(superslabs, min_size(SETS_FIRST, hak_region.superslabs_max));
    char *upper = upper_begin(rows);
    if (number == hak_region.nodes + 1)
        return (struct region_range){hak_region.packs, load_relaxed(&hak_region_use.packs) * sizeof(struct pack)};
    if (number == hak_region.nodes)
        return (struct region_range){hak_region.slabs, (size_t)(records_end(superslabs) - hak_region.slabs)};
    return (struct region_range){upper + node_distance(number), (size_t)(rows_end(rows) - upper)};
}
