/* Preloaded before an allocator, or before nothing, where glibc's comes next: writes down each block that the allocator
 * hands out and takes back, in all threads and processes, for check.cc. The folder HISTORY_DIR gets a file for each
 * process.
 *
 *  1. One counter gives the moments. An allocation is noted after the call, with a moment taken after it; a free before
 *     the call, with a moment taken before it. Between the two a block is live for certain, and a process that ends in
 *     the middle of a call leaves what the checker needs.
 *  2. Each thread writes into a chunk of its own, which is mapped from the file: however the process ends, the records
 *     are there. No file stays open, because some programs close all files. Nothing here allocates or locks.
 *  3. A page is zero in a child (MADV_WIPEONFORK). So the child notices, and begins a file, which names its parent's
 *     and the moment of its birth.
 *  4. Calls that the allocator's own functions and libstdc++'s operators make are part of the outer call.
 *  5. What cannot be written ends the process: a history with gaps would accuse an allocator falsely. */
/* SPDX-License-Identifier: MIT */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "history.h"

#define API __attribute__((visibility("default")))

enum { EARLY_EVENTS = 4096, EARLY_BYTES = 4096, PATH_BYTES = 512 };

/* ---- the next allocator ---- */

/* X(result, name, parameters), of functions that are called by their names. */
#define NEXT(X)                                                                                                        \
    X(void *, malloc, (size_t))                                                                                        \
    X(void *, calloc, (size_t, size_t))                                                                                \
    X(void *, realloc, (void *, size_t))                                                                               \
    X(void *, reallocarray, (void *, size_t, size_t))                                                                  \
    X(void *, memalign, (size_t, size_t))                                                                              \
    X(void *, aligned_alloc, (size_t, size_t))                                                                         \
    X(int, posix_memalign, (void **, size_t, size_t))                                                                  \
    X(void *, valloc, (size_t))                                                                                        \
    X(void *, pvalloc, (size_t))                                                                                       \
    X(void, free, (void *))                                                                                            \
    X(size_t, malloc_usable_size, (void *))                                                                            \
    X(pid_t, fork, (void))                                                                                             \
    X(void *, dlopen, (const char *, int))                                                                             \
    X(void *, _Znwm, (size_t))                                                                                         \
    X(void *, _Znam, (size_t))                                                                                         \
    X(void *, _ZnwmRKSt9nothrow_t, (size_t, const void *))                                                             \
    X(void *, _ZnamRKSt9nothrow_t, (size_t, const void *))                                                             \
    X(void *, _ZnwmSt11align_val_t, (size_t, size_t))                                                                  \
    X(void *, _ZnamSt11align_val_t, (size_t, size_t))                                                                  \
    X(void *, _ZnwmSt11align_val_tRKSt9nothrow_t, (size_t, size_t, const void *))                                      \
    X(void *, _ZnamSt11align_val_tRKSt9nothrow_t, (size_t, size_t, const void *))                                      \
    X(void, _ZdlPv, (void *))                                                                                          \
    X(void, _ZdaPv, (void *))                                                                                          \
    X(void, _ZdlPvm, (void *, size_t))                                                                                 \
    X(void, _ZdaPvm, (void *, size_t))                                                                                 \
    X(void, _ZdlPvRKSt9nothrow_t, (void *, const void *))                                                              \
    X(void, _ZdaPvRKSt9nothrow_t, (void *, const void *))                                                              \
    X(void, _ZdlPvSt11align_val_t, (void *, size_t))                                                                   \
    X(void, _ZdaPvSt11align_val_t, (void *, size_t))                                                                   \
    X(void, _ZdlPvmSt11align_val_t, (void *, size_t, size_t))                                                          \
    X(void, _ZdaPvmSt11align_val_t, (void *, size_t, size_t))                                                          \
    X(void, _ZdlPvSt11align_val_tRKSt9nothrow_t, (void *, size_t, const void *))                                       \
    X(void, _ZdaPvSt11align_val_tRKSt9nothrow_t, (void *, size_t, const void *))                                       \
    X(void, free_sized, (void *, size_t))                                                                              \
    X(void, free_aligned_sized, (void *, size_t, size_t))

#define FIELD(result, name, parameters) result(*name) parameters;
static struct { NEXT(FIELD) } next; /* written before there are threads */

static bool is_asking; /* dlsym is at work */
static char early[EARLY_BYTES] __attribute__((aligned(16)));
static size_t early_used;

