/* See pages.h. */
/* SPDX-License-Identifier: MIT */
#include "heap/pages.h"
#include "blocks/inbox.h"
#include "pool/retain.h"
#include "process/hooks.h"
#include "process/presence.h"
#include "space/arena_space.h"
#include "space/purge.h"

#include <string.h>

#define LOOKS_AT_ONCE 2     /* slabs are noted more than once for each that is looked at, so that the looks catch up */
#define LOOKS_AS_GROWN 1024 /* at once, at most */
#define MERGE_AFTER_LOOKS 512 /* half of the slabs that a pass may hold */
/* The share of what a tiny slab has resident that makes the calls worth it (TRIM_BUSY). `phases` takes 193 million
 * instructions without looks, 222 with a quarter, 210 with a third and 203 with half. But where one block of 64 bytes
 * in 100 stays, 73 of 112 MB stay with half, and 61 with a third. */
#define TRIM_WORTH_SHARE 3

/* ---- slabs that changed ---- */

/* Where the next look of a freeing thread begins: a slot, and a hint. */
static HAK_APART _Atomic size_t look_from;

/* Gives back the slab's free pages, forgets the note, and returns how many there were. */
static size_t look_at(struct heap *h, size_t slot, enum trim how) {
    struct slab *s = slab_of_slot(slot);
    superslab_forget_changed(slot / SUPERSLAB_SLOTS, 1u << slot % SUPERSLAB_SLOTS);
    size_t (*trim_slab)(struct heap * h, struct slab * s, enum trim how) = kind_of(s)->trim_slab;
    size_t pages = trim_slab != NULL ? trim_slab(h, s, how) : 0; /* NULL: it has ended */
    if (pages != 0)
        purge_shrank_inside(&h->client, pages);
    return pages;
}

/* Has nobody allocated from the slab since the last call? */
static bool is_idle(struct slab *s) {
    bool idle = load_relaxed(&s->idle_looks) != 0;
    store_relaxed(&s->idle_looks, 1);
    return idle;
}

void pages_changed(struct heap *h, struct slab *s, bool look) {
    superslab_note_changed(slot_of(s));
    if (look)
        pages_look_in_turn(h);
}

/* Looks at noted slabs: with TRIM_BUSY while more are noted than may be, with TRIM_IDLE at those that nobody allocated
 * from between two looks, once at most. */
static void look_in_turn(struct heap *h, unsigned looks, enum trim how) {
    for (; looks > 0 && (how == TRIM_IDLE || !retain_may_note(account_changed_slabs())); looks--) {
        size_t slot = superslab_next_changed(load_relaxed(&look_from));
        if (slot == BITSET_NONE && (how == TRIM_IDLE || (slot = superslab_next_changed(0)) == BITSET_NONE)) {
            store_relaxed(&look_from, 0);
            return;
        }
        store_relaxed(&look_from, slot + 1);
        if ((how == TRIM_BUSY || is_idle(slab_of_slot(slot))) && space_may_trim(&h->client, slot / SUPERSLAB_SLOTS))
            look_at(h, slot, how);
        if (++h->looks % MERGE_AFTER_LOOKS == 0 && hooks_mesh_on())
            h->client.due.chores |= CHORE_MERGE;
    }
}

/* The heap that threads without a heap share owns nothing, or each of them would take the slab for its own. */
void pages_look_in_turn(struct heap *h) {
    if (PROVEN(look_shared, !!h->client.is_shared))
        return;
    if (!presence_has_purger() || (h->client.arena != 0 && !h->client.is_lane)) /* the purger looks at no arena */
        look_in_turn(h, LOOKS_AT_ONCE, TRIM_BUSY);
}

void pages_look_as_grown(struct heap *h) { look_in_turn(h, LOOKS_AS_GROWN, TRIM_IDLE); }

void pages_forget(const struct slab *s) {
    account_count_inside(-(ptrdiff_t)(count_bits(slab_purged(s)) * os_page_bytes()));
    retain_trimmed_early();
}

void pages_look(struct heap *h) {
    for (size_t slot = 0; (slot = superslab_next_changed(slot)) != BITSET_NONE; slot++)
        if (is_idle(slab_of_slot(slot)) && space_may_trim(&h->client, slot / SUPERSLAB_SLOTS))
            look_at(h, slot, TRIM_IDLE);
}

