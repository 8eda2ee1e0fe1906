/* A program that knows nothing of HAKMEM and opens a library with RTLD_DEEPBIND: deepbind CASE PLUGIN. Prints which
 * of two functions of one name the library calls, or why it could not be opened. */
/* SPDX-License-Identifier: MIT */
#include "deepbind.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

const char *whose(void) { return "the program's"; }

#ifdef DEEPBIND_OWN_MALLOC
static char memory[1 << 20];
static size_t used;
void *malloc(size_t bytes) { return memory + (used += (bytes + 15) / 16 * 16) - (bytes + 15) / 16 * 16; }
void *calloc(size_t count, size_t bytes) { return malloc(count * bytes); }
void *realloc(void *block, size_t bytes) {
    void *moved = malloc(bytes);
    return block != NULL ? memcpy(moved, block, bytes) : moved;
}
void free(void *block) { (void)block; }
#endif

static int passes_blocks(void *plugin, int both_ways) {
    if (plugin == NULL) {
        puts(dlerror());
        return 1;
    }
    void *(*take)(void) = (void *(*)(void))dlsym(plugin, "plugin_take");
    void (*give_back)(void *) = (void (*)(void *))dlsym(plugin, "plugin_give_back");
    const char *(*sees)(void) = (const char *(*)(void))dlsym(plugin, "plugin_sees");
    if (both_ways) {
        free(take());
        give_back(malloc(100));
    }
    give_back(take());
    puts(sees());
    fflush(stdout);
    return 0;
}

static void *come_and_go(void *path) {
    for (int round = 0; round < 20; round++) {
        void *plugin = dlopen(path, RTLD_LAZY | RTLD_DEEPBIND);
        void *(*take)(void) = (void *(*)(void))dlsym(plugin, "plugin_take");
        free(take());
        dlclose(plugin);
    }
    return NULL;
}

static int in_threads(char *path) {
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, come_and_go, path);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    return puts("came and went") < 0;
}

int main(int count, char **arguments) {
    const char *name = count == 3 ? arguments[1] : "";
    char *path = arguments[2];
    int mode = RTLD_NOW | RTLD_DEEPBIND, status = 0;
    if (strcmp(name, "path") == 0)
        return passes_blocks(dlopen(path, mode), 1);
    if (strcmp(name, "own") == 0)
        return passes_blocks(dlopen(path, mode), 0);
    if (strcmp(name, "runpath") == 0)
        return passes_blocks(opener_open("libdeepbind_plugin.so", mode), 1);
    if (strcmp(name, "base") == 0)
        return passes_blocks(dlmopen(LM_ID_BASE, path, mode), 1);
    if (strcmp(name, "namespace") == 0)
        return passes_blocks(dlmopen(LM_ID_NEWLM, path, mode), 0);
    if (strcmp(name, "threads") == 0)
        return in_threads(path);
    if (strcmp(name, "child") == 0) {
        if (fork() == 0)
            return passes_blocks(dlopen(path, mode), 1);
        wait(&status);
        return status != 0;
    }
    return 2;
}
