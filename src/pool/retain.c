/* See retain.h. */
/* SPDX-License-Identifier: MIT */
#include "pool/retain.h"
#include "base/options.h"
#include "base/os.h"
#include "pool/limits.h"
#include "pool/retain_rules.h"
#include "process/hooks.h"
#include "process/presence.h"
#include "process/tunables.h"

#define SOON_MS 100 /* `large_blocks`: 0.39 s of CPU time if what comes back so soon is LAZY, 0.07 if it stays EMPTY */
#define SWING_SLOTS_FIRST 16 /* 1 MiB, or RETAIN_BYTES if that is less */
#define NEAR_TRIM_MS 1000    /* between two looks for free pages inside slabs near a limit */
/* So many RETAIN_BYTES of slabs may be noted: with 4 `phases` takes 203 million instructions, with 1 210. */
#define NOTED_FACTOR 4
/* With 1 instead of 16 times what was wanted back `day 1` takes 0.14 s of system time instead of 0.08, `day 8` 0.26
 * instead of 0.16. */
#define NOTES_PER_WANTED 16
/* Between two looks as the heap grows: two ticks of the coarse clock. What producers fill and consumers free in order
 * is soon free as a whole: with 0 `day 3` calls madvise 35,000 times instead of 2,000 and takes 0.63 s, not 0.50. */
#define LOOK_MS 5
#define LOOKS_FROM_SLOTS 1024 /* 64 MiB in use: the pages of a smaller heap would soon be wanted back */
#define SHRUNK_SHARE 8        /* a heap that goes up and down by less than an eighth does not grow */
#define PURGER_FROM_SLOTS 64  /* 4 MiB in use: then a program with threads has a purger */
#define FEW_HEAPS 8           /* each may hold 7 slots that it has not settled: 3.5 MiB together */
#define JUDGE_MS 1000         /* between two judgements of what nobody needs, and searches for what is old */

/* Written by any thread without a read-modify-write unless noted. Each field is a hint or an estimate that stands for
 * itself, so relaxed accesses are enough: a lost update or an old value moves a bound a little later. */
static struct retain_state {
    _Atomic size_t peak_slots;   /* most resident slots so far: LAZY ones must not lift the heap above that */
    _Atomic size_t wanted_slots; /* given back and taken anew within DECAY_MS, since LAZY memory last grew old */
    struct fast_swings {         /* LAZY memory was taken again so soon that it had better have stayed EMPTY */
        _Atomic size_t slots;    /* that may stay EMPTY besides; this has no maximum, bound_slots has one */
        _Atomic size_t soon;     /* LAZY ones taken again so soon in this round … */
        _Atomic size_t before;   /* … and in the one before */
        _Atomic size_t purged;   /* slots since this round began */
        _Atomic size_t least;    /* EMPTY slots since `slots` was last judged: nobody needs as many */
    } fast;
    _Atomic size_t notes; /* slabs that may stay noted besides: pages in such were wanted back */
    _Atomic uint32_t last_judged_ms, last_trim_ms, last_look_ms;
    _Atomic size_t growth_peak; /* most slots in use lately, for request_look */
    _Atomic size_t shrink_peak; /* most slots in use since caches were last emptied, for shrank */
} retain_state;

/* Is it so long since this was last due? Then it is due now. */
static bool is_due(_Atomic uint32_t *last_ms, uint32_t now, uint64_t every_ms) {
    bool due = os_age_ms(now, load_relaxed(last_ms)) >= every_ms;
    if (due)
        store_relaxed(last_ms, now);
    return due;
}

/* ---- the bound ---- */

static size_t min_slots(void) { return option(OPT_RETAIN_BYTES) / SLOT_BYTES; }

#define SLOTS_UNBOUNDED (SIZE_MAX / 2)

/* EMPTY slots that may stay resident. A program that is idle, or empties slots by moving blocks, is `lean`: then the
 * fixed part is enough. */
static size_t bound_slots(bool lean) {
    uint64_t purge = option(OPT_PURGE);
    if (purge == PURGE_NEVER)
        return SLOTS_UNBOUNDED;
    if (purge == PURGE_EAGER || limits_near())
        return 0;
    size_t active = account_active_slots(), given_back = account_inside_bytes() / SLOT_BYTES;
    size_t live = active - min_size(given_back, active);
    size_t bound = min_slots();
    if (!lean)
        bound += load_relaxed(&retain_state.fast.slots) + live * option(OPT_RETAIN_PERCENT) / 100;
    return min_size(bound, option(OPT_SS_CACHE_BYTES) / SLOT_BYTES);
}

