/* See brought.h. */
/* SPDX-License-Identifier: MIT */
#include "arena/brought.h"
#include "base/bitset.h"
#include "base/fail.h"
#include "base/os.h"

#include <errno.h>
#include <string.h>

#define PIECE BROUGHT_PIECE_BYTES
#define BYTES_MIN (64 * KIB)
#define BYTES_MAX (256 * GIB) /* its pieces have as many groups as a bitset of four levels has members */
#define PLACES 256

enum { SLAB_PIECES = 16, GROUP_PIECES = 16, CLASS_MIN_BYTES = 16 };

/* What begins at a piece. A free piece, and each piece of a run except the first, has WHAT_NOTHING. */
enum what { WHAT_NOTHING, WHAT_SLAB, WHAT_PART, WHAT_RUN };
#define WHAT_SHIFT 8 /* of the class of a slab, and of how many pieces back a part's slab begins */

struct piece {
    _Atomic uint64_t
        free_blocks;             /* of a slab: bit i: block i is free. Else 0: takers that come too late find nothing */
    _Atomic uint32_t what;       /* enum what, and the rest above */
    _Atomic uint32_t run_pieces; /* of a run; of whoever holds the block */
};
_Static_assert(sizeof(struct piece) == 16, "one 64th of the memory");

struct brought {
    struct slab record; /* KIND_BROUGHT */
    /* Constant while the arena lives. */
    struct arena *arena;     /* NULL: released */
    char *begin;             /* of piece 0 */
    size_t pieces;           /* in all */
    _Atomic uint64_t *taken; /* a bit each. The truth */
    struct piece *piece;     /* what begins there */
    struct bitset_family
        groups; /* set c: groups of 16 pieces in which a slab of class c with free blocks begins. Hints */
    /* Any thread. */
    _Atomic size_t search_from; /* piece: a hint */
    _Atomic size_t left;        /* pieces in use since the release */
};

/* ---- places ---- */

/* A place: the number of the first page, 36 bits, and how many pages there are. 0: none. One word, so that both change
 * at once. */
#define PAGE_SHIFT 12
#define PLACE_SHIFT 28
_Static_assert(PAGE_SHIFT + 64 - PLACE_SHIFT >= 48, "aarch64 maps memory just below 2^48");
_Static_assert(BYTES_MAX >> PAGE_SHIFT < (size_t)1 << PLACE_SHIFT, "the number of pages fits");
static HAK_APART _Atomic uint64_t place_table[PLACES];
static _Atomic uint32_t places_used; /* those behind were never used */

static uintptr_t place_begin(uint64_t place) { return place >> PLACE_SHIFT << PAGE_SHIFT; }
static size_t place_bytes(uint64_t place) { return (place & low_bits(PLACE_SHIFT)) << PAGE_SHIFT; }

static bool add_place(uint64_t place) {
    for (uint32_t i = 0; i < PLACES; i++) {
        uint64_t none = 0;
        if (load_relaxed(&place_table[i]) != 0 || !rmw_cas(&place_table[i], &none, place)) /* pairs with brought_at */
            continue;
        uint32_t used = load_relaxed(&places_used);
        while (used <= i && !rmw_cas(&places_used, &used, i + 1))
            ;
        return true;
    }
    return false;
}

static void remove_place(const struct brought *m) {
    for (uint32_t i = 0; i < PLACES; i++)
        if (place_begin(load_relaxed(&place_table[i])) == (uintptr_t)m)
            store_release(&place_table[i], 0);
}

/* Does one overlap the memory? */
static bool is_placed(uintptr_t begin, uintptr_t end) {
    for (uint32_t i = 0; i < PLACES; i++) {
        uint64_t place = load_relaxed(&place_table[i]);
        if (place_begin(place) < end && begin < place_begin(place) + place_bytes(place))
            return true;
    }
    return false;
}

