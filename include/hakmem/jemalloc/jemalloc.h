/* The names of jemalloc that Redis (to 8.0) and Valkey (to 8.0) use, for a build of theirs against HAKMEM with active
 * defragmentation: -DUSE_JEMALLOC -I<prefix>/include/hakmem, linked with -lhakmem. See docs/compaction.md.
 *
 * je_mallctl knows what they ask for: epoch, stats.*, arenas.*, arena.<i>.purge, background_thread. All else is ENOENT.
 * Figures are as of the last epoch in the same source file. One thread at a time calls je_mallctl. */
/* SPDX-License-Identifier: MIT */
#ifndef HAKMEM_JEMALLOC_H
#define HAKMEM_JEMALLOC_H

#include <errno.h>
#include <hakmem.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define JEMALLOC_VERSION "5.2.0-0-hakmem"
#define JEMALLOC_VERSION_MAJOR 5
#define JEMALLOC_VERSION_MINOR 2
#define JEMALLOC_VERSION_BUGFIX                                                                                        \
    0 /* from 5.2.1 on Valkey asks for the layout of jemalloc's own bins instead of the hint */
#define JEMALLOC_FRAG_HINT
#define MALLOCX_TCACHE_NONE 0x100
#define MALLCTL_ARENAS_ALL 4096

#define HAK_UNUSED __attribute__((unused))

/* ---- blocks ---- */

HAK_UNUSED static inline void *je_malloc(size_t size) { return hak_malloc(size); }
HAK_UNUSED static inline void *je_calloc(size_t count, size_t size) { return hak_calloc(count, size); }
HAK_UNUSED static inline void *je_realloc(void *block, size_t size) { return hak_realloc(block, size); }
HAK_UNUSED static inline void je_free(void *block) { hak_free(block); }
HAK_UNUSED static inline size_t je_malloc_usable_size(void *block) { return hak_usable_size(block); }
HAK_UNUSED static inline size_t je_nallocx(size_t size, int flags) { return (void)flags, hak_good_size(size); }

HAK_UNUSED static inline void *je_mallocx(size_t size, int flags) {
    return flags & MALLOCX_TCACHE_NONE ? hak_malloc_dense(size) : hak_malloc(size);
}
HAK_UNUSED static inline void *je_rallocx(void *block, size_t size, int flags) {
    return (void)flags, hak_realloc(block, size);
}
HAK_UNUSED static inline void je_dallocx(void *block, int flags) {
    flags &MALLOCX_TCACHE_NONE ? hak_free_dense(block) : hak_free(block);
}
HAK_UNUSED static inline void je_sdallocx(void *block, size_t size, int flags) { (void)size, je_dallocx(block, flags); }

/* Redis declares this itself. */
HAK_UNUSED static inline int je_get_defrag_hint(void *block) { return hak_should_move(block); }

HAK_UNUSED static inline void je_malloc_stats_print(void (*write)(void *, const char *), void *argument,
                                                    const char *options) {
    size_t bytes = hak_stats_json(NULL, 0) + 4096;
    char *text = (char *)hak_malloc(bytes);
    (void)options;
    if (text == NULL)
        return;
    hak_stats_json(text, bytes);
    write(argument, text);
    hak_free(text);
}

/* ---- figures: the last class has all blocks above 64 KiB, which are no bin ---- */

#define HAK_CLASSES_MAX 128u
static struct hak_class_use hak_je_classes[HAK_CLASSES_MAX];

HAK_UNUSED static unsigned hak_je_bins(void) {
    size_t classes = hak_class_uses(NULL, 0);
    return (unsigned)(classes < HAK_CLASSES_MAX ? classes : HAK_CLASSES_MAX) - 1;
}

HAK_UNUSED static void hak_je_refresh(void) { hak_class_uses(hak_je_classes, HAK_CLASSES_MAX); }

