/* See presence.h. */
/* SPDX-License-Identifier: MIT */
#include "presence.h"
#include "base/options.h"
#include "base/os.h"
#include "region.h"

/* A purger that is left with one thread of the program ends after so long: a program that makes threads all the time has one
 * purger, and the one thread soon is alone in the process. */
#define LINGER_MS 200
#define PURGER_STAYS_MS 2 /* the same of one that was never wanted */

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
    if (option(OPT_STATS) || option(OPT_LEARN) || option(OPT_MESH) || option(OPT_PROFILE) || option(OPT_CRASH_LOG))
        os_process(); /* a sandbox may forbid the question later */
}

/* If there is none yet. Two threads may make it at once, without harm. */
static void make_fork_page(void) {
    if (!fork_wipes || load_relaxed(&hak_presence.page) != NULL)
        return;
    store_relaxed(&fork_memory.page.known, 1);
    store_release(&hak_presence.page, &fork_memory.page);
}

/* After each change of `clients`. Whoever stores `several` looks at `clients` once more, so the last one to store it is right. */
static void note_several(void) {
    bool several = load_seq(&hak_presence.clients) > 1;
    while (load_seq(&hak_presence.several) != several) {
        store_seq(&hak_presence.several, several);
        several = load_seq(&hak_presence.clients) > 1;
    }
}

/* In a new child: the other threads are not here. Whoever changes the number of clients has been here before, so it is the parent's
 * until `known` is 1; from then on others may add themselves. */
