/* A library whose RUNPATH leads to the plugin; the program has none. Preloaded with DEEPBIND_EARLY in the
 * environment, it opens the plugin in its constructor. */
/* SPDX-License-Identifier: MIT */
#include "deepbind.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

void *opener_open(const char *file, int mode) {
    void *opened = dlopen(file, mode);
    return opened;
}

__attribute__((constructor)) static void early(void) {
    const char *file = getenv("DEEPBIND_EARLY");
    void *opened = file != NULL ? opener_open(file, RTLD_NOW | RTLD_DEEPBIND) : NULL;
    if (opened == NULL)
        return;
    void *(*take)(void) = (void *(*)(void))dlsym(opened, "plugin_take");
    free(take());
    puts("early");
}
