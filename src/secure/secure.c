/* Secure mode's small blocks. See secure.h.
 *
 *  1. Spans come from secure_span.c, which puts guards between them.
 *  2. A slab is a span cut into blocks of one class. Its blocks are described in a table apart from them, between
 *     guards: one bit says whether a block is free and held by no thread, 16 bits hold its state.
 *  3. Free memory is zero: free clears the block, malloc checks that it still is zero. So a write after free is
 *     reported when the memory is handed out again, even in a slab of another class, and calloc has nothing to do.
 *  4. A freed block waits in its thread's quarantine, first in, first out, then joins the pool of its class, from which
 *     malloc takes one at random. Pools are refilled with random blocks of a slab, and spill into slabs. So blocks
 *     circulate in a thread without atomics, and slabs need no owner: any thread takes from them and gives to them.
 *
 * The holder of a block writes its state. If two threads free a block at the same moment, the error is reported later,
 * when the block returns to its slab, or is handed out, for the second time. */
/* SPDX-License-Identifier: MIT */
#include "secure/secure.h"
#include "base/clear.h"
#include "base/fail.h"
#include "base/options.h"
#include "base/os.h"
#include "blocks/block.h"
#include "blocks/kinds.h"
#include "heap/search.h"
#include "process/presence.h"
#include "secure/secure_damage.h"
#include "secure/secure_large.h"
#include "secure/secure_slab.h"
#include "secure/secure_span.h"
#include "space/arena_space.h"
#include "threads/thread.h"

#define TINY_FIFO 64
#define TINY_POOL 48
#define ZERO_FIFO 16
#define ZERO_POOL 16
#define MID_FIFO 16
#define MID_POOL 16
#define POOL_BYTES (32 * KIB)
#define EXIT_LOOK_BYTES (64 * MIB) /* of blocks checked at the program's end: takes some ten milliseconds */

_Static_assert(sizeof(struct secure_heap) + sizeof(struct secure_entry) *
                                                (ZERO_FIFO + ZERO_POOL + (TINY_CLASSES - 1) * (TINY_FIFO + TINY_POOL) +
                                                 MID_CLASSES * (MID_FIFO + MID_POOL)) <=
                   HEAP_SECURE_BYTES,
               "room in a heap");

static void make_cache(struct heap *h, unsigned c) {
    struct secure_heap *sh = secure_of(h);
    struct secure_cache *cache = &sh->cache[c];
    size_t bytes = block_bytes_of(c);
    unsigned stash_max = c == ZERO_CLASS ? ZERO_POOL : c < TINY_CLASSES ? TINY_POOL : MID_POOL;
    unsigned fifo_max = c == ZERO_CLASS ? ZERO_FIFO : c < TINY_CLASSES ? TINY_FIFO : MID_FIFO;
    secure_random(h); /* it is seeded from now on */
    cache->pool = (struct secure_entry *)(void *)((char *)(sh + 1) + sh->used_bytes);
    cache->pool_room = (uint16_t)min_size(max_size(POOL_BYTES / bytes, 4), stash_max);
    cache->stash_min = (uint16_t)max_size(cache->pool_room / 8u, 1);
    cache->fifo_room = (uint8_t)min_size(max_size(option(OPT_QUARANTINE_BYTES) / bytes, 2), fifo_max);
    cache->block_bytes = (uint32_t)bytes;
    sh->used_bytes += ((size_t)cache->pool_room + cache->fifo_room) * sizeof(struct secure_entry);
}

static struct secure_cache *cache_of(struct heap *h, unsigned c) {
    struct secure_cache *cache = &secure_of(h)->cache[c];
    if (unlikely(cache->pool_room == 0))
        make_cache(h, c);
    return cache;
}

/* ---- handing out ---- */

HAK_COLD static void *hand_out_bad(struct secure_entry e, size_t block_bytes, size_t bytes,
                                   void *(*otherwise)(size_t bytes)) {
    return secure_fail_hand_out(e, block_bytes) ? secure_finish(e, block_bytes, bytes) : otherwise(bytes);
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
    if (likely(block_bytes > NARROW_MAX && hak_region.wide))
        return wide_hand_out(e, block_bytes, bytes, otherwise);
    return any_hand_out(e, block_bytes, bytes, otherwise);
}
static void *nothing(size_t bytes) {
    (void)bytes;
    return NULL;
}

