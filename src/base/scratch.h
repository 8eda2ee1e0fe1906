/* Memory for what is too large for a stack, such as reports: no function of the library may use more than 2 KiB of
 * stack.
 *
 * One piece belongs to the library, so that a report can be made when there is no memory; a caller that finds it taken
 * gets a mapping. In a child that was forked while another thread had the piece, it stays taken, and callers get
 * mappings. Any thread calls these; nothing waits. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "base/base.h"

#define SCRATCH_BYTES (12 * KIB)

void *scratch_take(void); /* SCRATCH_BYTES, not cleared; NULL: no memory */
void scratch_give(void *scratch);
