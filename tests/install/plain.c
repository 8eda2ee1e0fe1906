/* A program that knows nothing of HAKMEM: it names only functions that the compiler knows, too. */
/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void) {
    char *volatile block = malloc(100); /* volatile: else a compiler may leave the block out */
    if (!block)
        return 1;
    memset(block, 1, 100);
    block = realloc(block, 5000);
    if (!block || block[99] != 1)
        return 2;
    free(block);
    puts("consumer works");
    return 0;
}
