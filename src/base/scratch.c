/* See scratch.h. */
/* SPDX-License-Identifier: MIT */
#include "base/scratch.h"
#include "base/os.h"

static struct scratch_state {
    _Alignas(HAK_LINE) char own[SCRATCH_BYTES];
    _Atomic bool own_is_taken; /* pairs with itself, for what is in `own` */
} scratch_state;

void *scratch_take(void) {
    if (!rmw_swap(&scratch_state.own_is_taken, true))
        return scratch_state.own;
    size_t bytes = round_up(SCRATCH_BYTES, os_page_bytes());
    void *mapped = os_map(OS_RESERVE, NULL, bytes);
    if (mapped == NULL || os_commit(mapped, bytes))
        return mapped;
    os_unmap(mapped, bytes);
    return NULL;
}

void scratch_give(void *scratch) {
    if (scratch == scratch_state.own)
        store_release(&scratch_state.own_is_taken, false);
    else
        os_unmap(scratch, round_up(SCRATCH_BYTES, os_page_bytes()));
}
