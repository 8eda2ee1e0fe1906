/* Secure mode's small blocks. See secure.h.
 *
 *  1. Spans come from spans.c, which puts guards between them.
 *  2. A slab is a span cut into blocks of one class. All that is known of its blocks lies in a table of its own, apart from
 *     the blocks and between guards: a bit a block that is free and nobody's, and 16 bits for what else it is.
 *  3. Free memory is zero: free clears the block, malloc looks whether it still is. So a write after free is told when the
 *     block, or the slab in another class, is handed out again; and calloc has nothing to do.
 *  4. What a thread frees waits in its quarantine, first in, first out; from there it comes into the pool of the class, of
 *     which malloc takes one at random. The pool is filled from slabs, random blocks of them, and spilled into them. So
 *     blocks go round in a thread without atomics, and slabs have no owner: any thread takes from them and gives to them.
 *  5. `held` reserves before bits are taken and is lowered after they are set. Only a compare-and-swap from "all are here" to
 *     0 gives the span back.
 *
 * The state of a block is written by whoever holds it; that two threads free it at the same moment is told later, when
 * the second comes back to the slab or is handed out. */
#include "secure.h"
#include "fail.h"
#include "options.h"
#include "os.h"
#include "purge.h"
#include "spans.h"
#include "tiers.h"

#define TINY_FIFO 64
#define TINY_POOL 48
#define MID_FIFO 16
#define MID_POOL 16
#define POOL_BYTES (32 * KIB)
#define POPULATE_FROM_SLABS 16 /* of a class in one heap, as in tiny.c */

_Static_assert(sizeof(struct secure_heap) +
                       sizeof(struct secure_entry) *
                           ((TINY_CLASSES - 1) * (TINY_FIFO + TINY_POOL) + MID_CLASSES * (MID_FIFO + MID_POOL)) <=
                   HEAP_SECURE_BYTES,
               "room in a heap");

uint64_t secure_random(struct heap *h) {
    struct secure_heap *sh = secure_of(h);
    if (unlikely(sh->random == 0))
        sh->random = secure_fold(hak_region.second_key, (uintptr_t)h ^ os_random() ^ os_now_ms());
    return secure_next_random(sh);
}

static void make_cache(struct heap *h, unsigned c) {
    struct secure_heap *sh = secure_of(h);
    struct secure_cache *cache = &sh->cache[c];
    size_t bytes = block_bytes_of(c);
    bool tiny = c < TINY_CLASSES;
    secure_random(h); /* it is seeded from now on */
    cache->pool = (struct secure_entry *)(void *)((char *)(sh + 1) + sh->used_bytes);
    cache->pool_room = (uint16_t)min_size(max_size(POOL_BYTES / bytes, 4), tiny ? TINY_POOL : MID_POOL);
    cache->pool_least = (uint16_t)max_size(cache->pool_room / 8u, 1);
    cache->fifo_room =
        (uint8_t)min_size(max_size(option(OPT_QUARANTINE_BYTES) / bytes, 2), tiny ? TINY_FIFO : MID_FIFO);
    cache->block_bytes = (uint32_t)bytes;
    sh->used_bytes += ((size_t)cache->pool_room + cache->fifo_room) * sizeof(struct secure_entry);
}

static struct secure_cache *cache_of(struct heap *h, unsigned c) {
    struct secure_cache *cache = &secure_of(h)->cache[c];
    if (unlikely(cache->pool_room == 0))
        make_cache(h, c);
    return cache;
}

/* ---- blocks ---- */

static size_t size_of_state(size_t block_bytes, uint16_t state) {
    return block_bytes - CANARY_BYTES - ((state & ~STATE_FREED) - 1u);
}
static bool has_canary(uintptr_t block, size_t bytes) {
    uint64_t found;
    memcpy(&found, (char *)block_word(block) + bytes, CANARY_BYTES);
    return found == secure_canary(block);
}

/* A child of a program with threads may have the block as another thread had it already: then that is nobody's fault, and
 * the block is lost. */
