/* The heap profile as a text, for `hakmem flame`; dump.c says when it is written.
 *
 *  1. "hakmem profile 1", then lines of a word and a value: pid, moment (why the file was written: "exit", "SIGTERM",
 *     "soft limit", "signal", "interval", "growth", "peak", "call"), interval (mean bytes between samples), dropped
 *     (samples without a place), command.
 *  2. "stack ALLOCATED BYTES FREED BYTES LIFETIMES CALLERS…" for each stack: estimates, objects in 1 / 65536; samples
 *     that lived less than 1, 2, 4, … ms, with commas between; return addresses, innermost first.
 *  3. "peak OBJECTS BYTES" after a stack's line: what was live of it when the program held most.
 *     "arena NAME" after that: the stack's blocks are in an arena of this name, in hexadecimal digits.
 *  4. "python NUMBER MINOR LINE NAME FILE LINES" for each code that words of Python's frames lead to (python.h): the
 *     version is 3.MINOR; in hexadecimal digits what it is called, its file, and its table of lines.
 *  5. "maps", then the process's mappings. The command finds the functions' names, from files.
 *  6. "end": a file without that line was cut short.
 *
 * For any thread at any time. Others may go on meanwhile, so the figures are recent ones. */
/* SPDX-License-Identifier: MIT */
#include "base/os.h"
#include "observe/profile.h"
#include "observe/python.h"
#include "base/scratch.h"
#include "base/snapshot.h"
#include "base/text.h"

#include <string.h>

static void put_stack(struct text *t, const struct profile_stack *s) {
    const struct profile_total *totals[] = {&s->allocated, &s->freed};
    text_string(t, "stack");
    for (unsigned i = 0; i < 2; i++)
        text_format(t, " %u %u", load_relaxed(&totals[i]->estimated_objects),
                    load_relaxed(&totals[i]->estimated_bytes));
    for (unsigned i = 0; i < PROFILE_LIFETIMES; i++)
        text_format(t, i == 0 ? " %u" : ",%u", (uint64_t)load_relaxed(&s->lifetimes[i]));
    uint32_t depth = load_acquire(&s->depth);
    for (unsigned i = 0; i < depth; i++)
        text_format(t, " %x", s->callers[i]);
    struct profile_held peak = profile_at_mark(s);
    text_format(t, "\npeak %u %u\n", peak.objects, peak.bytes);
    if (s->arena != 0) {
        char name[PROFILE_NAME_BYTES];
        snapshot(name, load_relaxed(&hak_profile.arenas)[s->arena].name,
                 sizeof name); /* a thread may just be writing it */
        text_string(t, "arena ");
        text_hex_bytes(t, name, strlen(name)); /* its last byte is always zero */
        text_string(t, "\n");
    }
}

static void put_code(struct text *t, uint64_t number, const struct python_code *code) {
    const char *at = load_acquire(&code->text);
    if (at == NULL)
        return;
    text_format(t, "python %u %u %u ", number, (uint64_t)load_relaxed(&hak_python.minor), (uint64_t)code->first_line);
    text_hex_bytes(t, at, code->name_bytes);
    text_string(t, " ");
    text_hex_bytes(t, at += code->name_bytes, code->file_bytes);
    text_string(t, " ");
    text_hex_bytes(t, at + code->file_bytes, code->lines_bytes);
    text_string(t, "\n");
}

bool profile_write(int fd, const char *moment) {
    char *scratch = scratch_take();
    if (scratch == NULL)
        return false;
    struct text t = {scratch, SCRATCH_BYTES, 0, fd};
    text_format(&t, "hakmem profile 1\npid %u\nmoment %s\ninterval %u\ndropped %u\ncommand ", (uint64_t)os_process(),
                moment, (uint64_t)asked_interval(), load_relaxed(&hak_profile.dropped));
    text_flush(&t);
    os_copy_file(fd, "/proc/self/comm", scratch, SCRATCH_BYTES);
    struct profile_stack *stacks = load_acquire(&hak_profile.stacks);
    uint32_t used = stacks != NULL ? load_relaxed(&hak_profile.stacks_used) : 0;
    for (uint32_t i = 0; i < used && i < PROFILE_STACKS; i++)
        if (load_relaxed(&stacks[i].allocated.samples) != 0)
            put_stack(&t, &stacks[i]);
    const struct python_code *codes = load_relaxed(&hak_python.codes);
    for (uint32_t i = 0; stacks != NULL && i < PYTHON_CODES; i++)
        put_code(&t, i, &codes[i]);
    text_string(&t, "maps\n");
    text_flush(&t);
    os_copy_file(fd, "/proc/self/maps", scratch, SCRATCH_BYTES);
    text_string(&t, "end\n");
    text_flush(&t);
    scratch_give(scratch);
    return true;
}
