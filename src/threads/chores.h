/* What threads do for the whole heap at the end of a slow malloc, and what is done all at once on request.
 *
 * Settling finds chores due (enum chore), and malloc's slow path does them: nothing is half-done there, and unlike in
 * free, the C library holds no lock that starting a thread takes. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "heap/heap.h"
#include "process/asked.h"

/* Has another process, a tracer or another thread asked for something? Every allocation that is no hit of alloc.h asks
 * this, even a ring's hit: a request must not wait for a miss that may never come. */
HAK_INLINE bool chores_are_asked(const struct heap *h) {
    return unlikely(load_relaxed(&hak_asked.wanted) != h->asked_seen);
}
/* Does what was asked for. */
HAK_COLD void chores_answer(struct heap *h);

#define LOOK_EVERY 32 /* slow mallocs: reading the clock is then no cost */

/* A slow malloc is over. Are there chores? */
HAK_INLINE bool chores_are_due(struct heap *h) {
    return unlikely(++h->client.due.slow_mallocs % LOOK_EVERY == 0 || h->client.due.chores != 0 ||
                    chores_are_asked(h) || load_relaxed(&h->caches_flags) & CACHES_STALE);
}
HAK_COLD void chores_do(struct heap *h);

/* Gives what the heap holds back to the pool, so that a second try may succeed. */
void chores_empty_caches(struct heap *h);
/* The calling thread is about to wait: lets go of all that its heap has. */
void chores_rest(void);
/* Gives back all that can go. Returns how many bytes that was. */
size_t chores_give_back(struct heap *h);
