/* See cgroup.h. */
/* SPDX-License-Identifier: MIT */
#include "machine/cgroup.h"
#include "base/options.h"
#include "base/os.h"
#include "base/scratch.h"

#include <string.h>

#define PATH_BYTES 1024
#define CGROUPS_BYTES 4096 /* of /proc/self/cgroup: a dozen lines */

const char *cgroup_root = "";

/* ---- the kernel's text files ---- */

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
    size_t root = strlen(cgroup_root);
    p->mount = root + strlen(file);
    return path_to(p, 0, cgroup_root, root) && path_to(p, root, file, p->mount - root);
}

/* The number at the beginning of a text; CGROUP_NO_NUMBER if there is none ("max"). */
static uint64_t number_at(const char *text) {
    uint64_t n = 0;
    if (*text < '0' || *text > '9')
        return CGROUP_NO_NUMBER;
    for (; *text >= '0' && *text <= '9'; text++)
        if (__builtin_mul_overflow(n, 10, &n) || __builtin_add_overflow(n, (uint64_t)(*text - '0'), &n))
            return CGROUP_NO_NUMBER;
    return n;
}

/* What the file begins with; false without the file. */
static bool text_in(const struct path *p, char *text, size_t bytes) { return os_read_file(p->bytes, text, bytes) != 0; }

/* The number behind `key` in the file; CGROUP_NO_NUMBER without the file, too. */
static uint64_t number_in(const struct path *p, const char *key) {
    char text[128];
    const char *at = text_in(p, text, sizeof text) ? strstr(text, key) : NULL;
    return at != NULL ? number_at(at + strlen(key)) : CGROUP_NO_NUMBER;
}

/* ---- the cgroup ---- */

static const struct hierarchy {
    const char *mount;
    const char *key; /* what stands in a line of /proc/self/cgroup, from its begin or first colon on, before the path */
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

/* What stands behind the key in the list; NULL: no line has it. The names of cgroups may contain anything else. */
static const char *behind_key(const struct cgroups *c, const char *key) {
    for (const char *line = c->list; *line != '\0'; line += strcspn(line, "\n"), line += *line != '\0') {
        const char *at = key[0] == ':' ? line + strcspn(line, ":\n") : line;
        if (strncmp(at, key, strlen(key)) == 0)
            return at + strlen(key);
    }
    return NULL;
}

/* Makes the path that of the process's own cgroup. False: it has none in this hierarchy. */
static bool find_cgroup(const struct hierarchy *h, struct cgroups *c) {
    const char *own = behind_key(c, h->key);
    struct path *p = &c->path;
    if (own == NULL || *own != '/' || !path_from_root(p, h->mount))
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

/* The smallest limit from the process's own cgroup up: in a container it may be an ancestor's that can be seen. If
 * `nearest`, the first one that can be seen. */
static uint64_t min_limit(const struct hierarchy *h, struct cgroups *c, bool nearest) {
    struct path *p = &c->path;
    char text[32];
    uint64_t min = CGROUP_NO_NUMBER;
    if (!find_cgroup(h, c))
        return min;
    for (size_t end = p->own;; end = parent_end(p, end)) {
        for (unsigned i = 0; i < (nearest ? 1 : 2); i++) {
            if (!path_to(p, end, h->files[i], strlen(h->files[i])) || !text_in(p, text, sizeof text))
                continue;
            min = min_size(min, number_at(text));
            if (nearest)
                return min;
        }
        if (end == p->mount)
            return min;
    }
}

uint64_t cgroup_own_limit(void) {
    struct cgroups *c = cgroups_read();
    if (c == NULL)
        return CGROUP_NO_NUMBER;
    uint64_t limit = min_limit(behind_key(c, version_1.key) != NULL ? &version_1 : &unified, c, true);
    scratch_give(c);
    return limit;
}

uint64_t cgroup_min_limit(void) {
    struct cgroups *c = cgroups_read();
    if (c == NULL)
        return CGROUP_NO_NUMBER;
    uint64_t limit = min_limit(&unified, c, false), other = min_limit(&version_1, c, false);
    scratch_give(c);
    return min_size(limit, other);
}

uint64_t cgroup_pressure_percent(void) {
    const char *file = "/memory.pressure", *key = "some avg10=";
    uint64_t percent = CGROUP_NO_NUMBER;
    struct cgroups *c = cgroups_read();
    if (c != NULL && find_cgroup(&unified, c) && path_to(&c->path, c->path.own, file, strlen(file)))
        percent = number_in(&c->path, key);
    if (c != NULL)
        scratch_give(c);
    struct path machine;
    if (percent == CGROUP_NO_NUMBER && path_from_root(&machine, "/proc/pressure/memory"))
        percent = number_in(&machine, key);
    return percent;
}
