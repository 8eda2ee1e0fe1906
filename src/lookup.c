/* See lookup.h. */
/* SPDX-License-Identifier: MIT */
#include "lookup.h"
#include "fail.h"
#include "guard.h"
#include "os.h"
#include "remote.h"
#include "secure.h"
#include "tiers.h"

_Atomic uint8_t *lookup_state(const void *p) {
    struct slab *s = slab_at_offset(region_offset(p));
    if (slab_kind(s) != KIND_MID)
        return &s->state[0];
    s = mid_first(s);
    return &s->state[mid_block_at(s, p)];
}

#define NOT_HANDED_OUT "a block that was never handed out"

/* What a sampled block would have if it were not: all calls are to do the same with both. */
static size_t unsampled_bytes(const void *p, size_t bytes) {
    size_t asked = profile_bytes(p);
    return asked <= TINY_BYTES_MAX ? size_classes[tiny_class_of(asked)].block_bytes : bytes;
}

/* Whose block is it? Does not tell whether a tiny block is free. */
static struct block find(const void *p) {
    struct block b = {NULL, 0, "not a block of this heap"};
    if (!region_has(p))
        return b;
    struct slab *s = slab_at_offset(region_offset(p));
    enum slab_kind kind = (enum slab_kind)slab_kind(s);
    unsigned index;
    b.slab = kind == KIND_MID || kind == KIND_SECURE ? mid_first(s) : s;
    b.why = "inside a block";
    switch (kind) {
    case KIND_TINY:
        b.bytes = size_classes[slab_class(s)].block_bytes;
        index = block_index(s->divisor, (uint16_t)(uintptr_t)p);
        if (unlikely(index >= RACY_LOAD(s->hit_blocks) &&
                     ((uintptr_t)p & (SLOT_BYTES - 1)) / b.bytes >= RACY_LOAD(s->carved)))
            b.why = NOT_HANDED_OUT, b.bytes = 0;
        else if (index < size_classes[slab_class(s)].blocks)
            b.why = NULL;
        break;
    case KIND_MID:
        b.bytes = size_classes[slab_class(b.slab)].block_bytes;
        if (mid_block_at(b.slab, p) >= size_classes[slab_class(b.slab)].blocks)
            break;
        b.why = NULL;
        if (unlikely(load_relaxed(lookup_state(p)) == (BLOCK_LIVE | BLOCK_SAMPLED)))
            b.bytes = unsampled_bytes(p, b.bytes);
        break;
    case KIND_LARGE:
    case KIND_HUGE:
        b.bytes = asked_bytes(s);
        if ((const char *)p == slab_address(s))
            b.why = NULL;
        break;
    case KIND_SAMPLED:
        b.bytes = s->bytes;
        if (s->bytes == 0)
            b.why = NOT_HANDED_OUT;
        else if (guard_is_block(s, p))
            b.why = NULL;
        break;
    case KIND_SECURE:
    case KIND_GUARDED:
        switch (kind == KIND_SECURE ? secure_find(s, p, &b.bytes) : guarded_find(s, p, &b.bytes)) {
        case SECURE_NO_BLOCK: break;
        case SECURE_NEVER: b.why = NOT_HANDED_OUT, b.bytes = 0; break;
        default: b.why = NULL;
        }
        break;
    case KIND_FREE:
        b.why = "not a block: the heap has nothing there";
        for (size_t slot = slot_of(s), back = 1; back < SUPERSLAB_SLOTS && back <= slot; back++) {
            const struct slab *before = slab_of_slot(slot - back);
            if (slab_kind(before) == KIND_LARGE && before->slots > back)
                b.bytes = before->bytes;
        }
        break;
    }
    return b;
}

/* A page is purged only while all blocks that touch it are free. Another thread may own the slab and be about it: then the
 * block is not one of those. */
HAK_RACY static bool lies_in_purged_page(const struct block *b, const void *p) {
    if (likely(b->slab->purged_pages == 0))
        return false;
    size_t offset = (uintptr_t)p & (SLOT_BYTES - 1), page = os_page_bytes();
    return b->slab->purged_pages >> (offset / page) & 1 ||
           b->slab->purged_pages >> ((offset + b->bytes - 1) / page) & 1;
}

static bool is_free(const struct block *b, const void *p) {
    enum slab_kind kind = (enum slab_kind)slab_kind(b->slab);
    if (kind == KIND_TINY)
        return lies_in_purged_page(b, p) ||
               (block_looks_free(b->slab, (uintptr_t)p) && block_is_listed(b->slab, (uintptr_t)p));
    if (kind == KIND_SAMPLED)
        return !guard_is_live(b->slab);
    size_t bytes;
    if (kind == KIND_SECURE)
        return secure_find(b->slab, p, &bytes) == SECURE_FREED;
    if (kind == KIND_GUARDED)
        return guarded_find(b->slab, p, &bytes) == SECURE_FREED;
    if (kind == KIND_MID)
        return (load_relaxed(&b->slab->state[mid_block_at(b->slab, p)]) & BLOCK_STATE) != BLOCK_LIVE;
    return kind == KIND_LARGE && (load_relaxed(&b->slab->state[0]) & BLOCK_STATE) != BLOCK_LIVE;
}

struct block lookup_live(const void *p, const char *call) {
    struct block b = find(p);
    if (b.why != NULL)
        fail_bad_pointer(call, p, b.why, b.bytes);
    else if (!is_free(&b, p))
        return b;
    else
        fail_bad_pointer(call, p, "a block that is free", 0);
    return (struct block){NULL, 0, ""};
}

bool lookup_for_free(void *p) {
    struct block b = find(p);
    if (b.why != NULL)
        fail_bad_pointer("free", p, b.why, b.bytes);
    else if (slab_kind(b.slab) != KIND_TINY || is_free(&b, p))
        fail_double_free(p, b.bytes, block_freer(hak_heap, b.slab, (uintptr_t)p));
    else
        return true;
    return false;
}
