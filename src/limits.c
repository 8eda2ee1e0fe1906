/* See limits.h. */
/* SPDX-License-Identifier: MIT */
#include "limits.h"
#include "os.h"
#include "purge.h"
#include "scratch.h"

#include <errno.h>
#include <string.h>

#define REFRESH_FROM_SLOTS 1024 /* 64 MiB in use: no container is smaller that is meant to hold anything */
#define REFRESH_MS 10000
#define NO_NUMBER UINT64_MAX              /* no limit */
#define NO_LIMIT_FROM ((uint64_t)1 << 62) /* version 1 writes a number of this size for no limit */
#define PATH_BYTES 1024
#define CGROUPS_BYTES 4096 /* of /proc/self/cgroup: a dozen lines */
#define SUPERSLAB_TABLE_BYTES (sizeof(struct superslab_row) / 64 + SUPERSLAB_SLOTS * sizeof(struct slab))

const char *limits_root = "";

/* Each stands for itself, so relaxed accesses do. */
_Atomic bool limits_is_near;
static _Atomic bool over_soft; /* the callback was due for this crossing */
static _Atomic uint32_t due;   /* enum limit_due */
static _Atomic uint64_t cgroup_bytes = NO_NUMBER;
static _Atomic uint32_t refreshed_ms; /* when all of them were read; 0: never */
static _Atomic bool cgroup_sought;    /* at the start or later: CGROUP was on */

/* ---- what is counted ---- */

/* The tables and heaps, in slots. */
static size_t table_slots(void) {
    return load_relaxed(&hak_region_use.superslabs) * SUPERSLAB_TABLE_BYTES / SLOT_BYTES + pool_clients();
}

size_t limits_counted_bytes(void) { return (pool_resident_slots() + table_slots()) * SLOT_BYTES; }

static bool admit_within(size_t slots, uint64_t limit) {
    size_t tables = table_slots(), most = limit != 0 ? limit / SLOT_BYTES : INT64_MAX;
    return pool_add_resident(slots, most > tables ? most - tables : 0);
}

uint64_t limits_cgroup_bytes(void) { return option(OPT_CGROUP) ? load_relaxed(&cgroup_bytes) : NO_NUMBER; }

/* ---- SOFT_LIMIT and HARD_LIMIT ---- */

/* `fresh` bytes were just counted. limit != 0 */
static void judge_soft(struct pool_client *c, uint64_t limit, size_t fresh) {
    size_t counted = limits_counted_bytes();
    bool over = load_relaxed(&over_soft);
    if (over && counted - min_size(counted, fresh) <= limit - limit / 8) {
        store_relaxed(&over_soft, false);
        over = false;
    }
    if (over || counted <= limit)
        return;
    if (option(OPT_PURGE) != PURGE_NEVER)
        pool_purge(c, 0);
    if (limits_counted_bytes() > limit && !rmw_swap(&over_soft, true)) {
        count(&c->counters, COUNT_soft_limit_crossings);
        rmw_or(&due, LIMIT_CALLBACK);
        c->chores |= CHORE_LIMITS;
    }
}

bool limits_admit(struct pool_client *c, size_t slots) {
    uint64_t hard = option(OPT_HARD_LIMIT), soft = option(OPT_SOFT_LIMIT);
    if (unlikely(!admit_within(slots, hard))) {
        pool_purge(c, 0);
        if (!admit_within(slots, hard)) {
            count(&c->counters, COUNT_limit_refusals);
            return false;
        }
    }
    if (soft != 0)
        judge_soft(c, soft, slots * SLOT_BYTES);
    return true;
}

/* ---- nearness ---- */

static uint64_t nearest_limit(void) {
    uint64_t hard = option(OPT_HARD_LIMIT), soft = option(OPT_SOFT_LIMIT), least = limits_cgroup_bytes();
    if (hard != 0 && hard < least)
        least = hard;
    return soft != 0 && soft < least ? soft : least;
}

