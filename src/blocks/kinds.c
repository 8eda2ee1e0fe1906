/* The table of kinds, and the kind of slots in which no block begins. See kinds.h. */
/* SPDX-License-Identifier: MIT */
#include "blocks/kinds.h"
#include "base/snapshot.h"

const struct kind *const kinds[] = {
#define ENTRY(number, row) [number] = &(row),
    KINDS(ENTRY)[KIND_IN_ARENA... KIND_IN_ARENA + KIND_COUNT - 1] = &kind_arena,
#undef ENTRY
};

bool kind_visit_at(struct slab *s, void *p, block_visitor *call, void *argument) {
    struct block b = {s, 0, ""};
    kind_of(s)->find(&b, p);
    return b.why != NULL || kind_has_freed(&b, p) || call(p, b.bytes, argument);
}

void kind_visit_first(struct slab *s, block_visitor *call, void *argument) {
    kind_visit_at(s, slab_address(s), call, argument);
}

void kind_visit_span(struct slab *s, block_visitor *call, void *argument) {
    bool more = s->first_offset == 0; /* else the record of a later slot */
    for (unsigned i = 0; more && i < s->mid.blocks; i++)
        more = kind_visit_at(s, slab_address(s) + (size_t)i * s->mid.block_bytes, call, argument);
}

/* A large block has one record; the further slots' records are of this kind. */
static void free_slot_find(struct block *b, const void *p) {
    (void)p;
    b->why = "not a block: the heap has nothing there";
    for (size_t slot = slot_of(b->slab), back = 1; back < SUPERSLAB_SLOTS && back <= slot; back++) {
        struct slab before; /* another thread's */
        snapshot(&before, slab_of_slot(slot - back), sizeof before);
        if (slab_tier(&before) == KIND_LARGE && before.slots > back)
            b->bytes = before.single.bytes;
    }
}

static void free_slot_count(const struct slab *s, struct span_use *use) {
    (void)s;
    use->slots = 1;
    use->is_in_pool = true;
}

const struct kind kind_free = {
    .name = "free",
    .free = lookup_free_none,
    .find = free_slot_find,
    .count = free_slot_count,
};