/* ---- a heap's blocks ---- */

static _Atomic uint32_t trims; /* requests to give everything back; a heap that sees a new value empties its caches */

static void unclaim(struct secure_cache *cache, unsigned c) {
    struct secure_span *span = cache->span;
    cache->span = NULL;
    if (span != NULL)
        secure_slab_unclaim(span, c);
}

static void secure_empty(struct heap *h) {
    for (unsigned c = 0; c < CLASSES; c++) {
        struct secure_cache *cache = &secure_of(h)->cache[c];
        if (cache->pool_room == 0)
            continue;
        unsigned n = cache->stash_blocks;
        unsigned waiting = cache->fifo_blocks;
        cache->stash_blocks = cache->pool_next = cache->pool_full = 0;
        cache->fifo_blocks = cache->fifo_at = 0;
        secure_slab_return(h, cache->pool, n);
        secure_slab_return(h, cache->pool + cache->pool_room, waiting);
        unclaim(cache, c);
    }
}

static void empty_if_wanted(struct heap *h) {
    struct secure_heap *sh = secure_of(h);
    uint32_t wanted = load_relaxed(&trims);
    if (likely(sh->trims_seen == wanted))
        return;
    sh->trims_seen = wanted;
    secure_empty(h);
}

/* A class with many slabs touches them whole, because blocks are handed out at random. Populating saves the two faults
 * that each page would take: one when malloc checks that it is zero, one at the first write. */
static void populate(struct secure_cache *cache, unsigned c) {
    if (order_of_class(c) != 0 || cache->span == NULL || c == ZERO_CLASS)
        return;
    if (cache->slabs_started < POPULATE_FROM_SLABS)
        cache->slabs_started++;
    else if (option(OPT_POPULATE))
        touch_pages(slab_address(span_slab(cache->span, c)), SLOT_BYTES);
}

/* Adds blocks to the pool. Returns false if there is no memory. */
HAK_NOINLINE static bool secure_refill(struct heap *h, struct secure_cache *cache, unsigned c) {
    unsigned want = cache->pool_room / 2u;
    empty_if_wanted(h);
    unsigned n = cache->span != NULL ? secure_slab_reserve(h, cache->span, c, want) : 0;
    if (n == 0)
        unclaim(cache, c);
    for (size_t slot; n == 0 && (slot = space_take_offer(&h->client, c)) != BITSET_NONE;) {
        struct secure_span *span = span_at(slot / SUPERSLAB_SLOTS, span_index(slot, order_of_class(c)));
        n = secure_slab_reserve(h, span, c, want);
        if (n != 0) {
            store_seq(&span->claimed, true);
            cache->span = span;
        }
    }
    if (n == 0) {
        n = want;
        cache->span = secure_slab_start(h, c, n);
        populate(cache, c);
    }
    if (cache->span == NULL)
        return false;
    n = secure_slab_take(h, cache->span, c, n, &cache->pool[cache->stash_blocks]);
    atomic_signal_fence(memory_order_seq_cst); /* as in secure_next */
    cache->stash_blocks = (uint16_t)(cache->stash_blocks + n);
    if (n == 0)
        cache->span = NULL;
    return true;
}

/* For a full quarantine and a pool with room: the block that waited longest moves to the pool. */
HAK_INLINE void add_to_quarantine(struct secure_cache *cache, struct secure_entry e) {
    unsigned at = cache->fifo_at;
    struct secure_entry *place = &cache->pool[cache->pool_room + at];
    secure_entry_copy(&cache->pool[cache->stash_blocks], place);
    secure_entry_put(place, e);
    at++;
    cache->fifo_at = (uint8_t)(at == cache->fifo_room ? 0 : at);
    atomic_signal_fence(memory_order_seq_cst); /* as in secure_next */
    cache->stash_blocks++;
}

/* For a full pool, a quarantine with room, or a class that this heap has not used yet. */
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
    unsigned n = cache->stash_blocks / 2u, kept = cache->stash_blocks - n;
    if (n != 0)
        cache->pool_next = (uint16_t)random_below(h, kept);
    atomic_signal_fence(memory_order_seq_cst); /* as in secure_next: the next block is one of those that stay */
    cache->stash_blocks = (uint16_t)kept;
    secure_slab_return(h, cache->pool + cache->stash_blocks, n);
    add_to_quarantine(cache, e);
}

