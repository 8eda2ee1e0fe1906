/* Finds the block at an address: the record of the slot names the kind, and the kind's row knows the rest. Used on slow
 * paths only. Anything but the start of a live block is reported (fail.h).
 *
 * Any thread may call these. If another thread frees the block meanwhile, either answer may come. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "blocks/kinds.h"

/* Returns the live block that starts at p. If there is none, reports that; if ON_ERROR lets the program go on, returns
 * a block of 0 bytes without a slab. A block of another allocator (beside/other.h) has no slab, either, but a size.
 * `call` names the call in the report; for "free" a free block is a double free. `caller`: the program's code that only
 * asks about the block (fail.h), else NULL. */
struct block lookup_live(const void *p, const char *call, const void *caller);
/* A second opinion on an address that failed the fast check of free: true if a live tiny block starts there. Else
 * reports the error and returns false. */
bool lookup_for_free(void *p);