static struct brought *brought_at(const void *p) {
    for (uint32_t i = 0, used = load_acquire(&places_used); i < used; i++) {
        uint64_t place = load_acquire(&place_table[i]);
        if ((uintptr_t)p - place_begin(place) < place_bytes(place))
            return (struct brought *)place_begin(place); /* NOLINT: an address */
    }
    return NULL;
}

struct slab *hook_slab_outside(const void *p) {
    struct brought *m = brought_at(p);
    return m != NULL ? &m->record : NULL;
}

/* The record is the first field. */
static struct brought *memory_of(const struct slab *record) { return (struct brought *)(uintptr_t)record; } /* NOLINT */

struct arena *brought_arena(const struct slab *record) {
    return memory_of(record)->arena;
}
size_t brought_pieces(const struct brought *m) { return m->pieces; }

/* ---- runs of pieces ---- */

static char *piece_address(const struct brought *m, size_t piece) { return m->begin + piece * PIECE; }

/* The bits of [at, end) in the word of `at`. */
static uint64_t bits_from(size_t at, size_t end) {
    return low_bits((unsigned)min_size(64 - at % 64, end - at)) << at % 64;
}
static size_t next_word(size_t at) { return round_down(at, 64) + 64; }

static void unclaim(struct brought *m, size_t first, size_t n) {
    for (size_t at = first; at < first + n; at = next_word(at))
        rmw_and(&m->taken[at / 64], ~bits_from(at, first + n)); /* pairs with claim, for the records */
}

/* False: some are taken. If threads claim overlapping runs, the one whose run begins highest goes on, so one of them
 * succeeds. */
static bool claim(struct brought *m, size_t first, size_t n) {
    for (size_t at = first; at < first + n; at = next_word(at)) {
        uint64_t mask = bits_from(at, first + n), word = load_relaxed(&m->taken[at / 64]);
        do
            if (word & mask) {
                unclaim(m, first, at - first);
                return false;
            }
        while (!rmw_cas(&m->taken[at / 64], &word, word | mask)); /* pairs with unclaim */
    }
    return true;
}

/* The first piece from `at` on that is not taken, or the end. */
static size_t next_free(const struct brought *m, size_t at) {
    for (; at < m->pieces; at = next_word(at)) {
        uint64_t free = ~load_relaxed(&m->taken[at / 64]) & bits_from(at, m->pieces);
        if (free != 0)
            return round_down(at, 64) + lowest_bit(free);
    }
    return m->pieces;
}

/* The end of the last taken piece in [first, end); `first`: all are free. */
static size_t last_taken_end(const struct brought *m, size_t first, size_t end) {
    size_t found = first;
    for (size_t at = first; at < end; at = next_word(at)) {
        uint64_t taken = load_relaxed(&m->taken[at / 64]) & bits_from(at, end);
        if (taken != 0)
            found = round_down(at, 64) + highest_bit(taken) + 1;
    }
    return found;
}

static size_t next_fit(const struct brought *m, size_t at, size_t align_bytes) {
    uintptr_t address = (uintptr_t)piece_address(m, next_free(m, at));
    return (round_up(address, align_bytes) - (uintptr_t)m->begin) / PIECE;
}

/* Claims the first run from `from` on. BITSET_NONE: there is none. */
static size_t search(struct brought *m, size_t from, size_t n, size_t align_bytes) {
    size_t at = next_fit(m, from, align_bytes);
    while (at <= m->pieces && n <= m->pieces - at) {
        size_t end = last_taken_end(m, at, at + n);
        if (end != at)
            at = next_fit(m, end, align_bytes);
        else if (claim(m, at, n))
            return at;
    }
    return BITSET_NONE;
}

