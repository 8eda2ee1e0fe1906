/* Lanes: where blocks go whose allocator knows how they will be used. Bursts of short-lived blocks then leave no slab
 * pinned by a long-lived one.
 *
 *  1. A lane is an arena of the process's own: it shares no SuperSlab with other blocks, has no limit, and never ends.
 *     It is made at its first use. Three policies have one: long-lived, hot and cold. So have the types with pointers
 *     of a program whose compiler tells (entry/hinted.c).
 *  2. Short-lived blocks stay in the process's heap, which frees them fastest; so do blocks above 64 KiB, which share
 *     no page with others.
 *
 * Any thread calls anything; nothing waits. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "hakmem.h"
#include "heap.h"

enum { POLICIES = HAK_POLICY_DENSE + 1, LANE_POINTERS = POLICIES, LANES };

/* The arena of each lane, by policy; 0: none yet, or the policy has none. */
extern HAK_HIDDEN _Atomic uintptr_t lane_handles[LANES];
uintptr_t lane_make(unsigned lane); /* the same, made now if there is one; 0 without memory and in secure mode, too */
HAK_INLINE uintptr_t lane_handle(unsigned lane) {
    uintptr_t handle = load_acquire(&lane_handles[lane]);
    return likely(handle != 0) ? handle : lane_make(lane);
}
/* Policies as hakmem.h writes them, such as "long-lived", then the others. */
extern HAK_HIDDEN const char *const lane_names[LANES];
