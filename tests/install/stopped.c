/* Blocks of every kind, for gdb to look at. */
/* SPDX-License-Identifier: MIT */
#include <signal.h>
#include <stdlib.h>

static void *volatile tiny, *volatile tiny_freed, *volatile mid, *volatile mid_freed, *volatile large, *volatile huge;

int main(void) {
    tiny = malloc(48);
    tiny_freed = malloc(48);
    mid = malloc(5000);
    mid_freed = malloc(5000);
    large = malloc(300000);
    huge = malloc(20 << 20);
    free(tiny_freed);
    free(mid_freed);
    return raise(SIGTRAP);
}
