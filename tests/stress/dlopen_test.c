/* A program that knows nothing of HAKMEM loads the library with dlopen, uses it beside glibc's malloc, also from
 * threads, and closes it while a thread that used it still lives. If it fails, embedding the library in a plugin
 * crashes the host. */
/* SPDX-License-Identifier: MIT */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *(*library_malloc)(size_t);
static void (*library_free)(void *);
static pthread_barrier_t used, closed;

static void die(const char *what) {
    fprintf(stderr, "dlopen_test: %s: %s\n", what, dlerror());
    exit(1);
}

static void use(void) {
    for (size_t size = 1; size < 4000000; size = size * 3 + 1) {
        char *ours = library_malloc(size), *theirs = malloc(size);
        if (ours == NULL || theirs == NULL)
            die("no memory");
        memset(ours, 1, size);
        memset(theirs, 2, size);
        if (ours[size - 1] != 1 || ours[0] != 1)
            die("blocks overlap");
        library_free(ours);
        free(theirs);
    }
}

static void *outlive(void *nothing) {
    use();
    pthread_barrier_wait(&used);
    pthread_barrier_wait(&closed);
    return nothing; /* the thread gives its heap back after the dlclose */
}

int main(int argc, char **argv) {
    if (argc != 2)
        return 2;
    for (int round = 0; round < 5; round++) {
        void *library = dlopen(argv[1], RTLD_NOW);
        if (library == NULL)
            die("dlopen");
        *(void **)&library_malloc = dlsym(library, "hak_malloc");
        *(void **)&library_free = dlsym(library, "hak_free");
        if (library_malloc == NULL || library_free == NULL)
            die("dlsym");
        use();
        pthread_t thread;
        pthread_barrier_init(&used, NULL, 2);
        pthread_barrier_init(&closed, NULL, 2);
        if (pthread_create(&thread, NULL, outlive, NULL) != 0)
            die("pthread_create");
        pthread_barrier_wait(&used);
        dlclose(library);
        pthread_barrier_wait(&closed);
        pthread_join(thread, NULL);
    }
    puts("ok");
    return 0;
}
