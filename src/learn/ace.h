/* ACE, the adaptive controller: presets compete, and the best is used. Arithmetic alone: who calls, what the costs are
 * and how a preset is applied is learn/tuner.c's.
 *
 *  1. Time is cut into stretches. A preset costs, in nanoseconds of CPU: the time that malloc's slow paths take, and
 *     what comes of the free memory that it keeps: the price of keeping, purges, and faults when purged memory is
 *     wanted back.
 *  2. The second part is computed for all presets at once, played or not: each has an imagined stock of EMPTY slots
 *     that follows the heap's ups and downs by the preset's own bound. So the end of one stretch cannot be charged to
 *     the next.
 *  3. ACE_STRETCHES stretches are a round. In most rounds nothing is played, and the imagined costs alone may move
 *     ratings. A match is a round in which the preset in use (A) and a challenger (B) are played in turns, A B B A, or
 *     B A A B in each second match, so that drift cancels. The cost of each: its slow paths for an allocation, and the
 *     imagined part.
 *  4. Ratings are Elo's, moved the more the less is known (`deviation`, which each match lowers). The best is used once
 *     it leads by ACE_LEAD.
 *  5. Matches cost what the worse preset loses. Together that is at most 1 % of the time that has passed: a match that
 *     would cost more is put off, one that turns out to is ended. A challenger that does not win sits out 1, 2, 4, …
 *     rounds, and plays no more once its deviation is ACE_SURE.
 *  6. When the classes that miss are others than before, or misses cost half or twice as much, all deviations widen.
 *
 * Nothing is random: the same calls lead to the same decisions. One thread at a time calls. */
/* SPDX-License-Identifier: MIT */
#ifndef HAK_ACE_H
#define HAK_ACE_H

#include "base/base.h"

enum { ACE_PLAYERS_MAX = 8, ACE_CLASSES_MAX = 128, ACE_STRETCHES = 4 };
enum { ACE_ELO = 1500, ACE_DEVIATION = 350, ACE_WIDE = 250, ACE_SURE = 60, ACE_LEAD = 100 };
#define ACE_NOBODY UINT32_MAX

/* What a preset does with free slots. */
struct ace_rule {
    uint64_t slots;    /* EMPTY ones that stay, however many are in use */
    uint64_t percent;  /* of the slots in use, in addition */
    uint64_t decay_ns; /* what stays unused so long is purged */
    bool boosts;       /* `slots` double when purged memory is wanted back three times */
};

/* Costs in nanoseconds. */
struct ace_prices {
    uint64_t slot_second;  /* a slot that is kept for a second */
    uint64_t purge, fault; /* a slot that is purged; a purged slot that is used again */
};

/* What slow paths took since the start, and how many allocations passed. */
struct ace_sums {
    uint64_t slow_ns, allocations;
    uint32_t misses[ACE_CLASSES_MAX]; /* by class, any unit */
};

struct ace_player {
    struct ace_rule rule;
    /* rating */
    int32_t elo, deviation;
    uint32_t matches, rest, rests; /* rounds to sit out, and how often so far */
    uint64_t loss_ns;              /* in its last match */
    /* the imagined stock, in slots */
    uint64_t empty, purged, least; /* least: EMPTY since `least_from` */
    uint64_t least_from_ns, purged_at_ns, regret_ns;
    uint32_t regrets, boost;
    uint64_t kept_ns, usual_ns; /* what the stock has cost in this round; in the mean over the last rounds */
};

struct ace {
    struct ace_player player[ACE_PLAYERS_MAX];
    uint32_t players, in_use, challenger, stretch; /* ACE_NOBODY: no match. Stretches of the round that are over */
    uint32_t rounds, switches, changes;
    uint32_t widened, averaged; /* round of the last widening; rounds that the means are of */
    uint32_t vain;              /* widenings since the last switch: the next one waits twice as long after each */
    bool plays, seconds;        /* false: only watches. The match is B A A B */
    struct ace_prices price;
    uint64_t now_ns, began_ns, round_ns; /* last call, first call, begin of the round */
    uint64_t usual_round_ns;             /* how long rounds take, in the mean over the last ones */
    uint64_t active, peak;               /* slots in use */
    uint64_t spent_ns;                   /* by matches */
    int64_t saved_ns;                    /* by what the preset in use keeps, against `first`, in use at the start */
    uint32_t first;
    struct ace_sums seen; /* as of the last stretch */
    uint64_t side_ns[2],
        side_allocations[2]; /* in this match: of the preset in use, of the challenger; else of the round */
    uint32_t mix[ACE_CLASSES_MAX], round_misses[ACE_CLASSES_MAX]; /* usual shares of misses, in ten thousandths */
    uint64_t usual_ps; /* picoseconds of slow paths for an allocation, usually; 0: unknown */
};

/* `players` presets, of which `in_use` is in use and `active` slots. */
void ace_start(struct ace *a, unsigned players, const struct ace_rule *rules, unsigned in_use, uint64_t now_ns,
               uint64_t active);
/* So many slots are in use now. */
void ace_look(struct ace *a, uint64_t now_ns, uint64_t active);
/* A stretch is over. Returns the preset for the next one. */
unsigned ace_turn(struct ace *a, const struct ace_sums *sums);
/* The program rests: a match is over, undecided. */
void ace_rest(struct ace *a);
/* The preset that is used when nothing is played, and the one that should be. */
unsigned ace_best(const struct ace *a);

#endif
