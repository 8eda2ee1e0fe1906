/* Dumps: profiles and statistics that a running program writes at moments its user chooses, and at its end.
 *
 *  1. A dump is the heap profile and, with STATS, the statistics. Each dump has files of its own (text_output_name).
 *  2. Whichever thread samples a block checks DUMP_INTERVAL_MS, DUMP_GROWTH_BYTES and DUMP_PEAK. There is no timer, no
 *     thread, and no work on any other path, so a program that allocates nothing writes nothing.
 *  3. The handler of DUMP_SIGNAL writes the dump itself. Nothing it calls allocates or waits.
 *  4. DUMP_GROWTH_BYTES and DUMP_PEAK begin at most one dump every DUMP_PAUSE_MS. Once the files of the process hold
 *     DUMP_BYTES, there are no more dumps.
 *  5. SIGTERM writes what the end of the program would write, unless the program handles the signal itself.
 *
 * Any thread may call these functions. A thread that finds another one writing a dump writes none. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "base/options.h"

/* Call it at the library's start. Returns whether allocations are to be sampled from now on. */
bool dump_start(void);

/* Call it after a block was sampled. */
HAK_COLD void dump_if_due(void);
HAK_INLINE bool dump_may_be_due(void) {
    return (option(OPT_DUMP_INTERVAL_MS) | option(OPT_DUMP_GROWTH_BYTES) | option(OPT_DUMP_PEAK)) != 0;
}

/* As hak_profile_dump. */
int dump_profile(const char *path);

/* Writes the profile that SOFT_LIMIT_PROFILE asks for. */
void dump_at_soft_limit(void);

/* Writes the files of the program's end. `moment`: "exit", or what ends the program. */
void dump_at_end(const char *moment);
