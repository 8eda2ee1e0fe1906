/* Packed: blocks of more than 4 KiB while memory is scarce (region_is_scarce). See packed.c. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "heap/heap.h"

/* Does a block of that size and alignment lose less here than with its usual kind? No sample of the profile is packed:
 * what is packed has no state byte. */
bool packed_serves(const struct heap *h, size_t bytes, size_t alignment);
