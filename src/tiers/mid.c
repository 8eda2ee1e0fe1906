/* Mid: blocks of 1 to 64 KiB, by rings over bitmaps. Blocks of this size share no cache line, so they need no owner.
 *
 *  1. A slab's free set is one atomic word, a bit a block. free puts the block on the heap's ring of its class, malloc
 *     takes the newest from there; the block itself is never touched.
 *  2. A ring that is full spills its older half: one fetch-or a slab. An empty one takes many bits of one slab at once.
 *  3. Only a compare-and-swap from all-free to 0 gives the slab back to the pool: whoever does that owns it. A taker
 *     that comes late finds no bits, or takes bits of the slot's next slab: it checks the class, and puts them back if
 *     that is another one.
 *  4. A state byte for each block, written by whoever holds the block, shows a second free even while the block is in a
 *     ring.
 *  5. A slab with free blocks is on offer. Whoever makes the word non-zero offers it; a taker offers what it leaves. */
/* SPDX-License-Identifier: MIT */
#include "tiers/mid.h"
#include "base/os.h"
#include "base/snapshot.h"
#include "heap/pages.h"
#include "pool/pool.h"
#include "pool/retain.h"
#include "process/hooks.h"
#include "space/arena_space.h"
#include "space/purge.h"

/* What makes the calls worth it for TRIM_BUSY: pages a call, and a share of what the slab has resident. 40,000 blocks
 * of 1,500 B, freed in random order, take 11,041 calls if a third of the blocks is enough, 7,235 with a third of the
 * pages, 5,671 with half, and 5,327 with a third and two pages a call; with one in ten left 25, 29, 32 and 32 MiB stay
 * of 62. The peak of `phases 12 8` is 38.4 MiB, with half 39.6. */
#define WORTH_PAGES 2
#define WORTH_SHARE 3

static uint64_t all_blocks(unsigned c) { return low_bits(size_classes[c].blocks); }
static char *block_at(const struct slab *s, unsigned i) {
    return slab_address(s) + (size_t)i * size_classes[slab_class(s)].block_bytes;
}
static struct slab *slab_of_block(uintptr_t block) {
    struct slab *s = slab_at_offset(block - hak_region.base);
    return span_first(s);
}

unsigned mid_block_at(const struct slab *s, const void *p) {
    const struct size_class *c = &size_classes[slab_class(s)];
    return (unsigned)min_size(block_index(c->divisor, (uint32_t)((const char *)p - slab_address(s))), c->blocks);
}

/* ---- slabs ---- */

static void mid_set_kind(struct slab *s, unsigned slots, uint8_t kind) {
    for (unsigned i = 0; i < slots; i++) {
        s[i].first_offset = (uint8_t)i;
        store_relaxed(&s[i].kind, kind);
    }
}

/* Meanwhile the slot may have got another slab, whose offer this one overwrites: then that offer is made again. */
static void mid_offer(struct slab *s) {
    unsigned c;
    do {
        c = slab_class(s);
        superslab_offer(slot_of(s), c);
    } while (slab_class(s) != c);
}

struct slab *mid_start_slab(struct heap *h, unsigned c, unsigned taken) {
    bool zero;
    unsigned slots = size_classes[c].slots;
    size_t slot = pool_take(&h->client, slots, 1, c + 1, &zero);
    if (slot == BITSET_NONE)
        return NULL;
    struct slab *s = slab_of_slot(slot);
    s->slots = (uint8_t)slots;
    s->mid.start = (uintptr_t)slot_address(slot);
    s->divisor = size_classes[c].divisor;
    s->mid.block_bytes = size_classes[c].block_bytes;
    s->mid.blocks = size_classes[c].blocks;
    for (unsigned i = 0; i < size_classes[c].blocks; i++)
        store_relaxed(&s->mid.state[i], zero ? BLOCK_FREE | BLOCK_CLEAN : BLOCK_FREE);
    for (unsigned i = 0; i < slots; i++)
        store_relaxed(&s[i].class_id, (uint8_t)c);
    store_relaxed(&s->idle_looks, 0);
    mid_set_kind(s, slots, kind_for_client(&h->client, KIND_MID));
    count(&h->client.counters, COUNT_slabs_started);
    uint64_t rest = all_blocks(c) & ~low_bits(taken);
    store_seq(&s->free_blocks, rest); /* from here on others may take; pairs with mid_take_bits */
    if (rest != 0)
        superslab_offer(slot, c);
    return s;
}

