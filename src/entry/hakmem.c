/* The hak_* functions of hakmem.h. No logic: arguments are checked here, the work is done in the modules below. */
/* SPDX-License-Identifier: MIT */
#include "alloc/alloc.h"
#include "base/options.h"
#include "entry/start.h"
#include "hakmem.h"
#include "heap/ring.h"
#include "move/defrag.h"
#include "observe/dump.h"
#include "observe/sampled.h"
#include "observe/stats.h"
#include "pool/limits.h"
#include "process/tunables.h"
#include "threads/chores.h"

#include <errno.h>

START_LIBRARY_WANTED;

void *hak_malloc(size_t size) { return alloc_malloc(size, alloc_slow); }
void *hak_calloc(size_t count, size_t size) { return alloc_calloc(count, size); }
void *hak_realloc(void *block, size_t size) { return alloc_realloc(block, size); }
void hak_free(void *block) { alloc_free(block, alloc_free_by_kind); }
void hak_free_sized(void *block, size_t size) {
    alloc_free_sized(region_frontier(), block, size, false, alloc_free_sized_else, alloc_free_sized_else);
}

void *hak_aligned_alloc(size_t alignment, size_t size) {
    if (!is_power_of_two(alignment))
        return errno = EINVAL, NULL;
    return alloc_aligned(alignment, size);
}

size_t hak_usable_size(const void *block) { return alloc_usable(block, "hak_usable_size"); }
size_t hak_good_size(size_t size) { return alloc_good_size(size); }
int hak_expand(void *block, size_t size) { return block != NULL && alloc_expand(block, size); }

void *hak_alloc_at_least(size_t size, size_t *usable) {
    void *block = alloc_malloc(size, alloc_slow);
    *usable = alloc_usable(block, "hak_alloc_at_least");
    return block;
}

size_t hak_trim(void) { return alloc_trim(); }
void hak_thread_rests(void) { chores_rest(); }
void hak_stats_print(int fd) { stats_print(fd, true); }
size_t hak_stats_json(char *buffer, size_t bytes) { return stats_json(buffer, bytes); }
size_t hak_option_get(const char *name, char *buffer, size_t bytes) {
    size_t length = tunable_get(name, buffer, bytes);
    return length != SIZE_MAX ? length : option_get(name, buffer, bytes);
}
int hak_option_set(const char *name, const char *value) {
    int answer = tunable_set(name, value);
    if (answer == ENOENT)
        answer = option_set(name, value);
    if (answer == 0) {
        rings_mark_stale();
        limits_option_set();
        start_catching();
    }
    return answer;
}
void hak_set_soft_limit_callback(void (*call)(void *), void *argument) { limits_set_callback(call, argument); }

int hak_profile_start(size_t mean_bytes) {
    if (!mode()->has_samples)
        return ENOTSUP;
    sampled_switch(mean_bytes != 0 ? mean_bytes : option(OPT_PROFILE_BYTES));
    return 0;
}

void hak_profile_stop(void) { sampled_switch(0); }
int hak_profile_dump(const char *path) { return mode()->has_samples ? dump_profile(path) : ENOTSUP; }

int hak_should_move(const void *block) { return defrag_should_move(block); }
void *hak_malloc_dense(size_t size) { return alloc_malloc_dense(size); }
void hak_free_dense(void *block) { alloc_free_dense(block); }

_Static_assert(sizeof(struct defrag_cursor) <= sizeof(struct hak_defrag), "the cursor fits");
static struct defrag_cursor *cursor_of(struct hak_defrag *d) { return (struct defrag_cursor *)(void *)d->state; }

void hak_defrag_begin(struct hak_defrag *cursor, unsigned long long ns) { defrag_begin(cursor_of(cursor), ns); }
void *hak_defrag_next(struct hak_defrag *cursor, size_t *bytes) { return defrag_next(cursor_of(cursor), bytes); }
int hak_defrag_end(struct hak_defrag *cursor) { return defrag_end(cursor_of(cursor)); }

size_t hak_class_uses(struct hak_class_use *classes, size_t room) { return stats_classes(classes, room); }

const char *hak_version(void) { return HAKMEM_VERSION; }
