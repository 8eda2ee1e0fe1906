/* Explains an error: in lines on standard error, and with ON_ERROR=report also in a JSON document, the file
 * REPORT_FILE, which `hakmem symbolize` and programs that gather such documents read.
 *
 * The lines: "hakmem:   in process 12 (server), thread 14 (worker)", then one for each call outside the library,
 * innermost first: "hakmem:   0x… function+0x1f (PATH+0x1234)", or, without a known name, "hakmem:   0x… PATH+0x1234
 * (build id 5a…)". Then likewise the calls that allocated and freed the block, as far as they are known.
 *
 * The document is one object with these members: "hakmem_report" (1), "error" (the first line), "address", "version",
 * "program", "pid", "process", "thread" and "thread_name"; "calls", each with "address", and as far as they are known
 * "function", "function_offset", "path", "offset" (as `hakmem symbolize` wants it) and "build_id"; "allocated" and
 * "freed", the stacks of the calls that allocated and freed the block, each with "thread" and "calls", or null if
 * unknown; and "statistics", as hak_stats_json writes them, with all options.
 *
 * The functions do not allocate. Any thread may call them, also in a signal handler. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "base/base.h"

/* As fail_explain wants it: prints what follows the line of a failure, the call stack, the stacks of the calls that
 * allocated and freed the block at p, and where the document is; if the program goes on, only the last of these and the
 * caller of a harmless error (fail.h). */
void report_error(const char *line, const void *p, bool ends, const void *caller);
/* The same for a fault in the guard pool; false: there is nothing to explain. */
bool report_fault(const void *at, const char *access, uintptr_t code);
