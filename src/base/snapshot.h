/* Copies of what other threads may be writing. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include <stddef.h>

/* Copies a record that another thread may be changing, or even using for something else by now. Each aligned word of
 * four bytes, and of eight in a record aligned to that, is read once, whole; one may be older than the next. The copy
 * is for statistics and guesses, and its reader checks what it finds. */
void snapshot(void *to, const void *from, size_t bytes);
