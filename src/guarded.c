/* Secure mode's large blocks: each between inaccessible pages. See secure.h.
 *
 *  1. A block is part of a span of the pool, or of a run of SuperSlabs: at least a page before it and one behind it are
 *     forbidden. The rest of its last page begins with the canary, as far as that fits.
 *  2. What is freed is cleared or purged, and forbidden, and waits in a quarantine that all threads share: it comes to a
 *     random place there; what had the place goes on into a ring; what had the place in the ring goes back to the pool.
 *     Up to a MiB each and an eighth of what is in use are cleared and stay resident: new pages would cost five times that.
 *  3. It stays inaccessible there: whoever takes a span makes accessible what it needs. So giving back needs nothing of
 *     the kernel, which may refuse access under RLIMIT_DATA, and what is free does not count against that.
 *
 * A block's record is touched by whoever holds the block; who made its state free holds it from then on. */
#include "fail.h"
#include "os.h"
#include "secure.h"
#include "tiers.h"

#include <string.h>

#define GUARDS_MOST 8000         /* blocks with guards: up to three of the kernel's 65,530 mappings each */
#define QUARANTINE_PLACES 64     /* in each part */
#define KEEP_BLOCK_BYTES_MAX MIB /* larger ones are purged when they are freed */
#define KEEP_SHARE 8             /* one slot in so many that are in use */
#define TOUCHED_MOST 16
#define QUARANTINE_BLOCK_BYTES_MAX (32 * MIB) /* larger ones don't wait: addresses may be limited */

static _Atomic(struct slab *) random_part[QUARANTINE_PLACES], ring_part[QUARANTINE_PLACES]; /* pair with themselves */
static _Atomic uint32_t ring_at;
static _Atomic int32_t touched;    /* how many more of the blocks freed lately were touched whole than were not */
static _Atomic int64_t kept_slots; /* about: of blocks in quarantine that are resident */
static _Atomic uint32_t guards;

static size_t committed_bytes(size_t bytes) { return round_up(max_size(bytes, 1), os_page_bytes()); }
static char *block_of(const struct slab *s) { return slab_address(s) + s->lead_bytes % SLOT_BYTES; }
static char *span_begin(const struct slab *s) { return block_of(s) - s->lead_bytes; }
static char *span_end(const struct slab *s) { return span_begin(s) + s->span_slots * SLOT_BYTES; }

/* The canary, or what of it fits between the block and its guard. */
static size_t canary_bytes(const struct slab *s) {
    return min_size(committed_bytes(s->bytes) - s->bytes, CANARY_BYTES);
}
static void put_canary(const struct slab *s) {
    uint64_t canary = secure_canary((uintptr_t)block_of(s));
    memcpy(block_of(s) + s->bytes, &canary, canary_bytes(s));
}
static bool has_canary(const struct slab *s) {
    uint64_t canary = secure_canary((uintptr_t)block_of(s));
    return memcmp(block_of(s) + s->bytes, &canary, canary_bytes(s)) == 0;
}

static bool is_run(size_t span_slots) { return span_slots > SUPERSLAB_SLOTS; }

static size_t take(struct heap *h, size_t *slots, size_t alignment, bool *zero) {
    if (!is_run(*slots))
        return pool_take(&h->pool, (unsigned)*slots, (unsigned)max_size(alignment / SLOT_BYTES, 1), 0, zero);
    size_t superslabs = (*slots + SUPERSLAB_SLOTS - 1) / SUPERSLAB_SLOTS;
    size_t first = pool_take_run(&h->pool, superslabs, max_size(alignment, SUPERSLAB_BYTES), zero);
    *slots = superslabs * SUPERSLAB_SLOTS;
    return first != BITSET_NONE ? first * SUPERSLAB_SLOTS : BITSET_NONE;
}

static void give(struct heap *h, size_t slot, size_t slots, bool resident) {
    if (is_run(slots))
        pool_give_run(&h->pool, slot / SUPERSLAB_SLOTS, slots / SUPERSLAB_SLOTS, resident);
    else
        pool_give(&h->pool, slot, (unsigned)slots, 0);
}

/* Nobody's record but the holder's is touched. Runs are as large as the address space: of them no slot is said to be shut. */
static void set_shut(const struct slab *s, bool shut) {
    struct slab *first = slab_of_slot(slot_of(s) - s->lead_bytes / SLOT_BYTES);
    if (shut && is_run(s->span_slots))
        return;
    for (size_t i = 0; i < s->span_slots; i++)
        if (first[i].is_shut != shut)
            first[i].is_shut = shut;
}
static bool is_shut(const struct slab *s) {
    const struct slab *first = slab_of_slot(slot_of(s) - s->lead_bytes / SLOT_BYTES);
    bool shut = !is_run(s->span_slots);
    for (size_t i = 0; shut && i < s->span_slots; i++)
        shut = first[i].is_shut;
    return shut;
}