HAK_COLD static bool fail_hand_out(struct secure_entry e, size_t block_bytes) {
    uint16_t before = load_relaxed(e.state);
    size_t bytes = before != 0 ? size_of_state(block_bytes, before) : block_bytes - CANARY_BYTES;
    if (purge_forked_with_threads())
        return false;
    if (state_is_live(before) || memory_is_zero(e.block, block_bytes)) /* two threads freed it at the same moment */
        fail_double_free(block_word(e.block), bytes, FREER_UNKNOWN);
    else
        fail_damage("write after free", block_word(e.block), bytes);
    memset(block_word(e.block), 0, block_bytes);
    return true;
}

HAK_COLD static void *hand_out_bad(struct secure_entry e, size_t block_bytes, size_t bytes,
                                   void *(*otherwise)(size_t bytes)) {
    return fail_hand_out(e, block_bytes) ? secure_finish(e, block_bytes, bytes) : otherwise(bytes);
}
HAK_WIDE static void *wide_hand_out(struct secure_entry e, size_t block_bytes, size_t bytes,
                                    void *(*otherwise)(size_t bytes)) {
    if (unlikely(state_is_live(load_relaxed(e.state)) || !wide_is_zero(e.block, block_bytes)))
        return hand_out_bad(e, block_bytes, bytes, otherwise);
    return secure_finish(e, block_bytes, bytes);
}
HAK_NOINLINE static void *any_hand_out(struct secure_entry e, size_t block_bytes, size_t bytes,
                                       void *(*otherwise)(size_t bytes)) {
    if (unlikely(state_is_live(load_relaxed(e.state)) || !memory_is_zero(e.block, block_bytes)))
        return hand_out_bad(e, block_bytes, bytes, otherwise);
    return secure_finish(e, block_bytes, bytes);
}
void *secure_hand_out(struct secure_entry e, size_t block_bytes, size_t bytes, void *(*otherwise)(size_t bytes)) {
    if (likely(block_bytes > NARROW_MOST && HAK_HAS_WIDE()))
        return wide_hand_out(e, block_bytes, bytes, otherwise);
    return any_hand_out(e, block_bytes, bytes, otherwise);
}
static void *nothing(size_t bytes) {
    (void)bytes;
    return NULL;
}

/* ---- slabs ---- */

static struct slab *slab_of_block(uintptr_t block) { return mid_first(slab_at_offset(block - hak_region.base)); }

static void set_kind(struct slab *s, enum slab_kind kind) {
    for (unsigned i = 0; i < s->slots; i++)
        store_relaxed(&s[i].kind, (uint8_t)kind);
}

/* All that free has to know is in the record of every slot. */
static void set_records(struct slab *s, struct secure_span *span, unsigned c) {
    for (unsigned i = 0; i < 1u << order_of_class(c); i++) {
        s[i].start = (uintptr_t)slab_address(s);
        s[i].block_bytes = (uint32_t)block_bytes_of(c);
        s[i].divisor = size_classes[c].divisor;
        s[i].blocks = blocks_of(c);
        s[i].slots = (uint8_t)(1u << order_of_class(c));
        s[i].first_offset = (uint8_t)i;
        s[i].secure = span;
        store_relaxed(&s[i].class_id, (uint8_t)c);
    }
}
static unsigned index_of(const struct slab *part, uintptr_t block) {
    return block_index(part->divisor, (uint32_t)(block - part->start));
}

/* A new slab, of which `taken` blocks are reserved for the caller. */
static struct secure_span *start_slab(struct heap *h, unsigned c, unsigned taken) {
    unsigned order = order_of_class(c), blocks = blocks_of(c);
    size_t slot = span_take(h, order);
    if (slot == BITSET_NONE)
        return NULL;
    struct secure_span *span = span_at(slot / SUPERSLAB_SLOTS, span_index(slot, order));
    struct slab *s = slab_of_slot(slot);
    set_records(s, span, c);
    memset((void *)span->state, 0, span->used * sizeof span->state[0]);
    span->used = blocks;
    for (unsigned i = 0; i < blocks; i += 64)
        store_relaxed(&span->free[i / 64], low_bits(blocks - i));
    store_relaxed(&span->class_id, (uint8_t)c);
    store_relaxed(&span->claimed, true);
    set_kind(s, KIND_SECURE);
    store_release(&span->held, taken + 1);
    count(&h->pool.counters, COUNT_slabs_started);
    return span;
}

