/* growing ROUNDS: fills and empties a heap of blocks of 500 bytes again and again, which new slabs serve. Blocks of 200 bytes are
 * few. */
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
    return 0;
}
