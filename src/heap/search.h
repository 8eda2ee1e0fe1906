/* Is a tiny block that looks free really free, and who freed it? The block may be in any of several lists, including
 * those of other threads, which change meanwhile. `true` is always right; `false` can be wrong only if another thread
 * frees the same block at this very moment. The searches serve errors and second opinions, never a hit path. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "base/fail.h"
#include "heap/heap.h"

/* Searches every list that the block may be in. */
bool search_lists(const struct slab *s, uintptr_t block);
/* Who freed a block that is free; h is the calling thread's own heap. Unknown to a thread without one: it borrowed a
 * heap for each of its frees. */
enum freer search_freer(const struct heap *h, const struct slab *s, uintptr_t block);
/* Who freed whatever is free: this thread if no other has ever had a heap, else unknown. */
enum freer search_only_freer(void);
