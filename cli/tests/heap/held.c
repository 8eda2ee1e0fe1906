/* Holds blocks, so that none of them is lost, and answers each line of its input by "done". Of its arguments the first
 * says how, and the others what `number` has below. Each block that is held by a variable holds one of 320 bytes.
 *
 *   blocks COUNT BYTES         blocks in a table of pointers
 *   sparse COUNT BYTES KEEP    the same, of which one in KEEP stays, at random; then memory is given back
 *   below COUNT BYTES          as blocks, but the table lies in one mapping with a thread's stack, below it
 *   refilled                   the same in eight classes, of which one in 16 stays; then each class allocates again */
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { HELD_MAX = 200000, HOLDS_BYTES = 320 };

static size_t number[3];
static void **variable[HELD_MAX];
static void ***held = variable;

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

static pthread_barrier_t ready;

static void *wait_for_ever(void *unused) {
    pthread_barrier_wait(&ready);
    for (;;)
        pause();
    return unused;
}

static void below(void) {
    enum { GUARD_BYTES = 64 << 10, TABLE_BYTES = HELD_MAX * sizeof *held, STACK_BYTES = 1 << 20 };
    pthread_t thread;
    pthread_attr_t stack;
    char *at =
        mmap(NULL, GUARD_BYTES + TABLE_BYTES + STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED || mprotect(at, GUARD_BYTES, PROT_NONE) != 0)
        abort();
    held = (void ***)(at + GUARD_BYTES);
    pthread_barrier_init(&ready, NULL, 2);
    pthread_attr_init(&stack);
    if (pthread_attr_setstack(&stack, at + GUARD_BYTES + TABLE_BYTES, STACK_BYTES) != 0 ||
        pthread_create(&thread, &stack, wait_for_ever, NULL) != 0)
        abort();
    pthread_barrier_wait(&ready);
    blocks();
}

/* So many from the first place on, of which one in `keep` stays. */
static void hold_some(size_t first, size_t count, size_t bytes, size_t keep) {
    static unsigned dice = 1;
    for (size_t i = first; i < first + count; i++)
        held[i] = allocate(bytes);
    for (size_t i = first; i < first + count; i++) {
        dice = dice * 1664525 + 1013904223;
        if ((dice >> 8) % keep != 0) {
            free(held[i]);
            held[i] = NULL;
        } else {
            held[i][0] = allocate(HOLDS_BYTES);
        }
    }
}

static void sparse(void) {
    hold_some(0, number[0], number[1], number[2]);
    malloc_trim(0);
}

static void refilled(void) {
    enum { BLOCKS = 4096 };
    for (size_t i = 0; i < 8; i++) {
        size_t first = i * BLOCKS, left = 5;
        hold_some(first, BLOCKS, 32 * (i + 1), 16);
        for (size_t at = first; left != 0; at++)
            if (held[at] == NULL)
                hold(at, 32 * (i + 1)), left--;
    }
}

int main(int argc, char **argv) {
    char line[32];
    for (int i = 2; i < argc; i++)
        number[i - 2] = strtoul(argv[i], NULL, 10);
    if (strcmp(argv[1], "blocks") == 0)
        blocks();
    else if (strcmp(argv[1], "sparse") == 0)
        sparse();
    else if (strcmp(argv[1], "below") == 0)
        below();
    else if (strcmp(argv[1], "refilled") == 0)
        refilled();
    setbuf(stdout, NULL);
    while (fgets(line, sizeof line, stdin) != NULL) {
        size_t count = 0;
        for (size_t i = 0; i < HELD_MAX; i++)
            count += held[i] != NULL;
        printf("%zu\ndone\n", count);
    }
    return 0;
}
