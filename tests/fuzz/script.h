/* Random sequences of steps, run in their own child, and shortened when they fail.
 *
 *  1. The seed alone determines a sequence: phases of growth and of near emptiness, with sizes as in the recorded
 *     traces and at the borders between tiers. Each step names its thread; each thread makes its steps in order, while
 *     the others run.
 *  2. A sequence runs in a forked child, so that each run starts with the same heap, and a failure ends only the child.
 *  3. A failing sequence is cut after the steps that were reached. Then ever smaller parts are left out as long as it
 *     still fails (delta debugging). */
/* SPDX-License-Identifier: MIT */
#ifndef HAKMEM_TESTS_SCRIPT_H
#define HAKMEM_TESTS_SCRIPT_H

#include <string>
#include <vector>

#include "operations.h"

using Script = std::vector<Step>;

Script script_random(uint64_t seed, size_t steps, unsigned threads);

struct Verdict {
    bool failed = false;
    std::string message;         /* what the child wrote, and how it ended */
    std::vector<size_t> reached; /* for each thread, how many steps it has begun */
};

/* Threads that run freely do not fail each time, so this runs the script up to `tries` times. */
Verdict script_run(const Surface &surface, const Script &script, unsigned tries = 1);

/* Returns a failing sequence with as much as possible left out, replaying at most `most_steps` steps. */
Script script_shrink(const Surface &surface, Script script, const Verdict &verdict, size_t most_steps = 100000000);

/* One step on each line. */
std::string script_text(const Script &script);
Script script_read(const char *path);

#endif
