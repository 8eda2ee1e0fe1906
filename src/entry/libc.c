/* The standard C names, with glibc's results. No logic beyond checks of arguments. Functions that only glibc has are
 * declared here, so that the library is the same on every libc: programs built elsewhere find all of them. */
/* SPDX-License-Identifier: MIT */
#include "alloc/alloc.h"
#include "base/options.h"
#include "base/os.h"
#include "base/os_malloc.h"
#include "base/text.h"
#include "beside/other.h"
#include "entry/start.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

START_LIBRARY_WANTED;

/* As in <malloc.h> of glibc 2.33 and later. */
enum { M_MXFAST = 1, M_TRIM_THRESHOLD = -1 };
void *memalign(size_t alignment, size_t size);
void *pvalloc(size_t size);
size_t malloc_usable_size(void *block);
void cfree(void *block);
void free_sized(void *block, size_t size);
void free_aligned_sized(void *block, size_t alignment, size_t size);
int malloc_trim(size_t pad);
int mallopt(int parameter, int value);

HAK_API void *malloc(size_t size) { return alloc_malloc(size, alloc_slow); }
HAK_API void free(void *block) { alloc_free(block, alloc_free_by_kind); }
HAK_API void *calloc(size_t count, size_t size) { return alloc_calloc(count, size); }
HAK_API void *realloc(void *block, size_t size) { return alloc_realloc(block, size); }

HAK_API void *reallocarray(void *block, size_t count, size_t size) {
    size_t whole;
    if (__builtin_mul_overflow(count, size, &whole))
        return errno = ENOMEM, NULL;
    return alloc_realloc(block, whole);
}

/* Rounds the alignment up to a power of two; EINVAL if there is none. */
HAK_API void *memalign(size_t alignment, size_t size) {
    if (alignment > SIZE_MAX / 2 + 1)
        return errno = EINVAL, NULL;
    size_t power = 1;
    while (power < alignment)
        power *= 2;
    return alloc_aligned(power, size);
}

/* As in C17 and in glibc since 2.38; before, glibc rounded as memalign does. */
HAK_API void *aligned_alloc(size_t alignment, size_t size) {
    if (!is_power_of_two(alignment))
        return errno = EINVAL, NULL;
    return alloc_aligned(alignment, size);
}

/* As in glibc: without memory errno becomes ENOMEM, too; on success and for a wrong alignment errno is left alone. */
HAK_API int posix_memalign(void **result, size_t alignment, size_t size) {
    if (!is_power_of_two(alignment) || alignment % sizeof(void *) != 0)
        return EINVAL;
    int saved = errno;
    void *block = alloc_aligned(alignment, size);
    if (block == NULL)
        return ENOMEM;
    errno = saved;
    *result = block;
    return 0;
}

HAK_API void *valloc(size_t size) { return alloc_aligned(os_page_bytes(), size); }

HAK_API void *pvalloc(size_t size) {
    size_t page = os_page_bytes();
    if (size > SIZE_MAX - page)
        return errno = ENOMEM, NULL;
    return alloc_aligned(page, round_up(size, page));
}

HAK_API size_t malloc_usable_size(void *block) { return alloc_usable(block, "malloc_usable_size"); }

HAK_API void cfree(void *block) { alloc_free(block, alloc_free_by_kind); }
HAK_API void free_sized(void *block, size_t size) {
    alloc_free_sized(region_frontier(), block, size, false, alloc_free_sized_else, alloc_free_sized_else);
}
HAK_API void free_aligned_sized(void *block, size_t alignment, size_t size) {
    (void)alignment;
    alloc_free_sized(region_frontier(), block, size, false, alloc_free_sized_else, alloc_free_sized_else);
}

const struct os_malloc_calls own_calls = {malloc, calloc, realloc, memalign, free, malloc_usable_size};

/* `pad` is what glibc would leave at the top of its heap; ours has no top. */
HAK_API int malloc_trim(size_t pad) {
    if (other_is_on())
        return os_malloc_trim(pad);
    return alloc_trim() != 0;
}

HAK_API int mallopt(int parameter, int value) {
    char text[24];
    struct text t = {text, sizeof text - 1, 0, -1};
    switch (parameter) {
    case M_TRIM_THRESHOLD:
        if (value < 0)
            return option_set("PURGE", "never") == 0;
        text_number(&t, (uint64_t)value);
        text[t.length] = '\0';
        return option_set("RETAIN_BYTES", text) == 0;
    case M_MXFAST: return value >= 0 && (size_t)value <= 80 * sizeof(size_t) / 4;
    default: return 1; /* accepted, as glibc accepts parameters that it does not know */
    }
}
