/* Uses HAKMEM as its users do; fails if malloc should be HAKMEM's and is not. */
/* SPDX-License-Identifier: MIT */
#include <hakmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void) {
    char version[32];
    snprintf(version, sizeof version, "%d.%d.%d", HAKMEM_VERSION_MAJOR, HAKMEM_VERSION_MINOR, HAKMEM_VERSION_PATCH);
    if (strcmp(version, hak_version()) != 0) {
        printf("header %s, library %s\n", version, hak_version());
        return 1;
    }
    char *block = hak_malloc(1000);
    if (!block || hak_usable_size(block) < 1000) {
        return 2;
    }
    memset(block, 1, 1000);
    hak_free(block);
#ifdef CONSUMER_EMBEDS
    block = malloc(1000); /* the system's malloc: another allocator beside ours */
    free(block);
#else
    block = malloc(1000);
    if (!block || hak_usable_size(block) != hak_good_size(1000)) {
        return 3;
    }
    hak_free(block); /* ends the program if the block is not HAKMEM's */
    free(hak_malloc(10));
#endif
    puts("consumer works");
    return 0;
}
