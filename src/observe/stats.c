/* See stats.h. Collecting: one walk over all slots, span by span, with the kernel's word on which pages are
 * resident. */
/* SPDX-License-Identifier: MIT */
#include "observe/stats.h"
#include "base/options.h"
#include "base/os.h"
#include "base/scratch.h"
#include "base/snapshot.h"
#include "base/text.h"
#include "blocks/kinds.h"
#include "blocks/links.h"
#include "hakmem.h"
#include "heap/heap.h"
#include "heap/ring.h"
#include "heap/sample.h"
#include "learn/tuner.h"
#include "machine/page_cost.h"
#include "pool/retain.h"
#include "secure/secure_span.h"
#include "space/arena_record.h"

#include <string.h>

static const struct {
    const char *name, *label, *help;
} term_table[TERM_COUNT] = {
#define TERM_ROW(name, label, help) {#name, label, help},
    TERMS(TERM_ROW)
#undef TERM_ROW
};

/* ---- collecting ---- */

static size_t resident_in(struct residency *r, const void *begin, size_t bytes) {
    size_t page = os_page_bytes(), resident = 0;
    if (!r->asks)
        return bytes;
    const char *at = (const char *)round_down((uintptr_t)begin, page); /* NOLINT: addresses */
    const char *end = (const char *)begin + bytes;
    while (at < end) {
        size_t n = min_size((size_t)(end - at) / page + ((size_t)(end - at) % page != 0), sizeof r->pages);
        bool known = os_resident((char *)at, n * page, r->pages); /* NOLINT: only looked at */
        while (!known && n > 1) { /* a page of a slab is unmapped: see purge_keep_apart */
            n /= 2;
            known = os_resident((char *)at, n * page, r->pages); /* NOLINT: likewise */
        }
        for (size_t i = 0; known && i < n; i++)
            resident += r->pages[i] & 1;
        at += n * page;
    }
    return resident * page;
}

static size_t resident_in_slot(struct residency *r, size_t slot) {
    if (r->superslab != slot / SUPERSLAB_SLOTS) {
        r->superslab = slot / SUPERSLAB_SLOTS;
        size_t first = r->superslab * SUPERSLAB_SLOTS;
        if (word_resident(load_relaxed(&superslab_at(r->superslab)->word)) == 0 &&
            superslab_lazy_in(r->superslab, ALL_SLOTS) == 0)
            memset(r->bytes, 0, sizeof r->bytes);
        else
            for (unsigned i = 0; i < SUPERSLAB_SLOTS; i++)
                r->bytes[i] = (uint32_t)resident_in(r, slot_address(first + i), SLOT_BYTES);
    }
    return r->bytes[slot % SUPERSLAB_SLOTS];
}

/* Splits what is resident in a span: `out` bytes belong to the program, then `cached` to threads. */
static void stats_add_span(struct heap_figures *f, size_t resident, size_t out, size_t cached, size_t lazy) {
    size_t live = min_size(out, resident), held = min_size(cached, resident - live);
    f->live += (int64_t)live;
    f->untouched += (int64_t)(out - live);
    f->thread_caches += (int64_t)held;
    lazy = min_size(lazy, resident - live - held);
    f->lazy += (int64_t)lazy;
    f->partly_used_slabs += (int64_t)(resident - live - held - lazy);
}

/* Free blocks of a class that count as out in their slabs are a thread's. The lists are read while they change, so
 * there may seem to be more of them than is out. */
static void move_to_caches(struct heap_figures *f, unsigned class_id, size_t bytes) {
    int64_t held = (int64_t)min_size(bytes, (size_t)f->live);
    f->live -= held;
    f->thread_caches += held;
    f->tiny_live[class_id] -= min_size(bytes, f->tiny_live[class_id]);
}

