/* Secure mode's large and huge blocks: each between inaccessible pages. See secure_large.c. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "secure/secure_block.h"

void *secure_large_malloc(struct heap *h, size_t bytes, size_t alignment);
/* What p is; *bytes: the size that was asked for. */
enum secure_state secure_large_find(struct slab *s, const void *p, size_t *bytes);
void secure_large_empty(struct heap *h);   /* empties the quarantine, which all threads share */
size_t secure_large_purge(struct heap *h); /* purges what is resident in the quarantine; returns pages */
