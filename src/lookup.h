/* Finds the block at an address: the record of the slot names the kind, and the kind's row knows the rest. Used on slow
 * paths only. Anything but the start of a live block is reported (fail.h).
 *
 * Any thread may call these. If another thread frees the block meanwhile, either answer may come. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "kinds.h"

/* The live block that starts at p. If there is none, reports that, and returns a block of 0 bytes without a slab if
 * ON_ERROR lets the program go on. A block of another allocator's (beside/other.h) has no slab, either, but a size. If
 * `call` is "free", a free block is reported as a double free. `caller`: of a call that only asks about the block
 * (fail.h), else NULL. */
struct block lookup_live(const void *p, const char *call, const void *caller);
/* A second opinion on a tiny block that failed the fast check of free. Returns false after reporting the error. */
bool lookup_for_free(void *p);
