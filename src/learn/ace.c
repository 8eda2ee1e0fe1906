/* See ace.h. */
/* SPDX-License-Identifier: MIT */
#include "learn/ace.h"
#include "base/logs.h"
#include "pool/retain_rules.h"

#include <string.h>

#define SECOND_NS 1000000000ull
#define LEAN_NS (LEAN_MS * 1000000ull)
#define REST_NS 1000000000ull      /* then what was kept for swings goes back: retain_rests */
#define SOON_NS 100000000ull       /* what is wanted back so soon had better have stayed */
#define DT_MAX_NS (60 * SECOND_NS) /* a program that slept is charged for a minute at most */
#define REST_SLOTS 16              /* the default RETAIN_BYTES */

#define USUAL_ROUNDS 16
#define ELO_OF_E 173.7177927613 /* 400 / ln 10 */
#define DEVIATION 350

static uint64_t min_u64(uint64_t a, uint64_t b) { return a < b ? a : b; }
static uint64_t max_u64(uint64_t a, uint64_t b) { return a > b ? a : b; }
static uint64_t less(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }
static double exp_minus(double x) { return 1 - chance_of(x); }

/* ---- what presets would have kept ---- */

static void pass(struct ace_policy *p, uint64_t ns) { p->kept += (double)(p->empty + p->lazy) * (double)ns; }

/* EMPTY slots leave until only `keep` are left. */
static void imagine_purge(struct ace_policy *p, uint64_t keep, uint64_t now_ns) {
    uint64_t slots = less(p->empty, keep);
    if (slots == 0)
        return;
    bool lazily = p->wanted > p->peak - p->peak / SWING_SHARE;
    p->empty -= slots;
    *(lazily ? &p->lazy : &p->purged) += slots;
    *(lazily ? &p->lazies : &p->purges) += slots;
    p->given_ns = now_ns;
    p->judged = false;
}

static void imagine_purge_lazy(struct ace_policy *p, uint64_t slots) {
    slots = min_u64(slots, p->lazy);
    p->lazy -= slots;
    p->purged += slots;
    p->purges += slots;
}

/* The program did nothing, and the purger sees to what it left. */
static void rest(struct ace_policy *p, uint64_t from_ns, uint64_t ns) {
    pass(p, min_u64(ns, LEAN_NS));
    if (ns > LEAN_NS && !p->rule.keeps_all)
        imagine_purge(p, p->rule.slots, from_ns + LEAN_NS);
    pass(p, less(min_u64(ns, REST_NS), LEAN_NS));
    if (ns > REST_NS) {
        p->wanted = p->fast = 0;
        imagine_purge_lazy(p, p->lazy);
        imagine_purge(p, min_u64(p->rule.slots, REST_SLOTS), from_ns + REST_NS);
    }
    pass(p, less(ns, REST_NS));
}

static void grow(struct ace_policy *p, uint64_t slots, uint64_t now_ns) {
    uint64_t empty = min_u64(slots, p->empty), lazy = min_u64(slots - empty, p->lazy);
    uint64_t back = min_u64(slots - empty - lazy, p->purged);
    p->empty -= empty;
    p->lazy -= lazy;
    p->purged -= back;
    p->refaults += lazy;
    p->faults += back;
    p->wanted += now_ns - p->given_ns <= p->rule.decay_ns ? back : 0;
    if (lazy + back != 0 && !p->judged && now_ns - p->given_ns < SOON_NS)
        p->fast += max_u64(p->fast, min_u64(p->rule.slots, REST_SLOTS));
    p->judged |= lazy + back != 0;
}

static void decay(struct ace_policy *p, uint64_t now_ns) {
    if (p->lazy != 0 && now_ns - p->given_ns >= p->rule.decay_ns) {
        imagine_purge_lazy(p, p->lazy);
        p->wanted = 0;
    }
    p->oldest = min_u64(p->oldest, p->empty);
    if (now_ns - p->oldest_ns < p->rule.decay_ns)
        return;
    imagine_purge(p, p->empty - p->oldest, now_ns);
    p->oldest = p->empty;
    p->oldest_ns = now_ns;
}