static void add_free_slots(struct heap_figures *f) {
    size_t superslabs = load_acquire(&hak_region_use.superslabs);
    for (size_t i = 0; i < superslabs; i++) {
        uint64_t w = load_relaxed(&superslab_at(i)->word);
        uint32_t lazy = superslab_lazy_in(i, ALL_SLOTS);
        if (word_resident(w) == 0 && lazy == 0)
            continue;
        for (uint32_t left = ~word_active(w); left != 0; left &= left - 1) {
            unsigned slot = lowest_bit(left);
            bool empty = word_resident(w) >> slot & 1;
            *(empty              ? &f->empty_slots
              : lazy >> slot & 1 ? &f->lazy
                                 : &f->huge_rounding) +=
                (int64_t)resident_in_slot(&f->pages, i * SUPERSLAB_SLOTS + slot);
        }
    }
}

/* What is known of the span at `slot`, which may be another by now: never more than there is. Its length is 1 if it was
 * made after we passed its first slot. */
HAK_NOINLINE static struct span_use use_of(size_t slot) {
    struct span_use use = {.class_id = CLASSES};
    struct slab seen;
    size_t max = load_relaxed(&hak_region_use.superslabs) * SUPERSLAB_SLOTS - slot;
    snapshot(&seen, slab_of_slot(slot), sizeof seen);
    kind_of(&seen)->count(&seen, &use);
    use.slots = max_size(min_size(use.slots, max), 1);
    use.out_bytes = min_size(use.out_bytes, use.slots * SLOT_BYTES);
    use.cached_bytes = min_size(use.cached_bytes, use.slots * SLOT_BYTES);
    return use;
}

/* Counts the span at `slot` and returns its length in slots. */
static size_t add_slots(struct heap_figures *f, size_t slot) {
    struct span_use use = use_of(slot);
    size_t slots = use.slots, resident = 0;
    for (size_t i = 0; i < slots; i++)
        resident += resident_in_slot(&f->pages, slot + i);
    if (use.is_in_pool) {
        f->empty_slots += (int64_t)resident;
        return slots;
    }
    stats_add_span(f, resident, use.out_bytes, use.cached_bytes, use.lazy_bytes);
    if (use.class_id < TINY_CLASSES) {
        f->tiny_live[use.class_id] += use.out_bytes;
        f->tiny_free[use.class_id] += use.listed_bytes;
    }
    return slots;
}

HAK_READS_PROGRAM_BYTES static size_t listed_blocks(uintptr_t block, size_t max) {
    size_t blocks = 0;
    while (!is_terminator(block) && region_has(block_word(block)) && blocks < max) {
        uintptr_t next = *(volatile uintptr_t *)block_word(block) ^ hak_region.key;
        blocks++;
        if (!same_slot(next, block))
            break;
        block = next;
    }
    return blocks;
}

static void add_row(struct stats_row *row, const struct ledger_row *from) {
    row->blocks += load_relaxed(&from->blocks);
    row->misses += load_relaxed(&from->misses);
    row->timed += load_relaxed(&from->timed);
    row->ns += load_relaxed(&from->ns);
}

/* Frees into a heap's current slab, or NULL, that no slow path has counted yet. They are read while they change: what
 * cannot be is left out. */
static uint64_t uncounted_frees(const struct slab *current, uint32_t deferred) {
    struct slab seen;
    if (current == NULL)
        return 0;
    snapshot(&seen, current, sizeof seen);
    uint64_t left = (uint64_t)seen.tiny.countdown + deferred;
    return left <= seen.tiny.check_after ? seen.tiny.check_after - left : 0;
}

/* The thread may be making its rings anew meanwhile: their memory stays readable. */
HAK_NOINLINE static void add_rings(struct heap_figures *f, const struct heap *h) {
    struct ring *rings[RING_CLASSES];
    if (!rings_made(h)) /* so that their page is left untouched */
        return;
    snapshot(rings, h->ring, sizeof rings);
    for (unsigned i = 0; i < RING_CLASSES; i++) {
        struct stats_row *row = &f->ledger[TINY_CLASSES + i];
        struct ring ring;
        if (rings[i] == NULL)
            continue;
        snapshot(&ring, rings[i], sizeof ring);
        row->hits += ring_pops(&ring);
        row->held_bytes += ring.blocks * tuned_bytes(TINY_CLASSES + i);
    }
}

