/* See meshed.h. */
/* SPDX-License-Identifier: MIT */
#include "mesh/meshed.h"
#include "base/fail.h"
#include "base/os.h"
#include "blocks/kinds.h"
#include "blocks/links.h"
#include "heap/search.h"
#include "pool/pool.h"

#include <string.h>

#define MESHED_MAX 32768     /* slabs, 2 GiB; a power of two */
#define MAPPINGS_SHARE 4     /* of the process's mappings may be ours */
#define MAPPINGS_LEAST 65530 /* that a process may have, if the kernel does not tell */
#define LIVES 1u             /* in `blocks`, beside their number: the slab was closed, and has not ended */
#define ENDING (1u << 31)    /* in `blocks`: somebody gives the slab back, or has */
#define HELD_SHIFT 14        /* in `blocks`: above their number, the process whose pass holds the slab; 0: none */

_Atomic(struct meshed *) meshed_table_made; /* MESHED_MAX. The first compare-and-swap wins */
static HAK_APART struct {
    _Atomic uint64_t taken[MESHED_MAX / 64]; /* bit i: entry i of the table is a slab's */
    _Atomic uint32_t mappings, mappings_max; /* of merged pages; 0: not asked yet */
    _Atomic uint32_t files;                  /* numbers given out; relaxed: nothing depends on their order */
} meshes;

/* ---- the table ---- */

static struct meshed *table(void) {
    struct meshed *known = load_acquire(&meshed_table_made);
    if (known != NULL)
        return known;
    size_t bytes = round_up(MESHED_MAX * sizeof(struct meshed), os_page_bytes());
    struct meshed *made = os_map(OS_MEMORY, NULL, bytes);
    if (made != NULL && rmw_cas(&meshed_table_made, &known, made))
        return made;
    if (made != NULL)
        os_unmap(made, bytes);
    return known;
}

/* If the slab ends meanwhile its record may hold anything there: then this is some other place of the table, which
 * claim finds out. */
static struct meshed *meshed_of(const struct slab *s) {
    PROVEN(mesh_kind, load_acquire(&s->kind)); /* pairs with meshed_close: what it wrote is there */
    return load_acquire(&meshed_table_made) + load_relaxed(&s->tiny.closed_index) % MESHED_MAX;
}

struct meshed *meshed_reserve(struct slab *s) {
    struct meshed *first = table();
    if (first == NULL)
        return NULL;
    for (unsigned i = 0; i < MESHED_MAX / 64; i++)
        for (uint64_t taken; (taken = load_relaxed(&meshes.taken[i])) != UINT64_MAX;) {
            uint64_t bit = ~taken & (taken + 1);
            if (rmw_or(&meshes.taken[i], bit) & bit)
                continue;
            struct meshed *m = &first[i * 64 + lowest_bit(bit)];
            store_relaxed(&s->tiny.closed_index, (uint32_t)(m - first));
            memset(m->file, 0, sizeof m->file);
            m->unused = 0;
            return m;
        }
    return NULL;
}

void meshed_cancel(struct slab *s) {
    uint32_t index = load_relaxed(&s->tiny.closed_index);
    rmw_and(&meshes.taken[index / 64], ~((uint64_t)1 << index % 64));
}

static uint32_t mappings_max(void) {
    uint32_t known = load_relaxed(&meshes.mappings_max);
    char text[32];
    if (known != 0)
        return known;
    uint64_t most = 0;
    if (os_read_file("/proc/sys/vm/max_map_count", text, sizeof text) != 0)
        for (const char *c = text; *c >= '0' && *c <= '9'; c++)
            most = min_size(most * 10 + (uint64_t)(*c - '0'), UINT32_MAX);
    known = (uint32_t)(most != 0 ? most : MAPPINGS_LEAST) / MAPPINGS_SHARE + 1;
    store_relaxed(&meshes.mappings_max, known);
    return known;
}

bool meshed_add_mappings(unsigned n) {
    if (rmw_add(&meshes.mappings, n) + n <= mappings_max())
        return true;
    meshed_drop_mappings(n);
    return false;
}

void meshed_drop_mappings(unsigned n) { rmw_add(&meshes.mappings, -n); }

uint32_t meshed_new_file(void) {
    uint32_t number = rmw_add(&meshes.files, 1) + 1;
    return number != 0 ? number : meshed_new_file();
}

/* ---- the end ---- */

/* Maps the range as its neighbours were mapped: the kernel does not join mappings that differ. */
static bool put_fresh_memory(size_t superslab, void *at, size_t bytes) {
    bool folios = superslab >= REGION_FOLIOS_FROM && load_relaxed(&hak_region_use.folios) == FOLIOS_USED &&
                  load_relaxed(&superslab_at(superslab)->huge) == HUGE_NONE;
    return os_map(folios ? OS_FRESH_PLAIN : OS_FRESH, at, bytes) == at;
}

