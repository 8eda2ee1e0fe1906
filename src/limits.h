/* Limits on the heap's memory, and the pressure on the machine's: what makes the heap give back more, or refuse.
 *
 *  1. Counted are resident slots (ACTIVE, huge runs too, and EMPTY), the tables, and a slot for each thread's heap: what the
 *     pool knows anyway. While SOFT_LIMIT or HARD_LIMIT is set, slots are counted before they become resident, those of
 *     all threads in one word: the sum is exact. What huge pages round up is not counted.
 *  2. Near a limit (HARD_LIMIT, SOFT_LIMIT, the cgroup's), from 7/8 of it until below 3/4, nothing EMPTY is retained, and free
 *     pages inside partly used slabs go back: all at once when it comes near, then those that stayed free for a second.
 *  3. Over SOFT_LIMIT, after purging all that is EMPTY, the program's callback is due; again after a fall below 7/8.
 *  4. Over HARD_LIMIT, after purging all that is EMPTY, a span is refused, as if the system had no memory.
 *  5. The limit of the process's cgroup is read when the library starts; all limits, the ancestors' too, by the purger, from
 *     64 MiB in use on and every ten seconds. malloc opens no file: a sandbox may forbid that.
 *  6. The callback is called by the purger or at the end of malloc's slow path (purger.h, chores_do).
 *
 * Any thread calls anything; nothing waits, nothing allocates. */
/* SPDX-License-Identifier: MIT */
#ifndef HAK_LIMITS_H
#define HAK_LIMITS_H

#include "options.h"
#include "pool.h"

/* Only then slots are counted one by one. */
HAK_INLINE bool limits_set(void) { return (option(OPT_HARD_LIMIT) | option(OPT_SOFT_LIMIT)) != 0; }

/* `slots` more are to become resident; true: they are counted now. False: they are refused. */
bool limits_admit(struct pool_client *c, size_t slots);

/* The heap is near a limit, as of the last settling. */
extern HAK_HIDDEN _Atomic bool limits_is_near;
HAK_INLINE bool limits_near(void) { return load_relaxed(&limits_is_near); }

/* Called when something was settled: judges nearness and what is due. */
void limits_settled(struct pool_client *c);

/* What is due, once for all threads; but for what is to be kept. */
enum limit_due {
    LIMIT_TRIM = 1,     /* free pages inside partly used slabs are to go back, all of them */
    LIMIT_CALLBACK = 2, /* limits_call_back */
};
unsigned limits_take_due(unsigned keep);
void limits_call_back(void);

/* These read the kernel's files, so malloc and free call none of them. */
void limits_start(void);      /* at the start: the limit of the process's own cgroup, in six system calls or so */
void limits_refresh(void);    /* all limits of the cgroup and its ancestors */
void limits_option_set(void); /* the program has set an option: if that is CGROUP=1 for the first time, refreshes */
bool limits_look(void);       /* the purger's, once a second: refreshes, and tells whether there is pressure */

void limits_set_callback(void (*call)(void *), void *argument);

/* For tests. What is counted; the least limit of the cgroup and its ancestors, UINT64_MAX without; what goes before the
 * paths of the kernel's files. */
size_t limits_counted_bytes(void);
uint64_t limits_cgroup_bytes(void);
extern HAK_HIDDEN const char *limits_root;

#endif
