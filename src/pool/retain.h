/* What stays resident without being used, and when that is judged: the policy over purge.h. All that leaves, and by
 * which bound, is a table in docs/design.md, "Giving memory back".
 *
 *  1. Retained are the EMPTY slots. With PURGE=auto their bound is RETAIN_BYTES, RETAIN_PERCENT of what is in use, so
 *     that a program that frees everything shrinks as it frees, and what fast swings need. When more are EMPTY, three
 *     quarters of the bound stay.
 *  2. What leaves is UNUSED, until the program has wanted back three quarters of its heap's peak, each time within
 *     DECAY_MS: it swings, and what leaves is LAZY. What is wanted back within a tenth of a second should have stayed.
 *  3. A heap's thread settles after every few slots: it adds its counts to the totals, judges the last purge, and
 *     purges what is over the bound. Where there is a purger, that waits until the program rests, and the thread
 *     purges only what nobody needed for a second, and as much as the heap grows above its peak.
 *
 * Any thread calls anything; nothing waits. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "space/purge.h"

/* Adds to the totals what the client did since it last settled, purges what is over the bounds, notes what else is
 * due. */
void retain_settle(struct client *c);

/* Slots were given that are too few to settle, and the thread may fall asleep on them: where many may do so there is a
 * purger, which counts them. */
void retain_gave_few(struct client *c);

/* At times, on malloc's slow path, where there is no purger: has nothing been settled for DECAY_MS? Then the program
 * reuses what its slabs have and does not swing any more, and the heap gives back what swings needed. */
void retain_look(struct client *c);

/* A thread has ended. If there is one left, and PURGER=0, gives back what the swings of many needed: the one may never
 * free anything, and then nobody would. */
void retain_thread_ended(struct client *c);

/* Is the heap so large that a program with threads has a purger? */
bool retain_has_some_size(void);

/* Purged pages inside a slab are used again: the heap grows by them as by UNUSED slots. */
void retain_grew_inside(struct client *c, size_t bytes);
/* A slab gives pages back for the first time. */
void retain_trimmed_first(void);
/* Such a slab has become empty: all of it could have gone at once. So one more may stay noted, and one fewer with each
 * slab that gives pages back. */
void retain_trimmed_early(void);
/* May this many changed slabs keep the free pages that they may have, until somebody looks? */
bool retain_may_note(size_t slabs);
/* How many bytes of EMPTY slots may stay resident; SIZE_MAX: any number. */
size_t retain_bound_bytes(void);
/* May the system keep what leaves now until it needs memory? Secure mode wants old contents gone; a limit counts all of
 * it. */
bool retain_is_lazy(void);
/* Is it so little time since that memory was given back that it had better have stayed? */
bool retain_is_soon(uint32_t given_ms);

/* ---- the purger's side ---- */

/* If `lean`, as the program is idle or memory scarce, purges what is over RETAIN_BYTES; in any case what is old.
 * `unsettled`: EMPTY slots that threads have not settled, and may sleep on. Returns whether anything was purged for
 * that, not if the system refuses to take it, as locked memory. */
bool retain_tick(struct client *c, bool lean, int64_t unsettled);
/* Milliseconds, more than `after_ms`, after which a tick would give back what is EMPTY or LAZY now; OS_WITHOUT_END:
 * none would. */
unsigned retain_age_ms(int64_t unsettled, unsigned after_ms);
/* The program has been idle for a second. */
void retain_rests(struct client *c);
/* The last thing the purger does: from now on the program's one thread gives back what it frees by itself. */
void retain_hand_over(struct client *c);