static void imagine(const struct ace *a, struct ace_policy *p, const struct ace_sight *sight, bool second) {
    uint64_t ns = min_u64(less(sight->now_ns, a->now_ns), DT_MAX_NS), active = sight->active;
    if (sight->has_purger)
        rest(p, a->now_ns, ns);
    else
        pass(p, ns);
    p->empty += less(a->active, active);
    grow(p, less(active, a->active), sight->now_ns);
    uint64_t resident = active + p->empty;
    p->peak = max_u64(p->peak, resident);
    imagine_purge_lazy(p, less(resident + p->lazy, p->peak + p->peak / SLACK_SHARE));
    uint64_t bound = p->rule.slots + p->fast + active * p->rule.percent / 100;
    p->least = min_u64(p->least, p->empty);
    if (!sight->has_purger && p->empty > bound)
        imagine_purge(p, bound - bound / 4, sight->now_ns);
    else if (sight->has_purger && second && p->least > bound)
        imagine_purge(p, p->empty - (p->least - bound), sight->now_ns);
    decay(p, sight->now_ns);
    if (second) {
        p->peak = max_u64(resident, p->peak - p->peak / FORGET_SHARE);
        p->fast = less(p->fast, p->least);
        p->least = p->empty;
    }
}

void ace_look(struct ace *a, const struct ace_sight *seen) {
    struct ace_sight sight = *seen;
    sight.now_ns = max_u64(seen->now_ns, a->now_ns); /* another thread may have read the clock later and looked first */
    bool second = sight.now_ns - a->second_ns >= SECOND_NS;
    double ns = (double)min_u64(sight.now_ns - a->now_ns, DT_MAX_NS);
    a->inside.kept += (double)sight.inside / SLOT_BYTES * ns;
    a->inside.active += (double)a->active * ns;
    for (unsigned i = 0; i < a->policies; i++)
        imagine(a, &a->policy[i], &sight, second);
    a->swings |= sight.inside != 0 || a->policy[0].purges + a->policy[0].lazies != 0;
    if (second) {
        a->second_ns = sight.now_ns;
        a->peak -= a->peak / FORGET_SHARE;
    }
    a->now_ns = sight.now_ns;
    a->active = sight.active;
    a->peak = max_u64(a->peak, a->active);
}

bool ace_is_due(const struct ace *a) {
    return a->swings && a->now_ns - a->round_ns >= (a->rounds == 0 ? ACE_FIRST_NS : ACE_ROUND_NS);
}

/* ---- ratings ---- */

static double rate_of(const struct ace *a) { return minus_log(1.0 / a->policies) / a->gap_max; }

int ace_elo(const struct ace *a, unsigned preset) {
    double mean = 0;
    for (unsigned i = 0; i < a->policies; i++)
        mean += a->policy[i].charge / a->policies;
    double above = (mean - a->policy[preset].charge) * rate_of(a) * ELO_OF_E;
    return ACE_ELO + (int)(above < -ACE_ELO_WIDE ? -ACE_ELO_WIDE : above > ACE_ELO_WIDE ? ACE_ELO_WIDE : above);
}

int ace_deviation(const struct ace *a) { return (int)(DEVIATION / root_of(1 + a->known)); }

static double weight_of(const struct ace *a, unsigned i) { return exp_minus(a->policy[i].charge * rate_of(a)); }

/* One of them, by weight. */
static unsigned draw(struct ace *a) {
    double all = 0;
    for (unsigned i = 0; i < a->policies; i++)
        all += weight_of(a, i);
    double left = random_unit(&a->dice) * all;
    unsigned i = 0;
    while (i < a->policies - 1 && (left -= weight_of(a, i)) > 0)
        i++;
    return i;
}

/* ---- rounds ---- */

static double cpu_of(const struct ace_policy *p, const struct ace_prices *price) {
    return (double)p->faults * price->fault + (double)p->purges * price->purge + (double)p->refaults * price->refault +
           (double)p->lazies * price->lazily;
}

/* What is given back inside slabs in this round, or would be. */
static struct ace_inside inside_of(struct ace *a, const struct ace_round *r) {
    struct ace_inside now = a->inside, *usual = &a->usual;
    now.cpu_ns = (double)r->trims * r->price.purge + (double)r->regrown_slots * r->price.fault;
    a->inside = (struct ace_inside){0, 0, 0};
    if (!r->keeps_all || usual->active == 0) {
        *usual = (struct ace_inside){usual->kept + now.kept, usual->active + now.active, usual->cpu_ns + now.cpu_ns};
        return now;
    }
    double share = now.active / usual->active;
    return (struct ace_inside){usual->kept * share, now.active, usual->cpu_ns * share};
}

/* What part of the round counts: while others had the processors nothing was kept for longer than the program needed.
 * But who ran for less than half of the time rested, and memory that a program at rest keeps is kept. */
static double own_share(const struct ace *a, uint64_t own_ns) {
    uint64_t ns = a->now_ns - a->round_ns;
    return own_ns < ns / 2 || own_ns >= ns ? 1 : (double)own_ns / (double)ns;
}

