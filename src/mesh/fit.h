/* Finds pages that fit into one, because their live blocks do not overlap (mesh.c).
 *
 *  1. A map has a bit for each grain of 16 bytes of a page, set if live blocks cover the grain.
 *  2. Pages that share memory already are one unit, because moving some of them away gives nothing back. Any other page
 *     is a unit.
 *  3. The fullest units go first, each into the first group where it fits.
 *
 * The caller owns the memory. No function here reads a page. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "mesh/meshed.h"

enum { GRAIN_BYTES = 16, PAGE_GRAINS = MESH_PAGE_BYTES / GRAIN_BYTES, PAGE_WORDS = PAGE_GRAINS / 64 };
enum {
    FIT_SLABS_MAX = 1024,
    FIT_UNITS_MAX = FIT_SLABS_MAX * MESH_PAGES,
    FIT_GROUPS_MAX = FIT_UNITS_MAX / 2,
    FIT_FILES = 8192
};
enum { FIT_LOOKS = 1024 };     /* at groups, for each unit: 8,192 find 1 % more */
enum { FIT_MEMBERS_MAX = 64 }; /* pages of a group: writers to them wait while they are copied */

struct fit_unit {
    uint64_t used[PAGE_WORDS]; /* bit i: it covers grain i; of a group's first unit: the group does */
    uint32_t file;             /* that the pages share; 0: a page of its own */
    uint16_t members;          /* pages; of a group's first unit: of the group */
    uint32_t member;           /* number of its first page, + 1 */
    uint32_t next;             /* unit of its group, + 1 */
    uint32_t smaller;          /* the next unit as full as this one, + 1 */
};

struct fit {
    unsigned units, groups;
    struct fit_unit unit[FIT_UNITS_MAX];
    uint32_t next_member[FIT_UNITS_MAX]; /* by page: slab * MESH_PAGES + page; + 1 */
    uint32_t of_file[FIT_FILES];         /* by file, modulo: its unit, + 1 */
    uint32_t as_full[PAGE_GRAINS + 1];   /* by grains covered: the first such unit, + 1 */
    uint32_t group[FIT_GROUPS_MAX];      /* its first unit */
};

/* Marks the grains of the page that live blocks cover. */
void fit_map_page(const struct slab *s, const uint64_t *live, unsigned page, uint64_t used[PAGE_WORDS]);
bool fit_is_none(const uint64_t used[PAGE_WORDS]);
void fit_begin(struct fit *f);
/* Adds a page of the pass's slab number `slab`. `file`: the file that the page shares with others; 0: none. */
void fit_add_page(struct fit *f, unsigned slab, unsigned page, uint32_t file, const uint64_t used[PAGE_WORDS]);
void fit_group(struct fit *f);
