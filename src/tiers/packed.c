/* Packed: blocks of more than 4 KiB while memory is scarce. Other kinds round to a class, to slots, to SuperSlabs, and
 * lose up to half of what a limit allows.
 *
 *  1. A packed slot is cut into 64 pieces of 1 KiB. A block is a run of pieces, wherever it begins, and goes on into
 *     the next slots and SuperSlabs.
 *  2. A search goes over all slots, from the lowest: it may use what is free in packed slots, and slots that nobody
 *     has, which become packed ones. The first run that is long enough is claimed slot by slot. Only where there is
 *     none the pool grows.
 *  3. `free` in a slot's pack is the truth. Whoever holds pieces writes their bits of the other words, so the end of a
 *     block is known as long as the block lives.
 *  4. A slot whose pieces are all free goes back to the pool: a compare-and-swap from all to none, and who does that
 *     owns it.
 *
 * Any thread may free. Nothing waits: a claim that meets another one gives back what it has. */
/* SPDX-License-Identifier: MIT */
#include "tiers/packed.h"
#include "base/fail.h"
#include "base/options.h"
#include "base/os.h"
#include "blocks/kinds.h"
#include "pool/pool.h"
#include "space/purge.h"

#define PACKED_BYTES_MAX (32 * MIB) /* above that, whole SuperSlabs lose 6 % at most, and realloc moves pages */
#define NOT_A_BLOCK "not a block: the heap has nothing there"
enum { STEPS_PER_DOUBLING = 4, STEPS = 16 * STEPS_PER_DOUBLING, SUPERSLAB_PIECES = PACK_PIECES * SUPERSLAB_SLOTS };
_Static_assert(PACKED_BYTES_MAX / PIECE_BYTES < 1 << STEPS / STEPS_PER_DOUBLING, "a step for each number of pieces");

/* For each step of the wanted number of pieces: the slot from which a search is worth it. Hints, relaxed: before the
 * pool grows, a search begins at 0. */
static HAK_APART _Atomic size_t search_from[STEPS];

/* The last step whose smallest number of pieces is at most n. */
static unsigned step_of(size_t n) {
    unsigned order = highest_bit(n);
    return order * STEPS_PER_DOUBLING + (unsigned)((n * STEPS_PER_DOUBLING >> order) % STEPS_PER_DOUBLING);
}
static size_t least_of(unsigned step) {
    return (((size_t)STEPS_PER_DOUBLING + step % STEPS_PER_DOUBLING) << step / STEPS_PER_DOUBLING) / STEPS_PER_DOUBLING;
}

static size_t pieces_for(size_t bytes) { return (bytes + PIECE_BYTES - 1) / PIECE_BYTES; }
static size_t piece_at(const void *p) { return region_offset(p) / PIECE_BYTES; }
static char *piece_address(size_t piece) {
    return (char *)hak_region.base + piece * PIECE_BYTES; /* NOLINT: the region is addresses */
}
static struct pack *pack_of(size_t slot) { return &hak_region.packs[slot]; }
static size_t pieces_end(void) { return load_acquire(&hak_region_use.superslabs) * SUPERSLAB_PIECES; }
/* The bits of [at, end) in the word of `at`. */
static uint64_t bits_from(size_t at, size_t end) {
    return low_bits((unsigned)min_size(PACK_PIECES - at % PACK_PIECES, end - at)) << at % PACK_PIECES;
}
static size_t next_word(size_t at) { return round_down(at, PACK_PIECES) + PACK_PIECES; }

bool packed_serves(const struct heap *h, size_t bytes, size_t alignment) {
    if (h->client.arena != 0 || bytes <= TINY_BYTES_MAX || bytes > PACKED_BYTES_MAX || alignment > SLOT_BYTES)
        return false;
    if (bytes > MID_BYTES_MAX || alignment > 1)
        return bytes > MID_BYTES_MAX;
    const struct size_class *c = &size_classes[mid_class_of(bytes)];
    return pieces_for(bytes) * PIECE_BYTES * c->blocks < c->slots * SLOT_BYTES;
}

