/* The stack in a program that is linked statically, or with a libc that does not report its libraries. There is no
 * other unwinder to compare with, so every function records its own return address. If it fails, profiles of such
 * programs are empty. */
/* SPDX-License-Identifier: MIT */
#include "base/os.h"
#include "hakmem.h"
#include "observe/stack.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern char _dl_find_object __attribute__((weak)); /* NOLINT: glibc's name */

enum { DEPTH = 20, MOST = 64 };
static uintptr_t returns[MOST]; /* outermost first */
static unsigned depth;
static int checked;

__attribute__((noinline)) static void check(void) {
    uintptr_t callers[MOST];
    unsigned n = stack_capture(callers, MOST);
    struct os_module module = {.path = "unknown"};
    if (n < depth + 2 || !os_find_module(callers[0], &module) || strcmp(module.path, "") != 0) {
        printf("%u frames of more than %u, module %s\n", n, depth, module.path);
        exit(1);
    }
    for (unsigned i = 0; i < depth; i++)
        if (callers[i + 2] != returns[depth - 1 - i]) {
            printf("frame %u is %#lx, not %#lx\n", i + 2, (unsigned long)callers[i + 2],
                   (unsigned long)returns[depth - 1 - i]);
            exit(1);
        }
    /* glibc's loader is in the program and has a table, which has the program's name. */
    const char *path = "";
    uintptr_t base;
    if (&_dl_find_object != NULL && (!os_find_file(callers[0], &path, &base) || strstr(path, "stack_static") == NULL)) {
        printf("the program's file is %s\n", path);
        exit(1);
    }
    checked++;
}

__attribute__((noinline)) static int at_the_end(void) {
    returns[depth++] = (uintptr_t)__builtin_extract_return_addr(__builtin_return_address(0));
    check();
    return (int)--depth; /* forces a call instead of a jump */
}

__attribute__((noinline)) static int descend(int left) {
    volatile char some[64];
    some[0] = (char)left;
    returns[depth++] = (uintptr_t)__builtin_extract_return_addr(__builtin_return_address(0));
    int sum = left == 0 ? at_the_end() : descend(left - 1);
    depth--;
    return sum + some[0];
}

int main(void) {
    hak_free(hak_malloc(1));    /* so that the library's start is in the program */
    for (int i = 0; i < 3; i++) /* the later rounds use the cache */
        descend(DEPTH);
    printf("%s\n", checked == 3 ? "ok" : "not checked");
    return checked == 3 ? 0 : 1;
}
