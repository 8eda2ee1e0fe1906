/* What is loaded into the process: the program, this library and others. Which one an address lies in, what its ELF
 * header and notes say, what it calls by a name, and whether an emulator has loaded it. All of it is read where the
 * dynamic linker has mapped it; os_readable is asked first where something else may lie. */
/* SPDX-License-Identifier: MIT */
#include <elf.h>
#include <link.h>
#include <string.h>
#include <sys/auxv.h>

#include "base/os.h"

enum {
    MODULE_HEADER_BYTES = 4096,
    SEGMENTS_MAX = 64,
    NOTE_BYTES_MAX = 256,
    START_BYTES_MAX = 16 << 20 /* of what a program finds on its stack at the start: Linux allows 6 MiB */
};                             /* headers and segments fit the smallest page */

/* ---- by whom ---- */

/* Linux begins the auxiliary vector with what belongs to the machine, and AT_PHDR comes behind AT_HWCAP; qemu's user
 * mode begins with AT_PHDR on every machine. The vector lies behind the environment, below the bytes of AT_RANDOM,
 * until the program moves the environment: so the first answer is kept. Relaxed: all threads that ask first find the
 * same. */
static bool has_vector_of_emulator(void) {
    char **at = os_environment();
    if (at == NULL || getauxval(AT_RANDOM) - (uintptr_t)at > START_BYTES_MAX)
        return false;
    while (*at != NULL)
        at++;
    return ((const ElfW(auxv_t) *)(const void *)(at + 1))->a_type == AT_PHDR;
}

bool os_is_emulated(void) {
    enum { UNKNOWN, NO, YES };
    static _Atomic uint8_t answer;
    if (load_relaxed(&answer) == UNKNOWN)
        store_relaxed(&answer, has_vector_of_emulator() ? YES : NO);
    return load_relaxed(&answer) == YES;
}

/* ---- by name ---- */

/* A table of a loaded module's: glibc has put the address into the dynamic section, musl leaves what the file says. */
static const void *dynamic_table(const ElfW(Dyn) * dynamic, ElfW(Sxword) tag, uintptr_t base) {
    for (; dynamic != NULL && dynamic->d_tag != DT_NULL; dynamic++)
        if (dynamic->d_tag == tag)
            return (const void *)(dynamic->d_un.d_ptr + (dynamic->d_un.d_ptr < base ? base : 0)); /* NOLINT */
    return NULL;
}

static bool module_has(const struct dl_phdr_info *module, uintptr_t address) {
    for (unsigned i = 0; i < module->dlpi_phnum; i++)
        if (module->dlpi_phdr[i].p_type == PT_LOAD &&
            address - module->dlpi_addr - module->dlpi_phdr[i].p_vaddr < module->dlpi_phdr[i].p_memsz)
            return true;
    return false;
}

/* What a module defines: its base and tables. The GNU hash table is four words, the filter, for each hash the first
 * symbol, for each symbol its hash, the lowest bit of which marks the last one. */
struct names {
    uintptr_t base;
    const uint32_t *hashes; /* NULL: there are none */
    const ElfW(Sym) * symbols;
    const char *texts;
};

static struct names names_of(const struct dl_phdr_info *module) {
    uintptr_t base = module->dlpi_addr;
    const ElfW(Phdr) *segment = module->dlpi_phdr, *end = segment + module->dlpi_phnum;
    while (segment < end && segment->p_type != PT_DYNAMIC)
        segment++;
    const ElfW(Dyn) *dynamic = segment < end ? (const void *)(base + segment->p_vaddr) : NULL; /* NOLINT */
    struct names names = {base, dynamic_table(dynamic, DT_GNU_HASH, base), dynamic_table(dynamic, DT_SYMTAB, base),
                          dynamic_table(dynamic, DT_STRTAB, base)};
    if (names.symbols == NULL || names.texts == NULL || (names.hashes != NULL && names.hashes[0] == 0))
        names.hashes = NULL;
    return names;
}

/* What the module itself calls by that name, whoever else does; 0: nothing. */
static uintptr_t named(const struct names *names, const char *name) {
    const uint32_t *hashes = names->hashes;
    if (hashes == NULL)
        return 0;
    const uint32_t *first = hashes + 4 + hashes[2] * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
    const uint32_t *chain = first + hashes[0];
    uint32_t hash = 5381;
    for (const char *c = name; *c != '\0'; c++)
        hash = hash * 33 + (unsigned char)*c;
    for (uint32_t i = first[hash % hashes[0]]; i >= hashes[1]; i++) {
        uint32_t of_symbol = chain[i - hashes[1]];
        const ElfW(Sym) *symbol = names->symbols + i;
        bool defined = symbol->st_shndx != SHN_UNDEF;
        if ((of_symbol | 1) == (hash | 1) && defined && strcmp(names->texts + symbol->st_name, name) == 0)
            return names->base + symbol->st_value;
        if (of_symbol & 1)
            return 0;
    }
    return 0;
}

