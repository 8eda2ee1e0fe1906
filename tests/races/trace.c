/* Records the shared accesses of the current execution, for whoever has to understand what went wrong. */
/* SPDX-License-Identifier: MIT */
#include "model.h"

#include <stdio.h>

enum { TRACE_MAX = 4096, LABELS_MAX = 64 };

static struct {
    unsigned thread;
    int op;
    bool latest;
    uintptr_t address;
    uint64_t read, written;
    const void *pc;
} trace[TRACE_MAX];
static struct {
    uintptr_t address;
    size_t bytes;
    const char *name;
} labels[LABELS_MAX];
static unsigned trace_used, labels_used;

void race_label(const void *address, size_t bytes, const char *name) {
    if (labels_used == LABELS_MAX)
        return;
    labels[labels_used].address = (uintptr_t)address;
    labels[labels_used].bytes = bytes;
    labels[labels_used++].name = name;
}

void trace_begin(void) { trace_used = 0; }
void trace_keep(void) { moment_keep(&trace_used, sizeof trace_used); }

void trace_note(int op, uintptr_t address, uint64_t read, uint64_t written, bool latest, const void *pc) {
    if (trace_used == TRACE_MAX)
        return;
    trace[trace_used].thread = explore_thread, trace[trace_used].op = op, trace[trace_used].latest = latest;
    trace[trace_used].address = address, trace[trace_used].pc = pc;
    trace[trace_used].read = read, trace[trace_used++].written = written;
}

void trace_print(void) {
    static const char *const names[] = {"load", "store", "swap", "add", "sub", "and", "or", "xor", "cas", "fence"};
    for (unsigned i = 0; i < trace_used; i++) {
        const char *name = "?";
        size_t offset = trace[i].address;
        for (unsigned l = 0; l < labels_used; l++)
            if (trace[i].address - labels[l].address < labels[l].bytes) {
                name = labels[l].name;
                offset = trace[i].address - labels[l].address;
            }
        fprintf(stderr, "  %*sthread %u  %-5s %s+%#zx  read %#llx wrote %#llx%s  at %p\n", 4 * (int)trace[i].thread, "",
                trace[i].thread, names[trace[i].op], name, offset, (unsigned long long)trace[i].read,
                (unsigned long long)trace[i].written, trace[i].latest ? "" : "  (not the latest)", trace[i].pc);
    }
}
