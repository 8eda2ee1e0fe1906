/* The purger: a thread that gives memory back, only in programs that have threads already.
 *
 *  1. It starts in malloc, once the heap has some size or there is something over a bound, and looks every 100 ms.
 *  2. In an idle program it empties the rings and outboxes of the threads, which may sleep for ever, then purges the free
 *     pages inside partly used slabs. In a busy one it empties those that nobody used for a second.
 *  3. After a second without anything to do it parks until something is settled or gathers in an outbox; if the program is back to one thread, it
 *     ends: then nothing of it is left.
 *
 * Also what heaps' threads do themselves from time to time. */
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
