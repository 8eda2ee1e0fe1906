/* Birth and end of heaps. See heap.h. */
#include "heap.h"
#include "options.h"
#include "os.h"

#include <pthread.h>
#include <string.h>

#define RING_BYTES_LEAST (128 * KIB) /* of a thread, however many there are */
#define RING_BYTES_SHARED 8          /* times RING_BYTES: all threads together, as far as the least allows */

// clang-format off
#define NO_BLOCKS {[0 ... TINY_CLASSES - 1] = 1}
// clang-format on
struct heap heap_before_birth = {.list = NO_BLOCKS};
struct heap heap_afterlife = {.list = NO_BLOCKS, .ring_top = HEAP_BYTES}; /* has no room for rings */
_Thread_local struct heap *hak_heap __attribute__((tls_model("initial-exec"))) = &heap_before_birth;

static _Alignas(4096) char first_heap[HEAP_BYTES]; /* the first thread's: needs no system call */
static _Atomic(struct heap *) newest;              /* push-only list of all heaps */
static _Atomic(struct heap *) idle;                /* push one, take all */
static _Atomic uint32_t heaps_made;
static _Atomic int32_t threads;
static _Atomic uint32_t exit_key;                  /* pthread key + 1; 0: none yet */

struct heap *heap_newest(void) { return load_acquire(&newest); }
unsigned heap_threads(void) { return (unsigned)load_relaxed(&threads); }

/* ---- the list of idle heaps ----
 * Taking takes all and gives back the rest, so there is no ABA. Meanwhile others find none and make a new one. */

static void push_idle(struct heap *first, struct heap *last) {
    struct heap *head = load_relaxed(&idle);
    do
        store_relaxed(&last->next_idle, head);
    while (!rmw_cas(&idle, &head, first)); /* pairs with the swap in take_idle */
}

static struct heap *take_idle(void) {
    if (load_relaxed(&idle) == NULL)
        return NULL;
    struct heap *got = rmw_swap(&idle, NULL);
    struct heap *rest = got != NULL ? load_relaxed(&got->next_idle) : NULL;
    if (rest != NULL) {
        struct heap *last = rest;
        while (load_relaxed(&last->next_idle) != NULL)
            last = load_relaxed(&last->next_idle);
        push_idle(rest, last);
    }
    return got;
}

/* ---- birth ---- */

static struct heap *make_heap(void) {
    uint32_t number = rmw_add(&heaps_made, 1);
    struct heap *h = number == 0 ? (struct heap *)(void *)first_heap : region_commit_heap(number);
    if (h == NULL)
        return NULL;
    memcpy(h->list, heap_before_birth.list, sizeof h->list);
    h->number = number;
    h->ring_top = (uint32_t)round_up(sizeof *h, HAK_LINE);
    h->drain_countdown = 1;
    struct heap *head = load_relaxed(&newest);
    do
        h->next = head;
    while (!rmw_cas(&newest, &head, h)); /* pairs with heap_newest */
    return h;
}

static struct heap *take_heap(void) {
    if (!region_init())
        return NULL;
    struct heap *h = take_idle();
    if (h == NULL)
        h = make_heap();
    if (h == NULL)
        return NULL;
    count(&h->pool.counters, COUNT_heaps_born);
    store_relaxed(&h->in_use, true);
    rmw_add(&threads, 1);
    return h;
}

static void put_heap_back(struct heap *h) {
    for (unsigned i = 0; i < TIERS; i++)
        tiers[i].empty(h);
    pool_settle(&h->pool);
#ifdef HAK_CHECKED
    count_add(&h->pool.counters, COUNT_atomic_rmw, rmw_count);
    rmw_count = 0;
#endif
    count(&h->pool.counters, COUNT_heaps_ended);
    store_relaxed(&h->in_use, false);
    rmw_add(&threads, -1);
    push_idle(h, h);
}

static void end_thread(void *heap) {
    hak_heap = &heap_afterlife;
    put_heap_back(heap);
}

/* Two first threads may both make a key; one of them is deleted again. */
static void at_thread_exit(struct heap *h) {
    uint32_t key = load_acquire(&exit_key);
    if (key == 0) {
        pthread_key_t made;
        if (pthread_key_create(&made, end_thread) != 0)
            return; /* the heap stays the thread's for ever: its memory is found through inboxes only */
        if (rmw_cas(&exit_key, &key, made + 1))
            key = made + 1;
        else
            pthread_key_delete(made);
    }
    pthread_setspecific(key - 1, h);
}

HAK_COLD static struct heap *enter_slowly(void) {
    struct heap *h = take_heap();
    if (h == NULL)
        return NULL;
    if (hak_heap == &heap_afterlife) {
        count(&h->pool.counters, COUNT_afterlife_calls);
        return h;
    }
    hak_heap = h; /* before the key: glibc may allocate for it */
    at_thread_exit(h);
    return h;
}

struct heap *heap_enter(void) {
    struct heap *h = hak_heap;
    if (unlikely(h == &heap_before_birth || h == &heap_afterlife))
        return enter_slowly();
    return h;
}

void heap_leave(struct heap *h) {
    if (unlikely(h != hak_heap && h != NULL))
        put_heap_back(h);
}

/* ---- rings ---- */

struct ring *heap_ring(struct heap *h, unsigned index, size_t block_bytes) {
    struct ring *ring = h->ring[index];
    if (likely(ring != NULL))
        return ring;
    unsigned room = index < MID_CLASSES ? option_l2_ring_cap(block_bytes) : (unsigned)option(OPT_L25_RING_CAP);
    size_t bytes = round_up(sizeof *ring + room * sizeof ring->block[0], HAK_LINE);
    if (h->ring_top + bytes > HEAP_BYTES)
        return NULL;
    ring = (struct ring *)(void *)((char *)h + h->ring_top);
    h->ring_top += (uint32_t)bytes;
    ring->room = (uint16_t)room;
    heap_ring_limit(h, ring, index, block_bytes);
    h->ring[index] = ring;
    return ring;
}

static size_t ring_bytes_of_thread(void) {
    size_t bytes = option(OPT_RING_BYTES);
    unsigned sharing = heap_threads();
    if (sharing <= RING_BYTES_SHARED)
        return bytes;
    return min_size(bytes, max_size(RING_BYTES_LEAST, bytes * RING_BYTES_SHARED / sharing));
}

void heap_ring_limit(struct heap *h, struct ring *ring, unsigned index, size_t block_bytes) {
    unsigned cap = index < MID_CLASSES ? option_l2_ring_cap(block_bytes) : (unsigned)option(OPT_L25_RING_CAP);
    h->ring_bytes_most = ring_bytes_of_thread();
    ring->cap = (uint16_t)min_size(min_size(cap, ring->room), h->ring_bytes_most / block_bytes);
}
