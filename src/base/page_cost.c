/* See page_cost.h. */
/* SPDX-License-Identifier: MIT */
#include "base/page_cost.h"

#define PAUSE_MIN 8 /* SuperSlabs. Where each huge page is dear (4.5 ms), a heap that grows by 128 MiB makes 4 of 64 */
#define PAUSE_MAX 512 /* 1 GiB: one dear huge page then costs a hundredth of what the small ones cost */
#define WEIGHT 4      /* a new time counts for a quarter */

/* Hints without a read-modify-write: a lost update delays or repeats one trial. Relaxed accesses are enough, because no
 * other memory depends on these words. */
static struct page_cost {
    _Atomic uint64_t small_ns, huge_ns;
    _Atomic uint32_t pause;       /* SuperSlabs in the pause that began last; 0: huge pages pay */
    _Atomic uint32_t left;        /* of them */
    _Atomic uint64_t timed, dear; /* read-modify-writes */
} page_cost;

bool page_cost_try_huge(void) {
    uint32_t left = load_relaxed(&page_cost.left);
    if (left != 0)
        store_relaxed(&page_cost.left, left - 1);
    return left == 0 && load_relaxed(&page_cost.small_ns) != 0;
}

static uint64_t add_to_mean(_Atomic uint64_t *mean, uint64_t ns) {
    uint64_t old = load_relaxed(mean), now = old != 0 ? (old * (WEIGHT - 1) + ns) / WEIGHT : ns;
    store_relaxed(mean, now);
    return now;
}

void page_cost_note_small(uint64_t ns) { add_to_mean(&page_cost.small_ns, ns); }

void page_cost_note_huge(uint64_t ns, bool given) {
    uint64_t small_ns = load_relaxed(&page_cost.small_ns);
    uint32_t pause = load_relaxed(&page_cost.pause);
    bool pays = given && add_to_mean(&page_cost.huge_ns, ns) <= small_ns, dear = !given || ns > small_ns;
    if (pays)
        pause = pause / 2 >= PAUSE_MIN ? pause / 2 : 0;
    else if (dear || pause == 0)
        pause = pause != 0 ? (uint32_t)min_size((size_t)pause * 2, PAUSE_MAX) : PAUSE_MIN;
    store_relaxed(&page_cost.pause, pause);
    store_relaxed(&page_cost.left, pays ? 0 : pause);
    rmw_add(&page_cost.timed, 1);
    rmw_add(&page_cost.dear, dear ? 1 : 0);
}

bool page_cost_pays(void) { return load_relaxed(&page_cost.left) == 0; }

struct page_cost_seen page_cost_seen(void) {
    return (struct page_cost_seen){load_relaxed(&page_cost.small_ns), load_relaxed(&page_cost.huge_ns),
                                   load_relaxed(&page_cost.timed), load_relaxed(&page_cost.dear)};
}
