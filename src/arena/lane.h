/* Lanes: for blocks of which the code that allocates them knows how they will be used. Bursts of short-lived blocks
 * then leave no slab pinned by a long-lived one.
 *
 *  1. A lane is an arena of the process's own: it shares no SuperSlab with other blocks, has no limit, and never ends.
 *     It is made at its first use. Three policies have one: long-lived, hot and cold. Types with pointers have one,
 *     too, in a program whose compiler tells which these are (entry/hinted.c).
 *  2. Short-lived blocks stay in the process's heap, which frees them fastest; so do blocks above 64 KiB, which share
 *     no page with others.
 *
 * Any thread calls anything; nothing waits. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "hakmem.h"
#include "heap/heap.h"

enum { POLICIES = HAK_POLICY_DENSE + 1, LANE_POINTERS = POLICIES, LANES };

/* The arena of each lane, by policy; 0: none yet, or the policy has none. */
extern HAK_HIDDEN _Atomic uintptr_t lane_handles[LANES];
uintptr_t lane_make(unsigned lane); /* makes the lane's arena, if it may have one; 0 without memory or in secure mode */
HAK_INLINE uintptr_t lane_handle(unsigned lane) {
    uintptr_t handle = load_acquire(&lane_handles[lane]);
    return likely(handle != 0) ? handle : lane_make(lane);
}
/* Names of policies as hakmem.h writes them, such as "long-lived", then those of the other lanes. */
extern HAK_HIDDEN const char *const lane_names[LANES];
