/* Giving memory back to the system: how much may stay resident without being used, and for how long.
 *
 *  1. Retained are the EMPTY slots. Their bound follows PURGE: auto keeps RETAIN_BYTES and RETAIN_PERCENT of what is in
 *     use, so that a program that frees everything shrinks as it frees, without another call.
 *  2. If purged memory is wanted back within a second, three times running, the bound's fixed part doubles (and again
 *     each time); after ten quiet seconds it halves.
 *  3. Wholly empty SuperSlabs are further bounded by count, bytes and age in every mode: when one more becomes empty, and as
 *     time passes. The oldest goes first; a reserve is kept that age does not take.
 *  4. A slot is purged in three steps: compare-and-swap to ACTIVE, madvise, publish as UNUSED, or as EMPTY again if the
 *     system refused.
 *  5. In a program with threads a purger thread does it: it is wanted when the heap is of some size or there is something
 *     over the bound, and begins at the next slow malloc, but not within a tenth of a second of the last one's end if
 *     the heap has hardly changed since. While there is
 *     nothing to do it is parked; settling wakes it. When all threads but one have ended, it is called and ends. While there
 *     is one, a freeing thread purges only what is far over the bound; until then, all that is over it.
 *  6. SuperSlabs with huge pages: when some slots are purged the free rest goes with them, as one touch made all resident. */
/* SPDX-License-Identifier: MIT */
#ifndef HAK_PURGE_H
#define HAK_PURGE_H

#include "pool.h"

/* On a page that the child of a fork finds zero, whatever way it was made: it has one thread and no purger. Made when the
 * program's second thread gets its heap; NULL until then. */
struct fork_page {
    _Atomic uint32_t known;  /* 0: this is a child that has not noticed yet */
    _Atomic uint32_t purger; /* enum purger_state; the purger waits for it to change */
};
enum purger_state {
    PURGER_NONE,
    PURGER_RUNS,
    PURGER_PARKED,
    PURGER_CALLED, /* runs, and is to look at once */
};
extern HAK_HIDDEN _Atomic(struct fork_page *) purge_fork_page;
/* Milliseconds from `then` to `now`; 0 if another thread has set `then` meanwhile, a minute ahead at most. The clock wraps
 * after 49 days: a `then` that is older, as one of 0 that was never set, may look young for as long as its age is asked for.
 */
#define AHEAD_MS_MOST 60000
HAK_INLINE uint32_t age_ms(uint32_t now, uint32_t then) {
    uint32_t age = now - then;
    return age <= UINT32_MAX - AHEAD_MS_MOST ? age : 0;
}

/* Milliseconds, as of the last settling: cheap and up to one settling old. */
uint32_t purge_clock_ms(void);

/* The number of wholly empty SuperSlabs that are resident. */
void purge_cache_count(int change);
size_t purge_cached_superslabs(void);

/* New SuperSlabs: asks for huge pages if the heap is so large that the slots its threads hold half-used weigh little, and the
 * program touches what it asks for: `touched_whole` if it certainly will, as small blocks; else that is looked at. */
void purge_consider_huge_pages(size_t first, size_t n, bool touched_whole);

/* A SuperSlab without memory is taken. If that was purged a moment ago, and that of several before, too, it asks for huge pages:
 * what was in use will be so again, and faults and purges cost a third. */
void purge_wanted_back(size_t superslab, bool touched_whole);

/* Of this SuperSlab, until it is purged whole, the kernel makes no huge page: a part of it was purged, or is not for use. */
void purge_split_huge_page(size_t superslab);

/* Slots that nobody uses but a huge page keeps resident. */
void purge_huge_rounding(struct pool_client *c);

/* The purger's side. A tick purges what is over the bound; `idle`: nothing was settled since the last tick, so that
 * RETAIN_BYTES are enough; so they are when memory is `scarce`. Returns false when there is nothing more to do. */
bool purge_tick(struct pool_client *c, bool scarce, bool *idle);
/* There is a purger from now on, or no longer; one caller wins. A child of fork has none, however it was made. A program that
 * is back to one thread needs none. */
bool purge_claim_purger(void);
/* The last purger ended a moment ago, and the heap has hardly changed since: the next one is started later, so that a program
 * whose threads come and go does not start one with each. */
bool purge_purger_is_early(void);
void purge_release_purger(void);
/* This is the child of a program with threads, or a child's child: it has some pages as they were a moment before others. */
bool purge_forked_with_threads(void);
/* Something begins to gather in an outbox or a ring. Should the thread fall asleep now, the purger has to empty that. */
void purge_gathered(void);
/* The purger sleeps for so long, or until it is called. False: it is to end, as at most one thread of the program has a
 * heap. */
bool purge_pause(unsigned ms);
/* The purger sleeps until something is settled or gathers, or a thread ends; at once if something has been since. False as
 * above. */
bool purge_park(void);
/* Was anything settled since the purger's last tick? */
bool purge_has_news(void);
/* Is there a purger, which will take back what sleeping threads hold? It will not where it cannot fence them. */
bool purge_minds_sleepers(void);
void purge_without_fences(void);
/* The last thing the purger does: from now on the program's one thread gives back what it frees by itself. */
void purge_hand_over(struct pool_client *c);

/* From pool.c, for whoever changes a word: adds the SuperSlab to the sets it now belongs to, counts the cached ones. */
void pool_changed(size_t superslab, uint64_t before, uint64_t after);
/* Removes a member that does not belong to the set. */
void pool_check_hint(unsigned set, size_t superslab);

#endif
