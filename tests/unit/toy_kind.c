/* A kind of slabs that the library does not have: this file and one row. A block is a slot; a freed one is kept for the
 * next request until memory runs out or the program asks for all that can be given back. */
/* SPDX-License-Identifier: MIT */
#include "toy_kind.h"
#include "base/fail.h"

/* The library's table, and the row. The linker takes it instead of the library's own. */
#define kinds kinds_of_library
#include "../../src/blocks/kinds.c"
#undef kinds
enum { KIND_TOY = KIND_COUNT };
extern const struct kind kind_toy;
const struct kind *const kinds[] = {
#define ENTRY(number, row) [number] = &(row),
    KINDS(ENTRY)[KIND_TOY] = &kind_toy,
    NULL,
#undef ENTRY
};

#include "blocks/block.h"
#include "pool/pool.h"
#include "threads/thread.h"

static _Atomic(struct slab *) kept; /* a freed block's record: its slot is ACTIVE still */

static void give_slot(struct heap *h, struct slab *s) {
    store_relaxed(&s->kind, KIND_FREE);
    pool_give(&h->client, slot_of(s), 1, 0, true);
}

static void *toy_take(struct heap *h, size_t bytes, size_t alignment, bool *zero) {
    struct slab *s = rmw_swap(&kept, NULL);
    *zero = false;
    if (bytes > SLOT_BYTES || alignment > SLOT_BYTES)
        return NULL;
    if (s == NULL) {
        size_t slot = pool_take(&h->client, 1, 1, 0, zero);
        if (slot == BITSET_NONE)
            return NULL;
        s = slab_of_slot(slot);
        s->single.bytes = SLOT_BYTES;
        store_relaxed(&s->class_id, CLASS_NONE);
    }
    store_relaxed(&s->single.state, BLOCK_LIVE);
    store_relaxed(&s->kind, KIND_TOY);
    return slab_address(s);
}

static void toy_find(struct block *b, const void *p) {
    b->bytes = SLOT_BYTES;
    if ((const char *)p == slab_address(b->slab))
        b->why = NULL;
}

static bool toy_is_free(const struct block *b, const void *p) {
    (void)p;
    return load_relaxed(&b->slab->single.state) != BLOCK_LIVE;
}

static void toy_free(struct heap *h, struct slab *s, void *p) {
    uint8_t live = BLOCK_LIVE;
    if ((char *)p != slab_address(s)) {
        fail_bad_pointer("free", p, "inside a block", SLOT_BYTES);
        return;
    }
    if (!rmw_cas(&s->single.state, &live, BLOCK_FREE)) {
        fail_double_free(p, SLOT_BYTES, FREER_UNKNOWN);
        return;
    }
    struct slab *before = rmw_swap(&kept, s);
    if (before != NULL)
        give_slot(h, before);
}

static void toy_empty_caches(struct heap *h) {
    struct slab *s = rmw_swap(&kept, NULL);
    if (s != NULL)
        give_slot(h, s);
}

static void toy_count(const struct slab *s, struct span_use *use) {
    bool live = block_state(s, 0) == BLOCK_LIVE;
    use->slots = 1;
    *(live ? &use->out_bytes : &use->cached_bytes) = SLOT_BYTES;
}

const struct kind kind_toy = {
    .name = "a toy",
    .malloc = toy_take,
    .free = toy_free,
    .find = toy_find,
    .is_free = toy_is_free,
    .empty_caches = toy_empty_caches,
    .count = toy_count,
};

/* What kind_for in alloc.c would choose. */
void *toy_malloc(size_t bytes) {
    bool zero;
    struct heap *h = thread_enter();
    void *p = h != NULL ? kind_toy.malloc(h, bytes, 1, &zero) : NULL;
    thread_leave(h);
    return p;
}

int toy_has_kept_a_block(void) { return load_relaxed(&kept) != NULL; }
