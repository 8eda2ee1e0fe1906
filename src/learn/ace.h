/* ACE, the adaptive controller: presets are rated by what each would have cost, and the best is used. Arithmetic alone:
 * who calls, what things cost and how a preset is applied is learn/tuner.c's.
 *
 *  1. Nothing is tried. Each preset has an imagined stock of EMPTY, LAZY and purged slots that follows the heap's ups
 *     and downs by the preset's own rule, near to what retain.c does. Pages given back inside slabs are counted: a
 *     preset that keeps all would have kept those. While it is in use there are as many as before, by what is in use.
 *  2. A round is at least ACE_ROUND_NS long, the first one ACE_FIRST_NS. At its end each preset is charged what it
 *     would have paid for purges and faults, and for the memory that it would have kept, by the process's own time.
 *  3. A preset's weight is exp(-rate * charges). The rate is that of AdaHedge (de Rooij and others, 2014): as large as
 *     what has been lost so far allows. So the best leads after a swing or two, and where presets take turns being the
 *     best, nobody leads by much. The rating is Elo's: 400 points for ten times the weight.
 *  4. The preset in use stays with the chance that its weight has kept, else one is drawn by weight (Geulen and
 *     others, 2010): so the chance of each is its weight, with few switches. The dice are fixed: the same calls lead to
 *     the same decisions.
 *  5. When the heap's peak doubles or halves the program has changed: what was learned counts for half, and ratings
 *     are less certain.
 *
 * The bound: in the mean over the dice the charges are at most those of the best single preset, plus
 * 2 * (sqrt(S2 * ln n) + S * (4/3 * ln n + 3)) for n presets, where S is the most that two presets differed by in a
 * round and S2 the sum of the squares of that, but ACE_FLOOR_NS in any case. Against charges that grow with time, this
 * falls as 1 / sqrt(time). Programs that change add as much for each change. One thread at a time calls. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "region/classes.h"

enum { ACE_PRESETS_MAX = 8, ACE_ELO = 1500, ACE_ELO_WIDE = 1000 }; /* ratings are 500 to 2,500 */
#define ACE_FIRST_NS 1000000000ull
#define ACE_ROUND_NS 20000000ull
#define ACE_FLOOR_NS 5000000 /* smaller differences tell nothing: a program that hardly swings keeps what it has */

/* What a preset does with free slots. */
struct ace_rule {
    bool keeps_all;    /* nothing goes back but by age, and nothing inside slabs */
    uint64_t slots;    /* EMPTY ones that stay, however many are in use */
    uint64_t percent;  /* of the slots in use, in addition */
    uint64_t decay_ns; /* what stays unused so long is purged */
};

/* Nanoseconds of CPU. */
struct ace_prices {
    double slot_second;     /* a slot that is kept for a second */
    double fault, purge;    /* of a slot */
    double refault, lazily; /* a LAZY slot that is written again; a slot that becomes LAZY */
};

/* What the heap did since the last look. */
struct ace_sight {
    uint64_t now_ns, active; /* slots in use */
    uint64_t inside;         /* bytes that are given back inside slabs */
    bool has_purger;
};

/* What a round was like. */
struct ace_round {
    struct ace_prices price;
    uint64_t own_ns;               /* of the process's own time, SIZE_MAX if it is not known */
    uint32_t trims, regrown_slots; /* purges inside slabs; what was given back so and is used again */
    bool keeps_all;                /* as the preset that was in effect */
};

struct ace_policy {
    struct ace_rule rule;
    /* The imagined stock, in slots. */
    uint64_t empty, lazy, purged, peak; /* peak: of those that are resident */
    uint64_t wanted, fast, least;       /* as in retain.c: wanted back; may stay besides; fewest EMPTY ones lately */
    uint64_t oldest, oldest_ns;         /* fewest EMPTY ones since */
    uint64_t given_ns;                  /* the last purge */
    bool judged;                        /* it was: what it gave was wanted back */
    /* In this round. */
    uint64_t faults, purges, refaults, lazies;
    double kept; /* slots times nanoseconds */
    /* Since the start. */
    double charge;                      /* less that of the best one; halves with each change */
    double cpu_ns, kept_second, all_ns; /* kept_second: slots times seconds; all_ns: both, at their prices */
    double usual_ns;                    /* what it is charged for a second, lately */
};

/* What the preset in use saved against another, its sum and its squares. */
struct ace_saving {
    double sum, squares;
};

struct ace_inside {      /* what was given back inside slabs */
    double kept, active; /* slots times nanoseconds: those, had they stayed; all in use */
    double cpu_ns;       /* what it cost to give them back and to take them anew */
};

struct ace {
    struct ace_policy policy[ACE_PRESETS_MAX];
    uint32_t policies, in_use, first;
    uint32_t rounds, switches, changes;
    bool swings;    /* the first of them purged something: until then nothing is rated */
    double gap;     /* AdaHedge's: how much more was lost than by whoever knew each round beforehand */
    double gap_max; /* the rate is for this gap, which doubles when `gap` reaches it */
    double known;   /* rounds that told something; fewer after a change */
    uint64_t dice;
    uint64_t now_ns, began_ns, round_ns, second_ns; /* the last look, the first one; begins of the round and second */
    uint64_t active, peak, usual_peak;              /* in this round; as of the last change */
    struct ace_inside inside, usual;                /* in this round; in all that gave back */
    struct ace_saving cpu, kept;                    /* against `first`, of what was in use */
};

/* `policies` presets, the defaults first, of which `in_use` is in use. */
void ace_start(struct ace *a, unsigned policies, const struct ace_rule *rules, unsigned in_use,
               const struct ace_sight *sight);
void ace_look(struct ace *a, const struct ace_sight *seen);
/* Has the program swung, and is a round over? */
bool ace_is_due(const struct ace *a);
/* A round is over: `in_use` is the preset for the next one. */
void ace_turn(struct ace *a, const struct ace_round *round);

int ace_elo(const struct ace *a, unsigned preset);
/* How uncertain ratings are. */
int ace_deviation(const struct ace *a);