/* Not inlined, nor is add_rings: their copies would lie on the stack together. */
HAK_NOINLINE static void add_lists(struct heap_figures *f, const struct heap *h) {
    struct slab *current[TINY_CLASSES];
    snapshot(current, h->current, sizeof current);
    bool samples = sample_on(h); /* else its pages are left untouched */
    for (unsigned c = 0; c < TINY_CLASSES; c++) {
        size_t bytes = size_classes[c].block_bytes;
        size_t blocks = listed_blocks(load_relaxed(&h->list[c]), size_classes[c].blocks);
        if (samples)
            blocks += listed_blocks(load_relaxed(&h->sampled[c].rest), size_classes[c].blocks);
        move_to_caches(f, c, blocks * bytes);
        f->ledger[c].blocks += uncounted_frees(current[c], load_relaxed(&h->deferred[c])) - blocks;
        f->ledger[c].held_bytes += blocks * bytes;
    }
}

/* Blocks in a heap's lists and outbox count as out in their slabs; they are the thread's. Other threads' lists are read
 * while they change: what was in a list since the walk began may be read, and the walk is bounded. */
static void add_heap(struct heap_figures *f, const struct heap *h) {
    f->heaps++;
    f->heaps_in_use += load_relaxed(&h->in_use);
    for (unsigned c = 0; c < COUNTER_COUNT; c++)
        f->counters[c] += load_relaxed(&h->client.counters.n[c]);
    add_lists(f, h);
    add_rings(f, h);
    unsigned rows =
        load_relaxed(&h->in_use) ? TUNED_CLASSES : TINY_CLASSES; /* the others are on a page that is left untouched */
    for (unsigned c = 0; c < rows; c++)
        add_row(&f->ledger[c], &h->ledger[c]);
    for (unsigned i = 0; load_relaxed(&h->outbox_slabs) != 0 && i < OUTBOX_ENTRIES; i++) {
        struct outbox_entry e;
        snapshot(&e, &h->outbox[i], sizeof e);
        uint32_t number = load_relaxed(&e.slab);
        if (number == 0)
            continue;
        unsigned c = slab_class(slab_of_slot(number - 1));
        if (c < TINY_CLASSES)
            move_to_caches(f, c, e.blocks * (size_t)size_classes[c].block_bytes);
    }
    size_t used = f->pages.asks ? HEAP_BYTES : max_size(h->ring_top, sizeof *h);
    if (h->number != 0)
        f->metadata += (int64_t)resident_in(&f->pages, h, used);
}

/* Resident bytes of a table that has a part for each SuperSlab ever in use. */
static size_t table_resident(struct heap_figures *f, struct region_range table, size_t superslab_bytes) {
    size_t used = load_relaxed(&hak_region_use.superslabs) * superslab_bytes;
    return resident_in(&f->pages, table.begin, f->pages.asks ? table.bytes : min_size(table.bytes, used));
}

static void stats_collect(struct heap_figures *f, bool asks) {
    memset(f, 0, offsetof(struct heap_figures, pages));
    f->pages.asks = asks;
    if (!region_init())
        return;
    superslab_count(&f->pool);
    f->pages.superslab = BITSET_NONE;
    for (size_t slot = 0; (slot = superslab_next_active(slot)) != BITSET_NONE;)
        slot += add_slots(f, slot);
    add_free_slots(f);
    rmw_add(&hak_region_use.readers, 1); /* pairs with region_is_read */
    for (const struct heap *h = heap_newest(); h != NULL; h = h->next)
        add_heap(f, h);
    rmw_add(&hak_region_use.readers, -1u);
    for (unsigned c = 0; c < TUNED_CLASSES; c++) {
        struct stats_row *row = &f->ledger[c];
        add_row(row, &hak_ledger_ended[c]);
        row->blocks = (int64_t)row->blocks < 0 ? 0 : row->blocks; /* lists may seem longer than what was taken */
    }
    for (unsigned i = 0; i < RING_CLASSES; i++)
        f->ledger[TINY_CLASSES + i].hits += load_relaxed(&hak_ring_hits_ended[i]);
    for (unsigned i = 0; i < REGION_TABLES; i++)
        f->metadata += (int64_t)table_resident(f, region_table(i), SUPERSLAB_SLOTS * sizeof(struct slab));
    struct region_range secure = span_table();
    if (secure.begin != NULL)
        f->metadata += (int64_t)table_resident(f, secure, SUPERSLAB_SLOTS * sizeof(struct slab));
    for (unsigned i = 0; i < TERM_COUNT; i++)
        f->total += f->term[i];
    f->retained = f->partly_used_slabs + f->thread_caches + f->empty_slots + f->lazy + f->huge_rounding;
    f->empty_max = retain_bound_bytes();
#ifdef HAK_CHECKED
    f->counters[COUNT_atomic_rmw] += rmw_count;
#endif
}

