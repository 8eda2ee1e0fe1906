/* What HAKMEM says when the program misuses it: one stable line on the standard error, by write(2) alone, then which
 * calls led there, then abort. ON_ERROR=report also writes a file (observe/report.h). With
 * ON_ERROR=warn only the line, with ON_ERROR=ignore not even that: the functions return then, and the caller leaves the
 * block alone. None of them allocates.
 *
 * Some errors are known to have harmed nothing. Their functions take the address in the program to which the faulty
 * call returns. With ON_ERROR=auto, and without secure mode, they print the line once for each such address, for the
 * first FAIL_CALLERS_MAX, and return; then the caller does what the program wanted. Nothing more is harmed either by
 * what is found when the program ends: then the first line is printed, and the program ends as it would. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "base/base.h"

/* Who freed the block before, if that is known. */
enum freer { FREER_UNKNOWN, FREER_THIS_THREAD, FREER_OTHER_THREAD };
/* "hakmem: double free of 0x… (48-byte block, freed by this thread)"; or "by another thread", or the size alone. */
HAK_COLD void fail_double_free(const void *p, size_t block_bytes, enum freer freer);
/* "hakmem: invalid free of 0x… (why)"; for other calls "hakmem: invalid pointer 0x… in realloc (why)".
 * If block_bytes is not 0, "inside a 48-byte block" replaces `why`. */
HAK_COLD void fail_bad_pointer(const char *call, const void *p, const char *why, size_t block_bytes);
/* Harmless, since the address tells which block it is: "hakmem: free of 0x… with size 100 (48-byte block)" */
HAK_COLD void fail_bad_size(const void *p, size_t size_claimed, size_t block_bytes, const void *caller);
/* The same line, and with a `caller` harmless, since nothing is done with the pointer. */
HAK_COLD void fail_bad_query(const char *call, const void *p, const char *why, size_t block_bytes, const void *caller);
/* "hakmem: free of 0x… by operator delete, allocated by operator new[] (48-byte block)" */
HAK_COLD void fail_operator(const void *p, bool array_delete, size_t block_bytes);
/* "hakmem: WHAT of 0x… (48-byte block)"; for overflows and writes after free that secure mode finds */
HAK_COLD void fail_damage(const char *what, const void *p, size_t bytes);
/* "hakmem: write after free among the 48-byte blocks at 0x…, or overflow into one, before this call (GUARD_SAMPLE_BYTES
 * finds the write)": a link was overwritten, and it is not known which block held the link. */
HAK_COLD void fail_overwritten_link(const void *slab, size_t block_bytes);
/* "hakmem: write into unused memory at 0x…, before this call (GUARD_SAMPLE_BYTES finds the write)" */
HAK_COLD void fail_unused_written(const void *at);

/* "hakmem: hak_arena_malloc with 0x…, which is no arena, or one that was destroyed or released" */
HAK_COLD void fail_bad_arena(const char *call, uintptr_t handle);

/* From now on `explain` is called after each line, with the line, the address that it is about, whether the program
 * ends now, and the caller of a harmless error, else NULL. */
typedef void fail_explainer(const char *line, const void *p, bool ends, const void *caller);
void fail_explain(fail_explainer *explain);
enum { FAIL_CALLERS_MAX = 64 };
/* The program is over, and what is found from now on was done before; or, `over` false, it is not: its other ends
 * come. */
void fail_program_is_over(bool over);
