/* A pthread_create of the library's own, which stands before libc's: the program makes a thread, so the purger may be
 * made, too. A sandbox that the program enters later may end it at the call that makes a thread, and malloc cannot
 * know.
 *
 * The purger then sleeps until it is wanted (presence.h), and it ends when the program's threads have. So each thread
 * begins here, to have its end told. In programs whose threads are made some other way, and in those that are linked
 * with the archive, where libc's own pthread_create may have no other name, malloc starts the purger, and threads
 * without a heap do not count. */
/* SPDX-License-Identifier: MIT */
#include "base/os.h"
#include "beside/next.h"
#include "process/presence.h"
#include "threads/purger.h"
#include "threads/thread.h"

#include <errno.h>
#include <pthread.h>

enum { PLACE_WAITS = 200 }; /* ms, of which a busy machine takes some */

typedef int create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

/* What threads that were made and have not begun are to run. If a thread finds no place here, its end is not told. */
static HAK_APART struct start {
    _Atomic bool taken;
    void *(*run)(void *);
    void *argument;
} starts[64];

static struct start *take_start(void) {
    for (unsigned i = 0; i < sizeof starts / sizeof *starts; i++) {
        bool taken = false;
        if (!load_relaxed(&starts[i].taken) && rmw_cas(&starts[i].taken, &taken, true)) /* pairs with begin */
            return &starts[i];
    }
    return NULL;
}

/* Its last call is a jump: the program's function is the first of the thread's own, as without us. */
static void *begin(void *at) {
    struct start start = {.run = ((struct start *)at)->run, .argument = ((struct start *)at)->argument};
    store_release(&((struct start *)at)->taken, false);
    thread_begins();
    return start.run(start.argument);
}

/* At a limit of tasks the purger may have the last place, which the program is to get. The kernel frees the place
 * shortly after the purger has ended. */
static int make(create *next, pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                void *argument) {
    int error = next(thread, attributes, run, argument);
    if (likely(error != EAGAIN) || !presence_yield())
        return error;
    for (unsigned waited = 0; error == EAGAIN && waited < PLACE_WAITS; waited++) {
        os_sleep(1);
        error = next(thread, attributes, run, argument);
    }
    presence_yielded(error == 0);
    return error;
}

HAK_API int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument) {
    create *next = (create *)next_function(NEXT_pthread_create); /* NOLINT: an address */
    if (next == NULL)
        return EAGAIN;
    purger_make(); /* first: when the new thread ends, the purger is there and hears of it */
    struct start *start = take_start();
    if (start == NULL) {
        presence_thread_ends();
        return make(next, thread, attributes, run, argument);
    }
    start->run = run;
    start->argument = argument;
    int error = make(next, thread, attributes, begin, start);
    if (error != 0) {
        store_release(&start->taken, false);
        presence_thread_ends();
    }
    return error;
}
