/* See tuner.h. */
/* SPDX-License-Identifier: MIT */
#include "learn/tuner.h"
#include "account.h"
#include "base/os.h"
#include "hooks.h"
#include "learn/ace.h"

#define STRETCH_NS 10000000ull
#define LOOK_NS 200000ull /* a look costs as much as a miss or two */
#define MISS_NS_MAX 4000  /* more was a fault or a purge, which ACE prices itself, or an interrupt */
#define HOT_SHARE 16      /* of the misses: a class with more is hot */
/* What purging and touching a slot costs where that cannot be tried. */
#define FAULT_NS 8000
#define PURGE_NS 1600
#define TRIES 3 /* the least counts: another may have been interrupted */
/* 1 GiB for a second is worth 30 ms with GOAL=time, and each next goal ten times as much. */
#define SLOT_SECOND_NS (30000000 / (GIB / SLOT_BYTES))

_Static_assert((int)TUNED_CLASSES <= (int)ACE_CLASSES_MAX, "ACE has room for all classes");
_Static_assert((int)PRESET_COUNT <= (int)ACE_PLAYERS_MAX, "and for all presets");

/* Any thread's, by read-modify-writes; a sum read while others add is as good as one of a moment later. */
static HAK_APART struct {
    _Atomic uint64_t slow_ns, allocations;
    _Atomic uint32_t misses[TUNED_CLASSES];
    _Atomic uint64_t look_ns; /* when the next look is due */
} sums;

_Atomic uint32_t tuner_holder;
static _Atomic bool tries; /* the preset that is played is not the one in use: by the holder, for anybody */
/* The holder's. */
static HAK_APART struct ace ace;
static unsigned playing;            /* the preset that was applied last; PRESET_COUNT: it is not known */
static uint64_t fault_ns, purge_ns; /* of a slot on this machine */
static bool started;

struct tuner_seen hak_tuner;

static struct ace_prices prices(void) {
    static const uint64_t times[] = {1, 10, 100};
    return (struct ace_prices){SLOT_SECOND_NS * times[option(OPT_GOAL)], purge_ns, fault_ns};
}

static void time_one_slot(char *slot) {
    uint64_t began = os_now_ns();
    for (size_t at = 0; at < SLOT_BYTES; at += os_page_bytes())
        *(volatile char *)(slot + at) = 1;
    uint64_t touched = os_now_ns();
    os_advise(OS_PURGE, slot, SLOT_BYTES);
    fault_ns = min_size(fault_ns, touched - began);
    purge_ns = min_size(purge_ns, os_now_ns() - touched);
}

/* What these cost differs between machines by ten times. */
static void time_slots(void) {
    char *slot = os_map(OS_MEMORY, NULL, SLOT_BYTES);
    bool works = slot != NULL;
    fault_ns = works ? UINT64_MAX : FAULT_NS;
    purge_ns = works ? UINT64_MAX : PURGE_NS;
    for (unsigned i = 0; works && i < TRIES; i++)
        time_one_slot(slot);
    if (slot != NULL)
        os_unmap(slot, SLOT_BYTES);
}

static struct ace_rule rule_of(unsigned preset) {
    struct preset_keeps keeps = preset_keeps(preset);
    return (struct ace_rule){keeps.bytes / SLOT_BYTES, keeps.percent, keeps.ms * 1000000, true};
}

static void start_anew(uint64_t now_ns) {
    struct ace_rule rules[PRESET_COUNT];
    for (unsigned p = 0; p < PRESET_COUNT; p++)
        rules[p] = rule_of(p);
    time_slots();
    unsigned in_use = started ? ace_best(&ace) : (unsigned)option(OPT_PRESET);
    playing = started ? PRESET_COUNT : in_use; /* what the parent was trying is in effect, or in part */
    ace_start(&ace, PRESET_COUNT, rules, in_use, now_ns, account_active_slots());
    started = true;
}

static void play(unsigned preset) {
    uint64_t hot[TUNED_CLASSES / 64 + 1] = {0}, all = 0;
    for (unsigned c = 0; c < TUNED_CLASSES; c++)
        all += ace.seen.misses[c];
    for (unsigned c = 0; c < TUNED_CLASSES; c++)
        hot[c / 64] |= (uint64_t)(ace.seen.misses[c] > all / HOT_SHARE) << c % 64;
    preset_apply(preset, hot);
    playing = preset;
}

