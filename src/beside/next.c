/* See next.h. */
/* SPDX-License-Identifier: MIT */
#include "beside/next.h"
#include "base/os.h"
#include "beside/other.h"

/* Pair with themselves: every thread that looks finds the same, and no other memory depends on them. */
static _Atomic uintptr_t functions[NEXT_COUNT];
static _Atomic bool malloc_is_own;
static _Atomic bool is_static; /* known from the start on: no module has a table of names */

__attribute__((constructor(101))) static void next_look(void) {
    struct os_next found[NEXT_COUNT + 1] = {
#define NEXT_NAME(f) [NEXT_##f] = {.name = #f},
        NEXT_FUNCTIONS(NEXT_NAME)
#undef NEXT_NAME
            [NEXT_COUNT] = {.name = "malloc"}};
    os_find_next(found, NEXT_COUNT + 1);
    store_relaxed(&malloc_is_own, found[NEXT_COUNT].is_first);
    for (unsigned i = 0; i < NEXT_COUNT; i++)
        store_relaxed(&functions[i], found[i].address);
    store_relaxed(&is_static, found[NEXT_COUNT].address == 0);
}

uintptr_t next_function(enum next which) {
    if (unlikely(load_relaxed(&functions[which]) == 0) && !load_relaxed(&is_static))
        next_look();
    return load_relaxed(&functions[which]);
}

/* A program may have taken this from the archive, and no malloc. */
bool next_malloc_is_own(void) { return load_relaxed(&malloc_is_own) && &own_calls != NULL; }