/* Stores a value, if the caller has room for just that; as jemalloc's EINVAL otherwise. */
HAK_UNUSED static int hak_je_answer(void *to, size_t *to_bytes, uint64_t value, size_t bytes) {
    uint32_t narrow = (uint32_t)value;
    if (to == NULL)
        return 0;
    if (to_bytes == NULL || *to_bytes != bytes)
        return EINVAL;
    memcpy(to, bytes == sizeof narrow ? (const void *)&narrow : &value, bytes);
    return 0;
}

/* Live bytes of one class, or of all classes if `bin` is past the last one. */
HAK_UNUSED static size_t hak_je_live(unsigned bin) {
    size_t bytes = 0;
    for (unsigned i = 0; i <= hak_je_bins(); i++)
        bytes += bin > hak_je_bins() || bin == i ? hak_je_classes[i].live_bytes : 0;
    return bytes;
}
HAK_UNUSED static size_t hak_je_held(void) {
    size_t bytes = 0;
    for (unsigned i = 0; i <= hak_je_bins(); i++)
        bytes += hak_je_classes[i].held_bytes;
    return bytes;
}

HAK_UNUSED static int hak_je_bin(const char *field, unsigned bin, void *to, size_t *bytes) {
    if (bin >= hak_je_bins())
        return ENOENT;
    const struct hak_class_use *use = &hak_je_classes[bin];
    if (use->block_bytes == 0)
        hak_je_refresh();
    size_t slab = use->slab_blocks * use->block_bytes;
    if (strcmp(field, "size") == 0)
        return hak_je_answer(to, bytes, use->block_bytes, sizeof(size_t));
    if (strcmp(field, "nregs") == 0)
        return hak_je_answer(to, bytes, use->slab_blocks, sizeof(uint32_t));
    if (strcmp(field, "curslabs") == 0) /* as many as hold what is not given back */
        return hak_je_answer(to, bytes, (use->held_bytes + slab - 1) / slab, sizeof(size_t));
    if (strcmp(field, "curregs") == 0)
        return hak_je_answer(to, bytes, use->live_bytes / use->block_bytes, sizeof(size_t));
    return ENOENT;
}

HAK_UNUSED static int je_mallctl(const char *name, void *to, size_t *to_bytes, void *from, size_t from_bytes) {
    unsigned bin, arena;
    char field[16];
    (void)from, (void)from_bytes;
    if (strcmp(name, "epoch") == 0)
        return hak_je_refresh(), hak_je_answer(to, to_bytes, 1, sizeof(uint64_t));
    if (strcmp(name, "stats.allocated") == 0)
        return hak_je_answer(to, to_bytes, hak_je_live(HAK_CLASSES_MAX), sizeof(size_t));
    if (strcmp(name, "stats.active") == 0 || strcmp(name, "stats.resident") == 0)
        return hak_je_answer(to, to_bytes, hak_je_held(), sizeof(size_t));
    if (strcmp(name, "stats.retained") == 0 || strcmp(name, "stats.muzzy") == 0)
        return hak_je_answer(to, to_bytes, 0, sizeof(size_t));
    if (strcmp(name, "arenas.narenas") == 0)
        return hak_je_answer(to, to_bytes, 1, sizeof(unsigned));
    if (strcmp(name, "arenas.nbins") == 0)
        return hak_je_answer(to, to_bytes, hak_je_bins(), sizeof(unsigned));
    if (sscanf(name, "arenas.bin.%u.%15s", &bin, field) == 2 ||
        sscanf(name, "stats.arenas.%u.bins.%u.%15s", &arena, &bin, field) == 3)
        return hak_je_bin(field, bin, to, to_bytes);
    if (sscanf(name, "arena.%u.%15s", &arena, field) == 2 && strcmp(field, "purge") == 0)
        return hak_trim(), 0;
    if (strcmp(name, "thread.idle") == 0)
        return hak_thread_rests(), 0;
    return strcmp(name, "background_thread") == 0 ? 0 : ENOENT;
}

#endif
