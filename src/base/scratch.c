/* See scratch.h. */
/* SPDX-License-Identifier: MIT */
#include "base/scratch.h"
#include "base/os.h"

static HAK_APART _Alignas(HAK_LINE) char own[SCRATCH_BYTES];
static _Atomic bool own_is_taken; /* pairs with itself, for what is in `own` */

void *scratch_take(void) {
    if (!rmw_swap(&own_is_taken, true))
        return own;
    size_t bytes = round_up(SCRATCH_BYTES, os_page_bytes());
    return os_map(OS_MEMORY, NULL, bytes);
}

void scratch_give(void *scratch) {
    if (scratch == own)
        store_release(&own_is_taken, false);
    else
        os_unmap(scratch, round_up(SCRATCH_BYTES, os_page_bytes()));
}
