/* cache_server [VALUES] [BYTES] [OPS] [MOVE] [BOX_US] [SEED]: a cache that grows, evicts nine in ten values at random,
 * and then serves; one thread.
 *
 * VALUES values of BYTES bytes in an array. After the eviction OPS operations: seven in eight read a value, one
 * replaces it. With MOVE 1, after every 1,024 operations the cache moves values for BOX_US microseconds, in the order
 * of the array, where the allocator says that this pays: by hak_should_move, or by jemalloc's
 * experimental.utilization.query with the rule of Redis (a slab less full than the average of those that are not full).
 * With MOVE 2 it takes them from hak_defrag_next; each value begins with its index. At the end it gives free pages back
 * (malloc_trim). Without such an allocator MOVE does nothing.
 *
 * Resident bytes are those above the start, where the array is touched already; live bytes are BYTES a value. */
/* SPDX-License-Identifier: MIT */
#include "workload.h"

enum { VALUES, BYTES, OPS, MOVE, BOX_US, SEED };
enum { KEPT_SHARE = 10, OPS_A_BOX = 1024 };

static struct argument args[] = {{"VALUES", 2000000, KEPT_SHARE, 1u << 31},
                                 {"BYTES", 200, 8, 1 << 20},
                                 {"OPS", 2000000, 0, 0},
                                 {"MOVE", 1, 0, 2},
                                 {"BOX_US", 200, 1, 1000000},
                                 {"SEED", 42, 0, 0}};

/* ---- the allocators' hooks ---- */

#define WEAK __attribute__((weak))
struct hak_defrag {
    unsigned long long state[136];
};
WEAK int hak_should_move(const void *block);
WEAK void *hak_malloc_dense(size_t size);
WEAK void hak_free_dense(void *block);
WEAK void hak_defrag_begin(struct hak_defrag *cursor, unsigned long long ns);
WEAK void *hak_defrag_next(struct hak_defrag *cursor, size_t *bytes);
WEAK int hak_defrag_end(struct hak_defrag *cursor);
WEAK int mallctl(const char *name, void *old, size_t *old_bytes, void *new, size_t new_bytes);
WEAK void *mallocx(size_t bytes, int flags);
WEAK void dallocx(void *block, int flags);
WEAK int malloc_trim(size_t pad); /* glibc's and ours; musl has none */
enum { TCACHE_NONE = 1 << 8 };

/* What jemalloc's query returns for one block. */
struct utilization {
    void *current_slab;
    size_t free, blocks, bytes, free_in_bin, blocks_in_bin;
};

static bool jemalloc_should_move(void *block) {
    struct utilization u = {0};
    size_t bytes = sizeof u;
    if (mallctl("experimental.utilization.query", &u, &bytes, &block, sizeof block) != 0 || u.free == 0)
        return false;
    double full_share = (double)(u.blocks - u.free) / (double)u.blocks;
    return full_share < (double)(u.blocks_in_bin - u.free_in_bin) / (double)u.blocks_in_bin;
}

static bool should_move(void *block) {
    if (hak_should_move != NULL)
        return hak_should_move(block);
    return mallctl != NULL && mallocx != NULL && jemalloc_should_move(block);
}

static void *malloc_dense(size_t bytes) {
    return must(hak_malloc_dense != NULL ? hak_malloc_dense(bytes) : mallocx(bytes, TCACHE_NONE));
}

static void free_dense(void *block) {
    if (hak_free_dense != NULL)
        hak_free_dense(block);
    else
        dallocx(block, TCACHE_NONE);
}

/* ---- the cache ---- */

static uint32_t **value;
static uint32_t values, kept;
static size_t bytes;
static uint64_t moved, asked;

static uint32_t *value_new(uint32_t index) {
    uint32_t *block = must(malloc(bytes));
    memset(block, (int)index, bytes);
    *block = index;
    return block;
}