_Static_assert(sizeof(struct heap_figures) <= SCRATCH_BYTES, "the figures fit");
struct heap_figures *stats_begin(bool asks) {
    struct heap_figures *f = scratch_take();
    if (f != NULL)
        stats_collect(f, asks);
    else
        text_line("hakmem: no memory for the figures");
    return f;
}

void stats_end(struct heap_figures *f) { scratch_give(f); }

/* ---- arenas ---- */

/* The first arena from `number` on. Returns the number behind it; 0: there is none. */
static uint32_t next_arena(uint32_t number, struct arena_seen *arena) {
    for (; number <= arenas_made(); number++)
        if (arena_see(number, arena))
            return number + 1;
    return 0;
}

/* ---- text ---- */

static void put_term(struct text *t, unsigned term, const struct heap_figures *f) {
    uint64_t bytes = (uint64_t)f->term[term], total = (uint64_t)(f->total > 0 ? f->total : 1);
    text_cell(t, 24, "  %s", term_table[term].label);
    text_cell(t, 13, "%b", bytes);
    text_cell(t, 8, "%u %%", bytes * 100 / total);
    text_format(t, "%s\n", term_table[term].help);
}

static void put_page_cost(struct text *t) {
    struct page_cost_seen seen = page_cost_seen();
    if (seen.small_ns != 0)
        text_format(t, "  2 MiB in small pages cost %u us", seen.small_ns / 1000);
    if (seen.huge_ns != 0)
        text_format(t, ", a huge page %u us", seen.huge_ns / 1000);
    if (seen.small_ns != 0)
        text_format(t, "; of %u timed huge pages %u did not pay\n", seen.timed, seen.dear);
    if (load_relaxed(&hak_region_use.folios) == FOLIOS_USED)
        text_string(t, "  slots come in one page fault each, beyond the first 16 MiB\n");
}

static void put_nodes(struct text *t) {
    for (unsigned node = 0; hak_region.nodes > 1 && node < hak_region.nodes; node++)
        text_format(t, "%s NUMA node %u has %b of slots", node == 0 ? " " : ",", (uint64_t)node,
                    (uint64_t)superslab_slots_of_node(node) * SLOT_BYTES);
    text_string(t, hak_region.nodes > 1 ? "\n" : "");
}

static uint64_t allocations_of(const struct heap_figures *f, unsigned c) {
    const struct stats_row *row = &f->ledger[c];
    return c < TINY_CLASSES ? row->blocks : row->hits + row->misses;
}

/* What each class allocated, and what found a block in the thread's list or ring. */
static void put_hits(struct text *t, const struct heap_figures *f) {
    text_string(t, "  blocks of       allocations  misses      hits      held by threads\n");
    for (unsigned c = 0; c < TUNED_CLASSES; c++) {
        uint64_t all = allocations_of(f, c), misses = min_size(f->ledger[c].misses, all);
        if (all == 0)
            continue;
        uint64_t permille = (all - misses) * 1000 / all;
        text_cell(t, 18, "    %u", (uint64_t)tuned_bytes(c));
        text_cell(t, 13, "%u", all);
        text_cell(t, 12, "%u", misses);
        text_cell(t, 10, "%u.%u %%", permille / 10, permille % 10);
        text_format(t, "%b\n", f->ledger[c].held_bytes);
    }
}

