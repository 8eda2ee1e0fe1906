/* See mesh.h. */
/* SPDX-License-Identifier: MIT */
#include "mesh/mesh.h"
#include "arena/arena_space.h"
#include "base/options.h"
#include "base/os.h"
#include "inbox.h"
#include "kinds.h"
#include "mesh/meshed.h"
#include "outbox.h"
#include "pages.h"
#include "purge.h"
#include "slab.h"

#include <string.h>

#define BOX_NS 20000000 /* of merging, in a thread that may have something else to do */
#define SPARSE_SHARE 4  /* of the blocks may be live: of fuller slabs hardly two pages fit together */
enum { HELD_MAX = 512, GROUPS_MAX = 4096, MEMBERS_MAX = 32, GRAIN_BYTES = 16, GRAIN_WORDS = GRAIN_BYTES / 8 };
enum { PAGE_WORDS = MESH_PAGE_BYTES / GRAIN_BYTES / 64 };

struct group {
    uint64_t used[PAGE_WORDS]; /* bit i: a member covers the page's grain i */
    unsigned members;
    struct member {
        uint16_t held; /* number of the slab in the pass */
        uint8_t page;
    } member[MEMBERS_MAX];
};

struct held {
    struct slab *slab;
    unsigned blocks;                           /* live */
    uint16_t used_pages, shared_pages, merged; /* bit i: page i has live blocks; has partners; is merged */
    uint64_t live[MESHED_BLOCKS_MAX / 64];
};

struct mesh_pass {
    struct heap *heap;
    struct os_hold hold;
    bool all; /* slabs, whatever time that takes */
    unsigned slabs, groups;
    struct held held[HELD_MAX];
    struct group group[GROUPS_MAX];
    uint64_t merged[MESH_PAGE_BYTES / 8]; /* the group's page */
};

/* ---- which slabs ---- */

/* Blocks that wait in the inbox are free, but nobody who looks from outside can tell them from others: slab_drain_inbox. */
static bool is_sparse(const struct slab *s) {
    unsigned blocks = size_classes[slab_class(s)].blocks;
    return blocks <= MESHED_BLOCKS_MAX && slab_used(s) <= blocks / SPARSE_SHARE;
}

/* The slab becomes this heap's, on no list. False: it is not to be meshed, or it is gone. */
static bool take_over(struct heap *h, struct slab *s, bool all) {
    struct heap *owner = load_relaxed(&s->owner);
    if (slab_kind(s) != KIND_TINY || (owner != h && owner != OWNER_NONE) ||
        (load_relaxed(&s->idle_passes) == 0 && !all))
        return false;
    if (owner == h ? (load_relaxed(&s->place) & ~(unsigned)PLACE_THIN) != PLACE_OWNED &&
                         (load_relaxed(&s->place) & ~(unsigned)PLACE_THIN) != (PLACE_OWNED | PLACE_PARTIAL)
                   : !slab_adopt(h, s))
        return false;
    slab_unlist(h, s);
    store_relaxed(&s->place, 0);
    if (load_relaxed(&s->inbox) != 0 && slab_drain_inbox(h, s))
        return false;
    if (slab_kind(s) == KIND_TINY && is_sparse(s) && slab_is_for(&h->pool, s))
        return true;
    slab_let_go(h, s);
    return false;
}

/* ---- which pages fit together ---- */

/* The grains of the page that live blocks cover. */
static void map_page(const struct held *held, unsigned page, uint64_t used[PAGE_WORDS]) {
    size_t bytes = size_classes[slab_class(held->slab)].block_bytes, grains = bytes / GRAIN_BYTES;
    size_t begin = (size_t)page * MESH_PAGE_BYTES, end = begin + MESH_PAGE_BYTES;
    memset(used, 0, PAGE_WORDS * sizeof *used);
    for (size_t i = begin / bytes; i * bytes < end && i < MESHED_BLOCKS_MAX; i++) {
        if (!(held->live[i / 64] >> i % 64 & 1))
            continue;
        for (size_t grain = i * grains; grain < (i + 1) * grains; grain++)
            if (grain * GRAIN_BYTES >= begin && grain * GRAIN_BYTES < end)
                used[grain % (PAGE_WORDS * 64) / 64] |= (uint64_t)1 << grain % 64;
    }
}

