/* See clear.c. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "base/base.h"

#define CLEAR_BY_PAGE_BYTES (2 * MIB) /* clearing less by hand takes no longer than to ask what is resident */

/* Makes the bytes zero and returns their start, which is a page's. At least CLEAR_BY_PAGE_BYTES. */
void *clear_pages(void *block, size_t bytes);

/* `bytes` is a multiple of a word's. */
bool is_all_zero(const void *words, size_t bytes);
/* Makes pages zero, some of which may be inaccessible: purges them, or else makes them accessible and clears them. */
bool make_zero(void *pages, size_t bytes);
/* A touch of each page: it is resident and writable afterwards. */
void touch_pages(void *begin, size_t bytes);
