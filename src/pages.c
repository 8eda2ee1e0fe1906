/* See pages.h. */
/* SPDX-License-Identifier: MIT */
#include "pages.h"
#include "inbox.h"
#include "purge.h"
#include "retain.h"

#include <string.h>

struct slab_map {
    uint64_t free[SLOT_BYTES / 8 / 64]; /* bit i: block i is free */
};

static bool range_is_free(const struct slab_map *map, unsigned first, unsigned end) {
    for (unsigned i = first; i < end; i++)
        if (!(map->free[i / 64] >> (i % 64) & 1))
            return false;
    return true;
}

static void mark_range(struct slab_map *map, unsigned first, unsigned end, bool free) {
    for (unsigned i = first; i < end; i++)
        map->free[i / 64] = (map->free[i / 64] & ~((uint64_t)1 << i % 64)) | (uint64_t)free << i % 64;
}

/* Calls for each run of pages in `pages` what its blocks are. */
static unsigned mark_pages(struct slab_map *map, uint32_t pages, size_t block_bytes, bool free) {
    size_t page = os_page_bytes();
    unsigned blocks = 0;
    while (pages != 0) {
        unsigned start = lowest_bit(pages), n = lowest_bit(~(uint64_t)(pages >> start));
        unsigned first = (unsigned)(start * page / block_bytes);
        unsigned end = (unsigned)(((start + n) * page + block_bytes - 1) / block_bytes);
        mark_range(map, first, end, free);
        blocks += end - first;
        pages &= ~(uint32_t)(low_bits(n) << start);
    }
    return blocks;
}

/* Pages of the slab that lie wholly in free blocks and are not purged yet. */
static uint32_t free_pages(const struct slab *s, const struct slab_map *map, size_t block_bytes) {
    size_t page = os_page_bytes();
    uint32_t pages = 0;
    for (unsigned i = 0; (i + 1) * page <= slab_carved(s) * block_bytes; i++) {
        unsigned first = (unsigned)(i * page / block_bytes);
        unsigned end = (unsigned)(((i + 1) * page + block_bytes - 1) / block_bytes);
        if (!(slab_purged(s) >> i & 1) && range_is_free(map, first, end))
            pages |= 1u << i;
    }
    return pages;
}

/* Pages with nothing carved that may be resident. */
static uint32_t tail_pages(const struct slab *s, size_t block_bytes) {
    size_t page = os_page_bytes(), carved = (slab_carved(s) * block_bytes + page - 1) / page;
    uint64_t all = low_bits((unsigned)(SLOT_BYTES / page));
    return s->page_flags & PAGES_TAIL ? (uint32_t)(all & ~low_bits((unsigned)carved)) : 0;
}

/* Can so much be given back that it is worth a look? What was listed at the last look was looked through then. Of another
 * thread's slab the caller has a snapshot. */
bool pages_trim_pays(const struct slab *s, bool all) {
    size_t page = os_page_bytes(), bytes = size_classes[slab_class(s)].block_bytes;
    unsigned listed = slab_listed(s) + inbox_waiting(s);
    unsigned known = load_relaxed(&s->idle_passes) > 1 && !all ? (unsigned)min_size(s->trimmed_at, listed) : 0;
    uint32_t tail = tail_pages(s, bytes);
    bool lazy = s->page_flags & PAGES_LAZY && slab_purged(s) != 0 && (all || !retain_is_lazy());
    return page < SLOT_BYTES && (lazy || (listed - known) * bytes + count_bits(tail) * page >= page);
}

/* `pages` of the slab, which lie in blocks of its list, are to be purged: their blocks leave it. */
static void unlist_pages(struct slab *s, struct slab_map *map, uint32_t pages, size_t bytes) {
    store_relaxed(&s->purged_pages, slab_purged(s) | pages);
    s->purged_blocks = (uint16_t)mark_pages(map, slab_purged(s), bytes, false);
    slab_set_hits(s);
    uintptr_t list = slab_terminator(s); /* the list anew, highest block first pushed, of those that stay */
    for (unsigned i = slab_carved(s); i-- > 0;)
        if (map->free[i / 64] >> (i % 64) & 1) {
            uintptr_t block = (uintptr_t)slab_address(s) + i * bytes;
            block_link(block, list);
            list = block;
        }
    store_relaxed(&s->list, list);
}

/* How many pages' blocks all look as if they were free. Most blocks are not read, as one that is out ends the look at its page. */
HAK_READS_PROGRAM_BYTES static unsigned pages_that_look_free(const struct slab *s, size_t block_bytes) {
    size_t page = os_page_bytes(), carved = slab_carved(s) * block_bytes;
    uintptr_t slab = (uintptr_t)slab_address(s);
    unsigned pages = 0;
    for (unsigned i = 0; (i + 1) * page <= carved; i++) {
        if (slab_purged(s) >> i & 1)
            continue;
        uintptr_t begin = slab + i * page, end = begin + page;
        uintptr_t block = slab + i * page / block_bytes * block_bytes;
        if (block < begin && slab_purged(s) >> (i - 1) & 1)
            block += block_bytes; /* its link lies in a purged page, which a look would bring back */
        while (block < end && block_looks_free(s, block))
            block += block_bytes;
        pages += block >= end;
    }
    return pages;
}

static bool touches(uint32_t pages, size_t offset, size_t bytes) {
    size_t page = os_page_bytes();
    return (pages >> offset / page | pages >> (offset + bytes - 1) / page) & 1;
}

