/* What is at an address: by the address alone, as every slot's record tells its tier, which knows the rest. For the calls that
 * are no hit path; what is not a live block's start ends the program with a line, or is left alone (fail.h).
 *
 * Any thread. Of a block that another thread frees meanwhile either answer may come. */
/* SPDX-License-Identifier: MIT */
#ifndef HAK_LOOKUP_H
#define HAK_LOOKUP_H

#include "region.h"

struct block {
    struct slab *slab;
    size_t bytes;    /* of the block the pointer is in; 0 if it is in none */
    const char *why; /* NULL: the pointer is the start of a block */
};

/* The live block that p starts. If there is none: the end of the program or, as ON_ERROR has it, one of 0 bytes. */
struct block lookup_live(const void *p, const char *call);
/* Whether p may be freed, which looked as if not. False: it may not, and has failed. */
bool lookup_for_free(void *p);
/* The state byte of a block that is not tiny. */
_Atomic uint8_t *lookup_state(const void *p);

#endif