HAK_INLINE void quarantine(struct heap *h, unsigned c, struct secure_entry e) {
    struct secure_cache *cache = &secure_of(h)->cache[c];
    if (likely(cache->stash_blocks < cache->pool_full))
        add_to_quarantine(cache, e);
    else
        quarantine_slowly(h, c, e);
}

/* A block of zero bytes has no memory to check. */
static void *hand_out_empty(struct secure_entry e) {
    if (unlikely(state_is_live(load_relaxed(e.state)))) { /* as in hand_out_bad */
        if (presence_lost_threads())
            return NULL;
        fail_double_free(block_word(e.block), 0, FREER_UNKNOWN);
    }
    store_relaxed(e.state, state_of_size(block_bytes_of(ZERO_CLASS), 0));
    return secure_trace(block_word(e.block), STACK_ALLOCATED);
}

static unsigned class_for(size_t bytes, size_t alignment) {
    if (bytes == 0 && alignment <= block_bytes_of(ZERO_CLASS))
        return ZERO_CLASS;
    size_t whole = max_size(bytes, 1) + CANARY_BYTES;
    if (alignment > 16)
        whole = class_aligned_bytes(whole, alignment);
    return whole <= TINY_BYTES_MAX ? tiny_class_of(whole) : mid_class_of(whole);
}

static void *secure_malloc(struct heap *h, size_t bytes, size_t alignment, bool *zero) {
    *zero = true;
    if (unlikely(bytes > MID_BYTES_MAX - CANARY_BYTES || alignment > SLOT_BYTES))
        return secure_large_malloc(h, bytes, alignment);
    unsigned c = class_for(bytes, alignment);
    if (unlikely(block_bytes_of(c) - bytes > SLACK_MAX))
        return secure_large_malloc(h, bytes, alignment);
    struct secure_cache *cache = cache_of(h, c);
    for (;;) {
        if (cache->stash_blocks <= cache->stash_min && !secure_refill(h, cache, c) && cache->stash_blocks == 0)
            return NULL;
        if (unlikely(cache->stash_blocks == 0))
            continue;
        struct secure_entry e = secure_next(h, cache);
        void *p = c == ZERO_CLASS ? hand_out_empty(e) : any_hand_out(e, block_bytes_of(c), bytes, nothing);
        if (likely(p != NULL))
            return p;
    }
}

/* ---- looking up, freeing ---- */

static enum secure_state secure_find_state(struct slab *part, const void *p, size_t *bytes) {
    const struct slab *s = span_first(part);
    unsigned i = secure_index(s, (uintptr_t)p);
    bool starts = i < s->mid.blocks;
    i = starts ? i : (unsigned)min_size(((uintptr_t)p - s->mid.start) / s->mid.block_bytes, s->mid.blocks - 1);
    uint16_t state = load_relaxed(span_state(s->mid.secure, i));
    *bytes = state != 0 ? secure_size_of_state(s->mid.block_bytes, state) : s->mid.block_bytes - CANARY_BYTES;
    if (!starts)
        return SECURE_NO_BLOCK;
    if (state == 0)
        return SECURE_NEVER;
    return state & STATE_FREED ? SECURE_FREED : SECURE_LIVE;
}

HAK_COLD static void fail_free(struct slab *s, const void *p) {
    size_t bytes;
    switch (secure_find_state(s, p, &bytes)) {
    case SECURE_NO_BLOCK: fail_bad_pointer("free", p, "inside a block", bytes); break;
    case SECURE_NEVER: fail_bad_pointer("free", p, "a block that was never handed out", 0); break;
    default: fail_double_free(p, bytes, search_only_freer());
    }
}

/* Marks the block at p as freed. Returns false, after the report, if there is no live block at p. */
HAK_INLINE bool take_back(struct slab *s, void *p, struct secure_entry *e, size_t *bytes) {
    unsigned i = secure_index(s, (uintptr_t)p);
    uint16_t state = 0;
    e->block = (uintptr_t)p;
    if (likely(i < s->mid.blocks)) {
        e->state = span_state(s->mid.secure, i);
        state = load_relaxed(e->state);
    }
    if (unlikely(!state_is_live(state))) {
        fail_free(s, p);
        return false;
    }
    store_relaxed(e->state, state | STATE_FREED);
    *bytes = secure_size_of_state(s->mid.block_bytes, state);
    return true;
}

