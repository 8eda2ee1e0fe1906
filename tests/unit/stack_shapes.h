/* Frames of many shapes between a test and the function that it wants called at the bottom of them. */
/* SPDX-License-Identifier: MIT */
#ifndef HAKMEM_TESTS_STACK_SHAPES_H
#define HAKMEM_TESTS_STACK_SHAPES_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef void (*stack_bottom)(void);

int shape_recursion(int depth, stack_bottom bottom);
int shape_alloca(int depth, stack_bottom bottom);    /* with sizes known only at run time */
int shape_aligned(int depth, stack_bottom bottom);   /* the stack pointer is rounded down, and moves */
int shape_registers(int depth, stack_bottom bottom); /* uses every callee-saved register */
int shape_tail(int depth, stack_bottom bottom);      /* jumps instead of calls */
int shape_noreturn(int depth, stack_bottom bottom);  /* ends with a call that does not return */
int shape_qsort(int depth, stack_bottom bottom);     /* through libc */
int shape_large(int depth, stack_bottom bottom);     /* 100 KiB in each frame */

/* stack_damage.c: looks up `code` in damaged copies of the tables of its function. Returns how often a row was found;
 * `rounds` or more means that even the intact tables had none, or that every copy had one. */
unsigned damaged_tables(uintptr_t code, unsigned rounds, unsigned seed);
/* Returns whether there is a row, in a copy of the tables whose CIE has this version, for the place that lies this far
 * behind the end of the function of `code`. */
int table_has_row(uintptr_t code, unsigned version, int behind_end);
/* Returns whether an expression that puts this many (< 100) values on its stack is accepted. */
int deep_expression(unsigned depth);
/* Evaluates an expression whose first value is `first`; register i is 1000 + i. Returns false if it is malformed. */
int expression(const unsigned char *code, unsigned bytes, uintptr_t first, uintptr_t *value);
/* stack_plugin.c */
int plugin_through(int depth, stack_bottom bottom);
/* stack_lazy.c: at the first call, the dynamic linker asks the library which function it is. */
void lazy_hook(stack_bottom bottom); /* called at that moment */
int lazy_function(int x);

#ifdef __cplusplus
}
#endif
#endif
