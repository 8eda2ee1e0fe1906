/* The calls of src/entry/hinted.c as compilers declare them, each with a hint by which the block goes to a lane, and
 * with one by which it goes where all do. */
/* SPDX-License-Identifier: MIT */
#ifndef HAKMEM_TESTS_HINTED_H
#define HAKMEM_TESTS_HINTED_H

#include <stddef.h>
#include <stdint.h>

#include <new>

// NOLINTBEGIN: these are the names that compilers use
enum class __hot_cold_t : uint8_t {};
struct __sized_ptr_t {
    void *p;
    size_t n;
};
void *operator new(size_t, __hot_cold_t);
void *operator new[](size_t, __hot_cold_t);
void *operator new(size_t, const std::nothrow_t &, __hot_cold_t) noexcept;
void *operator new[](size_t, const std::nothrow_t &, __hot_cold_t) noexcept;
void *operator new(size_t, std::align_val_t, __hot_cold_t);
void *operator new[](size_t, std::align_val_t, __hot_cold_t);
void *operator new(size_t, std::align_val_t, const std::nothrow_t &, __hot_cold_t) noexcept;
void *operator new[](size_t, std::align_val_t, const std::nothrow_t &, __hot_cold_t) noexcept;
extern "C" {
__sized_ptr_t __size_returning_new(size_t);
__sized_ptr_t __size_returning_new_aligned(size_t, std::align_val_t);
__sized_ptr_t __size_returning_new_hot_cold(size_t, __hot_cold_t);
__sized_ptr_t __size_returning_new_aligned_hot_cold(size_t, std::align_val_t, __hot_cold_t);
void *__alloc_token_malloc(size_t, size_t);
void *__alloc_token_calloc(size_t, size_t, size_t);
void *__alloc_token_realloc(void *, size_t, size_t);
void *__alloc_token_reallocarray(void *, size_t, size_t, size_t);
void *__alloc_token_memalign(size_t, size_t, size_t);
void *__alloc_token_aligned_alloc(size_t, size_t, size_t);
int __alloc_token_posix_memalign(void **, size_t, size_t, size_t);
void *__alloc_token_valloc(size_t, size_t);
void *__alloc_token_pvalloc(size_t, size_t);
void *__alloc_token__Znwm(size_t, size_t);
void *__alloc_token__Znam(size_t, size_t);
void *__alloc_token__ZnwmRKSt9nothrow_t(size_t, const std::nothrow_t &, size_t) noexcept;
void *__alloc_token__ZnamRKSt9nothrow_t(size_t, const std::nothrow_t &, size_t) noexcept;
void *__alloc_token__ZnwmSt11align_val_t(size_t, std::align_val_t, size_t);
void *__alloc_token__ZnamSt11align_val_t(size_t, std::align_val_t, size_t);
void *__alloc_token__ZnwmSt11align_val_tRKSt9nothrow_t(size_t, std::align_val_t, const std::nothrow_t &,
                                                       size_t) noexcept;
void *__alloc_token__ZnamSt11align_val_tRKSt9nothrow_t(size_t, std::align_val_t, const std::nothrow_t &,
                                                       size_t) noexcept;
}

constexpr std::align_val_t kHintedAlignment{64};
constexpr size_t kWithPointers = SIZE_MAX / 2 + 1, kPlain = SIZE_MAX / 2;

struct Hinted {
    const char *symbol;
    void *(*make)(size_t size, bool in_lane);
    void (*end)(void *block);
    bool aligned, throws;
};

inline __hot_cold_t hint(bool in_lane) { return __hot_cold_t{static_cast<uint8_t>(in_lane ? 1 : 254)}; }
inline size_t token(bool in_lane) { return in_lane ? kWithPointers : kPlain; }