static void put_figures(struct text *t, const struct heap_figures *f) {
    const char *program = os_program(), *slash = strrchr(program, '/');
    text_format(t, "hakmem %s, process %u (%s): %b resident in the heap%s\n", HAKMEM_VERSION, (uint64_t)os_process(),
                slash != NULL ? slash + 1 : program, (uint64_t)f->total,
                f->pages.asks ? "" : ", untouched pages of its slots included");
    for (unsigned i = 0; i < TERM_COUNT; i++)
        put_term(t, i, f);
    if (f->untouched != 0)
        text_format(t, "  not resident: %b of blocks that the program holds and never touched\n",
                    (uint64_t)f->untouched);
    text_format(t, "  SuperSlabs %u in use, %u at most; heaps %u, of them %u in use\n", (uint64_t)f->pool.superslabs,
                (uint64_t)f->pool.superslabs_peak, (uint64_t)f->heaps, (uint64_t)f->heaps_in_use);
    text_format(t, "  free, but resident: %b in all; EMPTY slots may keep ", (uint64_t)f->retained);
    text_format(t, f->empty_max != SIZE_MAX ? "%b\n" : "any number\n", (uint64_t)f->empty_max);
    put_page_cost(t);
    put_nodes(t);
    tuner_put_text(t);
    struct arena_seen arena;
    for (uint32_t number = 1; (number = next_arena(number, &arena)) != 0; text_string(t, "\n")) {
        text_format(t, "  arena \"%s\": %b in use, %b at most", arena.name, (uint64_t)arena.use.used_bytes,
                    (uint64_t)arena.use.peak_bytes);
        if (arena.use.limit_bytes != 0)
            text_format(t, " of %b", (uint64_t)arena.use.limit_bytes);
    }
    put_hits(t, f);
    text_string(t, "  counters\n");
    for (unsigned c = 0; c < COUNTER_COUNT; c++) {
        if (f->counters[c] == 0)
            continue;
        text_cell(t, 30, "    %s", counter_names[c]);
        text_cell(t, 12, "%u", f->counters[c]);
        text_format(t, "%s\n", counter_help[c]);
    }
}

void stats_print(int fd, bool asks) {
    struct heap_figures *f = stats_begin(asks);
    if (f == NULL)
        return;
    struct text t = {f->text, sizeof f->text, 0, fd};
    put_figures(&t, f);
    text_flush(&t);
    stats_end(f);
}

/* ---- JSON, XML ---- */

static void put_arenas(struct text *t) {
    struct arena_seen arena;
    bool any = false;
    text_string(t, "\"arenas\":[");
    for (uint32_t number = 1; (number = next_arena(number, &arena)) != 0; any = true) {
        text_format(t, "%s{\"name\":%j,\"used_bytes\":%u,\"peak_bytes\":%u", any ? "," : "", arena.name,
                    (uint64_t)arena.use.used_bytes, (uint64_t)arena.use.peak_bytes);
        if (arena.use.limit_bytes != 0)
            text_format(t, ",\"limit_bytes\":%u", (uint64_t)arena.use.limit_bytes);
        text_string(t, "}");
    }
    text_string(t, "],");
}

static void put_misses(struct text *t, const struct heap_figures *f, unsigned c) {
    const struct stats_row *row = &f->ledger[c];
    text_format(t, "\"held_bytes\":%u,\"allocations\":%u,\"misses\":%u", row->held_bytes, allocations_of(f, c),
                row->misses);
    if (row->timed != 0)
        text_format(t, ",\"timed_misses\":%u,\"miss_ns\":%u", row->timed, row->ns / row->timed);
    text_string(t, "}");
}

static void put_tiny_classes(struct text *t, const struct heap_figures *f) {
    bool any = false;
    text_string(t, "\"tiny_classes\":[");
    for (unsigned c = 0; c < TINY_CLASSES; c++) {
        if (f->tiny_live[c] + f->tiny_free[c] + f->ledger[c].misses == 0)
            continue;
        text_format(t, "%s{\"block_bytes\":%u,\"live_bytes\":%u,\"free_bytes\":%u,", any ? "," : "",
                    (uint64_t)size_classes[c].block_bytes, (uint64_t)f->tiny_live[c], (uint64_t)f->tiny_free[c]);
        any = true;
        put_misses(t, f, c);
    }
    text_string(t, "],");
}

