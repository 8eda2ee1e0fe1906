/* Which SuperSlabs get huge pages: those of a large heap whose program touches what it asks for, where they cost less.
 * Any thread calls anything; nothing waits. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "base/base.h"

/* New SuperSlabs, which nobody else knows yet: gives them huge pages if the heap is so large that the slots its threads
 * hold half-used weigh little, if the program touches what it asks for, and if huge pages have cost less than small
 * ones (page_cost.h). False: they may have lost their memory. */
enum contents {
    CONTENTS_TOUCHED, /* spans that programs touch whole, as small blocks are; the first slot will be used at once */
    CONTENTS_SPANS,   /* other spans; likewise */
    CONTENTS_RUN,     /* one huge block */
};
bool huge_pages_consider(size_t first, size_t n, enum contents contents);
/* The caller took `slots` slots of a SuperSlab without memory, from `slot` on. If the SuperSlab was purged a moment
 * ago, and several before it, too, the next ones that are purged get huge pages: what was in use will be in use again,
 * and faults and purges cost a third then. Times the first touch as that of a new SuperSlab; one that was to have a
 * huge page gets none if they have become dear since. False: it may have lost its memory, and is the caller's alone. */
bool huge_pages_wanted_back(size_t slot, unsigned slots, enum contents contents);
/* Before a larger block is freed: looks whether the program touched its end. */
void huge_pages_freed_large(const void *block, size_t bytes);
