/* A program that errs in a thread named "worker": erring double, or erring after. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

__attribute__((noinline)) static void release(char *block) {
    free(block); // FREE
    __asm__ volatile("" ::: "memory");
}

static inline __attribute__((always_inline)) char *request(void) {
    return memset(malloc(48), 1, 48); // ALLOCATE
}

static void *work(void *how) {
    pthread_setname_np(pthread_self(), "worker");
    char *block = request(); // REQUEST
    release(block); // FIRST
    if (strcmp(how, "after") == 0)
        *(volatile char *)(block + 8) = 2; // WRITE
    release(block); // SECOND
    return NULL;
}

int main(int count, char **arguments) {
    pthread_t thread;
    if (count != 2 || pthread_create(&thread, NULL, work, arguments[1]) != 0)
        return 1;
    pthread_join(thread, NULL);
    return 0;
}
