/* dlmopen without RTLD_DEEPBIND: see deepbind.c. In the shared library alone, as a static program's dlopen goes on
 * to libc's dlmopen. */
/* SPDX-License-Identifier: MIT */
#include "base/os_jump.h"
#include "beside/next.h"

#include <dlfcn.h>

HAK_HIDDEN os_jump_choice deepbind_in_dlmopen;
OS_JUMP("dlmopen", "deepbind_in_dlmopen");

static void *not_there(void) { return NULL; }

HAK_KEPT uintptr_t deepbind_in_dlmopen(uintptr_t *arguments) {
    uintptr_t next = next_function(NEXT_dlmopen);
    if (arguments[0] == LM_ID_BASE)
        arguments[2] = deepbind_without(arguments[2], (const char *)arguments[1]); /* NOLINT: an argument */
    return next != 0 ? next : (uintptr_t)not_there;
}
