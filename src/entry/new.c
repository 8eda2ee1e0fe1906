/* The C++ operators, by their linker names, so that they inline the hit paths as malloc and free do.
 *
 * A program may replace some forms alone, mostly `operator new(size_t)` and `operator delete(void *)`: then the forms
 * that stand on these lead to the program's, as the standard says. `new_bound` tells whose they are. For deletes that
 * costs a hit nothing: hits are made below a frontier of their own, which stays 0 if the form below is the program's,
 * and else follows the region's. A form that stands on nothing is never called where the program has its own. */
/* SPDX-License-Identifier: MIT */
#include "alloc/alloc.h"
#include "entry/new_handler.h"

#define OPERATOR(name, mangled, ...)                                                                                   \
    HAK_API void *name(__VA_ARGS__) __asm__(mangled);                                                                  \
    void *name(__VA_ARGS__)
#define DELETE(name, mangled, ...)                                                                                     \
    HAK_API void name(__VA_ARGS__) __asm__(mangled);                                                                   \
    void name(__VA_ARGS__)

struct nothrow;

#define NO_ALIGNMENT SIZE_MAX /* an alignment that no block can have */

/* The forms that others stand on, as they are here. */
extern __attribute__((alias("_Znwm"))) new_form our_new;
extern __attribute__((alias("_Znam"))) new_form our_new_array;
extern __attribute__((alias("_ZnwmSt11align_val_t"))) new_aligned_form our_new_aligned;
extern __attribute__((alias("_ZnamSt11align_val_t"))) new_aligned_form our_new_array_aligned;
extern __attribute__((visibility("hidden"), alias("_ZdlPv"))) void our_delete(void *);
extern __attribute__((visibility("hidden"), alias("_ZdaPv"))) void our_delete_array(void *);
extern __attribute__((visibility("hidden"), alias("_ZdlPvSt11align_val_t"))) void our_delete_aligned(void *, size_t);
extern __attribute__((visibility("hidden"), alias("_ZdaPvSt11align_val_t"))) void our_delete_array_aligned(void *,
                                                                                                           size_t);

__attribute__((constructor(101))) static void look_at_forms(void) {
    bool ours = new_is_ours(false, false) && new_is_ours(false, true) && new_bound.delete_scalar == our_delete &&
                new_bound.delete_aligned == our_delete_aligned;
    store_relaxed(&hak_arrays_known, ours);
}

/* ---- new ---- */

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

HAK_INLINE void *new_array(size_t size) {
    return likely(new_bound.new_scalar == our_new) ? new_plain(size, true, true) : new_bound.new_scalar(size);
}
HAK_INLINE void *new_array_aligned(size_t size, size_t alignment) {
    if (unlikely(new_bound.new_aligned != our_new_aligned))
        return new_bound.new_aligned(size, alignment);
    return new_aligned(size, alignment, true, true);
}

HAK_INLINE void *new_nothrow(size_t size, bool array) {
    if (unlikely(!new_is_ours(array, false)))
        return new_nothrow_of_program(array ? new_bound.new_array : new_bound.new_scalar, size);
    return new_plain(size, array, false);
}
HAK_INLINE void *new_aligned_nothrow(size_t size, size_t alignment, bool array) {
    if (unlikely(!new_is_ours(array, true)))
        return new_aligned_nothrow_of_program(array ? new_bound.new_array_aligned : new_bound.new_aligned, size,
                                              alignment);
    return new_aligned(size, alignment, array, false);
}

/* ---- delete ---- */

/* Where hits of a delete end that stands on these forms; any thread. */
enum { ON_SCALAR, ON_ARRAY, ON_ALIGNED, ON_ARRAY_ALIGNED, FORMS };
static _Atomic size_t delete_frontiers[FORMS]; /* region_frontier() of some moment, or 0; relaxed, as the region's */

HAK_INLINE size_t delete_frontier(unsigned form) { return load_folded(&delete_frontiers[form]); }

/* Is the form ours, with those that it stands on? Then hits go on to the region's frontier. */
HAK_NOINLINE static bool is_ours(unsigned form) {
    bool aligned = form >= ON_ALIGNED, array = form == ON_ARRAY || form == ON_ARRAY_ALIGNED;
    bool ours = aligned ? new_bound.delete_aligned == our_delete_aligned : new_bound.delete_scalar == our_delete;
    if (array)
        ours &= aligned ? new_bound.delete_array_aligned == our_delete_array_aligned
                        : new_bound.delete_array == our_delete_array;
    if (ours)
        store_relaxed(&delete_frontiers[form], region_frontier());
    return ours;
}

HAK_INLINE void delete_plain(void *p, bool array) {
    alloc_free(p, array ? alloc_delete_array_by_kind : alloc_delete_by_kind);
}

static void delete_array_outside(void *p) {
    if (is_ours(ON_SCALAR))
        delete_plain(p, true);
    else
        new_bound.delete_scalar(p);
}
static void delete_array_aligned_outside(void *p, size_t alignment) {
    if (is_ours(ON_ALIGNED))
        delete_plain(p, true);
    else
        new_bound.delete_aligned(p, alignment);
}
static void delete_sized_outside(void *p, size_t bytes) {
    if (is_ours(ON_SCALAR))
        alloc_delete_sized_else(p, bytes);
    else
        new_bound.delete_scalar(p);
}
static void delete_array_sized_outside(void *p, size_t bytes) {
    if (is_ours(ON_ARRAY))
        alloc_delete_array_sized_else(p, bytes);
    else
        new_bound.delete_array(p);
}
HAK_NOINLINE static void delete_sized_aligned_outside(void *p, size_t bytes, size_t alignment, bool array) {
    if (is_ours(array ? ON_ARRAY_ALIGNED : ON_ALIGNED))
        alloc_delete_aligned_else(p, bytes, alignment, array);
    else
        (array ? new_bound.delete_array_aligned : new_bound.delete_aligned)(p, alignment);
}

