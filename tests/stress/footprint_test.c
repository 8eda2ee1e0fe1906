/* What the library costs a small program in C: the pages of its variables that the program has to itself, and a page of
 * blocks for sizes that share a class. If it fails, each of many small processes is larger; cmake/layout.ld says what
 * belongs where. */
/* SPDX-License-Identifier: MIT */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* 3 pages are relocated, 3 are the heap's with its rings; small variables, the addresses, the program's path, and what
 * fork clears have one each. */
enum { KIB_MAX = 48 };

int main(void) {
    static char line[512];
    unsigned long kib = 0, sum = 0, path = 0;
    int inside = 0, seen = 0;
    /* What most programs have: small blocks, a buffer of a file, some of other sizes. */
    static const size_t sizes[] = {48, 1200, 2000, 4096, 6000, 32768};
    enum { BLOCKS = sizeof sizes / sizeof sizes[0] };
    void *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++)
        if ((blocks[i] = malloc(sizes[i])) == NULL)
            return 1;
    FILE *smaps = fopen("/proc/self/smaps", "r");
    static char buffer[BUFSIZ];
    if (smaps == NULL || setvbuf(smaps, buffer, _IOFBF, sizeof buffer) != 0)
        return 1;
    while (fgets(line, sizeof line, smaps) != NULL) {
        if (strstr(line, "-") != NULL && sscanf(line, "%*x-%*x %*s %*s %*s %lu", &path) == 1)
            /* its variables without a value follow, as mappings without a file */
            seen |= inside = strstr(line, "libhakmem") != NULL || (inside && path == 0);
        else if (inside && sscanf(line, "Anonymous: %lu kB", &kib) == 1)
            sum += kib;
    }
    fclose(smaps);
    uintptr_t shared = (uintptr_t)malloc(290) ^ (uintptr_t)malloc(400);
    if (shared >> 16 != 0)
        dprintf(1, "blocks of 290 and 400 bytes lie in two slabs\n");
    for (int i = 0; i < BLOCKS; i++)
        free(blocks[i]);
    dprintf(1, "%s: %lu KiB of the library's variables\n", seen && sum <= KIB_MAX ? "ok" : "too much", sum);
    return 0;
}
