/* See os_malloc.h. */
/* SPDX-License-Identifier: MIT */
#include "base/os_malloc.h"
#include "base/os.h"

extern void *libc_malloc(size_t bytes) __asm__("__libc_malloc") HAK_WEAK;
extern void *libc_calloc(size_t count, size_t bytes) __asm__("__libc_calloc") HAK_WEAK;
extern void *libc_realloc(void *block, size_t bytes) __asm__("__libc_realloc") HAK_WEAK;
extern void *libc_memalign(size_t alignment, size_t bytes) __asm__("__libc_memalign") HAK_WEAK;
extern void libc_free(void *block) __asm__("__libc_free") HAK_WEAK;

/* Functions of libc's that this library defines under the same name, and that libc has under no other. */
static struct {
    _Atomic(size_t (*)(void *)) usable_size; /* NULL: not found. As os_state (os_linux.c) */
    _Atomic(int (*)(size_t pad)) trim;
} libc_found;

bool os_malloc_exists(void) {
    return libc_malloc != NULL && libc_calloc != NULL && libc_realloc != NULL && libc_memalign != NULL &&
           libc_free != NULL;
}

void os_malloc_start(void) {
    uintptr_t beside = (uintptr_t)libc_malloc;
    store_relaxed(&libc_found.usable_size,
                  (size_t(*)(void *))os_find_function("malloc_usable_size", 0, beside)); /* NOLINT: an address */
    store_relaxed(&libc_found.trim,
                  (int (*)(size_t))os_find_function("malloc_trim", 0, beside)); /* NOLINT: an address */
}

static size_t usable_size_of(void *block) {
    size_t (*usable_size)(void *) = load_relaxed(&libc_found.usable_size);
    if (usable_size == NULL) { /* before the start */
        os_malloc_start();
        usable_size = load_relaxed(&libc_found.usable_size);
    }
    return usable_size != NULL ? usable_size(block) : 0;
}

const struct os_malloc_calls os_malloc_calls = {libc_malloc,   libc_calloc, libc_realloc,
                                                libc_memalign, libc_free,   usable_size_of};

int os_malloc_trim(size_t pad) {
    int (*trim)(size_t) = load_relaxed(&libc_found.trim);
    return trim != NULL ? trim(pad) : 0;
}
