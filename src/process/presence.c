/* See presence.h. */
/* SPDX-License-Identifier: MIT */
#include "process/presence.h"
#include "base/options.h"
#include "base/os.h"

/* A purger that is left with one thread of the program ends after so long, and at once if that thread has no heap: a
 * program that makes threads all the time has one purger, and the one thread soon is alone in the process. One that is
 * not wanted ends sooner, the first at once. */
#define LINGER_MS 2000
#define STAYS_MS 2
/* A thread that needs the purger's place waits so long for its end, and then looks for the place if one ended so long
 * ago; not again for a second. A program that got the place has no purger for a minute. */
#define YIELD_MS_MAX 500
#define VAIN_MS 1000
#define TAKEN_MS 60000

struct presence hak_presence;

static HAK_APART union {
    struct fork_page page;
    char bytes[HAK_PAGE_MAX];
} fork_memory __attribute__((aligned(HAK_PAGE_MAX)));
static bool fork_wipes; /* constant after the start */

void presence_start(void) {
    fork_wipes = os_advise(OS_WIPE, &fork_memory, os_page_bytes());
    if (!fork_wipes)
        return;
    os_keep_process(&fork_memory.page.process);
    if (option(OPT_CRASH_LOG))
        os_process(); /* a sandbox may forbid the question later */
}

/* If there is none yet. Two threads may make it at once, without harm. */
static void make_fork_page(void) {
    if (!fork_wipes || load_relaxed(&hak_presence.page) != NULL)
        return;
    store_relaxed(&fork_memory.page.known, 1);
    store_release(&hak_presence.page, &fork_memory.page);
}

/* The program has the place for a minute; whoever asks after that makes it free. */
static bool place_is_free(struct fork_page *page) {
    uint32_t place = load_seq(&page->place);
    return place == PLACE_FREE || (place == PLACE_TAKEN && !os_is_recent(load_seq(&page->place_ms), TAKEN_MS) &&
                                   rmw_cas(&page->place, &place, PLACE_FREE));
}

/* Where another allocator serves there is none: what arenas free is purged by the threads that free it. A tool would
 * tell of the purger's stack as the program's. */
static bool may_have_purger(struct fork_page *page) {
    return option(OPT_PURGER) && option(OPT_SUPERSLAB) && place_is_free(page);
}

/* After each change of `heaps`. Whoever stores `several` looks at `heaps` once more, so the last one to store it is
 * right. */
static void note_several(void) {
    bool several = load_seq(&hak_presence.heaps) > 1;
    while (load_seq(&hak_presence.several) != several) {
        store_seq(&hak_presence.several, several);
        several = load_seq(&hak_presence.heaps) > 1;
    }
}

/* In a new child: the other threads are not here. Whoever changes the number of heaps has been here before, so it is
 * the parent's until `known` is 1; from then on others may add themselves. */
static void notice_fork(void) {
    struct fork_page *page = load_acquire(&hak_presence.page);
    if (page == NULL || load_acquire(&page->known) != 0) /* pairs with the swap, for `lost_threads` */
        return;
    store_relaxed(&hak_presence.lost_threads, true);
    int32_t parents = load_relaxed(&hak_presence.heaps);
    if (rmw_swap(&page->known, 1) == 0) {
        rmw_add(&hak_presence.heaps, (parents > 0) - parents);
        store_seq(&hak_presence.threads, 0);
        store_seq(&hak_presence.made, 0);
    }
    note_several();
}

bool presence_lost_threads(void) {
    notice_fork();
    return load_relaxed(&hak_presence.lost_threads);
}

/* Pairs with presence_park: it sees what was settled before, or it is parked and we see that. */
static void wake_parked(struct fork_page *page) {
    uint32_t parked = PURGER_PARKED;
    if (load_seq(&page->purger) == PURGER_PARKED && rmw_cas(&page->purger, &parked, PURGER_RUNS))
        os_wake(&page->purger);
}

/* Has the program more than one thread? Those count that its calls of pthread_create made, or those that have a
 * heap. */