size_t retain_bound_bytes(void) {
    size_t slots = bound_slots(false);
    return slots != SLOTS_UNBOUNDED ? slots * SLOT_BYTES : SIZE_MAX;
}

/* Has the program wanted back nearly as much as its heap ever had? Then it will again. */
static bool swings(void) {
    size_t peak = load_relaxed(&retain_state.peak_slots);
    return load_relaxed(&retain_state.wanted_slots) > peak - peak / SWING_SHARE;
}

bool retain_is_lazy(void) {
    uint64_t purge = option(OPT_PURGE);
    bool lazy = purge == PURGE_LAZY || (purge != PURGE_EAGER && swings());
    return lazy && !mode()->free_is_zero && !limits_set() && !limits_near() && !purge_lazy_was_refused();
}

/* Memory of this kind was taken anew. Was it wanted back? It was if some of this kind was given back lately. */
static bool note_taken(struct client *c, enum purged kind, size_t slots) {
    if (slots == 0 || !os_is_recent(load_relaxed(&hak_purge.purged_ms[kind]), option(OPT_DECAY_MS)))
        return false;
    count(&c->counters, COUNT_purge_regrets);
    store_relaxed(&retain_state.wanted_slots, load_relaxed(&retain_state.wanted_slots) + slots);
    return true;
}

bool retain_is_soon(uint32_t given_ms) { return os_age_ms(account_clock_ms(), given_ms) < SOON_MS; }

/* `lazy` and `unused` slots were taken again soon after they had become LAZY and UNUSED. A round ends when half as much
 * was purged as had been taken in it. At each end what may stay EMPTY doubles; LAZY slots that were taken again soon in
 * two rounds running may all stay. */
static void swing_fast(size_t lazy, size_t unused) {
    struct fast_swings *f = &retain_state.fast;
    size_t slots = load_relaxed(&f->slots), soon = load_relaxed(&f->soon), more = 0;
    if (lazy + unused == 0)
        return;
    if (load_relaxed(&f->purged) > soon / 2) {
        store_relaxed(&f->purged, 0);
        store_relaxed(&f->before, soon);
        soon = 0;
        more = max_size(slots, min_size(min_slots(), SWING_SLOTS_FIRST));
    }
    size_t before = load_relaxed(&f->before);
    more = max_size(more, min_size(soon + lazy, before) - min_size(soon, before));
    store_relaxed(&f->soon, soon + lazy);
    store_relaxed(&f->slots, slots + more);
}

/* LAZY slots do not come on top of the heap's peak. */
static void bound_lazy(struct client *c) {
    size_t resident = account_resident_slots(), lazy = account_lazy_slots();
    size_t peak = max_size(resident, load_relaxed(&retain_state.peak_slots));
    peak += peak / SLACK_SHARE;
    if (resident + lazy > peak)
        purge_lazy(c, min_size(resident + lazy - peak, lazy), 0);
}

/* Slots without memory were taken since the last settling. Nor does what stays EMPTY beside a purger and does not fit
 * come on top of the peak. */
static void judge_growth(struct client *c) {
    size_t fresh = c->since.unused_taken - c->since.lazy_taken, empty = account_empty_slots();
    size_t resident = account_resident_slots(), peak = load_relaxed(&retain_state.peak_slots);
    size_t grown = resident > peak ? resident - peak : 0;
    if (grown != 0)
        store_relaxed(&retain_state.peak_slots, resident);
    size_t stays = max_size(min_slots(), empty - min_size(empty, grown));
    if (grown != 0 && empty > stays && presence_has_purger() && option(OPT_PURGE) != PURGE_NEVER)
        purge_empty(c, max_size(stays, 1), false);
    size_t back = c->is_lane ? 0 : fresh - min_size(fresh, grown); /* a lane cannot use the free slots of others */
    note_taken(c, PURGED_SLOTS, back);
    swing_fast(c->since.soon_taken, retain_is_soon(load_relaxed(&hak_purge.purged_ms[PURGED_SLOTS])) ? back : 0);
    bound_lazy(c);
    c->since.unused_taken = 0;
    c->since.lazy_taken = 0;
    c->since.soon_taken = 0;
}

/* LAZY memory goes back, and what was wanted back will not be. */
void retain_rests(struct client *c) {
    if (hooks_learn_on())
        hooks_learn.rests();
    store_relaxed(&retain_state.wanted_slots, 0);
    store_relaxed(&retain_state.fast.slots, 0);
    store_relaxed(&retain_state.notes, 0);
    if (option(OPT_PURGE) != PURGE_LAZY)
        purge_lazy(c, SIZE_MAX, 0);
}

