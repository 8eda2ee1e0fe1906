/* A thread's heap: it is taken when the thread first needs one, and put back when the thread ends.
 *
 *  1. At thread exit (a pthread key's destructor) slabs are let go, the rings are emptied, the heap is put back. In a
 *     program whose threads come and go the slabs that serve the classes stay in the heap, which rests: its next thread
 *     begins with hits. They are let go when the purger looks, a new SuperSlab is taken, memory runs short, or
 *     somebody trims.
 *  2. From then on the thread points to heap_afterlife: late destructors that still allocate or free borrow a heap for
 *     each call. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "heap/heap.h"

/* The calling thread's heap, whether the thread has a default arena or not. A thread without a heap has one whose
 * number is HEAP_NONE. */
HAK_INLINE struct heap *thread_own(void) {
    return likely(hak_heap != &heap_redirected) ? hak_heap : hak_default_arena.own;
}
/* From now on what the thread allocates without naming an arena is in this arena; 0: in the process's heap. *before:
 * the handle until now. False: there is no memory for a heap, or the thread has ended. */
bool thread_set_default(uintptr_t handle, uintptr_t *before);
/* Called around foreign code that malloc calls, because what that allocates may outlive the default arena. The first
 * returns the handle for the second, which respects a default that was set in between. */
uintptr_t thread_suspend_default(void);
void thread_resume_default(uintptr_t handle);
/* The calling thread's heap for a slow path; NULL: there is no memory for one. A thread_leave follows each
 * thread_enter. */
struct heap *thread_enter(void);
void thread_leave(struct heap *h);

/* The calling thread, which presence_thread_made has counted, begins: presence_thread_ends will be called at its
 * end. */
void thread_begins(void);

/* Lets go of all slabs of the heap, and gives back what its rings hold. If the heap is about to rest, current and fresh
 * slabs stay. */
void thread_empty_heap(struct heap *h);
/* Lets go of the slabs of all heaps that rest. The caller settles what became EMPTY. */
void thread_empty_resting(void);
