/* Learning: what the ledger says goes to ACE (learn/ace.h), and the policy that ACE chooses is applied. With LEARN=observe ACE only
 * rates, and the policy is that of PRESET.
 *
 *  1. Threads add what they see to shared sums at timed misses, one in LEDGER_TIMED, on their own slow path.
 *  2. The thread that finds a stretch over, or that the heap has grown or shrunk, takes the turn: it has the controller to
 *     itself while its process number is in `holder`. Nobody waits: who finds another number of the same process there leaves.
 *     A fork may copy a number in the middle of a turn; the child finds its parent's, and starts ACE anew.
 *  3. What others show (statistics, `hakmem top`) is copied to `seen` at the end of a turn.
 *
 * With LEARN=0 nothing here is called. Set while the program runs, it leaves the policy in use. */
/* SPDX-License-Identifier: MIT */
#ifndef HAK_LEARN_H
#define HAK_LEARN_H

#include "base/text.h"
#include "learn/ledger.h"
#include "learn/policies.h"

/* Of the last turn, for any thread and for other processes. Each word stands for itself. */
struct learn_seen {
    _Atomic uint32_t rounds;            /* 0: nothing is rated */
    _Atomic uint32_t in_use;            /* enum policy */
    _Atomic uint32_t best;              /* differs from it with LEARN=observe */
    _Atomic uint32_t switches, changes; /* of the policy in use; of the program's ways */
    _Atomic uint64_t ns;                /* since the first turn */
    _Atomic int64_t saved_ns;  /* against the first policy, by what is kept of free memory, at the price of GOAL */
    _Atomic uint64_t spent_ns; /* lost by playing worse policies */
    _Atomic int32_t elo[POLICY_COUNT], deviation[POLICY_COUNT];
    _Atomic uint32_t matches[POLICY_COUNT];
    _Atomic uint32_t kept_us[POLICY_COUNT]; /* what its stock of free memory costs in a second, lately */
};
extern HAK_HIDDEN struct learn_seen hak_learned;

/* Who takes the turn: a process number, 0: nobody. Taken by an exchange, which pairs with the store that gives it back. Here for a
 * test, which makes this process a child that was forked in the middle of a turn. */
extern HAK_HIDDEN _Atomic uint32_t learn_holder;

/* A miss of the class is over that began then, which is not 0 (ledger_begin). `rows` are the heap's. */
HAK_COLD void learn_missed(struct ledger_row *rows, unsigned class_id, uint64_t began);

/* When the next turn is due, nanoseconds; 0: nothing is rated. Anybody's. */
extern HAK_HIDDEN _Atomic uint64_t learn_turn_ns;
HAK_INLINE bool learn_has_begun(void) { return load_relaxed(&learn_turn_ns) != 0; }
/* The heap has settled: a turn may be due while the program only frees, or LEARN was set to 0 while a policy was tried. */
HAK_COLD void learn_settled(void);
/* The program rests, as the purger sees: what is tried would be in effect all the time, so the policy in use is played. */
void learn_rests(void);

/* One line about that for the statistics, or nothing if nothing was rated; `"learn":{…},` for the JSON. */
void learn_put_text(struct text *t);
void learn_put_json(struct text *t);

#endif
