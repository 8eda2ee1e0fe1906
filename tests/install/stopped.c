/* Blocks of every kind, for gdb to look at. */
/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "../../include/hakmem.h"
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>

static void *volatile tiny, *volatile tiny_freed, *volatile mid, *volatile mid_freed, *volatile large, *volatile huge;
static void *volatile in_arena, *volatile large_in_arena;

int main(void) {
    tiny = malloc(48);
    tiny_freed = malloc(48);
    mid = malloc(5000);
    mid_freed = malloc(5000);
    large = malloc(300000);
    huge = malloc(20 << 20);
    hak_arena *(*arena_new)(const hak_arena_options *) = dlsym(RTLD_DEFAULT, "hak_arena_new");
    void *(*arena_malloc)(hak_arena *, size_t) = dlsym(RTLD_DEFAULT, "hak_arena_malloc");
    hak_arena *arena = arena_new != NULL ? arena_new(&(hak_arena_options){.name = "requests"}) : NULL;
    in_arena = arena != NULL ? arena_malloc(arena, 5000) : NULL;
    large_in_arena = arena != NULL ? arena_malloc(arena, 300000) : NULL;
    free(tiny_freed);
    free(mid_freed);
    return raise(SIGTRAP);
}
