/* See replaced.h. */
/* SPDX-License-Identifier: MIT */
#include "beside/replaced.h"
#include "arena/brought.h"
#include "base/os.h"
#include "classes.h"
#include "region.h"

#include <errno.h>

enum { MALLOC_ALIGNMENT = 16 };
enum replaced { REPLACED_UNKNOWN, REPLACED_NOT, REPLACED };

static _Atomic uint8_t replaced; /* enum replaced. Any thread; pairs with itself: nothing depends on it */

/* Natively malloc comes here again, and must find that it is not replaced. */
HAK_COLD static uint8_t ask(void) {
    store_relaxed(&replaced, REPLACED_NOT);
    if (&libc_calls == NULL || !os_is_in_valgrind())
        return REPLACED_NOT;
    const struct replaced_calls *calls = &libc_calls;
    HAK_FORGET(calls);
    void *p = calls->malloc(1);
    if (p != NULL && !region_has(p))
        store_relaxed(&replaced, REPLACED);
    calls->free(p);
    return load_relaxed(&replaced);
}

__attribute__((constructor(101))) static void replaced_start(void) { replaced_calls(); }

const struct replaced_calls *replaced_calls(void) {
    uint8_t known = load_relaxed(&replaced);
    if (unlikely(known == REPLACED_UNKNOWN))
        known = ask();
    const struct replaced_calls *calls = likely(known == REPLACED_NOT) ? NULL : &libc_calls;
    HAK_FORGET(calls); /* in line, the calls would be ours */
    return calls;
}

bool replaced_has(const void *p) { return !region_has(p) && replaced_calls() != NULL && brought_record(p) == NULL; }

bool replaced_free(void *p) {
    if (!replaced_has(p))
        return false;
    replaced_calls()->free(p);
    return true;
}

void *replaced_malloc(size_t bytes, size_t alignment, bool *zero) {
    const struct replaced_calls *calls = replaced_calls();
    size_t natural = bytes <= MID_BYTES_MAX ? bytes & -bytes : 1;
    void *p = NULL;
    *zero = false;
    if (max_size(alignment, natural) <= MALLOC_ALIGNMENT)
        return calls->malloc(bytes);
    int error = calls->posix_memalign(&p, max_size(alignment, natural), bytes);
    if (error != 0)
        errno = error;
    return error == 0 ? p : NULL;
}
