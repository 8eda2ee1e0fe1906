/* Frames of many shapes between a test and the function it wants to be called at the bottom of them. */
#ifndef HAKMEM_TESTS_STACK_SHAPES_H
#define HAKMEM_TESTS_STACK_SHAPES_H

#ifdef __cplusplus
extern "C" {
#endif

typedef void (*stack_bottom)(void);

int shape_recursion(int depth, stack_bottom bottom);
int shape_alloca(int depth, stack_bottom bottom);    /* sizes are known at run time only */
int shape_aligned(int depth, stack_bottom bottom);   /* the stack pointer is rounded down, and moves */
int shape_registers(int depth, stack_bottom bottom); /* every register that is kept for the caller is in use */
int shape_tail(int depth, stack_bottom bottom);      /* jumps instead of calls */
int shape_qsort(int depth, stack_bottom bottom);     /* through libc */
int shape_large(int depth, stack_bottom bottom);     /* 100 KiB each */

/* stack_plugin.c */
int plugin_through(int depth, stack_bottom bottom);
/* stack_lazy.c: at its first call the dynamic linker asks the library which function it is. */
void lazy_hook(stack_bottom bottom); /* to be called then */
int lazy_function(int x);

#ifdef __cplusplus
}
#endif
#endif
