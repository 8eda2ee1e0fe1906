/* glibc's own allocator, looked up in libc.so.6 itself, so that a malloc linked before it is skipped. */
/* SPDX-License-Identifier: MIT */
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

#include "surface.h"

namespace {

template <typename Function> void find(void *libc, const char *name, Function **into) {
    *into = reinterpret_cast<Function *>(dlsym(libc, name));
    if (*into == nullptr) {
        fprintf(stderr, "oracle: libc has no %s\n", name);
        abort();
    }
}

/* glibc's own reallocarray calls realloc as any program does, and so would reach the allocator linked before it. */
void *glibc_reallocarray(void *block, size_t count, size_t size) {
    if (size != 0 && count > SIZE_MAX / size) {
        errno = ENOMEM;
        return nullptr;
    }
    return oracle().realloc(block, count * size);
}

Surface look_up() {
    void *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
    Surface s = {};
    s.name = "glibc";
    find(libc, "malloc", &s.alloc);
    find(libc, "calloc", &s.calloc);
    find(libc, "realloc", &s.realloc);
    find(libc, "free", &s.free);
    find(libc, "aligned_alloc", &s.aligned_alloc);
    find(libc, "malloc_usable_size", &s.usable_size);
    s.reallocarray = glibc_reallocarray;
    find(libc, "posix_memalign", &s.posix_memalign);
    find(libc, "memalign", &s.memalign);
    find(libc, "valloc", &s.valloc);
    find(libc, "pvalloc", &s.pvalloc);
    find(libc, "malloc_trim", &s.trim);
    find(libc, "mallopt", &s.mallopt);
    find(libc, "malloc_info", &s.malloc_info);
    find(libc, "mallinfo2", &s.mallinfo2);
    return s;
}

} // namespace

const Surface &oracle() {
    static const Surface surface = look_up();
    return surface;
}