static bool has_threads(const struct fork_page *page) {
    bool purger = load_seq(&page->purger) > PURGER_WAITS; /* then it has a heap, too */
    return load_seq(&hak_presence.threads) > 0 || load_seq(&hak_presence.heaps) > 1 + purger;
}

/* May there be a purger, and are there threads for it? */
static bool has_purpose(struct fork_page *page) { return may_have_purger(page) && has_threads(page); }

/* A thread has ended: wakes the purger, and calls it if there is none left. Pairs with presence_pause and
 * presence_await: the purger sees that there is none left, or its word has changed. */
static void tell_of_end(struct fork_page *page) {
    wake_parked(page);
    uint32_t state = load_seq(&page->purger);
    if ((state == PURGER_WAITS || state == PURGER_RUNS) && !has_threads(page) &&
        rmw_cas(&page->purger, &state, state == PURGER_WAITS ? PURGER_ENDS : PURGER_CALLED))
        os_wake(&page->purger);
}

void presence_heaps_changed(int by) {
    notice_fork();
    if (by > 0 && load_relaxed(&hak_presence.heaps) >= 1)
        make_fork_page(); /* first: a fork must not copy the number without the page */
    int32_t before = rmw_add(&hak_presence.heaps, by);
    note_several();
    if (before >= 1 && by > 0)
        make_fork_page(); /* another thread was born meanwhile */
    struct fork_page *page = load_acquire(&hak_presence.page);
    if (by < 0 && page != NULL)
        tell_of_end(page);
}

unsigned presence_heaps(void) {
    int32_t n = load_seq(&hak_presence.heaps);
    return n > 1 ? (unsigned)n : 1;
}

void presence_thread_ends(void) {
    notice_fork();
    struct fork_page *page = load_acquire(&hak_presence.page);
    if (page == NULL)
        return;
    if (rmw_add(&hak_presence.threads, -1) <= 0)
        rmw_add(&hak_presence.threads, 1); /* in a child: the thread that forked, which is its first one */
    tell_of_end(page);
}

bool presence_is_single(void) {
    return presence_heaps() == 1 && load_seq(&hak_presence.threads) <= 0 && !presence_lost_threads();
}

void presence_settled(void) { rmw_add(&hak_presence.settlings, 1); }

/* One that has waited and will end looks at heaps that rest, though at nothing else. */
static bool empties_rests(uint32_t state) { return state == PURGER_ENDS || state > PURGER_LEAVES; }

bool presence_gathered(void) {
    struct fork_page *page = load_acquire(&hak_presence.page);
    if (page == NULL)
        return false;
    if (!PROVEN(rest_gathered, load_seq(&hak_presence.gathered))) { /* pairs with presence_gathers_anew */
        store_seq(&hak_presence.gathered, true);                    /* pairs with presence_park, as settlings do */
        wake_parked(page);
    }
    return !PROVEN(rest_left, !empties_rests(load_seq(&page->purger))); /* pairs with presence_leave */
}

bool presence_find_purger(bool *may_start) {
    *may_start = false;
    notice_fork();
    struct fork_page *page = load_acquire(&hak_presence.page);
    if (page == NULL)
        return false;
    bool there = load_seq(&page->purger) > PURGER_LEAVES; /* pairs with presence_leave */
    *may_start = !there && has_purpose(page);
    wake_parked(page);
    return there && may_have_purger(page); /* else it ends */
}

bool presence_has_purger(void) {
    const struct fork_page *page = load_acquire(&hak_presence.page);
    return page != NULL && load_relaxed(&page->purger) > PURGER_LEAVES;
}

bool presence_empties_rests(void) {
    const struct fork_page *page = load_acquire(&hak_presence.page);
    return page != NULL && empties_rests(load_relaxed(&page->purger));
}