/* What has many slabs touches them whole, being handed blocks at random: a first look at a page and its first use would be
 * two page faults. */
static void populate(struct secure_cache *cache, unsigned c) {
    if (order_of_class(c) != 0 || cache->span == NULL)
        return;
    if (cache->slabs_started < POPULATE_FROM_SLABS)
        cache->slabs_started++;
    else if (option(OPT_POPULATE))
        os_advise(OS_POPULATE, slab_address(span_slab(cache->span, c)), SLOT_BYTES);
}

/* Up to `want` blocks of the slab whose bits nobody else will take; 0 if it has none or is no slab of the class. */
static unsigned reserve(struct heap *h, struct secure_span *span, unsigned c, unsigned want);

/* Blocks whose bits are set are no longer held. The slab may be gone afterwards. */
static void let_go_of(struct heap *h, struct slab *s, unsigned c, unsigned n) {
    struct secure_span *span = s->secure;
    uint32_t left = rmw_add(&span->held, -n) - n, nobody = 1;
    if (left == 1 && rmw_cas(&span->held, &nobody, 0)) {
        store_relaxed(&span->claimed, false);
        set_kind(s, KIND_FREE);
        count(&h->pool.counters, COUNT_slabs_emptied);
        span_give(h, slot_of(s), order_of_class(c));
        return;
    }
    if (!load_seq(&span->claimed) && !pool_offered(slot_of(s), c))
        pool_offer(slot_of(s), c);
}

static unsigned reserve(struct heap *h, struct secure_span *span, unsigned c, unsigned want) {
    uint32_t held = load_acquire(&span->held), blocks = blocks_of(c), n;
    do {
        if (held == 0 || held - 1 >= blocks)
            return 0;
        n = (unsigned)min_size(want, blocks - (held - 1));
    } while (!rmw_cas(&span->held, &held, held + n));
    unsigned now = load_relaxed(&span->class_id);
    if (now == c)
        return n;
    let_go_of(h, span_slab(span, now), now, n);
    return 0;
}

/* Random ones. They are there, as they are reserved; but a child of fork, which saw some pages earlier than others, may
 * miss some. Returns whether there were any. */
static bool take_blocks(struct heap *h, struct secure_cache *cache, struct secure_span *span, unsigned c, unsigned n) {
    uintptr_t start = (uintptr_t)slab_address(span_slab(span, c));
    size_t bytes = block_bytes_of(c);
    unsigned words = (blocks_of(c) + 63) / 64;
    struct secure_entry *to = &cache->pool[cache->pool_blocks], *end = to + n;
    for (unsigned at = random_below(h, words), vain = 0; to < end && vain < 2 * words;
         at = at + 1 == words ? 0 : at + 1) {
        uint64_t free = load_relaxed(&span->free[at]), some = free & secure_random(h);
        if (free == 0) {
            vain++;
            continue;
        }
        vain = 0;
        some = some != 0 ? some : free & -free;
        for (ptrdiff_t over = (ptrdiff_t)count_bits(some) - (end - to); over > 0; over--)
            some &= some - 1;
        some &= rmw_and(&span->free[at], ~some); /* pairs with return_blocks */
        _Atomic uint16_t *states = &span->state[at * 64];
        uintptr_t first = start + at * 64 * bytes;
        prefetch((uintptr_t)states);
        prefetch((uintptr_t)&states[32]);
        for (; some != 0; some &= some - 1, to++) {
            *to = (struct secure_entry){first + lowest_bit(some) * bytes, states + lowest_bit(some)};
            prefetch(to->block);
        }
    }
    unsigned before = cache->pool_blocks;
    atomic_signal_fence(memory_order_seq_cst); /* as in secure_next */
    cache->pool_blocks = (uint16_t)(to - cache->pool);
    return cache->pool_blocks != before;
}

