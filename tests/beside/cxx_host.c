/* A C program that loads a C++ plugin for itself alone. */
/* SPDX-License-Identifier: MIT */
#include <dlfcn.h>
#include <stdio.h>

int main(int count, char **arguments) {
    void *plugin = count == 2 ? dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    int (*work)(void) = plugin != NULL ? (int (*)(void))dlsym(plugin, "work") : NULL;
    if (work == NULL) {
        fprintf(stderr, "%s\n", plugin == NULL && count == 2 ? dlerror() : "cxx_host PLUGIN");
        return 2;
    }
    return work();
}
