/* Memory for what is too large for a stack, as reports are: malloc and all else here must get by with 2 KiB of it.
 *
 * One piece is the library's own, so that a report can be made when there is no memory; whoever finds that taken gets a mapping.
 * A child forked while another thread had it finds it taken for ever, and gets mappings. Any thread; nothing waits. */
/* SPDX-License-Identifier: MIT */
#ifndef HAK_SCRATCH_H
#define HAK_SCRATCH_H

#include "base.h"

#define SCRATCH_BYTES (8 * KIB)

void *scratch_take(void); /* SCRATCH_BYTES, not cleared; NULL: no memory */
void scratch_give(void *scratch);

#endif