/* How many bytes of these blocks, which are ours, are purged. */
static size_t purged_bytes(const struct slab *s, uint64_t blocks) {
    size_t bytes = 0;
    for (; blocks != 0; blocks &= blocks - 1)
        bytes += load_relaxed(&s->mid.state[lowest_bit(blocks)]) & BLOCK_PURGED ? s->mid.block_bytes : 0;
    return bytes;
}

/* Puts blocks back into the free set. Returns how many blocks of the slab are out, as far as is known; 0: the slab is
 * gone. */
static unsigned mid_return_blocks(struct heap *h, struct slab *s, uint64_t mask) {
    for (;;) {
        uint64_t all = all_blocks(slab_class(s));
        uint64_t before =
            PROVEN(give_back, rmw_or(&s->free_blocks, mask)); /* pairs with mid_take_bits, for the state bytes */
        HAK_ASSERT((before & mask) == 0);
        if ((before | mask) != all || !PROVEN(retire, rmw_cas(&s->free_blocks, &all, 0))) {
            /* A late offer of the slot's former slab may have overwritten ours: look. */
            if (before == 0 || !superslab_is_offered(slot_of(s), slab_class(s)))
                mid_offer(s);
            return count_bits(all & ~(before | mask));
        }
        /* All free blocks are ours. But between our fetch-or and this swap another thread may have given the slab back
         * and started one of another class here. Then `all` is the old class's mask, and we hold only a part of the new
         * slab: the part goes back. */
        if (PROVEN(retire_class, all_blocks(slab_class(s)) == all))
            break;
        mask = all;
    }
    unsigned c = slab_class(s), slots = s->slots;
    count(&h->client.counters, COUNT_mid_retired);
    size_t purged = account_inside_bytes() != 0 ? purged_bytes(s, all_blocks(c)) : 0;
    if (purged != 0) {
        account_count_inside(-(ptrdiff_t)purged);
        retain_trimmed_early();
    }
    mid_set_kind(s, slots, KIND_FREE);
    pool_give(&h->client, slot_of(s), slots, c + 1, true);
    return 0;
}

static bool retry(struct heap *h) {
    count(&h->client.counters, COUNT_mid_retries);
    return true;
}

/* Takes the lowest free blocks of the slab, up to `max`; 0: there are none, or the slab is not of this class. *left:
 * there are more. */
static uint64_t mid_take_bits(struct heap *h, struct slab *s, unsigned c, unsigned max, bool *left) {
    uint64_t w = load_acquire(&s->free_blocks), taken;
    *left = false;
    do {
        if (w == 0)
            return 0;
        taken = w;
        for (unsigned left_over = count_bits(w); left_over > max; left_over--)
            taken &= ~((uint64_t)1 << highest_bit(taken));
    } while (!rmw_cas(&s->free_blocks, &w, w & ~taken) && retry(h));
    /* holding blocks of it, we can tell: it has become another slab, or another arena's */
    if (PROVEN(take_class, slab_class(s) != c) || unlikely(!slab_is_for(&h->client, s))) {
        mid_return_blocks(h, s, taken);
        return 0;
    }
    store_relaxed(&s->idle_looks, 0);
    *left = w != taken;
    return taken;
}

uint64_t mid_take_offered(struct heap *h, struct slab *s, unsigned c, unsigned max, bool *left) {
    uint64_t taken = mid_take_bits(h, s, c, max, left);
    if (*left)
        mid_offer(s);
    return taken;
}

/* A block whose state is free, but that is not in the free set, is held by a thread that trims: it found the slab when
 * the SuperSlab was the process's, and did not know of the arena. */
