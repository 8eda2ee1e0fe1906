/* The counters, in one table. Every heap has its own copy, which only its thread writes, on slow paths.
 *
 * A total is the sum over all heaps, those of past threads included (heaps are reused, never cleared). Totals that are
 * read while threads run are recent values. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "base/base.h"

// clang-format off
/* X(name, help) */
#define COUNTERS(X) \
X(stage1_reused_empty,      "spans taken in a SuperSlab in use, of which at least one slot was EMPTY") \
X(stage0_last_given,        "of these, spans that begin with the slot that the heap gave back last") \
X(stage05_scanned,          "of these, single slots found by a scan of the SuperSlabs that have EMPTY slots") \
X(stage1_same_class,        "of these, spans whose first slot had the same class before") \
X(stage2_used_unused, \
  "spans taken from UNUSED slots of a SuperSlab in use or, in an arena, of any of its SuperSlabs") \
X(stage3_from_cache,        "spans for which a cached SuperSlab was taken") \
X(stage3_new,               "spans for which a new or purged SuperSlab was taken") \
X(node_own, \
  "spans, runs and slabs without an owner taken on the NUMA node of the thread; 0 on machines with one node") \
X(node_other,               "likewise, on another node, because new memory was refused or was about to be") \
X(pool_retries, \
  "compare-and-swaps on pool words that failed because another thread was faster, while spans and runs were taken") \
X(slots_released,           "spans, and ends of spans, given back to the pool") \
X(cache_pushed, \
  "SuperSlabs that became wholly empty and stayed resident; not those of arenas, until the arena ends") \
X(cache_popped,             "of these, taken into use again while they were resident") \
X(cache_evicted_count,      "of these, purged because there were more than SS_CACHE_COUNT; the oldest went first") \
X(cache_evicted_bytes,      "of these, purged because more was EMPTY than allowed, or nothing was to stay") \
X(cache_evicted_age,        "of these, purged because they were older than SS_CACHE_AGE_MS") \
X(tension_drains, \
  "times a thread took a new SuperSlab while its caches held as much as a SuperSlab, and emptied the caches") \
X(tension_freed_spans,      "spans that these drains gave back to the pool") \
X(purge_calls,              "system calls that gave EMPTY slots back") \
X(lazy_slots,               "EMPTY slots that became LAZY: the system may take them, and need not") \
X(purged_slots,             "slots given back to the system") \
X(purge_failures,           "purges that the system refused") \
X(purge_regrets,            "settlings in which memory was taken anew that had been given back within DECAY_MS") \
X(limits_neared,            "times the heap came near a limit and stopped retaining memory") \
X(limit_refusals,           "spans and runs refused because of HARD_LIMIT") \
X(soft_limit_crossings,     "times the heap grew past SOFT_LIMIT") \
X(populate_calls,           "system calls that faulted all pages of a new tiny slab at once") \
X(refill_from_slab, \
  "tiny refills from the list of the current slab, which it may have brought along when it became that") \
X(refill_from_inbox,        "tiny refills from the inbox of the current slab") \
X(refill_from_partial,      "of all tiny refills, those from a partly used slab of the heap that became current") \
X(refill_from_let_go,       "of all tiny refills, those from a slab without an owner that became current") \
X(refill_from_stale_inbox,  "tiny refills from the inbox of another heap's slab") \
X(refill_from_purged,       "tiny refills from pages that had been purged inside a slab") \
X(refill_by_carving,        "tiny refills by carving blocks") \
X(slabs_started,            "slabs started") \
X(slabs_emptied,            "tiny slabs, and those of secure mode, given back because their last block was freed") \
X(slabs_let_go,             "times the owner of a slab let it go") \
X(slabs_adopted_by_free,    "slabs adopted by the thread that freed one of their blocks") \
X(slabs_adopted_by_refill,  "slabs adopted to allocate from") \
X(slabs_evicted,            "slabs let go because their heap owned too many") \
X(slabs_lent,               "slabs that a heap took on loan because it freed into more slabs than it may own") \
X(slabs_recalled,           "of these, let go because the heap's thread slept or had held them for a second or two") \
X(loans_taken,              "slabs that a refill took from the heap that had them on loan") \
X(offers_in_use, \
  "slabs on offer that a refill passed over, because the heap that had them on loan was freeing there") \
