/* See limits.h. */
/* SPDX-License-Identifier: MIT */
#include "pool/limits.h"
#include "base/os.h"
#include "machine/cgroup.h"
#include "process/presence.h"
#include "space/purge.h"

#include <errno.h>

#define REFRESH_FROM_SLOTS 1024 /* 64 MiB in use: no container is smaller that is meant to hold anything */
#define REFRESH_MS 10000
#define NO_LIMIT_FROM ((uint64_t)1 << 62) /* version 1 writes a number of this size for no limit */
#define SUPERSLAB_TABLE_BYTES (sizeof(struct superslab_row) / 64 + SUPERSLAB_SLOTS * sizeof(struct slab))
#define NODE_TABLE_BYTES (os_page_bytes() / 64) /* for each SuperSlab on each further NUMA node, at most: their sets */

struct limits hak_limits = {.cgroup_bytes = CGROUP_NO_NUMBER};

/* ---- what is counted ---- */

/* What tables and heaps take, in slots, once there are `news` more SuperSlabs. */
static size_t table_slots(size_t news) {
    size_t bytes = SUPERSLAB_TABLE_BYTES;
    if (unlikely(hak_region.nodes > 1))
        bytes += (hak_region.nodes - 1) * NODE_TABLE_BYTES;
    return (load_relaxed(&hak_region_use.superslabs) + news) * bytes / SLOT_BYTES + presence_heaps();
}

size_t limits_counted_bytes(void) { return (account_resident_slots() + table_slots(0)) * SLOT_BYTES; }

static bool admit_within(size_t slots, size_t news, uint64_t limit) {
    size_t tables = table_slots(news), max = limit != 0 ? limit / SLOT_BYTES : INT64_MAX;
    return account_add_resident(slots, max > tables ? max - tables : 0);
}

uint64_t limits_cgroup_bytes(void) {
    return option(OPT_CGROUP) ? load_relaxed(&hak_limits.cgroup_bytes) : CGROUP_NO_NUMBER;
}

/* ---- SOFT_LIMIT and HARD_LIMIT ---- */

/* `fresh` bytes were just counted. limit != 0 */
static void judge_soft(struct client *c, uint64_t limit, size_t fresh) {
    size_t counted = limits_counted_bytes();
    bool over = load_relaxed(&hak_limits.over_soft);
    if (over && counted - min_size(counted, fresh) <= limit - limit / 8) {
        store_relaxed(&hak_limits.over_soft, false);
        over = false;
    }
    if (over || counted <= limit)
        return;
    if (option(OPT_PURGE) != PURGE_NEVER)
        purge_empty(c, 0, false);
    if (limits_counted_bytes() > limit && !rmw_swap(&hak_limits.over_soft, true)) {
        count(&c->counters, COUNT_soft_limit_crossings);
        rmw_or(&hak_limits.due, LIMIT_CALLBACK);
        c->due.chores |= CHORE_LIMITS;
    }
}

bool limits_admit(struct client *c, size_t slots, size_t news) {
    uint64_t hard = option(OPT_HARD_LIMIT), soft = option(OPT_SOFT_LIMIT);
    if (unlikely(!admit_within(slots, news, hard))) {
        purge_empty(c, 0, false);
        if (!admit_within(slots, news, hard)) {
            count(&c->counters, COUNT_limit_refusals);
            return false;
        }
    }
    if (soft != 0)
        judge_soft(c, soft, slots * SLOT_BYTES);
    return true;
}

/* ---- nearness ---- */

void limits_check(struct client *c) {
    uint64_t hard = option(OPT_HARD_LIMIT), soft = option(OPT_SOFT_LIMIT), limit = limits_cgroup_bytes();
    if (hard != 0)
        limit = min_size(limit, hard);
    if (soft != 0)
        limit = min_size(limit, soft);
    bool was = limits_near();
    if (unlikely(load_relaxed(&hak_limits.over_soft)) && soft == 0)
        store_relaxed(&hak_limits.over_soft, false);
    if (unlikely(limit != CGROUP_NO_NUMBER || was)) {
        size_t counted = limits_counted_bytes();
        bool is = was ? counted >= limit - limit / 4 : counted > limit - limit / 8;
        if (is != was && rmw_swap(&hak_limits.is_near, is) == was && is) {
            count(&c->counters, COUNT_limits_neared);
            if (option(OPT_PURGE) != PURGE_NEVER)
                rmw_or(&hak_limits.due, LIMIT_TRIM);
        }
    }
    if (unlikely(load_relaxed(&hak_limits.due) != 0))
        c->due.chores |= CHORE_LIMITS;
}

unsigned limits_take_due(unsigned keep) { return rmw_and(&hak_limits.due, keep) & ~keep; }

/* ---- the callback ---- */

void limits_set_callback(void (*call)(void *), void *argument) {
    /* Odd already in the child of a fork: the thread that was setting it is not there. */
    uint32_t setting = load_relaxed(&hak_limits.callback_settings) | 1;
    store_seq(&hak_limits.callback_settings, setting); /* pairs with limits_call_back, as all here */
    store_seq(&hak_limits.callback, call);
    store_seq(&hak_limits.callback_argument, argument);
    store_seq(&hak_limits.callback_settings, setting + 1);
}

void limits_call_back(void) {
    int saved = errno;
    uint32_t before = load_seq(&hak_limits.callback_settings);
    void (*call)(void *) = load_seq(&hak_limits.callback);
    void *argument = load_seq(&hak_limits.callback_argument);
    if (before % 2 != 0 || load_seq(&hak_limits.callback_settings) != before)
        rmw_or(&hak_limits.due, LIMIT_CALLBACK); /* being set: the next slow malloc calls */
    else if (call != NULL)
        call(argument);
    errno = saved;
}

/* ---- the cgroup ---- */

static void set_cgroup_bytes(uint64_t limit) {
    store_relaxed(&hak_limits.cgroup_bytes, limit < NO_LIMIT_FROM ? limit : CGROUP_NO_NUMBER);
}

void limits_start(void) {
    store_relaxed(&hak_limits.cgroup_sought, option(OPT_CGROUP));
    set_cgroup_bytes(cgroup_own_limit());
}

void limits_refresh(void) {
    store_relaxed(&hak_limits.refreshed_ms, os_stamp_ms());
    set_cgroup_bytes(cgroup_min_limit());
}

void limits_option_set(void) {
    if (option(OPT_CGROUP) && !rmw_swap(&hak_limits.cgroup_sought, true))
        limits_refresh();
}

bool limits_poll_pressure(void) {
    if (option(OPT_PRESSURE) == 0)
        return false;
    if (account_active_slots() >= REFRESH_FROM_SLOTS && option(OPT_CGROUP) &&
        !os_is_recent(load_relaxed(&hak_limits.refreshed_ms), REFRESH_MS))
        limits_refresh();
    uint64_t percent = cgroup_pressure_percent();
    return percent != CGROUP_NO_NUMBER && percent >= option(OPT_PRESSURE);
}