static bool mid_drop(struct heap *h, struct slab *s) {
    (void)h;
    uint64_t free = rmw_swap(&s->free_blocks, 0), out = all_blocks(slab_class(s)) & ~free;
    size_t purged = purged_bytes(s, free);
    for (; out != 0; out &= out - 1) {
        block_unsample(&s->mid.state[lowest_bit(out)],
                       (void *)block_at(s, lowest_bit(out))); /* NOLINT: slabs are addresses */
        if (PROVEN(held_mid, block_state(s, lowest_bit(out)) == BLOCK_FREE)) {
            rmw_or(&s->free_blocks, free);
            return false;
        }
    }
    account_count_inside(-(ptrdiff_t)purged);
    return true;
}

/* ---- whole free pages ---- */

/* Which of these free blocks may be resident. With `gone` LAZY blocks count as resident, because they are to go for
 * good. */
static uint64_t mid_resident_blocks(const _Atomic uint8_t *state, uint64_t blocks, bool gone) {
    for (uint64_t left = blocks; left != 0; left &= left - 1) {
        uint8_t seen = load_relaxed(&state[lowest_bit(left)]);
        if (seen & (BLOCK_CLEAN | BLOCK_PURGED) && !(gone && seen & BLOCK_LAZY))
            blocks &= ~((uint64_t)1 << lowest_bit(left));
    }
    return blocks;
}

/* May the slab have free blocks that are resident? A guess: the blocks are not ours yet, and the slot may have another
 * slab by now. */
static bool may_have_resident(const struct slab *s, bool gone) {
    _Alignas(8) _Atomic uint8_t seen[sizeof s->mid.state];
    snapshot(seen, (const void *)s->mid.state, sizeof seen);
    return mid_resident_blocks(seen, load_relaxed(&s->free_blocks), gone) != 0;
}

/* What was done with the blocks of a slab that are ours. */
struct mid_purge {
    uint64_t within; /* purged runs of blocks: those of whole pages */
    uint64_t lost;   /* blocks that nobody may have again: see purge_keep_apart */
    size_t pages;
    bool lazy;
};

/* Takes the lowest run of neighbours from `left`. *begin and *end: the whole pages within it. */
static uint64_t take_run(const struct slab *s, uint64_t *left, uintptr_t *begin, uintptr_t *end) {
    size_t page = os_page_bytes(), bytes = size_classes[slab_class(s)].block_bytes;
    unsigned first = lowest_bit(*left), n = *left == ~(uint64_t)0 ? 64 : lowest_bit(~(*left >> first));
    uint64_t run = low_bits(n) << first;
    *begin = round_up((uintptr_t)block_at(s, first), page);
    *end = round_down((uintptr_t)block_at(s, first) + (size_t)n * bytes, page);
    *left &= ~run;
    return run;
}

/* How many bytes of whole pages lie within runs of these blocks. *calls: how many of the runs have a block of `those`.
 */
static size_t bytes_within(const struct slab *s, uint64_t blocks, uint64_t those, unsigned *calls) {
    size_t bytes = 0;
    for (uintptr_t begin, end; blocks != 0;) {
        uint64_t run = take_run(s, &blocks, &begin, &end);
        bytes += end > begin ? end - begin : 0;
        *calls += end > begin && (run & those) != 0;
    }
    return bytes;
}

/* Of the blocks `ours` those that are `resident` would go. Are they enough to be worth the calls? */
static bool is_worth_calls(const struct slab *s, uint64_t ours, uint64_t resident) {
    unsigned calls = 0;
    size_t gone = bytes_within(s, ours & ~resident, 0, &calls), free = bytes_within(s, ours, resident, &calls) - gone;
    size_t kept = (size_t)s->mid.blocks * s->mid.block_bytes - gone;
    return free >= calls * WORTH_PAGES * os_page_bytes() && free * WORTH_SHARE >= kept;
}

/* Purges runs of the blocks `ours` of which at least one is `resident`, until the system refuses. */
static void purge_runs(struct mid_purge *purge, const struct slab *s, uint64_t ours, uint64_t resident) {
    for (uintptr_t begin, end; ours != 0;) {
        uint64_t run = take_run(s, &ours, &begin, &end);
        if ((resident & run) == 0 || begin >= end)
            continue;
        if (!purge_pages((void *)begin, end - begin, purge->lazy)) /* NOLINT: slabs are addresses */
            return;
        if (!purge->lazy && !purge_keep_apart((void *)begin, end - begin)) /* NOLINT: slabs are addresses */
            purge->lost |= run;
        purge->pages += (end - begin) / os_page_bytes();
        purge->within |= run;
    }
}

