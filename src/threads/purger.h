/* The purger: a thread that gives memory back, only in programs that have threads already.
 *
 *  1. It is made as the program makes a thread, or in malloc, and begins once the heap has some size or something is
 *     over a bound. It wakes up every 100 ms. The program may hold any lock when it is made, so libc itself makes it,
 *     whatever wraps pthread_create (os_start_thread).
 *  2. In an idle program it empties the rings and outboxes of the threads, which may never wake up, takes back the
 *     slabs that they have on loan, and then purges the free pages inside partly used slabs. In a busy program it
 *     does so once a second: it empties the rings and outboxes that nobody used since and heaps that rest, takes back
 *     unused loans and some of the others, and looks at the slabs that changed.
 *  3. After a second without anything to do it parks until something is settled or gathers in an outbox or a ring,
 *     or one of many threads gives a slot. While threads only use what they hold, it wakes up once a second.
 *  4. When all threads of the program but one have ended, it stays for a while, purges what is over the bound and ends.
 */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "heap/heap.h"

/* The program is about to make a thread: makes the purger, too, unless there is one. */
void purger_make(void);
/* It is wanted, and runs from now on if it can be started. Called where a thread may be started (chores.h). */
void purger_start(struct heap *h);
