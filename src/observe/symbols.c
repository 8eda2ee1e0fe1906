/* See symbols.h. */
/* SPDX-License-Identifier: MIT */
#include "observe/symbols.h"

#include <elf.h>
#include <link.h>
#include <string.h>

/* Opens the file that the module was mapped from. Returns -1 if it cannot be read or has been replaced since. */
HAK_STRAY static int open_module(const struct os_module *module, ElfW(Ehdr) * header) {
    struct os_build_id id;
    uint8_t bytes[OS_BUILD_ID_MAX];
    int fd = os_open_file(*module->path != '\0' ? module->path : "/proc/self/exe");
    if (fd < 0)
        return -1;
    const void *mapped = os_module_header(module);
    bool same = mapped != NULL && os_read_at(fd, header, sizeof *header, 0) == sizeof *header &&
                memcmp(header, mapped, sizeof *header) == 0 && header->e_shentsize == sizeof(ElfW(Shdr));
    if (same && os_build_id(module, &id))
        same = os_read_at(fd, bytes, id.count, id.place) == id.count && memcmp(bytes, id.bytes, id.count) == 0;
    if (same)
        return fd;
    os_close(fd);
    return -1;
}

static bool read_section(int fd, const ElfW(Ehdr) * header, unsigned number, ElfW(Shdr) * section) {
    return number < header->e_shnum &&
           os_read_at(fd, section, sizeof *section, header->e_shoff + number * sizeof *section) == sizeof *section;
}

/* Finds the full symbol table or, in a stripped file, the dynamic linker's. */
static bool find_table(int fd, const ElfW(Ehdr) * header, ElfW(Shdr) * table) {
    ElfW(Shdr) section;
    bool found = false;
    for (unsigned i = 0; read_section(fd, header, i, &section); i++) {
        if (section.sh_type != SHT_SYMTAB && section.sh_type != SHT_DYNSYM)
            continue;
        *table = section;
        found = true;
        if (section.sh_type == SHT_SYMTAB)
            break;
    }
    return found;
}

static bool covers(const ElfW(Sym) * symbol, uintptr_t place) {
    unsigned type = ELF64_ST_TYPE(symbol->st_info);
    return (type == STT_FUNC || type == STT_GNU_IFUNC) && symbol->st_shndx != SHN_UNDEF &&
           place - symbol->st_value < symbol->st_size;
}

/* Finds the first function that covers the place. Reads as many entries at a time as there is room for. */
static bool search_table(int fd, const ElfW(Shdr) * table, uintptr_t place, ElfW(Sym) * room, size_t room_bytes,
                         ElfW(Sym) * found) {
    size_t bytes_max = room_bytes / sizeof *room * sizeof *room;
    for (uint64_t at = 0; at < table->sh_size; at += bytes_max) {
        size_t count =
            os_read_at(fd, room, min_size(bytes_max, table->sh_size - at), table->sh_offset + at) / sizeof *room;
        if (count == 0)
            return false;
        for (size_t i = 0; i < count; i++)
            if (covers(&room[i], place)) {
                *found = room[i];
                return true;
            }
    }
    return false;
}

bool symbol_find(const struct os_module *module, uintptr_t address, struct symbol *symbol, void *room,
                 size_t room_bytes) {
    ElfW(Ehdr) header;
    ElfW(Shdr) table, names;
    ElfW(Sym) found;
    int fd = open_module(module, &header);
    symbol->name[0] = '\0';
    if (fd < 0)
        return false;
    uintptr_t place = address - module->base;
    if (find_table(fd, &header, &table) && read_section(fd, &header, table.sh_link, &names) &&
        search_table(fd, &table, place, room, room_bytes, &found)) {
        size_t got = os_read_at(fd, symbol->name, SYMBOL_BYTES - 1, names.sh_offset + found.st_name);
        symbol->name[got] = '\0';
        symbol->offset = place - found.st_value;
    }
    os_close(fd);
    return symbol->name[0] != '\0';
}

HAK_STRAY void symbol_put_build_id(struct text *t, const char *before, const struct os_module *module,
                                   const char *after) {
    struct os_build_id id;
    if (!os_build_id(module, &id))
        return;
    text_string(t, before);
    text_hex_bytes(t, id.bytes, id.count);
    text_string(t, after);
}
