/* A program with a malloc of its own, which hands out each byte of a buffer once. OWN says who sees it: "default" all
 * of the process, "hidden" the program alone. */
/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <string.h>
#include <sys/types.h>

#define MINE __attribute__((visibility(OWN), noinline))

static _Alignas(16) char buffer[1 << 20];
static size_t used;

static int is_mine(const void *p) { return (const char *)p >= buffer && (const char *)p < buffer + sizeof buffer; }

MINE void *malloc(size_t bytes) {
    size_t at = used;
    used += (bytes + 31) / 16 * 16;
    return used <= sizeof buffer ? buffer + at : NULL;
}
MINE void *calloc(size_t n, size_t bytes) { return malloc(n * bytes); }
MINE void *realloc(void *p, size_t bytes) {
    char *moved = malloc(bytes);
    if (p && moved) /* the bytes behind the block are the buffer's, too */
        memcpy(moved, p, bytes);
    return moved;
}
MINE void free(void *p) {
    if (p && !is_mine(p))
        puts("a block of another malloc");
}

int main(void) {
    char *volatile block = malloc(100);
    char *line = NULL;
    size_t bytes = 0;
    FILE *maps = fopen("/proc/self/maps", "r"); /* libc allocates */
    if (!maps || getline(&line, &bytes, maps) < 0 || fclose(maps) != 0)
        return 1;
    if (is_mine(line)) /* else it is whose libc thinks it is */
        free(line);
    block = realloc(block, 1000);
    free(block);
    puts(is_mine(block) ? "consumer works" : "not my block");
    return 0;
}
