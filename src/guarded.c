/* Secure mode's large blocks: each between inaccessible pages. See secure.h.
 *
 *  1. A block is part of a span of the pool, or of a run of SuperSlabs: at least a page before it and one behind it are
 *     forbidden. The rest of its last page begins with the canary, as far as that fits.
 *  2. What is freed is purged and forbidden, and waits in a quarantine that all threads share: it comes to a random place
 *     there; what had the place goes on into a ring; what had the place in the ring goes back to the pool.
 *
 * A block's record is touched by whoever holds the block; who made its state free holds it from then on. */
#include "fail.h"
#include "os.h"
#include "secure.h"
#include "tiers.h"

#include <string.h>

#define GUARDS_MOST 8000                      /* blocks with guards: up to three of the kernel's 65,530 mappings each */
#define QUARANTINE_PLACES 64                  /* in each part */
#define QUARANTINE_BLOCK_BYTES_MAX (32 * MIB) /* larger ones don't wait: addresses may be limited */

static _Atomic(struct slab *) random_part[QUARANTINE_PLACES], ring_part[QUARANTINE_PLACES]; /* pair with themselves */
static _Atomic uint32_t ring_at;
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

/* Without, if the kernel has no mappings left. */
static void guard(const struct slab *s) {
    char *begin = span_begin(s), *block = block_of(s), *behind = block + committed_bytes(s->bytes);
    if (rmw_add(&guards, 1) >= GUARDS_MOST)
        return;
    os_forbid(begin, (size_t)(block - begin));
    os_forbid(behind, (size_t)(span_end(s) - behind));
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
    if (!zero && !os_advise(OS_PURGE, block_of(s), committed_bytes(bytes)))
        memset(block_of(s), 0, committed_bytes(bytes));
    guard(s);
    put_canary(s);
    store_relaxed(&s->guarded_state, BLOCK_LIVE);
    store_relaxed(&s->kind, KIND_GUARDED);
    return block_of(s);
}

/* It leaves the quarantine. Without access to all of it it can't be used again, and is lost. */
static void release(struct heap *h, struct slab *s) {
    size_t slot = slot_of(s) - s->lead_bytes / SLOT_BYTES, slots = s->span_slots;
    store_relaxed(&s->kind, KIND_FREE);
    rmw_add(&guards, (uint32_t)-1);
    if (os_commit(slot_address(slot), slots * SLOT_BYTES))
        give(h, slot, slots, !(load_relaxed(&s->guarded_state) & BLOCK_CLEAN));
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

void guarded_free(struct heap *h, struct slab *s, void *p) {
    uint8_t live = BLOCK_LIVE;
    if (unlikely((char *)p != block_of(s))) {
        fail_bad_pointer("free", p, "inside a block", s->bytes);
        return;
    }
    if (unlikely(!rmw_cas(&s->guarded_state, &live, BLOCK_FREE))) {
        fail_double_free(p, s->bytes);
        return;
    }
    if (unlikely(!has_canary(s)))
        fail_damage("overflow", p, s->bytes);
    size_t bytes = committed_bytes(s->bytes);
    os_forbid(p, bytes);
    if (os_advise(OS_PURGE, p, bytes))
        store_relaxed(&s->guarded_state, BLOCK_FREE | BLOCK_CLEAN);
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
        os_forbid(block + wanted, had - wanted);
        os_advise(OS_PURGE, block + wanted, had - wanted);
    }
    return true;
}

enum secure_state guarded_find(struct slab *s, const void *p, size_t *bytes) {
    *bytes = s->bytes;
    if ((const char *)p != block_of(s))
        return SECURE_NO_BLOCK;
    return load_relaxed(&s->guarded_state) == BLOCK_LIVE ? SECURE_LIVE : SECURE_FREED;
}
