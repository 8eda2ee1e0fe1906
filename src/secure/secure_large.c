/* Secure mode's large blocks: each between inaccessible pages. See secure.h.
 *
 *  1. A block is part of a span of the pool, or of a run of SuperSlabs. At least one page before it and one behind it
 *     are inaccessible. The rest of its last page begins with the canary, as far as that fits.
 *  2. A freed block is cleared or purged, made inaccessible, and waits in a quarantine that all threads share. It takes
 *     a random place there; the block that had the place moves on to a ring; the block it replaces there goes to the
 *     pool. What was written in blocks up to a MiB is cleared and stays resident, as long as that is no more than what
 *     is in use plus KEEP_BYTES: new pages would cost five times as much. Other blocks get all their pages at once, and
 *     huge pages, if blocks of their size were touched whole lately.
 *  3. Free spans stay inaccessible in the pool: whoever takes one makes accessible what it needs. So giving back asks
 *     nothing of the kernel, which may refuse access under RLIMIT_DATA, and free spans do not count against that limit.
 *
 * A block's record is touched by whoever holds the block; who made its state free holds it from then on. */
/* SPDX-License-Identifier: MIT */
#include "secure/secure_large.h"
#include "base/clear.h"
#include "base/fail.h"
#include "base/options.h"
#include "base/os.h"
#include "blocks/block.h"
#include "blocks/kinds.h"
#include "blocks/zero.h"
#include "heap/ring.h"
#include "heap/search.h"
#include "pool/limits.h"
#include "pool/pool.h"
#include "process/presence.h"
#include "secure/secure_span.h"
#include "secure/secure_trace.h"

#include <string.h>

#define GUARDS_MAX 8000          /* blocks with guards; each takes up to three of the kernel's 65,530 mappings */
#define QUARANTINE_PLACES 64     /* in each part */
#define KEEP_BLOCK_BYTES_MAX MIB /* larger ones are purged when they are freed */
#define KEEP_BYTES (8 * MIB)
#define LOOKS 16 /* pages read of a freed block, to estimate how much of it was written */
#define POPULATE_BYTES_MAX (8 * MIB)
#define TOUCHED_MAX 16
#define QUARANTINE_BLOCK_BYTES_MAX (32 * MIB) /* larger ones do not wait: addresses may be limited */

/* Any thread. Each number stands for itself and may be a little off. A place pairs with itself: whoever exchanges a
 * record out of it holds that block. */
static HAK_APART struct {
    _Atomic(struct slab *) random[QUARANTINE_PLACES], ring[QUARANTINE_PLACES]; /* the quarantine's two parts */
    _Atomic uint32_t ring_at;                                                  /* places of the ring taken so far */
    _Atomic int32_t touched[2]; /* how many more of the blocks freed lately were touched whole than were not; the second
                                      of those that are too large to be kept */
    _Atomic int64_t kept_pages; /* of blocks in quarantine that are resident */
    _Atomic int64_t waiting_slots; /* slots of freed blocks that are not back in the pool yet */
    _Atomic uint32_t guards;       /* blocks with guards */
} secure_large_all;

static size_t committed_bytes(size_t bytes) { return round_up(max_size(bytes, 1), os_page_bytes()); }
static char *block_of(const struct slab *s) { return slab_address(s) + s->single.lead_bytes % SLOT_BYTES; }
static char *span_begin(const struct slab *s) { return block_of(s) - s->single.lead_bytes; }
static char *span_end(const struct slab *s) { return span_begin(s) + s->single.span_slots * SLOT_BYTES; }

/* How much of the canary fits between the block and its guard. The rest of the page is zero. */
static size_t canary_bytes(const struct slab *s) {
    return min_size(committed_bytes(s->single.bytes) - s->single.bytes, CANARY_BYTES);
}
static void put_canary(const struct slab *s) {
    uint64_t canary = canary_of((uintptr_t)block_of(s));
    memcpy(block_of(s) + s->single.bytes, &canary, canary_bytes(s));
}
static bool has_canary(const struct slab *s) {
    uint64_t canary = canary_of((uintptr_t)block_of(s));
    const char *end = block_of(s) + committed_bytes(s->single.bytes),
               *rest = block_of(s) + s->single.bytes + canary_bytes(s);
    while (rest < end && *rest == 0)
        rest++;
    return rest == end && memcmp(block_of(s) + s->single.bytes, &canary, canary_bytes(s)) == 0;
}