/* Purges the slab's free blocks, neighbours together. Takes the blocks out of the free set meanwhile. Returns how many
 * pages went. */
static size_t mid_trim_slab(struct heap *h, struct slab *s, enum trim how) {
    if (slab_tier(s) != KIND_MID || load_relaxed(&s->free_blocks) == 0) /* only first records have a free set */
        return 0;
    bool all = how == TRIM_ALL;
    struct mid_purge purge = {.lazy = !all && retain_is_lazy()};
    if (!all && !may_have_resident(s, !purge.lazy))
        return 0;
    uint64_t ours = PROVEN(trim, rmw_swap(&s->free_blocks, 0));
    if (ours == 0)
        return 0;
    size_t purged_before = purged_bytes(s, ours);
    uint64_t resident = all ? ours : mid_resident_blocks(s->mid.state, ours, !purge.lazy);
    if (how != TRIM_BUSY || is_worth_calls(s, ours, resident))
        purge_runs(&purge, s, ours, resident);
    if (purged_before == 0 && purge.pages != 0)
        retain_trimmed_first();
    for (uint64_t left = purge.within; left != 0; left &= left - 1) {
        _Atomic uint8_t *state = &s->mid.state[lowest_bit(left)];
        uint8_t now = (load_relaxed(state) & ~BLOCK_LAZY) | BLOCK_PURGED | (purge.lazy ? BLOCK_LAZY : 0);
        store_relaxed(state, now);
    }
    account_count_inside((ptrdiff_t)(purged_bytes(s, ours) - purged_before));
    mid_return_blocks(h, s, ours & ~purge.lost);
    return purge.pages;
}

/* Frees blocks that were in use or in a ring. Returns what mid_return_blocks does. *looks grows if enough blocks have
 * come back for pages_look_in_turn, which the caller calls last, when its frame is gone. */
static unsigned free_blocks(struct heap *h, struct slab *s, uint64_t mask, unsigned *looks) {
    unsigned blocks = s->mid.blocks, out = mid_return_blocks(h, s, mask);
    if (out != 0)
        pages_changed(h, s, false);
    *looks += out != 0 && out <= slab_next_look(blocks, out + count_bits(mask));
    return out;
}

/* ---- rings ---- */

/* Returns how many of the blocks had been purged. */
static unsigned put_in_ring(struct heap *h, struct ring *ring, struct slab *s, uint64_t taken) {
    unsigned purged = 0;
    unsigned n = count_bits(taken);
    ledger_add(&h->ledger[slab_class(s)].blocks, n);
    HAK_ASSERT(ring->blocks + n <= ring->room);
    for (struct ring_entry *e = &ring->entry[ring->blocks + n]; taken != 0;
         taken &= taken - 1) { /* the lowest on top */
        unsigned i = lowest_bit(taken);
        uint8_t state = load_relaxed(&s->mid.state[i]);
        purged += state & BLOCK_PURGED;
        store_relaxed(&s->mid.state[i], BLOCK_CACHED | BLOCK_TAKEN | (state & BLOCK_CLEAN));
        *--e = (struct ring_entry){s->mid.start + (size_t)i * s->mid.block_bytes, &s->mid.state[i]};
    }
    atomic_signal_fence(memory_order_seq_cst); /* as in ring_put */
    ring->blocks = (uint16_t)(ring->blocks + n);
    return purged / BLOCK_PURGED;
}

/* The lowest of the blocks, of which there is at least one, becomes *first if there is none yet; any others go into the
 * ring. Returns how many of them had been purged. */
static unsigned mid_hand_out(struct heap *h, struct ring *ring, struct slab *s, uint64_t taken,
                             struct ring_entry *first) {
    unsigned purged = 0;
    count_add(&h->client.counters, COUNT_ring_refilled_blocks, count_bits(taken));
    if (first->block == 0) {
        unsigned i = lowest_bit(taken);
        *first = (struct ring_entry){s->mid.start + (size_t)i * s->mid.block_bytes, &s->mid.state[i]};
        purged = (load_relaxed(first->state) & BLOCK_PURGED) != 0;
        taken &= taken - 1;
    }
    return ring != NULL && taken != 0 ? purged + put_in_ring(h, ring, s, taken) : purged;
}