/* Checks and clears a block of any size. Behind an intact canary only the last word is cleared, so that a stray write
 * there is reported when the block is handed out again. */
static void check_and_clear(const struct slab *s, uintptr_t block, size_t bytes) {
    if (slab_class(s) == ZERO_CLASS)
        return;
    if (unlikely(!secure_is_intact(s, block, bytes))) {
        secure_fail_intact(s, block, bytes);
        bytes = s->mid.block_bytes - CANARY_BYTES; /* an overflow may have gone on behind the canary */
    }
    *block_word(block + s->mid.block_bytes - CANARY_BYTES) = 0; /* one store, for word_before */
    memory_clear(block, bytes + CANARY_BYTES);
}

HAK_NOINLINE static void free_any(struct heap *h, struct slab *s, struct secure_entry e, size_t bytes) {
    check_and_clear(s, e.block, bytes);
    quarantine(h, slab_class(s), e);
}
HAK_NOINLINE HAK_WIDE static void free_wide(struct heap *h, struct slab *s, struct secure_entry e, size_t bytes) {
    size_t used = bytes + CANARY_BYTES, rounds = long_rounds(s->mid.block_bytes);
    if (unlikely(s->mid.block_bytes > BIG_FROM || long_rounds(used) != rounds ||
                 !secure_is_intact(s, e.block, bytes))) {
        free_any(h, s, e, bytes);
        return;
    }
    *block_word(e.block + s->mid.block_bytes - CANARY_BYTES) = 0;
    long_clear(e.block, used, rounds);
    quarantine(h, slab_class(s), e);
}

/* The stack is noted after the block's checks, whose reports show who freed it before, and before anybody can take the
 * block. */
HAK_NOINLINE static void free_traced(struct heap *h, struct slab *s, void *p) {
    struct secure_entry e;
    size_t bytes;
    if (!take_back(s, p, &e, &bytes))
        return;
    check_and_clear(s, e.block, bytes);
    secure_trace_note(p, STACK_FREED);
    quarantine(h, slab_class(s), e);
}

/* The hit path of free, for requests that nearly fill their block. It branches on the class's block size where it can,
 * because that is known sooner than the size in the block's state. */
static void secure_free(struct heap *h, struct slab *s, void *p) {
    struct secure_entry e;
    size_t bytes, block_bytes = s->mid.block_bytes;
    if (unlikely(option(OPT_SECURE_STACKS))) {
        free_traced(h, s, p);
        return;
    }
    if (unlikely(!take_back(s, p, &e, &bytes)))
        return;
    if (block_bytes > NARROW_MAX && likely(hak_region.wide)) {
        free_wide(h, s, e, bytes);
        return;
    }
    if (unlikely(round_up(bytes + CANARY_BYTES, 16) != block_bytes || block_bytes > NARROW_MAX ||
                 !secure_is_intact(s, e.block, bytes))) {
        free_any(h, s, e, bytes);
        return;
    }
    narrow_clear(e.block, block_bytes);
    quarantine(h, slab_class(s), e);
}

static void secure_free_past_caches(struct heap *h, struct slab *s, void *p) {
    size_t bytes;
    struct secure_entry e;
    if (!take_back(s, p, &e, &bytes))
        return;
    check_and_clear(s, e.block, bytes);
    secure_trace(p, STACK_FREED);
    secure_slab_return(h, &e, 1);
}
static void secure_free_without_heap(struct slab *s, void *p) { secure_free_past_caches(&heap_afterlife, s, p); }

/* The live block at p, of `had` bytes, gets another size. False: its state cannot hold the size. */
static bool set_size(const struct slab *s, void *p, size_t had, size_t bytes) {
    size_t room = s->mid.block_bytes - CANARY_BYTES, from = min_size(had, bytes);
    if (room - bytes > SLACK_MAX - 1)
        return false;
    if (!secure_has_canary(s, (uintptr_t)p, had))
        fail_damage("overflow", p, had);
    _Atomic uint16_t *state = span_state(s->mid.secure, secure_index(s, (uintptr_t)p));
    store_relaxed(state, load_relaxed(state) | STATE_FREED); /* while it has no canary, as in secure_finish */
    atomic_signal_fence(memory_order_seq_cst);
    memset((char *)p + from, 0, min_size(had + CANARY_BYTES, room) - from); /* the canary at the end stays as it is */
    secure_put_canary((uintptr_t)p, s->mid.block_bytes, bytes);
    atomic_signal_fence(memory_order_seq_cst);
    store_relaxed(state, state_of_size(s->mid.block_bytes, bytes));
    return true;
}

