/* What the heap consists of, as text and JSON. Reads the tables that are there anyway; costs nothing until asked.
 *
 * The terms are additive: what is resident in the region's mappings (as the kernel tells, page by page) is split by what
 * the slab records say lies there. Any thread may ask; while others run, figures are recent ones. */
#ifndef HAK_STATS_H
#define HAK_STATS_H

#include "pool.h"

struct heap_report {
    int64_t live;              /* bytes of blocks that are out, rounding included */
    int64_t untouched_live;    /* of these, not resident; subtracted, so <= 0 */
    int64_t partly_used_slabs; /* resident and free in slabs in use */
    int64_t thread_caches;     /* resident in rings and heap lists */
    int64_t empty_slots;       /* resident in EMPTY slots */
    int64_t huge_rounding;     /* resident in UNUSED slots, which share a huge page with others */
    int64_t metadata;          /* tables */
    int64_t total;             /* the sum */
    uint64_t tiny_live[TINY_CLASSES], tiny_free[TINY_CLASSES]; /* bytes by class */
    struct superslab_totals pool;
    uint64_t counters[COUNTER_COUNT];
    unsigned heaps, heaps_in_use;
    struct residency {
        uint32_t bytes[SUPERSLAB_SLOTS]; /* of each slot of one SuperSlab */
        size_t superslab;                /* which; BITSET_NONE: not read yet */
        unsigned char pages[512];        /* as the kernel tells of some */
    } pages;
    char text[4096];
};
/* A report lies in memory of its own (scratch.h): it is too large for a stack. NULL: there is no memory, which is told on the
 * standard error. Each begin is followed by an end. */
struct heap_report *stats_begin(void);
void stats_end(struct heap_report *r);

void stats_print(int fd);
size_t stats_json(char *buffer, size_t bytes);
size_t stats_xml(struct heap_report *r); /* for malloc_info: into its text; the length */

/* Statistics at exit, if asked for: stats_init keeps a descriptor from the start, stats_at_exit writes. */
void stats_init(void);
void stats_at_exit(void);

#endif
