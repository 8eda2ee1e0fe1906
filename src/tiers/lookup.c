/* See lookup.h. */
/* SPDX-License-Identifier: MIT */
#include "tiers/lookup.h"
#include "base/fail.h"
#include "beside/other.h"
#include "heap/search.h"
#include "threads/thread.h"

#include <string.h>

/* Finds the block at p, which may be free. */
static struct block lookup_find(const void *p) {
    struct block b = {NULL, 0, "not a block of this heap"};
    if (!region_has(p))
        return b;
    b.slab = slab_at_offset(region_offset(p));
    b.why = "inside a block";
    kind_of(b.slab)->find(&b, p);
    return b;
}

static void report_double_free(const struct block *b, const void *p) {
    fail_double_free(p, b->bytes, search_freer(thread_own(), b->slab, (uintptr_t)p));
}

struct block lookup_live(const void *p, const char *call, const void *caller) {
    if (other_has(p))
        return (struct block){NULL, other_calls()->usable_size((void *)p), ""}; /* NOLINT: its type */
    struct block b = lookup_find(p);
    if (b.why == NULL && !kind_has_freed(&b, p))
        return b;
    if (b.why == NULL && strcmp(call, "free") == 0) {
        report_double_free(&b, p);
    } else {
        const char *why = b.why != NULL ? b.why : "a block that is free";
        size_t inside_bytes = b.why != NULL ? b.bytes : 0;
        fail_bad_query(call, p, why, inside_bytes, caller);
    }
    return (struct block){NULL, 0, ""};
}

void lookup_free_none(struct heap *h, struct slab *s, void *p) {
    struct block b = {s, 0, NULL};
    (void)h;
    if (other_has(p))
        return other_calls()->free(p);
    kind_free.find(&b, p);
    fail_bad_pointer("free", p, b.why, b.bytes);
}

/* The fast check has found a tiny slab. If there is another kind by now, the slab was closed, or it has gone because
 * all its blocks were free, the one at p among them. */
bool lookup_for_free(void *p) {
    struct block b = lookup_find(p);
    if (b.why != NULL)
        fail_bad_pointer("free", p, b.why, b.bytes);
    else if ((slab_tier(b.slab) != KIND_TINY && kind_of(b.slab)->free_chain == NULL) || kind_has_freed(&b, p))
        report_double_free(&b, p);
    else
        return true;
    return false;
}
