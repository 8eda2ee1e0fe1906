/* What is at an address: by the address alone, as every slot's record tells its tier, which knows the rest. For the calls that
 * are no hit path; what is not a live block's start ends the program with a line, or is left alone (fail.h).
 *
 * Any thread. Of a block that another thread frees meanwhile either answer may come. */
/* SPDX-License-Identifier: MIT */
#ifndef HAK_LOOKUP_H
#define HAK_LOOKUP_H

#include "kinds.h"

/* The live block that p starts. If there is none: the end of the program or, as ON_ERROR has it, one of 0 bytes. A `call` named
 * "free" of a block that is free is a double free. */
struct block lookup_live(const void *p, const char *call);
/* A second opinion on a tiny block that looked as if it could not be freed. False: it can't be, and that has been reported. */
bool lookup_for_free(void *p);

#endif
