/* Reserving the region, and the addresses of everything in it. See region.h. */
/* SPDX-License-Identifier: MIT */
#include "region/region.h"
#include "base/options.h"
#include "base/os.h"
#include "machine/nodes.h"

#include <string.h>

#define THP "/sys/kernel/mm/transparent_hugepage/"
#define GUARD_BYTES (64 * KIB)
#define SCARCE_SHARE                                                                                                   \
    8 /* of a limit: what is handed out before that may lose half by rounding, which is 6 % of the whole */
/* SuperSlabs whose tables are in core dumps: 16 GiB. gdb's gcore writes as much of the tables as may be in dumps, used
 * or not: 34 MiB. */
#define DUMPED_SUPERSLABS ((size_t)8192)
#define RESERVE_MIN (256 * MIB)                      /* below that the window does better */
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
    size_t upper_bytes = l.levels > 1 ? l.set_rows[1] * REGION_UPPER_ROW_BYTES + REGION_LEVEL_BYTES : 0;
    l.upper_bytes =
        round_up(upper_bytes + REGION_LEVEL_BYTES + sizeof(struct superslab), HAK_PAGE_MAX) - sizeof(struct superslab);
    l.rows_bytes = l.set_rows[0] * sizeof(struct superslab_row);
    l.slabs_bytes = l.superslabs * SUPERSLAB_SLOTS * sizeof(struct slab);
    l.packs_bytes = l.superslabs * SUPERSLAB_SLOTS * sizeof(struct pack);
    /* A window has as many heaps as the limit would have room for: they are mapped one by one. */
    size_t heaps = window ? min_size(HEAPS_MAX, l.superslabs * (SUPERSLAB_BYTES / HEAP_BYTES)) : HEAPS_MAX;
    l.heaps_bytes = heaps * HEAP_BYTES;
    return l;
}

/* A table's size with its guard: multiples of the largest page size there is (64 KiB). */
static size_t table_bytes(size_t bytes) { return round_up(bytes, GUARD_BYTES) + GUARD_BYTES; }
/* The size of the sets of one node. The sets of further nodes have the shape of the first, including rows of
 * SuperSlabs, of which no page is ever touched. */
static size_t sets_bytes(const struct layout *l) { return table_bytes(l->upper_bytes + l->rows_bytes); }
static size_t tables_bytes(const struct layout *l) {
    return table_bytes(l->heaps_bytes) + table_bytes(l->packs_bytes) + nodes_count() * sets_bytes(l) +
           table_bytes(l->slabs_bytes);
}

/* The first row of levels 1 and 2, in a table that begins at `at`. Level 3 and the first row of level 0 lie behind it,
 * and the others below it: so as the heap grows both they and level 0 get memory as they are needed, in one mapping.
 * The record of SuperSlab 0 is the page's last. So small programs need one page of it all: in the page before are, of
 * level 1, the sets of inboxes and of offers of small blocks. */
_Static_assert((BITSET_LEVELS * SETS - SET_OFFER - CLASS_256) * sizeof(uint64_t) + sizeof(struct superslab) <= 4096,
               "one page");
static char *upper_row(const struct layout *l, char *at) {
    return l->levels > 1 ? at + l->upper_bytes - 2 * REGION_LEVEL_BYTES - REGION_UPPER_ROW_BYTES : at;
}

/* Fills hak_region from what was published; every caller stores the same values. */
HAK_WRITES_SAME_VALUES static void derive(uintptr_t word) {
    unsigned log2_superslabs = word & (PUBLISHED_WINDOW - 1);
    struct region *r = &hak_region;
    struct layout l = layout_for(log2_superslabs, word & PUBLISHED_WINDOW);
    r->base = round_down(word, SUPERSLAB_BYTES);
    r->window = word & PUBLISHED_WINDOW;
    r->superslabs_max = l.superslabs;
    r->key = (uintptr_t)os_random(OS_RANDOM_KEY) | (BLOCK_ALIGN - 1); /* is_no_block says why */
    r->second_key = os_random(OS_RANDOM_SECOND_KEY) | 1;
    r->wide = mode()->free_is_zero && os_has_wide();
    char *at = (char *)r->base; /* NOLINT: the region is addresses */
    r->nodes = nodes_count();
    r->node_sets = sets_bytes(&l) / sizeof(uint64_t);
    at -= r->nodes * sets_bytes(&l);
    r->rows = (struct superslab_row *)(void *)(at + l.upper_bytes);
    r->upper = upper_row(&l, at);
    at -= table_bytes(l.packs_bytes);
    r->packs = (struct pack *)(void *)at;
    if (!r->window) /* a window's heaps are mapped one by one, below what is reserved */
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
    r->sets.row_bytes[0] = sizeof(struct superslab_row), r->sets.level[0] = (char *)r->rows - REGION_LEVEL_BYTES;
    for (unsigned level = 1; level < l.levels; level++) {
        r->sets.row_bytes[level] = -(ptrdiff_t)REGION_UPPER_ROW_BYTES;
        r->sets.level[level] = r->upper + (level - 1) * REGION_LEVEL_BYTES;
    }
}

