/* dlopen without RTLD_DEEPBIND; dlmopen.c does the same. A library that is opened with that flag calls libc's malloc
 * and free, whatever the program calls, so the first block that passes between library and program is freed by
 * the wrong allocator.
 *
 * The flag stays where it is harmless or meant: where the program's malloc is not this library's, in a namespace of
 * its own (which has a libc of its own, too), and with KEEP_DEEPBIND=1. */
/* SPDX-License-Identifier: MIT */
#include "base/options.h"
#include "base/os_jump.h"
#include "base/text.h"
#include "beside/next.h"

#include <dlfcn.h>
#include <string.h>

HAK_HIDDEN os_jump_choice deepbind_in_dlopen;
OS_JUMP("dlopen", "deepbind_in_dlopen");

static _Atomic bool was_told; /* pairs with itself: one line a process */

uintptr_t deepbind_without(uintptr_t mode, const char *file) {
    options_init();
    if (!(mode & RTLD_DEEPBIND) || file == NULL || option(OPT_KEEP_DEEPBIND) || !next_malloc_is_own())
        return mode;
    if (option(OPT_CRASH_LOG) && !load_relaxed(&was_told) && !rmw_swap(&was_told, true)) {
        const char *slash = strrchr(file, '/'), *name = slash != NULL ? slash + 1 : file;
        text_line("hakmem: dlopen of %q without RTLD_DEEPBIND, so that it has the program's malloc "
                  "(HAKMEM_KEEP_DEEPBIND=1 leaves the flag)",
                  name, strlen(name));
    }
    return mode & ~(uintptr_t)RTLD_DEEPBIND;
}

/* In a static program, where dlopen cannot be found by its name. */
static void *by_dlmopen(const char *file, int mode) { return dlmopen(LM_ID_BASE, file, mode); }

HAK_KEPT uintptr_t deepbind_in_dlopen(uintptr_t *arguments) {
    uintptr_t next = next_function(NEXT_dlopen);
    arguments[1] = deepbind_without(arguments[1], (const char *)arguments[0]); /* NOLINT: an argument */
    return next != 0 ? next : (uintptr_t)by_dlmopen;
}