/* `align_bytes`: at least a piece. */
static size_t take_pieces(struct brought *m, size_t n, size_t align_bytes) {
    if (n > m->pieces || align_bytes > BYTES_MAX || !arena_admit(m->arena, n))
        return BITSET_NONE;
    size_t from = load_relaxed(&m->search_from), at = search(m, from, n, align_bytes);
    if (at == BITSET_NONE && from != 0)
        at = search(m, 0, n, align_bytes);
    if (at != BITSET_NONE)
        store_relaxed(&m->search_from, at + n);
    else
        arena_uncount(m->arena, n);
    return at;
}

static void give_pieces(struct brought *m, size_t first, size_t n) {
    struct arena *a = m->arena;
    unclaim(m, first, n);
    if (first < load_relaxed(&m->search_from))
        store_relaxed(&m->search_from, first);
    if (a != NULL)
        arena_uncount(a, n);
    else if (rmw_add(&m->left, -n) == n)
        remove_place(m);
}

/* ---- slabs ---- */

static size_t class_bytes(unsigned c) { return size_classes[c].block_bytes; }
static unsigned class_blocks(unsigned c) { return (unsigned)min_size(64, SLAB_PIECES * PIECE / class_bytes(c)); }
static size_t pieces_for(size_t bytes) { return (bytes + PIECE - 1) / PIECE; }
static size_t class_pieces(unsigned c) { return pieces_for(class_blocks(c) * class_bytes(c)); }

static enum what what_of(uint32_t what) { return what & low_bits(WHAT_SHIFT); }
static bool is_slab_of(const struct piece *s, unsigned c) {
    return load_acquire(&s->what) == (WHAT_SLAB | c << WHAT_SHIFT);
}
static bool may_have(const struct piece *s, unsigned c) { return load_seq(&s->free_blocks) != 0 && is_slab_of(s, c); }

/* Whoever holds all blocks of the slab gives it back. */
static void end_slab(struct brought *m, struct piece *s) {
    size_t n = class_pieces(load_relaxed(&s->what) >> WHAT_SHIFT);
    for (size_t i = 0; i < n; i++)
        store_relaxed(&s[i].what, WHAT_NOTHING);
    give_pieces(m, (size_t)(s - m->piece), n);
}

/* The caller holds the block, so the slab is still what it was. Whoever takes all free blocks to end the slab may find
 * that they are of a later one, which has more: then they go back there. False: the block was free already. */
static bool give_block(struct brought *m, struct piece *s, unsigned block) {
    for (uint64_t held = (uint64_t)1 << block;;) {
        unsigned c = load_relaxed(&s->what) >> WHAT_SHIFT;
        uint64_t all = low_bits(class_blocks(c));
        if (held == all) {
            end_slab(m, s);
            return true;
        }
        uint64_t before = rmw_or(&s->free_blocks, held), after = before | held; /* pairs with take_block */
        if (before & held)
            return false;
        if (before == 0)
            bitset_add(&m->groups, c, (size_t)(s - m->piece) / GROUP_PIECES);
        if (after != all || !rmw_cas(&s->free_blocks, &after, 0))
            return true;
        held = after;
    }
}

static void *take_block(struct brought *m, struct piece *s, unsigned c) {
    uint64_t free = load_acquire(&s->free_blocks);
    while (free != 0 && is_slab_of(s, c)) {
        unsigned block = lowest_bit(free);
        if (!rmw_cas(&s->free_blocks, &free, free & (free - 1))) /* pairs with give_block, and make_slab */
            continue;
        if (is_slab_of(s, c)) /* it cannot change while we have a block of it */
            return piece_address(m, (size_t)(s - m->piece)) + block * class_bytes(c);
        give_block(m, s, block); /* a later slab's */
    }
    return NULL;
}

static void *make_slab(struct brought *m, unsigned c) {
    size_t n = class_pieces(c), at = take_pieces(m, n, PIECE);
    if (at == BITSET_NONE)
        return NULL;
    struct piece *s = &m->piece[at];
    for (uint32_t i = 1; i < n; i++)
        store_relaxed(&s[i].what, WHAT_PART | i << WHAT_SHIFT);
    store_relaxed(&s->what, WHAT_SLAB | c << WHAT_SHIFT);
    store_seq(&s->free_blocks, low_bits(class_blocks(c)) & ~(uint64_t)1); /* pairs with take_block */
    bitset_add(&m->groups, c, at / GROUP_PIECES);
    return piece_address(m, at);
}

