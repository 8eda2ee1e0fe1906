/* Frames of many shapes between a test and the function it wants to be called at the bottom of them. */
/* SPDX-License-Identifier: MIT */
#ifndef HAKMEM_TESTS_STACK_SHAPES_H
#define HAKMEM_TESTS_STACK_SHAPES_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef void (*stack_bottom)(void);

int shape_recursion(int depth, stack_bottom bottom);
int shape_alloca(int depth, stack_bottom bottom);    /* sizes are known at run time only */
int shape_aligned(int depth, stack_bottom bottom);   /* the stack pointer is rounded down, and moves */
int shape_registers(int depth, stack_bottom bottom); /* every register that is kept for the caller is in use */
int shape_tail(int depth, stack_bottom bottom);      /* jumps instead of calls */
int shape_noreturn(int depth, stack_bottom bottom);  /* a call is the last there is of the function */
int shape_qsort(int depth, stack_bottom bottom);     /* through libc */
int shape_large(int depth, stack_bottom bottom);     /* 100 KiB each */

/* stack_damage.c: takes the tables of the function at `code`, looks there in damaged copies. Returns how often a row was found;
 * `rounds` or more: not even in the tables as they were, or always. */
unsigned damaged_tables(uintptr_t code, unsigned rounds, unsigned seed);
int deep_expression(unsigned depth); /* could an expression be told that puts so many (< 100) values on its stack? */
/* What an expression makes of its first value; register i is 1000 + i. False: it is not one. */
int expression(const unsigned char *code, unsigned bytes, uintptr_t first, uintptr_t *value);
/* stack_plugin.c */
int plugin_through(int depth, stack_bottom bottom);
/* stack_lazy.c: at its first call the dynamic linker asks the library which function it is. */
void lazy_hook(stack_bottom bottom); /* to be called then */
int lazy_function(int x);

#ifdef __cplusplus
}
#endif
#endif
