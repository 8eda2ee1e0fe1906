/* libc's own allocator, which programs no longer reach by the name malloc. glibc also exports it under names of its
 * own; musl does not, and a program that is linked statically has none. What it hands out lies outside the region. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "base/base.h"

struct os_malloc_calls { /* they set errno */
    void *(*malloc)(size_t bytes);
    void *(*calloc)(size_t count, size_t bytes);
    void *(*realloc)(void *block, size_t bytes);
    void *(*memalign)(size_t alignment, size_t bytes); /* alignment: a power of two */
    void (*free)(void *block);
    size_t (*usable_size)(void *block);
};
extern HAK_HIDDEN const struct os_malloc_calls os_malloc_calls;
/* Is there one? If not, only os_malloc_start may be called. */
bool os_malloc_exists(void);
/* At the library's start: looks up what it takes the dynamic linker's lock to find. */
void os_malloc_start(void);
int os_malloc_trim(size_t pad);
