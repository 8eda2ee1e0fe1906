/* The hak_*site* functions of hakmem.h. No logic: arguments are checked here. */
/* SPDX-License-Identifier: MIT */
#include "arena/arena_alloc.h"
#include "arena/lane.h"
#include "hakmem.h"
#include "entry/start.h"

#include <errno.h>

START_LIBRARY_WANTED;

unsigned hak_site_new(const char *name, int policy) {
    if (name == NULL || (unsigned)policy >= POLICIES)
        return errno = EINVAL, 0;
    return site_make(name, (unsigned)policy);
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
    site_measure(site, stats);
    return 0;
}
