/* The gate in front of the system calls of the test build of os.h (os_fault.c), and a count of what the allocator lost.
 *
 * While the gate is armed, it counts each call and fails those that the plan names, with the plan's error. Time stands
 * still except for fault_clock_advance and sleeps, which take no real time. There is one plan at a time; any thread may
 * be calling. */
/* SPDX-License-Identifier: MIT */
#ifndef HAKMEM_TESTS_FAULT_H
#define HAKMEM_TESTS_FAULT_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* mmap_over: an mmap that replaces existing mappings (MAP_FIXED) */
#define FAULT_CALLS(X)                                                                                                 \
    X(mmap)                                                                                                            \
    X(mmap_over)                                                                                                       \
    X(mprotect)                                                                                                        \
    X(madvise)                                                                                                         \
    X(munmap)                                                                                                          \
    X(mremap)                                                                                                          \
    X(mincore)                                                                                                         \
    X(membarrier)                                                                                                      \
    X(futex)                                                                                                           \
    X(pthread_create) X(pthread_key_create) X(pthread_setspecific) X(getrlimit) X(open) X(read) X(write) X(fcntl)

enum fault_call {
#define FAULT_ENUM(name) FAULT_##name,
    FAULT_CALLS(FAULT_ENUM)
#undef FAULT_ENUM
        FAULT_ANY, /* any of them, counted together */
    FAULT_COUNTS
};

/* What a failing call on a range has already done. mremap has moved this much, and: with HALF it has unmapped the rest
 * of its target, as Linux 6.17 does when the second mapping is refused; with MOST it has left the rest; with
 * TARGET_GONE it has moved nothing and unmapped the whole target, as earlier kernels do. A write is short in that case,
 * and mincore has written wrong answers. */
enum fault_part { FAULT_NONE_DONE, FAULT_HALF_DONE, FAULT_MOST_DONE, FAULT_TARGET_GONE };

/* Calls from <= k < to fail, counted from 1, each after a part of its work. At most commit_most bytes may become
 * writable, as on a system without overcommit; 0 means any number. */
struct fault_plan {
    int call;
    unsigned from, to;
    int error;
    enum fault_part part;
    size_t commit_most;
};

void fault_arm(const struct fault_plan *plan);
void fault_lift(void);
unsigned fault_calls(int call);         /* since fault_arm */
unsigned fault_injected_into(int call); /* how many of them were made to fail */
size_t fault_occupied_bytes(void);      /* bytes that mmap reported as occupied by others (EEXIST), since fault_arm */
size_t fault_committed_bytes(void);     /* bytes that were to become writable, refused or not, since fault_arm */
unsigned fault_threads_started(void);   /* ever */
int fault_purger_is_parked(void);       /* and nobody has woken it */
const char *fault_name(int call);
void fault_clock_advance(unsigned ms);
unsigned fault_waits(void); /* that were to end by the clock, ever */

/* Options that are only read at the start. Call before the first allocation. */
void fault_no_reservation(void);    /* REGION_BYTES=0 */
void fault_huge_pages_always(void); /* HUGE_PAGES=always */
void fault_secure(void);            /* SECURE=1, SECURE_STACKS=1 */

/* Counts of the pool's slots. `nobodys` are ACTIVE without any block in them that could ever be freed. */
struct fault_slots {
    size_t active, empty, nobodys;
};
void fault_map_waiting(void); /* SuperSlabs that were refused memory get some */
struct fault_slots fault_count_slots(void);

#ifdef __cplusplus
}
#endif
#endif
