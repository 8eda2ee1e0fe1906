/* See snapshot.h. */
/* SPDX-License-Identifier: MIT */
#include "base/snapshot.h"
#include "base.h"

typedef uint64_t __attribute__((may_alias)) wide_word;
typedef uint32_t __attribute__((may_alias)) narrow_word;

/* No atomics, which clang would show the sanitizer even here. */
HAK_READS_WHOLE_WORDS void snapshot(void *to, const void *from, size_t bytes) {
    const volatile wide_word *wide = from;
    const volatile narrow_word *narrow = from;
    bool is_wide = ((uintptr_t)from | bytes) % sizeof *wide == 0;
    for (size_t i = 0; is_wide && i < bytes / sizeof *wide; i++)
        ((wide_word *)to)[i] = wide[i];
    for (size_t i = 0; !is_wide && i < bytes / sizeof *narrow; i++)
        ((narrow_word *)to)[i] = narrow[i];
}
