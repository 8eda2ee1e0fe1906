/* See report.h. Functions' names come from the symbol tables of the files that the modules were mapped from, if those
 * are still the same files. */
/* SPDX-License-Identifier: MIT */
#include "observe/report.h"
#include "base/options.h"
#include "base/os.h"
#include "base/scratch.h"
#include "base/text.h"
#include "hakmem.h"
#include "observe/guard_sample.h"
#include "observe/stack.h"
#include "observe/stats.h"
#include "secure/secure_trace.h"

#include <elf.h>
#include <link.h>
#include <string.h>

enum { OWN_MOST = 16, NAME_BYTES = 192 }; /* calls inside the library, at most; of a name that is not cut off */

/* What is too large for a stack: of SCRATCH_BYTES. */
struct room {
    char line[512];
    char name[NAME_BYTES]; /* of the function that covers an address, as the linker calls it; "": unknown */
    uintptr_t offset;      /* of the address, from the beginning of that function */
    ElfW(Sym) table[(SCRATCH_BYTES - 1024 - NAME_BYTES) / sizeof(ElfW(Sym))];
};
_Static_assert(sizeof(struct room) <= SCRATCH_BYTES, "");

/* ---- names ---- */

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
static bool search_table(int fd, const ElfW(Shdr) * table, uintptr_t place, struct room *room, ElfW(Sym) * found) {
    for (uint64_t at = 0; at < table->sh_size; at += sizeof room->table) {
        size_t bytes = min_size(sizeof room->table, table->sh_size - at);
        size_t count = os_read_at(fd, room->table, bytes, table->sh_offset + at) / sizeof *room->table;
        if (count == 0)
            return false;
        for (size_t i = 0; i < count; i++)
            if (covers(&room->table[i], place)) {
                *found = room->table[i];
                return true;
            }
    }
    return false;
}

/* Finds the function that covers the address. False: its name is unknown. */
static bool find_name(struct room *room, const struct os_module *module, uintptr_t address) {
    ElfW(Ehdr) header;
    ElfW(Shdr) table, names;
    ElfW(Sym) found;
    int fd = open_module(module, &header);
    room->name[0] = '\0';
    if (fd < 0)
        return false;
    uintptr_t place = address - module->base;
    if (find_table(fd, &header, &table) && read_section(fd, &header, table.sh_link, &names) &&
        search_table(fd, &table, place, room, &found)) {
        size_t got = os_read_at(fd, room->name, NAME_BYTES - 1, names.sh_offset + found.st_name);
        room->name[got] = '\0';
        room->offset = place - found.st_value;
    }
    os_close(fd);
    return room->name[0] != '\0';
}

/* The module's build id between the two texts, or nothing if it has none. */
HAK_STRAY static void put_build_id(struct text *t, const char *before, const struct os_module *module,
                                   const char *after) {
    struct os_build_id id;
    if (!os_build_id(module, &id))
        return;
    text_string(t, before);
    text_hex_bytes(t, id.bytes, id.count);
    text_string(t, after);
}

/* ---- which calls are the library's ---- */

/* Is it one of the library's functions? Where they are linked into a program, names tell: those of exported functions,
 * and of functions that these may have tail-called. A compiler may have appended ".part.0". */
static bool is_own(const char *name) {
    static const char names[] =
        " free malloc calloc realloc reallocarray aligned_alloc memalign posix_memalign valloc malloc_usable_size "
        "alloc_slow alloc_slow_new alloc_slow_new_array alloc_any alloc_tiny alloc_from alloc_aligned "
        "malloc_at_site malloc_sampled malloc_in_default malloc_near "
        "arena_malloc_any arena_malloc_slow arena_free free_unnoted alloc_new_aligned_else new_aligned_else "
        "aligned_past_classes new_aligned_past_classes alloc_calloc alloc_realloc realloc_else alloc_free_slow "
        "alloc_free_by_kind alloc_delete_by_kind alloc_delete_array_by_kind alloc_free_sized_else "
        "alloc_delete_sized_else alloc_delete_array_sized_else alloc_delete_aligned_else delete_array_outside "
        "delete_array_aligned_outside delete_sized_outside delete_array_sized_outside delete_sized_aligned_outside "
        "alloc_usable alloc_expand lookup_for_free guard_free mid_free large_free huge_free secure_hit secure_note_new "
        "secure_check_delete any_hand_out wide_hand_out begin_block secure_malloc secure_large_malloc secure_free "
        "free_any free_wide free_traced free_unborn free_checking_size secure_large_free secure_check_at_exit "
        "alloc_trim secure_trace_note secure_fail_hand_out fail_free fail_double_free fail_bad_pointer fail_bad_size "
        "fail_operator fail_damage fail_finish report_error report_here ";
    static const char *const beginnings[] = {"hak_", "_Znw", "_Zna", "_Zdl", "_Zda"};
    for (unsigned i = 0; i < sizeof beginnings / sizeof *beginnings; i++)
        if (strncmp(name, beginnings[i], 4) == 0)
            return true;
    size_t length = strcspn(name, ".");
    for (const char *at = names; (at = strchr(at, ' ')) != NULL; at++)
        if (length != 0 && strncmp(at + 1, name, length) == 0 && at[1 + length] == ' ')
            return true;
    return false;
}

