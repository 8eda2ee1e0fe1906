/* Presets: named settings of tuned constants, for ACE to choose from (learn/ace.h) and for PRESET to start with.
 *
 *  1. A preset has a value for each word below, or leaves the word's default. They differ in what was measured to
 *     matter (docs/ace.md): above all in how much free memory stays resident, and for how long.
 *  2. `adapted` is the preset that was in use before, except that classes which many misses come from cut more new
 *     blocks at once and reuse full slabs later.
 *  3. A word that the user, the program or `hakmem set` has changed is theirs: presets leave the word alone. So each
 *     word is written by a compare-and-swap that expects what the last preset wrote.
 *
 * One thread at a time applies presets (learn/tuner.c). */
/* SPDX-License-Identifier: MIT */
#ifndef HAK_PRESETS_H
#define HAK_PRESETS_H

#include "tunables.h"

#define UNCHANGED UINT64_MAX

// clang-format off
/* X(id, name, RETAIN_BYTES, RETAIN_PERCENT, DECAY_MS, loan_from_frees, carve_bytes) */
#define PRESETS(X) \
X(BALANCED,   "balanced",          UNCHANGED, UNCHANGED, UNCHANGED, UNCHANGED, UNCHANGED) \
X(LEAN,       "lean",              64 * KIB,  2,         1000,      UNCHANGED, UNCHANGED) \
X(BURSTY,     "bursty",            32 * MIB,  10,        1000,      UNCHANGED, UNCHANGED) \
X(THROUGHPUT, "throughput",        256 * MIB, 100,       UNCHANGED, UNCHANGED, 16 * KIB) \
X(PRODUCER,   "producer-consumer", 8 * MIB,   25,        UNCHANGED, 2048,      UNCHANGED) \
X(ADAPTED,    "adapted",           UNCHANGED, UNCHANGED, UNCHANGED, UNCHANGED, UNCHANGED)
// clang-format on

extern HAK_HIDDEN const char *const preset_names[PRESET_COUNT];

/* What a preset keeps of free memory. */
struct preset_keeps {
    uint64_t bytes, percent, ms; /* RETAIN_BYTES, RETAIN_PERCENT, DECAY_MS */
};
struct preset_keeps preset_keeps(unsigned preset);

/* Makes the preset the one in use. `hot`: of classes, a bit each, for `adapted`. */
void preset_apply(unsigned preset, const uint64_t *hot);
/* `adapted` is made from this preset from now on. */
void preset_adapt_from(unsigned preset);
/* Applies PRESET, at the start. */
void presets_start(void);

#endif
