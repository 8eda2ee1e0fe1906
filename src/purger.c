/* See purger.h. */
#include "purger.h"
#include "os.h"
#include "purge.h"

#define TICK_MS 100
#define QUIET_TICKS 10

/* Its heap is an ordinary one: it frees nothing but what the C library gave the thread. */
static void *run(void *unused) {
    (void)unused;
    struct heap *h = heap_enter();
    unsigned quiet = 0;
    while (h != NULL && quiet < QUIET_TICKS) {
        bool idle;
        os_sleep_ms(TICK_MS);
        quiet = purge_tick(&h->pool, &idle) ? 0 : quiet + 1;
        if (idle && (quiet == QUIET_TICKS / 2 || quiet == QUIET_TICKS - 1)) /* what stayed free from one to the other */
            for (unsigned i = 0; i < TIERS; i++)
                count_add(&h->pool.counters, COUNT_trimmed_pages, tiers[i].trim(h, false));
    }
    purge_release_purger();
    return NULL;
}

void chores_do(struct heap *h) {
    uint8_t chores = h->pool.chores;
    h->pool.chores = 0;
    if (chores & CHORE_PURGER && purge_claim_purger() && !os_start_thread(run))
        purge_release_purger();
    if (chores & CHORE_TRIM)
        for (unsigned i = 0; i < TIERS; i++)
            count_add(&h->pool.counters, COUNT_trimmed_pages, tiers[i].trim(h, false));
}
