/* The C++ operators, by their linker names, so that they inline the hit paths as malloc and free do. */
/* SPDX-License-Identifier: MIT */
#include "alloc.h"

#define OPERATOR(name, mangled, ...)                                                                                   \
    HAK_API void *name(__VA_ARGS__) __asm__(mangled);                                                                  \
    void *name(__VA_ARGS__)
#define DELETE(name, mangled, ...)                                                                                     \
    HAK_API void name(__VA_ARGS__) __asm__(mangled);                                                                   \
    void name(__VA_ARGS__)

struct nothrow;

#define NO_ALIGNMENT SIZE_MAX /* an alignment that no block can have */

/* new_handler.cc: ask the new_handler for memory, then throw or return NULL. Alignment 0: the default one. */
void *new_failed(size_t size, size_t alignment);
void *new_failed_nothrow(size_t size, size_t alignment);

HAK_INLINE void *new_plain(size_t size, bool array, bool throws) {
    void *p = alloc_malloc(size, array ? alloc_slow_new_array : alloc_slow_new);
    return likely(p != NULL) ? p : throws ? new_failed(size, 0) : new_failed_nothrow(size, 0);
}
/* Refuses an alignment that is no power of two, as libstdc++ does, without asking the new_handler. */
HAK_NOINLINE static void *new_aligned_else(size_t size, size_t alignment, bool array, bool throws) {
    void *p = NULL;
    if (likely(is_power_of_two(alignment)))
        p = alloc_new_aligned_else(alignment, size, array);
    else
        alignment = NO_ALIGNMENT;
    return likely(p != NULL) ? p : throws ? new_failed(size, alignment) : new_failed_nothrow(size, alignment);
}

HAK_INLINE void *new_aligned(size_t size, size_t alignment, bool array, bool throws) {
    void *p = likely(is_power_of_two(alignment)) ? alloc_aligned_hit(alignment, size) : NULL;
    return likely(p != NULL) ? p : new_aligned_else(size, alignment, array, throws);
}

HAK_INLINE void delete_plain(void *p, bool array) {
    alloc_free(p, array ? alloc_delete_array_other : alloc_delete_other);
}

/* As alloc_free_sized. */
HAK_INLINE void delete_sized_aligned(void *p, size_t bytes, size_t alignment, bool array) {
    uintptr_t offset = region_offset(p);
    if (HAK_IS_CHECKED || unlikely(offset >= region_frontier()))
        return alloc_delete_aligned_else(p, bytes, alignment, array);
    struct slab *s = slab_at_offset(offset);
    if (unlikely(class_aligned_bytes(bytes, alignment) - s->first_size >= s->sizes))
        return alloc_delete_aligned_else(p, bytes, alignment, array);
    alloc_free_in(s, p, alloc_free_other);
}

// clang-format off
OPERATOR(op_new,                     "_Znwm", size_t n) { return new_plain(n, false, true); }
OPERATOR(op_new_array,               "_Znam", size_t n) { return new_plain(n, true, true); }
OPERATOR(op_new_nothrow,             "_ZnwmRKSt9nothrow_t", size_t n, const struct nothrow *t) { (void)t; return new_plain(n, false, false); }
OPERATOR(op_new_array_nothrow,       "_ZnamRKSt9nothrow_t", size_t n, const struct nothrow *t) { (void)t; return new_plain(n, true, false); }
OPERATOR(op_new_aligned,             "_ZnwmSt11align_val_t", size_t n, size_t a) { return new_aligned(n, a, false, true); }
OPERATOR(op_new_array_aligned,       "_ZnamSt11align_val_t", size_t n, size_t a) { return new_aligned(n, a, true, true); }
OPERATOR(op_new_aligned_nothrow,     "_ZnwmSt11align_val_tRKSt9nothrow_t", size_t n, size_t a, const struct nothrow *t) { (void)t; return new_aligned(n, a, false, false); }
OPERATOR(op_new_array_aligned_nothrow, "_ZnamSt11align_val_tRKSt9nothrow_t", size_t n, size_t a, const struct nothrow *t) { (void)t; return new_aligned(n, a, true, false); }

DELETE(op_delete,                    "_ZdlPv", void *p) { delete_plain(p, false); }
DELETE(op_delete_array,              "_ZdaPv", void *p) { delete_plain(p, true); }
DELETE(op_delete_nothrow,            "_ZdlPvRKSt9nothrow_t", void *p, const struct nothrow *t) { (void)t; delete_plain(p, false); }
DELETE(op_delete_array_nothrow,      "_ZdaPvRKSt9nothrow_t", void *p, const struct nothrow *t) { (void)t; delete_plain(p, true); }
DELETE(op_delete_sized,              "_ZdlPvm", void *p, size_t n) { alloc_free_sized(p, n, true, alloc_delete_sized_else); }
DELETE(op_delete_array_sized,        "_ZdaPvm", void *p, size_t n) { alloc_free_sized(p, n, true, alloc_delete_array_sized_else); }
DELETE(op_delete_aligned,            "_ZdlPvSt11align_val_t", void *p, size_t a) { (void)a; delete_plain(p, false); }
DELETE(op_delete_array_aligned,      "_ZdaPvSt11align_val_t", void *p, size_t a) { (void)a; delete_plain(p, true); }
DELETE(op_delete_aligned_nothrow,    "_ZdlPvSt11align_val_tRKSt9nothrow_t", void *p, size_t a, const struct nothrow *t) { (void)a; (void)t; delete_plain(p, false); }
DELETE(op_delete_array_aligned_nothrow, "_ZdaPvSt11align_val_tRKSt9nothrow_t", void *p, size_t a, const struct nothrow *t) { (void)a; (void)t; delete_plain(p, true); }
DELETE(op_delete_sized_aligned,      "_ZdlPvmSt11align_val_t", void *p, size_t n, size_t a) { delete_sized_aligned(p, n, a, false); }
DELETE(op_delete_array_sized_aligned, "_ZdaPvmSt11align_val_t", void *p, size_t n, size_t a) { delete_sized_aligned(p, n, a, true); }
// clang-format on