/* Mid classes, then large blocks by slots. */
static void put_rings(struct text *t, const struct heap_figures *f) {
    bool any = false;
    text_string(t, "\"rings\":[");
    for (unsigned c = TINY_CLASSES; c < TUNED_CLASSES; c++) {
        if (allocations_of(f, c) == 0)
            continue;
        text_format(t, "%s{\"block_bytes\":%u,\"refilled_blocks\":%u,", any ? "," : "", (uint64_t)tuned_bytes(c),
                    f->ledger[c].blocks);
        any = true;
        put_misses(t, f, c);
    }
    text_string(t, "],");
}

/* Frees of tiny blocks. What is not live any more was freed: as a hit, if no slow path saw it. */
static void put_frees(struct text *t, const struct heap_figures *f) {
    uint64_t allocations = 0, live = 0, others = f->counters[COUNT_free_remote] + f->counters[COUNT_free_on_loan];
    for (unsigned c = 0; c < TINY_CLASSES; c++) {
        allocations += f->ledger[c].blocks;
        live += f->tiny_live[c] / size_classes[c].block_bytes;
    }
    live = min_size(live, allocations);
    text_format(t, "\"tiny\":{\"allocations\":%u,\"allocations_per_superslab\":%u,\"frees_local\":%u,", allocations,
                allocations / max_size(f->pool.superslabs_peak, 1),
                allocations - live - min_size(others, allocations - live));
    text_format(t, "\"frees_remote\":%u,\"frees_on_loan\":%u},", f->counters[COUNT_free_remote],
                f->counters[COUNT_free_on_loan]);
}

static void put_json_nodes(struct text *t) {
    text_string(t, "\"nodes\":[");
    for (unsigned node = 0; node < hak_region.nodes; node++)
        text_format(t, "%s{\"slot_bytes\":%u}", node != 0 ? "," : "",
                    (uint64_t)(superslab_slots_of_node(node) * SLOT_BYTES));
    text_string(t, "],");
}

static void put_json(struct text *t, const struct heap_figures *f) {
    uintptr_t begin, end;
    region_extent(&begin, &end);
    text_format(t, "{\"version\":\"%s\",\"pid\":%u,\"program\":%j,", HAKMEM_VERSION, (uint64_t)os_process(),
                os_program());
    text_format(t, "\"region\":{\"begin\":\"%x\",\"end\":\"%x\"},\"rss_bytes\":{", begin, end);
    for (unsigned i = 0; i < TERM_COUNT; i++)
        text_format(t, "\"%s\":%d,", term_table[i].name, f->term[i]);
    text_format(t, "\"total\":%d},\"retained_bytes\":{", f->total);
    if (f->empty_max != SIZE_MAX)
        text_format(t, "\"empty_slots_max\":%u,", (uint64_t)f->empty_max);
    text_format(t, "\"total\":%d},\"untouched_bytes\":%d,", f->retained, f->untouched);
    struct page_cost_seen seen = page_cost_seen();
    text_format(t, "\"huge_pages\":{\"timed\":%u,\"dear\":%u,\"huge_page_ns\":%u,", seen.timed, seen.dear,
                seen.huge_ns);
    text_format(t, "\"small_pages_ns\":%u,\"folios\":%u},", seen.small_ns,
                (uint64_t)(load_relaxed(&hak_region_use.folios) == FOLIOS_USED));
    text_format(t, "\"superslabs\":%u,\"superslabs_peak\":%u,\"heaps\":%u,\"heaps_in_use\":%u,",
                (uint64_t)f->pool.superslabs, (uint64_t)f->pool.superslabs_peak, (uint64_t)f->heaps,
                (uint64_t)f->heaps_in_use);
    put_tiny_classes(t, f);
    put_rings(t, f);
    put_frees(t, f);
    put_arenas(t);
    if (hak_region.nodes > 1)
        put_json_nodes(t);
    tuner_put_json(t);
    text_string(t, "\"counters\":{");
    for (unsigned c = 0; c < COUNTER_COUNT; c++)
        text_format(t, "%s\"%s\":%u", c == 0 ? "" : ",", counter_names[c], f->counters[c]);
    text_string(t, "},\"options\":{");
    for (unsigned o = 0; o < OPTION_COUNT; o++) {
        char value[256];
        option_format((enum option)o, value, sizeof value);
        text_format(t, "%s\"%s\":%j", o == 0 ? "" : ",", option_name((enum option)o), value);
    }
    text_string(t, "}}\n");
}

