/* libc's own allocator, which programs reach under malloc's name no more. glibc also exports it under names of its own; musl does
 * not, and a program that is linked statically has none. What it hands out lies outside the region. */
/* SPDX-License-Identifier: MIT */
#ifndef HAK_OS_MALLOC_H
#define HAK_OS_MALLOC_H

#include "base/base.h"

/* Is there one? The functions below may be called only then. They set errno. */
bool os_malloc_exists(void);
/* Looks up what it takes the dynamic linker's lock to find: at the library's start, or else when it is first called. */
void os_malloc_start(void);
void *os_malloc(size_t bytes);
void *os_calloc(size_t count, size_t bytes);
void *os_realloc(void *block, size_t bytes);
void *os_memalign(size_t alignment, size_t bytes); /* alignment: a power of two */
void os_free(void *block);
size_t os_usable_size(const void *block);
int os_malloc_trim(size_t pad);

#endif
