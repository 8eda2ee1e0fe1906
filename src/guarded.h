/* Secure mode's large and huge blocks: each between inaccessible pages. See guarded.c. */
/* SPDX-License-Identifier: MIT */
#ifndef HAK_GUARDED_H
#define HAK_GUARDED_H

#include "secure_block.h"

void *guarded_malloc(struct heap *h, size_t bytes, size_t alignment);
/* What p is; *bytes: the size that was asked for. */
enum secure_state guarded_find(struct slab *s, const void *p, size_t *bytes);
void guarded_empty(struct heap *h);   /* the quarantine, which all threads share */
size_t guarded_purge(struct heap *h); /* what is resident there; in pages */

#endif
