/* Large: blocks above 64 KiB and up to 1 MiB. See large.c. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "heap/heap.h"

/* The hit path: a block from the ring. NULL: there is none, or a sample is due. */
void *large_hit(struct heap *h, size_t bytes);
