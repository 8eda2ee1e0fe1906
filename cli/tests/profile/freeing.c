/* A program that frees all it allocates. It holds most after `refill`: 6 MB of the first line and 56 MB of the
 * second. */
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 8000, KEPT = 1000 };
static char *first[BLOCKS], *second[BLOCKS];

__attribute__((noinline)) static void fill(void) {
    for (int i = 0; i < BLOCKS; i++)
        first[i] = memset(malloc(6000), 1, 6000); // EARLY
}

__attribute__((noinline)) static void refill(void) {
    for (int i = 0; i < BLOCKS; i++)
        second[i] = memset(malloc(7000), 1, 7000); // LATE
}

static void release(char **blocks, int from, int to) {
    for (int i = from; i < to; i++)
        free(blocks[i]);
}

int main(void) {
    fill();
    release(first, KEPT, BLOCKS);
    refill();
    release(first, 0, KEPT);
    release(second, 0, BLOCKS);
    return 0;
}
