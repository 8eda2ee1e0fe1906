/* A pthread_create of the library's own, which stands before libc's: the program makes a thread, so the purger may be made, too. A
 * sandbox that the program enters later may end it at the call that makes a thread, and malloc cannot know.
 *
 * The purger then sleeps until it is wanted (presence.h). In programs whose threads are made some other way, and in those that are
 * linked with the archive, where libc's own pthread_create may have no other name, malloc starts it. */
/* SPDX-License-Identifier: MIT */
#include "beside/next.h"
#include "purger.h"

#include <errno.h>
#include <pthread.h>

typedef int create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

HAK_API int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument) {
    create *next = (create *)next_function(NEXT_pthread_create); /* NOLINT: an address */
    if (next == NULL)
        return EAGAIN;
    purger_make(); /* first: when the new thread ends, the purger is there and hears of it */
    return next(thread, attributes, run, argument);
}
