/* The kind of toy_kind.c, for a test in C++. */
/* SPDX-License-Identifier: MIT */
#ifndef HAKMEM_TESTS_TOY_KIND_H
#define HAKMEM_TESTS_TOY_KIND_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

void *toy_malloc(size_t bytes);
int toy_has_kept_a_block(void);

#ifdef __cplusplus
}
#endif

#endif
