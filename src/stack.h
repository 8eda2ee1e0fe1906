/* The call stack of the calling thread, for sampled profiles and reports.
 *
 * It never allocates and never takes a lock; it is safe in malloc, in signal handlers and while libraries are loaded
 * and unloaded. It follows the unwind tables, which every distribution builds into its programs, not frame pointers,
 * and ends at the first code without tables (just-in-time compilers'). glibc 2.35 and newer finds the tables of all
 * modules; elsewhere only those of the program and of this library are known, so the stack ends at the first other
 * library. */
#ifndef HAK_STACK_H
#define HAK_STACK_H

#include <stdbool.h>
#include <stdint.h>

/* Stores the callers' return addresses, innermost first, from the caller of stack_capture on. (For code that a signal
 * interrupted: the address at which it will continue.) Returns how many, at most `most`. */
unsigned stack_capture(uintptr_t *callers, unsigned most);
/* Finds the module of a code address: its path as the dynamic linker names it, "" for the program, and how far it was
 * moved: address - *base is the address in the module's own symbol table. The path is valid while the module is loaded.
 * False: the address is in no module. */
bool stack_module(uintptr_t address, const char **path, uintptr_t *base);

#endif
