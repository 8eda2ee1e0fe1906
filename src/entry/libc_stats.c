/* The standard C names that tell what the heap holds, with glibc's results; declared here, as in libc.c. */
/* SPDX-License-Identifier: MIT */
#include "observe/stats.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>

#define MALLINFO(name, number)                                                                                         \
    struct name {                                                                                                      \
        number arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;                  \
    }
MALLINFO(mallinfo, int);
MALLINFO(mallinfo2, size_t);
struct mallinfo mallinfo(void);
struct mallinfo2 mallinfo2(void);
void malloc_stats(void);
int malloc_info(int options, FILE *stream);

HAK_API struct mallinfo2 mallinfo2(void) {
    struct mallinfo2 m = {0};
    struct heap_figures *f = stats_begin(false);
    if (f == NULL)
        return m;
    m.arena = (size_t)(f->total + f->untouched); /* so that uordblks is never more */
    m.ordblks = f->pool.empty_slots;
    m.uordblks = (size_t)(f->live + f->untouched);
    m.fordblks = (size_t)(f->partly_used_slabs + f->thread_caches + f->empty_slots);
    m.keepcost = (size_t)f->empty_slots;
    stats_end(f);
    return m;
}

HAK_API struct mallinfo mallinfo(void) {
    struct mallinfo2 m = mallinfo2();
    return (struct mallinfo){
        .arena = (int)m.arena,
        .ordblks = (int)m.ordblks,
        .uordblks = (int)m.uordblks,
        .fordblks = (int)m.fordblks,
        .keepcost = (int)m.keepcost,
    };
}

HAK_API void malloc_stats(void) { stats_print(2, false); }

/* The stream is the caller's, so stdio writes to it: the only call here that could be a cancellation point. */
HAK_API int malloc_info(int options, FILE *stream) {
    if (options != 0)
        return EINVAL;
    struct heap_figures *f = stats_begin(false);
    if (f == NULL)
        return ENOMEM;
    size_t length = stats_xml(f);
    int cancellable, ignored;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancellable);
    int error = fwrite(f->text, 1, length, stream) == length ? 0 : errno;
    stats_end(f);
    pthread_setcancelstate(cancellable, &ignored);
    return error;
}
