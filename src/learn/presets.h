/* Presets: named settings of what stays resident, for ACE to choose from (learn/ace.h) and for PRESET to start with.
 *
 *  1. A preset has a value for each option below, or leaves the option's default. They differ in how much free memory
 *     stays resident, and for how long, which matters most of all tuned constants (docs/experiments.md), and which can
 *     be computed without being tried.
 *  2. An option that the user, the program or `hakmem set` has changed is theirs: presets leave it alone. So each word
 *     is written by a compare-and-swap that expects what the last preset wrote.
 *
 * One thread at a time applies presets (learn/tuner.c). */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "base/options.h"

#define UNCHANGED UINT64_MAX

// clang-format off
/* X(id, name, PURGE, RETAIN_BYTES, RETAIN_PERCENT, DECAY_MS) */
#define PRESETS(X) \
X(BALANCED,   "balanced",   UNCHANGED,  UNCHANGED, UNCHANGED, UNCHANGED) \
X(LEAN,       "lean",       UNCHANGED,  64 * KIB,  2,         1000) \
X(BURSTY,     "bursty",     UNCHANGED,  32 * MIB,  10,        1000) \
X(THROUGHPUT, "throughput", PURGE_LAZY, 1 * GIB,   100,       60000)
// clang-format on

enum preset_word { WORD_PURGE, WORD_RETAIN_BYTES, WORD_RETAIN_PERCENT, WORD_DECAY_MS, PRESET_WORDS };

extern HAK_HIDDEN const char *const preset_names[PRESET_COUNT];

/* The value of the word under the preset; under all of them what somebody else has set. */
uint64_t preset_value(unsigned preset, enum preset_word word);
/* Makes the preset the one in use. */
void preset_apply(unsigned preset);
/* Applies PRESET, at the start. */
void presets_start(void);
