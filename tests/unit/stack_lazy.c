/* A library whose function is chosen by another of its functions at the first call: the dynamic linker calls the latter
 * in the middle of a call. */
/* SPDX-License-Identifier: MIT */
#include "stack_shapes.h"

#include <stddef.h>

static stack_bottom hook;
void lazy_hook(stack_bottom bottom) { hook = bottom; }

static int the_function(int x) { return x + 1; }

__attribute__((used)) static int (*choose(void))(int) {
    if (hook != NULL)
        hook();
    return the_function;
}
int lazy_function(int x) __attribute__((ifunc("choose")));