static bool overlap(const uint64_t a[PAGE_WORDS], const uint64_t b[PAGE_WORDS]) {
    uint64_t both = 0;
    for (unsigned i = 0; i < PAGE_WORDS && both == 0; i++)
        both = a[i] & b[i];
    return both != 0;
}

static bool is_none(const uint64_t used[PAGE_WORDS]) {
    uint64_t any = 0;
    for (unsigned i = 0; i < PAGE_WORDS; i++)
        any |= used[i];
    return any == 0;
}

static void join(const struct mesh_pass *p, struct group *g, struct member m) {
    uint64_t used[PAGE_WORDS];
    map_page(&p->held[m.held], m.page, used);
    for (unsigned i = 0; i < PAGE_WORDS; i++)
        g->used[i] |= used[i];
    g->member[g->members++] = m;
}

/* Puts the page into the first group where it fits. */
static void group_page(struct mesh_pass *p, unsigned held, unsigned page) {
    uint64_t used[PAGE_WORDS];
    map_page(&p->held[held], page, used);
    if (is_none(used))
        return;
    p->held[held].used_pages |= (uint16_t)(1u << page);
    struct group *g = p->group;
    while (g < p->group + p->groups && (g->members == MEMBERS_MAX || overlap(g->used, used)))
        g++;
    if (g == p->group + GROUPS_MAX)
        return;
    if (g == p->group + p->groups) {
        memset(g, 0, sizeof *g);
        p->groups++;
    }
    join(p, g, (struct member){(uint16_t)held, (uint8_t)page});
}

/* ---- merging ---- */

static char *address_of(const struct mesh_pass *p, struct member m) {
    return slab_address(p->held[m.held].slab) + (size_t)m.page * MESH_PAGE_BYTES;
}

HAK_READS_PROGRAM_BYTES static void copy_live(struct mesh_pass *p, struct member m) {
    uint64_t used[PAGE_WORDS];
    const volatile uint64_t *from = (const volatile uint64_t *)(const void *)address_of(p, m);
    map_page(&p->held[m.held], m.page, used);
    for (unsigned i = 0; i < PAGE_WORDS; i++)
        for (uint64_t left = used[i]; left != 0; left &= left - 1) {
            size_t word = (i * 64 + lowest_bit(left)) * GRAIN_WORDS;
            for (size_t end = word + GRAIN_WORDS; word < end; word++)
                p->merged[word] = from[word];
        }
}

/* The file of the group's page. -1: the system refused. */
static int write_merged(const struct mesh_pass *p) {
    int fd = os_open_memory(MESH_PAGE_BYTES);
    if (fd < 0 || os_fill_memory(fd, p->merged, MESH_PAGE_BYTES))
        return fd;
    os_close(fd);
    return -1;
}

/* The kernel took the page away and could not map the file. If there is no memory either, the blocks are lost. */
static void restore(const struct mesh_pass *p, char *at) {
    if (os_map(OS_AT, at, MESH_PAGE_BYTES) == at)
        memcpy(at, p->merged, MESH_PAGE_BYTES);
}

static bool put_merged(struct mesh_pass *p, int fd, struct member m) {
    char *at = address_of(p, m);
    if (!meshed_add_mapping())
        return false;
    bool done = os_map_copy(fd, at, MESH_PAGE_BYTES), there = done || os_is_mapped(at, MESH_PAGE_BYTES);
    if (!there)
        restore(p, at);
    if (done || !there)
        p->held[m.held].merged |= (uint16_t)(1u << m.page);
    else
        meshed_drop_mappings(1);
    os_let_write(&p->hold, at, MESH_PAGE_BYTES, done || !there);
    return done;
}

/* What was not held, or is let go of already, is let go of once more. */
static void let_go_of(struct mesh_pass *p, const struct group *g, unsigned from) {
    for (unsigned i = from; i < g->members; i++)
        os_let_write(&p->hold, address_of(p, g->member[i]), MESH_PAGE_BYTES, false);
}

static void merge(struct mesh_pass *p, const struct group *g) {
    unsigned held = 0, done = 0;
    while (held < g->members && os_hold_writes(&p->hold, address_of(p, g->member[held]), MESH_PAGE_BYTES))
        held++;
    memset(p->merged, 0, sizeof p->merged);
    for (unsigned i = 0; i < held; i++)
        copy_live(p, g->member[i]);
    int fd = held == g->members ? write_merged(p) : -1;
    while (fd >= 0 && done < g->members && put_merged(p, fd, g->member[done]))
        done++;
    let_go_of(p, g, done);
    count_add(&p->heap->pool.counters, COUNT_mesh_merged_pages, done != 0 ? done - 1 : 0);
    if (fd >= 0)
        os_close(fd);
}