/* Blocks for dlsym, should it want any: they stay. */
static void *early_block(size_t bytes) {
    size_t at = early_used;
    early_used += (bytes + 15) & ~(size_t)15;
    return early_used <= EARLY_BYTES ? early + at : NULL;
}
static bool is_early(const void *p) { return (const char *)p >= early && (const char *)p < early + EARLY_BYTES; }

static void ask(void) {
    is_asking = true;
#define FIND(result, name, parameters) *(void **)&next.name = dlsym(RTLD_NEXT, #name);
    NEXT(FIND)
    is_asking = false;
}

/* ---- chunks ---- */

struct life {
    uint64_t number; /* of this process among its ancestors that forked; 0 after a fork, and at first */
};
static struct life no_life;
static struct life *life = &no_life; /* a page that is zero in a child */
static uint64_t lives;
static _Atomic uint64_t moments = 1, chunks, threads;
static char path[PATH_BYTES], folder[PATH_BYTES], own_name[HISTORY_NAME_BYTES]; /* written while the process is alone */
static bool is_on, is_decided;

static __thread struct {
    struct history_event *at, *end;
    uint64_t life, number;
    unsigned depth; /* calls of the allocator that are running */
} self __attribute__((tls_model("initial-exec")));

static struct history_event early_events[EARLY_EVENTS]; /* before there is an environment */

static uint64_t moment(void) { return atomic_fetch_add(&moments, 1); }

static _Noreturn void fail(const char *what) {
    char line[128];
    int length = snprintf(line, sizeof line, "history: %s: error %d\n", what, errno);
    if (write(2, line, (size_t)length) < 0)
        abort();
    abort();
}

static void open_file(uint64_t at) {
    struct history_process opening = {.begin = at, .kind = (uint64_t)HISTORY_PROCESS << 56};
    memcpy(opening.parent, own_name, sizeof opening.parent);
    int file = -1;
    for (unsigned n = 0; file < 0; n++) {
        snprintf(own_name, sizeof own_name, "%d-%u", (int)getpid(), n);
        snprintf(path, sizeof path, "%s/%s", folder, own_name);
        file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (file < 0 && errno != EEXIST)
            fail("no file can be made");
    }
    if (write(file, &opening, sizeof opening) != sizeof opening || close(file) != 0)
        fail("a file cannot be written");
    atomic_store(&chunks, 0);
}

/* The next chunk of the file, into which the calling thread alone writes. */
static void take_chunk(void) {
    if (self.at != NULL && self.life == life->number)
        munmap(self.end - HISTORY_CHUNK_EVENTS, HISTORY_CHUNK_BYTES);
    off_t from = (off_t)atomic_fetch_add(&chunks, 1) * HISTORY_CHUNK_BYTES + HISTORY_OPENING_BYTES;
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0 || pwrite(file, "", 1, from + HISTORY_CHUNK_BYTES - 1) != 1)
        fail("a file cannot grow");
    self.at = mmap(NULL, HISTORY_CHUNK_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, from);
    if (self.at == MAP_FAILED)
        fail("a file cannot be mapped");
    close(file);
    self.end = self.at + HISTORY_CHUNK_EVENTS;
    if (self.life != life->number || self.number == 0)
        self.number = atomic_fetch_add(&threads, 1) + 1;
    self.life = life->number;
    *self.at++ = (struct history_event){.begin = self.number, .kind = HISTORY_THREAD};
}

