/* See tuner.h. */
/* SPDX-License-Identifier: MIT */
#include "learn/tuner.h"
#include "base/logs.h"
#include "base/os.h"
#include "learn/ace.h"
#include "machine/page_cost.h"
#include "pool/limits.h"
#include "process/hooks.h"
#include "process/presence.h"
#include "region/account.h"
#include "space/purge.h"

#define LOOK_NS 200000ull /* between two looks: what goes up and down meanwhile is not purged */
#define NEAR_FACTOR 16    /* what memory is worth near a limit */
/* 1 GiB for a second is worth 30 ms with GOAL=time. */
#define SLOT_SECOND_NS (30e6 * SLOT_BYTES / GIB)
#define MIB_MS (1000.0 * SLOT_BYTES / MIB) /* in a slot that is kept for a second */

_Static_assert((int)PRESET_COUNT <= (int)ACE_PRESETS_MAX, "ACE has room for all presets");

static _Atomic uint64_t look_ns; /* when the next look is due: a hint */
_Atomic uint32_t tuner_holder;
static _Atomic bool rests; /* since the heap last grew: written by the holder, read by anybody */
/* The holder's. */
static HAK_APART struct ace ace;
static struct memory_cost cost; /* of a slot */
static uint64_t cpu_ns;         /* as of the last round, as are these */
static uint32_t trims_seen, regrown_seen;
static unsigned applied; /* the preset; PRESET_COUNT: it is not known */
static bool started;

struct tuner_seen hak_tuner;

static struct ace_rule rule_of(unsigned preset) {
    uint64_t mode = preset_value(preset, WORD_PURGE);
    bool keeps = mode != PURGE_EAGER;
    return (struct ace_rule){mode <= PURGE_LAZY, keeps ? preset_value(preset, WORD_RETAIN_BYTES) / SLOT_BYTES : 0,
                             keeps ? preset_value(preset, WORD_RETAIN_PERCENT) : 0,
                             preset_value(preset, WORD_DECAY_MS) * 1000000};
}

static struct ace_sight sight_at(uint64_t now_ns) {
    return (struct ace_sight){now_ns, account_active_slots(), account_inside_bytes(), presence_has_purger()};
}

static void apply(unsigned preset) {
    if (preset != applied)
        preset_apply(preset);
    applied = preset;
}

static void start_anew(uint64_t now_ns) {
    struct ace_rule rules[PRESET_COUNT];
    struct ace_sight sight = sight_at(now_ns);
    for (unsigned p = 0; p < PRESET_COUNT; p++)
        rules[p] = rule_of(p);
    applied = started ? PRESET_COUNT : (unsigned)option(OPT_PRESET); /* what a parent was applying may be so in part */
    ace_start(&ace, PRESET_COUNT, rules, (unsigned)option(OPT_PRESET), &sight);
    started = true;
}

static struct ace_round end_round(void) {
    static const double times[] = {1, 5, 20};
    uint64_t cpu = os_cpu_ns();
    uint32_t trims = load_relaxed(&hak_purge.trims), regrown = load_relaxed(&hak_purge.regrown_slots);
    if (cost.fault == 0)
        cost = page_cost_of(SLOT_BYTES);
    double memory = SLOT_SECOND_NS * times[option(OPT_GOAL)] * (limits_near() ? NEAR_FACTOR : 1);
    struct ace_round round = {
        {memory, (double)cost.fault, (double)cost.purge, (double)cost.refault, (double)cost.lazily},
        ace.rounds != 0 ? cpu - cpu_ns : UINT64_MAX,
        trims - trims_seen,
        regrown - regrown_seen,
        applied < PRESET_COUNT && ace.policy[applied].rule.keeps_all};
    cpu_ns = cpu;
    trims_seen = trims;
    regrown_seen = regrown;
    return round;
}

static void show_saved(struct tuner_saved *s, double cpu, double kept) {
    store_relaxed(&s->cpu_ns, (int64_t)cpu);
    store_relaxed(&s->kept, (int64_t)(kept * MIB_MS));
}

/* Twice the standard deviation of a sum of that many differences. */
static double within(const struct ace_saving *s) {
    double variance = s->squares - s->sum * s->sum / ace.rounds;
    return variance > 0 ? 2 * root_of(variance) : 0;
}

/* With ACE=observe another may be drawn, but none is used. */
static unsigned chosen(void) { return option(OPT_ACE) == ACE_ON ? ace.in_use : ace.first; }

static void show(void) {
    struct tuner_seen *s = &hak_tuner;
    const struct ace_policy *best = &ace.policy[0], *first = &ace.policy[ace.first];
    for (unsigned p = 0; p < PRESET_COUNT; p++) {
        store_relaxed(&s->elo[p], ace_elo(&ace, p));
        store_relaxed(&s->cost_us[p], (uint32_t)(ace.policy[p].usual_ns / 1000));
        best = ace.policy[p].all_ns < best->all_ns ? &ace.policy[p] : best;
    }
    store_relaxed(&s->in_use, chosen());
    store_relaxed(&s->best, (uint32_t)(best - ace.policy));
    store_relaxed(&s->switches, ace.switches);
    store_relaxed(&s->changes, ace.changes);
    store_relaxed(&s->deviation, (uint32_t)ace_deviation(&ace));
    store_relaxed(&s->ns, ace.now_ns - ace.began_ns);
    show_saved(&s->saved, ace.cpu.sum, -ace.kept.sum);
    show_saved(&s->within, within(&ace.cpu), within(&ace.kept));
    show_saved(&s->possible, first->cpu_ns - best->cpu_ns, best->kept_second - first->kept_second);
    store_relaxed(&s->rounds, ace.rounds);
}