struct wanted {
    const char *name;
    uintptr_t bound, beside, found;
};

static int find_in_module(struct dl_phdr_info *module, size_t bytes, void *data) {
    struct wanted *wanted = data;
    (void)bytes;
    if (wanted->beside != 0 && !module_has(module, wanted->beside))
        return 0;
    struct names names = names_of(module);
    wanted->found = named(&names, wanted->name);
    if (wanted->found == 0 && module_has(module, wanted->bound))
        wanted->found = wanted->bound;
    return wanted->beside != 0 || wanted->found != 0;
}

uintptr_t os_find_function(const char *name, uintptr_t bound, uintptr_t beside) {
    struct wanted wanted = {name, bound, beside, 0};
    dl_iterate_phdr(find_in_module, &wanted);
    return wanted.found;
}

struct search {
    struct os_next *next;
    unsigned count;
    bool is_behind; /* this library's module was passed */
};

static int look_for_next(struct dl_phdr_info *module, size_t bytes, void *data) {
    struct search *search = data;
    (void)bytes;
    if (module_has(module, (uintptr_t)os_find_next)) {
        search->is_behind = true;
        return 0;
    }
    bool all = true;
    struct names names = names_of(module);
    for (struct os_next *next = search->next; next < search->next + search->count; next++) {
        uintptr_t address = next->is_behind ? 0 : named(&names, next->name);
        if (address != 0 && (next->address == 0 || search->is_behind))
            next->address = address;
        if (address != 0)
            next->is_behind = search->is_behind;
        next->is_first &= search->is_behind || address == 0;
        all &= next->is_behind;
    }
    return all;
}

void os_find_next(struct os_next *next, unsigned count) {
    struct search search = {next, count, false};
    for (unsigned i = 0; i < count; i++)
        next[i] = (struct os_next){.name = next[i].name, .is_first = true};
    dl_iterate_phdr(look_for_next, &search);
}

/* ---- processors ----
 * libc reads the number of the processor from a word that the kernel keeps for each thread (glibc 2.35), or, on x86-64,
 * asks the kernel's page in user space. */

#if defined(__x86_64__)
bool os_knows_processor(void) { return getauxval(AT_SYSINFO_EHDR) != 0; }
#else
extern const unsigned hak_rseq_bytes __asm__("__rseq_size") HAK_WEAK; /* bound without a version, as below */
#ifndef HAK_IN_PROGRAM
__asm__(".symver __rseq_size, __rseq_size@");
#endif
bool os_knows_processor(void) { return &hak_rseq_bytes != NULL && hak_rseq_bytes != 0; }
#endif

/* ---- by address ---- */

/* glibc's struct dl_find_object. In a shared library the name is bound without a version, so that the library loads
 * where there is none. In a program, which is for the glibc it was linked with, lld refuses such names. */
struct found_object {
    uint64_t flags;
    void *begin, *end;
    struct link_map *link_map;
    void *unwind_table;
    uint64_t reserved[7];
};
extern int hak_find_object(void *address, struct found_object *found) __asm__("_dl_find_object") HAK_WEAK;
#ifndef HAK_IN_PROGRAM
__asm__(".symver _dl_find_object, _dl_find_object@");
#endif
extern const ElfW(Ehdr) __ehdr_start HAK_HIDDEN HAK_WEAK; /* this library's, or the program's that it is linked into */

/* Two cycles a word, where a product would take five: each step of a stack into another module comes here. Build ids
 * are random, and mix_bits at the end makes any difference one of all bits. */
static uint64_t identity_add(uint64_t identity, uint64_t word) { return (identity << 5 | identity >> 59) + word; }

/* Is there an ELF header, with segments behind it, where every linker has them? */
HAK_STRAY static bool is_header(const ElfW(Ehdr) * header) {
    return os_readable((uintptr_t)header, MODULE_HEADER_BYTES) && memcmp(header->e_ident, ELFMAG, SELFMAG) == 0 &&
           header->e_phoff == sizeof *header && header->e_phnum <= SEGMENTS_MAX;
}

/* Does the segment lie in a part of the file that was loaded, and can be read? */
HAK_STRAY static bool is_loaded(const ElfW(Ehdr) * header, const ElfW(Phdr) * part) {
    const ElfW(Phdr) *segment = (const void *)(header + 1);
    for (unsigned i = 0; i < header->e_phnum; i++, segment++) {
        size_t offset = part->p_vaddr - segment->p_vaddr;
        if (segment->p_type == PT_LOAD && segment->p_flags & PF_R && offset <= segment->p_filesz &&
            part->p_filesz <= segment->p_filesz - offset)
            return true;
    }
    return false;
}
HAK_STRAY static bool is_note(const ElfW(Ehdr) * header, const ElfW(Phdr) * segment) {
    return segment->p_type == PT_NOTE && segment->p_filesz <= NOTE_BYTES_MAX && is_loaded(header, segment);
}