static bool is_run(size_t span_slots) { return span_slots > SUPERSLAB_SLOTS; }

static size_t secure_large_take(struct heap *h, size_t *slots, size_t alignment, bool *zero) {
    if (!is_run(*slots))
        return pool_take(&h->client, (unsigned)*slots, (unsigned)max_size(alignment / SLOT_BYTES, 1), 0, zero);
    size_t superslabs = (*slots + SUPERSLAB_SLOTS - 1) / SUPERSLAB_SLOTS;
    size_t first = pool_take_run(&h->client, superslabs, max_size(alignment, SUPERSLAB_BYTES), zero);
    *slots = superslabs * SUPERSLAB_SLOTS;
    return first != BITSET_NONE ? first * SUPERSLAB_SLOTS : BITSET_NONE;
}

/* Gives the span back. A refusal to replace the mapping of a block in huge pages may have left a hole (renew): then the
 * run waits to be mapped again. */
static void secure_large_give(struct heap *h, const struct slab *s, bool resident) {
    size_t slots = s->single.span_slots, slot = slot_of(s) - s->single.lead_bytes / SLOT_BYTES;
    if (!is_run(slots))
        pool_give(&h->client, slot, (unsigned)slots, 0, resident);
    else if (resident && s->single.is_huge && !os_forbid(span_begin(s), slots * SLOT_BYTES))
        pool_give_unmapped_run(&h->client, slot / SUPERSLAB_SLOTS, slots / SUPERSLAB_SLOTS);
    else
        pool_give_run(&h->client, slot / SUPERSLAB_SLOTS, slots / SUPERSLAB_SLOTS, resident);
}

/* Only the holder's records are written. Runs are never marked shut: they can be as large as the address space. */
static void set_shut(const struct slab *s, bool shut) {
    struct slab *first = slab_of_slot(slot_of(s) - s->single.lead_bytes / SLOT_BYTES);
    if (shut && is_run(s->single.span_slots))
        return;
    for (size_t i = 0; i < s->single.span_slots; i++)
        if (first[i].single.is_shut != shut)
            first[i].single.is_shut = shut;
}
static bool is_shut(const struct slab *s) {
    const struct slab *first = slab_of_slot(slot_of(s) - s->single.lead_bytes / SLOT_BYTES);
    bool shut = !is_run(s->single.span_slots);
    for (size_t i = 0; shut && i < s->single.span_slots; i++)
        shut = first[i].single.is_shut;
    return shut;
}

static void lose_guards(struct slab *s) {
    s->single.has_guards = false;
    rmw_add(&secure_large_all.guards, (uint32_t)-1);
}

/* Adds guard pages, unless there are too many already or the kernel has no mappings left. */
static void guard(struct slab *s, bool shut) {
    char *begin = span_begin(s), *block = block_of(s), *behind = block + committed_bytes(s->single.bytes);
    s->single.has_guards = true;
    bool room = rmw_add(&secure_large_all.guards, 1) < GUARDS_MAX;
    if (!room ||
        (!shut && (!os_forbid(begin, (size_t)(block - begin)) || !os_forbid(behind, (size_t)(span_end(s) - behind)))))
        lose_guards(s);
}

/* The part of the span that the program may touch. */
static char *open_part(const struct slab *s, size_t *bytes) {
    *bytes = s->single.has_guards ? committed_bytes(s->single.bytes) : s->single.span_slots * SLOT_BYTES;
    return s->single.has_guards ? block_of(s) : span_begin(s);
}

/* Whether programs seem to touch blocks of about this size whole. */
static bool are_touched(size_t bytes) {
    return bytes <= POPULATE_BYTES_MAX &&
           load_relaxed(&secure_large_all.touched[bytes > KEEP_BLOCK_BYTES_MAX]) > TOUCHED_MAX / 2 &&
           option(OPT_POPULATE);
}

