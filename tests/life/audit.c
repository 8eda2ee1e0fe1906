/* An audit module (rtld-audit(7)): the loader calls it for each library and each bound symbol, before the program and
 * the allocator have started. It allocates in each call, keeps some blocks, and reports when it saw the library. */
/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *kept;

static void allocate(size_t size) {
    char *block = malloc(size);
    if (block == NULL)
        abort();
    memset(block, 'a', size);
    free(kept);
    kept = block;
}

unsigned int la_version(unsigned int version) {
    allocate(100);
    return version < LAV_CURRENT ? version : LAV_CURRENT;
}

unsigned int la_objopen(struct link_map *map, Lmid_t space, uintptr_t *cookie) {
    static const char text[] = "audit: hakmem is loaded\n";
    (void)cookie;
    allocate(5000);
    if (space == LM_ID_BASE && strstr(map->l_name, "libhakmem") != NULL && write(2, text, sizeof text - 1) < 0)
        abort();
    return LA_FLG_BINDTO | LA_FLG_BINDFROM;
}

uintptr_t la_symbind64(Elf64_Sym *symbol, unsigned int index, uintptr_t *from, uintptr_t *to, unsigned int *flags,
                       const char *name) {
    (void)index, (void)from, (void)to, (void)flags, (void)name;
    allocate(300);
    return symbol->st_value;
}
