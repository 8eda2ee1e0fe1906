/* The lines with which HAKMEM ends a program that handed it something it must not: one stable line on the standard
 * error by write(2) alone, then abort. Never returns, allocates nothing. */
#ifndef HAK_FAIL_H
#define HAK_FAIL_H

#include "base.h"

/* "hakmem: double free of 0x… (48-byte block)" */
_Noreturn HAK_COLD void fail_double_free(const void *p, size_t block_bytes);
/* "hakmem: invalid free of 0x… (why)"; for other calls "hakmem: invalid pointer 0x… in realloc (why)".
 * block_bytes != 0: why is "inside a 48-byte block". */
_Noreturn HAK_COLD void fail_bad_pointer(const char *call, const void *p, const char *why, size_t block_bytes);
/* "hakmem: free of 0x… with size 100 (48-byte block)" */
_Noreturn HAK_COLD void fail_bad_size(const void *p, size_t told, size_t block_bytes);
/* The secure mode's: "hakmem: overflow of 0x… (48-byte block)", "hakmem: write after free of 0x… (48-byte block)" */
HAK_COLD void fail_damage(const char *what, const void *p, size_t bytes);

#endif