constexpr Hinted kHinted[] = {
    {"_Znwm12__hot_cold_t", [](size_t n, bool lane) { return ::operator new(n, hint(lane)); },
     [](void *p) { ::operator delete(p); }, false, true},
    {"_Znam12__hot_cold_t", [](size_t n, bool lane) { return ::operator new[](n, hint(lane)); },
     [](void *p) { ::operator delete[](p); }, false, true},
    {"_ZnwmRKSt9nothrow_t12__hot_cold_t",
     [](size_t n, bool lane) { return ::operator new(n, std::nothrow, hint(lane)); },
     [](void *p) { ::operator delete(p); }, false, false},
    {"_ZnamRKSt9nothrow_t12__hot_cold_t",
     [](size_t n, bool lane) { return ::operator new[](n, std::nothrow, hint(lane)); },
     [](void *p) { ::operator delete[](p); }, false, false},
    {"_ZnwmSt11align_val_t12__hot_cold_t",
     [](size_t n, bool lane) { return ::operator new(n, kHintedAlignment, hint(lane)); },
     [](void *p) { ::operator delete(p, kHintedAlignment); }, true, true},
    {"_ZnamSt11align_val_t12__hot_cold_t",
     [](size_t n, bool lane) { return ::operator new[](n, kHintedAlignment, hint(lane)); },
     [](void *p) { ::operator delete[](p, kHintedAlignment); }, true, true},
    {"_ZnwmSt11align_val_tRKSt9nothrow_t12__hot_cold_t",
     [](size_t n, bool lane) { return ::operator new(n, kHintedAlignment, std::nothrow, hint(lane)); },
     [](void *p) { ::operator delete(p, kHintedAlignment); }, true, false},
    {"_ZnamSt11align_val_tRKSt9nothrow_t12__hot_cold_t",
     [](size_t n, bool lane) { return ::operator new[](n, kHintedAlignment, std::nothrow, hint(lane)); },
     [](void *p) { ::operator delete[](p, kHintedAlignment); }, true, false},
    {"__size_returning_new_hot_cold",
     [](size_t n, bool lane) { return __size_returning_new_hot_cold(n, hint(lane)).p; },
     [](void *p) { ::operator delete(p); }, false, true},
    {"__size_returning_new_aligned_hot_cold",
     [](size_t n, bool lane) { return __size_returning_new_aligned_hot_cold(n, kHintedAlignment, hint(lane)).p; },
     [](void *p) { ::operator delete(p, kHintedAlignment); }, true, true},
    {"__alloc_token__Znwm", [](size_t n, bool lane) { return __alloc_token__Znwm(n, token(lane)); },
     [](void *p) { ::operator delete(p); }, false, true},
    {"__alloc_token__Znam", [](size_t n, bool lane) { return __alloc_token__Znam(n, token(lane)); },
     [](void *p) { ::operator delete[](p); }, false, true},
    {"__alloc_token__ZnwmRKSt9nothrow_t",
     [](size_t n, bool lane) { return __alloc_token__ZnwmRKSt9nothrow_t(n, std::nothrow, token(lane)); },
     [](void *p) { ::operator delete(p); }, false, false},
    {"__alloc_token__ZnamRKSt9nothrow_t",
     [](size_t n, bool lane) { return __alloc_token__ZnamRKSt9nothrow_t(n, std::nothrow, token(lane)); },
     [](void *p) { ::operator delete[](p); }, false, false},
    {"__alloc_token__ZnwmSt11align_val_t",
     [](size_t n, bool lane) { return __alloc_token__ZnwmSt11align_val_t(n, kHintedAlignment, token(lane)); },
     [](void *p) { ::operator delete(p, kHintedAlignment); }, true, true},
    {"__alloc_token__ZnamSt11align_val_t",
     [](size_t n, bool lane) { return __alloc_token__ZnamSt11align_val_t(n, kHintedAlignment, token(lane)); },
     [](void *p) { ::operator delete[](p, kHintedAlignment); }, true, true},
    {"__alloc_token__ZnwmSt11align_val_tRKSt9nothrow_t",
     [](size_t n, bool lane) {
         return __alloc_token__ZnwmSt11align_val_tRKSt9nothrow_t(n, kHintedAlignment, std::nothrow, token(lane));
     },
     [](void *p) { ::operator delete(p, kHintedAlignment); }, true, false},
    {"__alloc_token__ZnamSt11align_val_tRKSt9nothrow_t",
     [](size_t n, bool lane) {
         return __alloc_token__ZnamSt11align_val_tRKSt9nothrow_t(n, kHintedAlignment, std::nothrow, token(lane));
     },
     [](void *p) { ::operator delete[](p, kHintedAlignment); }, true, false},
};
// NOLINTEND

#endif