/* Sets the bits of those blocks of the slab that are among the entries, and keeps the others, *n then. Returns how many. */
static unsigned set_free(const struct slab *s, struct secure_entry *entries, unsigned *n) {
    struct secure_span *span = s->secure;
    uint64_t mask[SPAN_BLOCKS_MOST / 64], words = 0, twice; /* of the mask, `words` tells which are there */
    const _Atomic uint16_t *states = span->state;
    unsigned all = *n, others = 0, blocks = 0;
    for (unsigned i = 0; i < all; i++) {
        size_t index = ((uintptr_t)entries[i].state - (uintptr_t)states) / sizeof *states;
        if (index >= s->blocks || entries[i].block != s->start + index * s->block_bytes) {
            secure_entry_copy(&entries[others++], &entries[i]);
            continue;
        }
        uint64_t bit = (uint64_t)1 << index % 64, before = words >> index / 64 & 1 ? mask[index / 64] : 0;
        if (unlikely(before & bit)) {
            fail_double_free(block_word(entries[i].block), s->block_bytes - CANARY_BYTES, FREER_UNKNOWN);
            blocks--;
        }
        mask[index / 64] = before | bit;
        words |= (uint64_t)1 << index / 64;
    }
    blocks += all - others;
    *n = others;
    for (; words != 0; words &= words - 1) {
        unsigned at = lowest_bit(words);
        twice = rmw_or(&span->free[at], mask[at]) & mask[at]; /* pairs with take_blocks, for the states and zeroes */
        if (likely(twice == 0) || purge_forked_with_threads())
            continue;
        size_t index = at * 64 + lowest_bit(twice);
        fail_double_free(slab_address(s) + index * s->block_bytes, s->block_bytes - CANARY_BYTES, FREER_UNKNOWN);
        blocks -= count_bits(twice);
    }
    return blocks;
}

/* All of `entries`, which are used up, go back to their slabs. Two threads freed a block at the same moment if its slab has gone,
 * whatever lies there now. */
HAK_NOINLINE static void return_blocks(struct heap *h, struct secure_entry *entries, unsigned n) {
    while (n != 0) {
        struct slab *s = slab_of_block(entries[0].block);
        unsigned all = n, blocks = slab_kind(s) == KIND_SECURE ? set_free(s, entries, &n) : 0;
        if (likely(n < all)) {
            let_go_of(h, s, slab_class(s), blocks);
            continue;
        }
        if (!purge_forked_with_threads())
            fail_bad_pointer("free", block_word(entries[0].block), "a block that is free", 0);
        secure_entry_copy(&entries[0], &entries[--n]);
    }
}

/* ---- a heap's blocks ---- */

static _Atomic uint32_t trims; /* how often all was to be given back: each heap empties its caches once for each */

static void empty_if_wanted(struct heap *h) {
    struct secure_heap *sh = secure_of(h);
    uint32_t wanted = load_relaxed(&trims);
    if (likely(sh->trims_seen == wanted))
        return;
    sh->trims_seen = wanted;
    secure_empty(h);
}

static void unclaim(struct secure_cache *cache, unsigned c) {
    struct secure_span *span = cache->span;
    cache->span = NULL;
    if (span == NULL)
        return;
    store_seq(&span->claimed, false); /* pairs with let_go_of: one of us offers it */
    uint32_t held = load_seq(&span->held);
    size_t slot = slot_of(span_slab(span, c));
    if (held != 0 && held - 1 < blocks_of(c) && load_relaxed(&span->class_id) == c && !pool_offered(slot, c))
        pool_offer(slot, c);
}

/* More blocks for the pool. False: there is no memory. */
HAK_NOINLINE static bool refill(struct heap *h, struct secure_cache *cache, unsigned c) {
    unsigned want = cache->pool_room / 2u;
    empty_if_wanted(h);
    unsigned n = cache->span != NULL ? reserve(h, cache->span, c, want) : 0;
    if (n == 0)
        unclaim(cache, c);
    for (size_t slot; n == 0 && (slot = pool_take_offer(c)) != BITSET_NONE;) {
        struct secure_span *span = span_at(slot / SUPERSLAB_SLOTS, span_index(slot, order_of_class(c)));
        n = reserve(h, span, c, want);
        if (n != 0) {
            store_seq(&span->claimed, true);
            cache->span = span;
        }
    }
    if (n == 0) {
        n = want;
        cache->span = start_slab(h, c, n);
        populate(cache, c);
    }
    if (cache->span == NULL)
        return false;
    if (!take_blocks(h, cache, cache->span, c, n))
        cache->span = NULL;
    return true;
}