/* How many of the slab's pages of files are private: the program wrote to them since. 0 where the kernel does not
 * tell. */
static unsigned split_pages(const struct slab *s, const struct meshed *m) {
    enum { IN_FILE = 61, IS_SWAPPED = 62, IS_PRESENT = 63 };
    uint64_t page[MESH_PAGES];
    unsigned split = 0;
    int fd = os_open_input("/proc/self/pagemap");
    size_t place = (size_t)(uintptr_t)slab_address(s) / MESH_PAGE_BYTES * sizeof *page;
    if (fd >= 0 && os_read_at(fd, page, sizeof page, place) == sizeof page)
        for (unsigned i = 0; i < MESH_PAGES; i++)
            split += m->file[i] != 0 && ((page[i] >> IS_PRESENT | page[i] >> IS_SWAPPED) & ~(page[i] >> IN_FILE) & 1);
    if (fd >= 0)
        os_close(fd);
    return split;
}

static unsigned mappings_of(const struct meshed *m) {
    unsigned mappings = 0;
    for (unsigned i = 0; i < MESH_PAGES; i++)
        mappings += m->file[i] != 0;
    return mappings;
}

/* Swaps the number of blocks, which nobody else does until the caller stores another. False: it is another by now, or
 * the slab has ended since it was looked up and the record is another slab's. `blocks` has LIVES and not ENDING, so no
 * place is claimed that is unused, or reserved for a slab that is not closed yet. */
static bool claim(const struct slab *s, struct meshed *m, uint32_t blocks, uint32_t claimed) {
    if (!PROVEN(mesh_claim, rmw_cas(&m->blocks, &blocks, claimed))) /* pairs with itself, and with meshed_close */
        return false;
    if (PROVEN(mesh_same, load_acquire(&s->kind) == KIND_MESHED && meshed_of(s) == m))
        return true;
    rmw_add(&m->blocks, blocks - claimed);
    return false;
}

/* Nobody has a block of the slab any more, whose place in the table was m. Gives the slab back, unless a pass holds it
 * or another thread has just given it back. */
static void end_slab(struct heap *h, struct slab *s, struct meshed *m) {
    size_t slot = slot_of(s);
    if (!claim(s, m, LIVES, ENDING))
        return;
    unsigned c = slab_class(s);
    unsigned split = split_pages(s, m);
    if (!put_fresh_memory(slot / SUPERSLAB_SLOTS, slab_address(s), SLOT_BYTES)) {
        store_release(&m->blocks, LIVES);
        return;
    }
    count_add(&h->client.counters, COUNT_mesh_split_pages, split);
    meshed_drop_mappings(mappings_of(m));
    slab_end_hits(s);
    store_relaxed(&s->kind, KIND_FREE);
    store_release(&s->owner, OWNER_POOL);
    meshed_cancel(s);
    pool_give(&h->client, slot, 1, c + 1, false);
}

/* Counts blocks that came back, after their bits were cleared. The last ones end the slab. */
static void came_back(struct heap *h, struct slab *s, uint32_t blocks) {
    struct meshed *m = meshed_of(s); /* before: afterwards another thread may end the slab */
    if (rmw_add(&m->blocks, -blocks) == LIVES + blocks)
        end_slab(h, s, m);
}

/* ---- passes ---- */

/* A child of fork has lost the passes of its parent: what they held is for its own to take. */
static uint32_t held_by_us(void) { return (os_process() % UINT16_MAX + 1) << HELD_SHIFT; }
static uint32_t holder(uint32_t blocks) { return blocks & (uint32_t)UINT16_MAX << HELD_SHIFT; }

struct meshed *meshed_hold(struct heap *h, struct slab *s, uint64_t live[MESHED_BLOCKS_MAX / 64]) {
    struct meshed *m = meshed_of(s);
    uint32_t blocks = load_relaxed(&m->blocks), ours = held_by_us();
    if (blocks == LIVES)
        end_slab(h, s, m);
    if (PROVEN(mesh_closed, blocks <= LIVES) || blocks & ENDING || holder(blocks) == ours ||
        !claim(s, m, blocks, blocks - holder(blocks) + ours))
        return NULL;
    for (unsigned i = 0; i < MESHED_BLOCKS_MAX / 64; i++)
        live[i] = load_relaxed(&m->map[i]);
    return m;
}

void meshed_release(struct heap *h, struct slab *s) { came_back(h, s, held_by_us()); }

/* Gives back a run of pages that are of no file, or one page of a file. */
static void drop_run(struct slab *s, struct meshed *m, unsigned first, unsigned n) {
    char *at = slab_address(s) + (size_t)first * MESH_PAGE_BYTES;
    if (m->file[first] == 0) {
        os_advise(OS_PURGE, at, (size_t)n * MESH_PAGE_BYTES);
    } else if (put_fresh_memory(slot_of(s) / SUPERSLAB_SLOTS, at, MESH_PAGE_BYTES)) {
        m->file[first] = 0;
        meshed_drop_mappings(1);
    } else {
        return;
    }
    m->unused |= (uint32_t)low_bits(n) << first;
}

