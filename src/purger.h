/* The purger: a thread that gives memory back, only in programs that have threads already.
 *
 *  1. It is made as the program makes a thread, or in malloc, and begins once the heap has some size or something is
 *     over a bound. It wakes up every 100 ms. The program may hold any lock when it is made, so libc itself makes it,
 *     whatever wraps pthread_create (os_start_thread).
 *  2. In an idle program it empties the rings and outboxes of the threads, which may never wake up, takes back the
 *     slabs that they have on loan, and then purges the free pages inside partly used slabs. In a busy program it
 *     empties only the rings and outboxes that nobody used for a second.
 *  3. After a second without anything to do it parks until something is settled or gathers in an outbox or a ring.
 *     While threads only use what they hold in these, it wakes up once a second.
 *  4. When all threads of the program but one have ended, it stays for a while, purges what is over the bound and ends.
 *
 * The chores that threads do for themselves, at the end of a slow malloc, are here too. */
/* SPDX-License-Identifier: MIT */
#ifndef HAK_PURGER_H
#define HAK_PURGER_H

#include "heap.h"

/* The program is about to make a thread: makes the purger, too, unless there is one. */
void purger_make(void);
/* Does what settling found due. Called at the end of malloc's slow path only: nothing is half-done there, and no lock
 * of the C library is held that starting a thread takes, as in free. */
HAK_COLD void chores_do(struct heap *h);
/* What the heap holds back goes to the pool, in the hope that a second try succeeds. */
void chores_empty_caches(struct heap *h);
/* The calling thread is about to wait: lets go of all that its heap has. */
void chores_rest(void);
/* All that can be given back. Returns how many bytes were. */
size_t chores_give_back(struct heap *h);

#endif