/* ---- finding ---- */

/* The pieces of the slot that can be taken. */
static uint64_t free_pieces(size_t slot) {
    uint64_t free = slot < load_acquire(&hak_region_use.packs) ? load_relaxed(&pack_of(slot)->free) : 0;
    return free != 0 || !superslab_may_take_slot(slot) ? free : ~(uint64_t)0;
}

/* The first free piece from `at` on, or the end. */
static size_t next_free(size_t at, size_t end) {
    for (; at < end; at = next_word(at)) {
        uint64_t free = free_pieces(at / PACK_PIECES) & bits_from(at, end);
        if (free != 0)
            return round_down(at, PACK_PIECES) + lowest_bit(free);
    }
    return end;
}

/* The end of the last piece in [first, end) that is not free; `first`: all are free. */
static size_t last_taken_end(size_t first, size_t end) {
    size_t found = first;
    for (size_t at = first; at < end; at = next_word(at)) {
        uint64_t taken = ~free_pieces(at / PACK_PIECES) & bits_from(at, end);
        if (taken != 0)
            found = round_down(at, PACK_PIECES) + highest_bit(taken) + 1;
    }
    return found;
}

/* ---- taking and giving ---- */

/* Pieces of one slot. */
static void give_pieces(struct client *c, size_t slot, uint64_t pieces) {
    struct pack *pack = pack_of(slot);
    uint64_t all = ~(uint64_t)0;
    if ((rmw_or(&pack->free, pieces) | pieces) != all || !rmw_cas(&pack->free, &all, 0)) /* pairs with take_pieces */
        return;
    bool resident = load_relaxed(&pack->clean) != ~(uint64_t)0;
    store_relaxed(&slab_of_slot(slot)->kind, KIND_FREE);
    pool_give(c, slot, 1, 0, resident);
}

/* Makes a slot that nobody has a packed one, of which these pieces are the caller's. */
static enum pool_answer start_slot(struct client *c, size_t slot, uint64_t pieces) {
    bool zero;
    enum pool_answer got = pool_take_slot(c, slot, &zero);
    if (got != POOL_TOOK)
        return got;
    if (!region_commit_packs(slot + 1)) {
        pool_give(c, slot, 1, 0, !zero);
        return POOL_REFUSED;
    }
    struct slab *s = slab_of_slot(slot);
    struct pack *pack = pack_of(slot);
    s->slots = 1;
    s->mid.start = (uintptr_t)slot_address(slot);
    store_relaxed(&s->idle_looks, 0);
    store_relaxed(&s->class_id, CLASS_NONE);
    store_relaxed(&s->kind, KIND_PACKED);
    store_relaxed(&pack->begins, 0);
    store_relaxed(&pack->ends, 0);
    store_relaxed(&pack->clean, zero ? ~(uint64_t)0 : 0);
    store_release(&pack->free, ~pieces); /* pairs with take_pieces */
    return POOL_TOOK;
}

/* Pieces of one slot, all or none. */
static enum pool_answer take_pieces(struct client *c, size_t slot, uint64_t pieces) {
    _Atomic uint64_t *word = &pack_of(slot)->free;
    uint64_t free = slot < load_acquire(&hak_region_use.packs) ? load_relaxed(word) : 0;
    while ((free & pieces) == pieces)
        if (rmw_cas(word, &free, free & ~pieces)) { /* pairs with give_pieces and start_slot */
            store_relaxed(&slab_of_slot(slot)->idle_looks, 0);
            return POOL_TOOK;
        }
    return free == 0 && superslab_may_take_slot(slot) ? start_slot(c, slot, pieces) : POOL_TAKEN;
}

