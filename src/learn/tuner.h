/* ACE in this process: what the ledger says goes to the controller (learn/ace.h), and the preset that it chooses is
 * applied. With ACE=observe it only rates, and the preset is that of PRESET.
 *
 *  1. Threads add what they see to shared sums at timed misses, one in LEDGER_TIMED, on their own slow path.
 *  2. The thread that finds a stretch over, or that the heap has grown or shrunk, takes the turn: it has the controller
 *     to itself while its process number is in `holder`. Nobody waits: who finds another number of the same process
 *     there leaves. A fork may copy a number in the middle of a turn; the child finds its parent's, and starts ACE
 *     anew.
 *  3. What others show (statistics, `hakmem top`) is copied to `seen` at the end of a turn.
 *
 * With ACE=0 nothing here is called. Set while the program runs, it leaves the preset in use. */
/* SPDX-License-Identifier: MIT */
#ifndef HAK_TUNER_H
#define HAK_TUNER_H

#include "base/text.h"
#include "ledger.h"
#include "learn/presets.h"

/* What the last turn found, for any thread and for other processes. Each word stands for itself. */
struct tuner_seen {
    _Atomic uint32_t rounds;            /* 0: nothing is rated */
    _Atomic uint32_t in_use;            /* enum preset */
    _Atomic uint32_t best;              /* differs from it with ACE=observe */
    _Atomic uint32_t switches, changes; /* of the preset in use; of the program's ways */
    _Atomic uint64_t ns;                /* since the first turn */
    _Atomic int64_t saved_ns;  /* against the first preset, by what is kept of free memory, at the price of GOAL */
    _Atomic uint64_t spent_ns; /* lost by playing worse presets */
    _Atomic int32_t elo[PRESET_COUNT], deviation[PRESET_COUNT];
    _Atomic uint32_t matches[PRESET_COUNT];
    _Atomic uint32_t kept_us[PRESET_COUNT]; /* what its stock of free memory costs in a second, lately */
};
extern HAK_HIDDEN struct tuner_seen hak_tuner;

/* Who takes the turn: a process number, 0: nobody. Taken by an exchange, which pairs with the store that gives it back.
 * Here for a test, which makes this process a child that was forked in the middle of a turn. */
extern HAK_HIDDEN _Atomic uint32_t tuner_holder;

/* One line about that for the statistics, or nothing if nothing was rated; `"learn":{…},` for the JSON. */
void tuner_put_text(struct text *t);
void tuner_put_json(struct text *t);

#endif