/* The quarantine is full, and the pool is not. */
HAK_INLINE void add_to_quarantine(struct secure_cache *cache, struct secure_entry e) {
    unsigned at = cache->fifo_at;
    struct secure_entry *place = &cache->pool[cache->pool_room + at];
    secure_entry_copy(&cache->pool[cache->pool_blocks], place);
    secure_entry_put(place, e);
    at++;
    cache->fifo_at = (uint8_t)(at == cache->fifo_room ? 0 : at);
    atomic_signal_fence(memory_order_seq_cst); /* as in secure_next */
    cache->pool_blocks++;
}

/* The pool is full, or the quarantine is not, or there is none yet. */
HAK_NOINLINE static void quarantine_slowly(struct heap *h, unsigned c, struct secure_entry e) {
    struct secure_cache *cache = cache_of(h, c);
    empty_if_wanted(h);
    if (cache->fifo_blocks != cache->fifo_room) {
        secure_entry_put(&cache->pool[cache->pool_room + cache->fifo_blocks], e);
        atomic_signal_fence(memory_order_seq_cst); /* as in secure_next */
        cache->fifo_blocks++;
        cache->pool_full = cache->fifo_blocks == cache->fifo_room ? cache->pool_room : 0;
        return;
    }
    unsigned n = cache->pool_blocks / 2u, kept = cache->pool_blocks - n;
    if (n != 0)
        cache->pool_next = (uint16_t)random_below(h, kept);
    atomic_signal_fence(memory_order_seq_cst); /* as in secure_next: the next one is not among those that go */
    cache->pool_blocks = (uint16_t)kept;
    return_blocks(h, cache->pool + cache->pool_blocks, n);
    add_to_quarantine(cache, e);
}

HAK_INLINE void quarantine(struct heap *h, unsigned c, struct secure_entry e) {
    struct secure_cache *cache = &secure_of(h)->cache[c];
    if (likely(cache->pool_blocks < cache->pool_full))
        add_to_quarantine(cache, e);
    else
        quarantine_slowly(h, c, e);
}

void *secure_malloc(struct heap *h, size_t bytes, size_t alignment) {
    size_t whole = max_size(bytes, 1) + CANARY_BYTES;
    if (unlikely(whole > MID_BYTES_MAX || alignment > SLOT_BYTES))
        return guarded_malloc(h, bytes, alignment);
    if (alignment > 16)
        whole = class_aligned_bytes(whole, alignment);
    unsigned c = whole <= TINY_BYTES_MAX ? tiny_class_of(whole) : mid_class_of(whole);
    if (unlikely(block_bytes_of(c) - bytes > SLACK_MOST))
        return guarded_malloc(h, bytes, alignment);
    struct secure_cache *cache = cache_of(h, c);
    for (;;) {
        if (cache->pool_blocks <= cache->pool_least && !refill(h, cache, c) && cache->pool_blocks == 0)
            return NULL;
        if (unlikely(cache->pool_blocks == 0))
            continue;
        void *p = any_hand_out(secure_next(h, cache), block_bytes_of(c), bytes, nothing);
        if (likely(p != NULL))
            return p;
    }
}

/* ---- looking up, freeing ---- */

enum secure_state secure_find(struct slab *part, const void *p, size_t *bytes) {
    const struct slab *s = mid_first(part);
    unsigned i = index_of(s, (uintptr_t)p);
    bool starts = i < s->blocks;
    i = starts ? i : (unsigned)min_size(((uintptr_t)p - s->start) / s->block_bytes, s->blocks - 1);
    uint16_t state = load_relaxed(&s->secure->state[i]);
    *bytes = state != 0 ? size_of_state(s->block_bytes, state) : s->block_bytes - CANARY_BYTES;
    if (!starts)
        return SECURE_NO_BLOCK;
    if (state == 0)
        return SECURE_NEVER;
    return state & STATE_FREED ? SECURE_FREED : SECURE_LIVE;
}

HAK_COLD static void fail_free(struct slab *s, const void *p) {
    size_t bytes;
    switch (secure_find(s, p, &bytes)) {
    case SECURE_NO_BLOCK: fail_bad_pointer("free", p, "inside a block", bytes); break;
    case SECURE_NEVER: fail_bad_pointer("free", p, "a block that was never handed out", 0); break;
    default: fail_double_free(p, bytes, heap_freer());
    }
}