size_t pages_trim_all(struct heap *h, struct superslab_range in, bool all) {
    size_t pages = 0;
    for (unsigned i = 0; kinds[i] != NULL; i++)
        if (kinds[i]->trim != NULL && kind_serves(kinds[i]))
            pages += kinds[i]->trim(h, in, all);
    count_add(&h->client.counters, COUNT_trimmed_pages, pages);
    for (size_t slot = 0; (slot = space_next_to_trim(&h->client, slot, in)) != BITSET_NONE; slot++)
        if (is_idle(slab_of_slot(slot)) || all)
            pages += look_at(h, slot, all ? TRIM_ALL : TRIM_IDLE);
    return pages;
}

/* ---- which pages are free ---- */

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

/* Marks the blocks that touch these pages as free or not, and returns how many there are. */
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
    return s->tiny.page_flags & PAGES_TAIL ? (uint32_t)(all & ~low_bits((unsigned)carved)) : 0;
}

bool pages_trim_pays(const struct slab *s, enum trim how) {
    size_t page = os_page_bytes(), bytes = size_classes[slab_class(s)].block_bytes;
    unsigned listed = slab_listed(s) + inbox_waiting(s);
    bool lazy = s->tiny.page_flags & PAGES_LAZY && slab_purged(s) != 0 && (how == TRIM_ALL || !retain_is_lazy());
    return page < SLOT_BYTES && !(s->tiny.page_flags & PAGES_LOST) &&
           (lazy || listed * bytes + count_bits(tail_pages(s, bytes)) * page >= page);
}

/* Before `pages` are purged: the blocks that touch them leave the slab's list. */
static void unlist_pages(struct slab *s, struct slab_map *map, uint32_t pages, size_t bytes) {
    store_relaxed(&s->tiny.purged_pages, slab_purged(s) | pages);
    account_count_inside((ptrdiff_t)(count_bits(pages) * os_page_bytes()));
    s->tiny.purged_blocks = (uint16_t)mark_pages(map, slab_purged(s), bytes, false);
    slab_set_hits(s);
    uintptr_t list = slab_terminator(s); /* the list anew, of the blocks that stay, the highest pushed first */
    for (unsigned i = slab_carved(s); i-- > 0;)
        if (map->free[i / 64] >> (i % 64) & 1) {
            uintptr_t block = (uintptr_t)slab_address(s) + i * bytes;
            block_link(block, list);
            list = block;
        }
    store_relaxed(&s->tiny.list, list);
}

/* Do all blocks of the page look free? Most blocks are not read, as one that is out ends the look. */
HAK_READS_PROGRAM_BYTES static bool page_looks_free(const struct slab *s, size_t block_bytes, unsigned i) {
    size_t page = os_page_bytes();
    uintptr_t slab = (uintptr_t)slab_address(s), begin = slab + i * page, end = begin + page;
    uintptr_t block = slab + i * page / block_bytes * block_bytes;
    if (slab_purged(s) >> i & 1)
        return false;
    if (block < begin && slab_purged(s) >> (i - 1) & 1)
        block += block_bytes; /* its link lies in a purged page, which a look would bring back */
    while (block < end && block_looks_free(s, block))
        block += block_bytes;
    return block >= end;
}

/* Do all blocks of at least `wanted` pages look free? */
static bool pages_look_free(const struct slab *s, size_t block_bytes, unsigned wanted) {
    unsigned left = (unsigned)(slab_carved(s) * block_bytes / os_page_bytes());
    for (unsigned i = 0; wanted != 0 && wanted <= left; i++, left--)
        wanted -= page_looks_free(s, block_bytes, i);
    return wanted == 0;
}

static bool touches(uint32_t pages, size_t offset, size_t bytes) {
    size_t page = os_page_bytes();
    return (pages >> offset / page | pages >> (offset + bytes - 1) / page) & 1;
}

/* Marks the blocks that look free. True: they are those of the list, as there are as many, and the sum of their links
 * is that of links to all of them except the first, and to the end. Reads in address order, which the caches foresee:
 * following the links takes ten times as long in a slab that is not in the cache. */
