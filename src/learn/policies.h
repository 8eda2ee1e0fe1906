/* Policies: named settings of tuned constants, for ACE to choose from (learn/ace.h) and for PRESET to start with.
 *
 *  1. A policy has a value for each word below, or leaves the word's default. They differ in what was measured to matter
 *     (docs/ace.md): above all in how much free memory stays resident, and for how long.
 *  2. `learned` is the policy that was in use before, except that classes which many misses come from cut more new blocks
 *     at once and reuse full slabs later.
 *  3. A word that the user, the program or `hakmem set` has changed is theirs: policies leave the word alone. So each word is
 *     written by a compare-and-swap that expects what the last policy wrote.
 *
 * One thread at a time applies policies (learn/learn.c). */
/* SPDX-License-Identifier: MIT */
#ifndef HAK_POLICIES_H
#define HAK_POLICIES_H

#include "learn/tunables.h"

#define UNCHANGED UINT64_MAX

// clang-format off
/* X(id, name, RETAIN_BYTES, RETAIN_PERCENT, DECAY_MS, loan_from_frees, carve_bytes) */
#define POLICIES(X) \
X(BALANCED,   "balanced",          UNCHANGED, UNCHANGED, UNCHANGED, UNCHANGED, UNCHANGED) \
X(LEAN,       "lean",              64 * KIB,  2,         1000,      UNCHANGED, UNCHANGED) \
X(BURSTY,     "bursty",            32 * MIB,  10,        1000,      UNCHANGED, UNCHANGED) \
X(THROUGHPUT, "throughput",        256 * MIB, 100,       UNCHANGED, UNCHANGED, 16 * KIB) \
X(PRODUCER,   "producer-consumer", 8 * MIB,   25,        UNCHANGED, 2048,      UNCHANGED) \
X(LEARNED,    "learned",           UNCHANGED, UNCHANGED, UNCHANGED, UNCHANGED, UNCHANGED)
// clang-format on

enum policy {
#define POLICY_ENUM(id, ...) POLICY_##id,
    POLICIES(POLICY_ENUM) POLICY_COUNT,
#undef POLICY_ENUM
};
extern HAK_HIDDEN const char *const policy_names[POLICY_COUNT];

/* What a policy keeps of free memory. */
struct policy_keeps {
    uint64_t bytes, percent, ms; /* RETAIN_BYTES, RETAIN_PERCENT, DECAY_MS */
};
struct policy_keeps policy_keeps(unsigned policy);

/* Makes the policy the one in use. `hot`: of classes, a bit each, for `learned`. */
void policy_apply(unsigned policy, const uint64_t *hot);
/* `learned` is made from this policy from now on. */
void policy_learn_from(unsigned policy);
/* Applies PRESET, at the start. */
void policies_start(void);

#endif
