/* What follows the line of a failure: in which process and thread, and which calls led there. Any thread, in a signal
 * handler, too; nothing allocates. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "base/text.h"

enum { REPORT_CALLERS = 32 };

/* "hakmem:   in process 12 (server), thread 14 (worker)", then the program's calls that led here. `code`: where a
 * signal interrupted the program; 0: in a call of the program's. Nothing in a sandbox, which may end the program
 * sooner. */
void report_here(uintptr_t code);
/* A line for each return address outside the library, innermost first: "hakmem:   0x… function+0x1f (PATH+0x1234)", or,
 * without a known name, "hakmem:   0x… PATH+0x1234 (build id 5a…)". With `json` the elements of an array of calls there
 * instead, each with "address", and as far as they are known "function", "function_offset", "path", "offset" (as
 * `hakmem symbolize` wants it) and "build_id". */
void report_calls(struct text *json, const uintptr_t *callers, unsigned depth);
/* One such line without the name, for a program that goes on: asks nothing of the kernel but to write. */
void report_caller(uintptr_t caller);

/* As report_here, the members "pid", "process", "thread", "thread_name" and "calls" of an object. */
void report_json_here(struct text *t, uintptr_t code);