/* Takes blocks of a slab: of the one from which the ring was last filled, until all its blocks are taken, then of the
 * lowest on offer. The former slab stays on offer meanwhile, or whoever took the offer renews it, since only the slab's
 * word tells either what is left. 0: there is no such slab. */
static uint64_t mid_take_some(struct heap *h, struct ring *ring, unsigned c, unsigned max, struct slab **from) {
    bool left;
    *from = ring != NULL ? ring->from : NULL;
    uint64_t taken = *from != NULL && slab_class(*from) == c ? mid_take_bits(h, *from, c, max, &left) : 0;
    for (size_t slot; taken == 0 && (slot = space_take_offer(&h->client, c)) != BITSET_NONE;) {
        *from = slab_of_slot(slot);
        taken = mid_take_offered(h, *from, c, max, &left);
    }
    if (ring != NULL)
        ring->from = taken != 0 && left ? *from : NULL;
    return taken;
}

/* Gets at least one block for the caller, and more for the ring if there is one. */
static struct ring_entry mid_refill(struct heap *h, struct ring *ring, unsigned c) {
    unsigned want = 1, purged = 0;
    if (ring != NULL) {
        ring = ring_adapt(h, ring, false);
        want = ring_part(ring, TUNE_refill_percent);
    }
    struct ring_entry first = {0, NULL};
    struct slab *s;
    for (uint64_t taken; want != 0 && (taken = mid_take_some(h, ring, c, want, &s)) != 0; want -= count_bits(taken))
        purged += mid_hand_out(h, ring, s, taken, &first);
    if (first.block == 0) {
        want = (unsigned)min_size(want, size_classes[c].blocks);
        s = mid_start_slab(h, c, want);
        if (s != NULL)
            mid_hand_out(h, ring, s, low_bits(want), &first);
    }
    if (purged != 0)
        retain_grew_inside(&h->client, (size_t)purged * size_classes[c].block_bytes);
    count_add(&h->client.counters, COUNT_ring_refills, first.block != 0);
    return first;
}

/* Gives back blocks, those of the same slab together. Returns how many looks are due. */
HAK_NOINLINE static unsigned give_back_together(struct heap *h, const struct ring_entry *entries, unsigned n) {
    struct {
        struct slab *slab;
        uint64_t mask;
    } of[RING_PIECE_BLOCKS];
    unsigned slabs = 0;
    for (unsigned e = 0; e < n; e++) {
        struct slab *s = slab_of_block(entries[e].block);
        uint8_t state = load_relaxed(entries[e].state);
        if (unlikely(!ring_had(state))) {
            ring_fail_twice(entries[e].block, s->mid.block_bytes);
            continue;
        }
        store_relaxed(entries[e].state, state & BLOCK_CLEAN);
        unsigned i = slabs;
        while (i != 0 && of[i - 1].slab != s)
            i--;
        if (i == 0) {
            i = ++slabs;
            of[i - 1].slab = s;
            of[i - 1].mask = 0;
        }
        of[i - 1].mask |= (uint64_t)1 << (entries[e].state - s->mid.state);
    }
    unsigned looks = 0;
    for (unsigned i = 0; i < slabs; i++)
        free_blocks(h, of[i].slab, of[i].mask, &looks);
    return looks;
}

static void mid_give_back(struct heap *h, const struct ring_entry *entries, unsigned n) {
    for (unsigned looks = give_back_together(h, entries, n); looks != 0; looks--)
        pages_look_in_turn(h);
}

void *mid_malloc(struct heap *h, unsigned c, bool *zero) {
    caches_notice(h);
    struct ring *ring = caches_enter(h) ? ring_get(h, ring_of_class(c), size_classes[c].block_bytes) : NULL;
    if (ring != NULL && ring->blocks != 0) { /* it was frozen when ring_pop looked */
        struct ring_entry e = ring_checked(ring_take(ring));
        caches_leave(h);
        return e.block != 0 ? ring_hand_out(e, zero) : mid_malloc(h, c, zero);
    }
    ledger_add(&h->ledger[c].misses, 1);
    uint64_t began = ledger_begin(&h->ledger[c]);
    struct ring_entry e = mid_refill(h, ring, c);
    ledger_end(&h->ledger[c], began);
    caches_leave(h);
    return e.block != 0 ? ring_hand_out(e, zero) : NULL;
}

