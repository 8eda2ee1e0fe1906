/* An allocator that is wrong in one way, which HISTORY_FAULT names, at the one block of FAULTY_BYTES that calls.cc
 * requests: what check.cc is to find. It frees nothing. */
/* SPDX-License-Identifier: MIT */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { SPACE_BYTES = 8 << 20, HEADER_BYTES = 16, FAULTY_BYTES = 142 };

static char space[SPACE_BYTES] __attribute__((aligned(4096)));
static size_t used;

static bool is(const char *fault, size_t bytes) {
    const char *wanted = getenv("HISTORY_FAULT");
    return bytes == FAULTY_BYTES && wanted != NULL && strcmp(wanted, fault) == 0;
}

static void *take(size_t bytes, size_t alignment) {
    static char *last; /* live at that moment */
    if (is("early", bytes))
        return last;
    if (is("overlap", bytes))
        return last + 16;
    size_t at = (used + HEADER_BYTES + alignment - 1) & ~(alignment - 1);
    used = at + bytes + 16;
    if (used > SPACE_BYTES)
        return NULL;
    last = space + at + (is("alignment", bytes) ? 8 : 0);
    ((size_t *)last)[-1] = bytes - (is("small", bytes) ? 1 : 0);
    return last;
}

void *malloc(size_t bytes) { return take(bytes, 16); }
void *calloc(size_t count, size_t bytes) { return take(count * bytes, 16); }
size_t malloc_usable_size(void *p) { return ((size_t *)p)[-1]; }
void free(void *p) { (void)p; }
void *realloc(void *old, size_t bytes) {
    void *p = take(bytes, 16);
    if (p != NULL && old != NULL) {
        size_t had = malloc_usable_size(old);
        memcpy(p, old, had < bytes ? had : bytes);
    }
    return p;
}
int posix_memalign(void **p, size_t alignment, size_t bytes) { return (*p = take(bytes, alignment)) == NULL; }
void *aligned_alloc(size_t alignment, size_t bytes) { return take(bytes, alignment); }