static bool is_library(const char *path) {
    const char *slash = strrchr(path, '/');
    return strncmp(slash != NULL ? slash + 1 : path, "libhakmem", 9) == 0;
}

/* How many of the innermost calls are the library's own. */
static unsigned calls_of_ours(struct room *room, const uintptr_t *callers, unsigned depth) {
    struct os_module own, module;
    unsigned count = 0;
    if (!os_find_module((uintptr_t)report_error, &own))
        return 0;
    for (unsigned i = 0; i < depth && i < OWN_MOST; i++)
        if (os_find_module(callers[i] - 1, &module) && module.base == own.base &&
            (is_library(own.path) || (find_name(room, &module, callers[i] - 1) && is_own(room->name))))
            count = i + 1;
    return count;
}

/* ---- calls ---- */

/* They go to a document or, without `json`, in lines to the standard error. */

static void put_line(struct room *room, const struct os_module *module, const char *path, uintptr_t address) {
    struct text line = {room->line, sizeof room->line, 0, 2};
    bool named = room->name[0] != '\0';
    text_format(&line, "hakmem:   %x ", address);
    if (named)
        text_format(&line, "%s+%x (", room->name, room->offset);
    if (path != NULL)
        text_format(&line, "%s+%x", path, address - module->base);
    if (named)
        text_string(&line, ")");
    else if (path != NULL)
        put_build_id(&line, " (build id ", module, ")");
    text_string(&line, "\n");
    text_flush(&line);
}

static void put_json(struct text *t, struct room *room, const struct os_module *module, const char *path,
                     uintptr_t address) {
    text_format(t, "{\"address\":\"%x\"", address);
    if (room->name[0] != '\0')
        text_format(t, ",\"function\":%j,\"function_offset\":\"%x\"", room->name, room->offset);
    if (path != NULL) {
        text_format(t, ",\"path\":%j,\"offset\":\"%x\"", path, address - module->base);
        put_build_id(t, ",\"build_id\":\"", module, "\"");
    }
    text_string(t, "}");
}

static void put_call(struct room *room, struct text *json, const char *before, uintptr_t address) {
    struct os_module module;
    const char *path = NULL;
    room->name[0] = '\0';
    if (os_find_module(address, &module)) {
        find_name(room, &module, address);
        path = *module.path != '\0' ? module.path : os_program();
    }
    if (json == NULL) {
        put_line(room, &module, path, address);
        return;
    }
    text_string(json, before);
    put_json(json, room, &module, path, address);
}

/* The calls outside the library. `code`: where a signal interrupted the program; what the signal's handler called is
 * left out. The addresses shown are in the calls, not behind them: there the next line of the source may begin. */
static void put_calls(struct text *json, const uintptr_t *callers, unsigned depth, uintptr_t code) {
    struct room *room = scratch_take();
    if (room == NULL)
        return;
    const char *before = "\n";
    unsigned at = code == 0 ? calls_of_ours(room, callers, depth) : 0;
    while (code != 0 && at < depth && callers[at++] != code)
        ;
    if (code != 0) {
        put_call(room, json, before, code);
        before = ",\n";
    }
    for (; at < depth; at++, before = ",\n")
        put_call(room, json, before, callers[at] - 1);
    scratch_give(room);
}

/* For a program that goes on: asks nothing of the kernel but to write. */
static void put_caller(uintptr_t caller) {
    const char *path;
    uintptr_t base, address = caller - 1; /* in the call, not behind it */
    if (os_find_file(address, &path, &base))
        text_line("hakmem:   %x %s+%x", address, path, address - base);
    else
        text_line("hakmem:   %x", address);
}

/* ---- here ---- */

static const char *name_in(const char *path, char *buffer, size_t bytes) {
    if (os_read_file(path, buffer, bytes) == 0)
        return "?";
    buffer[strcspn(buffer, "\n")] = '\0';
    return buffer;
}

static void put_here(struct text *json, uintptr_t code) {
    uintptr_t callers[STACK_CALLERS];
    put_calls(json, callers, stack_capture(callers, STACK_CALLERS), code);
}

static void report_here(uintptr_t code) {
    char process[32], thread[32];
    text_line("hakmem:   in process %u (%s), thread %u (%s)", (uint64_t)os_process(),
              name_in("/proc/self/comm", process, sizeof process), (uint64_t)os_thread(),
              name_in("/proc/thread-self/comm", thread, sizeof thread));
    put_here(NULL, code);
}

