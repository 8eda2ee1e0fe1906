/* See lane.h. */
/* SPDX-License-Identifier: MIT */
#include "arena/lane.h"
#include "arena/arena.h"
#include "base/options.h"

#include <errno.h>

_Atomic uintptr_t lane_handles[LANES];
const char *const lane_names[LANES] = {"default", "short-lived", "long-lived", "hot", "cold", "dense", "with pointers"};

uintptr_t lane_make(unsigned lane) {
    bool exists = (lane >= HAK_POLICY_LONG_LIVED && lane <= HAK_POLICY_COLD) || lane == LANE_POINTERS;
    if (!exists || !mode()->has_lanes)
        return 0;
    int error = errno;
    uintptr_t none = 0, made = arena_make(&(hak_arena_options){.name = lane_names[lane]}, true);
    errno = error;
    if (made == 0 || rmw_cas(&lane_handles[lane], &none, made)) /* pairs with lane_handle */
        return made;
    arena_end(made, false, ""); /* another thread was faster */
    return none;
}
