/* What merging pages (mesh/mesh.c) asks of the operating system, beside base/os.h and as said there. All of these calls
 * fail where the process is confined. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "base/os.h"

/* Threads that write to a held range wait until it is let go of. So do system calls if the kernel lets this process
 * hold them; else they fail with EFAULT. In a process of one thread nobody has to wait, but its signals do. */
struct os_hold {
    int fd;           /* -1: there is no other thread */
    bool holds_files; /* pages that os_map_copy put there can be held, too (Linux 5.19) */
    uint64_t signals; /* the thread's mask before */
};
bool os_hold_begin(struct os_hold *hold);
/* A part: writes to the others' pages go on. */
bool os_hold_writes(const struct os_hold *hold, void *address, size_t bytes);
/* `replaced`: os_map_copy has put another mapping there. */
void os_let_write(const struct os_hold *hold, void *address, size_t bytes, bool replaced);
void os_hold_end(const struct os_hold *hold);
int os_open_memory(size_t bytes); /* an empty file without a name, which may grow to `bytes`; -1 on failure */
bool os_fill_memory(int fd, const void *from, size_t bytes);
/* Replaces what is mapped at exactly this address by the file's first bytes: whoever writes there gets a page of their
 * own. All, or a part, as OS_FRESH. */
bool os_map_copy(int fd, void *address, size_t bytes);
