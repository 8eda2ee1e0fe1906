/* Locates libFuzzer's edge counters. This file is not instrumented itself: the compiler gives each instrumented file
 * its own versions of these symbols. */
/* SPDX-License-Identifier: MIT */
#include <stddef.h>

extern char __start___sancov_cntrs[] __attribute__((visibility("hidden")));
extern char __stop___sancov_cntrs[] __attribute__((visibility("hidden")));

char *edges_begin(void);
size_t edges_bytes(void);

char *edges_begin(void) { return __start___sancov_cntrs; }
size_t edges_bytes(void) { return (size_t)(__stop___sancov_cntrs - __start___sancov_cntrs); }
