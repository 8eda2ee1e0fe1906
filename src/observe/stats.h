/* What the heap consists of, as text and JSON. Reads the tables that are there anyway; costs nothing until asked.
 *
 * The terms are additive, and none is negative: what is resident in the region's mappings (as the kernel tells, page by
 * page) is split by what the slab records say lies there. What the program holds and never touched is not resident, so
 * it is no term. Any thread may ask; while others run, figures are recent ones. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "base/text.h"
#include "heap/ledger.h"
#include "pool/pool.h"

// clang-format off
/* X(name, label, help): the terms of the sum, in bytes. The name is what the field of the figures and the JSON's key
 * are called; label and help are the text's. `./hak doc` copies the table for the command and the README. */
#define TERMS(X) \
X(live,              "live",               "blocks the program holds, rounding included") \
X(partly_used_slabs, "partly used slabs",  "free blocks beside live ones") \
X(thread_caches,     "thread caches",      "free blocks in threads' lists, rings and inboxes") \
X(empty_slots,       "EMPTY slots",        "free, kept for reuse") \
X(lazy,              "LAZY pages",         "free: the system takes them when it needs memory") \
X(huge_rounding,     "huge-page rounding", "UNUSED slots that share a huge page with others") \
X(metadata,          "metadata",           "slab records and tables")
// clang-format on

enum term {
#define TERM_ENUM(name, label, help) TERM_##name,
    TERMS(TERM_ENUM)
#undef TERM_ENUM
        TERM_COUNT
};

struct heap_figures {
    union {
        struct {
#define TERM_FIELD(name, label, help) int64_t name;
            TERMS(TERM_FIELD)
#undef TERM_FIELD
        };
        int64_t term[TERM_COUNT];
    };
    int64_t total;     /* the sum of the terms */
    int64_t untouched; /* in no term: what blocks that the program holds would add to `live` if they were touched */
    int64_t retained;  /* of those, the free ones: resident without being used */
    size_t empty_max;  /* bytes of EMPTY slots that may stay; SIZE_MAX: any number */
    uint64_t tiny_live[TINY_CLASSES], tiny_free[TINY_CLASSES]; /* bytes by class */
    struct stats_row {
        uint64_t blocks, misses, timed, ns; /* as in ledger.h; of tiny classes `blocks` are allocations */
        uint64_t hits;                      /* of rings: allocations besides misses */
        uint64_t held_bytes;                /* free blocks in threads' lists or rings */
    } ledger[TUNED_CLASSES];
    struct superslab_totals pool;
    uint64_t counters[COUNTER_COUNT];
    unsigned heaps, heaps_in_use;
    struct residency {
        bool asks;                       /* the kernel; see stats_begin */
        uint32_t bytes[SUPERSLAB_SLOTS]; /* of each slot of one SuperSlab */
        size_t superslab;                /* which; BITSET_NONE: not read yet */
        unsigned char pages[512];        /* as the kernel tells of some */
    } pages;
    char text[4096];
};
/* The figures lie in memory of their own (scratch.h): they are too large for a stack. NULL: there is no memory, as a
 * line on the standard error says. Each begin is followed by an end. `asks`: the kernel, which pages are resident, at
 * which a sandbox may end the program; else every page of a resident slot counts. */
struct heap_figures *stats_begin(bool asks);
void stats_end(struct heap_figures *f);

void stats_print(int fd, bool asks);
size_t stats_json(char *buffer, size_t bytes);
void stats_put_json(struct text *t);      /* "null" without memory for the figures */
size_t stats_xml(struct heap_figures *f); /* for malloc_info: into its text; the length */

/* Statistics as STATS and STATS_FILE want them: stats_init keeps a descriptor from the start; stats_write returns how
 * large the file is, 0 if there is none. */
void stats_init(void);
uint64_t stats_write(enum output_name name, uint64_t number);

struct hak_class_use;
/* As hak_class_uses. */
size_t stats_classes(struct hak_class_use *classes, size_t room);
