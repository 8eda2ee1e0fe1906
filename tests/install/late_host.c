/* A program that has used libc's malloc when it opens a plugin that is linked with HAKMEM; blocks are freed on the
 * other side.
 *
 *     late_host PLUGIN FLAGS      FLAGS: local, global, or deep: then the plugin's malloc is HAKMEM's, the program's is
 *                                 not
 */
/* SPDX-License-Identifier: MIT */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *(*twice)(const char *);
static void (*let_go)(void *);
static int (*own_blocks)(void);

static void *both_ways(void *keeps) {
    for (size_t bytes = 1; bytes < 3000000; bytes = bytes * 3 + 1) {
        char *ours = malloc(bytes + 1);
        memset(ours, 'x', bytes);
        ours[bytes] = '\0';
        char *theirs = twice(ours);
        if (strlen(theirs) != 2 * bytes || !own_blocks())
            exit(4);
        if (!keeps) {
            free(theirs);
            let_go(ours);
        }
    }
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    char *before = malloc(1000);
    int flags = RTLD_NOW | (strcmp(argv[2], "global") == 0 ? RTLD_GLOBAL : RTLD_LOCAL);
    int deep = strcmp(argv[2], "deep") == 0;
    void *plugin = dlopen(argv[1], deep ? flags | RTLD_DEEPBIND : flags);
    if (!plugin) {
        puts(dlerror());
        return 3;
    }
    *(void **)&twice = dlsym(plugin, "plugin_twice");
    *(void **)&let_go = dlsym(plugin, "plugin_free");
    *(void **)&own_blocks = dlsym(plugin, "plugin_own_blocks");
    pthread_t thread;
    pthread_create(&thread, NULL, both_ways, deep ? plugin : NULL);
    both_ways(deep ? plugin : NULL);
    pthread_join(thread, NULL);
    if (deep)
        puts("each keeps its blocks"), fflush(stdout);
    let_go(before); /* if deep, an error, and HAKMEM says so */
    dlclose(plugin);
    free(malloc(1000));
    puts("consumer works");
    return 0;
}