/* From a slab that begins in the group. */
static void *take_in_group(struct brought *m, size_t group, unsigned c) {
    void *block = NULL;
    size_t at = group * GROUP_PIECES, end = min_size(at + GROUP_PIECES, m->pieces);
    for (; block == NULL && at < end; at++)
        block = take_block(m, &m->piece[at], c);
    return block;
}

static bool group_may_have(const struct brought *m, size_t group, unsigned c) {
    bool may = false;
    size_t at = group * GROUP_PIECES, end = min_size(at + GROUP_PIECES, m->pieces);
    for (; !may && at < end; at++)
        may = may_have(&m->piece[at], c);
    return may;
}

static void *malloc_small(struct brought *m, unsigned c) {
    for (size_t at = 0; (at = bitset_find(&m->groups, c, at)) != BITSET_NONE; at++) {
        void *block = take_in_group(m, at, c);
        if (block != NULL)
            return block;
        bitset_remove(&m->groups, c, at);
        if (group_may_have(m, at, c))
            bitset_add(&m->groups, c, at);
    }
    return make_slab(m, c);
}

/* Blocks have the natural alignment of their size: callers that align by the size alone rely on it, as on that of
 * classes. */
static void *malloc_run(struct brought *m, size_t bytes, size_t alignment) {
    size_t natural = bytes <= MID_BYTES_MAX ? bytes & -bytes : 1, n = pieces_for(max_size(bytes, 1));
    size_t at = take_pieces(m, n, max_size(max_size(natural, alignment), PIECE));
    if (at == BITSET_NONE)
        return NULL;
    store_relaxed(&m->piece[at].run_pieces, (uint32_t)n);
    store_release(&m->piece[at].what, WHAT_RUN);
    return piece_address(m, at);
}

void *brought_malloc(struct arena *a, size_t bytes, size_t alignment) {
    struct brought *m = a->brought;
    size_t refusals = load_relaxed(&a->refusals);
    void *block = NULL;
    if (bytes <= TINY_BYTES_MAX && alignment == 1)
        block = malloc_small(m, tiny_class_of(max_size(bytes, CLASS_MIN_BYTES)));
    if (block == NULL)
        block = malloc_run(m, bytes, alignment);
    if (block == NULL && load_relaxed(&a->refusals) == refusals)
        rmw_add(&a->refusals, 1); /* the memory is a limit, too */
    return block;
}

/* ---- the row ---- */

/* The piece that a block's slab, or the run, begins at; NULL: nothing does. */
static struct piece *piece_of(const struct brought *m, const void *p) {
    size_t offset = (uintptr_t)p - (uintptr_t)m->begin;
    if ((uintptr_t)p < (uintptr_t)m->begin || offset / PIECE >= m->pieces)
        return NULL;
    struct piece *s = &m->piece[offset / PIECE];
    uint32_t what = load_acquire(&s->what);
    return what_of(what) == WHAT_PART ? s - (what >> WHAT_SHIFT) : s;
}

static size_t offset_in(const struct brought *m, const struct piece *s, const void *p) {
    return (uintptr_t)p - (uintptr_t)piece_address(m, (size_t)(s - m->piece));
}