static void notice_fork(void) {
    struct fork_page *page = load_acquire(&hak_presence.page);
    if (page == NULL || load_acquire(&page->known) != 0) /* pairs with the swap, for `lost_threads` */
        return;
    store_relaxed(&hak_presence.lost_threads, true);
    int32_t parents = load_relaxed(&hak_presence.clients);
    if (rmw_swap(&page->known, 1) == 0) {
        rmw_add(&hak_presence.clients, 1 - parents);
        store_seq(&hak_presence.made, 0);
        store_seq(&hak_presence.ended, 0);
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

/* Pairs with presence_pause: it sees the number of clients, or its word has changed. */
static void call_running(struct fork_page *page) {
    uint32_t runs = PURGER_RUNS;
    if (load_seq(&page->purger) == PURGER_RUNS && rmw_cas(&page->purger, &runs, PURGER_CALLED))
        os_wake(&page->purger);
}

/* The last other thread has ended. Pairs with presence_await. */
static void end_waiting(struct fork_page *page) {
    uint32_t waits = PURGER_WAITS;
    if (load_seq(&page->purger) == PURGER_WAITS && rmw_cas(&page->purger, &waits, PURGER_CALLED))
        os_wake(&page->purger);
}

void presence_clients_changed(int by) {
    notice_fork();
    if (by > 0 && load_relaxed(&hak_presence.clients) >= 1)
        make_fork_page(); /* first: a fork must not copy the number without the page */
    int32_t before = rmw_add(&hak_presence.clients, by);
    note_several();
    if (before >= 1 && by > 0)
        make_fork_page(); /* another thread was born meanwhile */
    struct fork_page *page = load_acquire(&hak_presence.page);
    if (by > 0 || page == NULL)
        return;
    wake_parked(page);
    if (before + by <= 1 && load_seq(&hak_presence.ended) >= load_seq(&hak_presence.made))
        end_waiting(page);
    if (before + by <= (int32_t)PURGER_ALONE_CLIENTS)
        call_running(page);
}

unsigned presence_clients(void) {
    int32_t n = load_seq(&hak_presence.clients);
    return n > 1 ? (unsigned)n : 1;
}

void presence_thread_ends(void) { rmw_add(&hak_presence.ended, 1); }

void presence_settled(void) { rmw_add(&hak_presence.settlings, 1); }

void presence_gathered(void) {
    struct fork_page *page = load_acquire(&hak_presence.page);
    if (page == NULL || load_relaxed(&hak_presence.gathered))
        return;
    store_seq(&hak_presence.gathered, true); /* pairs with presence_park, as settlings do */
    wake_parked(page);
}

bool presence_find_purger(bool *may_start) {
    *may_start = false;
    notice_fork();
    struct fork_page *page = load_acquire(&hak_presence.page);
    if (page == NULL || option(OPT_PURGE) != PURGE_AUTO)
        return false;
    uint32_t state = load_relaxed(&page->purger);
    bool there = state > PURGER_WAITS; /* then it has a heap, too */
    if (!option(OPT_PURGER)) {
        if (there)
            wake_parked(page); /* it ends */
        return false;
    }
    if (presence_clients() < PURGER_ALONE_CLIENTS + there)
        return false;
    wake_parked(page);
    *may_start = !there;
    return there;
}

bool presence_has_purger(void) {
    const struct fork_page *page = load_acquire(&hak_presence.page);
    return page != NULL && load_relaxed(&page->purger) > PURGER_WAITS;
}

bool presence_minds_sleepers(void) { return presence_has_purger(); }

bool presence_thread_made(void) {
    notice_fork();
    rmw_add(&hak_presence.made, 1); /* first: pairs with presence_await */
    if (load_relaxed(&hak_presence.clients) < 1 || option(OPT_PURGE) != PURGE_AUTO || !option(OPT_PURGER))
        return false;
    make_fork_page();
    struct fork_page *page = load_acquire(&hak_presence.page);
    uint32_t none = PURGER_NONE;
    return page != NULL && load_seq(&page->purger) == PURGER_NONE && rmw_cas(&page->purger, &none, PURGER_MADE);
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
    return load_seq(&hak_presence.made) != 0;
}

/* ---- the purger's side ---- */

bool presence_claim_purger(void) {
    struct fork_page *page = load_acquire(&hak_presence.page);
    uint32_t none = PURGER_NONE;
    return page != NULL && presence_clients() >= PURGER_ALONE_CLIENTS && rmw_cas(&page->purger, &none, PURGER_RUNS);
}

void presence_release_purger(void) { store_release(&load_acquire(&hak_presence.page)->purger, PURGER_NONE); }

static bool is_alone(void) { return presence_clients() <= PURGER_ALONE_CLIENTS; }

bool presence_pause(unsigned ms) {
    struct fork_page *page = load_acquire(&hak_presence.page);
    if (!is_alone())
        os_wait(&page->purger, PURGER_RUNS, ms);
    store_seq(&page->purger, PURGER_RUNS); /* pairs with call_running, as the load of the count does */
    uint32_t since = is_alone() ? os_now_ms() : 0;
    while (is_alone() && option(OPT_PURGER) && os_age_ms(os_now_ms(), since) < LINGER_MS) {
        os_wait(&page->purger, PURGER_RUNS, LINGER_MS);
        store_seq(&page->purger, PURGER_RUNS); /* likewise */
    }
    return !is_alone();
}

void presence_park(void) {
    struct fork_page *page = load_acquire(&hak_presence.page);
    store_seq(&page->purger, PURGER_PARKED);
    while (load_seq(&hak_presence.settlings) == hak_presence.settlings_seen && !load_seq(&hak_presence.gathered) &&
           !is_alone() && load_relaxed(&page->purger) == PURGER_PARKED)
        os_wait(&page->purger, PURGER_PARKED, OS_WITHOUT_END);
    store_relaxed(&hak_presence.gathered, false);
    store_seq(&page->purger, PURGER_RUNS);
}

bool presence_has_news(void) { return load_relaxed(&hak_presence.settlings) != hak_presence.settlings_seen; }

bool presence_tick_is_idle(void) {
    uint32_t seen = hak_presence.settlings_seen;
    hak_presence.settlings_seen = load_relaxed(&hak_presence.settlings);
    return hak_presence.settlings_seen == seen;
}

/* Threads that come and go one at a time would each get a purger: it stays a moment after the last one, unless others come. */
bool presence_await(void) {
    struct fork_page *page = load_acquire(&hak_presence.page);
    uint32_t first = PURGER_MADE;
    if (rmw_cas(&page->purger, &first, PURGER_WAITS))
        os_wake(&page->purger);
    for (uint32_t state, made; (state = load_seq(&page->purger)) != PURGER_RUNS;) {
        if (state == PURGER_WAITS && end_wait_as_wanted(page))
            break;
        if (state == PURGER_WAITS) {
            os_wait(&page->purger, PURGER_WAITS, OS_WITHOUT_END);
            continue;
        }
        made = load_seq(&hak_presence.made);
        os_wait(&page->purger, PURGER_CALLED, PURGER_STAYS_MS);
        store_seq(&page->purger, PURGER_NONE); /* pairs with presence_thread_made, as the load of `made` does */
        uint32_t none = PURGER_NONE;
        bool stays = load_seq(&hak_presence.made) != made || presence_clients() > 1;
        if (!stays || !rmw_cas(&page->purger, &none, PURGER_WAITS))
            return false;
    }
    store_seq(&hak_presence.wanted, false);
    return true;
}
