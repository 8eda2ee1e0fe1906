/* Malloc in arenas and lanes, when it is no hit of the arena's heap. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "base/base.h"

struct arena;

/* Allocates in the arena, and calls its callback if the limit is in the way. NULL: no memory. */
void *arena_malloc_any(struct arena *a, size_t bytes, size_t alignment, bool *zero);
/* Allocates in the lane (lane.h). NULL: the policy has no lane, blocks of that size or alignment are not for lanes, or
 * there is no memory. */
void *alloc_in_lane(unsigned lane, size_t bytes, size_t alignment);
/* Allocates a block that is used as the policy of hakmem.h says. */
void *alloc_for_policy(size_t bytes, unsigned policy);
