/* dlopen and dlmopen without RTLD_DEEPBIND. A library that is opened with that flag calls libc's malloc and free,
 * whatever the program calls, so that the first block that passes between the two is freed by the wrong one.
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

HAK_HIDDEN os_jump_choice deepbind_in_dlopen, deepbind_in_dlmopen;
OS_JUMP("dlopen", "deepbind_in_dlopen");
OS_JUMP("dlmopen", "deepbind_in_dlmopen");

static _Atomic bool was_told; /* pairs with itself: one line a process */

/* `file`: NULL for the program itself, which the flag does not change. */
static uintptr_t without_deepbind(uintptr_t mode, const char *file) {
    options_init();
    if (!(mode & RTLD_DEEPBIND) || file == NULL || option(OPT_KEEP_DEEPBIND) || !next_malloc_is_own())
        return mode;
    if (option(OPT_CRASH_LOG) && !load_relaxed(&was_told) && !rmw_swap(&was_told, true)) {
        TEXT_TO_FD(line, 2, 512);
        const char *slash = strrchr(file, '/'), *name = slash != NULL ? slash + 1 : file;
        text_string(&line, "hakmem: dlopen of ");
        text_printable(&line, name, strlen(name));
        text_string(&line, " without RTLD_DEEPBIND, so that it has the program's malloc (HAKMEM_KEEP_DEEPBIND=1 "
                           "leaves the flag)\n");
        text_flush(&line);
    }
    return mode & ~(uintptr_t)RTLD_DEEPBIND;
}

static void *not_there(void) { return NULL; }

static uintptr_t next_or_none(enum next which) {
    uintptr_t next = next_function(which);
    return next != 0 ? next : (uintptr_t)not_there;
}

HAK_KEPT uintptr_t deepbind_in_dlopen(uintptr_t *arguments) {
    uintptr_t next = next_or_none(NEXT_dlopen);
    arguments[1] = without_deepbind(arguments[1], (const char *)arguments[0]); /* NOLINT: an argument */
    return next;
}

HAK_KEPT uintptr_t deepbind_in_dlmopen(uintptr_t *arguments) {
    uintptr_t next = next_or_none(NEXT_dlmopen);
    if (arguments[0] == LM_ID_BASE)
        arguments[2] = without_deepbind(arguments[2], (const char *)arguments[1]); /* NOLINT: likewise */
    return next;
}
