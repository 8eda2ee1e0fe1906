/* See report.h. */
/* SPDX-License-Identifier: MIT */
#include "observe/report.h"
#include "base/os.h"
#include "base/scratch.h"
#include "base/text.h"
#include "observe/stack.h"
#include "observe/symbols.h"

#include <string.h>

enum { OWN_MOST = 16 }; /* calls inside the library, at most */

/* What is too large for a stack: of SCRATCH_BYTES. */
struct room {
    char line[512];
    struct symbol symbol;
    _Alignas(8) char table[SCRATCH_BYTES - 1024 - sizeof(struct symbol)];
};
_Static_assert(sizeof(struct room) <= SCRATCH_BYTES, "");

static bool find_name(struct room *room, const struct os_module *module, uintptr_t address) {
    return symbol_find(module, address, &room->symbol, room->table, sizeof room->table);
}

/* ---- which calls are the library's ---- */

/* Is it one of the library's functions? Where they are linked into a program, names tell: those of exported functions,
 * and of functions that these may have tail-called. A compiler may have appended ".part.0". */
static bool is_own(const char *name) {
    static const char names[] =
        " free malloc calloc realloc reallocarray aligned_alloc memalign posix_memalign valloc malloc_usable_size "
        "alloc_slow alloc_slow_new alloc_slow_new_array alloc_any alloc_tiny alloc_from alloc_aligned "
        "hook_malloc_at_site hook_malloc_sampled hook_malloc_in_default hook_malloc_near hook_made_by_new hook_deleted "
        "arena_malloc_any arena_malloc_slow arena_free free_unnoted alloc_new_aligned_else new_aligned_else "
        "aligned_past_classes new_aligned_past_classes alloc_calloc alloc_realloc realloc_else alloc_free_slow "
        "alloc_free_other alloc_delete_other "
        "alloc_delete_array_other alloc_free_sized_else alloc_delete_sized_else alloc_delete_array_sized_else "
        "alloc_delete_aligned_else delete_array_outside delete_array_aligned_outside delete_sized_outside "
        "delete_array_sized_outside delete_sized_aligned_outside alloc_usable alloc_expand lookup_for_free guard_free "
        "mid_free large_free huge_free "
        "hook_malloc_secure any_hand_out wide_hand_out begin_block secure_malloc secure_large_malloc secure_free "
        "free_any free_wide free_traced free_unborn free_checking_size secure_large_free secure_check_at_exit "
        "alloc_trim secure_trace_note secure_fail_hand_out fail_free fail_double_free fail_bad_pointer fail_bad_size "
        "fail_operator fail_damage fail_finish error_explain report_here report_json_here ";
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
    if (!os_find_module((uintptr_t)report_here, &own))
        return 0;
    for (unsigned i = 0; i < depth && i < OWN_MOST; i++)
        if (os_find_module(callers[i] - 1, &module) && module.base == own.base &&
            (is_library(own.path) || (find_name(room, &module, callers[i] - 1) && is_own(room->symbol.name))))
            count = i + 1;
    return count;
}

/* ---- calls ---- */

/* Where calls go: to a document, or in lines to the standard error. */
struct output {
    struct text *json; /* NULL: lines */
    bool has_any;
};

static void put_line(struct room *room, const struct os_module *module, const char *path, uintptr_t address) {
    struct text line = {room->line, sizeof room->line, 0, 2};
    bool named = room->symbol.name[0] != '\0';
    text_format(&line, "hakmem:   %x ", address);
    if (named)
        text_format(&line, "%s+%x (", room->symbol.name, room->symbol.offset);
    if (path != NULL)
        text_format(&line, "%s+%x", path, address - module->base);
    if (named)
        text_string(&line, ")");
    else if (path != NULL)
        symbol_put_build_id(&line, " (build id ", module, ")");
    text_string(&line, "\n");
    text_flush(&line);
}

static void put_json(struct text *t, struct room *room, const struct os_module *module, const char *path,
                     uintptr_t address) {
    text_format(t, "{\"address\":\"%x\"", address);
    if (room->symbol.name[0] != '\0') {
        text_string(t, ",\"function\":");
        text_json_string(t, room->symbol.name);
        text_format(t, ",\"function_offset\":\"%x\"", room->symbol.offset);
    }
    if (path != NULL) {
        text_string(t, ",\"path\":");
        text_json_string(t, path);
        text_format(t, ",\"offset\":\"%x\"", address - module->base);
        symbol_put_build_id(t, ",\"build_id\":\"", module, "\"");
    }
    text_string(t, "}");
}

static void put_call(struct room *room, struct output *output, uintptr_t address) {
    struct os_module module;
    const char *path = NULL;
    room->symbol.name[0] = '\0';
    if (os_find_module(address, &module)) {
        find_name(room, &module, address);
        path = *module.path != '\0' ? module.path : os_program();
    }
    if (output->json == NULL) {
        put_line(room, &module, path, address);
        return;
    }
    text_string(output->json, output->has_any ? ",\n" : "\n");
    output->has_any = true;
    put_json(output->json, room, &module, path, address);
}

/* The calls outside the library. `code`: where a signal interrupted the program; what the signal's handler called is
 * left out. The addresses shown are in the calls, not behind them: there the next line of the source may begin. */
static void put_calls(struct output *output, const uintptr_t *callers, unsigned depth, uintptr_t code) {
    struct room *room = scratch_take();
    if (room == NULL)
        return;
    unsigned at = code == 0 ? calls_of_ours(room, callers, depth) : 0;
    while (code != 0 && at < depth && callers[at++] != code)
        ;
    if (code != 0)
        put_call(room, output, code);
    for (; at < depth; at++)
        put_call(room, output, callers[at] - 1);
    scratch_give(room);
}

void report_calls(struct text *json, const uintptr_t *callers, unsigned depth) {
    put_calls(&(struct output){json, false}, callers, depth, 0);
}

void report_caller(uintptr_t caller) {
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

static void put_here(struct output *output, uintptr_t code) {
    uintptr_t callers[REPORT_CALLERS];
    put_calls(output, callers, stack_capture(callers, REPORT_CALLERS), code);
}

void report_here(uintptr_t code) {
    char process[32], thread[32];
    text_line("hakmem:   in process %u (%s), thread %u (%s)", (uint64_t)os_process(),
              name_in("/proc/self/comm", process, sizeof process), (uint64_t)os_thread(),
              name_in("/proc/thread-self/comm", thread, sizeof thread));
    put_here(&(struct output){NULL, false}, code);
}

void report_json_here(struct text *t, uintptr_t code) {
    char process[32], thread[32];
    text_format(t, "\"pid\":%u,\"process\":", (uint64_t)os_process());
    text_json_string(t, name_in("/proc/self/comm", process, sizeof process));
    text_format(t, ",\"thread\":%u,\"thread_name\":", (uint64_t)os_thread());
    text_json_string(t, name_in("/proc/thread-self/comm", thread, sizeof thread));
    text_string(t, ",\n\"calls\":[");
    put_here(&(struct output){t, false}, code);
    text_string(t, "]");
}
