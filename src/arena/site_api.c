/* The hak_*site* functions of hakmem.h. A site is a number that the program gives to a place of its code. Each heap
 * counts what its threads allocate by site, with plain stores; a reader adds up the heaps. */
/* SPDX-License-Identifier: MIT */
#include "arena/arena_alloc.h"
#include "arena/lane.h"
#include "base/log.h"
#include "base/os.h"
#include "entry/start.h"
#include "hakmem.h"
#include "threads/thread.h"

#include <errno.h>
#include <string.h>

START_LIBRARY_WANTED;

enum { SITES_MAX = 1024, SITE_NAME_BYTES = 48 };

/* Any thread. A site is filled in by whoever took its number, and exists from `policy_plus_1` on. */
static HAK_APART struct site {
    _Atomic unsigned policy_plus_1; /* released when the name is there */
    char name[SITE_NAME_BYTES];
} sites[SITES_MAX];
static _Atomic unsigned sites_made; /* numbers given out, from 1 */

/* By site, in each heap. The heap's thread writes; any thread reads. */
struct site_count {
    _Atomic uint64_t blocks, bytes;
};

static bool site_exists(unsigned site) { return site < SITES_MAX && load_acquire(&sites[site].policy_plus_1) != 0; }
static unsigned site_policy(unsigned site) { return load_relaxed(&sites[site].policy_plus_1) - 1; }

static unsigned find(const char *name) {
    for (unsigned site = 1; site <= load_relaxed(&sites_made) && site < SITES_MAX; site++)
        if (site_exists(site) && strncmp(sites[site].name, name, SITE_NAME_BYTES - 1) == 0)
            return site;
    return 0;
}

unsigned hak_site_new(const char *name, int policy) {
    if (name == NULL || (unsigned)policy >= POLICIES)
        return errno = EINVAL, 0;
    unsigned site = find(name);
    if (site != 0)
        return site;
    do {
        site = load_relaxed(&sites_made);
        if (site + 1 >= SITES_MAX) {
            LOG_TABLE_FULL("sites", SITES_MAX);
            return errno = ENOMEM, 0;
        }
    } while (!rmw_cas(&sites_made, &site, site + 1));
    site++;
    memcpy(sites[site].name, name, min_size(strlen(name), SITE_NAME_BYTES - 1));
    store_release(&sites[site].policy_plus_1, (unsigned)policy + 1); /* pairs with site_exists */
    return site;
}

/* The counts of a heap, which stay with it when its thread ends. NULL: no memory. */
HAK_COLD static struct site_count *make_counts(struct heap *h) {
    size_t bytes = round_up(SITES_MAX * sizeof(struct site_count), os_page_bytes());
    struct site_count *counts = os_map(OS_MEMORY, NULL, bytes);
    store_release(&h->sites, counts); /* pairs with hak_site_get_stats */
    return counts;
}

/* Counts one block in the calling thread's heap. */
static void site_count(unsigned site, size_t bytes) {
    struct heap *h = thread_own();
    if (unlikely(h->number == HEAP_NONE))
        return;
    struct site_count *counts = load_relaxed(&h->sites);
    if (unlikely(counts == NULL) && (counts = make_counts(h)) == NULL)
        return;
    add_owned(&counts[site].blocks, 1);
    add_owned(&counts[site].bytes, bytes);
}

void *hak_alloc_site(size_t size, unsigned site, int policy) {
    bool known = likely(site_exists(site));
    if (unlikely((site != 0 && !known) || (unsigned)policy >= POLICIES))
        return errno = EINVAL, NULL;
    void *block = alloc_for_policy(size, policy == HAK_POLICY_DEFAULT && known ? site_policy(site) : (unsigned)policy);
    if (known && likely(block != NULL))
        site_count(site, size);
    return block;
}

int hak_site_get_stats(unsigned site, hak_site_stats *stats) {
    if (!site_exists(site))
        return EINVAL;
    *stats = (hak_site_stats){.name = sites[site].name, .policy = (int)site_policy(site)};
    for (struct heap *h = heap_newest(); h != NULL; h = h->next) {
        struct site_count *counts = load_acquire(&h->sites);
        stats->blocks += counts != NULL ? load_relaxed(&counts[site].blocks) : 0;
        stats->bytes += counts != NULL ? load_relaxed(&counts[site].bytes) : 0;
    }
    return 0;
}
