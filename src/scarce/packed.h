/* Packed: blocks of more than 4 KiB while memory is scarce (region_is_scarce). See packed.c. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "heap.h"

/* Does such a block lose less here than with its own kind? */
bool packed_serves(const struct heap *h, size_t bytes, size_t alignment);
