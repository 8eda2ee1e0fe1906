/* See error_file.h. */
/* SPDX-License-Identifier: MIT */
#include "observe/error_file.h"
#include "base/options.h"
#include "base/os.h"
#include "base/scratch.h"
#include "hakmem.h"
#include "observe/guard_sample.h"
#include "observe/report.h"
#include "observe/stats.h"
#include "secure/secure_trace.h"

#include <string.h>

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
            report_calls(NULL, stack.callers, stack.depth);
            is_known = true;
        }
    if (ends && region_has(p) && option(OPT_SECURE) && !option(OPT_SECURE_STACKS))
        text_line("hakmem:   HAKMEM_SECURE_STACKS=1 shows who allocated and freed the block");
    else if (ends && !is_known && !option(OPT_SECURE) && is_double_free(line))
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
        report_calls(t, stack.callers, stack.depth);
        text_string(t, "]}");
    }
}

/* The statistics come last. If reading the damaged heap fails, everything else has been written. */
static void put_document(struct text *t, const char *line, const void *p, uintptr_t code) {
    text_string(t, "{\"hakmem_report\":1,\"error\":");
    text_json_string(t, line);
    text_format(t, ",\"address\":\"%x\",\"version\":\"%s\",\n\"program\":", (uintptr_t)p, HAKMEM_VERSION);
    text_json_string(t, os_program());
    text_string(t, ",");
    report_json_here(t, code);
    put_who(t, p);
    text_string(t, ",\n\"statistics\":");
    text_flush(t);
    stats_put_json(t);
    text_string(t, "}\n");
    text_flush(t);
}

static void error_write(const char *line, const void *p, uintptr_t code) {
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

void error_explain(const char *line, const void *p, bool ends, const void *caller) {
    if (ends)
        report_here(0);
    else if (caller != NULL)
        report_caller((uintptr_t)caller);
    say_who(line, p, ends);
    if (option(OPT_ON_ERROR) == ON_ERROR_REPORT)
        error_write(line, p, 0);
}

bool error_explain_fault(const void *address, const char *access, uintptr_t code) {
    TEXT_TO_FD(line, -1, 256);
    if (!guard_describe(&line, address, access))
        return false;
    line_buffer[min_size(line.length, sizeof line_buffer - 1)] = '\0';
    text_line("%s", line_buffer);
    report_here(code);
    say_who(line_buffer, address, false);
    if (option(OPT_ON_ERROR) == ON_ERROR_REPORT)
        error_write(line_buffer, address, code);
    return true;
}