static void turn(void) {
    unsigned was = ace.in_use;
    struct ace_round round = end_round();
    for (unsigned p = 0; p < PRESET_COUNT; p++)
        ace.policy[p].rule = rule_of(p);
    ace_turn(&ace, &round);
    if (ace.in_use != was && option(OPT_ACE) == ACE_ON && option(OPT_STATS) != STATS_OFF)
        text_line("hakmem: preset %s instead of %s (ratings %u and %u)", preset_names[ace.in_use], preset_names[was],
                  (uint64_t)ace_elo(&ace, ace.in_use), (uint64_t)ace_elo(&ace, was));
    show();
}

/* Returns false if another thread has the turn. */
static bool take_turn(uint64_t now_ns) {
    uint32_t process = os_process(), before = rmw_swap(&tuner_holder, process);
    if (before == process)
        return false;
    if (before != 0 || !started) /* a parent left it half-done, or ACE has not begun */
        start_anew(now_ns);
    return true;
}

static void look_at_heap(void) {
    uint64_t now_ns = os_now_ns();
    if (now_ns < load_relaxed(&look_ns) || !take_turn(now_ns))
        return;
    store_relaxed(&look_ns, now_ns + LOOK_NS);
    struct ace_sight sight = sight_at(now_ns);
    if (sight.active > ace.active)
        store_relaxed(&rests, false);
    ace_look(&ace, &sight);
    if (ace_is_due(&ace))
        turn();
    apply(load_relaxed(&rests) || limits_near() ? ace.first : chosen());
    store_release(&tuner_holder, 0);
}

static void let_rest(void) {
    if (option(OPT_ACE) != ACE_ON || load_relaxed(&rests) || load_relaxed(&hak_tuner.rounds) == 0 ||
        !take_turn(os_now_ns()))
        return;
    apply(ace.first);
    store_relaxed(&rests, true);
    store_release(&tuner_holder, 0);
}

const struct learn_hooks hooks_learn = {.settled = look_at_heap, .rests = let_rest};

/* ---- what others show ---- */

static unsigned preset_in_use(void) {
    return load_relaxed(&hak_tuner.rounds) != 0 ? load_relaxed(&hak_tuner.in_use) : (unsigned)option(OPT_PRESET);
}

static void put_saved(struct text *t, const struct tuner_saved *s) {
    text_format(t, "%d ms of CPU time for %d MiB x s", load_relaxed(&s->cpu_ns) / 1000000,
                load_relaxed(&s->kept) / 1000);
}

void tuner_put_text(struct text *t) {
    const struct tuner_seen *s = &hak_tuner;
    if (load_relaxed(&s->rounds) == 0)
        return;
    text_format(t, "  preset %s; %u switches; %s ", preset_names[preset_in_use()], (uint64_t)load_relaxed(&s->switches),
                option(OPT_ACE) == ACE_OBSERVE ? "would have saved" : "saved");
    put_saved(t, &s->saved);
    text_string(t, " (within ");
    put_saved(t, &s->within);
    text_format(t, "), %s from the start ", preset_names[load_relaxed(&s->best)]);
    put_saved(t, &s->possible);
    text_format(t, "; ratings (within %u)", (uint64_t)load_relaxed(&s->deviation));
    for (unsigned p = 0; p < PRESET_COUNT; p++)
        text_format(t, "%s%d", p == 0 ? " " : ", ", (int64_t)load_relaxed(&s->elo[p]));
    text_string(t, "\n");
}

static void json_saved(struct text *t, const char *name, const struct tuner_saved *s) {
    text_format(t, "\"%s\":{\"cpu_ms\":%d,\"mib_ms\":%d},", name, load_relaxed(&s->cpu_ns) / 1000000,
                load_relaxed(&s->kept));
}

void tuner_put_json(struct text *t) {
    const struct tuner_seen *s = &hak_tuner;
    text_format(t, "\"ace\":{\"preset\":\"%s\",\"best\":\"%s\",\"rounds\":%u,\"switches\":%u,\"changes\":%u,\"ms\":%u,",
                preset_names[preset_in_use()],
                preset_names[load_relaxed(&s->rounds) != 0 ? load_relaxed(&s->best) : preset_in_use()],
                (uint64_t)load_relaxed(&s->rounds), (uint64_t)load_relaxed(&s->switches),
                (uint64_t)load_relaxed(&s->changes), load_relaxed(&s->ns) / 1000000);
    json_saved(t, "saved", &s->saved);
    json_saved(t, "within", &s->within);
    json_saved(t, "possible", &s->possible);
    text_format(t, "\"deviation\":%u,\"presets\":[", (uint64_t)load_relaxed(&s->deviation));
    for (unsigned p = 0; p < PRESET_COUNT; p++)
        text_format(t, "%s{\"name\":\"%s\",\"rating\":%d,\"cost_us\":%u}", p == 0 ? "" : ",", preset_names[p],
                    (int64_t)load_relaxed(&s->elo[p]), (uint64_t)load_relaxed(&s->cost_us[p]));
    text_string(t, "]},");
}