/* The block p is freed, if it is one. */
HAK_INLINE bool take_back(struct slab *s, void *p, struct secure_entry *e, size_t *bytes) {
    unsigned i = index_of(s, (uintptr_t)p);
    uint16_t state = 0;
    e->block = (uintptr_t)p;
    if (likely(i < s->blocks)) {
        e->state = &s->secure->state[i];
        state = load_relaxed(e->state);
    }
    if (unlikely(!state_is_live(state))) {
        fail_free(s, p);
        return false;
    }
    store_relaxed(e->state, state | STATE_FREED);
    *bytes = size_of_state(s->block_bytes, state);
    return true;
}

/* Any block, with its canary overwritten or not. What lies behind the canary stays, to be told when the block is handed out
 * again. */
static void check_and_clear(const struct slab *s, uintptr_t block, size_t bytes) {
    if (likely(has_canary(block, bytes))) {
        memory_clear(block, bytes + CANARY_BYTES);
        return;
    }
    fail_damage("overflow", block_word(block), bytes);
    memset(block_word(block), 0, s->block_bytes); /* it may have gone on behind the canary */
}

HAK_NOINLINE static void free_any(struct heap *h, struct slab *s, struct secure_entry e, size_t bytes) {
    check_and_clear(s, e.block, bytes);
    quarantine(h, slab_class(s), e);
}
HAK_NOINLINE HAK_WIDE static void free_wide(struct heap *h, struct slab *s, struct secure_entry e, size_t bytes) {
    size_t used = bytes + CANARY_BYTES, rounds = long_rounds(s->block_bytes);
    if (unlikely(s->block_bytes > BIG_FROM || long_rounds(used) != rounds || !has_canary(e.block, bytes))) {
        free_any(h, s, e, bytes);
        return;
    }
    long_clear(e.block, used, rounds);
    quarantine(h, slab_class(s), e);
}

/* The hit path of free, for blocks that nearly fill one of the class. Its branches on sizes are taken by that of the class, which
 * is here sooner than what the state tells. */
void secure_free(struct heap *h, struct slab *s, void *p) {
    struct secure_entry e;
    size_t bytes, block_bytes = s->block_bytes;
    if (unlikely(!take_back(s, p, &e, &bytes)))
        return;
    if (block_bytes > NARROW_MOST && likely(HAK_HAS_WIDE())) {
        free_wide(h, s, e, bytes);
        return;
    }
    if (unlikely(round_up(bytes + CANARY_BYTES, 16) != block_bytes || block_bytes > NARROW_MOST ||
                 !has_canary(e.block, bytes))) {
        free_any(h, s, e, bytes);
        return;
    }
    narrow_clear(e.block, block_bytes);
    quarantine(h, slab_class(s), e);
}

void secure_free_homeless(struct slab *s, void *p) {
    size_t bytes;
    struct secure_entry e;
    if (!take_back(s, p, &e, &bytes))
        return;
    check_and_clear(s, e.block, bytes);
    return_blocks(&heap_afterlife, &e, 1);
}

bool secure_resize(struct slab *part, void *p, size_t bytes) {
    struct slab *s = mid_first(part);
    size_t had, room = s->block_bytes - CANARY_BYTES;
    if (secure_find(part, p, &had) != SECURE_LIVE || bytes > room || bytes < room / 2)
        return false;
    if (!has_canary((uintptr_t)p, had))
        fail_damage("overflow", p, had);
    size_t from = min_size(had, bytes);
    memset((char *)p + from, 0, had + CANARY_BYTES - from);
    store_relaxed(&s->secure->state[index_of(s, (uintptr_t)p)], state_of_size(s->block_bytes, bytes));
    secure_put_canary((uintptr_t)p, bytes);
    return true;
}

/* ---- giving back, counting ---- */

void secure_empty(struct heap *h) {
    for (unsigned c = 1; c < CLASSES; c++) {
        struct secure_cache *cache = &secure_of(h)->cache[c];
        if (cache->pool_room == 0)
            continue;
        unsigned n = cache->pool_blocks;
        unsigned waiting = cache->fifo_blocks;
        cache->pool_blocks = cache->pool_next = cache->pool_full = 0;
        cache->fifo_blocks = cache->fifo_at = 0;
        return_blocks(h, cache->pool, n);
        return_blocks(h, cache->pool + cache->pool_room, waiting);
        unclaim(cache, c);
    }
}