/* If the system refuses, it may have unmapped any part of the range: that becomes inaccessible, page by page because
 * what is still mapped stays as it is. */
static bool renew(enum os_map_kind kind, char *begin, size_t bytes) {
    bool done = os_map(kind, begin, bytes) == begin;
    for (size_t at = 0; !done && at < bytes; at += os_page_bytes())
        os_map(OS_RESERVE, begin + at, os_page_bytes());
    region_undump_again(begin, bytes);
    return done;
}

/* Makes the block accessible and zero, and the span around it inaccessible. `zero`: the whole span is zero already. */
static bool open_block(struct slab *s, bool zero) {
    bool shut = is_shut(s);
    char *begin = span_begin(s);
    size_t bytes = s->single.span_slots * SLOT_BYTES;
    if (!zero && !shut && !make_zero(begin, bytes))
        return false;
    guard(s, shut);
    begin = open_part(s, &bytes);
    if (s->single.is_huge && s->single.has_guards ? renew(OS_FRESH_HUGE, begin, bytes) : os_commit(begin, bytes)) {
        if ((zero || !shut) && are_touched(bytes)) /* else most of it is resident already */
            touch_pages(begin, bytes);
        return true;
    }
    if (s->single.has_guards) { /* mappings may have run out */
        lose_guards(s);
        begin = open_part(s, &bytes);
        if (os_commit(begin, bytes))
            return true;
    }
    set_shut(s, false);
    return false;
}

static void *begin_block(struct heap *h, size_t bytes, size_t alignment, bool huge) {
    size_t page = os_page_bytes(), lead = alignment <= page ? page : round_up(alignment, SLOT_BYTES);
    size_t slots = (lead + committed_bytes(bytes) + page + SLOT_BYTES - 1) / SLOT_BYTES;
    bool zero;
    size_t slot = secure_large_take(h, &slots, alignment, &zero);
    if (slot == BITSET_NONE)
        return NULL;
    count(&h->client.counters, COUNT_large_spans);
    struct slab *s = slab_of_slot(slot + lead / SLOT_BYTES);
    s->single.bytes = bytes;
    s->single.lead_bytes = lead;
    s->single.span_slots = slots;
    s->single.is_huge = huge && !superslab_has_huge_page(slot);
    s->single.maker = MADE_BY_MALLOC;
    if (!open_block(s, zero)) {
        secure_large_give(h, s, true);
        return NULL;
    }
    put_canary(s);
    store_relaxed(&s->single.state, BLOCK_LIVE);
    store_relaxed(&s->kind, kind_for_client(&h->client, KIND_SECURE_LARGE));
    return secure_trace(block_of(s), STACK_ALLOCATED);
}

/* The guard before a block in huge pages takes a whole SuperSlab, which counts against limits, an arena's too, and uses
 * addresses. */
static bool huge_pages_pay(const struct heap *h, size_t bytes) {
    return bytes >= SUPERSLAB_BYTES && h->client.arena == 0 && are_touched(bytes) &&
           option(OPT_HUGE_PAGES) != HUGE_NEVER && !limits_near() && !limits_set() && !hak_region.window;
}

void *secure_large_malloc(struct heap *h, size_t bytes, size_t alignment) {
    if (huge_pages_pay(h, bytes)) {
        void *p = begin_block(h, bytes, max_size(alignment, SUPERSLAB_BYTES), true);
        if (p != NULL)
            return p;
    }
    return begin_block(h, bytes, alignment, false);
}

/* Estimates how many pages of a freed block were written, from its beginning on. Reads one page in each sixteenth of
 * the block until one is zero, then the pages of the sixteenth before. Reading a page that was never touched costs a
 * fault, so at most two such pages are read. The kernel would tell what is resident, but by a call (mincore) that
 * malloc needs nowhere else, so a sandbox may forbid it. Also notes in `touched` whether the block was written
 * whole. */
