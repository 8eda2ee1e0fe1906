/* See fit.h. */
/* SPDX-License-Identifier: MIT */
#include "mesh/fit.h"

#include <string.h>

void fit_map_page(const struct slab *s, const uint64_t *live, unsigned page, uint64_t used[PAGE_WORDS]) {
    size_t bytes = size_classes[slab_class(s)].block_bytes, grains = bytes / GRAIN_BYTES;
    size_t begin = (size_t)page * MESH_PAGE_BYTES, end = begin + MESH_PAGE_BYTES;
    memset(used, 0, PAGE_WORDS * sizeof *used);
    for (size_t i = begin / bytes; i * bytes < end && i < MESHED_BLOCKS_MAX; i++) {
        if (!(live[i / 64] >> i % 64 & 1))
            continue;
        for (size_t grain = i * grains; grain < (i + 1) * grains; grain++)
            if (grain * GRAIN_BYTES >= begin && grain * GRAIN_BYTES < end)
                used[grain % PAGE_GRAINS / 64] |= (uint64_t)1 << grain % 64;
    }
}

static bool overlap(const uint64_t a[PAGE_WORDS], const uint64_t b[PAGE_WORDS]) {
    uint64_t both = 0;
    for (unsigned i = 0; i < PAGE_WORDS && both == 0; i++)
        both = a[i] & b[i];
    return both != 0;
}

bool fit_is_none(const uint64_t used[PAGE_WORDS]) {
    uint64_t any = 0;
    for (unsigned i = 0; i < PAGE_WORDS; i++)
        any |= used[i];
    return any == 0;
}

void fit_begin(struct fit *f) {
    f->units = f->groups = 0;
    memset(f->of_file, 0, sizeof f->of_file);
    memset(f->as_full, 0, sizeof f->as_full);
}

static void cover(struct fit_unit *u, const uint64_t used[PAGE_WORDS], unsigned members) {
    for (unsigned i = 0; i < PAGE_WORDS; i++)
        u->used[i] |= used[i];
    u->members = (uint16_t)(u->members + members);
}

/* The unit of the pages of a file. Numbers of files that fall on the same place leave one of them with units of a page
 * each. */
static struct fit_unit *unit_of_file(struct fit *f, uint32_t file, const uint64_t used[PAGE_WORDS]) {
    uint32_t *known = &f->of_file[file % FIT_FILES];
    struct fit_unit *u = *known != 0 ? &f->unit[*known - 1] : NULL;
    if (file != 0 && u != NULL && u->file == file && !overlap(u->used, used) && u->members < FIT_MEMBERS_MAX)
        return u;
    u = &f->unit[f->units++];
    memset(u, 0, sizeof *u);
    u->file = file;
    if (file != 0)
        *known = f->units;
    return u;
}

void fit_add_page(struct fit *f, unsigned slab, unsigned page, uint32_t file, const uint64_t used[PAGE_WORDS]) {
    struct fit_unit *u = unit_of_file(f, file, used);
    uint32_t member = slab * MESH_PAGES + page;
    f->next_member[member] = u->member;
    u->member = member + 1;
    cover(u, used, 1);
}

/* The first unit of the first group where the unit fits, of those that were begun last: the others are the fullest.
 * NULL: none. */
static struct fit_unit *find_group(struct fit *f, const struct fit_unit *u) {
    for (unsigned i = f->groups > FIT_LOOKS ? f->groups - FIT_LOOKS : 0; i < f->groups; i++) {
        struct fit_unit *first = &f->unit[f->group[i]];
        if (first->members + u->members <= FIT_MEMBERS_MAX && !overlap(first->used, u->used))
            return first;
    }
    return NULL;
}

static void group_unit(struct fit *f, struct fit_unit *u) {
    struct fit_unit *first = find_group(f, u);
    if (first != NULL) {
        u->next = first->next;
        first->next = (uint32_t)(u - f->unit) + 1;
        cover(first, u->used, u->members);
    } else if (f->groups < FIT_GROUPS_MAX) {
        f->group[f->groups++] = (uint32_t)(u - f->unit);
    }
}

void fit_group(struct fit *f) {
    for (unsigned i = f->units; i-- > 0;) {
        unsigned grains = 0;
        for (unsigned word = 0; word < PAGE_WORDS; word++)
            grains += count_bits(f->unit[i].used[word]);
        f->unit[i].smaller = f->as_full[grains];
        f->as_full[grains] = i + 1;
    }
    for (unsigned grains = PAGE_GRAINS + 1; grains-- > 0;)
        for (uint32_t i = f->as_full[grains]; i != 0; i = f->unit[i - 1].smaller)
            group_unit(f, &f->unit[i - 1]);
}
