/* See stack_shapes.h. Built with -O3 and without frame pointers. */
/* SPDX-License-Identifier: MIT */
#include "stack_shapes.h"

#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define NOINLINE __attribute__((noinline))

static volatile unsigned sink;
static void use(volatile char *bytes, int n) {
    bytes[0] = (char)n;
    for (int i = 64; i < n; i += 64)
        bytes[i] = (char)i;
    sink += (unsigned char)bytes[0];
}

NOINLINE int shape_recursion(int depth, stack_bottom bottom) {
    if (depth == 0) {
        bottom();
        return 1;
    }
    return (int)((unsigned)shape_recursion(depth - 1, bottom) + sink);
}

NOINLINE int shape_alloca(int depth, stack_bottom bottom) {
    int bytes = 100 + depth * 40;
    volatile char *some = __builtin_alloca((size_t)bytes);
    use(some, bytes);
    if (depth == 0)
        bottom();
    else
        shape_alloca(depth - 1, bottom);
    return some[0];
}

NOINLINE int shape_aligned(int depth, stack_bottom bottom) {
    __attribute__((aligned(128))) volatile char line[256];
    volatile char *some = __builtin_alloca((size_t)(50 + depth * 24));
    use(line, 256);
    use(some, 50);
    if (depth == 0)
        bottom();
    else
        shape_aligned(depth - 1, bottom);
    return line[0] + some[0] + (int)((uintptr_t)line % 128);
}

NOINLINE int shape_registers(int depth, stack_bottom bottom) {
    unsigned a = sink, b = sink, c = sink, d = sink, e = sink, f = sink, g = sink, h = sink;
    if (depth == 0)
        bottom();
    else
        a += (unsigned)shape_registers(depth - 1, bottom);
    sink = a + b;
    return (int)(a + 2 * b + 3 * c + 5 * d + 7 * e + 11 * f + 13 * g + 17 * h);
}

NOINLINE static void jump_there(int depth, stack_bottom bottom) {
    sink += (unsigned)depth;
    bottom();
}
NOINLINE int shape_tail(int depth, stack_bottom bottom) {
    if (depth == 0) {
        jump_there(depth, bottom);
        return 1;
    }
    return shape_tail(depth - 1, bottom);
}

static _Thread_local jmp_buf before_it;
NOINLINE _Noreturn static void jump_back(stack_bottom bottom) {
    bottom();
    longjmp(before_it, 1);
}
NOINLINE _Noreturn static void never_returns(int depth, stack_bottom bottom) {
    volatile char some[64];
    some[0] = (char)depth;
    sink += (unsigned char)some[0];
    jump_back(bottom);
}
NOINLINE int shape_noreturn(int depth, stack_bottom bottom) {
    if (setjmp(before_it) == 0)
        never_returns(depth, bottom);
    return depth;
}

static _Thread_local stack_bottom of_comparison;
static _Thread_local int depth_of_comparison;
static int compare(const void *a, const void *b) {
    stack_bottom bottom = of_comparison;
    if (bottom != NULL && depth_of_comparison-- > 0)
        shape_qsort(depth_of_comparison, bottom);
    else if (bottom != NULL)
        bottom(), of_comparison = NULL;
    return memcmp(a, b, 4);
}
NOINLINE int shape_qsort(int depth, stack_bottom bottom) {
    char words[] = "onetwosixtenkeysovertops";
    of_comparison = bottom;
    depth_of_comparison = depth;
    qsort(words, sizeof words / 4, 4, compare);
    return words[0];
}

NOINLINE int shape_large(int depth, stack_bottom bottom) {
    volatile char some[100 << 10];
    use(some, sizeof some);
    if (depth == 0)
        bottom();
    else
        shape_large(depth - 1, bottom);
    return some[0];
}
