/* The plugin of late_host: it allocates with malloc for the program, and with hak_malloc for itself. */
/* SPDX-License-Identifier: MIT */
#include <hakmem.h>
#include <stdlib.h>
#include <string.h>

char *plugin_twice(const char *text) {
    char *both = malloc(2 * strlen(text) + 1);
    return strcat(strcpy(both, text), text);
}

void plugin_free(void *block) { free(block); }

int plugin_own_blocks(void) {
    char *block = hak_malloc(5000);
    int works = block && hak_usable_size(block) >= 5000;
    hak_free(block);
    return works;
}
