/* Preloaded beside the allocator under test: every process that starts records whose malloc it calls.
 *
 * Appends one line for each process to the file that WITNESS_FILE names: PID, program, and the file that /proc/PID/maps
 * shows at the address of the malloc that this process calls. */
/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Reads one line, truncated to `bytes`; returns 0 at the end. Reads byte by byte: simple, and the maps of short
 * programs are short. */
static int read_line(int fd, char *line, size_t bytes) {
    size_t length = 0;
    char c;
    while (read(fd, &c, 1) == 1 && c != '\n') {
        if (length < bytes - 1) {
            line[length++] = c;
        }
    }
    line[length] = 0;
    return length > 0;
}

/* Finds the file mapped at `address`, the last word of its line in maps; "?" if there is none. */
static void find_file(uintptr_t address, char *file, size_t bytes) {
    char line[1024];
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    snprintf(file, bytes, "?");
    while (fd >= 0 && read_line(fd, line, sizeof line)) {
        unsigned long begin, end;
        char *path = strchr(line, '/');
        if (path && sscanf(line, "%lx-%lx", &begin, &end) == 2 && begin <= address && address < end) {
            snprintf(file, bytes, "%s", path);
            break;
        }
    }
    close(fd);
}

/* Returns where the dynamic linker has bound this library's calls of malloc. (`&malloc` would not do: in a program that
 * is not position-independent, its value is a stub. Needs -Wl,-z,now and no -fno-plt.) */
static uintptr_t bound_malloc(void) {
    extern const char __ehdr_start[] __attribute__((visibility("hidden")));
    const ElfW(Rela) *relocations = NULL;
    const ElfW(Sym) *symbols = NULL;
    const char *names = NULL;
    size_t bytes = 0;
    for (const ElfW(Dyn) *entry = _DYNAMIC; entry->d_tag != DT_NULL; entry++) {
        switch (entry->d_tag) {
        case DT_JMPREL: relocations = (const void *)entry->d_un.d_ptr; break;
        case DT_PLTRELSZ: bytes = entry->d_un.d_val; break;
        case DT_SYMTAB: symbols = (const void *)entry->d_un.d_ptr; break;
        case DT_STRTAB: names = (const void *)entry->d_un.d_ptr; break;
        }
    }
    for (size_t i = 0; i < bytes / sizeof *relocations; i++) {
        if (strcmp(names + symbols[ELF64_R_SYM(relocations[i].r_info)].st_name, "malloc") == 0) {
            return *(const uintptr_t *)(__ehdr_start + relocations[i].r_offset);
        }
    }
    return 0;
}

__attribute__((constructor)) static void testify(void) {
    const char *name = getenv("WITNESS_FILE");
    void *volatile block = malloc(1); /* the call whose target is recorded */
    free(block);
    char program[512], file[1024], line[2048];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (!name || length < 0) {
        return;
    }
    program[length] = 0;
    find_file(bound_malloc(), file, sizeof file);
    length = snprintf(line, sizeof line, "%d\t%s\t%s\n", (int)getpid(), program, file);
    int fd = open(name, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0 || write(fd, line, (size_t)length) != length) {
        abort(); /* a process without a witness must not pass */
    }
    close(fd);
}