bool presence_thread_made(void) {
    notice_fork();
    make_fork_page(); /* first, as above */
    struct fork_page *page = load_acquire(&hak_presence.page);
    if (page == NULL)
        return false;
    rmw_add(&hak_presence.threads, 1);
    rmw_add(&hak_presence.made, 1); /* pairs with presence_await, as the number of threads does */
    uint32_t none = PURGER_NONE;
    return may_have_purger(page) && load_seq(&page->purger) == PURGER_NONE &&
           rmw_cas(&page->purger, &none, PURGER_MADE);
}

/* Wakes it again and again, as it may have looked just before. */
static void end_purger(struct fork_page *page) {
    uint32_t state, began = os_now_ms();
    while ((state = load_seq(&page->purger)) != PURGER_NONE && os_age_ms(os_now_ms(), began) < YIELD_MS_MAX) {
        os_wake(&page->purger);
        os_wait(&page->purger, state, 1);
    }
}

/* Not again and again where it does not help: the system refuses a thread for want of memory, too. */
bool presence_yield(void) {
    struct fork_page *page = load_acquire(&hak_presence.page);
    if (page == NULL)
        return false;
    bool there = load_seq(&page->purger) != PURGER_NONE;
    if ((!there && !os_is_recent(load_seq(&page->ended_ms), YIELD_MS_MAX)) ||
        os_is_recent(load_seq(&page->place_ms), VAIN_MS))
        return false;
    uint32_t free = PLACE_FREE;
    rmw_cas(&page->place, &free, PLACE_WANTED);
    end_purger(page);
    return true;
}

void presence_yielded(bool helped) {
    struct fork_page *page = load_acquire(&hak_presence.page);
    uint32_t wanted = PLACE_WANTED;
    store_seq(&page->place_ms, os_stamp_ms());
    if (helped)
        store_seq(&page->place, PLACE_TAKEN);
    else
        rmw_cas(&page->place, &wanted, PLACE_FREE); /* unless it helped another thread */
}

void presence_wait_for_start(void) {
    struct fork_page *page = load_acquire(&hak_presence.page);
    while (load_seq(&page->purger) == PURGER_MADE)
        os_wait(&page->purger, PURGER_MADE, OS_WITHOUT_END);
}

/* Only one of them succeeds: the thread that wants the purger, or the purger, which need not sleep. */
static bool end_wait_as_wanted(struct fork_page *page) {
    uint32_t waits = PURGER_WAITS;
    return load_seq(&hak_presence.wanted) && rmw_cas(&page->purger, &waits, PURGER_RUNS);
}

bool presence_want_purger(void) {
    struct fork_page *page = load_acquire(&hak_presence.page);
    store_seq(&hak_presence.wanted, true); /* pairs with presence_await: it sees this, or it waits and we see that */
    if (page != NULL && end_wait_as_wanted(page))
        os_wake(&page->purger);
    return page != NULL && load_seq(&page->purger) != PURGER_NONE;
}

/* ---- the purger's side ---- */

bool presence_claim_purger(void) {
    struct fork_page *page = load_acquire(&hak_presence.page);
    uint32_t none = PURGER_NONE;
    return page != NULL && has_purpose(page) && rmw_cas(&page->purger, &none, PURGER_RUNS);
}

void presence_release_purger(void) {
    struct fork_page *page = load_acquire(&hak_presence.page);
    store_release(&page->purger, PURGER_NONE);
    os_wake(&page->purger); /* who waits for a start may have met this one */
}

/* Sets *for_ms to how long the program has had one thread and made no other, as far as the purger has seen. */
static bool has_one_thread(const struct fork_page *page, uint32_t *for_ms) {
    uint32_t made = load_seq(&hak_presence.made), *since = &hak_presence.alone_since_ms;
    bool alone = !has_threads(page);
    if (!alone || made != hak_presence.made_seen)
        *since = 0;
    if (alone && *since == 0)
        *since = os_stamp_ms();
    hak_presence.made_seen = made;
    *for_ms = os_age_ms(os_now_ms(), *since);
    return alone;
}

