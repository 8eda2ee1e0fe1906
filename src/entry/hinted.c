/* The calls by which a compiler says more of a block than its size, by their linker names.
 *
 *  1. operator new(size_t, __hot_cold_t), by profiles of memory (clang's -fmemory-profile-use): below HINT_NOT_COLD
 *     the block goes to the lane of cold blocks, else where all blocks go.
 *  2. __size_returning_new (P0901, as in tcmalloc): operator new, and how many bytes the block really has.
 *  3. __alloc_token_malloc and its kin (clang's -fsanitize=alloc-token): blocks of types with pointers go to a lane of
 *     their own, so what overflows a block of plain data never reaches a pointer.
 *
 * What no lane serves (above 64 KiB, in secure mode, without memory) is the usual call's, as it is bound: the program
 * may have its own, and new asks the new_handler. */
/* SPDX-License-Identifier: MIT */
#include "alloc/alloc.h"
#include "arena/arena_alloc.h"
#include "arena/lane.h"
#include "entry/new_handler.h"

#include <stdlib.h>
#include <string.h>

enum { HINT_NOT_COLD = 128 };

struct nothrow;
struct sized_block {
    void *block;
    size_t bytes;
};

#define CALL(result, name, symbol, ...)                                                                                \
    HAK_API result name(__VA_ARGS__) __asm__(symbol);                                                                  \
    result name(__VA_ARGS__)

void *memalign(size_t alignment, size_t size);
void *pvalloc(size_t size);
/* ---- which lane ---- */

static unsigned lane_of_hint(uint8_t hint) { return hint < HINT_NOT_COLD ? HAK_POLICY_COLD : HAK_POLICY_DEFAULT; }

/* In the default mode, typehashpointersplit, types with pointers have the upper half of all tokens, or the second of
 * two (-falloc-token-max=2). */
static unsigned lane_of_token(size_t token) {
    return token >> (sizeof token * 8 - 1) || token == 1 ? LANE_POINTERS : HAK_POLICY_DEFAULT;
}

/* Allocates in the lane. NULL: the usual call is to allocate. */
static void *block_in(unsigned lane, size_t size, size_t alignment) {
    return lane != HAK_POLICY_DEFAULT ? alloc_in_lane(lane, size, alignment) : NULL;
}
/* Blocks of a program's own operator are not ours to make. */
static void *new_in(unsigned lane, size_t size, size_t alignment, bool array) {
    return new_is_ours(array, alignment != 0) ? block_in(lane, size, max_size(alignment, 1)) : NULL;
}

// clang-format off
/* ---- operators: in a lane, else as usual ---- */

#define PLAIN(...) __VA_ARGS__ /* without the parentheses */
#define OPERATOR(name, symbol, is_array, alignment, parameters, arguments)                                             \
    void *usual_##name parameters __asm__(symbol);                                                                     \
    static void *name(unsigned lane, PLAIN parameters) {                                                               \
        void *p = new_in(lane, n, alignment, is_array);                                                                \
        return p != NULL ? p : usual_##name arguments;                                                                 \
    }                                                                                                                  \
    CALL(void *, hinted_##name, symbol "12__hot_cold_t", PLAIN parameters, uint8_t hint) {                             \
        return name(lane_of_hint(hint), PLAIN arguments);                                                              \
    }                                                                                                                  \
    CALL(void *, token_##name, "__alloc_token_" symbol, PLAIN parameters, size_t token) {                              \
        return name(lane_of_token(token), PLAIN arguments);                                                            \
    }

