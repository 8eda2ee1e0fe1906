/* Holds blocks, so that none of them is lost, and answers each line of its input by "done". Of its arguments the first
 * says how, and the others what `number` has below. Each block that is held by a variable holds one of 320 bytes.
 *
 *   blocks COUNT BYTES         blocks in a table of pointers
 *   sparse COUNT BYTES KEEP    the same, of which one in KEEP stays, at random; then memory is given back */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HELD_MAX = 200000, HOLDS_BYTES = 320 };

static size_t number[3];
static void **held[HELD_MAX];

static void *allocate(size_t bytes) {
    void *block = malloc(bytes);
    if (block == NULL)
        abort();
    return memset(block, 0, bytes);
}

static void hold(size_t i, size_t bytes) {
    held[i] = allocate(bytes);
    held[i][0] = allocate(HOLDS_BYTES);
}

static void blocks(void) {
    for (size_t i = 0; i < number[0]; i++)
        hold(i, number[1]);
}

static void sparse(void) {
    unsigned dice = 1;
    for (size_t i = 0; i < number[0]; i++)
        held[i] = allocate(number[1]);
    for (size_t i = 0; i < number[0]; i++) {
        dice = dice * 1664525 + 1013904223;
        if ((dice >> 8) % number[2] != 0) {
            free(held[i]);
            held[i] = NULL;
        } else {
            held[i][0] = allocate(HOLDS_BYTES);
        }
    }
    malloc_trim(0);
}

int main(int argc, char **argv) {
    char line[32];
    for (int i = 2; i < argc; i++)
        number[i - 2] = strtoul(argv[i], NULL, 10);
    if (strcmp(argv[1], "blocks") == 0)
        blocks();
    else if (strcmp(argv[1], "sparse") == 0)
        sparse();
    setbuf(stdout, NULL);
    while (fgets(line, sizeof line, stdin) != NULL) {
        size_t count = 0;
        for (size_t i = 0; i < HELD_MAX; i++)
            count += held[i] != NULL;
        printf("%zu\ndone\n", count);
    }
    return 0;
}
