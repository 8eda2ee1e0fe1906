/* See thread.h. */
#include "thread.h"
#include "kinds.h"
#include "ring.h"

#include <pthread.h>

static _Atomic uint32_t exit_key; /* pthread key + 1; 0: none yet */

static void empty_heap(struct heap *h) {
    for (unsigned i = 0; kinds[i] != NULL; i++)
        if (kinds[i]->empty != NULL)
            kinds[i]->empty(h);
    rings_empty(h);
    pool_settle(&h->pool);
}

/* The key's value says only that there is a heap: a second libc in the process (an audit module's) numbers its keys from
 * 0, too, and stores its values in the same place. */
static void end_thread(void *value) {
    struct heap *h = hak_heap;
    (void)value;
    if (h->number == HEAP_NONE)
        return;
    hak_heap = &heap_afterlife;
    empty_heap(h);
    rings_forget(h);
    bool left = caches_enter(h) &&
                (h->outbox_blocks != 0 || h->lent.slabs != 0); /* the purger may have been at the caches before */
    caches_leave(h);
    if (left)
        empty_heap(h);
    heap_put(h);
}

/* Two first threads may both make a key; one of them is deleted again. False: the thread's end would not be noticed. */
static bool at_thread_exit(struct heap *h) {
    uint32_t key = load_acquire(&exit_key);
    if (key == 0) {
        pthread_key_t made;
        if (pthread_key_create(&made, end_thread) != 0)
            return false;
        if (rmw_cas(&exit_key, &key, made + 1))
            key = made + 1;
        else
            pthread_key_delete(made);
    }
    return pthread_setspecific(key - 1, h) == 0;
}

HAK_COLD static struct heap *enter_slowly(void) {
    struct heap *h = heap_take();
    if (h == NULL)
        return NULL;
    if (hak_heap == &heap_afterlife) {
        count(&h->pool.counters, COUNT_afterlife_calls);
        return h;
    }
    hak_heap = h; /* before the key: glibc may allocate for it */
    if (!at_thread_exit(h))
        hak_heap = &heap_before_birth; /* this call borrows it; the next one tries again */
    return h;
}

struct heap *thread_enter(void) {
    struct heap *h = hak_heap;
    if (unlikely(h->number == HEAP_NONE))
        return enter_slowly();
    return h;
}

void thread_leave(struct heap *h) {
    if (likely(h == hak_heap || h == NULL))
        return;
    empty_heap(h);
    heap_put(h);
}
