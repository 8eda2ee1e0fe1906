/* SPDX-License-Identifier: MIT */
#include <stdlib.h>

#include "surface.h"

/* C23 functions; glibc 2.36 does not declare them. */
extern "C" void free_sized(void *block, size_t size);
extern "C" void free_aligned_sized(void *block, size_t alignment, size_t size);

const Surface &subject() {
    static const Surface surface = [] {
        Surface s = {};
        s.name = "standard";
        s.alloc = malloc;
        s.calloc = calloc;
        s.realloc = realloc;
        s.free = free;
        s.aligned_alloc = aligned_alloc;
        s.usable_size = [](const void *block) { return malloc_usable_size(const_cast<void *>(block)); };
        s.free_sized = free_sized;
        s.reallocarray = reallocarray;
        s.posix_memalign = posix_memalign;
        s.memalign = memalign;
        s.valloc = valloc;
        s.pvalloc = pvalloc;
        s.free_aligned_sized = free_aligned_sized;
        s.trim = malloc_trim;
        s.mallopt = mallopt;
        s.malloc_info = malloc_info;
        s.mallinfo2 = mallinfo2;
        return s;
    }();
    return surface;
}