/* Marks the blocks that look free. True: they are those of the list, as there are as many, and their links lead to all of them
 * but the first, together, and to the end. In address order, which the caches foresee: following the links takes ten times as
 * long in a slab that is not in the cache. */
HAK_READS_PROGRAM_BYTES static bool map_by_looks(const struct slab *s, struct slab_map *map) {
    size_t bytes = size_classes[slab_class(s)].block_bytes, offset = 0;
    uintptr_t slab = (uintptr_t)slab_address(s), key = slab ^ hak_region.key, links = 0, offsets = 0;
    uint32_t purged = slab_purged(s), mark = s->link_mark;
    unsigned n = 0;
    for (unsigned i = 0, end = slab_carved(s); i < end; i++, offset += bytes) {
        if (purged != 0 && touches(purged, offset, bytes)) /* in no list; to look would bring the page back */
            continue;
        uintptr_t link = *(const volatile uintptr_t *)block_word(slab + offset);
        if (upper_half(link) != mark)
            continue;
        map->free[i / 64] |= (uint64_t)1 << i % 64;
        links += link ^ key;
        offsets += offset;
        n++;
    }
    return n == slab_listed(s) && links == offsets - (load_relaxed(&s->list) - slab) + 1; /* 1: of the terminator */
}

/* Marks the blocks in the slab's list. False: it has failed. */
static bool map_list(struct slab *s, struct slab_map *map) {
    size_t bytes = size_classes[slab_class(s)].block_bytes;
    memset(map, 0, sizeof *map);
    if (map_by_looks(s, map))
        return true;
    if (!slab_list_is_sound(s))
        return false;
    memset(map, 0, sizeof *map);
    for (uintptr_t block = load_relaxed(&s->list); !is_terminator(block); block = block_next(block))
        map->free[(block & (SLOT_BYTES - 1)) / bytes / 64] |= (uint64_t)1 << (block & (SLOT_BYTES - 1)) / bytes % 64;
    return true;
}

/* Not inlined, because trim's frame is large already. */
HAK_NOINLINE static bool purge_pages(const struct slab *s, uint32_t pages, bool lazy) {
    struct os_range range[SLOT_BYTES / 4096 / 2];
    size_t page = os_page_bytes();
    unsigned ranges = 0;
    while (pages != 0) {
        unsigned start = lowest_bit(pages), n = lowest_bit(~(uint64_t)(pages >> start));
        range[ranges++] = (struct os_range){slab_address(s) + start * page, n * page};
        pages &= ~(uint32_t)(low_bits(n) << start);
    }
    return purge_ranges(range, ranges, lazy);
}

/* Not inlined: its map is large, and its callers go on to the pool. `runs`: pages without a free neighbour are not worth a call. */
HAK_NOINLINE static size_t trim(struct slab *s, bool all, bool runs, bool lazy) {
    struct slab_map map;
    size_t bytes = size_classes[slab_class(s)].block_bytes;
    if (!pages_trim_pays(s, all) || !map_list(s, &map))
        return 0;
    store_relaxed(&s->idle_passes, 2);
    s->trimmed_at = (uint16_t)slab_listed(s);
    mark_pages(&map, slab_purged(s), bytes, true);
    uint32_t pages = free_pages(s, &map, bytes), rest = tail_pages(s, bytes);
    if (runs)
        pages &= pages << 1 | pages >> 1;
    if (s->page_flags & PAGES_LAZY && !lazy)
        rest |= slab_purged(s);
    if ((pages | rest) == 0)
        return 0;
    if (pages != 0)
        unlist_pages(s, &map, pages, bytes);
    s->trimmed_at = (uint16_t)slab_listed(s);
    s->page_flags = lazy ? PAGES_LAZY : 0;
    /* refused: the blocks are linked again when they are wanted, all the same */
    return purge_pages(s, pages | rest, lazy) ? count_bits(pages | rest) : 0;
}

size_t pages_trim(struct slab *s, bool all) { return trim(s, all, false, !all && retain_is_lazy()); }

size_t pages_trim_thin(struct slab *s) {
    size_t bytes = size_classes[slab_class(s)].block_bytes;
    unsigned pages = pages_that_look_free(s, bytes) + count_bits(tail_pages(s, bytes));
    size_t all = SLOT_BYTES / os_page_bytes(), min = slab_used(s) > THIN_BLOCKS ? all - all / 4 : all / 2;
    return pages >= min ? trim(s, true, true, retain_is_lazy()) : 0;
}

HAK_NOINLINE unsigned pages_live(struct slab *s, uint64_t *live) {
    struct slab_map map;
    unsigned n = 0;
    if (!map_list(s, &map))
        return 0;
    mark_pages(&map, slab_purged(s), size_classes[slab_class(s)].block_bytes, true);
    for (unsigned i = 0; i < slab_carved(s); i += 64) {
        live[i / 64] = ~map.free[i / 64] & low_bits((unsigned)min_size(slab_carved(s) - i, 64));
        n += count_bits(live[i / 64]);
    }
    return n;
}

HAK_NOINLINE void pages_visit_live(struct slab *s, bool (*call)(void *block, size_t bytes, void *argument),
                                   void *argument) {
    struct slab_map map;
    size_t bytes = size_classes[slab_class(s)].block_bytes;
    if (!map_list(s, &map))
        return;
    mark_pages(&map, slab_purged(s), bytes, true);
    for (unsigned i = 0, end = slab_carved(s); i < end; i++)
        if (!(map.free[i / 64] >> i % 64 & 1) && !call(slab_address(s) + i * bytes, bytes, argument))
            return;
}