HAK_INLINE void delete_array(void *p) {
    alloc_free_below(delete_frontier(ON_SCALAR), p, delete_array_outside, alloc_delete_array_by_kind);
}
HAK_INLINE void delete_array_aligned(void *p, size_t alignment) {
    if (unlikely(region_offset(p) >= delete_frontier(ON_ALIGNED)))
        return delete_array_aligned_outside(p, alignment);
    delete_plain(p, true);
}
HAK_INLINE void delete_sized(void *p, size_t bytes) {
    alloc_free_sized(delete_frontier(ON_SCALAR), p, bytes, true, delete_sized_outside, alloc_delete_sized_else);
}
HAK_INLINE void delete_array_sized(void *p, size_t bytes) {
    alloc_free_sized(delete_frontier(ON_ARRAY), p, bytes, true, delete_array_sized_outside,
                     alloc_delete_array_sized_else);
}

/* As alloc_free_sized. */
HAK_INLINE void delete_sized_aligned(void *p, size_t bytes, size_t alignment, bool array) {
    uintptr_t offset = region_offset(p);
    if (HAK_IS_CHECKED || unlikely(offset >= delete_frontier(array ? ON_ARRAY_ALIGNED : ON_ALIGNED)))
        return delete_sized_aligned_outside(p, bytes, alignment, array);
    struct slab *s = slab_at_offset(offset);
    if (unlikely(class_aligned_bytes(bytes, alignment) - s->tiny.first_size >= s->sizes))
        return alloc_delete_aligned_else(p, bytes, alignment, array);
    alloc_free_in(s, p, alloc_free_by_kind);
}

// clang-format off
#define NOTHROW const struct nothrow *t
OPERATOR(op_new, "_Znwm", size_t n) { return new_plain(n, false, true); }
OPERATOR(op_new_array, "_Znam", size_t n) { return new_array(n); }
OPERATOR(op_new_nothrow, "_ZnwmRKSt9nothrow_t", size_t n, NOTHROW) { return (void)t, new_nothrow(n, false); }
OPERATOR(op_new_array_nothrow, "_ZnamRKSt9nothrow_t", size_t n, NOTHROW) { return (void)t, new_nothrow(n, true); }
OPERATOR(op_new_aligned, "_ZnwmSt11align_val_t", size_t n, size_t a) { return new_aligned(n, a, false, true); }
OPERATOR(op_new_array_aligned, "_ZnamSt11align_val_t", size_t n, size_t a) { return new_array_aligned(n, a); }
OPERATOR(op_new_aligned_nothrow, "_ZnwmSt11align_val_tRKSt9nothrow_t", size_t n, size_t a, NOTHROW) {
    return (void)t, new_aligned_nothrow(n, a, false);
}
OPERATOR(op_new_array_aligned_nothrow, "_ZnamSt11align_val_tRKSt9nothrow_t", size_t n, size_t a, NOTHROW) {
    return (void)t, new_aligned_nothrow(n, a, true);
}

DELETE(op_delete, "_ZdlPv", void *p) { delete_plain(p, false); }
DELETE(op_delete_array, "_ZdaPv", void *p) { delete_array(p); }
DELETE(op_delete_nothrow, "_ZdlPvRKSt9nothrow_t", void *p, NOTHROW) { (void)t, new_bound.delete_scalar(p); }
DELETE(op_delete_array_nothrow, "_ZdaPvRKSt9nothrow_t", void *p, NOTHROW) { (void)t, new_bound.delete_array(p); }
DELETE(op_delete_sized, "_ZdlPvm", void *p, size_t n) { delete_sized(p, n); }
DELETE(op_delete_array_sized, "_ZdaPvm", void *p, size_t n) { delete_array_sized(p, n); }
DELETE(op_delete_aligned, "_ZdlPvSt11align_val_t", void *p, size_t a) { (void)a, delete_plain(p, false); }
DELETE(op_delete_array_aligned, "_ZdaPvSt11align_val_t", void *p, size_t a) { delete_array_aligned(p, a); }
DELETE(op_delete_aligned_nothrow, "_ZdlPvSt11align_val_tRKSt9nothrow_t", void *p, size_t a, NOTHROW) {
    (void)t, new_bound.delete_aligned(p, a);
}
DELETE(op_delete_array_aligned_nothrow, "_ZdaPvSt11align_val_tRKSt9nothrow_t", void *p, size_t a, NOTHROW) {
    (void)t, new_bound.delete_array_aligned(p, a);
}
DELETE(op_delete_sized_aligned, "_ZdlPvmSt11align_val_t", void *p, size_t n, size_t a) {
    delete_sized_aligned(p, n, a, false);
}
DELETE(op_delete_array_sized_aligned, "_ZdaPvmSt11align_val_t", void *p, size_t n, size_t a) {
    delete_sized_aligned(p, n, a, true);
}
// clang-format on
