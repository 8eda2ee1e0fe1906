/* What happens to the blocks that are sampled, for the profile or to be guarded: see sample.h for which ones are.
 *
 * A tiny request that is sampled gets a mid block, aligned as the tiny one would have been: its state has room for a
 * mark. */
/* SPDX-License-Identifier: MIT */
#include "observe/sampled.h"
#include "blocks/block.h"
#include "blocks/kinds.h"
#include "heap/sample.h"
#include "observe/dump.h"
#include "observe/guard_sample.h"
#include "observe/profile.h"
#include "observe/report.h"
#include "process/hooks.h"
#include "space/arena_record.h"

void sampled_switch(uint64_t mean_bytes) {
    profile_want(mean_bytes);
    sample_changed(mean_bytes != 0);
}

_Static_assert(PROFILE_NAME_BYTES == (int)ARENA_NAME_BYTES, "a name fits");
/* "" if the heap belongs to no arena of the program's. */
static const char *arena_name_of(const struct heap *h) {
    return h->client.arena != 0 && !h->client.is_lane ? arena_numbered(h->client.arena)->name : "";
}

HAK_INLINE void add_sample(struct heap *h, const void *p, size_t bytes, double chance) {
    bool may_take = heap_begin_stack(h);
    bool added = may_take && profile_add(p, bytes, chance, arena_name_of(h), h->callers);
    heap_end_stack(h, may_take);
    count(&h->client.counters, added ? COUNT_samples_taken : COUNT_samples_dropped);
    struct slab *s = slab_at_offset(region_offset(p));
    if (added)
        store_relaxed(kind_of(s)->state(s, p), BLOCK_LIVE | BLOCK_PROFILED);
    if (unlikely(dump_may_be_due()))
        dump_if_due();
}

/* The alignment of a tiny or mid block for that many bytes. Callers that want an aligned one rely on it. */
static size_t natural_alignment(size_t bytes) {
    size_t block = size_classes[bytes <= TINY_BYTES_MAX ? tiny_class_of(bytes) : mid_class_of(bytes)].block_bytes;
    return block & -block;
}

static void *malloc_sampled(struct heap *h, const struct kind *kind, take_call *take, size_t bytes, size_t alignment,
                            bool *zero) {
    bool tiny = kind == &kind_tiny;
    unsigned c = tiny && take == kind->malloc ? tiny_class_of(bytes) : TINY_CLASSES; /* a dense one is from no list */
    size_t of_bytes = tiny ? size_classes[tiny_class_of(bytes)].block_bytes : max_size(bytes, 1);
    struct sample sample = sample_due(h, of_bytes, c);
    if (likely(sample.purposes == 0) || h->client.in_start)
        return take(h, bytes, alignment, zero);
    void *p = NULL;
    if (sample.purposes & SAMPLE_GUARD && (tiny || kind == &kind_mid) && h->client.arena == 0)
        p = guard_malloc(h, bytes, natural_alignment(bytes));
    if (p == NULL && tiny && sample.purposes & SAMPLE_PROFILE)
        p = kind_mid.malloc(h, round_up(TINY_BYTES_MAX + 1, natural_alignment(bytes)), alignment, zero);
    else if (p == NULL)
        p = take(h, bytes, alignment, zero);
    if (p != NULL && sample.purposes & SAMPLE_PROFILE)
        add_sample(h, p, bytes, sample.chance);
    return p;
}

/* Another size is another chance: as if the block were freed and allocated. */
static void sample_resized(struct heap *h, const void *p, size_t bytes) {
    struct sample sample = sample_due(h, bytes, TINY_CLASSES);
    if (sample.purposes & SAMPLE_PROFILE)
        add_sample(h, p, bytes, sample.chance);
}

/* ---- what the wing hears ---- */

const struct observe_hooks hooks_observe = {
    .malloc_sampled = malloc_sampled,
    .resized = sample_resized,
    .sampled_freed = profile_freed,
    .sampled_bytes = profile_asked_bytes,
    .explain_fault = report_fault,
    .soft_limit = dump_at_soft_limit,
};