static bool secure_resize(struct heap *h, struct slab *part, void *p, size_t bytes) {
    (void)h;
    const struct slab *s = span_first(part);
    size_t had, room = s->mid.block_bytes - CANARY_BYTES;
    return secure_find_state(part, p, &had) == SECURE_LIVE && bytes <= room && bytes >= room / 2 &&
           slab_class(s) != ZERO_CLASS && set_size(s, p, had, bytes);
}

static void secure_shrink(struct slab *part, void *p, size_t bytes) {
    const struct slab *s = span_first(part);
    _Atomic uint16_t *state = span_state(s->mid.secure, secure_index(s, (uintptr_t)p));
    if (!set_size(s, p, secure_size_of_state(s->mid.block_bytes, load_relaxed(state)), bytes))
        store_relaxed(state, load_relaxed(state) | STATE_LARGER);
}

static bool secure_small_size_fits(const void *p, size_t claimed, size_t bytes, bool exactly) {
    const struct slab *s = span_first(slab_at_offset(region_offset(p)));
    uint16_t state = load_relaxed(span_state(s->mid.secure, secure_index(s, (uintptr_t)p)));
    return secure_size_fits(p, claimed, bytes, exactly) || ((state & STATE_LARGER) == STATE_LARGER && claimed < bytes);
}

/* ---- which operator made a block ---- */

void secure_set_maker(void *p, enum secure_maker maker) {
    struct slab *part = slab_at_offset(region_offset(p)), *s = span_first(part);
    if (slab_tier(part) == KIND_SECURE_LARGE) {
        part->single.maker = (uint16_t)maker;
        return;
    }
    _Atomic uint16_t *state = span_state(s->mid.secure, secure_index(s, (uintptr_t)p));
    store_relaxed(state, (load_relaxed(state) & STATE_SLACK) | (uint16_t)maker);
}

enum secure_maker secure_maker_of(const void *p) {
    size_t bytes;
    struct slab *part = region_has(p) ? slab_at_offset(region_offset(p)) : NULL;
    unsigned kind = part != NULL ? slab_tier(part) : KIND_FREE;
    if (kind == KIND_SECURE_LARGE && secure_large_find(part, p, &bytes) == SECURE_LIVE)
        return (enum secure_maker)part->single.maker;
    if (kind != KIND_SECURE_SMALL || secure_find_state(part, p, &bytes) != SECURE_LIVE)
        return MADE_BY_MALLOC;
    const struct slab *s = span_first(part);
    return (enum secure_maker)(load_relaxed(span_state(s->mid.secure, secure_index(s, (uintptr_t)p))) &
                               (STATE_BY_NEW | STATE_BY_NEW_ARRAY));
}

/* ---- giving back ---- */

static size_t secure_trim(struct heap *h, struct superslab_range in, bool all) {
    size_t pages = in.first == 0 ? secure_large_purge(h) : 0;
    if (all) {
        rmw_add(&trims, 1);
        empty_if_wanted(h);
        secure_large_empty(h);
    }
    for (size_t at = in.first * SPANS_MAX; (at = span_next(at)) != BITSET_NONE && at / SPANS_MAX < in.end; at++) {
        struct secure_span *span = span_at(at / SPANS_MAX, at % SPANS_MAX);
        uint32_t held = load_acquire(&span->held);
        unsigned c = load_relaxed(&span->class_id);
        bool idle = held == load_relaxed(&span->seen);
        if (!space_may_trim(&h->client, at / SPANS_MAX))
            continue;
        if (!idle)
            store_relaxed(&span->trimmed, false);
        store_relaxed(&span->seen, held);
        if (held == 0 || !(idle || all) || load_relaxed(&span->trimmed))
            continue;
        store_relaxed(&span->trimmed, true);
        pages += secure_slab_purge(h, span, c);
    }
    if (in.first == 0)
        pages += span_visit_free(secure_check_span, true) * (SLOT_BYTES / os_page_bytes());
    return pages;
}

