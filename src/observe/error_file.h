/* What is said of an error: in lines on the standard error, and with ON_ERROR=report also as a JSON document in REPORT_FILE,
 * for programs that gather such documents and for `hakmem symbolize`.
 *
 * The document is an object: "hakmem_report" (1), "error" (the first line), "address", "version", "program", "pid", "process",
 * "thread", "thread_name"; "calls" (the calls that led there), "allocated" and "freed" (who allocated and freed the block, each
 * with "thread" and "calls"; null where that is not known); and "statistics", as hak_stats_json writes them, with all options.
 *
 * Nothing allocates. Any thread, in a signal handler, too. */
/* SPDX-License-Identifier: MIT */
#ifndef HAK_ERROR_FILE_H
#define HAK_ERROR_FILE_H

#include "base/base.h"

/* What follows a failure's line, which is on the standard error already: the calls that led there, who allocated and freed the
 * block at p, and the file, as far as ON_ERROR asks for them. */
void error_explain(const char *line, const void *p);

/* An access to this address faulted, at the instruction `code`. Nothing if the address is not in the guard pool. */
void error_explain_fault(const void *address, const char *access, uintptr_t code);

#endif