void limits_settled(struct pool_client *c) {
    uint64_t limit = nearest_limit();
    bool was = limits_near();
    if (unlikely(load_relaxed(&over_soft)) && option(OPT_SOFT_LIMIT) == 0)
        store_relaxed(&over_soft, false);
    if (unlikely(limit != NO_NUMBER || was)) {
        size_t counted = limits_counted_bytes();
        bool is = was ? counted >= limit - limit / 4 : counted > limit - limit / 8;
        if (is != was && rmw_swap(&limits_is_near, is) == was && is) {
            count(&c->counters, COUNT_limits_neared);
            if (option(OPT_PURGE) != PURGE_NEVER)
                rmw_or(&due, LIMIT_TRIM);
        }
    }
    if (unlikely(load_relaxed(&due) != 0))
        c->chores |= CHORE_LIMITS;
}

unsigned limits_take_due(unsigned keep) { return rmw_and(&due, keep) & ~keep; }

/* ---- the callback ---- */

/* Written by one thread at a time. Both words are of one setting if `settings` is even and the same before and after. */
static _Atomic uint32_t settings;
static _Atomic(void (*)(void *)) callback;
static _Atomic(void *) callback_argument;

void limits_set_callback(void (*call)(void *), void *argument) {
    uint32_t before = load_relaxed(&settings);
    store_seq(&settings, before + 1); /* pairs with limits_call_back, as all here */
    store_seq(&callback, call);
    store_seq(&callback_argument, argument);
    store_seq(&settings, before + 2);
}

void limits_call_back(void) {
    int saved = errno;
    uint32_t before = load_seq(&settings);
    void (*call)(void *) = load_seq(&callback);
    void *argument = load_seq(&callback_argument);
    if (before % 2 != 0 || load_seq(&settings) != before)
        rmw_or(&due, LIMIT_CALLBACK); /* being set: the next slow malloc calls */
    else if (call != NULL)
        call(argument);
    errno = saved;
}

/* ---- the kernel's files ---- */

struct path {
    char bytes[PATH_BYTES];
    size_t mount, own; /* length of the part that is the hierarchy, and with the cgroup */
};

/* Makes the path that of `file` in the directory that is its first `end` bytes. False: it is too long. */
static bool path_to(struct path *p, size_t end, const char *file, size_t length) {
    if (end + length >= sizeof p->bytes)
        return false;
    memcpy(p->bytes + end, file, length);
    p->bytes[end + length] = '\0';
    return true;
}

static bool path_from_root(struct path *p, const char *file) {
    size_t root = strlen(limits_root);
    p->mount = root + strlen(file);
    return path_to(p, 0, limits_root, root) && path_to(p, root, file, p->mount - root);
}

/* The number at the beginning of a text; NO_NUMBER if there is none ("max"). */
static uint64_t number_at(const char *text) {
    uint64_t n = 0;
    if (*text < '0' || *text > '9')
        return NO_NUMBER;
    for (; *text >= '0' && *text <= '9'; text++)
        if (__builtin_mul_overflow(n, 10, &n) || __builtin_add_overflow(n, (uint64_t)(*text - '0'), &n))
            return NO_NUMBER;
    return n;
}

/* What the file begins with; false without the file. */
static bool text_in(const struct path *p, char *text, size_t bytes) { return os_read_file(p->bytes, text, bytes) != 0; }

/* The number behind `key` in the file; NO_NUMBER without the file, too. */
static uint64_t number_in(const struct path *p, const char *key) {
    char text[128];
    const char *at = text_in(p, text, sizeof text) ? strstr(text, key) : NULL;
    return at != NULL ? number_at(at + strlen(key)) : NO_NUMBER;
}

/* ---- the cgroup ---- */

static const struct hierarchy {
    const char *mount;
    const char *key; /* what stands in /proc/self/cgroup before the path of this process's own */
    const char *files[2];
} unified = {"/sys/fs/cgroup", "0::", {"/memory.max", "/memory.high"}},
  version_1 = {"/sys/fs/cgroup/memory", ":memory:", {"/memory.limit_in_bytes", ""}};

/* What is read, in memory of its own (scratch.h). */
struct cgroups {
    struct path path;
    char list[CGROUPS_BYTES]; /* the kernel's, of this process's cgroups, one for each hierarchy */
};
_Static_assert(sizeof(struct cgroups) <= SCRATCH_BYTES, "it fits");

/* NULL: they are not known. Else a scratch, to be given back. */
static struct cgroups *cgroups_read(void) {
    struct cgroups *c = option(OPT_CGROUP) ? scratch_take() : NULL;
    if (c == NULL || (path_from_root(&c->path, "/proc/self/cgroup") && text_in(&c->path, c->list, sizeof c->list)))
        return c;
    scratch_give(c);
    return NULL;
}

