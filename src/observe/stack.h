/* The call stack of the calling thread, for sampled profiles and reports.
 *
 * Never allocates, never takes a lock; safe in malloc, in a signal handler and while libraries are loaded and unloaded.
 * Follows the unwind tables that every distribution builds into its programs, and frame pointers through code without a
 * table, such as that of a just-in-time compiler; ends where such code has none. glibc 2.35 and newer find all tables;
 * elsewhere only those of the program and of this library are known, so the stack ends at the first frame of another
 * library. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* The callers' return addresses, innermost first, from the caller of stack_capture on; for code that a signal
 * interrupted, the address where it will continue. Returns how many, at most `max`. */
unsigned stack_capture(uintptr_t *callers, unsigned max);

/* What is known of a block's life: which thread, and the calls that led there. */
enum stack_event { STACK_ALLOCATED, STACK_FREED, STACK_EVENTS };
enum { STACK_CALLERS = 32 };
struct stack_taken {
    uint32_t thread, depth;
    uintptr_t callers[STACK_CALLERS];
};