static bool publish(uintptr_t word) {
    uintptr_t nothing = 0;
    return rmw_cas(&region_birth.published, &nothing, word);
}

/* Whether the system grants addresses at all, after it refused the most that is wanted. */
static bool has_addresses(size_t bytes) {
    void *got = os_map(OS_RESERVE, NULL, bytes);
    return got != NULL && os_unmap(got, bytes);
}

/* Whether the system gives pages of 64 KiB, and no larger ones, to mappings without advice. */
static bool has_folios(void) {
    char text[64];
    return option(OPT_HUGE_PAGES) == HUGE_AUTO && !mode()->free_is_shut && os_page_bytes() < SLOT_BYTES &&
           os_read_file(THP "hugepages-64kB/enabled", text, sizeof text) != 0 && strstr(text, "[always]") != NULL &&
           (os_read_file(THP "enabled", text, sizeof text) == 0 || strstr(text, "[always]") == NULL);
}

/* Memory for the sets of a node that are in use from the first SuperSlab on. `at`: where its sets begin. */
static bool map_first_sets(const struct layout *l, char *at) {
    char *begin = upper_row(l, at) - (l->levels > 1 ? min_size(1, l->set_rows[1] - 1) : 0) * REGION_UPPER_ROW_BYTES;
    char *end = at + l->upper_bytes + min_size(REGION_SETS_FIRST / 64, l->set_rows[0]) * sizeof(struct superslab_row);
    size_t page = os_page_bytes();
    begin -= (uintptr_t)begin % page;
    end += -(uintptr_t)end % page;
    return os_map(OS_FRESH, begin, (size_t)(end - begin)) == begin;
}

/* Hides what is reserved from core dumps, and maps the first sets. Before main all advice is harmless, and none is
 * given later. gdb's gcore reads what cannot be accessed, too, and would write all 16 TiB as zeroes. What is mapped
 * over these addresses is not hidden. The records become accessible in place, and the first of them are not hidden
 * either. `end`: of the reservation. */
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
    for (unsigned log2 = highest_bit(bytes / SUPERSLAB_BYTES | 1); (SUPERSLAB_BYTES << log2) >= RESERVE_MIN; log2--) {
        struct layout l = layout_for(log2, false);
        size_t tables = tables_bytes(&l);
        size_t whole = tables + (l.superslabs + 1) * SUPERSLAB_BYTES + OS_TEMPLATES_BYTES;
        char *got = os_map(OS_RESERVE, NULL, whole);
        if (got == NULL && (os_address_limit() != SIZE_MAX || !has_addresses(RESERVE_MIN)))
            return false; /* the program has limited itself since the start, or nothing is to be had */
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
    uint64_t random = os_random(OS_RANDOM_PLACE);
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
    unsigned log2 = mode()->window_log2_min;
    bool opened = false, refused = true;
    while (log2 < 19 && (SUPERSLAB_BYTES << log2) < limit)
        log2++;
    for (; log2 > 2 && !opened && refused; log2 /= 2)
        refused = false, opened = open_window_of(log2, &refused);
    return opened;
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
        region_cut(addresses);
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

static void find_nodes(void) {
    static const uint8_t wanted[] = {[NUMA_OFF] = 1, [NUMA_AUTO] = 0, [NUMA_TWO] = 2, [NUMA_FOUR] = 4};
    nodes_init(wanted[option(OPT_NUMA)]);
}

void region_start(void) {
    os_is_emulated();
    os_know_kernel();
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
    if (!load_seq(&region_birth.derived)) {
        derive(load_acquire(&region_birth.published));
        if (option(OPT_NAME_MAPPINGS))
            os_name_mappings(hak_region.slabs, (void *)hak_region.base); /* NOLINT: the region is addresses */
    }
    rmw_add(&region_birth.deriving, (uint32_t)-1);
    if (region_frontier() == 0 && !region_commit_superslabs(1) && !region_begin_in_part())
        return false;
    store_seq(&region_birth.derived, true);
    if (load_relaxed(&region_birth.freezing))
        region_freeze();
    return true;
}

void region_touch(void) {
    const struct bitset_family *f = &hak_region.sets;
    uint64_t none = 0;
    rmw_cas(bitset_word(f, 0, f->levels - 1, 0), &none, none); /* of a fetch-or of 0 clang makes a load */
}

void region_freeze(void) {
    store_relaxed(&region_birth.freezing, true);
    if (load_seq(&region_birth.derived) && load_seq(&region_birth.deriving) == 0)
        os_freeze(__start_hak_frozen, (size_t)(__stop_hak_frozen - __start_hak_frozen));
}

void region_extent(uintptr_t *begin, uintptr_t *end) {
    *begin = (uintptr_t)hak_region.tables;
    size_t used = max_size(load_relaxed(&hak_region_use.kept), load_relaxed(&hak_region_use.superslabs));
    *end =
        hak_region.base +
        (hak_region.window ? hak_region.superslabs_max : min_size(used, hak_region.superslabs_max)) * SUPERSLAB_BYTES;
}