/* Makes the path that of the process's own cgroup. False: it has none in this hierarchy. */
static bool find_cgroup(const struct hierarchy *h, struct cgroups *c) {
    const char *own = strstr(c->list, h->key);
    struct path *p = &c->path;
    if (own == NULL || *(own += strlen(h->key)) != '/' || !path_from_root(p, h->mount))
        return false;
    size_t length = strcspn(own, "\n");
    p->own = p->mount + (length > 1 ? length : 0); /* of the root, "/", nothing */
    return path_to(p, p->mount, own, length);
}

/* Where the path's parent ends. `end` > mount */
static size_t parent_end(const struct path *p, size_t end) {
    do
        end--;
    while (p->bytes[end] != '/');
    return end;
}

/* The least limit from the process's own cgroup up: in a container it may be an ancestor's that can be seen. */
static uint64_t least_limit(const struct hierarchy *h, struct cgroups *c) {
    struct path *p = &c->path;
    uint64_t least = NO_NUMBER;
    if (!find_cgroup(h, c))
        return least;
    for (size_t end = p->own;; end = parent_end(p, end)) {
        for (unsigned i = 0; i < 2; i++) {
            uint64_t limit = path_to(p, end, h->files[i], strlen(h->files[i])) ? number_in(p, "") : NO_NUMBER;
            least = limit < least ? limit : least;
        }
        if (end == p->mount)
            return least;
    }
}

/* The limit of the process's own cgroup, or of the nearest one above that can be seen. */
static uint64_t nearest_cgroup(const struct hierarchy *h, struct cgroups *c) {
    struct path *p = &c->path;
    char text[32];
    if (!find_cgroup(h, c))
        return NO_NUMBER;
    for (size_t end = p->own;; end = parent_end(p, end)) {
        if (path_to(p, end, h->files[0], strlen(h->files[0])) && text_in(p, text, sizeof text))
            return number_at(text);
        if (end == p->mount)
            return NO_NUMBER;
    }
}

static void set_cgroup_bytes(uint64_t limit) {
    store_relaxed(&cgroup_bytes, limit < NO_LIMIT_FROM ? limit : NO_NUMBER);
}

void limits_start(void) {
    store_relaxed(&cgroup_sought, option(OPT_CGROUP));
    struct cgroups *c = cgroups_read();
    if (c == NULL)
        return;
    set_cgroup_bytes(nearest_cgroup(strstr(c->list, version_1.key) != NULL ? &version_1 : &unified, c));
    scratch_give(c);
}

void limits_refresh(void) {
    store_relaxed(&refreshed_ms, (uint32_t)max_size(os_now_ms(), 1));
    struct cgroups *c = cgroups_read();
    uint64_t least = c != NULL ? least_limit(&unified, c) : NO_NUMBER;
    uint64_t other = c != NULL ? least_limit(&version_1, c) : NO_NUMBER;
    if (c != NULL)
        scratch_give(c);
    set_cgroup_bytes(other < least ? other : least);
}

void limits_option_set(void) {
    if (option(OPT_CGROUP) && !rmw_swap(&cgroup_sought, true))
        limits_refresh();
}

/* Of the cgroup, else of the machine. */
static bool is_scarce(void) {
    const char *file = "/memory.pressure", *key = "some avg10=";
    uint64_t percent = NO_NUMBER;
    struct cgroups *c = cgroups_read();
    if (c != NULL && find_cgroup(&unified, c) && path_to(&c->path, c->path.own, file, strlen(file)))
        percent = number_in(&c->path, key);
    if (c != NULL)
        scratch_give(c);
    struct path machine;
    if (percent == NO_NUMBER && path_from_root(&machine, "/proc/pressure/memory"))
        percent = number_in(&machine, key);
    return percent != NO_NUMBER && percent >= option(OPT_PRESSURE);
}

bool limits_look(void) {
    if (os_is_confined())
        return false;
    uint32_t last = load_relaxed(&refreshed_ms);
    if (pool_active_slots() >= REFRESH_FROM_SLOTS && option(OPT_CGROUP) &&
        (last == 0 || age_ms(os_now_ms(), last) >= REFRESH_MS))
        limits_refresh();
    return option(OPT_PRESSURE) != 0 && is_scarce();
}
