/* A processor whose system does not keep the wide registers, or that has none. If it fails, secure mode uses them
 * there, and the program ends by SIGILL, or computes with another program's numbers. */
/* SPDX-License-Identifier: MIT */
#if defined(__x86_64__)
#include <cpuid.h>

static unsigned cpuid_features; /* what leaf 1 has in its third word; 0: there is no such leaf */
static int told_cpuid(unsigned leaf, unsigned *a, unsigned *b, unsigned *c, unsigned *d) {
    *a = *b = *d = 0;
    *c = cpuid_features;
    return leaf == 1 && cpuid_features != 0;
}
#define __get_cpuid told_cpuid
#endif
#include "base/os_linux.c"

#include <stdio.h>

int main(void) {
#if defined(__x86_64__)
    for (int has_leaf = 0; has_leaf < 2; has_leaf++) {
        cpuid_features = has_leaf ? ~(unsigned)bit_OSXSAVE : 0;
        if (os_has_wide()) {
            printf("wide registers that the system does not keep, leaf %d\n", has_leaf);
            return 1;
        }
    }
#endif
    puts("ok");
    return 0;
}