#define NOTHROW const struct nothrow *t
OPERATOR(one, "_Znwm", false, 0, (size_t n), (n))
OPERATOR(array, "_Znam", true, 0, (size_t n), (n))
OPERATOR(one_nothrow, "_ZnwmRKSt9nothrow_t", false, 0, (size_t n, NOTHROW), (n, t))
OPERATOR(array_nothrow, "_ZnamRKSt9nothrow_t", true, 0, (size_t n, NOTHROW), (n, t))
OPERATOR(one_aligned, "_ZnwmSt11align_val_t", false, a, (size_t n, size_t a), (n, a))
OPERATOR(array_aligned, "_ZnamSt11align_val_t", true, a, (size_t n, size_t a), (n, a))
OPERATOR(one_aligned_nothrow, "_ZnwmSt11align_val_tRKSt9nothrow_t", false, a, (size_t n, size_t a, NOTHROW), (n, a, t))
OPERATOR(array_aligned_nothrow, "_ZnamSt11align_val_tRKSt9nothrow_t", true, a, (size_t n, size_t a, NOTHROW), (n, a, t))

/* ---- sizes returned ---- */

static struct sized_block sized(void *p, size_t asked, bool is_aligned) {
    return (struct sized_block){p, new_is_ours(false, is_aligned) ? alloc_usable(p, "__size_returning_new") : asked};
}
CALL(struct sized_block, sized_new, "__size_returning_new", size_t n) { return sized(usual_one(n), n, false); }
CALL(struct sized_block, sized_aligned, "__size_returning_new_aligned", size_t n, size_t a) {
    return sized(usual_one_aligned(n, a), n, true);
}
CALL(struct sized_block, sized_hinted, "__size_returning_new_hot_cold", size_t n, uint8_t h) {
    return sized(hinted_one(n, h), n, false);
}
CALL(struct sized_block, sized_aligned_hinted, "__size_returning_new_aligned_hot_cold", size_t n, size_t a, uint8_t h) {
    return sized(hinted_one_aligned(n, a, h), n, true);
}

/* ---- tokens ---- */

CALL(void *, token_malloc, "__alloc_token_malloc", size_t n, size_t token) {
    void *p = block_in(lane_of_token(token), n, 1);
    return p != NULL ? p : malloc(n);
}
CALL(void *, token_calloc, "__alloc_token_calloc", size_t count, size_t n, size_t token) {
    size_t whole;
    bool overflows = __builtin_mul_overflow(count, n, &whole);
    void *p = overflows ? NULL : block_in(lane_of_token(token), whole, 1);
    return p != NULL ? memset(p, 0, whole) : calloc(count, n);
}
/* A block stays in its lane. */
CALL(void *, token_realloc, "__alloc_token_realloc", void *block, size_t n, size_t token) {
    return block == NULL ? token_malloc(n, token) : realloc(block, n);
}
CALL(void *, token_reallocarray, "__alloc_token_reallocarray", void *block, size_t count, size_t n, size_t token) {
    size_t whole;
    bool is_new = block == NULL && !__builtin_mul_overflow(count, n, &whole);
    return is_new ? token_malloc(whole, token) : reallocarray(block, count, n);
}
CALL(void *, token_memalign, "__alloc_token_memalign", size_t a, size_t n, size_t token) {
    void *p = block_in(lane_of_token(token), n, a);
    return p != NULL ? p : memalign(a, n);
}
CALL(void *, token_aligned_alloc, "__alloc_token_aligned_alloc", size_t a, size_t n, size_t token) {
    void *p = block_in(lane_of_token(token), n, a);
    return p != NULL ? p : aligned_alloc(a, n);
}
CALL(int, token_posix_memalign, "__alloc_token_posix_memalign", void **result, size_t a, size_t n, size_t token) {
    void *p = a % sizeof(void *) == 0 ? block_in(lane_of_token(token), n, a) : NULL;
    if (p == NULL)
        return posix_memalign(result, a, n);
    *result = p;
    return 0;
}
/* These allocate whole pages, which are in no lane, as they share them with nothing. */
CALL(void *, token_valloc, "__alloc_token_valloc", size_t n, size_t token) { return (void)token, valloc(n); }
CALL(void *, token_pvalloc, "__alloc_token_pvalloc", size_t n, size_t token) { return (void)token, pvalloc(n); }
// clang-format on