/* The process records from now on: it is new, or a child. No other thread runs yet. */
static void begin_life(void) {
    uint64_t at = moment();
    open_file(at);
    if (life == &no_life) {
        void *page = mmap(NULL, HISTORY_OPENING_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (page == MAP_FAILED || madvise(page, HISTORY_OPENING_BYTES, MADV_WIPEONFORK) != 0)
            fail("no page that a child lacks");
        life = page;
    }
    life->number = ++lives;
}

/* Where HISTORY_DIR is read: once there is an environment. */
static void decide(void) {
    const char *named = getenv("HISTORY_DIR");
    is_decided = environ != NULL;
    is_on = named != NULL && strlen(named) < PATH_BYTES - HISTORY_NAME_BYTES;
    if (is_on)
        strcpy(folder, named);
}

static struct history_event *early_slot(void) {
    static size_t used;
    if (used == EARLY_EVENTS)
        fail("too many calls before there is an environment");
    return &early_events[used++];
}

/* Has a file, if this process records and can know it by now. */
static void be_alive(void) {
    if (!is_decided)
        decide();
    if (is_on && life->number == 0)
        begin_life();
}

static struct history_event *slot_slow(void) {
    int error = errno;
    be_alive();
    if (!is_decided) /* the dynamic linker is at work */
        return early_slot();
    if (!is_on) {
        static __thread struct history_event nowhere __attribute__((tls_model("initial-exec")));
        return &nowhere;
    }
    take_chunk();
    for (size_t i = 0; i < EARLY_EVENTS && early_events[i].kind != HISTORY_NONE; i++) {
        if (self.at == self.end)
            take_chunk();
        *self.at++ = early_events[i];
        early_events[i].kind = HISTORY_NONE;
    }
    if (self.at == self.end)
        take_chunk();
    errno = error;
    return self.at++;
}

static struct history_event *slot(void) {
    return self.at != self.end && self.life == life->number && self.life != 0 ? self.at++ : slot_slow();
}

/* ---- what is recorded ---- */

/* Ends a call, also where an exception passes. */
static void leave(const bool *is_outer) {
    (void)is_outer;
    self.depth--;
}
#define ENTER                                                                                                          \
    if (__builtin_expect(next.malloc == NULL && !is_asking, 0))                                                        \
        ask();                                                                                                         \
    __attribute__((cleanup(leave), unused)) bool is_outer = self.depth++ == 0;

static void note_block(void *p, size_t bytes, size_t alignment) {
    struct history_event *at = slot(); /* first: a child's moments begin with it */
    *at = (struct history_event){.end = moment(),
                                 .new_block = (uintptr_t)p,
                                 .size = bytes,
                                 .kind = HISTORY_MALLOC,
                                 .log2_alignment = (unsigned)__builtin_ctzll(alignment),
                                 .usable = next.malloc_usable_size(p)};
}

static void *had(bool is_outer, void *p, size_t bytes, size_t alignment) {
    if (p != NULL && is_outer)
        note_block(p, bytes, alignment);
    return p;
}

static void note_free(const void *p) {
    struct history_event *at = slot();
    *at = (struct history_event){.begin = moment(), .old = (uintptr_t)p, .kind = HISTORY_FREE};
}

/* What any block has that is as large. */
static size_t usual(size_t bytes) { return bytes >= 16 ? 16 : 8; }

API void *malloc(size_t bytes) {
    ENTER
    return is_asking ? early_block(bytes) : had(is_outer, next.malloc(bytes), bytes, usual(bytes));
}
API void *calloc(size_t count, size_t bytes) {
    ENTER
    return is_asking ? early_block(count * bytes)
                     : had(is_outer, next.calloc(count, bytes), count * bytes, usual(count * bytes));
}

/* Before the call; `event` stays where it is until the call has returned. */
static struct history_event *note_realloc(const void *old, size_t bytes) {
    struct history_event *at = slot();
    *at = (struct history_event){.begin = moment(), .old = (uintptr_t)old, .size = bytes, .kind = HISTORY_REALLOC};
    return at;
}
static void *reallocated(struct history_event *event, void *p, size_t bytes) {
    uint64_t at = moment();
    event->new_block = (uintptr_t)p;
    if (p != NULL) {
        event->usable = next.malloc_usable_size(p);
        event->log2_alignment = (unsigned)__builtin_ctzll(usual(bytes));
    }
    event->end = at;
    return p;
}
API void *realloc(void *old, size_t bytes) {
    ENTER
    if (old == NULL || !is_outer || is_early(old))
        return had(is_outer, next.realloc(is_early(old) ? NULL : old, bytes), bytes, usual(bytes));
    struct history_event *event = note_realloc(old, bytes);
    return reallocated(event, next.realloc(old, bytes), bytes);
}
API void *reallocarray(void *old, size_t count, size_t bytes) {
    ENTER
    size_t all;
    if (old == NULL || !is_outer || __builtin_mul_overflow(count, bytes, &all))
        return had(is_outer, next.reallocarray(old, count, bytes), count * bytes, usual(count * bytes));
    struct history_event *event = note_realloc(old, all);
    return reallocated(event, next.reallocarray(old, count, bytes), all);
}
API void *memalign(size_t alignment, size_t bytes) {
    ENTER
    return had(is_outer, next.memalign(alignment, bytes), bytes, alignment ? alignment : 1);
}
API void *aligned_alloc(size_t alignment, size_t bytes) {
    ENTER
    return had(is_outer, next.aligned_alloc(alignment, bytes), bytes, alignment ? alignment : 1);
}
API int posix_memalign(void **p, size_t alignment, size_t bytes) {
    ENTER
    int error = next.posix_memalign(p, alignment, bytes);
    if (error == 0)
        had(is_outer, *p, bytes, alignment);
    return error;
}
API void *valloc(size_t bytes) {
    ENTER
    return had(is_outer, next.valloc(bytes), bytes, 4096);
}
API void *pvalloc(size_t bytes) {
    ENTER
    return had(is_outer, next.pvalloc(bytes), bytes, 4096);
}
API size_t malloc_usable_size(void *p) {
    ENTER
    return is_early(p) ? 0 : next.malloc_usable_size(p);
}

#define FREES(name, parameters, ...)                                                                                   \
    API void name parameters {                                                                                         \
        ENTER                                                                                                          \
        if (p == NULL || is_early(p))                                                                                  \
            return;                                                                                                    \
        if (is_outer)                                                                                                  \
            note_free(p);                                                                                              \
        if (next.name != NULL)                                                                                         \
            next.name(__VA_ARGS__);                                                                                    \
        else /* glibc before 2.44 has neither free_sized nor free_aligned_sized */                                     \
            next.free(p);                                                                                              \
    }
FREES(free, (void *p), p)
FREES(free_sized, (void *p, size_t size), p, size)
FREES(free_aligned_sized, (void *p, size_t alignment, size_t size), p, alignment, size)
API void cfree(void *p) { free(p); }

/* In the parent: a child goes on from some moment in between. */
API pid_t fork(void) {
    if (next.malloc == NULL)
        ask();
    be_alive(); /* or the child would take its grandparent's file for its parent's */
    uint64_t begin = moment();
    pid_t child = next.fork();
    if (child > 0) {
        struct history_event event = {.begin = begin, .end = moment(), .kind = HISTORY_FORK};
        *slot() = event;
    }
    return child;
}

/* What is opened with RTLD_DEEPBIND would call libc's malloc, and free the program's blocks there. A jump to the next
 * function, which sees the caller's address, as it searches the caller's RUNPATH. */
API void *dlopen(const char *name, int mode) {
    if (next.malloc == NULL)
        ask();
    return next.dlopen(name, mode & ~RTLD_DEEPBIND);
}

/* ---- C++ ---- */

#define NEWS(name, alignment, parameters, ...)                                                                         \
    API void *name parameters {                                                                                        \
        ENTER                                                                                                          \
        return had(is_outer, next.name(__VA_ARGS__), bytes, alignment);                                                \
    }
NEWS(_Znwm, usual(bytes), (size_t bytes), bytes)
NEWS(_Znam, usual(bytes), (size_t bytes), bytes)
NEWS(_ZnwmRKSt9nothrow_t, usual(bytes), (size_t bytes, const void *tag), bytes, tag)
NEWS(_ZnamRKSt9nothrow_t, usual(bytes), (size_t bytes, const void *tag), bytes, tag)
NEWS(_ZnwmSt11align_val_t, align, (size_t bytes, size_t align), bytes, align)
NEWS(_ZnamSt11align_val_t, align, (size_t bytes, size_t align), bytes, align)
NEWS(_ZnwmSt11align_val_tRKSt9nothrow_t, align, (size_t bytes, size_t align, const void *tag), bytes, align, tag)
NEWS(_ZnamSt11align_val_tRKSt9nothrow_t, align, (size_t bytes, size_t align, const void *tag), bytes, align, tag)
FREES(_ZdlPv, (void *p), p)
FREES(_ZdaPv, (void *p), p)
FREES(_ZdlPvm, (void *p, size_t size), p, size)
FREES(_ZdaPvm, (void *p, size_t size), p, size)
FREES(_ZdlPvRKSt9nothrow_t, (void *p, const void *tag), p, tag)
FREES(_ZdaPvRKSt9nothrow_t, (void *p, const void *tag), p, tag)
FREES(_ZdlPvSt11align_val_t, (void *p, size_t align), p, align)
FREES(_ZdaPvSt11align_val_t, (void *p, size_t align), p, align)
FREES(_ZdlPvmSt11align_val_t, (void *p, size_t size, size_t align), p, size, align)
FREES(_ZdaPvmSt11align_val_t, (void *p, size_t size, size_t align), p, size, align)
FREES(_ZdlPvSt11align_val_tRKSt9nothrow_t, (void *p, size_t align, const void *tag), p, align, tag)
FREES(_ZdaPvSt11align_val_tRKSt9nothrow_t, (void *p, size_t align, const void *tag), p, align, tag)