static void give_run(struct client *c, size_t first, size_t n) {
    for (size_t at = first; at < first + n; at = next_word(at))
        give_pieces(c, at / PACK_PIECES, bits_from(at, first + n));
    for (unsigned step = step_of(min_size(n, PACKED_BYTES_MAX / PIECE_BYTES)) + 1; step-- != 0;)
        if (load_relaxed(&search_from[step]) > first / PACK_PIECES)
            store_relaxed(&search_from[step], first / PACK_PIECES);
}

static enum pool_answer claim(struct client *c, size_t first, size_t n) {
    for (size_t at = first; at < first + n; at = next_word(at)) {
        enum pool_answer got = take_pieces(c, at / PACK_PIECES, bits_from(at, first + n));
        if (got != POOL_TOOK) {
            if (at != first)
                give_run(c, first, at - first);
            return got;
        }
    }
    return POOL_TOOK;
}

/* Claims the first run from `from` on. BITSET_NONE: there is none, or a limit allows no more (*refused). */
static size_t search(struct client *c, size_t from, size_t n, size_t align, bool *refused) {
    size_t end = pieces_end(), at = round_up(next_free(from, end), align);
    while (at < end && n <= end - at && !*refused) {
        size_t taken = last_taken_end(at, at + n);
        enum pool_answer got = taken == at ? claim(c, at, n) : POOL_TAKEN;
        if (got == POOL_TOOK)
            return at;
        *refused = got == POOL_REFUSED;
        at = round_up(next_free(taken == at ? next_word(at) : taken, end), align);
    }
    return BITSET_NONE;
}

static size_t take_run(struct client *c, size_t n, size_t align) {
    bool refused = false;
    unsigned step = step_of(n);
    _Atomic size_t *hint = &search_from[step + (least_of(step) < n)];
    size_t from = load_relaxed(hint) * PACK_PIECES, at = search(c, from, n, align, &refused);
    if (at == BITSET_NONE && from != 0)
        at = search(c, 0, n, align, &refused);
    /* What is free at the old end, and one SuperSlab more than the block has, if they lie together. */
    for (size_t grown = 0; at == BITSET_NONE && !refused && grown <= n / SUPERSLAB_PIECES + 1; grown++) {
        size_t superslab = pool_grow((unsigned)min_size(n / PACK_PIECES + 1, SUPERSLAB_SLOTS));
        if (superslab == BITSET_NONE)
            break;
        from = superslab * SUPERSLAB_PIECES;
        at = search(c, from - min_size(n, from), n, align, &refused);
    }
    if (at != BITSET_NONE)
        store_relaxed(hint, at / PACK_PIECES);
    return at;
}

/* ---- blocks ---- */

static _Atomic uint64_t *begins_of(size_t piece) { return &pack_of(piece / PACK_PIECES)->begins; }
static _Atomic uint64_t *ends_of(size_t piece) { return &pack_of(piece / PACK_PIECES)->ends; }
static uint64_t bit_of(size_t piece) { return (uint64_t)1 << piece % PACK_PIECES; }

/* How many pieces the block has that begins at `first`. If the block is not the caller's, the answer is a guess. */
static size_t pieces_of(size_t first) {
    size_t last = min_size(first + PACKED_BYTES_MAX / PIECE_BYTES, load_acquire(&hak_region_use.packs) * PACK_PIECES);
    for (size_t at = first; at < last; at = next_word(at)) {
        uint64_t ends = load_relaxed(ends_of(at)) & bits_from(at, last);
        if (ends != 0)
            return round_down(at, PACK_PIECES) + lowest_bit(ends) + 1 - first;
    }
    return 1;
}

static bool is_clean(size_t first, size_t n) {
    bool clean = true;
    for (size_t at = first; clean && at < first + n; at = next_word(at)) {
        uint64_t pieces = bits_from(at, first + n);
        clean = (load_relaxed(&pack_of(at / PACK_PIECES)->clean) & pieces) == pieces;
    }
    return clean;
}