static size_t written_pages(const char *begin, size_t bytes) {
    const size_t page = os_page_bytes(), n = bytes / page, step = (n + LOOKS - 1) / LOOKS;
    const uintptr_t at = (uintptr_t)begin;
    size_t written = 0;
    while (written < n && !memory_is_zero(at + written * page, page))
        written += step;
    size_t end = min_size(written, n);
    if (written != 0 && written < n)
        for (written -= step - 1; written < end && !memory_is_zero(at + written * page, page);)
            written++;
    written = min_size(written, n);
    _Atomic int32_t *of_size = &secure_large_all.touched[bytes > KEEP_BLOCK_BYTES_MAX];
    int32_t before = load_relaxed(of_size);
    bool whole = written >= n - n / 4;
    if (before != (whole ? TOUCHED_MAX : 0))
        store_relaxed(of_size, whole ? before + 1 : before - 1);
    return written;
}

/* Whether this many more unused pages may stay resident: in all, at most as many as are in use, plus KEEP_BYTES. */
static bool may_keep(size_t pages) {
    size_t slots = spans_resident_bound((size_t)load_relaxed(&secure_large_all.waiting_slots), 1);
    size_t max = slots != 0 ? slots * (SLOT_BYTES / os_page_bytes()) + KEEP_BYTES / os_page_bytes() : 0;
    return load_relaxed(&secure_large_all.kept_pages) + (int64_t)pages <= (int64_t)max;
}

/* Clears what was written in a freed block, if that may stay resident, and purges the rest. Not without guards: then
 * the kernel has refused something, and not all of the span's pages may be accessible. */
static bool keep(struct slab *s, char *begin, size_t bytes) {
    bool may_look = s->single.has_guards && bytes <= POPULATE_BYTES_MAX;
    size_t page = os_page_bytes(), written = may_look ? written_pages(begin, bytes) : 0;
    size_t written_bytes = written * page;
    if (written == 0 || bytes > KEEP_BLOCK_BYTES_MAX || !may_keep(written))
        return false;
    memset(begin, 0, written_bytes);
    if (written_bytes < bytes && !os_advise(OS_PURGE, begin + written_bytes, bytes - written_bytes))
        return false;
    rmw_add(&secure_large_all.kept_pages, (int64_t)written);
    s->single.kept_pages = (uint16_t)written;
    return true;
}

/* Makes what was accessible zero and inaccessible. If either fails, the slots are not marked shut. */
static void shut_block(struct slab *s) {
    size_t bytes;
    char *begin = open_part(s, &bytes);
    s->single.kept_pages = 0;
    bool renewed = s->single.is_huge && renew(OS_FRESH_SHUT, begin, bytes); /* without huge pages */
    bool zero = renewed || (!s->single.is_huge && keep(s, begin, bytes)) || os_advise(OS_PURGE, begin, bytes);
    bool forbidden = renewed || os_forbid(begin, bytes);
    set_shut(s, forbidden && zero);
    if (zero && s->single.kept_pages == 0)
        store_relaxed(&s->single.state, BLOCK_FREE | BLOCK_CLEAN);
    if (s->single.has_guards)
        lose_guards(s);
}

static void stop_keeping(struct slab *s) {
    rmw_add(&secure_large_all.kept_pages, -(int64_t)s->single.kept_pages);
    s->single.kept_pages = 0;
}

/* Moves a block from the quarantine to the pool. */
static void release(struct heap *h, struct slab *s) {
    store_relaxed(&s->kind, KIND_FREE);
    stop_keeping(s);
    rmw_add(&secure_large_all.waiting_slots, -(int64_t)s->single.span_slots);
    secure_large_give(h, s, !(load_relaxed(&s->single.state) & BLOCK_CLEAN));
}

static struct slab *secure_large_quarantine(struct heap *h, struct slab *s) {
    if (s->single.bytes > QUARANTINE_BLOCK_BYTES_MAX)
        return s;
    uint64_t random = h->number != HEAP_NONE ? secure_random(h) : (uintptr_t)s / SLOT_BYTES;
    s = rmw_swap(&secure_large_all.random[random % QUARANTINE_PLACES], s);
    if (s == NULL)
        return NULL;
    uint32_t place = rmw_add(&secure_large_all.ring_at, 1) % QUARANTINE_PLACES;
    return rmw_swap(&secure_large_all.ring[place], s);
}

