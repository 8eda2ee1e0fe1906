/* record.so: when preloaded, writes every call of malloc and its relatives that a program makes to the file
 * $TRACE_RECORD.
 *
 *   1. The first process that finds the file missing records into it. Its children, and programs it executes, do not.
 *   2. A record is 32 bytes; records are in the order of the calls: the end of a block is recorded before the real
 *      call, its beginning after. realloc is both, so nothing else is recorded while it runs. One lock keeps the order.
 *   3. The file is mapped, so records survive however the program ends. Zeroes (OP_NONE) follow the last one.
 *   4. Threads are numbered by their first call; their births (pthread_create) and ends are recorded, too.
 *
 * The blocks are glibc's own. Calls before there is an environment (by the dynamic linker) are not recorded.
 * bench/traces/trace.py packs the file, bench/workloads/replay.c replays it. */
/* SPDX-License-Identifier: MIT */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* trace.py uses the same numbers. */
enum op { OP_NONE, OP_MALLOC, OP_CALLOC, OP_ALIGNED, OP_REALLOC, OP_FREE, OP_BIRTH, OP_END };

struct record {
    uint8_t op;
    uint8_t log2_alignment; /* OP_ALIGNED */
    uint16_t thread;        /* the caller; 0 is the first thread */
    uint32_t child;         /* OP_BIRTH: the thread that starts */
    uint64_t size;          /* as requested */
    uint64_t old, new;      /* addresses; 0 for none */
};
_Static_assert(sizeof(struct record) == 32, "trace.py reads it");

enum { WINDOW_BYTES = 16 << 20, WINDOW_RECORDS = WINDOW_BYTES / sizeof(struct record) };

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);
void __libc_free(void *);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* The lock guards these. */
static struct record *window;
static size_t window_at, file_bytes;
static int file = -1;
static unsigned threads;
static pthread_key_t thread_key;
/* Written once, before `recorder`. */
static int (*create_next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
static _Atomic pid_t recorder; /* 0: not decided yet; -1: no process records */

/* 1 + the thread's number; 0 if it has none yet */
static __thread __attribute__((tls_model("initial-exec"))) uint32_t thread_number;

static _Noreturn void fail(const char *what) {
    const char *texts[] = {"record: ", what, "\n"};
    for (int i = 0; i < 3; i++)
        if (write(2, texts[i], strlen(texts[i])) < 0)
            break;
    _exit(1);
}

static void window_next(void) {
    if (window != NULL)
        munmap(window, WINDOW_BYTES);
    if (ftruncate(file, (off_t)(file_bytes + WINDOW_BYTES)) != 0)
        fail("the file cannot grow");
    window = mmap(NULL, WINDOW_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, (off_t)file_bytes);
    if (window == MAP_FAILED)
        fail("the file cannot be mapped");
    file_bytes += WINDOW_BYTES;
    window_at = 0;
}

/* Call with the lock held. */
static void record(struct record what) {
    if (window_at == WINDOW_RECORDS)
        window_next();
    what.thread = (uint16_t)(thread_number - 1);
    window[window_at++] = what;
}

/* Runs again for a thread that goes on allocating in later destructors, so the thread ends after its last record. */
static void thread_end(void *unused) {
    (void)unused;
    if (recorder != getpid())
        return;
    pthread_mutex_lock(&lock);
    record((struct record){.op = OP_END});
    pthread_mutex_unlock(&lock);
}

static void start(void) {
    int saved = errno;
    const char *path = getenv("TRACE_RECORD");
    file = path != NULL ? open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666) : -1;
    if (path != NULL && file < 0 && errno != EEXIST)
        fail("the file TRACE_RECORD names cannot be made");
    if (file >= 0) {
        window_next();
        if (pthread_key_create(&thread_key, thread_end) != 0)
            fail("no thread key is left");
    }
    recorder = file >= 0 ? getpid() : -1;
    errno = saved;
}

