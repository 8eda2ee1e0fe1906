/* See other.h. */
/* SPDX-License-Identifier: MIT */
#include "beside/other.h"
#include "base/os.h"
#include "region/region.h"

#define ALIGNMENT 16 /* of every block of malloc's */
enum ask_state { ASKED_NOTHING, ASKED_TOOL, ASKED_ALL };

_Atomic(const struct os_malloc_calls *) other_allocators = &os_malloc_calls;
static _Atomic uint8_t asked; /* enum ask_state. Any thread; pairs with itself: nothing depends on it */

/* Under valgrind: is malloc still ours, as with those of its tools that do not care for memory? Then it comes here,
 * too. */
HAK_COLD static void ask_tool(void) {
    const struct os_malloc_calls *calls = &own_calls;
    HAK_FORGET(calls); /* in line, the calls would be ours */
    store_relaxed(&asked, ASKED_TOOL);
    void *p = calls->malloc(1);
    if (p != NULL && !region_has(p) && load_relaxed(&asked) == ASKED_TOOL) {
        store_relaxed(&other_allocators, calls);
        store_relaxed(option_word(OPT_SUPERSLAB), false);
    }
    calls->free(p);
    store_relaxed(&asked, ASKED_ALL);
}

void other_ask(void) {
    options_init();
    uint8_t before = load_relaxed(&asked);
    if (likely(before == ASKED_ALL))
        return;
    if (before == ASKED_NOTHING && &own_calls != NULL && os_is_in_valgrind())
        ask_tool();
    store_relaxed(&asked, ASKED_ALL);
}

__attribute__((constructor(101))) static void other_start(void) { other_ask(); }

void *other_malloc(size_t bytes, size_t alignment) {
    return alignment <= ALIGNMENT ? other_calls()->malloc(bytes) : other_calls()->memalign(alignment, bytes);
}
