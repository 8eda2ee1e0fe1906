/* The last look at the heap, when the program ends: what no later call would find. */
/* SPDX-License-Identifier: MIT */
#ifndef HAK_EXIT_CHECK_H
#define HAK_EXIT_CHECK_H

/* Reports damage behind live blocks that have a canary, and an overflow that ran into memory which was never used. Looks only in a
 * program with one thread, at EXIT_SUPERSLABS at most. */
void exit_check(void);

#endif