static void note_saving(struct ace_saving *s, double saved) {
    s->sum += saved;
    s->squares += saved * saved;
}

/* Charges all presets, by how much more than the best one each cost in this round. */
static void charge(struct ace *a, const struct ace_round *r, double *over) {
    double cpu[ACE_PRESETS_MAX], kept[ACE_PRESETS_MAX], least = 0, share = own_share(a, r->own_ns);
    double ns = (double)(a->now_ns - a->round_ns) + 1;
    struct ace_inside inside = inside_of(a, r);
    for (unsigned i = 0; i < a->policies; i++) {
        struct ace_policy *p = &a->policy[i];
        cpu[i] = cpu_of(p, &r->price) + (p->rule.keeps_all ? 0 : inside.cpu_ns);
        kept[i] = (p->kept + (p->rule.keeps_all ? inside.kept : 0)) * share / 1e9;
        over[i] = cpu[i] + kept[i] * r->price.slot_second;
        p->usual_ns += (over[i] * 1e9 / ns - p->usual_ns) / (a->rounds < USUAL_ROUNDS ? a->rounds + 1 : USUAL_ROUNDS);
        p->cpu_ns += cpu[i];
        p->kept_second += kept[i];
        p->all_ns += over[i];
        least = i == 0 || over[i] < least ? over[i] : least;
        p->wanted += p->rule.keeps_all ? 0 : r->regrown_slots;
        p->faults = p->purges = p->refaults = p->lazies = 0;
        p->kept = 0;
    }
    for (unsigned i = 0; i < a->policies; i++)
        over[i] -= least;
    note_saving(&a->cpu, cpu[a->first] - cpu[a->in_use]);
    note_saving(&a->kept, kept[a->first] - kept[a->in_use]);
}

/* What each would have cost is known now: the weights change, and so may the rate. Returns whether it did. */
static bool learn(struct ace *a, const double *over) {
    double rate = rate_of(a), all = 0, mix = 0, left = 0, least = 1e300;
    for (unsigned i = 0; i < a->policies; i++) {
        double weight = weight_of(a, i);
        all += weight;
        mix += weight * over[i];
        left += weight * exp_minus(over[i] * rate);
    }
    double gap = mix / all - minus_log(left / all > 1e-17 ? left / all : 1e-17) / rate;
    a->gap += gap > 0 && a->rounds != 0 ? gap : 0; /* nobody could know the first one */
    double before = a->gap_max;
    while (a->gap > a->gap_max)
        a->gap_max *= 2;
    for (unsigned i = 0; i < a->policies; i++) {
        a->policy[i].charge += over[i];
        least = a->policy[i].charge < least ? a->policy[i].charge : least;
    }
    for (unsigned i = 0; i < a->policies; i++)
        a->policy[i].charge -= least;
    a->known += mix > 0;
    return a->gap_max != before;
}

/* The program is another: what was learned counts for half. */
static void forget(struct ace *a) {
    bool changed = a->peak > a->usual_peak * 2 || a->peak < a->usual_peak / 2;
    if (!changed)
        return;
    a->changes += a->usual_peak != 0;
    a->usual_peak = a->peak;
    a->known /= 4;
    a->usual = (struct ace_inside){a->usual.kept / 2, a->usual.active / 2, a->usual.cpu_ns / 2};
    for (unsigned i = 0; i < a->policies; i++)
        a->policy[i].charge /= 2;
}

void ace_turn(struct ace *a, const struct ace_round *round) {
    double over[ACE_PRESETS_MAX];
    charge(a, round, over);
    bool stays = random_unit(&a->dice) <= exp_minus(over[a->in_use] * rate_of(a));
    forget(a);
    if (learn(a, over) || !stays) {
        unsigned drawn = draw(a);
        a->switches += drawn != a->in_use;
        a->in_use = drawn;
    }
    a->rounds++;
    a->round_ns = a->now_ns;
}

void ace_start(struct ace *a, unsigned policies, const struct ace_rule *rules, unsigned in_use,
               const struct ace_sight *sight) {
    memset(a, 0, sizeof *a);
    a->policies = policies;
    a->in_use = a->first = in_use;
    a->gap_max = ACE_FLOOR_NS;
    a->now_ns = a->began_ns = a->round_ns = a->second_ns = sight->now_ns;
    a->active = a->peak = sight->active;
    for (unsigned i = 0; i < policies; i++)
        a->policy[i] = (struct ace_policy){.rule = rules[i], .peak = sight->active, .oldest_ns = sight->now_ns};
}
