/* Do huge pages pay on this machine? Nobody knows beforehand: where memory is warm, one costs an eighth of 512 small
 * pages; in a virtual machine whose memory the host has yet to provide, seven times as much. So both are timed where
 * the program pays for them anyway, and the last times decide.
 *
 *  1. Each huge page is timed and compared with the mean of the last times of small pages. The system hands out warm
 *     memory first, and when that is used up cold memory follows.
 *  2. After a dear one the next SuperSlabs get none, unless it lost less than half of what huge pages have won since
 *     the last pause. The pause is short if they had won more than was lost, else long, and twice as long each time,
 *     PAUSE_MAX at most.
 *  3. In a pause small pages are timed, so that the end of the pause compares figures of the same time.
 *  4. Nobody times the huge pages of a huge block behind its first, and warm memory may end at each of them. So no more
 *     are asked for than were cheap in a row.
 *
 * Any thread calls anything; nothing waits. Times are nanoseconds for SUPERSLAB_BYTES, of a thread that was not
 * switched out meanwhile. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "base/base.h"

/* A SuperSlab is about to be used: should it have a huge page? The caller then makes one and notes its time, or else
 * uses small pages and notes theirs. */
bool page_cost_try_huge(void);
void page_cost_note_small(uint64_t ns);
/* `given`: the system did make a huge page. */
void page_cost_note_huge(uint64_t ns, bool given);
/* Do huge pages pay? The answer where nothing can be timed; `if_unknown`: the answer as long as none was. */
bool page_cost_pays(bool if_unknown);
/* How many of `wanted` huge pages the caller may ask for without timing them. If the next one that is timed is cheap,
 * these were, too, and as many more may follow. */
size_t page_cost_trusted(size_t wanted);

struct page_cost_seen {
    uint64_t small_ns, huge_ns; /* the means; 0: not known yet */
    uint64_t timed, dear;       /* huge pages, and those that cost more than small pages or could not be had */
};
struct page_cost_seen page_cost_seen(void);

/* What memory costs here, in nanoseconds, as tried once in memory of its own: 64 KiB take 0.1 ms. */
struct memory_cost {
    uint64_t fault, purge;    /* it is touched anew; it is given back */
    uint64_t lazily, refault; /* it becomes LAZY; it is written again before the system has taken it */
};
struct memory_cost page_cost_of(size_t bytes);
