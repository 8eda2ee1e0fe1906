/* Files about a running program: profiles and statistics, written at moments that the program's user names, and at its end.
 *
 *  1. What is written: the heap profile, and with STATS the statistics; each dump into files of its own (text.h).
 *  2. DUMP_INTERVAL_MS, DUMP_GROWTH_BYTES and DUMP_PEAK are looked at when a block is sampled, by the thread that has it: no
 *     timer, no thread, nothing at all on other paths. A program that allocates nothing writes nothing.
 *  3. DUMP_SIGNAL's handler writes by itself. All it calls is safe there: it allocates nothing and waits for nobody.
 *  4. Of those after 2, at most one begins every DUMP_PAUSE_MS; when all dumps of the process have DUMP_BYTES, there are no more.
 *  5. SIGTERM writes what the program's end would write, if the program leaves the signal alone.
 *
 * Any thread calls these; one that finds another writing a dump writes none. */
/* SPDX-License-Identifier: MIT */
#ifndef HAK_DUMP_H
#define HAK_DUMP_H

#include "base/options.h"

/* At the library's start. Returns whether allocations are to be sampled from there on. */
bool dump_start(void);

/* A block was sampled. */
HAK_COLD void dump_if_due(void);
HAK_INLINE bool dump_may_be_due(void) {
    return (option(OPT_DUMP_INTERVAL_MS) | option(OPT_DUMP_GROWTH_BYTES) | option(OPT_DUMP_PEAK)) != 0;
}

/* The heap has passed SOFT_LIMIT. */
void dump_at_soft_limit(void);

/* As hak_profile_dump. */
int dump_profile(const char *path);

/* At the program's end: "exit", or what ends the program. */
void dump_at_end(const char *moment);

#endif
