/* The C++ operators, by their linker names, so that neither a C++ compiler nor libstdc++ is needed to build or load the
 * library. What only libstdc++ can do (the new_handler, throwing bad_alloc) is reached through weak references, which
 * are there in every program that could catch the exception.
 *
 * A nothrow operator calls the new_handler too; a handler that throws passes through it. */
#include "alloc.h"
#include "text.h"

#include <stdlib.h>

#define OPERATOR(name, mangled, ...) HAK_API void *name(__VA_ARGS__) __asm__(mangled); void *name(__VA_ARGS__)
#define DELETE(name, mangled, ...) HAK_API void name(__VA_ARGS__) __asm__(mangled); void name(__VA_ARGS__)

typedef void (*new_handler)(void);
HAK_API HAK_WEAK new_handler get_new_handler(void) __asm__("_ZSt15get_new_handlerv");
HAK_API HAK_WEAK void throw_bad_alloc(void) __asm__("_ZSt17__throw_bad_allocv");

struct nothrow;

/* As the standard wants it: ask the handler for memory until it gives up, then throw or return NULL. */
HAK_COLD static void *new_failed(size_t size, size_t alignment, bool throws) {
    for (;;) {
        new_handler handler = get_new_handler != NULL ? get_new_handler() : NULL;
        if (handler == NULL)
            break;
        handler();
        void *p = alignment == 0 ? alloc_malloc(size) : alloc_aligned(alignment, size);
        if (p != NULL)
            return p;
    }
    if (!throws)
        return NULL;
    if (throw_bad_alloc != NULL)
        throw_bad_alloc();
    text_line("hakmem: out of memory in operator new (%u bytes), and no C++ library to throw bad_alloc", (uint64_t)size);
    abort();
}

HAK_INLINE void *new_plain(size_t size, bool throws) {
    void *p = alloc_malloc(size);
    return likely(p != NULL) ? p : new_failed(size, 0, throws);
}
HAK_INLINE void *new_aligned(size_t size, size_t alignment, bool throws) {
    void *p = alloc_aligned(alignment, size);
    return likely(p != NULL) ? p : new_failed(size, alignment, throws);
}

// clang-format off
OPERATOR(op_new,                     "_Znwm", size_t n) { return new_plain(n, true); }
OPERATOR(op_new_array,               "_Znam", size_t n) { return new_plain(n, true); }
OPERATOR(op_new_nothrow,             "_ZnwmRKSt9nothrow_t", size_t n, const struct nothrow *t) { (void)t; return new_plain(n, false); }
OPERATOR(op_new_array_nothrow,       "_ZnamRKSt9nothrow_t", size_t n, const struct nothrow *t) { (void)t; return new_plain(n, false); }
OPERATOR(op_new_aligned,             "_ZnwmSt11align_val_t", size_t n, size_t a) { return new_aligned(n, a, true); }
OPERATOR(op_new_array_aligned,       "_ZnamSt11align_val_t", size_t n, size_t a) { return new_aligned(n, a, true); }
OPERATOR(op_new_aligned_nothrow,     "_ZnwmSt11align_val_tRKSt9nothrow_t", size_t n, size_t a, const struct nothrow *t) { (void)t; return new_aligned(n, a, false); }
OPERATOR(op_new_array_aligned_nothrow, "_ZnamSt11align_val_tRKSt9nothrow_t", size_t n, size_t a, const struct nothrow *t) { (void)t; return new_aligned(n, a, false); }

DELETE(op_delete,                    "_ZdlPv", void *p) { alloc_free(p); }
DELETE(op_delete_array,              "_ZdaPv", void *p) { alloc_free(p); }
DELETE(op_delete_nothrow,            "_ZdlPvRKSt9nothrow_t", void *p, const struct nothrow *t) { (void)t; alloc_free(p); }
DELETE(op_delete_array_nothrow,      "_ZdaPvRKSt9nothrow_t", void *p, const struct nothrow *t) { (void)t; alloc_free(p); }
DELETE(op_delete_sized,              "_ZdlPvm", void *p, size_t n) { alloc_free_sized(p, n); }
DELETE(op_delete_array_sized,        "_ZdaPvm", void *p, size_t n) { alloc_free_sized(p, n); }
DELETE(op_delete_aligned,            "_ZdlPvSt11align_val_t", void *p, size_t a) { (void)a; alloc_free(p); }
DELETE(op_delete_array_aligned,      "_ZdaPvSt11align_val_t", void *p, size_t a) { (void)a; alloc_free(p); }
DELETE(op_delete_aligned_nothrow,    "_ZdlPvSt11align_val_tRKSt9nothrow_t", void *p, size_t a, const struct nothrow *t) { (void)a; (void)t; alloc_free(p); }
DELETE(op_delete_array_aligned_nothrow, "_ZdaPvSt11align_val_tRKSt9nothrow_t", void *p, size_t a, const struct nothrow *t) { (void)a; (void)t; alloc_free(p); }
DELETE(op_delete_sized_aligned,      "_ZdlPvmSt11align_val_t", void *p, size_t n, size_t a) { (void)a; alloc_free_sized(p, n); }
DELETE(op_delete_array_sized_aligned, "_ZdaPvmSt11align_val_t", void *p, size_t n, size_t a) { (void)a; alloc_free_sized(p, n); }
// clang-format on