static void brought_find(struct block *b, const void *p) {
    const struct brought *m = memory_of(b->slab);
    const struct piece *s = piece_of(m, p);
    uint32_t what = s != NULL ? load_acquire(&s->what) : WHAT_NOTHING;
    unsigned c = what >> WHAT_SHIFT;
    bool starts = false;
    if (what_of(what) == WHAT_SLAB) {
        b->bytes = class_bytes(c);
        starts = offset_in(m, s, p) % b->bytes == 0 && offset_in(m, s, p) / b->bytes < class_blocks(c);
    } else if (what_of(what) == WHAT_RUN) {
        b->bytes = load_relaxed(&s->run_pieces) * PIECE;
        starts = offset_in(m, s, p) == 0;
    } else if (s == NULL || next_free(m, (size_t)(s - m->piece)) == (size_t)(s - m->piece)) {
        b->why = "not a block: the arena has nothing there";
    }
    if (starts)
        b->why = NULL;
}

static bool brought_is_free(const struct block *b, const void *p) {
    const struct brought *m = memory_of(b->slab);
    const struct piece *s = piece_of(m, p);
    return what_of(load_relaxed(&s->what)) == WHAT_SLAB &&
           load_relaxed(&s->free_blocks) >> offset_in(m, s, p) / b->bytes & 1;
}

/* False: another thread has freed it meanwhile. */
static bool give_run(struct brought *m, struct piece *s) {
    uint32_t run = WHAT_RUN, n = load_relaxed(&s->run_pieces);
    if (!rmw_cas(&s->what, &run, WHAT_NOTHING))
        return false;
    give_pieces(m, (size_t)(s - m->piece), n);
    return true;
}

static void brought_free(struct heap *h, struct slab *record, void *p) {
    struct brought *m = memory_of(record);
    struct block b = {record, 0, "inside a block"};
    (void)h;
    brought_find(&b, p);
    if (b.why != NULL) {
        fail_bad_pointer("free", p, b.why, b.bytes);
        return;
    }
    struct piece *s = piece_of(m, p);
    bool is_run = load_relaxed(&s->what) == WHAT_RUN;
    if (!(is_run ? give_run(m, s) : give_block(m, s, (unsigned)(offset_in(m, s, p) / b.bytes))))
        fail_double_free(p, b.bytes, FREER_UNKNOWN);
}

static bool brought_size_fits(const void *p, size_t claimed, size_t bytes, bool exactly) {
    (void)p, (void)exactly;
    return claimed <= bytes;
}

static bool resize_run(struct brought *m, struct piece *s, size_t wanted) {
    size_t have = load_relaxed(&s->run_pieces), end = (size_t)(s - m->piece) + have, more = wanted - have;
    if (wanted > have) {
        if (wanted > m->pieces || more > m->pieces - end || m->arena == NULL || !arena_admit(m->arena, more))
            return false;
        if (!claim(m, end, more)) {
            arena_uncount(m->arena, more);
            return false;
        }
    }
    store_relaxed(&s->run_pieces, (uint32_t)wanted);
    if (wanted < have)
        give_pieces(m, end - (have - wanted), have - wanted);
    return true;
}

static bool brought_resize(struct heap *h, struct slab *record, void *p, size_t bytes) {
    struct brought *m = memory_of(record);
    struct piece *s = piece_of(m, p);
    uint32_t what = load_relaxed(&s->what);
    (void)h;
    if (what_of(what) == WHAT_RUN)
        return bytes > TINY_BYTES_MAX && resize_run(m, s, pieces_for(bytes));
    size_t had = class_bytes(what >> WHAT_SHIFT);
    return bytes <= had && bytes >= had / 2;
}

/* No slot has the kind, so it has nothing to count. */
const struct kind kind_brought = {
    .name = "memory that the program brought",
    .free = brought_free,
    .resize = brought_resize,
    .find = brought_find,
    .is_free = brought_is_free,
    .size_fits = brought_size_fits,
};

/* ---- visiting ---- */

static bool visit_slab(struct brought *m, const struct piece *s, block_visitor *call, void *argument) {
    unsigned c = load_relaxed(&s->what) >> WHAT_SHIFT;
    bool more = true;
    for (uint64_t live = low_bits(class_blocks(c)) & ~load_relaxed(&s->free_blocks); more && live != 0;
         live &= live - 1)
        more = call(piece_address(m, (size_t)(s - m->piece)) + lowest_bit(live) * class_bytes(c), class_bytes(c),
                    argument);
    return more;
}