static void lose_guards(struct slab *s) {
    s->has_guards = false;
    rmw_add(&guards, (uint32_t)-1);
}

/* Without, if there are many already or the kernel has no mappings left. */
static void guard(struct slab *s, bool shut) {
    char *begin = span_begin(s), *block = block_of(s), *behind = block + committed_bytes(s->bytes);
    s->has_guards = true;
    bool room = rmw_add(&guards, 1) < GUARDS_MOST;
    if (!room ||
        (!shut && (!os_forbid(begin, (size_t)(block - begin)) || !os_forbid(behind, (size_t)(span_end(s) - behind)))))
        lose_guards(s);
}

/* What of the span the program may touch. */
static char *open_part(const struct slab *s, size_t *bytes) {
    *bytes = s->has_guards ? committed_bytes(s->bytes) : s->span_slots * SLOT_BYTES;
    return s->has_guards ? block_of(s) : span_begin(s);
}

/* Makes the block accessible and zero, and what is around it inaccessible. `zero`: the whole span is so. */
static bool open_block(struct slab *s, bool zero) {
    bool shut = is_shut(s);
    char *begin = span_begin(s);
    size_t bytes = s->span_slots * SLOT_BYTES;
    if (!zero && !shut && !os_advise(OS_PURGE, begin, bytes)) {
        if (!os_commit(begin, bytes))
            return false;
        memset(begin, 0, bytes);
    }
    guard(s, shut);
    begin = open_part(s, &bytes);
    if (os_commit(begin, bytes)) {
        if (bytes <= KEEP_BLOCK_BYTES_MAX && load_relaxed(&touched) > TOUCHED_MOST / 2 && option(OPT_POPULATE))
            os_advise(OS_POPULATE, begin, bytes);
        return true;
    }
    if (s->has_guards) { /* for want of mappings, perhaps */
        lose_guards(s);
        begin = open_part(s, &bytes);
        if (os_commit(begin, bytes))
            return true;
    }
    set_shut(s, false);
    return false;
}

void *guarded_malloc(struct heap *h, size_t bytes, size_t alignment) {
    size_t page = os_page_bytes(), lead = alignment <= page ? page : round_up(alignment, SLOT_BYTES);
    size_t slots = (lead + committed_bytes(bytes) + page + SLOT_BYTES - 1) / SLOT_BYTES;
    bool zero;
    size_t slot = take(h, &slots, alignment, &zero);
    if (slot == BITSET_NONE)
        return NULL;
    count(&h->pool.counters, COUNT_large_spans);
    struct slab *s = slab_of_slot(slot + lead / SLOT_BYTES);
    s->bytes = bytes;
    s->lead_bytes = lead;
    s->span_slots = slots;
    if (!open_block(s, zero)) {
        give(h, slot, slots, true);
        return NULL;
    }
    put_canary(s);
    store_relaxed(&s->guarded_state, BLOCK_LIVE);
    store_relaxed(&s->kind, KIND_GUARDED);
    return block_of(s);
}

/* Whether most of a freed block's pages are resident. */
static bool is_resident(char *begin, size_t bytes) {
    unsigned char pages[KEEP_BLOCK_BYTES_MAX / 4096];
    size_t n = bytes / os_page_bytes(), resident = 0;
    if (bytes > KEEP_BLOCK_BYTES_MAX || !os_resident(begin, bytes, pages))
        return false;
    for (size_t i = 0; i < n; i++)
        resident += pages[i] & 1;
    int32_t before = load_relaxed(&touched);
    bool is = resident >= n - n / 4;
    if (before != (is ? TOUCHED_MOST : 0))
        store_relaxed(&touched, is ? before + 1 : before - 1);
    return is;
}

/* Whether a freed block may stay resident; then it is counted. What was hardly touched is cheaper to purge. */
static bool keep(struct slab *s, char *begin, size_t bytes) {
    int64_t slots = (int64_t)s->span_slots;
    if (!is_resident(begin, bytes) || load_relaxed(&kept_slots) + slots > (int64_t)spans_resident_bound(KEEP_SHARE))
        return false;
    rmw_add(&kept_slots, slots);
    return s->is_kept = true;
}

