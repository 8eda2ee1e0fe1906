/* The call stack of the calling thread, for sampled profiles and reports.
 *
 * Never allocates, never takes a lock; safe in malloc, in a signal handler and while libraries are loaded and unloaded.
 * Follows the unwind tables, which every distribution builds into its programs, not frame pointers. Ends at the first code
 * that has none (just-in-time compilers'). Tables are found by glibc 2.35 and newer; elsewhere only those of the program
 * and of this library are known, so the stack ends where it comes to another library. */
/* SPDX-License-Identifier: MIT */
#ifndef HAK_STACK_H
#define HAK_STACK_H

#include <stdbool.h>
#include <stdint.h>

/* The callers' return addresses, innermost first, from the caller of stack_capture on. (Of code that a signal interrupted it
 * is the address it will go on at.) Returns how many, at most `most`. */
unsigned stack_capture(uintptr_t *callers, unsigned most);
/* The module of a code address: its path as the dynamic linker names it, "" for the program, and how far it was moved: address
 * - *base is what its own symbol table says. The path is there as long as the module is loaded. False: it is in none. */
bool stack_module(uintptr_t address, const char **path, uintptr_t *base);

#endif