void stats_put_json(struct text *t) {
    struct heap_figures *f = stats_begin(false);
    if (f == NULL) {
        text_string(t, "null");
        return;
    }
    put_json(t, f);
    stats_end(f);
}

size_t stats_json(char *buffer, size_t bytes) {
    struct heap_figures *f = stats_begin(true);
    struct text t = text_into(buffer, bytes);
    if (f != NULL) {
        put_json(&t, f);
        stats_end(f);
    }
    return text_end(&t);
}

static void put_total(struct text *t, const char *type, int64_t bytes) {
    text_format(t, "<total type=\"%s\" count=\"0\" size=\"%u\"/>\n", type, (uint64_t)bytes);
}

size_t stats_xml(struct heap_figures *f) {
    struct text t = {f->text, sizeof f->text, 0, -1};
    text_string(&t, "<malloc version=\"1\">\n");
    for (unsigned i = 0; i < TERM_COUNT; i++)
        put_total(&t, term_table[i].name, f->term[i]);
    text_format(&t, "<system type=\"current\" size=\"%u\"/>\n</malloc>\n", (uint64_t)f->total);
    return min_size(t.length, sizeof f->text);
}

/* ---- at exit ---- */

static struct os_kept stats_fd; /* from the start: programs close the standard error */
static bool wanted_at_start;

static struct end_file stats_at_end = {{-1, 0, 0}, 0};

HAK_AT_START void stats_init(void) {
    const char *pattern = option_text(OPT_STATS_FILE);
    if (option(OPT_STATS) == STATS_OFF)
        return;
    stats_fd = os_keep_output(2);
    wanted_at_start = true;
    if (*pattern != '\0')
        text_open_end_file(&stats_at_end, pattern);
}

uint64_t stats_write(enum output_name name, uint64_t number) {
    struct heap_figures *f = option(OPT_STATS) != STATS_OFF ? stats_begin(false) : NULL;
    if (f == NULL)
        return 0;
    const char *pattern = option_text(OPT_STATS_FILE);
    int file = *pattern != '\0' ? text_begin_output(&stats_at_end, pattern, name, number) : -1;
    if (*pattern != '\0' && file < 0)
        text_line("hakmem: cannot write HAKMEM_STATS_FILE=%s; using the standard error", pattern);
    int fd = file >= 0 ? file : wanted_at_start ? os_kept_at(&stats_fd, 2) : 2;
    struct text t = {f->text, sizeof f->text, 0, fd};
    if (option(OPT_STATS) == STATS_TEXT)
        put_figures(&t, f);
    else
        put_json(&t, f);
    text_flush(&t);
    stats_end(f);
    return text_end_output(&stats_at_end, file);
}

/* ---- by class ---- */

/* Likewise, for its class. */
static size_t add_to_class(struct hak_class_use *classes, size_t room, size_t slot) {
    struct span_use use = use_of(slot);
    size_t c = min_size(use.class_id, CLASSES);
    if (!use.is_in_pool && c < room) {
        classes[c].slabs++;
        classes[c].slab_bytes += use.slots * SLOT_BYTES;
        classes[c].live_bytes += use.out_bytes + use.cached_bytes;
        classes[c].held_bytes += use.out_bytes + use.cached_bytes + use.listed_bytes;
    }
    return use.slots;
}

size_t stats_classes(struct hak_class_use *classes, size_t room) {
    for (size_t c = 0; c < min_size(room, CLASSES + 1); c++) {
        classes[c] = (struct hak_class_use){0};
        if (c < CLASSES)
            classes[c].block_bytes = size_classes[c].block_bytes, classes[c].slab_blocks = size_classes[c].blocks;
    }
    if (region_init())
        for (size_t slot = 0; (slot = superslab_next_active(slot)) != BITSET_NONE;)
            slot += add_to_class(classes, room, slot);
    return CLASSES + 1;
}
