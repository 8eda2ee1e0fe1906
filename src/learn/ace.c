/* See ace.h. */
/* SPDX-License-Identifier: MIT */
#include "learn/ace.h"

#include <string.h>

/* Near to what retain.c does: what comes back soon stays EMPTY, by doublings. What would be LAZY is not imagined. */
#define BOOST_MAX 6
#define BOOST_SWING_MAX 9
#define REGRET_NS 1000000000ull
#define QUIET_NS 10000000000ull
#define REGRETS 3

#define DT_MAX_US 60000000ull /* a program that slept is charged for a minute at most */
#define KNOWN_BY_ROUND 64     /* how far a round without a match moves ratings */
#define DRAW_SHARE 1000       /* of the time: a smaller difference is none */
#define BUDGET_SHARE 100      /* of the time: what matches may cost */
#define BUDGET_NS 1000000     /* and that in any case */
#define RESTS_MAX 8
#define AVERAGED_MAX 16u
#define AVERAGED_MIN 4u /* after a change all old rounds together weigh as much as this many new ones */
#define PEAK_FALLS 64   /* of what the peak is above what is in use, in each round */
#define VAIN_MAX 6
#define CHANGE_ROUNDS 50 /* a program that changes more often does so all the time, and that is how it is */
#define MIX_ALL 10000u
#define MIX_CHANGED (MIX_ALL / 2)