static void show(void) {
    struct tuner_seen *s = &hak_tuner;
    store_relaxed(&s->rounds, ace.rounds);
    store_relaxed(&s->in_use, ace.in_use);
    store_relaxed(&s->best, ace_best(&ace));
    store_relaxed(&s->switches, ace.switches);
    store_relaxed(&s->changes, ace.changes);
    store_relaxed(&s->ns, ace.now_ns - ace.began_ns);
    store_relaxed(&s->saved_ns, ace.saved_ns);
    store_relaxed(&s->spent_ns, ace.spent_ns);
    for (unsigned p = 0; p < PRESET_COUNT; p++) {
        store_relaxed(&s->elo[p], ace.player[p].elo);
        store_relaxed(&s->deviation[p], ace.player[p].deviation);
        store_relaxed(&s->matches[p], ace.player[p].matches);
        store_relaxed(&s->kept_us[p], (uint32_t)(ace.player[p].usual_ns * 1000 / (ace.usual_round_ns / 1000 + 1)));
    }
}

/* The preset in use is another. `adapted` is made from it. */
static void switched(unsigned was) {
    preset_adapt_from(ace.in_use);
    ace.player[PRESET_ADAPTED].rule = rule_of(PRESET_ADAPTED);
    if (option(OPT_STATS) != STATS_OFF)
        text_line("hakmem: preset %s instead of %s (ratings %u and %u)", preset_names[ace.in_use], preset_names[was],
                  (uint64_t)ace.player[ace.in_use].elo, (uint64_t)ace.player[was].elo);
}

static void turn(void) {
    static HAK_APART struct ace_sums now; /* the holder's, too large for a stack */
    now.slow_ns = load_relaxed(&sums.slow_ns);
    now.allocations = load_relaxed(&sums.allocations);
    for (unsigned c = 0; c < TUNED_CLASSES; c++)
        now.misses[c] = load_relaxed(&sums.misses[c]);
    unsigned was = ace.in_use;
    ace.plays = option(OPT_ACE) == ACE_ON;
    ace.price = prices();
    unsigned next = ace_turn(&ace, &now);
    if (!ace.plays)
        next = ace.in_use = (unsigned)option(OPT_PRESET);
    if (ace.in_use != was)
        switched(was);
    if (next != playing)
        play(next);
    store_relaxed(&tries, next != ace.in_use);
    show();
}

/* Returns false if another thread has the turn. *anew: ACE has not begun, or a parent left it half-done. */
static bool take_turn(bool *anew) {
    uint32_t process = os_process(), before = rmw_swap(&tuner_holder, process);
    *anew = before != 0 || !started;
    return before != process;
}

/* Unless PURGE=auto, no preset decides what is kept: ACE sees an empty heap. */
static void look(uint64_t now_ns) {
    bool anew;
    if (!take_turn(&anew))
        return;
    if (anew)
        start_anew(now_ns);
    ace_look(&ace, now_ns, option(OPT_PURGE) == PURGE_AUTO ? account_active_slots() : 0);
    store_relaxed(&sums.look_ns, now_ns + LOOK_NS);
    if (now_ns >= load_relaxed(&ledger_rated_ns)) {
        store_relaxed(&ledger_rated_ns, now_ns + STRETCH_NS);
        turn();
    }
    store_release(&tuner_holder, 0);
}

/* What brought blocks into lists was an allocation, and so was each miss. */
static uint64_t allocations_since(struct ledger_row *row) {
    uint32_t blocks = (uint32_t)load_relaxed(&row->blocks);
    int32_t more = (int32_t)(blocks - row->blocks_timed);
    row->blocks_timed = blocks;
    return more > LEDGER_TIMED ? (uint64_t)more : LEDGER_TIMED;
}

