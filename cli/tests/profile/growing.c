/* growing ROUNDS [stay]: fills and empties a heap of blocks of 500 bytes again and again, which new slabs serve. Blocks
 * of 200 bytes are few. With `stay` it says when that is done, and ends when its standard input does. */
#include <stdio.h>
#include <stdlib.h>

enum { BLOCKS = 20000 };

int main(int argc, char **argv) {
    static char *held[BLOCKS];
    for (int rounds = argc > 1 ? atoi(argv[1]) : 1; rounds > 0; rounds--) {
        for (int i = 0; i < BLOCKS; i++)
            (held[i] = malloc(i % 100 == 0 ? 200 : 500))[0] = 1;
        for (int i = 0; i < BLOCKS; i++)
            free(held[i]);
    }
    if (argc > 2) {
        puts("grown");
        fflush(stdout);
        getchar();
    }
    return 0;
}