void secure_large_empty(struct heap *h) {
    for (unsigned i = 0; i < QUARANTINE_PLACES; i++) {
        struct slab *random = rmw_swap(&secure_large_all.random[i], NULL),
                    *oldest = rmw_swap(&secure_large_all.ring[i], NULL);
        if (random != NULL)
            release(h, random);
        if (oldest != NULL)
            release(h, oldest);
    }
}

/* Purges the block in a place. Takes the block out meanwhile, because only whoever does so may touch it. */
static size_t purge_place(struct heap *h, _Atomic(struct slab *) *place) {
    struct slab *s = load_relaxed(place) != NULL ? rmw_swap(place, NULL) : NULL, *none = NULL;
    size_t pages = 0;
    if (s == NULL)
        return 0;
    if (s->single.kept_pages != 0 && os_advise(OS_PURGE, block_of(s), committed_bytes(s->single.bytes))) {
        pages = s->single.kept_pages;
        stop_keeping(s);
        store_relaxed(&s->single.state, BLOCK_FREE | BLOCK_CLEAN);
    }
    if (!rmw_cas(place, &none, s))
        release(h, s);
    return pages;
}

size_t secure_large_purge(struct heap *h) {
    size_t pages = 0;
    for (unsigned i = 0; i < QUARANTINE_PLACES; i++)
        pages += purge_place(h, &secure_large_all.random[i]) + purge_place(h, &secure_large_all.ring[i]);
    return pages;
}

/* For whoever has made the block's state free. */
static void end_block(struct heap *h, struct slab *s) {
    rmw_add(&secure_large_all.waiting_slots, (int64_t)s->single.span_slots);
    shut_block(s);
    s = secure_large_quarantine(h, s);
    if (s != NULL)
        release(h, s);
}

static void secure_large_free(struct heap *h, struct slab *s, void *p) {
    uint8_t live = BLOCK_LIVE;
    if (unlikely((char *)p != block_of(s))) {
        fail_bad_pointer("free", p, "inside a block", s->single.bytes);
        return;
    }
    if (unlikely(!rmw_cas(&s->single.state, &live, BLOCK_FREE))) {
        fail_double_free(p, s->single.bytes, search_only_freer());
        return;
    }
    if (unlikely(!has_canary(s)))
        fail_damage("overflow", p, s->single.bytes);
    secure_trace(p, STACK_FREED);
    end_block(h, s);
    rings_shrink(h);
}

/* The quarantine takes the block, which is the process's then. A child of fork may have seen the state before the
 * canary. */
static bool secure_large_drop(struct heap *h, struct slab *s) {
    uint8_t live = BLOCK_LIVE;
    if (!rmw_cas(&s->single.state, &live, BLOCK_FREE))
        return false;
    if (!has_canary(s) && !presence_lost_threads())
        fail_damage("overflow", block_of(s), s->single.bytes);
    end_block(h, s);
    return false;
}

/* Extends a run by the SuperSlabs behind it, if they are free. */
static bool extend(struct heap *h, struct slab *s, size_t bytes) {
    size_t had = s->single.span_slots / SUPERSLAB_SLOTS,
           needed = s->single.lead_bytes + committed_bytes(bytes) + os_page_bytes();
    size_t wanted = round_up(needed, SUPERSLAB_BYTES) / SUPERSLAB_BYTES, extra_bytes = (wanted - had) * SUPERSLAB_BYTES;
    size_t first = (slot_of(s) - s->single.lead_bytes / SLOT_BYTES) / SUPERSLAB_SLOTS;
    char *end = span_end(s);
    if (!is_run(s->single.span_slots) || !pool_extend_run(&h->client, first, had, wanted))
        return false;
    if (os_advise(OS_PURGE, end, extra_bytes) &&
        (s->single.has_guards ? os_forbid(end, extra_bytes) : os_commit(end, extra_bytes))) {
        s->single.span_slots = wanted * SUPERSLAB_SLOTS;
        return true;
    }
    for (size_t slot = (first + had) * SUPERSLAB_SLOTS; slot < (first + wanted) * SUPERSLAB_SLOTS; slot++)
        slab_of_slot(slot)->single.is_shut = false;
    pool_give_run(&h->client, first + had, wanted - had, true);
    return false;
}