/* What was accessible is zero then, and inaccessible, or not said to be. */
static void shut_block(struct slab *s) {
    size_t bytes;
    char *begin = open_part(s, &bytes);
    s->is_kept = false;
    bool zero = keep(s, begin, bytes);
    if (zero)
        memset(begin, 0, bytes);
    bool forbidden = os_forbid(begin, bytes);
    zero = zero || os_advise(OS_PURGE, begin, bytes);
    set_shut(s, forbidden && zero);
    if (zero && !s->is_kept)
        store_relaxed(&s->guarded_state, BLOCK_FREE | BLOCK_CLEAN);
    if (s->has_guards)
        lose_guards(s);
}

static void stop_keeping(struct slab *s) {
    if (s->is_kept)
        rmw_add(&kept_slots, -(int64_t)s->span_slots);
    s->is_kept = false;
}

/* It leaves the quarantine. */
static void release(struct heap *h, struct slab *s) {
    store_relaxed(&s->kind, KIND_FREE);
    stop_keeping(s);
    give(h, slot_of(s) - s->lead_bytes / SLOT_BYTES, s->span_slots, !(load_relaxed(&s->guarded_state) & BLOCK_CLEAN));
}

static struct slab *quarantine(struct heap *h, struct slab *s) {
    if (s->bytes > QUARANTINE_BLOCK_BYTES_MAX)
        return s;
    uint64_t dice = h->number != HEAP_NONE ? secure_random(h) : (uintptr_t)s / SLOT_BYTES;
    s = rmw_swap(&random_part[dice % QUARANTINE_PLACES], s);
    if (s == NULL)
        return NULL;
    uint32_t place = rmw_add(&ring_at, 1) % QUARANTINE_PLACES;
    return rmw_swap(&ring_part[place], s);
}

void guarded_empty(struct heap *h) {
    for (unsigned i = 0; i < QUARANTINE_PLACES; i++) {
        struct slab *random = rmw_swap(&random_part[i], NULL), *oldest = rmw_swap(&ring_part[i], NULL);
        if (random != NULL)
            release(h, random);
        if (oldest != NULL)
            release(h, oldest);
    }
}

/* Only who has taken it from its place may touch it. */
static size_t purge_place(struct heap *h, _Atomic(struct slab *) *place) {
    struct slab *s = load_relaxed(place) != NULL ? rmw_swap(place, NULL) : NULL, *none = NULL;
    size_t pages = 0;
    if (s == NULL)
        return 0;
    if (s->is_kept && os_advise(OS_PURGE, block_of(s), committed_bytes(s->bytes))) {
        pages = committed_bytes(s->bytes) / os_page_bytes();
        stop_keeping(s);
    }
    if (!rmw_cas(place, &none, s))
        release(h, s);
    return pages;
}

size_t guarded_purge(struct heap *h) {
    size_t pages = 0;
    for (unsigned i = 0; i < QUARANTINE_PLACES; i++)
        pages += purge_place(h, &random_part[i]) + purge_place(h, &ring_part[i]);
    return pages;
}

void guarded_free(struct heap *h, struct slab *s, void *p) {
    uint8_t live = BLOCK_LIVE;
    if (unlikely((char *)p != block_of(s))) {
        fail_bad_pointer("free", p, "inside a block", s->bytes);
        return;
    }
    if (unlikely(!rmw_cas(&s->guarded_state, &live, BLOCK_FREE))) {
        fail_double_free(p, s->bytes, heap_freer());
        return;
    }
    if (unlikely(!has_canary(s)))
        fail_damage("overflow", p, s->bytes);
    shut_block(s);
    s = quarantine(h, s);
    if (s != NULL)
        release(h, s);
}

bool guarded_resize(struct slab *s, size_t bytes) {
    char *block = block_of(s);
    size_t room = (size_t)(span_end(s) - block) - os_page_bytes();
    size_t had = committed_bytes(s->bytes), wanted = committed_bytes(bytes);
    if (bytes > room || bytes < room / 2 || bytes <= MID_BYTES_MAX)
        return false;
    if (!has_canary(s))
        fail_damage("overflow", block, s->bytes);
    if (wanted > had && !os_commit(block + had, wanted - had))
        return false;
    memset(block + s->bytes, 0, canary_bytes(s));
    s->bytes = bytes;
    put_canary(s);
    if (wanted < had) {
        if (!os_advise(OS_PURGE, block + wanted, had - wanted))
            memset(block + wanted, 0, had - wanted);
        if (!os_forbid(block + wanted, had - wanted) && s->has_guards)
            lose_guards(s);
    }
    return true;
}

enum secure_state guarded_find(struct slab *s, const void *p, size_t *bytes) {
    *bytes = s->bytes;
    if ((const char *)p != block_of(s))
        return SECURE_NO_BLOCK;
    return load_relaxed(&s->guarded_state) == BLOCK_LIVE ? SECURE_LIVE : SECURE_FREED;
}