/* Returns true, with the lock held, if this process records. A forked child takes no lock: it may be held forever. */
static bool recording(void) {
    if (recorder == 0 && environ != NULL) {
        pthread_mutex_lock(&lock);
        if (recorder == 0)
            start();
        pthread_mutex_unlock(&lock);
    }
    if (recorder <= 0 || recorder != getpid())
        return false;
    if (pthread_getspecific(thread_key) == NULL)
        pthread_setspecific(thread_key, &lock); /* a key made this early needs no memory */
    pthread_mutex_lock(&lock);
    if (thread_number == 0)
        thread_number = ++threads;
    return true;
}

static void *block_begin(void *block, enum op op, size_t size, size_t alignment) {
    if (block != NULL && recording()) {
        uint8_t log2 = op == OP_ALIGNED ? (uint8_t)__builtin_ctzl(alignment) : 0;
        record((struct record){.op = (uint8_t)op, .log2_alignment = log2, .size = size, .new = (uintptr_t)block});
        pthread_mutex_unlock(&lock);
    }
    return block;
}

/* ---- the functions that the program calls ---- */

#define EXPORT __attribute__((visibility("default")))

EXPORT void *malloc(size_t size) { return block_begin(__libc_malloc(size), OP_MALLOC, size, 0); }

EXPORT void *calloc(size_t count, size_t size) {
    return block_begin(__libc_calloc(count, size), OP_CALLOC, count * size, 0);
}

EXPORT void free(void *block) {
    if (recording()) {
        record((struct record){.op = OP_FREE, .old = (uintptr_t)block});
        pthread_mutex_unlock(&lock);
    }
    __libc_free(block);
}

EXPORT void *realloc(void *old, size_t size) {
    bool locked = recording();
    uintptr_t address = (uintptr_t)old;
    void *block = __libc_realloc(old, size);
    if (locked) {
        if (block != NULL)
            record((struct record){.op = OP_REALLOC, .size = size, .old = address, .new = (uintptr_t)block});
        else if (size == 0) /* glibc's realloc to zero bytes frees */
            record((struct record){.op = OP_FREE, .old = address});
        pthread_mutex_unlock(&lock);
    }
    return block;
}

EXPORT void *memalign(size_t alignment, size_t size) {
    size_t power = sizeof(void *);
    while (power < alignment && power != 0)
        power <<= 1;
    return block_begin(power != 0 ? __libc_memalign(power, size) : NULL, OP_ALIGNED, size, power);
}

EXPORT void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }
EXPORT void *valloc(size_t size) { return memalign((size_t)getpagesize(), size); }

EXPORT void *pvalloc(size_t size) {
    size_t page = (size_t)getpagesize();
    return memalign(page, (size + page - 1) / page * page);
}

EXPORT int posix_memalign(void **place, size_t alignment, size_t size) {
    if (alignment % sizeof(void *) != 0 || (alignment & (alignment - 1)) != 0 || alignment == 0)
        return EINVAL;
    int saved = errno;
    void *block = memalign(alignment, size);
    errno = saved;
    if (block == NULL)
        return ENOMEM;
    *place = block;
    return 0;
}

EXPORT void *reallocarray(void *old, size_t count, size_t size) {
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    return realloc(old, bytes);
}

/* ---- births ---- */

struct birth {
    void *(*entry)(void *);
    void *argument;
    uint32_t number;
};

static void *thread_begin(void *argument) {
    struct birth birth = *(struct birth *)argument;
    __libc_free(argument);
    thread_number = birth.number;
    pthread_setspecific(thread_key, &lock);
    return birth.entry(birth.argument);
}

EXPORT int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*entry)(void *), void *argument) {
    if (create_next == NULL) {
        void *next = dlsym(RTLD_NEXT, "pthread_create");
        memcpy(&create_next, &next, sizeof next);
    }
    struct birth *birth = __libc_malloc(sizeof *birth);
    if (birth == NULL || !recording()) {
        __libc_free(birth);
        return create_next(thread, attributes, entry, argument);
    }
    *birth = (struct birth){.entry = entry, .argument = argument, .number = ++threads};
    if (birth->number > UINT16_MAX)
        fail("more threads than a record can name");
    record((struct record){.op = OP_BIRTH, .child = birth->number - 1});
    pthread_mutex_unlock(&lock);
    int error = create_next(thread, attributes, thread_begin, birth);
    if (error != 0)
        __libc_free(birth);
    return error;
}
