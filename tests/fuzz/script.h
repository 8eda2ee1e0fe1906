/* Random sequences of steps, run in a child of their own, and made short when they fail.
 *
 *  1. A sequence is made from a seed alone: phases of growth and near emptiness, sizes as the recorded traces have them
 *     and on the borders between tiers. Each step names its thread; threads make theirs in order, at the same time.
 *  2. It runs in a forked child, so that each run begins with the same heap, and whatever goes wrong ends the child only.
 *  3. A failing sequence is cut after the steps that were reached; then ever smaller parts are left out as long as it
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
    std::string message;         /* what the child said, and how it ended */
    std::vector<size_t> reached; /* steps that each thread has begun */
};

/* `tries`: threads that run freely do not fail each time. */
Verdict script_run(const Surface &surface, const Script &script, unsigned tries = 1);

/* A failing sequence with as much as possible left out, within `most_steps` of replaying. */
Script script_shrink(const Surface &surface, Script script, const Verdict &verdict, size_t most_steps = 100000000);

/* One step a line. */
std::string script_text(const Script &script);
Script script_read(const char *path);

#endif
