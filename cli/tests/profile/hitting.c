/* A program whose every call of malloc takes the block that was freed last; it ends with its input. A line says that it
 * has begun. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

int main(void) {
    struct pollfd input = {0, POLLIN, 0};
    for (int round = 0; poll(&input, 1, 0) == 0; round++) {
        for (int i = 0; i < 10000; i++) {
            void *volatile block = malloc(3000); // HIT
            free(block);
        }
        if (round == 0)
            puts("begun"), fflush(stdout);
    }
    return 0;
}
