/* See lane.h. */
/* SPDX-License-Identifier: MIT */
#include "arena/lane.h"
#include "arena/arena.h"
#include "base/log.h"
#include "base/options.h"
#include "base/os.h"
#include "thread.h"

#include <errno.h>
#include <string.h>

/* ---- lanes ---- */

_Atomic uintptr_t lane_handles[LANES];
const char *const lane_names[LANES] = {"default", "short-lived", "long-lived", "hot", "cold", "dense", "with pointers"};

uintptr_t lane_make(unsigned lane) {
    bool exists = (lane >= HAK_POLICY_LONG_LIVED && lane <= HAK_POLICY_COLD) || lane == LANE_POINTERS;
    if (!exists || option(OPT_SECURE)) /* whose blocks lie at random places */
        return 0;
    int error = errno;
    uintptr_t none = 0, made = arena_make(&(hak_arena_options){.name = lane_names[lane]}, true);
    errno = error;
    if (made == 0 || rmw_cas(&lane_handles[lane], &none, made)) /* pairs with lane_handle */
        return made;
    arena_end(made, false, ""); /* another thread was faster */
    return none;
}

/* ---- sites ---- */

enum { SITE_NAME_BYTES = 48 };

/* Any thread. A site is filled in by whoever took its number, and exists from `policy_plus_1` on. */
static HAK_APART struct site {
    _Atomic unsigned policy_plus_1; /* released when the name is there */
    char name[SITE_NAME_BYTES];
} sites[SITES_MAX];
static _Atomic unsigned sites_made; /* numbers given out, from 1 */

bool site_exists(unsigned site) { return site < SITES_MAX && load_acquire(&sites[site].policy_plus_1) != 0; }
unsigned site_policy(unsigned site) { return load_relaxed(&sites[site].policy_plus_1) - 1; }

static unsigned find(const char *name) {
    for (unsigned site = 1; site <= load_relaxed(&sites_made) && site < SITES_MAX; site++)
        if (site_exists(site) && strncmp(sites[site].name, name, SITE_NAME_BYTES - 1) == 0)
            return site;
    return 0;
}

unsigned site_make(const char *name, unsigned policy) {
    unsigned site = find(name);
    if (site != 0)
        return site;
    do {
        site = load_relaxed(&sites_made);
        if (site + 1 >= SITES_MAX) {
            LOG_TABLE_FULL("sites", SITES_MAX);
            errno = ENOMEM;
            return 0;
        }
    } while (!rmw_cas(&sites_made, &site, site + 1));
    site++;
    memcpy(sites[site].name, name, min_size(strlen(name), SITE_NAME_BYTES - 1));
    store_release(&sites[site].policy_plus_1, policy + 1); /* pairs with site_exists */
    return site;
}

/* The counts of a heap, which stay with it when its thread ends. NULL: no memory. */
HAK_COLD static struct site_count *make_counts(struct heap *h) {
    size_t bytes = round_up(SITES_MAX * sizeof(struct site_count), os_page_bytes());
    struct site_count *counts = os_map(OS_MEMORY, NULL, bytes);
    store_release(&h->sites, counts); /* pairs with site_measure */
    return counts;
}

void site_count(unsigned site, size_t bytes) {
    struct heap *h = thread_own();
    if (unlikely(h->number == HEAP_NONE))
        return;
    struct site_count *counts = load_relaxed(&h->sites);
    if (unlikely(counts == NULL) && (counts = make_counts(h)) == NULL)
        return;
    store_relaxed(&counts[site].blocks, load_relaxed(&counts[site].blocks) + 1);
    store_relaxed(&counts[site].bytes, load_relaxed(&counts[site].bytes) + bytes);
}

void site_measure(unsigned site, hak_site_stats *stats) {
    *stats = (hak_site_stats){.name = sites[site].name, .policy = (int)site_policy(site)};
    for (struct heap *h = heap_newest(); h != NULL; h = h->next) {
        struct site_count *counts = load_acquire(&h->sites);
        stats->blocks += counts != NULL ? load_relaxed(&counts[site].blocks) : 0;
        stats->bytes += counts != NULL ? load_relaxed(&counts[site].bytes) : 0;
    }
}