bool presence_pause(unsigned ms) {
    struct fork_page *page = load_acquire(&hak_presence.page);
    uint32_t began = os_now_ms(), waited = 0, alone_ms;
    for (;; waited = os_age_ms(os_now_ms(), began)) {
        unsigned lingers = load_seq(&hak_presence.heaps) > 1 ? LINGER_MS : 0; /* else the process may end with it */
        bool alone = has_one_thread(page, &alone_ms);
        if (!may_have_purger(page) || (alone && alone_ms >= lingers))
            return false;
        if (waited >= ms)
            return true;
        os_wait(&page->purger, PURGER_RUNS, min_size(ms - waited, alone ? lingers - alone_ms : ms));
        store_seq(&page->purger, PURGER_RUNS); /* pairs with tell_of_end, as the look at the threads does */
    }
}

void presence_gathers_anew(void) { store_seq(&hak_presence.gathered, false); }

bool presence_has_news(void) { return load_seq(&hak_presence.settlings) != hak_presence.settlings_seen; }

bool presence_park(unsigned ms) {
    struct fork_page *page = load_acquire(&hak_presence.page);
    uint32_t began = os_now_ms(), waited = 0;
    store_seq(&page->purger, PURGER_PARKED);
    while (waited < ms && !presence_has_news() && !load_seq(&hak_presence.gathered) && has_purpose(page) &&
           load_relaxed(&page->purger) == PURGER_PARKED) {
        os_wait(&page->purger, PURGER_PARKED, ms - waited);
        waited = os_age_ms(os_now_ms(), began);
    }
    store_relaxed(&hak_presence.gathered, false);
    store_seq(&page->purger, PURGER_RUNS);
    return waited < ms;
}

bool presence_tick_is_idle(void) {
    uint32_t seen = hak_presence.settlings_seen;
    hak_presence.settlings_seen = load_relaxed(&hak_presence.settlings);
    return hak_presence.settlings_seen == seen;
}

void presence_leave(void) { store_seq(&load_acquire(&hak_presence.page)->purger, PURGER_LEAVES); }
void presence_rest(void) { store_seq(&load_acquire(&hak_presence.page)->purger, PURGER_WAITS); }

/* Programs whose threads come and go have one purger: each that ends stays twice as long as the one before. */
bool presence_await(void) {
    static _Atomic unsigned ended; /* relaxed is enough: who ends counts itself when the next may have begun */
    struct fork_page *page = load_acquire(&hak_presence.page);
    uint32_t state = PURGER_MADE;
    if (rmw_cas(&page->purger, &state, PURGER_WAITS))
        os_wake(&page->purger);
    while (load_seq(&page->purger) <= PURGER_WAITS && !end_wait_as_wanted(page)) {
        if (load_seq(&page->purger) == PURGER_WAITS && has_purpose(page)) {
            os_wait(&page->purger, PURGER_WAITS, OS_WITHOUT_END);
            continue;
        }
        uint32_t made = load_seq(&hak_presence.made), none = PURGER_NONE;
        state = PURGER_WAITS;
        if (!rmw_cas(&page->purger, &state, PURGER_ENDS) && state > PURGER_WAITS)
            break;
        unsigned stays_ms = (unsigned)min_size(STAYS_MS << min_size(load_relaxed(&ended), 7), LINGER_MS);
        bool yields = load_seq(&page->place) != PLACE_FREE;
        os_wait(&page->purger, PURGER_ENDS, yields ? 0 : stays_ms);
        store_seq(&page->ended_ms, os_stamp_ms());
        /* pairs with presence_thread_made, as these loads do; and with presence_gathered, as presence_leave does */
        store_seq(&page->purger, PURGER_NONE);
        bool stays = !yields && (load_seq(&hak_presence.made) != made || has_purpose(page));
        if (!stays || !rmw_cas(&page->purger, &none, PURGER_WAITS)) {
            rmw_add(&ended, 1);
            return false;
        }
    }
    store_seq(&hak_presence.wanted, false);
    hak_presence.alone_since_ms = 0;
    return true;
}
