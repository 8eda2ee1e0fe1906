/* See page_cost.h. */
/* SPDX-License-Identifier: MIT */
#include "machine/page_cost.h"
#include "base/clear.h"
#include "base/os.h"

#define PAUSE_SHORT 8 /* SuperSlabs */
#define PAUSE_LONG 64 /* where each huge page is dear (4.5 ms), it costs a fourteenth of what the small ones cost */
#define PAUSE_MAX 512 /* 1 GiB: a hundredth */
#define WEIGHT 4      /* a new time counts for a quarter */

/* Hints without a read-modify-write: a lost update delays or repeats one trial. Relaxed accesses are enough, because no
 * other memory depends on these words. */
static struct page_cost {
    _Atomic uint64_t small_ns, huge_ns;
    _Atomic uint64_t won_ns;      /* by huge pages since the last pause, less what dear ones have lost */
    _Atomic uint32_t pause;       /* SuperSlabs in the pause that began last; 0: a huge page has paid since */
    _Atomic uint32_t left;        /* of them */
    _Atomic uint32_t cheap;       /* huge pages in a row */
    _Atomic uint32_t untimed;     /* huge pages since one was timed */
    _Atomic uint64_t timed, dear; /* read-modify-writes */
} page_cost;

bool page_cost_try_huge(void) {
    uint32_t left = load_relaxed(&page_cost.left);
    if (left != 0)
        store_relaxed(&page_cost.left, left - 1);
    return left == 0 && load_relaxed(&page_cost.small_ns) != 0;
}

static void add_to_mean(_Atomic uint64_t *mean, uint64_t ns) {
    uint64_t old = load_relaxed(mean);
    store_relaxed(mean, old != 0 ? (old * (WEIGHT - 1) + ns) / WEIGHT : ns);
}

void page_cost_note_small(uint64_t ns) { add_to_mean(&page_cost.small_ns, ns); }

/* A huge page was dear. Returns the length of the pause. */
static uint32_t pause_after_loss(uint64_t lost_ns) {
    uint64_t won_ns = load_relaxed(&page_cost.won_ns);
    bool affordable = won_ns != 0 && won_ns / 2 >= lost_ns;
    store_relaxed(&page_cost.won_ns, affordable ? won_ns / 2 - lost_ns : 0);
    if (affordable)
        return 0;
    if (won_ns != 0 && won_ns >= lost_ns)
        return PAUSE_SHORT;
    return (uint32_t)min_size(max_size(load_relaxed(&page_cost.pause) * 2, PAUSE_LONG), PAUSE_MAX);
}

void page_cost_note_huge(uint64_t ns, bool given) {
    uint64_t small_ns = load_relaxed(&page_cost.small_ns);
    bool dear = !given || ns > small_ns;
    uint32_t pause = dear ? pause_after_loss(given ? ns - small_ns : 0) : 0;
    if (!dear)
        store_relaxed(&page_cost.won_ns, load_relaxed(&page_cost.won_ns) + (small_ns - ns));
    if (given)
        add_to_mean(&page_cost.huge_ns, ns);
    store_relaxed(&page_cost.pause, pause);
    store_relaxed(&page_cost.left, pause);
    store_relaxed(&page_cost.cheap, dear ? 0 : load_relaxed(&page_cost.cheap) + load_relaxed(&page_cost.untimed) + 1);
    store_relaxed(&page_cost.untimed, 0);
    rmw_add(&page_cost.timed, 1);
    rmw_add(&page_cost.dear, dear ? 1 : 0);
}

bool page_cost_pays(bool if_unknown) {
    return load_relaxed(&page_cost.left) == 0 && (if_unknown || load_relaxed(&page_cost.timed) != 0);
}

size_t page_cost_trusted(size_t wanted) {
    uint32_t untimed = load_relaxed(&page_cost.untimed), cheap = load_relaxed(&page_cost.cheap);
    size_t trusted = min_size(wanted, cheap - min_size(untimed, cheap));
    store_relaxed(&page_cost.untimed, untimed + (uint32_t)trusted);
    return trusted;
}

struct page_cost_seen page_cost_seen(void) {
    return (struct page_cost_seen){load_relaxed(&page_cost.small_ns), load_relaxed(&page_cost.huge_ns),
                                   load_relaxed(&page_cost.timed), load_relaxed(&page_cost.dear)};
}

/* ---- what memory costs ---- */

#define TRIES 3 /* the least counts: another may have been interrupted */

/* Returns when it was done; *least is what that took, if it is less. */
static uint64_t lap(uint64_t *least, uint64_t since) {
    uint64_t now = os_now_ns();
    *least = min_size(*least, now - since);
    return now;
}

struct memory_cost page_cost_of(size_t bytes) {
    /* Where it cannot be tried: as in 64 KiB of the machine of docs/costs.md. */
    struct memory_cost cost = {.fault = bytes / 8, .purge = bytes / 40, .lazily = bytes / 40, .refault = bytes / 64};
    char *memory = os_map(OS_MEMORY, NULL, bytes);
    if (memory == NULL)
        return cost;
    cost = (struct memory_cost){UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX};
    for (unsigned i = 0; i < TRIES; i++) {
        uint64_t now = os_now_ns();
        touch_pages(memory, bytes);
        now = lap(&cost.fault, now);
        os_advise(OS_LAZY, memory, bytes);
        now = lap(&cost.lazily, now);
        touch_pages(memory, bytes);
        now = lap(&cost.refault, now);
        os_advise(OS_PURGE, memory, bytes);
        lap(&cost.purge, now);
    }
    os_unmap(memory, bytes);
    return cost;
}