void hook_missed(struct ledger_row *rows, unsigned class_id, uint64_t began) {
    struct ledger_row *row = &rows[class_id];
    uint64_t now_ns = os_now_ns(), ns = now_ns - began;
    add_owned(&row->timed, 1);
    ledger_add(&row->ns, ns);
    rmw_add(&sums.slow_ns, LEDGER_TIMED * min_size(ns, MISS_NS_MAX));
    rmw_add(&sums.allocations, allocations_since(row));
    rmw_add(&sums.misses[class_id], 1);
    if (now_ns >= load_relaxed(&sums.look_ns))
        look(now_ns);
}

/* A turn may be due while the program only frees; or ACE was set to 0 while a preset was tried. */
void hook_settled(void) {
    if (!ledger_times())
        hook_rests();
    else if (os_now_ns() >= load_relaxed(&ledger_rated_ns))
        look(os_now_ns());
}

/* What is tried would be in effect all the time, so the preset in use is played. */
void hook_rests(void) {
    bool anew;
    if (!load_relaxed(&tries) || !take_turn(&anew))
        return;
    if (anew)
        start_anew(os_now_ns());
    ace_rest(&ace);
    play(ace.in_use);
    store_relaxed(&tries, false);
    store_release(&tuner_holder, 0);
}

/* ---- what others show ---- */

static unsigned preset_in_use(void) {
    return load_relaxed(&hak_tuner.rounds) != 0 ? load_relaxed(&hak_tuner.in_use) : (unsigned)option(OPT_PRESET);
}

static uint64_t per_mille(uint64_t ns, uint64_t of) { return of != 0 ? (ns * 1000 + of / 2) / of : 0; }

void tuner_put_text(struct text *t) {
    const struct tuner_seen *s = &hak_tuner;
    int64_t saved = load_relaxed(&s->saved_ns);
    if (load_relaxed(&s->rounds) == 0)
        return;
    text_format(t, "  preset %s", preset_names[preset_in_use()]);
    if (load_relaxed(&s->best) != load_relaxed(&s->in_use))
        text_format(t, ", %s would be better", preset_names[load_relaxed(&s->best)]);
    text_format(t, "; %u switches; %s %u ms in a second, trying others cost %u ms; ratings",
                (uint64_t)load_relaxed(&s->switches), saved < 0 ? "lost" : "saved",
                per_mille((uint64_t)(saved < 0 ? -saved : saved), load_relaxed(&s->ns)),
                per_mille(load_relaxed(&s->spent_ns), load_relaxed(&s->ns)));
    for (unsigned p = 0; p < PRESET_COUNT; p++)
        text_format(t, "%s %s %u", p == 0 ? "" : ",", preset_names[p], (uint64_t)load_relaxed(&s->elo[p]));
    text_string(t, "\n");
}

void tuner_put_json(struct text *t) {
    const struct tuner_seen *s = &hak_tuner;
    int64_t saved = load_relaxed(&s->saved_ns) / 1000000;
    text_format(t, "\"ace\":{\"preset\":\"%s\",\"best\":\"%s\",\"rounds\":%u,\"switches\":%u,\"changes\":%u,",
                preset_names[preset_in_use()],
                preset_names[load_relaxed(&s->rounds) != 0 ? load_relaxed(&s->best) : preset_in_use()],
                (uint64_t)load_relaxed(&s->rounds), (uint64_t)load_relaxed(&s->switches),
                (uint64_t)load_relaxed(&s->changes));
    text_format(t, "\"ms\":%u,\"saved_ms\":%s%u,\"spent_ms\":%u,\"presets\":[", load_relaxed(&s->ns) / 1000000,
                saved < 0 ? "-" : "", (uint64_t)(saved < 0 ? -saved : saved), load_relaxed(&s->spent_ns) / 1000000);
    for (unsigned p = 0; p < PRESET_COUNT; p++)
        text_format(t, "%s{\"name\":\"%s\",\"rating\":%u,\"deviation\":%u,\"matches\":%u,\"kept_us\":%u}",
                    p == 0 ? "" : ",", preset_names[p], (uint64_t)load_relaxed(&s->elo[p]),
                    (uint64_t)load_relaxed(&s->deviation[p]), (uint64_t)load_relaxed(&s->matches[p]),
                    (uint64_t)load_relaxed(&s->kept_us[p]));
    text_string(t, "]},");
}