/* What the program may use of the block becomes more, for which there is memory, or less. */
static void secure_large_set_bytes(struct slab *s, size_t bytes) {
    char *block = block_of(s);
    size_t had = committed_bytes(s->single.bytes), wanted = committed_bytes(bytes);
    uint8_t state = block_begin_change(s);
    memset(block + s->single.bytes, 0, canary_bytes(s));
    if (bytes < s->single.bytes) /* the part that stays accessible */
        memset(block + bytes, 0, min_size(wanted, s->single.bytes) - bytes);
    s->single.bytes = bytes;
    s->single.maker = MADE_BY_MALLOC;
    put_canary(s);
    block_end_change(s, state);
    if (wanted >= had)
        return;
    if (!os_advise(OS_PURGE, block + wanted, had - wanted))
        memset(block + wanted, 0, had - wanted);
    if (!os_forbid(block + wanted, had - wanted) && s->single.has_guards)
        lose_guards(s);
}

static void check_live(const struct slab *s) {
    if (!has_canary(s))
        fail_damage("overflow", block_of(s), s->single.bytes);
}

static bool secure_large_resize(struct heap *h, struct slab *s, void *p, size_t bytes) {
    (void)p;
    char *block = block_of(s);
    size_t room = (size_t)(span_end(s) - block) - os_page_bytes();
    size_t had = committed_bytes(s->single.bytes), wanted = committed_bytes(bytes);
    if (bytes < room / 2 || bytes <= MID_BYTES_MAX || (bytes > room && !extend(h, s, bytes)))
        return false;
    check_live(s);
    if (wanted > had && !os_commit(block + had, wanted - had)) {
        if (!os_forbid(block + had, wanted - had) && s->single.has_guards) /* a part of it may be accessible by now */
            lose_guards(s);
        return false;
    }
    secure_large_set_bytes(s, bytes);
    return true;
}

static void secure_large_shrink(struct slab *s, void *p, size_t bytes) {
    (void)p;
    check_live(s);
    secure_large_set_bytes(s, bytes);
}

enum secure_state secure_large_find(struct slab *s, const void *p, size_t *bytes) {
    *bytes = s->single.bytes;
    if ((const char *)p != block_of(s))
        return SECURE_NO_BLOCK;
    return load_relaxed(&s->single.state) == BLOCK_LIVE ? SECURE_LIVE : SECURE_FREED;
}

static void secure_large_find_block(struct block *b, const void *p) {
    if (secure_large_find(b->slab, p, &b->bytes) != SECURE_NO_BLOCK)
        b->why = NULL;
}

static bool secure_large_is_free(const struct block *b, const void *p) {
    size_t bytes;
    return secure_large_find(b->slab, p, &bytes) == SECURE_FREED;
}

static void secure_large_count(const struct slab *s, struct span_use *use) {
    use->slots = s->single.span_slots - s->single.lead_bytes / SLOT_BYTES;
    use->out_bytes = load_relaxed(&s->single.state) == BLOCK_LIVE ? s->single.bytes : 0;
}

static void secure_large_check(struct slab *s) {
    if (load_relaxed(&s->single.state) == BLOCK_LIVE && canary_is_there(block_of(s) + s->single.bytes, canary_bytes(s)))
        check_live(s);
}

static void secure_large_visit(struct slab *s, block_visitor *call, void *argument) {
    kind_visit_at(s, slab_address(s) + s->single.lead_bytes % SLOT_BYTES, call, argument);
}

const struct kind kind_secure_large = {
    .name = "a guarded block",
    .is_secure = true,
    .free = secure_large_free,
    .resize = secure_large_resize,
    .resize_from_bytes = MID_BYTES_MAX + 1,
    .shrink = secure_large_shrink,
    .find = secure_large_find_block,
    .is_free = secure_large_is_free,
    .size_fits = secure_size_fits,
    .empty_caches = secure_large_empty,
    .check = secure_large_check,
    .drop = secure_large_drop,
    .visit = secure_large_visit,
    .count = secure_large_count,
};
