/* The purger: a thread that gives memory back, only in programs that have threads already, only while there is something
 * to give. It starts in malloc, once EMPTY slots were over their bound, looks every 100 ms, and ends after a second in which there was
 * nothing to do. Before it ends in an idle program it purges the free pages inside partly used slabs.
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
