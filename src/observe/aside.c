/* See aside.h. */
/* SPDX-License-Identifier: MIT */
#include "observe/aside.h"
#include "base/options.h"
#include "base/os.h"
#include "kinds.h"
#include "limits.h"

_Static_assert(ASIDE_EVERY == UINT8_MAX + 1, "heap.large_frees counts so far");

/* Each place pairs with itself, for the record of the block in it; NULL: none. */
static _Atomic(struct slab *) place[ASIDE_PLACES];
static _Atomic uint32_t turns; /* blocks that were put into a place */
_Atomic uint32_t hak_aside_blocks;

static size_t span_bytes(const struct slab *s) {
    struct span_use use = {.slots = 1};
    kind_of(s)->count(s, &use);
    return use.slots * SLOT_BYTES;
}

static void give_aside(struct heap *h, struct slab *s) {
    if (s != NULL && os_commit(slab_address(s), span_bytes(s))) /* else it is lost: there are too many mappings, or too much data */
        kind_of(s)->give_purged(h, s);
}

static bool may_be_aside(const struct heap *h, size_t bytes) {
    return bytes <= ASIDE_BYTES_MAX && h->number != HEAP_NONE && h->pool.arena == 0 && !limits_set() &&
           !hak_region.window && option(OPT_PURGE) != PURGE_NEVER && option(OPT_SUPERSLAB);
}

bool aside_put(struct heap *h, struct slab *s) {
    char *block = slab_address(s);
    size_t bytes = span_bytes(s);
    if (!may_be_aside(h, bytes) || !os_advise(OS_PURGE, block, bytes))
        return false;
    if (!os_forbid(block, bytes)) {
        os_commit(block, bytes); /* a part may be inaccessible */
        return false;
    }
    uint32_t turn = rmw_add(&turns, 1);
    if (turn < ASIDE_PLACES)
        store_relaxed(&hak_aside_blocks, turn + 1);
    give_aside(h, rmw_swap(&place[turn % ASIDE_PLACES], s));
    return true;
}

void aside_release(struct heap *h) {
    for (unsigned i = 0; i < ASIDE_PLACES; i++)
        if (load_relaxed(&place[i]) != NULL)
            give_aside(h, rmw_swap(&place[i], NULL));
}
