/* The purger: a thread that gives memory back, only in programs that have threads already.
 *
 *  1. It starts in malloc, once the heap has some size or there is something over a bound, and looks every 100 ms. The program
 *     may hold any lock then: the thread is started by libc itself, whatever wraps pthread_create (os_start_thread).
 *  2. In an idle program it empties the rings and outboxes of the threads, which may never wake up, and takes back the slabs
 *     that they have on loan, then purges the free pages inside partly used slabs. In a busy one it empties those that
 *     nobody used for a second.
 *  3. After a second without anything to do it parks until something is settled or gathers in an outbox or a ring. While
 *     threads use what they hold in these, and no more, it looks once a second.
 *  4. When the last thread but one of the program has ended, it purges what is over the bound and ends, busy or not: the
 *     program has one thread then. The next one starts a tenth of a second later, or when 32 MiB
 *     were taken and given since.
 *
 * Also what heaps' threads do themselves from time to time. */
/* SPDX-License-Identifier: MIT */
#ifndef HAK_PURGER_H
#define HAK_PURGER_H

#include "heap.h"

/* Does what settling found due. Called at the end of malloc's slow path only: nothing is half-done there, and no lock of
 * the C library is held that starting a thread takes, as in free. */
HAK_COLD void chores_do(struct heap *h);
HAK_INLINE void chores_check(struct heap *h) {
    if (unlikely(h->pool.chores != 0))
        chores_do(h);
}

#endif
