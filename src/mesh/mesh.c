/* Meshing, an experiment behind HAKMEM_MESH: sparse tiny slabs share pages, because blocks that do not overlap fit into
 * one page. C forbids an allocator to move a block, but not to put another page behind the block's address.
 *
 *  1. A pass runs when the whole heap is searched for free pages, and each time that a thread has looked at
 *     MESH_AFTER_LOOKS slabs that changed (pages.c). The pass takes over sparse slabs that nobody allocates from, and
 *     holds those that earlier passes closed, up to FIT_SLABS_MAX at a time.
 *  2. Pages whose live blocks do not overlap form a group. Blocks of different sizes may share a page. A map has a bit
 *     for each grain of 16 bytes of a page, set if live blocks cover the grain. Pages that share memory already are one
 *     unit, because moving some of them away gives nothing back; any other page is a unit. The fullest units go first,
 *     each into the first group where it fits.
 *  3. For each group the pass holds off writers (os_hold_writes), copies the live blocks into a file without a name,
 *     and maps the file over all the pages, privately: whoever writes there later gets a page of their own. The pass
 *     closes the file at once. The file lives as long as a process maps it, so a child of fork keeps its contents
 *     whatever its parent does.
 *  4. Merged slabs are closed (meshed.h). Their pages without live blocks go back, in this pass and in later ones.
 *
 * A thread runs the pass over slabs that it owns meanwhile. Other threads wait only in a page fault, while one group is
 * copied. */
/* SPDX-License-Identifier: MIT */
#include "base/options.h"
#include "base/os.h"
#include "blocks/kinds.h"
#include "heap/outbox.h"
#include "heap/pages.h"
#include "heap/slab.h"
#include "mesh/meshed.h"
#include "mesh/os_merge.h"
#include "process/hooks.h"
#include "space/arena_space.h"
#include "space/purge.h"

#include <string.h>

#define BOX_NS 20000000 /* of merging, in a thread that may have something else to do */
#define SPARSE_SHARE 4  /* of the blocks may be live: of fuller slabs hardly two pages fit together */

enum { GRAIN_BYTES = 16, PAGE_GRAINS = MESH_PAGE_BYTES / GRAIN_BYTES, PAGE_WORDS = PAGE_GRAINS / 64 };
enum {
    FIT_SLABS_MAX = 1024,
    FIT_UNITS_MAX = FIT_SLABS_MAX * MESH_PAGES,
    FIT_GROUPS_MAX = FIT_UNITS_MAX / 2,
    FIT_FILES = 8192
};
enum { FIT_LOOKS = 1024 };     /* at groups, for each unit: 8,192 find 1 % more */
enum { FIT_MEMBERS_MAX = 64 }; /* pages of a group: writers to them wait while they are copied */

struct fit_unit {
    uint64_t used[PAGE_WORDS]; /* bit i: it covers grain i; of a group's first unit: the group does */
    uint32_t file;             /* that the pages share; 0: a page of its own */
    uint16_t members;          /* pages; of a group's first unit: of the group */
    uint32_t member;           /* number of its first page, + 1 */
    uint32_t next;             /* unit of its group, + 1 */
    uint32_t smaller;          /* the next unit as full as this one, + 1 */
};

struct fit {
    unsigned units, groups;
    struct fit_unit unit[FIT_UNITS_MAX];
    uint32_t next_member[FIT_UNITS_MAX]; /* by page: slab * MESH_PAGES + page; + 1 */
    uint32_t of_file[FIT_FILES];         /* by file, modulo: its unit, + 1 */
    uint32_t as_full[PAGE_GRAINS + 1];   /* by grains covered: the first such unit, + 1 */
    uint32_t group[FIT_GROUPS_MAX];      /* its first unit */
};

struct held {
    struct slab *slab;
    struct meshed *meshed;
    unsigned blocks;                   /* live */
    uint16_t used_pages, shared_pages; /* bit i: page i has live blocks; has partners */
    bool closed;                       /* already, by an earlier pass */
    uint64_t live[MESHED_BLOCKS_MAX / 64];
};

