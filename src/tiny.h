/* Tiny: blocks of at most 1 KiB, by owner lists. See tiny.c. */
/* SPDX-License-Identifier: MIT */
#ifndef HAK_TINY_H
#define HAK_TINY_H

#include "heap.h"

/* The heap's list of the class is empty. A block, its first word cleared; 0 without memory. */
uintptr_t tiny_refill(struct heap *h, unsigned class_id);
/* At the program's end: does what its last thread would hand out next still have its links? */
void tiny_look_at_exit(void);

#endif
