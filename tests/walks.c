/* Records which functions of the library a long malloc and a long free run. walks.py builds the library with
 * -finstrument-functions, whose calls arrive here. Prints the name of a walk, then a line for each function that it
 * enters. */
/* SPDX-License-Identifier: MIT */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define BYTES 48
#define BLOCKS (8 << 20) / BYTES /* so much that what is freed comes to be over the bound of EMPTY slots */
#define STEPS_MAX 10000
#define LONG_STEPS 100 /* a hit takes some ten */

static uintptr_t function[STEPS_MAX];
static int depth_of[STEPS_MAX], steps, depth;

void __cyg_profile_func_enter(void *entered, void *caller);
void __cyg_profile_func_exit(void *left, void *caller);
void __cyg_profile_func_enter(void *entered, void *caller) {
    (void)caller;
    function[steps] = (uintptr_t)entered;
    depth_of[steps] = depth++;
    steps += steps < STEPS_MAX - 1;
}
void __cyg_profile_func_exit(void *left, void *caller) {
    (void)left, (void)caller;
    depth--;
}

/* The library is linked statically and the program not moved, so that addresses are those in its file. */
static void print_if_long(const char *name) {
    int all = steps;
    if (all >= LONG_STEPS)
        puts(name);
    for (int i = 0; all >= LONG_STEPS && i < all; i++)
        printf("%d %lx\n", depth_of[i], (unsigned long)function[i]);
    steps = depth = 0;
}

int main(void) {
    static void *block[BLOCKS];
    static char output[1 << 16];
    setvbuf(stdout, output, _IOFBF, sizeof output); /* else it is allocated */
    for (int i = 0; i < BLOCKS; i++) {
        steps = depth = 0;
        block[i] = malloc(BYTES);
        print_if_long("malloc");
    }
    for (int i = 0; i < BLOCKS; i++) {
        steps = depth = 0;
        free(block[i]);
        print_if_long("free");
    }
    return 0;
}
