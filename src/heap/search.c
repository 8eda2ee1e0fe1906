/* See search.h. */
/* SPDX-License-Identifier: MIT */
#include "heap/search.h"
#include "base/snapshot.h"
#include "blocks/inbox.h"
#include "blocks/kinds.h"
#include "heap/sample.h"
#include "heap/slab_record.h"

enum freer search_only_freer(void) { return heap_is_the_only() ? FREER_THIS_THREAD : FREER_UNKNOWN; }

/* Looks for the block in the chain, up to `last` or to the chain's end. */
HAK_READS_PROGRAM_BYTES static bool chain_has_up_to(const struct slab *s, uintptr_t chain, uintptr_t last,
                                                    uintptr_t block) {
    for (unsigned left = size_classes[slab_class(s)].blocks; left > 0 && same_slot(chain, block); left--) {
        if (chain == block)
            return true;
        if (chain == last || is_terminator(chain))
            return false;
        chain = *(const volatile uintptr_t *)block_word(chain) ^ hak_region.key;
    }
    return false;
}

static bool chain_has(const struct slab *s, uintptr_t chain, uintptr_t block) {
    return chain_has_up_to(s, chain, slab_terminator(s), block);
}

/* The heap in whose outbox the block is, or NULL. The search ends at the entry's last block: once the entry is sent,
 * that block links to what others freed. */
static const struct heap *outbox_with(const struct slab *s, uintptr_t block) {
    for (const struct heap *h = heap_newest(); h != NULL; h = h->next) {
        const struct outbox_entry *entry = outbox_entry_of(h, s);
        if (!outbox_gathers(entry, s))
            continue;
        struct outbox_entry e;
        snapshot(&e, entry, sizeof e);
        uintptr_t slab = (uintptr_t)slab_address(s);
        if (chain_has_up_to(s, slab + e.first, slab + e.last, block) && outbox_gathers(entry, s))
            return h;
    }
    return NULL;
}

static bool inbox_has(const struct slab *s, uintptr_t block) {
    uint64_t word = load_acquire(&s->inbox);
    return word != 0 && chain_has(s, inbox_newest(s, word), block);
}

/* acquire: what the owner stored before the block came there */
static bool list_has(const struct slab *s, uintptr_t block) { return chain_has(s, load_acquire(&s->tiny.list), block); }

static bool heap_has(const struct heap *h, const struct slab *s, uintptr_t block) {
    unsigned c = slab_class(s);
    return chain_has(s, load_acquire(&h->list[c]), block) ||
           (sample_on(h) && chain_has(s, load_relaxed(&h->sampled[c].rest), block));
}

/* Looks in the order in which blocks travel, so that a block that travels meanwhile is met. */
bool search_lists(const struct slab *s, uintptr_t block) {
    if (outbox_with(s, block) != NULL || inbox_has(s, block) || list_has(s, block))
        return true;
    for (const struct heap *h = heap_newest(); h != NULL;
         h = h->next) /* that of the current slab, or out of an inbox */
        if (heap_has(h, s, block))
            return true;
    return list_has(s, block);
}

/* Is the heap that of the thread whose own heap is `h`, or one that this thread has in an arena? */
static bool is_of_thread(const struct heap *of, const struct heap *h) {
    return of == h || load_relaxed(&of->arena.holder) == h;
}

static enum freer freer_by_heap(const struct heap *h, const struct heap *by) {
    if (!is_of_thread(by, h))
        return FREER_OTHER_THREAD;
    return by->inherits ? FREER_UNKNOWN : FREER_THIS_THREAD;
}

/* Who freed a block that has come to its slab. The owner clears own_frees before it takes in what others freed, so that
 * own_frees is read after the list, too; and it is false while there is no owner, so that the one read after the owner
 * is not a former owner's. */
static enum freer freer_in_slab(const struct heap *h, const struct slab *s, uintptr_t block) {
    const struct heap *owner = slab_holder(s);
    if (owner == NULL || !load_relaxed(&s->tiny.own_frees))
        return FREER_UNKNOWN;
    if (inbox_has(s, block))
        return is_of_thread(owner, h) && !owner->inherits ? FREER_OTHER_THREAD : FREER_UNKNOWN;
    bool has = slab_is(s, PLACE_CURRENT) ? heap_has(owner, s, block) : list_has(s, block);
    return has && load_relaxed(&s->tiny.own_frees) ? freer_by_heap(h, owner) : FREER_UNKNOWN;
}

enum freer search_freer(const struct heap *h, const struct slab *s, uintptr_t block) {
    enum freer freer = search_only_freer();
    if (freer != FREER_UNKNOWN || slab_tier(s) != KIND_TINY || h->number == HEAP_NONE)
        return freer;
    const struct heap *by = outbox_with(s, block);
    return by != NULL ? freer_by_heap(h, by) : freer_in_slab(h, s, block);
}