void brought_visit(struct brought *m, block_visitor *call, void *argument) {
    bool more = true;
    for (size_t at = 0; more && at < m->pieces; at++) {
        const struct piece *s = &m->piece[at];
        enum what what = what_of(load_relaxed(&s->what));
        if (what == WHAT_SLAB)
            more = visit_slab(m, s, call, argument);
        else if (what == WHAT_RUN)
            more = call(piece_address(m, at), load_relaxed(&s->run_pieces) * PIECE, argument);
    }
}

/* ---- making and ending ---- */

/* Places the tables for that many pieces behind the record. Returns where they end. */
static char *lay_out(struct brought *m, size_t pieces) {
    char *at = (char *)(m + 1);
    m->pieces = pieces;
    m->taken = (_Atomic uint64_t *)(void *)at;
    at += (pieces + 63) / 64 * sizeof *m->taken;
    m->groups.levels = bitset_shape((pieces + GROUP_PIECES - 1) / GROUP_PIECES, m->groups.rows);
    for (unsigned level = 0; level < m->groups.levels; level++) {
        m->groups.level[level] = at;
        m->groups.row_bytes[level] = TINY_CLASSES * sizeof(uint64_t);
        at += m->groups.rows[level] * m->groups.row_bytes[level];
    }
    m->piece = (struct piece *)(void *)round_up((uintptr_t)at, sizeof *m->piece); /* NOLINT: an address */
    return (char *)(m->piece + pieces);
}

/* As many pieces as have room, with their tables. */
static void cut(struct brought *m, size_t bytes) {
    char *end = (char *)m + bytes, *tables;
    size_t pieces = (bytes - sizeof *m) / (PIECE + sizeof(struct piece));
    do
        tables = lay_out(m, pieces--);
    while (round_up((uintptr_t)tables, PIECE) + m->pieces * PIECE > (uintptr_t)end);
    memset(m + 1, 0, (size_t)(tables - (char *)(m + 1)));
    m->begin = (char *)round_up((uintptr_t)tables, PIECE); /* NOLINT: an address */
}

static bool is_of_region(uintptr_t begin, uintptr_t end) {
    uintptr_t from, to;
    region_extent(&from, &to);
    return begin < to && from < end;
}

struct brought *brought_make(struct arena *a, void *memory, size_t bytes) {
    const size_t page = (size_t)1 << PAGE_SHIFT;
    uintptr_t end, begin = round_up((uintptr_t)memory, page);
    bool fits = memory != NULL && !__builtin_add_overflow((uintptr_t)memory, bytes, &end) && bytes <= BYTES_MAX &&
                begin <= end && round_down(end, page) - begin >= BYTES_MIN &&
                end >> PAGE_SHIFT >> (64 - PLACE_SHIFT) == 0;
    if (!fits || is_placed(begin, end) || is_of_region(begin, end)) {
        errno = EINVAL;
        return NULL;
    }
    struct brought *m = (struct brought *)begin; /* NOLINT: an address */
    bytes = round_down(end, page) - begin;
    memset(m, 0, sizeof *m);
    m->arena = a;
    store_relaxed(&m->record.kind, KIND_BROUGHT);
    cut(m, bytes);
    if (add_place((uint64_t)begin >> PAGE_SHIFT << PLACE_SHIFT | bytes >> PAGE_SHIFT))
        return m;
    errno = ENOMEM;
    return NULL;
}

void brought_end(struct arena *a, bool keep_blocks) {
    struct brought *m = a->brought;
    m->arena = NULL;
    store_relaxed(&m->left, load_relaxed(&a->slots));
    if (!keep_blocks || load_relaxed(&m->left) == 0)
        remove_place(m);
}