static void free_into_slab(struct heap *h, struct slab *s, unsigned i) {
    store_relaxed(&s->mid.state[i], BLOCK_FREE);
    unsigned looks = 0;
    free_blocks(h, s, (uint64_t)1 << i, &looks);
    if (looks != 0)
        pages_look_in_turn(h);
}

/* Puts the block into the ring if that has room by now, else into the slab. */
static void free_live(struct heap *h, struct slab *s, unsigned i, void *p) {
    unsigned index = ring_of_class(slab_class(s));
    caches_notice(h);
    struct ring *ring = caches_enter(h) ? ring_with_room(h, index, s->mid.block_bytes) : NULL;
    bool kept = ring_put(ring, (uintptr_t)p, &s->mid.state[i], BLOCK_CACHED);
    caches_leave(h);
    if (!kept)
        free_into_slab(h, s, i);
    rings_shrink(h);
}

/* May block `i`, at p, be freed? If not, that is reported. */
static bool may_free(struct heap *h, struct slab *s, unsigned i, void *p) {
    if (i >= s->mid.blocks)
        fail_bad_pointer("free", p, "", s->mid.block_bytes);
    else if (block_unsample(&s->mid.state[i], p) || load_relaxed(&s->mid.state[i]) == BLOCK_LIVE)
        return true;
    else
        fail_double_free(p, s->mid.block_bytes, ring_freer(h, ring_of_class(slab_class(s)), &s->mid.state[i]));
    return false;
}

void mid_free(struct heap *h, struct slab *part, void *p) {
    struct slab *s = span_first(part);
    unsigned i = mid_index(s, p);
    if (may_free(h, s, i, p))
        free_live(h, s, i, p);
}

static void mid_free_past_caches(struct heap *h, struct slab *part, void *p) {
    struct slab *s = span_first(part);
    unsigned i = mid_index(s, p);
    if (may_free(h, s, i, p))
        free_into_slab(h, s, i);
}

/* ---- looking up ---- */

static _Atomic uint8_t *mid_state_of(struct slab *part, const void *p) {
    struct slab *s = span_first(part);
    return &s->mid.state[mid_block_at(s, p)];
}

/* The bytes that a sampled block would have if it were no sample: calls are to do the same with both. */
static size_t unsampled_bytes(const void *p, size_t bytes) {
    size_t asked = hooks_observe.sampled_bytes(p);
    return asked <= TINY_BYTES_MAX ? size_classes[tiny_class_of(asked)].block_bytes : bytes;
}

static void mid_find(struct block *b, const void *p) {
    b->slab = span_first(b->slab);
    const struct size_class *c = &size_classes[slab_class(b->slab)];
    unsigned i = mid_block_at(b->slab, p);
    b->bytes = c->block_bytes;
    if (i >= c->blocks)
        return;
    b->why = NULL;
    if (unlikely(load_relaxed(&b->slab->mid.state[i]) == (BLOCK_LIVE | BLOCK_PROFILED)))
        b->bytes = unsampled_bytes(p, b->bytes);
}

static bool mid_is_free(const struct block *b, const void *p) {
    return (load_relaxed(&b->slab->mid.state[mid_block_at(b->slab, p)]) & BLOCK_STATE) != BLOCK_LIVE;
}

static void mid_count(const struct slab *s, struct span_use *use) {
    const struct size_class *c = &size_classes[slab_class(s)];
    size_t live = 0, cached = 0, free = 0, lazy = 0,
           states = sizeof s->mid.state; /* another kind may have the slot by now, and the class be its */
    for (unsigned i = 0; i < min_size(c->blocks, states); i++) {
        unsigned state = block_state(s, i);
        live += state == BLOCK_LIVE;
        cached += state == BLOCK_CACHED;
        free += state == BLOCK_FREE && !(load_relaxed(&s->mid.state[i]) & (BLOCK_CLEAN | BLOCK_PURGED));
        lazy += (load_relaxed(&s->mid.state[i]) & BLOCK_LAZY) != 0;
    }
    use->slots = s->slots;
    use->class_id = slab_class(s);
    use->out_bytes = live * c->block_bytes;
    use->cached_bytes = cached * c->block_bytes;
    use->listed_bytes = free * c->block_bytes;
    use->lazy_bytes = lazy * c->block_bytes;
}