static uint64_t min_u64(uint64_t a, uint64_t b) { return a < b ? a : b; }
static uint64_t less(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

/* ---- ratings ---- */

/* What the one is expected to score against the other, in thousandths, by the difference of ratings: 1000 / (1 +
 * 10^(-d/400)). */
static int expected_score(int difference) {
    static const uint16_t by_50[] = {500, 571, 640, 703, 760, 808, 849, 882, 909,
                                     930, 947, 960, 969, 977, 983, 987, 990};
    enum { STEP = 50, MOST = (sizeof by_50 / sizeof by_50[0] - 1) * STEP };
    int d = difference < 0 ? -difference : difference;
    d = d < MOST ? d : MOST - 1;
    int score = by_50[d / STEP] + (by_50[d / STEP + 1] - by_50[d / STEP]) * (d % STEP) / STEP;
    return difference < 0 ? 1000 - score : score;
}

/* `score` is the first one's, in thousandths; `by`: the most a rating can move. */
static void rate(struct ace_player *one, struct ace_player *other, int score, int by, int other_by) {
    int surprise = score - expected_score(one->elo - other->elo);
    one->elo += surprise * by / 1000;
    other->elo -= surprise * other_by / 1000;
}

/* The score of `other` against `one`, by what the two cost in `ns`: 1000 if `other` costs three tenths less. A draw if
 * the difference is next to nothing or at most a tenth, because the time of slow paths varies. */
static int score_of(uint64_t cost, uint64_t other_cost, uint64_t ns) {
    uint64_t most = cost > other_cost ? cost : other_cost, difference = less(cost, other_cost) + less(other_cost, cost);
    if (difference <= ns / DRAW_SHARE || difference <= most / 10)
        return 500;
    int by = (int)min_u64((difference - most / 10) * 2500 / most, 500);
    return other_cost < cost ? 500 + by : 500 - by;
}

unsigned ace_best(const struct ace *a) {
    unsigned best = a->in_use;
    for (unsigned i = 0; i < a->players; i++)
        if (a->player[i].elo > a->player[best].elo)
            best = i;
    return a->player[best].elo >= a->player[a->in_use].elo + ACE_LEAD ? best : a->in_use;
}

/* ---- what presets would have kept ---- */

static uint64_t bound_of(const struct ace *a, const struct ace_player *p) {
    uint64_t usual = p->rule.slots << BOOST_MAX, swing = less(a->peak, a->active);
    uint64_t boosted = min_u64(p->rule.slots << p->boost, usual > swing ? usual : swing);
    return (p->rule.boosts ? boosted : p->rule.slots) + a->active * p->rule.percent / 100;
}

static void imagine_purge(const struct ace *a, struct ace_player *p, uint64_t slots) {
    if (slots == 0)
        return;
    p->empty -= slots;
    p->purged += slots;
    p->kept_ns += slots * a->price.purge;
    p->purged_at_ns = a->now_ns;
}

/* Purged slots are used again. */
static void imagine_return(const struct ace *a, struct ace_player *p, uint64_t slots) {
    p->purged -= slots;
    p->kept_ns += slots * a->price.fault;
    if (p->purged_at_ns == 0 || a->now_ns - p->purged_at_ns >= REGRET_NS)
        return;
    p->purged_at_ns = 0;
    p->regret_ns = a->now_ns;
    p->boost += ++p->regrets >= REGRETS && p->boost < BOOST_SWING_MAX;
}

static void imagine(const struct ace *a, struct ace_player *p, uint64_t was_active, uint64_t us) {
    p->kept_ns += p->empty * a->price.slot_second * us / 1000000;
    uint64_t more = less(a->active, was_active), from_empty = min_u64(more, p->empty);
    p->empty += less(was_active, a->active);
    p->empty -= from_empty;
    if (more > from_empty && p->purged != 0)
        imagine_return(a, p, min_u64(more - from_empty, p->purged));
    if (p->boost != 0 && a->now_ns - p->regret_ns > QUIET_NS) {
        p->boost--;
        p->regret_ns = a->now_ns;
    }
    uint64_t bound = bound_of(a, p);
    if (p->empty > bound)
        imagine_purge(a, p, p->empty - (bound - bound / 4));
    p->least = min_u64(p->least, p->empty);
    if (a->now_ns - p->least_from_ns >= p->rule.decay_ns) {
        imagine_purge(a, p, p->least);
        p->least = p->empty;
        p->least_from_ns = a->now_ns;
    }
}

void ace_look(struct ace *a, uint64_t now_ns, uint64_t active) {
    uint64_t us = min_u64(less(now_ns, a->now_ns) / 1000, DT_MAX_US), was = a->active;
    a->now_ns = now_ns;
    a->active = active;
    a->peak = active > a->peak ? active : a->peak;
    for (unsigned i = 0; i < a->players; i++)
        imagine(a, &a->player[i], was, us);
}

/* ---- rounds ---- */

static uint64_t time_of_round(const struct ace *a) { return less(a->now_ns, a->round_ns); }
static uint64_t budget(const struct ace *a) {
    return less((a->now_ns - a->began_ns) / BUDGET_SHARE + BUDGET_NS, a->spent_ns);
}

static void round_begins(struct ace *a) {
    for (unsigned i = 0; i < a->players; i++)
        a->player[i].kept_ns = 0;
    memset(a->side_ns, 0, sizeof a->side_ns);
    memset(a->side_allocations, 0, sizeof a->side_allocations);
    memset(a->round_misses, 0, sizeof a->round_misses);
    a->stretch = 0;
    a->round_ns = a->now_ns;
    a->peak -= (a->peak - a->active) / PEAK_FALLS;
}

/* What slow paths had cost in the whole match, had the side alone played. */
static uint64_t slow_ns(const struct ace *a, unsigned side) {
    double all = (double)(a->side_allocations[0] + a->side_allocations[1]);
    return (uint64_t)((double)a->side_ns[side] * all / (double)a->side_allocations[side]);
}

/* What the stocks cost, in the mean over the last rounds: a program's ups and downs take more than one. */
static void average_kept(struct ace *a) {
    uint32_t n = a->averaged < AVERAGED_MAX ? ++a->averaged : AVERAGED_MAX;
    a->usual_round_ns = a->usual_round_ns + time_of_round(a) / n - a->usual_round_ns / n;
    for (unsigned i = 0; i < a->players; i++) {
        struct ace_player *p = &a->player[i];
        p->usual_ns = p->usual_ns + p->kept_ns / n - p->usual_ns / n;
    }
}

static void widen(struct ace *a) {
    if (a->changes++ != 0 && a->rounds - a->widened < (uint64_t)CHANGE_ROUNDS << a->vain)
        return;
    a->widened = a->rounds;
    a->vain += a->vain < VAIN_MAX;
    a->usual_ps = 0;
    a->averaged = a->averaged < AVERAGED_MIN ? a->averaged : AVERAGED_MIN;
    for (unsigned i = 0; i < a->players; i++) {
        struct ace_player *p = &a->player[i];
        p->deviation = p->deviation < ACE_WIDE ? ACE_WIDE : p->deviation;
        p->rest = p->rests = 0;
        p->loss_ns = 0;
    }
}

/* Are the classes that missed in this round others than usual? */
static bool mix_changed(struct ace *a) {
    uint64_t all = 0, apart = 0;
    for (unsigned c = 0; c < ACE_CLASSES_MAX; c++)
        all += a->round_misses[c];
    bool known = false;
    for (unsigned c = 0; c < ACE_CLASSES_MAX && all != 0; c++) {
        uint32_t share = (uint32_t)(a->round_misses[c] * (uint64_t)MIX_ALL / all);
        known |= a->mix[c] != 0;
        apart += less(share, a->mix[c]) + less(a->mix[c], share);
    }
    bool changed = known && apart / 2 > MIX_CHANGED;
    for (unsigned c = 0; c < ACE_CLASSES_MAX && all != 0; c++) {
        uint32_t share = (uint32_t)(a->round_misses[c] * (uint64_t)MIX_ALL / all);
        a->mix[c] = changed || !known ? share : (a->mix[c] * 3 + share) / 4;
    }
    return changed;
}

/* Does an allocation take half or twice the usual time in slow paths, under the preset in use? */
static bool rate_changed(struct ace *a) {
    if (a->side_allocations[0] == 0)
        return false;
    uint64_t ps = a->side_ns[0] * 1000 / a->side_allocations[0] + 1, usual = a->usual_ps;
    a->usual_ps = usual == 0 ? ps : (usual * 3 + ps) / 4;
    return usual != 0 && (ps > usual * 2 || ps < usual / 2);
}

static bool has_played(const struct ace *a) {
    return a->challenger != ACE_NOBODY && a->side_allocations[0] != 0 && a->side_allocations[1] != 0;
}

static void judge_match(struct ace *a) {
    struct ace_player *one = &a->player[a->in_use], *other = &a->player[a->challenger];
    uint64_t cost = slow_ns(a, 0) + one->usual_ns, other_cost = slow_ns(a, 1) + other->usual_ns;
    int score = score_of(cost, other_cost, time_of_round(a));
    rate(other, one, score, other->deviation / 4, one->deviation / 4);
    one->deviation = one->deviation * 7 / 8 > ACE_SURE ? one->deviation * 7 / 8 : ACE_SURE;
    other->deviation = other->deviation * 7 / 8 > ACE_SURE ? other->deviation * 7 / 8 : ACE_SURE;
    one->matches++;
    other->matches++;
    other->loss_ns = less(other_cost, cost) / 2;
    a->spent_ns += other->loss_ns;
    other->rests = score > 500 ? 0 : other->rests + (other->rests < RESTS_MAX);
    other->rest = score > 500 ? 0 : 1u << other->rests;
}

/* Nothing was played: the stocks alone. A draw tells nothing. */
static void judge_round(struct ace *a) {
    struct ace_player *one = &a->player[a->in_use];
    uint64_t slow = a->side_ns[0];
    for (unsigned i = 0; i < a->players; i++) {
        int score = score_of(one->usual_ns + slow, a->player[i].usual_ns + slow, time_of_round(a));
        if (i != a->in_use && score != 500)
            rate(&a->player[i], one, score, KNOWN_BY_ROUND, KNOWN_BY_ROUND / (int)a->players);
    }
}

static bool may_challenge(const struct ace *a, unsigned i) {
    const struct ace_player *p = &a->player[i], *one = &a->player[a->in_use];
    bool open = p->deviation > ACE_SURE || p->elo > one->elo + ACE_LEAD / 2;
    uint64_t loss_ns = p->loss_ns + less(p->usual_ns, one->usual_ns) / 2;
    return i != a->in_use && p->rest == 0 && open && p->elo + p->deviation > one->elo && loss_ns <= budget(a);
}

static void choose_challenger(struct ace *a) {
    a->challenger = ACE_NOBODY;
    for (unsigned i = 0; i < a->players; i++) {
        struct ace_player *p = &a->player[i];
        p->rest -= p->rest != 0;
        if (!a->plays || !may_challenge(a, i))
            continue;
        const struct ace_player *best = a->challenger != ACE_NOBODY ? &a->player[a->challenger] : NULL;
        if (best == NULL || p->elo + p->deviation > best->elo + best->deviation)
            a->challenger = i;
    }
    a->seconds = !a->seconds;
}

static void round_ends(struct ace *a) {
    average_kept(a);
    if (has_played(a))
        judge_match(a);
    else
        judge_round(a);
    a->saved_ns += (int64_t)(a->player[a->first].kept_ns - a->player[a->in_use].kept_ns);
    bool mix = mix_changed(a), rate = rate_changed(a);
    if (mix || rate)
        widen(a);
    unsigned best = ace_best(a);
    if (best != a->in_use && a->plays) {
        a->in_use = best;
        a->switches++;
        a->vain = 0;
        a->usual_ps = 0;
    }
    a->rounds++;
    choose_challenger(a);
    round_begins(a);
}

/* Whose turn is it? 0: the preset in use; 1: the challenger. */
static unsigned side_of(const struct ace *a) {
    bool outer = a->stretch % 3 == 0;
    return a->challenger != ACE_NOBODY && outer == a->seconds;
}

/* Does the match cost more already than it may? */
static bool is_too_dear(const struct ace *a) {
    return has_played(a) &&
           less(slow_ns(a, 1) + a->player[a->challenger].kept_ns, slow_ns(a, 0) + a->player[a->in_use].kept_ns) / 2 >
               budget(a);
}

unsigned ace_turn(struct ace *a, const struct ace_sums *sums) {
    unsigned side = side_of(a);
    a->side_ns[side] += less(sums->slow_ns, a->seen.slow_ns);
    a->side_allocations[side] += less(sums->allocations, a->seen.allocations);
    for (unsigned c = 0; c < ACE_CLASSES_MAX; c++)
        a->round_misses[c] += sums->misses[c] - a->seen.misses[c];
    a->seen = *sums;
    a->stretch++;
    if (a->stretch == ACE_STRETCHES || is_too_dear(a))
        round_ends(a);
    return side_of(a) ? a->challenger : a->in_use;
}

void ace_rest(struct ace *a) {
    a->challenger = ACE_NOBODY;
    round_begins(a);
}

void ace_start(struct ace *a, unsigned players, const struct ace_rule *rules, unsigned in_use, uint64_t now_ns,
               uint64_t active) {
    memset(a, 0, sizeof *a);
    a->players = players;
    a->in_use = a->first = in_use;
    a->challenger = ACE_NOBODY;
    a->now_ns = a->began_ns = a->round_ns = now_ns;
    a->active = a->peak = active;
    for (unsigned i = 0; i < players; i++)
        a->player[i] =
            (struct ace_player){.rule = rules[i], .elo = ACE_ELO, .deviation = ACE_DEVIATION, .least_from_ns = now_ns};
}
