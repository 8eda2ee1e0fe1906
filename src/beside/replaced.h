/* A tool that has put its own malloc in the place of ours: valgrind, which replaces functions where they lie, but
 * each version only those that it knows. Then whatever else allocates is composed of what is replaced, so that all
 * blocks are the tool's.
 *
 * No thread gets a heap of its own meanwhile: nothing is a hit, and the slow paths come here. Arenas keep memory of
 * their own. */
/* SPDX-License-Identifier: MIT */
#ifndef HAK_REPLACED_H
#define HAK_REPLACED_H

#include "base/base.h"

/* Every tool that replaces malloc replaces these. */
struct replaced_calls {
    void *(*malloc)(size_t bytes);
    void *(*realloc)(void *block, size_t bytes);
    int (*posix_memalign)(void **result, size_t alignment, size_t bytes);
    void (*free)(void *block);
    size_t (*malloc_usable_size)(void *block);
};
extern const struct replaced_calls libc_calls HAK_WEAK HAK_HIDDEN; /* not in a library without malloc */

const struct replaced_calls *replaced_calls(void); /* NULL: malloc is not replaced */
bool replaced_has(const void *p);                  /* not ours, so that it must be the tool's. Not NULL */
bool replaced_free(void *p);                       /* false: it is not the tool's */
/* Aligned as a block of ours of that size, and to `alignment`; sets *zero to false. */
void *replaced_malloc(size_t bytes, size_t alignment, bool *zero);

#endif
