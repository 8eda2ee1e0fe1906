/* Malloc in arenas and lanes, when it is no hit of the arena's heap. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "base/base.h"

struct arena;

/* Calls the arena's callback if the limit is in the way. NULL: no memory. */
void *arena_malloc_any(struct arena *a, size_t bytes, size_t alignment, bool *zero);
/* A block in that lane (lane.h). NULL: it has none, or the block does not fit there, or there is no memory. */
void *alloc_in_lane(unsigned lane, size_t bytes, size_t alignment);
/* A block that is used as the policy of hakmem.h says. */
void *alloc_for_policy(size_t bytes, unsigned policy);
