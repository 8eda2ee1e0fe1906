/* A program that allocates by the same calls in two arenas with names, one without, and the process's heap. */
#include <hakmem.h>
#include <stdio.h>
#include <string.h>

__attribute__((noinline)) static void fill(hak_arena *arena, int blocks) {
    for (int i = 0; i < blocks; i++) {
        void *block = arena != NULL ? hak_arena_malloc(arena, 5000) : hak_malloc(5000); // FILL
        memset(block, 1, 5000);
    }
}

int main(void) {
    const char *const names[] = {"parser", "scene: \"cache\"", NULL};
    for (int i = 0; i < 3; i++)
        fill(hak_arena_new(&(hak_arena_options){.name = names[i]}), 1000 * (i + 1));
    fill(NULL, 4000);
    puts("filled"), fflush(stdout);
    return getchar() == EOF ? 0 : 1;
}
