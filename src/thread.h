/* A thread's heap: it is taken when the thread first needs one, and put back when the thread ends.
 *
 *  1. At thread exit (a pthread key's destructor) slabs are let go, the rings are emptied, the heap is put back. In a
 *     program whose threads come and go the slabs that serve the classes stay in the heap, which rests: its next thread
 *     begins with hits. They are let go when the purger looks, a new SuperSlab is taken, memory runs short, or
 *     somebody asks for memory.
 *  2. From then on the thread points to heap_afterlife: late destructors that still allocate or free borrow a heap for
 *     each call. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "heap.h"

/* The calling thread's heap, whether it has a default arena or not; one without number if it has no heap. */
HAK_INLINE struct heap *thread_own(void) {
    return likely(hak_heap != &heap_redirected) ? hak_heap : hak_default_arena.own;
}
/* What the thread allocates without naming an arena is in this one from now on; 0: in the process's heap. Returns the
 * handle before. False: the thread has no heap, or no more. */
bool thread_set_default(uintptr_t handle, uintptr_t *before);
/* Around code of others that malloc calls: what they allocate may outlive the default arena. The first returns what the
 * second wants, which leaves a default that was set meanwhile. */
uintptr_t thread_suspend_default(void);
void thread_resume_default(uintptr_t handle);
/* The calling thread's heap for a slow path, NULL if there is no memory for one. Each enter is followed by a leave. */
struct heap *thread_enter(void);
void thread_leave(struct heap *h);

/* The calling thread, which presence_thread_made has counted, begins: its end will be told. */
void thread_begins(void);

/* Lets go of all that the heap has; what its rings hold goes back. If it is about to rest, current and fresh slabs
 * stay. */
void thread_empty_heap(struct heap *h);
/* Lets go of what heaps that rest have. What became EMPTY is for the caller to settle. */
void thread_empty_resting(void);