/* ---- moving ---- */

/* Free blocks of whole pages go back by themselves, and so do most pages of free blocks above this. */
#define MOVE_BYTES_MAX (16 * KIB)

unsigned mid_out(const struct slab *s, unsigned c) {
    return size_classes[c].blocks -
           (unsigned)min_size(count_bits(load_relaxed(&s->free_blocks)), size_classes[c].blocks);
}

/* As span_first, while another thread may begin another slab there; if one does, `part`. */
HAK_READS_WHOLE_WORDS static struct slab *guess_first(struct slab *part) {
    unsigned offset = *(const volatile uint8_t *)&part->first_offset;
    return offset <= slot_of(part) % SUPERSLAB_SLOTS ? part - offset : part;
}

static bool mid_fill(struct slab *part, struct fill *fill) {
    struct slab *s = guess_first(part);
    unsigned c = slab_class(s);
    size_t bytes = size_classes[c].block_bytes;
    if (slab_kind(s) != KIND_MID || bytes % os_page_bytes() == 0 || bytes > MOVE_BYTES_MAX)
        return false;
    *fill = (struct fill){s, c, mid_out(s, c)};
    return true;
}

/* As block_state, while other threads change it, like guess_first: a block that is freed meanwhile may count as
 * live. */
HAK_READS_WHOLE_WORDS static unsigned guess_state(const struct slab *s, unsigned block) {
    return *(const volatile uint8_t *)&s->mid.state[block] & BLOCK_STATE;
}

static bool mid_is_live(const struct heap *h, const struct slab *s, unsigned class_id, unsigned block) {
    (void)h;
    return slab_kind(s) == KIND_MID && slab_class(s) == class_id && guess_first((struct slab *)s) == s && /* NOLINT */
           guess_state(s, block) == BLOCK_LIVE;
}

static void mid_live(struct heap *h, struct slab *s, unsigned class_id, uint64_t map[LIVE_WORDS]) {
    for (unsigned i = 0; i < size_classes[class_id].blocks; i++)
        map[0] |= (uint64_t)mid_is_live(h, s, class_id, i) << i;
}

static unsigned mid_free_dense(struct heap *h, struct slab *part, void *p) {
    struct slab *s = span_first(part);
    unsigned i = mid_index(s, p), slots = s->slots;
    bool live =
        i < s->mid.blocks && (block_unsample(&s->mid.state[i], p) || load_relaxed(&s->mid.state[i]) == BLOCK_LIVE);
    if (!live) {
        mid_free(h, part, p); /* reports it */
        return 0;
    }
    store_relaxed(&s->mid.state[i], BLOCK_FREE);
    unsigned looks = 0;
    return free_blocks(h, s, (uint64_t)1 << i, &looks) == 0 ? slots : 0;
}

/* ---- the row ---- */

static void *mid_malloc_cached(struct heap *h, size_t bytes, size_t alignment, bool *zero) {
    unsigned c = mid_class_of(bytes);
    struct ring_entry cached = ring_pop(h, ring_of_class(c));
    (void)alignment;
    return cached.block != 0 ? ring_hand_out(cached, zero) : mid_malloc(h, c, zero);
}

const struct kind kind_mid = {
    .name = "a mid slab",
    .malloc = mid_malloc_cached,
    .free = mid_free,
    .free_past_caches = mid_free_past_caches,
    .find = mid_find,
    .is_free = mid_is_free,
    .state = mid_state_of,
    .give_back = mid_give_back,
    .trim_slab = mid_trim_slab,
    .drop = mid_drop,
    .fill = mid_fill,
    .live = mid_live,
    .is_live = mid_is_live,
    .free_dense = mid_free_dense,
    .visit = kind_visit_span,
    .count = mid_count,
};
