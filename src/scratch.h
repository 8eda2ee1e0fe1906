/* Memory for what is too large for a stack, such as reports: no function of the library may need more than 2 KiB of
 * stack.
 *
 * One piece belongs to the library, so that a report can be made without memory; whoever finds that piece taken gets a
 * mapping. A child forked while another thread had the piece finds it taken from then on, and gets mappings. For any
 * thread; nothing waits. */
#ifndef HAK_SCRATCH_H
#define HAK_SCRATCH_H

#include "base.h"

#define SCRATCH_BYTES (8 * KIB)

void *scratch_take(void); /* SCRATCH_BYTES, not cleared; NULL: no memory */
void scratch_give(void *scratch);

#endif