/* What an ELF header and what follows it say. False: there is none. */
HAK_STRAY static bool module_read(struct os_module *module, const ElfW(Ehdr) * header) {
    const ElfW(Phdr) *segments = (const void *)(header + 1), *segment;
    if (!is_header(header))
        return false;
    uintptr_t first = UINTPTR_MAX, end = 0, table = 0;
    for (segment = segments; segment < segments + header->e_phnum; segment++) {
        if (segment->p_type == PT_LOAD) {
            first = min_size(first, segment->p_vaddr - segment->p_offset);
            end = max_size(end, segment->p_vaddr + segment->p_memsz);
        }
        if (segment->p_type == PT_GNU_EH_FRAME)
            table = segment->p_vaddr;
    }
    module->base = (uintptr_t)header - first;
    if (module->end == 0)
        module->begin = (uintptr_t)header, module->end = module->base + end;
    for (segment = segments; segment < segments + header->e_phnum; segment++) {
        const uint8_t *at = (const uint8_t *)(module->base + segment->p_vaddr);
        module->identity = identity_add(module->identity, segment->p_vaddr + (segment->p_memsz << 32));
        if (is_note(header, segment))
            for (size_t word = 0; word < segment->p_filesz / sizeof(uint64_t); word++)
                module->identity = identity_add(module->identity, ((const uint64_t *)at)[word]);
        if (segment->p_type == PT_LOAD && segment->p_flags & PF_R && table != 0 &&
            table - segment->p_vaddr < segment->p_filesz) {
            module->unwind_table = (const uint8_t *)(module->base + table);
            module->table_begin = at, module->table_end = at + segment->p_filesz;
        }
    }
    module->identity = mix_bits(module->identity);
    return true;
}

static const ElfW(Ehdr) * program_header(void) { return (const ElfW(Ehdr) *)getauxval(AT_PHDR) - 1; }

static _Atomic bool has_started; /* pairs with itself: set before main */

void os_know_modules(void) { store_relaxed(&has_started, true); }

/* A static program, for which no dynamic linker was mapped, allocates while it makes its table. */
static bool has_table(void) {
    return hak_find_object != NULL && (load_relaxed(&has_started) || getauxval(AT_BASE) != 0);
}

bool os_find_module(uintptr_t address, struct os_module *module) {
    struct found_object found;
    if (has_table()) {
        if (hak_find_object((void *)address, &found) != 0)
            return false;
        const struct link_map *map = found.link_map;
        *module =
            (struct os_module){(uintptr_t)found.begin, (uintptr_t)found.end, .base = map->l_addr, .path = map->l_name};
        module_read(module, *map->l_name == '\0' ? program_header() : (const void *)map->l_addr);
        return true;
    }
    *module = (struct os_module){.path = ""};
    if (module_read(module, program_header()) && address - module->begin < module->end - module->begin)
        return true;
    *module = (struct os_module){.path = "libhakmem.so"};
    return module_read(module, &__ehdr_start) && address - module->begin < module->end - module->begin;
}

bool os_find_file(uintptr_t address, const char **path, uintptr_t *base) {
    struct found_object found;
    if (!has_table() || hak_find_object((void *)address, &found) != 0)
        return false;
    *path = *found.link_map->l_name != '\0' ? found.link_map->l_name : (const char *)getauxval(AT_EXECFN);
    *base = found.link_map->l_addr;
    return true;
}

static size_t note_bytes(const ElfW(Nhdr) * note) {
    return sizeof *note + round_up(note->n_namesz, 4) + round_up(note->n_descsz, 4);
}

/* A shared library begins with its header; a program may not. */
const void *os_module_header(const struct os_module *module) {
    const ElfW(Ehdr) *header = *module->path == '\0' ? program_header() : (const void *)module->base;
    return is_header(header) ? header : NULL;
}

HAK_STRAY bool os_build_id(const struct os_module *module, struct os_build_id *id) {
    const ElfW(Ehdr) *header = os_module_header(module);
    const ElfW(Phdr) *segment = (const void *)(header + 1);
    for (unsigned i = 0; header != NULL && i < header->e_phnum; i++, segment++) {
        const char *begin = (const char *)(module->base + segment->p_vaddr), *at = begin;
        if (!is_note(header, segment))
            continue;
        while (at + sizeof(ElfW(Nhdr)) + 4 <= begin + segment->p_filesz) {
            const ElfW(Nhdr) *note = (const void *)at;
            if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 && memcmp(note + 1, "GNU", 4) == 0 &&
                note->n_descsz <= OS_BUILD_ID_MAX) {
                const uint8_t *bytes = (const uint8_t *)(note + 1) + 4;
                *id = (struct os_build_id){bytes, note->n_descsz,
                                           segment->p_offset + (size_t)((const char *)bytes - begin)};
                return true;
            }
            at += note_bytes(note);
        }
    }
    return false;
}
