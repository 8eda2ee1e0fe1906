/* The mechanics of giving memory back to the system. retain.h and limits.h decide what stays resident, and how much.
 *
 *  1. A slot is purged in three steps: compare-and-swap to ACTIVE, madvise, publish as UNUSED, or as EMPTY again if the
 *     system refused. Wholly empty SuperSlabs go first, the oldest of them first, neighbours with one call;
 *     then EMPTY slots, the highest address first, a call for each run of them.
 *  2. In every mode the number, size and age of wholly empty SuperSlabs are bounded, as they become empty and as time
 *     passes. Age spares a reserve.
 *  3. In a SuperSlab with a huge page, purging some slots purges the other free slots, too, because one touch made all
 *     of them resident. The first pages that go get a mapping of their own (purge_keep_apart).
 *
 * Any thread calls anything; nothing waits. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "space/superslab.h"

/* The two kinds of free memory. Their purges are judged separately. */
enum purged {
    PURGED_SLOTS, /* EMPTY slots */
    PURGED_PAGES, /* free pages inside slabs */
    PURGED_KINDS,
};

/* Written by any thread. Each word stands for itself and is a hint, so relaxed accesses are enough. */
struct purge {
    /* When each kind was last purged; when the system last refused a purge; to take pages lazily. 0: never. */
    _Atomic uint32_t purged_ms[PURGED_KINDS], refused_ms, lazy_refused_ms;
    _Atomic uint32_t trims;         /* how often pages inside slabs were purged */
    _Atomic uint32_t regrown_slots; /* so much of what was given back inside slabs is used again */
    _Atomic uint32_t lost_slots;    /* whose memory the system has taken while it refused to map it anew */
    _Atomic bool comes_back; /* what is purged is wanted back soon: it is to have huge pages then (huge_pages.c) */
};
extern HAK_HIDDEN struct purge hak_purge;

/* Purges EMPTY slots until at most `keep_slots` are left; they become LAZY if `lazy`, else UNUSED. Returns how many
 * were purged. */
size_t purge_empty(struct client *c, size_t keep_slots, bool lazy);
/* Makes LAZY slots UNUSED, the highest first, until there were `slots`: those in SuperSlabs where none became LAZY
 * within `age_ms`. Returns how many. */
size_t purge_lazy(struct client *c, size_t slots, uint64_t age_ms);
/* Purges what is older than the options allow. */
void purge_decay(struct client *c, uint32_t now_ms);
/* Purges the oldest wholly empty SuperSlabs until all bounds of the cache hold. */
void purge_bound_cache(struct client *c, uint32_t now_ms, bool lazy);
size_t purge_cache_max(void); /* the most wholly empty SuperSlabs that may stay */
/* Did the system refuse a purge a moment ago, so that trying is pointless? */
bool purge_was_refused(void);
bool purge_lazy_was_refused(void);

/* Purges pages inside a slab; the system may take them later if `lazy`. False: it refused. */
bool purge_pages(void *address, size_t bytes, bool lazy);
/* Call it after purging pages inside a hardly used slab. */
void purge_shrank_inside(struct client *c, size_t pages);
/* Call it after purging whole pages in part of a SuperSlab; nobody touches them meanwhile. The kernel's own collector
 * (khugepaged) makes a huge page of any 2 MiB of one mapping that wants huge pages and has one page resident, which
 * undoes the purge. So the first pages that are purged in a SuperSlab get a mapping of their own, unless a thread may
 * read there (region_is_read). False: the system refused half-way, and some of the pages are unmapped now: nobody may
 * ever touch them. */
bool purge_keep_apart(void *at, size_t bytes);
/* Call it after mapping something else over whole pages of this SuperSlab, too: that keeps them apart. False: some had
 * a mapping of their own already, or need none. */
bool purge_begin_apart(size_t superslab);
/* A part of this SuperSlab was purged or is unusable: if it had a huge page it has none until all of it is purged. */
void purge_split_huge_page(size_t superslab);
/* Gives fresh memory to a SuperSlab that is the caller's alone, with a huge page or without, unless a thread may read
 * there. False: it may have lost its memory. */
bool purge_renew(size_t superslab, bool huge);
/* Purges slots that nobody uses but a huge page keeps resident. */
void purge_huge_rounding(struct client *c);