struct mesh_pass {
    struct heap *heap;
    struct os_hold hold;
    bool all; /* slabs, whatever time that takes */
    unsigned slabs, members;
    struct held held[FIT_SLABS_MAX];
    uint32_t member[FIT_MEMBERS_MAX];     /* of the group that is merged: number of the slab * MESH_PAGES + page */
    uint64_t merged[MESH_PAGE_BYTES / 8]; /* the group's page */
    struct fit fit;
};

/* ---- which pages fit into one ---- */

/* Marks the grains of the page that live blocks cover. */
static void map_page(const struct slab *s, const uint64_t *live, unsigned page, uint64_t used[PAGE_WORDS]) {
    size_t bytes = size_classes[slab_class(s)].block_bytes, grains = bytes / GRAIN_BYTES;
    size_t begin = (size_t)page * MESH_PAGE_BYTES, end = begin + MESH_PAGE_BYTES;
    memset(used, 0, PAGE_WORDS * sizeof *used);
    for (size_t i = begin / bytes; i * bytes < end && i < MESHED_BLOCKS_MAX; i++) {
        if (!(live[i / 64] >> i % 64 & 1))
            continue;
        for (size_t grain = i * grains; grain < (i + 1) * grains; grain++)
            if (grain * GRAIN_BYTES >= begin && grain * GRAIN_BYTES < end)
                used[grain % PAGE_GRAINS / 64] |= (uint64_t)1 << grain % 64;
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

static void fit_begin(struct fit *f) {
    f->units = f->groups = 0;
    memset(f->of_file, 0, sizeof f->of_file);
    memset(f->as_full, 0, sizeof f->as_full);
}

static void cover(struct fit_unit *u, const uint64_t used[PAGE_WORDS], unsigned members) {
    for (unsigned i = 0; i < PAGE_WORDS; i++)
        u->used[i] |= used[i];
    u->members = (uint16_t)(u->members + members);
}

/* The unit of the pages of a file. Numbers of files that fall on the same place leave one of them with units of a page
 * each. */
static struct fit_unit *unit_of_file(struct fit *f, uint32_t file, const uint64_t used[PAGE_WORDS]) {
    uint32_t *known = &f->of_file[file % FIT_FILES];
    struct fit_unit *u = *known != 0 ? &f->unit[*known - 1] : NULL;
    if (file != 0 && u != NULL && u->file == file && !overlap(u->used, used) && u->members < FIT_MEMBERS_MAX)
        return u;
    u = &f->unit[f->units++];
    memset(u, 0, sizeof *u);
    u->file = file;
    if (file != 0)
        *known = f->units;
    return u;
}

/* Adds a page of the pass's slab number `slab`. `file`: the file that the page shares with others; 0: none. */
static void fit_add_page(struct fit *f, unsigned slab, unsigned page, uint32_t file, const uint64_t used[PAGE_WORDS]) {
    struct fit_unit *u = unit_of_file(f, file, used);
    uint32_t member = slab * MESH_PAGES + page;
    f->next_member[member] = u->member;
    u->member = member + 1;
    cover(u, used, 1);
}

/* The first unit of the first group where the unit fits, of those that were begun last: the others are the fullest.
 * NULL: none. */
static struct fit_unit *find_group(struct fit *f, const struct fit_unit *u) {
    for (unsigned i = f->groups > FIT_LOOKS ? f->groups - FIT_LOOKS : 0; i < f->groups; i++) {
        struct fit_unit *first = &f->unit[f->group[i]];
        if (first->members + u->members <= FIT_MEMBERS_MAX && !overlap(first->used, u->used))
            return first;
    }
    return NULL;
}

static void group_unit(struct fit *f, struct fit_unit *u) {
    struct fit_unit *first = find_group(f, u);
    if (first != NULL) {
        u->next = first->next;
        first->next = (uint32_t)(u - f->unit) + 1;
        cover(first, u->used, u->members);
    } else if (f->groups < FIT_GROUPS_MAX) {
        f->group[f->groups++] = (uint32_t)(u - f->unit);
    }
}

static void fit_group(struct fit *f) {
    for (unsigned i = f->units; i-- > 0;) {
        unsigned grains = 0;
        for (unsigned word = 0; word < PAGE_WORDS; word++)
            grains += count_bits(f->unit[i].used[word]);
        f->unit[i].smaller = f->as_full[grains];
        f->as_full[grains] = i + 1;
    }
    for (unsigned grains = PAGE_GRAINS + 1; grains-- > 0;)
        for (uint32_t i = f->as_full[grains]; i != 0; i = f->unit[i - 1].smaller)
            group_unit(f, &f->unit[i - 1]);
}

/* ---- which slabs ---- */

/* Blocks that wait in the inbox are free, but nobody who looks from outside can tell them from others:
 * slab_drain_inbox. */
static bool is_sparse(const struct slab *s) {
    unsigned blocks = size_classes[slab_class(s)].blocks;
    return blocks <= MESHED_BLOCKS_MAX && slab_out(s) <= blocks / SPARSE_SHARE;
}

/* The slab becomes this heap's, on no list. False: it is not to be meshed, or it is gone. */
static bool take_over(struct heap *h, struct slab *s, bool all) {
    struct heap *owner = load_relaxed(&s->owner);
    if (slab_kind(s) != KIND_TINY || (owner != h && owner != OWNER_NONE) || (load_relaxed(&s->idle_looks) == 0 && !all))
        return false;
    if (owner == h ? load_relaxed(&s->tiny.place) != PLACE_OWNED &&
                         load_relaxed(&s->tiny.place) != (PLACE_OWNED | PLACE_USABLE)
                   : !slab_adopt(h, s))
        return false;
    slab_unlist(h, s);
    store_relaxed(&s->tiny.place, 0);
    if (load_relaxed(&s->inbox) != 0 && slab_drain_inbox(h, s))
        return false;
    if (slab_kind(s) == KIND_TINY && is_sparse(s) && slab_is_for(&h->client, s))
        return true;
    slab_let_go(h, s);
    return false;
}

/* ---- merging ---- */

static struct held *held_of(struct mesh_pass *p, uint32_t member) { return &p->held[member / MESH_PAGES]; }
static uint32_t *file_of(struct mesh_pass *p, uint32_t member) {
    return &held_of(p, member)->meshed->file[member % MESH_PAGES];
}
static char *address_of(struct mesh_pass *p, uint32_t member) {
    return slab_address(held_of(p, member)->slab) + (size_t)(member % MESH_PAGES) * MESH_PAGE_BYTES;
}

HAK_READS_PROGRAM_BYTES static void copy_live(struct mesh_pass *p, uint32_t member) {
    uint64_t used[PAGE_WORDS];
    const volatile uint64_t *from = (const volatile uint64_t *)(const void *)address_of(p, member);
    map_page(held_of(p, member)->slab, held_of(p, member)->live, member % MESH_PAGES, used);
    for (unsigned i = 0; i < PAGE_WORDS; i++)
        for (uint64_t left = used[i]; left != 0; left &= left - 1) {
            size_t word = (i * 64 + lowest_bit(left)) * (GRAIN_BYTES / 8);
            for (size_t end = word + GRAIN_BYTES / 8; word < end; word++)
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

static bool put_merged(struct mesh_pass *p, int fd, uint32_t number, uint32_t member) {
    char *at = address_of(p, member);
    bool done = os_map_copy(fd, at, MESH_PAGE_BYTES), there = done || os_is_mapped(at, MESH_PAGE_BYTES);
    if (!there)
        restore(p, at);
    if (done || !there)
        *file_of(p, member) = done ? number : meshed_new_file(); /* a mapping of its own, which counts */
    os_let_write(&p->hold, at, MESH_PAGE_BYTES, done || !there);
    return done;
}

/* How many of the group's pages are no mappings to files yet. */
static unsigned new_mappings(struct mesh_pass *p) {
    unsigned n = 0;
    for (unsigned i = 0; i < p->members; i++)
        n += *file_of(p, p->member[i]) == 0;
    return n;
}

/* Returns whether the group's pages are one. Releasing a page twice, or one never held, is harmless. */
static bool merge(struct mesh_pass *p) {
    unsigned held = 0, done = 0;
    while (held < p->members && os_hold_writes(&p->hold, address_of(p, p->member[held]), MESH_PAGE_BYTES))
        held++;
    memset(p->merged, 0, sizeof p->merged);
    for (unsigned i = 0; i < held; i++)
        copy_live(p, p->member[i]);
    int fd = held == p->members ? write_merged(p) : -1;
    uint32_t number = meshed_new_file();
    while (fd >= 0 && done < p->members && put_merged(p, fd, number, p->member[done]))
        done++;
    for (unsigned i = done; i < p->members; i++)
        os_let_write(&p->hold, address_of(p, p->member[i]), MESH_PAGE_BYTES, false);
    if (fd >= 0)
        os_close(fd);
    return done == p->members;
}

/* ---- groups ---- */

/* A slab that would gain too little is not closed. */
static bool gains(const struct held *held) {
    return held->closed || count_bits(held->shared_pages) * 2 > count_bits(held->used_pages);
}

enum wanted {
    ALL,
    GAINING,
    MAPPED
}; /* units: all, without those of slabs that would gain too little, of files alone */

static bool is_wanted(struct mesh_pass *p, const struct fit_unit *u, enum wanted wanted) {
    return wanted == ALL || (gains(held_of(p, u->member - 1)) && (wanted == GAINING || u->file != 0));
}

/* The pages of the group become the pass's members. Returns how many units they are. */
static unsigned list_members(struct mesh_pass *p, uint32_t first, enum wanted wanted) {
    unsigned units = 0;
    p->members = 0;
    for (uint32_t next = first + 1; next != 0; next = p->fit.unit[next - 1].next) {
        const struct fit_unit *u = &p->fit.unit[next - 1];
        if (!is_wanted(p, u, wanted))
            continue;
        units++;
        for (uint32_t member = u->member; member != 0; member = p->fit.next_member[member - 1])
            p->member[p->members++] = member - 1;
    }
    return units;
}

/* Lists the members to be merged, and counts their new mappings. If there may be no more mappings, pages that are
 * mapped from files already can still become one. */
static unsigned choose_members(struct mesh_pass *p, uint32_t first) {
    unsigned units = list_members(p, first, GAINING);
    return units < 2 || meshed_add_mappings(new_mappings(p)) ? units : list_members(p, first, MAPPED);
}

static void find_groups(struct mesh_pass *p) {
    uint64_t used[PAGE_WORDS];
    fit_begin(&p->fit);
    for (unsigned i = 0; i < p->slabs; i++)
        for (unsigned page = 0; page < MESH_PAGES; page++) {
            map_page(p->held[i].slab, p->held[i].live, page, used);
            if (is_none(used))
                continue;
            p->held[i].used_pages |= (uint16_t)(1u << page);
            if (p->held[i].meshed->file[page] == 0 || p->hold.holds_files)
                fit_add_page(&p->fit, i, page, p->held[i].meshed->file[page], used);
        }
    fit_group(&p->fit);
    for (unsigned i = 0; i < p->fit.groups; i++)
        for (unsigned left = list_members(p, p->fit.group[i], ALL) > 1 ? p->members : 0; left-- > 0;)
            held_of(p, p->member[left])->shared_pages |= (uint16_t)(1u << p->member[left] % MESH_PAGES);
}

static void merge_groups(struct mesh_pass *p) {
    find_groups(p);
    uint64_t end_ns = os_now_ns() + BOX_NS;
    for (unsigned i = 0; i < p->fit.groups && (p->all || os_now_ns() < end_ns); i++) {
        unsigned units = choose_members(p, p->fit.group[i]);
        if (units < 2)
            continue;
        if (merge(p))
            count_add(&p->heap->client.counters, COUNT_mesh_merged_pages, units - 1);
        else
            meshed_drop_mappings(new_mappings(p));
    }
}

/* ---- a pass ---- */

static bool is_merged(const struct held *held) {
    uint32_t files = 0;
    for (unsigned i = 0; i < MESH_PAGES; i++)
        files |= held->meshed->file[i];
    return files != 0;
}

static void drop_unused(const struct held *held) {
    meshed_drop_pages(held->slab, held->meshed, ~(uint32_t)held->used_pages & (uint32_t)low_bits(MESH_PAGES));
}

/* What is free in pages that were not merged goes back as well: nobody will allocate it. */
static void close_slab(struct mesh_pass *p, const struct held *held) {
    struct slab *s = held->slab;
    held->meshed->unused = slab_purged(s);
    if (slab_purged(s) != 0)
        pages_forget(s);
    purge_begin_apart(slot_of(s) / SUPERSLAB_SLOTS);
    drop_unused(held);
    meshed_close(s, held->live, held->blocks);
    outbox_drain_closed(p->heap, s);
    meshed_closed(p->heap, s);
}

static void end_held(struct mesh_pass *p, const struct held *held, bool looked) {
    if (held->closed) {
        if (looked)
            drop_unused(held);
        meshed_release(p->heap, held->slab);
    } else if (is_merged(held)) {
        close_slab(p, held);
    } else {
        meshed_cancel(held->slab);
        slab_let_go(p->heap, held->slab);
    }
}

static void flush(struct mesh_pass *p) {
    bool looked = p->slabs != 0 && os_hold_begin(&p->hold);
    if (looked) {
        merge_groups(p);
        os_hold_end(&p->hold);
    }
    for (unsigned i = 0; i < p->slabs; i++)
        end_held(p, &p->held[i], looked);
    p->slabs = 0;
}

static struct mesh_pass *begin(struct heap *h, bool all) {
    size_t bytes = round_up(sizeof(struct mesh_pass), os_page_bytes());
    if (!option(OPT_MESH) || mode()->front_kind != NULL || os_page_bytes() != MESH_PAGE_BYTES)
        return NULL;
    struct mesh_pass *p = os_map(OS_MEMORY, NULL, bytes);
    if (p != NULL)
        p->heap = h, p->all = all;
    return p;
}

static void look(struct mesh_pass *p, struct slab *s) {
    struct held *held = &p->held[p->slabs];
    memset(held, 0, sizeof *held);
    held->slab = s;
    held->closed = slab_kind(s) == KIND_MESHED;
    if (!held->closed && !take_over(p->heap, s, p->all))
        return;
    held->meshed = held->closed ? meshed_hold(p->heap, s, held->live) : meshed_reserve(s);
    if (held->meshed != NULL) {
        p->slabs++;
        if (!held->closed)
            held->blocks = pages_live(s, held->live);
    } else if (!held->closed) {
        slab_let_go(p->heap, s);
    }
}

/* Looks at the slots from `from` to before `end`. Returns where the next pass goes on; BITSET_NONE: this one looked at
 * all. */
static size_t look_at(struct mesh_pass *p, size_t from, size_t end) {
    for (size_t slot = from; (slot = space_next_active(&p->heap->client, slot)) < end; slot++) {
        look(p, slab_of_slot(slot));
        if (p->slabs == FIT_SLABS_MAX && !p->all)
            return slot + 1;
        if (p->slabs == FIT_SLABS_MAX)
            flush(p);
    }
    return BITSET_NONE;
}

/* Where the next pass begins that is not to look at all slabs; a hint. */
static _Atomic size_t next_slot;

size_t mesh_trim(struct heap *h, struct superslab_range in, bool all) {
    struct mesh_pass *p = in.first == 0 ? begin(h, all) : NULL;
    if (p == NULL)
        return 0;
    size_t first = all ? 0 : load_relaxed(&next_slot), next = look_at(p, first, BITSET_NONE);
    if (next == BITSET_NONE)
        next = look_at(p, 0, first);
    store_relaxed(&next_slot, next != BITSET_NONE ? next : first);
    flush(p);
    os_unmap(p, round_up(sizeof *p, os_page_bytes()));
    return 0;
}

/* ---- what the wing hears ---- */

static void merge_slabs(struct heap *h) { mesh_trim(h, SUPERSLABS_ALL, false); }

const struct mesh_hooks hooks_mesh = {.pass = merge_slabs};