void meshed_drop_pages(struct slab *s, struct meshed *m, uint32_t pages) {
    for (pages &= ~m->unused; pages != 0;) {
        unsigned first = lowest_bit(pages), n = 1;
        while (m->file[first] == 0 && pages >> (first + n) & 1 && m->file[first + n] == 0)
            n++;
        drop_run(s, m, first, n);
        pages &= ~((uint32_t)low_bits(n) << first);
    }
}

/* ---- freeing ---- */

/* False: the block was free. */
static bool clear_bit(struct slab *s, unsigned block) {
    uint64_t bit = (uint64_t)1 << block % 64;
    return rmw_and(&meshed_of(s)->map[block / 64], ~bit) & bit;
}

static void meshed_find(struct block *b, const void *p) {
    const struct size_class *c = &size_classes[slab_class(b->slab)];
    unsigned index = block_index(b->slab->divisor, (uint16_t)(uintptr_t)p);
    b->bytes = c->block_bytes;
    if (index < c->blocks)
        b->why = NULL;
}

static bool meshed_is_free(const struct block *b, const void *p) {
    unsigned index = block_index(b->slab->divisor, (uint16_t)(uintptr_t)p);
    return !(load_relaxed(&meshed_of(b->slab)->map[index / 64]) >> index % 64 & 1);
}

static void meshed_free(struct heap *h, struct slab *s, void *p) {
    struct block b = {s, 0, "inside a block"};
    meshed_find(&b, p);
    if (b.why != NULL)
        fail_bad_pointer("free", p, b.why, b.bytes);
    else if (!clear_bit(s, block_index(s->divisor, (uint16_t)(uintptr_t)p)))
        fail_double_free(p, b.bytes, search_only_freer());
    else
        came_back(h, s, 1);
}

/* What is in our hands keeps the slab alive. */
static void meshed_free_chain(struct heap *h, struct slab *s, uintptr_t block, unsigned blocks) {
    uint32_t back = 0;
    for (unsigned left = blocks; left > 0; left--) {
        unsigned index = block_index(s->divisor, (uint16_t)block);
        if (!is_in_slab(block, (uintptr_t)slab_address(s)) || index >= size_classes[slab_class(s)].blocks) {
            fail_overwritten_link(slab_address(s), size_classes[slab_class(s)].block_bytes);
            break; /* the rest is lost */
        }
        uintptr_t next = block_next(block);
        if (clear_bit(s, index))
            back++;
        else
            fail_double_free(block_word(block), size_classes[slab_class(s)].block_bytes, FREER_UNKNOWN);
        block = next;
    }
    if (back != 0)
        came_back(h, s, back);
}

/* ---- the beginning ---- */

void meshed_close(struct slab *s, const uint64_t live[MESHED_BLOCKS_MAX / 64], unsigned blocks) {
    struct meshed *m = meshed_of(s);
    for (unsigned i = 0; i < MESHED_BLOCKS_MAX / 64; i++)
        store_relaxed(&m->map[i], live[i]);
    store_release(&m->blocks,
                  LIVES + blocks + 1); /* until meshed_closed: whoever frees meanwhile must not end the slab */
    store_relaxed(&s->tiny.list, slab_terminator(s));
    store_relaxed(&s->tiny.purged_pages, 0);
    store_relaxed(&s->hit_blocks, 0);
    store_relaxed(&s->tiny.place, 0);
    store_release(&s->kind, KIND_MESHED);
    PROVEN(mesh_close, store_seq(&s->owner, &heap_of_closed)); /* pairs with send in outbox.c */
}

void meshed_closed(struct heap *h, struct slab *s) { came_back(h, s, 1); }

/* ---- the row ---- */

/* Its pages are shared, so what they hold beside live blocks is not counted. */
static void meshed_count(const struct slab *s, struct span_use *use) {
    unsigned c = slab_class(s);
    use->slots = 1;
    use->is_in_pool = c >= TINY_CLASSES; /* it is another kind's by now */
    if (use->is_in_pool)
        return;
    use->class_id = c;
    size_t blocks = load_relaxed(&meshed_of(s)->blocks) & low_bits(HELD_SHIFT);
    use->out_bytes = min_size(blocks - (blocks != 0 ? LIVES : 0), size_classes[c].blocks) * size_classes[c].block_bytes;
}

const struct kind kind_meshed = {
    .name = "a meshed slab",
    .free = meshed_free,
    .free_chain = meshed_free_chain,
    .trim = mesh_trim,
    .find = meshed_find,
    .is_free = meshed_is_free,
    .count = meshed_count,
};
