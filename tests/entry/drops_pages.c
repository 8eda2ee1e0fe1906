/* Makes the heap give pages back in each way there is: slots, runs, free pages inside slabs, blocks that move and
 * shrink, threads. With an argument only makes a thread, with which libc drops pages itself; with "hidden" then drops
 * pages without libc's names. */
/* SPDX-License-Identifier: MIT */
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { BLOCKS = 300, MOST = 900000 };

static void *come_and_go(void *kept) {
    static unsigned seed;
    void *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) {
        seed = seed * 1103515245 + 12345;
        size_t bytes = 100 + seed / 65536 * 13 % (i % 3 == 0 ? MOST : 9000);
        blocks[i] = malloc(bytes);
        memset(blocks[i], 1, bytes);
    }
    for (int i = 0; i < BLOCKS; i++)
        free(blocks[i * 7 % BLOCKS]);
    return kept;
}

static void *do_nothing(void *kept) { return kept; }

static int in_thread(void *call(void *)) {
    pthread_t thread;
    return pthread_create(&thread, NULL, call, NULL) != 0 || pthread_join(thread, NULL) != 0;
}

static int drop_hidden(void) {
    static _Alignas(1 << 16) char pages[1 << 16];
    return syscall(SYS_madvise, pages, sizeof pages, MADV_DONTNEED) != 0;
}

int main(int argc, char **argv) {
    if (argc > 1)
        return in_thread(do_nothing) || (strcmp(argv[1], "hidden") == 0 && drop_hidden());
    for (int round = 0; round < 10; round++) {
        come_and_go(NULL);
        malloc_trim(0);
        char *grows = malloc(3 << 20);
        for (size_t bytes = 4 << 20; bytes < 200 << 20; bytes *= 2) {
            grows = realloc(grows, bytes);
            grows[bytes - 1] = 1;
        }
        grows = realloc(grows, 5 << 20);
        free(grows);
        if (round == 5 && in_thread(come_and_go))
            return 1;
    }
    return 0;
}