HAK_READS_PROGRAM_BYTES static bool map_by_looks(const struct slab *s, struct slab_map *map) {
    size_t bytes = size_classes[slab_class(s)].block_bytes, offset = 0;
    uintptr_t slab = (uintptr_t)slab_address(s), key = slab ^ hak_region.key, links = 0, offsets = 0;
    uint32_t purged = slab_purged(s), mark = s->tiny.link_mark;
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
    return n == slab_listed(s) &&
           links == offsets - (load_relaxed(&s->tiny.list) - slab) + 1; /* 1: of the terminator */
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
    for (uintptr_t block = load_relaxed(&s->tiny.list); !is_terminator(block); block = block_next(block))
        map->free[(block & (SLOT_BYTES - 1)) / bytes / 64] |= (uint64_t)1 << (block & (SLOT_BYTES - 1)) / bytes % 64;
    return true;
}

static size_t purge_runs(const struct slab *s, uint32_t pages, bool lazy) {
    size_t page = os_page_bytes(), purged = 0;
    while (pages != 0) {
        unsigned start = lowest_bit(pages), n = lowest_bit(~(uint64_t)(pages >> start));
        purged += purge_pages(slab_address(s) + start * page, n * page, lazy) ? n : 0;
        pages &= ~(uint32_t)(low_bits(n) << start);
    }
    return purged;
}

/* Keeps the first of the pages, just purged, apart. If they are lost, all purged blocks count as out for good. */
static void keep_apart(struct slab *s, uint32_t pages) {
    size_t page = os_page_bytes();
    unsigned start = lowest_bit(pages), n = lowest_bit(~(uint64_t)(pages >> start));
    if (likely(purge_keep_apart(slab_address(s) + start * page, n * page)))
        return;
    s->tiny.page_flags |= PAGES_LOST;
    s->tiny.floor = (uint16_t)(s->tiny.floor + s->tiny.purged_blocks);
    s->tiny.purged_blocks = 0;
}

/* Not inlined: its map is large, and its callers go on to the pool. `rest`: pages of no block in the list. */
HAK_NOINLINE static size_t trim(struct slab *s, uint32_t rest, bool lazy) {
    struct slab_map map;
    size_t bytes = size_classes[slab_class(s)].block_bytes;
    if (!map_list(s, &map))
        return 0;
    mark_pages(&map, slab_purged(s), bytes, true);
    uint32_t pages = free_pages(s, &map, bytes);
    if ((pages | rest) == 0)
        return 0;
    if (pages != 0 && slab_purged(s) == 0)
        retain_trimmed_first();
    if (pages != 0)
        unlist_pages(s, &map, pages, bytes);
    s->tiny.page_flags = lazy ? PAGES_LAZY : 0;
    /* refused: the blocks are linked again when they are wanted, all the same */
    size_t purged = purge_runs(s, pages | rest, lazy);
    if (purged != 0 && pages != 0 && !lazy)
        keep_apart(s, pages);
    return purged;
}

size_t pages_trim(struct slab *s, enum trim how) {
    size_t bytes = size_classes[slab_class(s)].block_bytes;
    bool lazy = how != TRIM_ALL && retain_is_lazy();
    if (!pages_trim_pays(s, how))
        return 0;
    uint32_t rest = tail_pages(s, bytes) | (s->tiny.page_flags & PAGES_LAZY && !lazy ? slab_purged(s) : 0);
    unsigned resident = (unsigned)(SLOT_BYTES / os_page_bytes()) - count_bits(slab_purged(s));
    unsigned worth = how == TRIM_BUSY ? (resident + TRIM_WORTH_SHARE - 1) / TRIM_WORTH_SHARE : 1;
    return how == TRIM_ALL || rest != 0 || pages_look_free(s, bytes, worth) ? trim(s, rest, lazy) : 0;
}

HAK_NOINLINE unsigned pages_lost_blocks(const struct slab *s, size_t block_bytes) {
    struct slab_map map;
    memset(&map, 0, sizeof map);
    uint32_t pages = slab_purged(s) & (uint32_t)low_bits((unsigned)(SLOT_BYTES / os_page_bytes()));
    return mark_pages(&map, pages, block_bytes, true);
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