/* ---- at the program's end ---- */

static void check_entries(const struct secure_entry *entries, unsigned n, size_t block_bytes) {
    for (unsigned i = 0; i < n; i++)
        secure_check_free(entries[i], block_bytes);
}

static void check_caches(struct heap *h) {
    for (unsigned c = ZERO_CLASS + 1; c < CLASSES; c++) {
        const struct secure_cache *cache = &secure_of(h)->cache[c];
        if (cache->pool == NULL) /* never used */
            continue;
        check_entries(cache->pool, cache->stash_blocks, block_bytes_of(c));
        check_entries(cache->pool + cache->pool_room, cache->fifo_blocks, block_bytes_of(c));
    }
}

/* A thread that is alone looks at the caches of its arenas, too: all heaps are in the list. */
void secure_check_at_exit(void) {
    uint64_t taken[SPAN_BLOCKS_MAX / 64];
    struct heap *h = thread_enter();
    if (h == NULL)
        return;
    bool alone = presence_is_single();
    for (struct heap *of = alone ? heap_newest() : h; of != NULL; of = alone ? of->next : NULL)
        check_caches(of);
    span_visit_free(secure_check_span, false);
    for (size_t at = 0, seen = 0; seen < EXIT_LOOK_BYTES && (at = span_next(at)) != BITSET_NONE; at++) {
        struct secure_span *span = span_at(at / SPANS_MAX, at % SPANS_MAX);
        bool used = load_acquire(&span->held) != 0;
        unsigned c = load_relaxed(&span->class_id);
        unsigned n = used && c != ZERO_CLASS && !alone ? secure_slab_take_all(h, span, c, taken) : 0;
        if (n != 0) {
            secure_check_blocks(span, c, taken);
            secure_slab_put_back(h, span, c, n, taken);
        }
        seen += used && c != ZERO_CLASS && alone ? secure_check_slab(span, c, true) : n * block_bytes_of(c);
    }
    thread_leave(h);
}

/* ---- counting ---- */

/* A snapshot may have the kind of one life of the slot, and what it has of the span from another. */
static bool is_in_table(const struct secure_span *span) {
    struct region_range table = span_table();
    return (uintptr_t)span - (uintptr_t)table.begin < table.bytes;
}

static void secure_count(const struct slab *s, struct span_use *use) {
    const struct secure_span *span = s->mid.secure;
    uint32_t held = is_in_table(span) ? load_relaxed(&span->held) : 0;
    size_t blocks = 0, all = held != 0 ? min_size(s->mid.blocks, span_states_max(span)) : 0;
    use->slots = s->slots;
    for (unsigned i = 0; i < all; i++) {
        uint16_t state = load_relaxed(span_state(span, i));
        if (state == 0 || state & STATE_FREED)
            continue;
        blocks++;
        use->out_bytes += secure_size_of_state(s->mid.block_bytes, state);
    }
    use->cached_bytes = held > blocks + 1 ? (held - 1 - blocks) * s->mid.block_bytes : 0;
}

/* ---- the row ---- */

static void secure_find(struct block *b, const void *p) {
    switch (secure_find_state(b->slab, p, &b->bytes)) {
    case SECURE_NO_BLOCK: break;
    case SECURE_NEVER: b->why = BLOCK_NEVER_HANDED_OUT, b->bytes = 0; break;
    default: b->why = NULL;
    }
    b->slab = span_first(b->slab);
}

static bool secure_is_free(const struct block *b, const void *p) {
    size_t bytes;
    return secure_find_state(b->slab, p, &bytes) == SECURE_FREED;
}

const struct kind kind_secure_small = {
    .name = "a secure slab",
    .is_secure = true,
    .malloc = secure_malloc,
    .free = secure_free,
    .free_without_heap = secure_free_without_heap,
    .free_past_caches = secure_free_past_caches,
    .resize = secure_resize,
    .shrink = secure_shrink,
    .find = secure_find,
    .is_free = secure_is_free,
    .size_fits = secure_small_size_fits,
    .empty_heap = secure_empty,
    .empty_caches = secure_empty,
    .trim = secure_trim,
    .drop = secure_slab_drop,
    .visit = kind_visit_span,
    .count = secure_count,
};