/* All free blocks of a slab that nobody has reserved. Returns how many. */
static unsigned take_all(struct heap *h, struct secure_span *span, unsigned c, uint64_t taken[SPAN_BLOCKS_MOST / 64]) {
    unsigned n = reserve(h, span, c, blocks_of(c)), had = 0;
    for (unsigned at = 0; at < SPAN_BLOCKS_MOST / 64; at++) {
        uint64_t some = n != had ? load_relaxed(&span->free[at]) : 0;
        while (count_bits(some) > n - had)
            some &= some - 1;
        taken[at] = some != 0 ? some & rmw_and(&span->free[at], ~some) : 0; /* pairs with return_blocks */
        had += count_bits(taken[at]);
    }
    return had;
}

static bool has_all_bits(const uint64_t *bits, size_t from, size_t to) {
    while (from < to && bits[from / 64] >> from % 64 & 1)
        from++;
    return from >= to;
}

/* Free pages of a slab go back: they are zero before and after. What is not stays, to be told when it is handed out. */
static size_t purge_pages(struct heap *h, struct secure_span *span, unsigned c) {
    uint64_t taken[SPAN_BLOCKS_MOST / 64];
    size_t page = os_page_bytes(), block_bytes = block_bytes_of(c), purged = 0;
    unsigned n = take_all(h, span, c, taken);
    char *begin = n != 0 ? slab_address(span_slab(span, c)) : NULL;
    for (size_t at = 0; n != 0 && at < SLOT_BYTES << order_of_class(c); at += page) {
        size_t end = min_size((at + page - 1) / block_bytes + 1, blocks_of(c));
        if (has_all_bits(taken, at / block_bytes, end) && memory_is_zero((uintptr_t)begin + at, page))
            purged += os_advise(OS_PURGE, begin + at, page);
    }
    for (unsigned at = 0; n != 0 && at < SPAN_BLOCKS_MOST / 64; at++)
        if (taken[at] != 0)
            rmw_or(&span->free[at], taken[at]); /* pairs with take_blocks */
    if (n != 0)
        let_go_of(h, span_slab(span, c), c, n);
    return purged;
}

size_t secure_trim(struct heap *h, bool all) {
    if (!option(OPT_SECURE))
        return 0;
    size_t pages = guarded_purge(h);
    if (all) {
        rmw_add(&trims, 1);
        empty_if_wanted(h);
        guarded_empty(h);
    }
    for (size_t at = 0; (at = span_next(at)) != BITSET_NONE; at++) {
        struct secure_span *span = span_at(at / SPANS_MOST, at % SPANS_MOST);
        uint32_t held = load_acquire(&span->held);
        unsigned c = load_relaxed(&span->class_id);
        bool idle = held == load_relaxed(&span->seen);
        if (!idle)
            store_relaxed(&span->trimmed, false);
        store_relaxed(&span->seen, held);
        if (held == 0 || !(idle || all) || load_relaxed(&span->trimmed))
            continue;
        store_relaxed(&span->trimmed, true);
        pages += purge_pages(h, span, c);
    }
    return pages + span_purge() * (SLOT_BYTES / os_page_bytes());
}

HAK_RACY void secure_count(const struct slab *s, size_t *live, size_t *kept) {
    const struct secure_span *span = *(struct secure_span *const volatile *)&s->secure;
    uint32_t held = span != NULL ? load_relaxed(&span->held) : 0; /* NULL: the kind came to this processor sooner */
    size_t blocks = 0, all = held != 0 ? min_size(s->blocks, SPAN_BLOCKS_MOST) : 0;
    *live = 0;
    for (size_t i = 0; i < all; i++) {
        uint16_t state = load_relaxed(&span->state[i]);
        if (state == 0 || state & STATE_FREED)
            continue;
        blocks++;
        *live += size_of_state(s->block_bytes, state);
    }
    *kept = held > blocks + 1 ? (held - 1 - blocks) * s->block_bytes : 0;
}