/* Frees pieces that hold what the program has left in them. */
static void give_used(struct client *c, size_t first, size_t n) {
    for (size_t at = first; at < first + n; at = next_word(at))
        rmw_and(&pack_of(at / PACK_PIECES)->clean, ~bits_from(at, first + n));
    give_run(c, first, n);
}

/* Blocks have the natural alignment of their size: callers that align by the size alone rely on it, as on that of
 * classes. */
static void *packed_malloc(struct heap *h, size_t bytes, size_t alignment, bool *zero) {
    size_t natural = bytes <= MID_BYTES_MAX ? bytes & -bytes : 1, n = pieces_for(bytes);
    size_t at = take_run(&h->client, n, max_size(max_size(natural, alignment) / PIECE_BYTES, 1));
    if (at == BITSET_NONE)
        return NULL;
    *zero = is_clean(at, n);
    rmw_or(ends_of(at + n - 1), bit_of(at + n - 1));
    rmw_or(begins_of(at), bit_of(at));
    return piece_address(at);
}

/* Is p the start of a live block? */
static bool is_block(const void *p) {
    return region_offset(p) % PIECE_BYTES == 0 && load_relaxed(begins_of(piece_at(p))) & bit_of(piece_at(p));
}

/* Finds the block that p is in: the last one that begins before p, unless it ends before p, too. */
static void packed_find(struct block *b, const void *p) {
    size_t at = piece_at(p), back = PACKED_BYTES_MAX / SLOT_BYTES + 1;
    uint64_t upto = low_bits((unsigned)(at % PACK_PIECES) + 1), begins = 0, ends = 0;
    size_t slot = at / PACK_PIECES;
    b->why = NOT_A_BLOCK;
    for (; slab_kind(slab_of_slot(slot)) == KIND_PACKED; slot--, upto = ~(uint64_t)0) {
        begins = load_relaxed(&pack_of(slot)->begins) & upto;
        ends =
            load_relaxed(&pack_of(slot)->ends) & (upto == ~(uint64_t)0 && slot != at / PACK_PIECES ? upto : upto >> 1);
        if ((begins | ends) != 0 || slot == 0 || back-- == 0)
            break;
    }
    if (begins == 0 || (ends != 0 && highest_bit(ends) >= highest_bit(begins)))
        return;
    size_t first = slot * PACK_PIECES + highest_bit(begins);
    b->bytes = pieces_of(first) * PIECE_BYTES;
    b->why = (const char *)p == piece_address(first) ? NULL : "";
}

static void packed_free(struct heap *h, struct slab *s, void *p) {
    size_t at = piece_at(p);
    if (unlikely(!is_block(p) || !(rmw_and(begins_of(at), ~bit_of(at)) & bit_of(at)))) {
        struct block b = {s, 0, ""};
        packed_find(&b, p);
        fail_bad_pointer("free", p, b.why != NULL ? b.why : "", b.bytes);
        return;
    }
    size_t n = pieces_of(at);
    rmw_and(ends_of(at + n - 1), ~bit_of(at + n - 1));
    give_used(&h->client, at, n);
}

static bool packed_size_fits(const void *p, size_t claimed, size_t bytes, bool exactly) {
    (void)p;
    return claimed <= bytes && (!exactly || pieces_for(claimed) * PIECE_BYTES == bytes);
}

/* Claims the pieces behind the block, if need be of SuperSlabs that the pool does not have yet. */
static bool claim_behind(struct client *c, size_t end, size_t more) {
    while (end + more > pieces_end() && last_taken_end(end, pieces_end()) == end)
        if (pool_grow(SUPERSLAB_SLOTS) == BITSET_NONE)
            return false;
    return end + more <= pieces_end() && claim(c, end, more) == POOL_TOOK;
}