/* ---- who allocated and freed the block ---- */

static const char *const event_names[STACK_EVENTS] = {[STACK_ALLOCATED] = "allocated", [STACK_FREED] = "freed"};

static bool find_stack(const void *p, enum stack_event event, struct stack_taken *stack) {
    return guard_stack(p, event, stack) || secure_trace_find(p, event, stack);
}

static bool is_double_free(const char *line) { return strstr(line, ": double free of ") != NULL; }

static void say_who(const char *line, const void *p, bool ends) {
    struct stack_taken stack;
    bool is_known = false;
    for (unsigned event = 0; event < STACK_EVENTS; event++)
        if (find_stack(p, (enum stack_event)event, &stack)) {
            text_line("hakmem: %s by thread %u:", event_names[event], (uint64_t)stack.thread);
            put_calls(NULL, stack.callers, stack.depth, 0);
            is_known = true;
        }
    if (ends && region_has(p) && mode()->has_stacks && !option(OPT_SECURE_STACKS))
        text_line("hakmem:   HAKMEM_SECURE_STACKS=1 shows who allocated and freed the block");
    else if (ends && !is_known && !mode()->has_stacks && is_double_free(line))
        text_line("hakmem:   HAKMEM_SECURE=1 with HAKMEM_SECURE_STACKS=1 shows who freed it first");
}

static void put_who(struct text *t, const void *p) {
    struct stack_taken stack;
    for (unsigned event = 0; event < STACK_EVENTS; event++) {
        text_format(t, ",\n\"%s\":", event_names[event]);
        if (!find_stack(p, (enum stack_event)event, &stack)) {
            text_string(t, "null");
            continue;
        }
        text_format(t, "{\"thread\":%u,\"calls\":[", (uint64_t)stack.thread);
        put_calls(t, stack.callers, stack.depth, 0);
        text_string(t, "]}");
    }
}

/* ---- the document ---- */

/* The statistics come last. If reading the damaged heap fails, everything else has been written. */
static void put_document(struct text *t, const char *line, const void *p, uintptr_t code) {
    char process[32], thread[32];
    text_format(t, "{\"hakmem_report\":1,\"error\":%j,\"address\":\"%x\",\"version\":\"%s\",\n\"program\":%j,", line,
                (uintptr_t)p, HAKMEM_VERSION, os_program());
    text_format(t, "\"pid\":%u,\"process\":%j,\"thread\":%u,\"thread_name\":%j,\n\"calls\":[", (uint64_t)os_process(),
                name_in("/proc/self/comm", process, sizeof process), (uint64_t)os_thread(),
                name_in("/proc/thread-self/comm", thread, sizeof thread));
    put_here(t, code);
    text_string(t, "]");
    put_who(t, p);
    text_string(t, ",\n\"statistics\":");
    text_flush(t);
    stats_put_json(t);
    text_string(t, "}\n");
    text_flush(t);
}

static void write_document(const char *line, const void *p, uintptr_t code) {
    const char *wanted = option_text(OPT_REPORT_FILE), *said = "hakmem: ";
    char *scratch = scratch_take();
    if (scratch == NULL)
        return;
    TEXT_TO_FD(path, -1, 512);
    bool fits = text_output_name(&path, *wanted != '\0' ? wanted : "hakmem-report.%p.json", NAME_PROCESS, 1);
    struct text t = {scratch, SCRATCH_BYTES, 0, fits ? os_open_output(path.buffer) : -1};
    if (t.fd >= 0) {
        put_document(&t, line + (strncmp(line, said, strlen(said)) == 0 ? strlen(said) : 0), p, code);
        os_close(t.fd);
    }
    text_line(t.fd >= 0 ? "hakmem: the report is in %s" : "hakmem: cannot write the report to %s", path.buffer);
    scratch_give(scratch);
}

/* ---- errors ---- */

void report_error(const char *line, const void *p, bool ends, const void *caller) {
    if (ends)
        report_here(0);
    else if (caller != NULL)
        put_caller((uintptr_t)caller);
    say_who(line, p, ends);
    if (option(OPT_ON_ERROR) == ON_ERROR_REPORT)
        write_document(line, p, 0);
}

bool report_fault(const void *address, const char *access, uintptr_t code) {
    TEXT_TO_FD(line, -1, 256);
    if (!guard_describe(&line, address, access))
        return false;
    text_end(&line);
    text_line("%s", line_buffer);
    report_here(code);
    say_who(line_buffer, address, false);
    if (option(OPT_ON_ERROR) == ON_ERROR_REPORT)
        write_document(line_buffer, address, code);
    return true;
}