X(free_on_loan,             "frees of blocks in slabs on loan") \
X(free_remote,              "frees of blocks in another heap's slab") \
X(free_null,                "frees of NULL, which return at once") \
X(outbox_batches, \
  "batches of other heaps' blocks sent to inboxes or, where the thread adopted or borrowed the slab, freed there") \
X(inbox_retries,            "compare-and-swaps on inboxes that failed because another thread was faster") \
X(inbox_batches,            "times an owner emptied an inbox, other than to refill a list") \
X(drains,                   "drains of the outbox after DRAIN_INTERVAL frees") \
X(ring_refills, \
  "times mid blocks were taken from slabs because the ring had none, one of them for the program") \
X(ring_refilled_blocks,     "blocks that these refills took, those for the program included") \
X(ring_spills, \
  "times a ring gave blocks back to their slabs, because it was full, had to shrink or was emptied") \
X(ring_spilled_blocks,      "blocks that went back then") \
X(rings_emptied, \
  "times the rings of a thread were emptied because the thread did not use them, or because it was alone and its " \
  "heap had shrunk by a third") \
X(mid_retries, \
  "compare-and-swaps on the free blocks of mid slabs that failed because another thread was faster") \
X(offer_retries,            "slabs on offer that another thread took first") \
X(mid_retired,              "mid slabs given back because all their blocks were free") \
X(large_spans,              "spans taken from the pool for large blocks") \
X(huge_runs,                "runs of SuperSlabs taken for huge blocks, also for those that moved their pages") \
X(grown_in_place,           "times a large or huge block grew in place by further slots") \
X(huge_moved_pages,         "huge blocks that grew by moving pages") \
X(realloc_copied,           "reallocations that copied the block") \
X(samples_taken,            "blocks added to the profile") \
X(samples_dropped,          "blocks left out because the profile was full") \
X(guard_sampled,            "blocks placed between guard pages") \
X(guard_full,               "blocks not placed there because all places were taken") \
X(move_asked,               "times the program asked whether a block should move") \
X(move_answered_true,       "of these, answered with yes") \
X(dense_allocations,        "blocks allocated from dense slabs: moved, if the program frees the old ones") \
X(dense_bytes,              "usable bytes of these") \
X(dense_emptied_slots,      "slots of 64 KiB that came free because the last block was moved away") \
X(mesh_merged_pages,        "pages that went back because slabs share pages (HAKMEM_MESH)") \
X(mesh_split_pages, \
  "pages that such slabs no longer shared when their last block was freed, because the program had written to them") \
X(heaps_born,               "heaps that a thread began to use") \
X(heaps_ended,              "heaps whose thread ended") \
X(heaps_rested,             "of these, heaps that kept slabs for their next thread") \
X(afterlife_calls,          "calls by threads whose heap had already ended") \
X(out_of_memory,            "requests that failed") \
X(trimmed_pages,            "free pages given back inside partly used slabs") \
X(atomic_rmw,               "checked build: atomic read-modify-writes")
// clang-format on

enum counter {
#define COUNTER_ENUM(name, help) COUNT_##name,
    COUNTERS(COUNTER_ENUM)
#undef COUNTER_ENUM
        COUNTER_COUNT
};

/* Written by one thread, read by any. */
struct counters {
    _Atomic uint64_t n[COUNTER_COUNT];
};

HAK_INLINE void count_add(struct counters *c, enum counter which, uint64_t n) {
    store_relaxed(&c->n[which], load_relaxed(&c->n[which]) + n);
}
HAK_INLINE void count(struct counters *c, enum counter which) { count_add(c, which, 1); }

extern const char *const counter_names[COUNTER_COUNT];
extern const char *const counter_help[COUNTER_COUNT];
