/* Every call that allocates, its block freed by every call that frees: run under valgrind, which replaces some of
 * them. If an error is reported, a correct program has errors under valgrind as soon as the library is preloaded or
 * linked. Compiled without TOOL_CALLS_HAK it knows nothing of HAKMEM. */
/* SPDX-License-Identifier: MIT */
#ifdef TOOL_CALLS_HAK
#include <hakmem.h>
#endif
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <initializer_list>
#include <new>
#include <thread>

extern "C" {
void free_sized(void *, size_t) __attribute__((weak)); /* glibc has none yet */
void free_aligned_sized(void *, size_t, size_t) __attribute__((weak));
void cfree(void *) __attribute__((weak));
}

namespace {

using Free = void(void *, size_t size);
constexpr auto kAlignment = std::align_val_t(64);

/* The whole block is the program's. */
void *filled(void *block, size_t size, size_t alignment = 8) {
    if (block == nullptr || reinterpret_cast<uintptr_t>(block) % alignment != 0 || malloc_usable_size(block) < size) {
        printf("%p is no block of %zu bytes, aligned to %zu\n", block, size, alignment);
        exit(1);
    }
    return memset(block, 7, size);
}

void allocates_in_all_ways(Free *release) {
    for (size_t n : {1, 48, 100, 1000, 4000, 70000, 3000000}) {
        void *aligned = nullptr;
        release(filled(malloc(n), n), n);
        release(filled(calloc(1, n), n), n);
        release(filled(realloc(malloc(1), n), n), n);
        release(filled(reallocarray(nullptr, 1, n), n), n);
        release(filled(reallocarray(malloc(n), 2, n), 2 * n), 2 * n);
        release(filled(realloc(reallocarray(nullptr, 1, n), 3 * n), 3 * n), 3 * n);
        release(filled(memalign(64, n), n, 64), n);
        release(filled(valloc(n), n, 4096), n);
        release(filled(pvalloc(n), n, 4096), (n + 4095) / 4096 * 4096);
        release(filled(aligned_alloc(256, n), n, 256), n);
        if (posix_memalign(&aligned, 1024, n) == 0)
            release(filled(aligned, n, 1024), n);
#ifdef TOOL_CALLS_HAK
        size_t usable = 0;
        release(filled(hak_malloc(n), n), n);
        release(filled(hak_calloc(1, n), n), n);
        release(filled(hak_realloc(malloc(n), n + 1), n + 1), n + 1);
        release(filled(hak_realloc(nullptr, n), n), n);
        release(filled(hak_aligned_alloc(512, n), n, 512), n);
        release(filled(hak_malloc_dense(n), n), n);
        aligned = hak_alloc_at_least(n, &usable);
        release(filled(aligned, usable), hak_usable_size(aligned));
#endif
    }
}

void operators() {
    for (size_t n : {8, 48, 3000, 100000}) {
        ::operator delete(::operator new(n));
        ::operator delete(::operator new(n), n);
        ::operator delete[](::operator new[](n));
        ::operator delete[](::operator new[](n), n);
        ::operator delete(::operator new(n, std::nothrow), std::nothrow);
        ::operator delete[](::operator new[](n, std::nothrow), std::nothrow);
        ::operator delete(::operator new(n, kAlignment), kAlignment);
        ::operator delete(::operator new(n, kAlignment), n, kAlignment);
        ::operator delete[](::operator new[](n, kAlignment), n, kAlignment);
        ::operator delete(::operator new(n, kAlignment, std::nothrow), kAlignment, std::nothrow);
    }
}

void all() {
    allocates_in_all_ways([](void *block, size_t) { free(block); });
    allocates_in_all_ways([](void *block, size_t size) { free(reallocarray(block, 2, size)); });
    if (cfree != nullptr)
        allocates_in_all_ways([](void *block, size_t) { cfree(block); });
    if (free_sized != nullptr)
        allocates_in_all_ways([](void *block, size_t size) { free_sized(block, size); });
    if (free_aligned_sized != nullptr)
        allocates_in_all_ways([](void *block, size_t size) { free_aligned_sized(block, 64, size); });
    operators();
#ifdef TOOL_CALLS_HAK
    allocates_in_all_ways([](void *block, size_t) { hak_free(block); });
    allocates_in_all_ways([](void *block, size_t size) { hak_free_sized(block, size); });
    allocates_in_all_ways([](void *block, size_t) { hak_free_dense(block); });
    allocates_in_all_ways([](void *block, size_t size) { free(hak_realloc(block, 2 * size)); });
    hak_arena *arena = hak_arena_new(nullptr);
    for (size_t n = 1; n < 100000; n *= 3)
        memset(hak_arena_malloc(arena, n), 1, n);
    hak_free(hak_arena_malloc(arena, 50));
    hak_arena_destroy(arena);
    hak_trim();
#endif
}

} // namespace

int main() {
    all();
    std::thread(all).join();
    mallinfo2();
    puts("ok");
}
