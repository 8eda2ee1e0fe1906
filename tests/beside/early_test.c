/* Before all constructors, the library's too, blocks have the size that is said: also those of the allocator that
 * SUPERSLAB=0 goes on to. */
/* SPDX-License-Identifier: MIT */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>

enum { BYTES = 100 };
static void *block;
static size_t usable;

static void begin(void) {
    block = malloc(BYTES);
    usable = malloc_usable_size(block);
}
__attribute__((section(".preinit_array"), used)) static void (*const begin_at)(void) = begin;

int main(void) {
    free(block);
    printf("%zu of %d bytes\n", usable, BYTES);
    return usable < BYTES;
}