/* Gives back what is older than the options allow. LAZY memory that nobody wanted for so long was not wanted back. */
static void decay(struct client *c, uint32_t now) {
    purge_decay(c, now);
    uint64_t age_ms = option(option(OPT_PURGE) == PURGE_LAZY ? OPT_SS_CACHE_AGE_MS : OPT_DECAY_MS);
    if (purge_lazy(c, SIZE_MAX, age_ms) != 0)
        store_relaxed(&retain_state.wanted_slots, 0);
}

bool retain_may_note(size_t slabs) {
    size_t bound = bound_slots(false);
    return bound != 0 &&
           (bound == SLOTS_UNBOUNDED || slabs <= NOTED_FACTOR * min_slots() + load_relaxed(&retain_state.notes));
}

static void let_stay_noted(size_t slabs) {
    size_t notes = load_relaxed(&retain_state.notes) + slabs;
    store_relaxed(&retain_state.notes, min_size(notes, load_relaxed(&retain_state.peak_slots)));
}

void retain_trimmed_first(void) {
    size_t notes = load_relaxed(&retain_state.notes);
    store_relaxed(&retain_state.notes, notes - (notes != 0));
}

void retain_trimmed_early(void) { let_stay_noted(1); }

/* ---- settling ---- */

/* The heap grew, into `slots` of pages inside slabs or beyond what was in use lately: what slabs have free is to be
 * found before it grows much more. Growth into EMPTY slots counts too: it costs no memory itself, but free pages gather
 * inside partly used slabs meanwhile. */
static void request_look(struct client *c, size_t slots, uint32_t now) {
    size_t active = account_active_slots(), seen = load_relaxed(&retain_state.growth_peak);
    size_t peak = min_size(max_size(seen, active), active + active / SHRUNK_SHARE);
    if (peak != seen)
        store_relaxed(&retain_state.growth_peak, peak);
    if ((slots != 0 || active > seen) && active >= LOOKS_FROM_SLOTS && option(OPT_PURGE) >= PURGE_AUTO &&
        is_due(&retain_state.last_look_ms, now, LOOK_MS))
        c->due.chores |= CHORE_LOOK;
}

void retain_grew_inside(struct client *c, size_t bytes) {
    account_count_inside(-(ptrdiff_t)bytes);
    c->due.grown_bytes += (uint32_t)bytes;
    size_t slots = c->due.grown_bytes / SLOT_BYTES;
    if (slots == 0)
        return;
    c->due.grown_bytes %= SLOT_BYTES;
    rmw_add(&hak_purge.regrown_slots, (uint32_t)slots);
    if (note_taken(c, PURGED_PAGES, slots))
        let_stay_noted(NOTES_PER_WANTED * slots);
    if (presence_has_purger()) /* who is alone looks at frees, and would take from the slabs that it is filling */
        request_look(c, slots, os_now_ms());
}

/* Where no purger empties the caches of a thread that falls asleep: has the heap shrunk by a third since they were last
 * emptied? */
static bool shrank(void) {
    size_t active = account_active_slots(), peak = load_relaxed(&retain_state.shrink_peak);
    bool third = peak > active && peak - active >= max_size(peak / 3, tuned(TUNE_shrunk_slots));
    if (active > peak || third)
        store_relaxed(&retain_state.shrink_peak, active);
    return third;
}

/* EMPTY slots that stay when there are more than the bound: so that the next call waits for some. */
static size_t kept_slots(size_t bound) { return bound - bound / 4; }

static void purge_over(struct client *c, size_t keep) {
    size_t purged = purge_empty(c, keep, retain_is_lazy());
    store_relaxed(&retain_state.fast.purged, load_relaxed(&retain_state.fast.purged) + purged);
}

/* Once a second: purges EMPTY slots beyond the bound that nobody needed since then, and what is older than the options
 * allow. What swings need falls by the former, and a peak is forgotten by and by. */
static void judge_second(struct client *c, uint32_t now, size_t bound) {
    struct fast_swings *f = &retain_state.fast;
    size_t peak = load_relaxed(&retain_state.peak_slots), notes = load_relaxed(&retain_state.notes);
    store_relaxed(&retain_state.peak_slots, max_size(account_resident_slots(), peak - peak / FORGET_SHARE));
    store_relaxed(&retain_state.notes, notes - (notes + 7) / 8);
    size_t empty = account_empty_slots(), slots = load_relaxed(&f->slots), unwanted = load_relaxed(&f->least);
    store_relaxed(&f->slots, slots - min_size(slots, unwanted));
    store_relaxed(&f->least, empty);
    unwanted = min_size(unwanted, empty);
    if (unwanted > bound && !purge_was_refused())
        purge_over(c, empty - (unwanted - bound));
    bound_lazy(c);
    decay(c, now);
}

