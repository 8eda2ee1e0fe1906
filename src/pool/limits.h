/* Limits on the heap's memory, and pressure on the machine's: they make the heap give back more, or refuse.
 *
 *  1. The limits apply to the resident slots (ACTIVE ones, huge runs too, and EMPTY ones), the tables, and one slot for
 *     each thread's heap. While SOFT_LIMIT or HARD_LIMIT is set, slots are counted before they become resident, those
 *     of all threads in one word, so the sum is exact. What huge pages round up is not counted.
 *  2. Near a limit (HARD_LIMIT, SOFT_LIMIT, the cgroup's), from 7/8 of it until below 3/4, nothing EMPTY is retained,
 *     and free pages inside partly used slabs go back: all at once when it comes near, then those that stayed free for
 *     a second.
 *  3. Over SOFT_LIMIT, after purging all that is EMPTY, the program's callback is due; it is due again after a fall
 *     below 7/8.
 *  4. Over HARD_LIMIT, after purging all that is EMPTY, a span is refused, as if the system had no memory.
 *  5. The limit of the process's own cgroup is read when the library starts. The purger reads all limits, those of the
 *     ancestors too, every ten seconds once 64 MiB are in use. malloc opens no file, as a sandbox may forbid that.
 *  6. The callback is called by the purger or at the end of malloc's slow path (purger.h, chores_do).
 *
 * Any thread calls anything; nothing waits, nothing allocates. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "base/options.h"
#include "region/account.h"

/* Is a limit set for which slots are counted one by one? */
HAK_INLINE bool limits_set(void) { return (option(OPT_HARD_LIMIT) | option(OPT_SOFT_LIMIT)) != 0; }

/* Counts `slots` that are to become resident; `new_superslabs` will have tables. False: they are refused. */
bool limits_admit(struct client *c, size_t slots, size_t new_superslabs);

/* Written by any thread. Each field above the callback stands for itself, so relaxed accesses are enough; `due` changes
 * by read-modify-writes, so that each thing due is done once. */
struct limits {
    _Atomic bool is_near;          /* the heap is near a limit, as of the last settling */
    _Atomic bool over_soft;        /* the callback was due for this crossing of SOFT_LIMIT */
    _Atomic bool cgroup_sought;    /* the limit was looked for, at the start or later: CGROUP was on */
    _Atomic uint32_t due;          /* enum limit_due */
    _Atomic uint32_t refreshed_ms; /* when the limits of all cgroups were read; 0: never */
    _Atomic uint64_t cgroup_bytes; /* CGROUP_NO_NUMBER: no limit */
    /* The callback: set by one thread at a time, read by any, all sequentially consistent. Both words are of one
     * setting if `callback_settings` is even, and the same before and after they are read. */
    _Atomic uint32_t callback_settings;
    _Atomic(void (*)(void *)) callback;
    _Atomic(void *) callback_argument;
};
extern HAK_HIDDEN struct limits hak_limits;

HAK_INLINE bool limits_near(void) { return load_relaxed(&hak_limits.is_near); }

/* Called when something was settled: judges whether a limit is near and what is due. */
void limits_check(struct client *c);

/* limits_take_due returns and clears what is due, except for the bits in `keep`. Each bit is returned to one thread
 * only. */
enum limit_due {
    LIMIT_TRIM = 1,     /* free pages inside partly used slabs are to go back, all of them */
    LIMIT_CALLBACK = 2, /* limits_call_back */
};
unsigned limits_take_due(unsigned keep);
void limits_call_back(void);

/* These read the kernel's files, so malloc and free call none of them. */
void limits_start(void);         /* at the start: the limit of the process's own cgroup, in six system calls or so */
void limits_refresh(void);       /* all limits of the cgroup and its ancestors */
void limits_option_set(void);    /* the program has set an option: if that is CGROUP=1 for the first time, refreshes */
bool limits_poll_pressure(void); /* the purger's, once a second: refreshes, and tells whether there is pressure */

void limits_set_callback(void (*call)(void *), void *argument);

/* For tests: what is counted; the limit of the cgroup that was found, CGROUP_NO_NUMBER without. */
size_t limits_counted_bytes(void);
uint64_t limits_cgroup_bytes(void);
