/* Crashes: signals that are reported before the program's own handler, or the default action, has its turn.
 *
 *  1. While a signal is caught, the kernel has one of the library's entries in place of the program's handler. There
 *     is an entry for each handler, so the kernel's word alone says which handler is meant: a signal cannot come
 *     between two halves of a change, and what the child of a vfork sets is not the parent's.
 *  2. Flags and mask in the kernel are the program's own, with SA_SIGINFO and, for the default action, SA_ONSTACK
 *     added. The entry knows what was added; whoever asks for the action gets what the program has set.
 *  3. An ignored signal stays ignored by the kernel. So does the default action once the program has it back after a
 *     report: handlers set it to end by the signal that they were called for.
 *  4. A program with more handlers than entries gets the others without a report.
 *
 * All may be called from any thread and in signal handlers; nothing takes a lock. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "base/base.h"

struct sigaction;

/* Called in the signal handler. `at`: the address of the fault, NULL if there is none. `access`: "read", "write", or
 * "access" where the machine does not tell; `code`: the address of the instruction. Returns whether anything was
 * said. */
typedef bool os_crash_report(int signal_number, const void *at, const char *access, uintptr_t code);
void os_report_crashes(os_crash_report *report); /* at the start */
/* From now on SIGSEGV is caught; if `all`, also SIGBUS and SIGABRT. Makes no system call for what is caught already. */
void os_catch_crashes(bool all);
bool os_crash_is_caught(int signal_number);

/* sigaction for a signal that is caught: `set` does it, with an entry in place of the handler. */
typedef int os_set_action(int signal_number, const struct sigaction *action, struct sigaction *before);
int os_crash_set_action(os_set_action *set, int signal_number, const struct sigaction *action,
                        struct sigaction *before);