static void move(uint32_t index) {
    uint32_t *to = malloc_dense(bytes);
    memcpy(to, value[index], bytes);
    free_dense(value[index]);
    value[index] = to;
    moved++;
}

/* Random pairs change places until the values that stay come first. */
static void evict(uint64_t *random) {
    for (kept = values; kept > values / KEPT_SHARE; kept--) {
        uint32_t index = random_below(random, kept);
        free(value[index]);
        if (index != kept - 1) {
            value[index] = value[kept - 1];
            *value[index] = index;
        }
        value[kept - 1] = NULL;
    }
}

/* Returns how many values were moved in this box. */
static uint64_t box_of_questions(double end) {
    static uint32_t at;
    uint64_t before = moved;
    for (unsigned n = 1;; n++, asked++) {
        if (should_move(value[at]))
            move(at);
        at = at + 1 < kept ? at + 1 : 0;
        if (n % 16 == 0 && now_seconds() >= end)
            return moved - before;
    }
}

static uint64_t box_of_cursor(uint64_t box_ns) {
    static struct hak_defrag cursor;
    uint64_t before = moved;
    size_t size;
    hak_defrag_begin(&cursor, box_ns);
    for (uint32_t *block; (block = hak_defrag_next(&cursor, &size)) != NULL; asked++)
        if (*block < kept && value[*block] == block) /* not one of the program's other blocks */
            move(*block);
    hak_defrag_end(&cursor);
    return moved - before;
}

static void serve(uint64_t ops, uint64_t *random) {
    uint64_t mode = args[MOVE].value, box_us = args[BOX_US].value, boxes = 0;
    double longest = 0, all = 0;
    bool moves = mode == 2 ? hak_defrag_next != NULL : mode == 1 && (hak_should_move != NULL || mallctl != NULL);
    for (uint64_t op = 0; op < ops; op++) {
        uint32_t index = random_below(random, kept);
        if (*value[index] != index)
            fail(3, "a value was lost");
        if (op % 8 == 0) {
            free(value[index]);
            value[index] = value_new(index);
        }
        if (!moves || op % OPS_A_BOX != 0)
            continue;
        double start = now_seconds(), us = 1e-6 * (double)box_us;
        mode == 2 ? box_of_cursor(box_us * 1000) : box_of_questions(start + us);
        double took = now_seconds() - start;
        longest = took > longest ? took : longest, all += took, boxes++;
    }
    if (boxes != 0) {
        report_value("moved", moved);
        report_value("asked", asked);
        report_value("longest box us", (uint64_t)(1e6 * longest));
        report_value("all boxes us", (uint64_t)(1e6 * all));
    }
}

static void report_memory(const char *when, uint64_t start_bytes) {
    uint64_t resident = rss_bytes() - start_bytes, live = (uint64_t)kept * bytes;
    printf("%s %s: %.1f MiB resident, %.2f of live\n", program_invocation_short_name, when, (double)resident / 1048576,
           (double)resident / (double)live);
}

int main(int argc, char **argv) {
    ARGUMENTS_READ(argc, argv, args);
    values = kept = (uint32_t)args[VALUES].value;
    bytes = args[BYTES].value;
    uint64_t random = random_seed(args[SEED].value), ops = args[OPS].value;
    value = pages_map(values * sizeof *value);
    memset(value, 0, values * sizeof *value);
    uint64_t start_bytes = rss_bytes();
    for (uint32_t i = 0; i < values; i++)
        value[i] = value_new(i);
    report_memory("grown", start_bytes);
    evict(&random);
    report_memory("evicted", start_bytes);
    double start = now_seconds();
    serve(ops, &random);
    report_speed(ops, now_seconds() - start);
    report_memory("served", start_bytes);
    if (malloc_trim != NULL)
        malloc_trim(0);
    report_memory("trimmed", start_bytes);
    for (uint32_t i = 0; i < kept; i++)
        if (*value[i] != i)
            fail(3, "a value was lost");
}
