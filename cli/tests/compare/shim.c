/* A malloc to preload: glibc's, made slow (SLOW), ending the program at its start (CRASH), or printing (LIAR). */
#include <stdlib.h>
#include <unistd.h>

extern void *__libc_malloc(size_t size);

void *malloc(size_t size) {
#ifdef SLOW
    for (volatile int i = 0; i < 200; i++)
        ;
#endif
    return __libc_malloc(size);
}

__attribute__((constructor)) static void start(void) {
#ifdef CRASH
    (void)!write(2, "the heap is broken\n", 19);
    abort();
#endif
#ifdef LIAR
    (void)!write(1, "lies\n", 5);
#endif
}
