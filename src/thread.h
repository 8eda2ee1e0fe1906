/* A thread's heap: it is taken when the thread first needs one, and put back when the thread ends.
 *
 *  1. At thread exit (a pthread key's destructor) slabs are let go, the rings are emptied, the heap is put back.
 *  2. From then on the thread points to heap_afterlife: late destructors that still allocate or free borrow a heap for each
 *     call. */
/* SPDX-License-Identifier: MIT */
#ifndef HAK_THREAD_H
#define HAK_THREAD_H

#include "heap.h"

/* The calling thread's heap for a slow path, NULL if there is no memory for one. Each enter is followed by a leave. */
struct heap *thread_enter(void);
void thread_leave(struct heap *h);

#endif
