/* ACE in this process: what the heap does goes to the controller (learn/ace.h), and the preset that it chooses is
 * applied. With ACE=observe it only rates, and the preset is that of PRESET.
 *
 *  1. Whoever settles looks, and takes the turn when a round is over: the controller is the thread's while its process
 *     number is in `holder`. Nobody waits: who finds another number of the same process there leaves. A fork may copy a
 *     number in the middle of a turn; the child finds its parent's, and starts ACE anew.
 *  2. In the first second, and as long as nothing was ever purged, nothing but looks happens. What a purge and a fault
 *     cost is tried when the first round is over.
 *  3. While the program rests, or near a limit, the first preset is in effect: what another one keeps ends with the
 *     work.
 *  4. What others show (statistics, `hakmem top`) is copied to `seen` at the end of a round.
 *
 * With ACE=0 nothing here is called. Set while the program runs, it leaves the preset in use. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "base/text.h"
#include "learn/presets.h"

/* What was saved: nanoseconds of CPU, and MiB times milliseconds. */
struct tuner_saved {
    _Atomic int64_t cpu_ns, kept;
};

/* What the last turn found, for any thread and for other processes. Each word stands for itself. */
struct tuner_seen {
    _Atomic uint32_t rounds;            /* 0: nothing is rated */
    _Atomic uint32_t in_use;            /* enum preset */
    _Atomic uint32_t best;              /* that would have cost least since the start */
    _Atomic uint32_t switches, changes; /* of the preset in use; of the program's ways */
    _Atomic uint32_t deviation;         /* of ratings */
    _Atomic uint64_t ns;                /* since the first look */
    struct tuner_saved saved;           /* against the first preset … */
    struct tuner_saved within;          /* … give or take that, in 19 of 20 cases */
    struct tuner_saved possible;        /* what `best` from the start on would have saved */
    _Atomic int32_t elo[PRESET_COUNT];
    _Atomic uint32_t cost_us[PRESET_COUNT]; /* that it is charged for a second, lately */
};
extern HAK_HIDDEN struct tuner_seen hak_tuner;

/* Who takes the turn: a process number, 0: nobody. Taken by an exchange, which pairs with the store that gives it back.
 * Here for a test, which makes this process a child that was forked in the middle of a turn. */
extern HAK_HIDDEN _Atomic uint32_t tuner_holder;

/* Two lines about that for the statistics, or nothing if nothing was rated; `"ace":{…},` for the JSON. */
void tuner_put_text(struct text *t);
void tuner_put_json(struct text *t);