bool retain_has_some_size(void) { return account_active_slots() >= PURGER_FROM_SLOTS; }

static void want_purger(struct client *c) {
    if (!presence_want_purger())
        c->due.chores |= CHORE_PURGER;
}

void retain_gave_few(struct client *c) {
    bool may_start;
    if (likely(presence_heaps() <= FEW_HEAPS) ||
        load_relaxed(&hak_region_use.superslabs) <= PURGER_FROM_SLOTS / SUPERSLAB_SLOTS || presence_gathered())
        return;
    presence_find_purger(&may_start);
    if (may_start)
        want_purger(c);
}

void retain_settle(struct client *c) {
    uint32_t now = os_now_ms();
    if (unlikely(c->is_shared)) { /* has nothing to add, and may note nothing */
        if (account_empty_slots() > bound_slots(false))
            purge_over(c, kept_slots(bound_slots(false)));
        return;
    }
    size_t empty = account_settle(c);
    account_set_clock(now);
    c->start = 0;
    if (hooks_learn_on())
        hooks_learn.settled();
    if (empty < load_relaxed(&retain_state.fast.least))
        store_relaxed(&retain_state.fast.least, empty);
    request_look(c, 0, now);
    if (c->since.unused_taken != 0)
        judge_growth(c);
    if (!c->is_purger)
        presence_settled();
    limits_check(c);
    bool moved = c->since.emptied_by_moving;
    c->since.emptied_by_moving = false;
    size_t bound = bound_slots(moved);
    bool over = empty > bound && !purge_was_refused();
    /* A thread must start in malloc's slow path: glibc calls free with a lock held that pthread_create takes. */
    bool may_start, purger = presence_find_purger(&may_start);
    if (may_start && (over || retain_has_some_size()))
        want_purger(c);
    bool waits = purger && option(OPT_PURGE) != PURGE_EAGER && !moved && !limits_near();
    if (over && !waits)
        purge_over(c, kept_slots(bound));
    if (account_cached_superslabs() > purge_cache_max())
        purge_bound_cache(c, now, retain_is_lazy());
    if (unlikely((limits_near() || limits_set()) && account_lazy_slots() != 0))
        purge_lazy(c, SIZE_MAX, 0);
    if (!purger && shrank())
        c->due.chores |= CHORE_RINGS;
    if (is_due(&retain_state.last_judged_ms, now, JUDGE_MS))
        judge_second(c, now, purger ? bound : SLOTS_UNBOUNDED);
    uint64_t trim_ms = limits_near() ? min_size(option(OPT_DECAY_MS), NEAR_TRIM_MS) : option(OPT_DECAY_MS);
    bool trims = load_relaxed(&retain_state.last_trim_ms) != 0; /* not as the program begins */
    if (is_due(&retain_state.last_trim_ms, now, trim_ms) && trims)
        c->due.chores |= CHORE_TRIM;
}

void retain_hand_over(struct client *c) {
    retain_rests(c);
    retain_settle(c); /* there is no purger to leave anything to */
}

void retain_look(struct client *c) {
    if (!presence_has_purger() && os_age_ms(os_now_ms(), account_clock_ms()) >= option(OPT_DECAY_MS))
        retain_hand_over(c);
}

void retain_thread_ended(struct client *c) {
    if (presence_heaps() == 1 && !option(OPT_PURGER))
        retain_hand_over(c);
}

/* ---- the purger's side ---- */

bool retain_tick(struct client *c, bool lean, int64_t unsettled) {
    uint32_t now = os_now_ms();
    account_set_clock(now);
    size_t bound = bound_slots(lean);
    bool over = lean && account_empty_slots_with(unsettled) > bound && !purge_was_refused();
    if (over) /* purge_empty compares with what is settled */
        purge_over(c, account_not_negative((int64_t)kept_slots(bound) - unsettled));
    if (lean && option(OPT_PURGE) != PURGE_NEVER)
        purge_huge_rounding(c);
    decay(c, now);
    return over && !purge_was_refused();
}

unsigned retain_age_ms(int64_t unsettled, unsigned after_ms) {
    uint64_t purge = option(OPT_PURGE), empty_ms = option(OPT_DECAY_MS), age_ms = OS_WITHOUT_END;
    uint64_t lazy_ms = purge == PURGE_LAZY ? option(OPT_SS_CACHE_AGE_MS) : empty_ms;
    if (account_lazy_slots() != 0 && lazy_ms > after_ms)
        age_ms = lazy_ms;
    if (account_empty_slots_with(unsettled) != 0 && purge != PURGE_NEVER && empty_ms > after_ms)
        age_ms = min_size(age_ms, empty_ms);
    return (unsigned)min_size(age_ms, OS_WITHOUT_END);
}