static bool packed_resize(struct heap *h, struct slab *s, void *p, size_t bytes) {
    size_t at = piece_at(p), had = pieces_of(at), wanted = pieces_for(bytes);
    (void)s;
    if (bytes > PACKED_BYTES_MAX || (wanted > had && !claim_behind(&h->client, at + had, wanted - had)))
        return false;
    if (wanted == had)
        return true;
    rmw_or(ends_of(at + wanted - 1), bit_of(at + wanted - 1));
    rmw_and(ends_of(at + had - 1), ~bit_of(at + had - 1));
    if (wanted < had)
        give_used(&h->client, at + wanted, had - wanted);
    else
        count(&h->client.counters, COUNT_grown_in_place);
    return true;
}

/* ---- giving back pages ---- */

/* The pieces of whole pages of which all are in `free`. */
static uint64_t whole_pages(uint64_t free) {
    unsigned of_page = (unsigned)min_size(os_page_bytes() / PIECE_BYTES, PACK_PIECES);
    uint64_t pages = 0;
    for (unsigned at = 0; at < PACK_PIECES; at += of_page)
        if ((~free & low_bits(of_page) << at) == 0)
            pages |= low_bits(of_page) << at;
    return pages;
}

/* Purges the free pages of one slot that may be resident. Takes its free pieces meanwhile. */
static size_t trim_slot(struct client *c, size_t slot) {
    struct pack *pack = pack_of(slot);
    uint64_t ours = rmw_swap(&pack->free, 0), wanted = whole_pages(ours);
    size_t pages = 0;
    if ((wanted & ~load_relaxed(&pack->clean)) == 0)
        wanted = 0;
    for (uint64_t left = wanted; left != 0;) {
        unsigned first = lowest_bit(left), n = left == ~(uint64_t)0 ? 64 : lowest_bit(~(left >> first));
        uint64_t run = low_bits(n) << first;
        if (os_advise(OS_PURGE, piece_address(slot * PACK_PIECES + first), (size_t)n * PIECE_BYTES)) {
            rmw_or(&pack->clean, run);
            pages += n * (size_t)PIECE_BYTES / os_page_bytes();
        }
        left &= ~run;
    }
    if (pages != 0)
        purge_shrank_inside(c, pages);
    if (ours != 0)
        give_pieces(c, slot, ours);
    return pages;
}

static size_t packed_trim(struct heap *h, struct superslab_range in, bool all) {
    size_t end = min_size(min_size(in.end, pieces_end() / SUPERSLAB_PIECES) * SUPERSLAB_SLOTS,
                          load_acquire(&hak_region_use.packs));
    size_t trimmed = 0;
    for (size_t slot = in.first * SUPERSLAB_SLOTS; slot < end; slot++) {
        struct slab *s = slab_of_slot(slot);
        if (load_relaxed(&pack_of(slot)->free) == 0)
            continue;
        bool idle = load_relaxed(&s->idle_looks) != 0;
        store_relaxed(&s->idle_looks, 1);
        trimmed += all || idle ? trim_slot(&h->client, slot) : 0;
    }
    return trimmed;
}

/* ---- the row ---- */

static void packed_count(const struct slab *s, struct span_use *use) {
    size_t slot = (s->mid.start - hak_region.base) / SLOT_BYTES;
    use->slots = 1;
    use->is_in_pool = slot >= load_acquire(&hak_region_use.packs); /* the copy is of two lives */
    if (use->is_in_pool)
        return;
    const struct pack *pack = pack_of(slot);
    uint64_t free = load_relaxed(&pack->free);
    use->out_bytes = count_bits(~free) * (size_t)PIECE_BYTES;
    use->listed_bytes = count_bits(free & ~load_relaxed(&pack->clean)) * (size_t)PIECE_BYTES;
}

const struct kind kind_packed = {
    .name = "a packed block",
    .malloc = packed_malloc,
    .free = packed_free,
    .resize = packed_resize,
    .resize_from_bytes = TINY_BYTES_MAX + 1,
    .find = packed_find,
    .size_fits = packed_size_fits,
    .trim = packed_trim,
    .count = packed_count,
};
