/* The gate before the system calls of the test build of os.h (os_fault.c), and a look at what the allocator lost.
 *
 * While the gate is armed each call is counted, and those the plan names fail with its error. Time stands still but for
 * fault_clock_advance and for sleeps, which take none. One plan at a time; any thread may be calling. */
/* SPDX-License-Identifier: MIT */
#ifndef HAKMEM_TESTS_FAULT_H
#define HAKMEM_TESTS_FAULT_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* mmap_over: that replaces what is mapped (MAP_FIXED) */
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
        FAULT_ANY, /* whichever it is, all counted together */
    FAULT_COUNTS
};

/* What a call on a range has done when it fails. mremap has moved so much, and: half, unmapped the rest of its target, as Linux
 * 6.17 does where the second mapping is refused; most, left it; target gone: moved nothing and unmapped all of the target, as
 * kernels before do. A write is short then, and mincore has written what is not so. */
enum fault_part { FAULT_NONE_DONE, FAULT_HALF_DONE, FAULT_MOST_DONE, FAULT_TARGET_GONE };

/* Calls from <= k < to fail, counted from 1, each when a part of its work is done. Not more than commit_most bytes may become
 * writable, as where nothing is overcommitted; 0: any number. */
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
unsigned fault_injected_into(int call); /* of these, made to fail */
size_t fault_occupied_bytes(void);      /* that mmap said somebody else has (EEXIST), since fault_arm */
size_t fault_committed_bytes(void);     /* that were to become writable, refused or not, likewise */
unsigned fault_threads_started(void);   /* ever */
int fault_purger_is_parked(void);       /* and nobody has woken it */
const char *fault_name(int call);
void fault_clock_advance(unsigned ms);

/* Options that are read at the start only; before the first allocation. */
void fault_no_reservation(void);    /* REGION_BYTES=0 */
void fault_huge_pages_always(void); /* HUGE_PAGES=always */
void fault_secure(void);            /* SECURE=1 */

/* The pool's slots. Nobody's are ACTIVE, but no block is there that could ever be freed. */
struct fault_slots {
    size_t active, empty, nobodys;
};
struct fault_slots fault_count_slots(void);

#ifdef __cplusplus
}
#endif
#endif