/* ---- a pass ---- */

/* What is free in pages that were not merged goes back as well: nobody will allocate it. */
static void close_slab(struct mesh_pass *p, struct held *held) {
    struct slab *s = held->slab;
    uint32_t unused = (uint32_t)~held->used_pages & ~slab_purged(s) & (uint32_t)low_bits(MESH_PAGES);
    while (unused != 0) {
        unsigned first = lowest_bit(unused), n = lowest_bit(~(uint64_t)(unused >> first));
        os_advise(OS_PURGE, slab_address(s) + (size_t)first * MESH_PAGE_BYTES, (size_t)n * MESH_PAGE_BYTES);
        unused &= ~(uint32_t)(low_bits(n) << first);
    }
    purge_split_huge_page(slot_of(s) / SUPERSLAB_SLOTS);
    meshed_close(s, held->live, held->blocks, count_bits(held->merged));
    outbox_after_close(p->heap, s);
}

/* Takes pages out of the group that belong to slabs that would gain too little. */
static void prune(const struct mesh_pass *p, struct group *g) {
    unsigned kept = 0;
    for (unsigned i = 0; i < g->members; i++) {
        const struct held *held = &p->held[g->member[i].held];
        if (count_bits(held->shared_pages) * 2 > count_bits(held->used_pages))
            g->member[kept++] = g->member[i];
    }
    g->members = kept;
}

static void merge_groups(struct mesh_pass *p) {
    for (unsigned i = 0; i < p->slabs; i++)
        for (unsigned page = 0; page < MESH_PAGES; page++)
            group_page(p, i, page);
    for (const struct group *g = p->group; g < p->group + p->groups; g++)
        for (unsigned i = 0; i < g->members && g->members > 1; i++)
            p->held[g->member[i].held].shared_pages |= (uint16_t)(1u << g->member[i].page);
    uint64_t end_ns = os_now_ns() + BOX_NS;
    for (struct group *g = p->group; g < p->group + p->groups && (p->all || os_now_ns() < end_ns); g++) {
        prune(p, g);
        if (g->members > 1)
            merge(p, g);
    }
}

static void flush(struct mesh_pass *p) {
    if (p->slabs > 1 && os_hold_begin(&p->hold)) {
        merge_groups(p);
        os_hold_end(&p->hold);
    }
    for (unsigned i = 0; i < p->slabs; i++) {
        if (p->held[i].merged != 0) {
            close_slab(p, &p->held[i]);
        } else {
            meshed_cancel(p->held[i].slab);
            slab_let_go(p->heap, p->held[i].slab);
        }
    }
    p->slabs = p->groups = 0;
}

static struct mesh_pass *begin(struct heap *h, bool all) {
    size_t bytes = round_up(sizeof(struct mesh_pass), os_page_bytes());
    if (!option(OPT_MESH) || option(OPT_SECURE) || os_page_bytes() != MESH_PAGE_BYTES)
        return NULL;
    struct mesh_pass *p = os_map(OS_RESERVE, NULL, bytes);
    if (p != NULL && !os_commit(p, bytes)) {
        os_unmap(p, bytes);
        return NULL;
    }
    if (p != NULL)
        p->heap = h, p->all = all;
    return p;
}

static void look(struct mesh_pass *p, struct slab *s) {
    if (slab_kind(s) == KIND_MESHED)
        meshed_retry(p->heap, s);
    if (!take_over(p->heap, s, p->all))
        return;
    if (!meshed_reserve(s)) {
        slab_let_go(p->heap, s);
        return;
    }
    struct held *held = &p->held[p->slabs++];
    memset(held, 0, sizeof *held);
    held->slab = s;
    held->blocks = pages_live(s, held->live);
}

void mesh_slabs(struct heap *h, bool all) {
    struct mesh_pass *p = begin(h, all);
    if (p == NULL)
        return;
    for (size_t slot = 0; (slot = space_next_active(&h->pool, slot)) != BITSET_NONE; slot++) {
        look(p, slab_of_slot(slot));
        if (p->slabs < HELD_MAX)
            continue;
        if (!all) /* the rest next time: what is merged by then takes no place */
            break;
        flush(p);
    }
    flush(p);
    os_unmap(p, round_up(sizeof *p, os_page_bytes()));
}
