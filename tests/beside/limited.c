/* A program that lowers its own RLIMIT_AS while it runs, as vsftpd does. Whatever it does then has to find memory:
 * blocks of all sizes, threads, mappings of its own, children. Later it takes the limit away again. Or it locks its
 * memory: `locked`, where RLIMIT_MEMLOCK counts all that is mapped.
 *
 * limited HOW MIB: the limit is set by setrlimit, by prlimit, by a `call` of the system, which the library cannot see,
 * or was set before the program began: `stay`. `together`: set by a call, when threads that have no heaps begin.
 * `refused`: set before the program began, and so low for a while that threads get no heaps, however often they ask. */
/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define CHECK(x) ((x) ? (void)0 : fail(__LINE__, #x))
enum { THREADS = 4, BLOCKS = 200, ROUNDS = 20, PIECES = 700, PEAK = 300 };

static void fail(int line, const char *what) {
    fprintf(stderr, "limited.c:%d: %s (%s)\n", line, what, strerror(errno));
    _exit(1);
}

static size_t min(size_t a, size_t b) { return a < b ? a : b; }

static size_t size_of(unsigned number) {
    static const size_t sizes[] = {16, 100, 900, 3000, 20000, 66000, 300000, 1100000};
    return sizes[number % (sizeof sizes / sizeof *sizes)] + number;
}

/* Blocks of all sizes, 13 MB at most, whose contents are looked at when they are freed. */
static void *work(void *seed_of) {
    char *blocks[BLOCKS / 8] = {0};
    unsigned seed = (unsigned)(uintptr_t)seed_of;
    for (unsigned i = 0; i < BLOCKS * ROUNDS; i++) {
        seed = seed * 1103515245 + 12345;
        unsigned at = (seed >> 16) % (BLOCKS / 8);
        if (blocks[at] != NULL) {
            CHECK(blocks[at][0] == (char)at && blocks[at][size_of(at) - 1] == (char)at);
            free(blocks[at]);
            blocks[at] = NULL;
        } else {
            CHECK((blocks[at] = malloc(size_of(at))) != NULL);
            blocks[at][0] = blocks[at][size_of(at) - 1] = (char)at;
        }
    }
    for (unsigned at = 0; at < BLOCKS / 8; at++)
        free(blocks[at]);
    return NULL;
}

static void set(const char *how, rlim_t bytes);

/* The limit is set meanwhile, if `how`. */
static void work_in_threads(const char *how, rlim_t bytes) {
    pthread_t threads[THREADS];
    pthread_attr_t attributes; /* eight MiB for each stack are most of the limit */
    CHECK(pthread_attr_init(&attributes) == 0 && pthread_attr_setstacksize(&attributes, MIB) == 0);
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], &attributes, work, (void *)(i + 1)) == 0);
    if (how != NULL)
        set(how, bytes);
    for (unsigned i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

static void await(pid_t child) {
    int status = 1;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

static void set(const char *how, rlim_t bytes) {
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_AS, &limit) == 0);
    limit.rlim_cur = bytes;
    if (strcmp(how, "setrlimit") == 0)
        CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    else if (strcmp(how, "prlimit") == 0)
        CHECK(prlimit(0, RLIMIT_AS, &limit, NULL) == 0);
    else
        CHECK(syscall(SYS_prlimit64, 0, RLIMIT_AS, &limit, NULL) == 0);
}

static void live_with_little(const char *program, const char *mib) {
    static char *blocks[BLOCKS / 2]; /* 19 MB */
    void *first[8];                  /* more than the library has: if nobody told it of the limit, they do */
    for (unsigned i = 0; i < 8; i++)
        CHECK((first[i] = malloc(3 * MIB)) != NULL);
    for (unsigned i = 0; i < 8; i++)
        free(first[i]);
    for (unsigned i = 0; i < BLOCKS / 2; i++) {
        CHECK((blocks[i] = malloc(size_of(i))) != NULL);
        memset(blocks[i], (int)i, size_of(i));
    }
    void *own = mmap(NULL, 20 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(own != MAP_FAILED);
    work_in_threads(NULL, 0);
    pid_t child = fork();
    if (child == 0) {
        work_in_threads(NULL, 0);
        _exit(0);
    }
    await(child);
    if (program != NULL) {
        child = vfork();
        if (child == 0) {
            execl(program, program, "stay", mib, (char *)NULL);
            _exit(2);
        }
        await(child);
    }
    for (unsigned i = 0; i < BLOCKS / 2; i++) {
        for (size_t at = 0; at < size_of(i); at += 7)
            CHECK(blocks[i][at] == (char)i);
        free(blocks[i]);
    }
    CHECK(munmap(own, 20 * MIB) == 0);
}

static size_t addresses(void) {
    size_t pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    CHECK(f != NULL && fscanf(f, "%zu", &pages) == 1 && fclose(f) == 0);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* The limits of other processes are none of this one's: those of a vfork's child, which has the same memory, and of a
 * fork's. */
static void limit_others(size_t bytes) {
    struct rlimit limit = {bytes, bytes};
    size_t before = addresses();
    pid_t child = vfork();
    if (child == 0)
        _exit(setrlimit(RLIMIT_AS, &limit) != 0 || prlimit(getpid(), RLIMIT_AS, &limit, NULL) != 0);
    await(child);
    child = fork();
    if (child == 0)
        _exit(pause());
    CHECK(prlimit(child, RLIMIT_AS, &limit, NULL) == 0 && kill(child, SIGKILL) == 0);
    CHECK(waitpid(child, NULL, 0) == child);
    size_t now = addresses();
    CHECK(now >= before - MIB && now <= before + 20 * MIB);
}

/* ---- threads that are refused memory at the same moment ---- */

enum { BEGINNERS = 8, TIMES = 40 };
static pthread_barrier_t barrier;

/* The first malloc of a thread makes its heap, the others take more than a SuperSlab from all threads together. */
static void *begin_at_once(void *unused) {
    (void)unused;
    void *blocks[8];
    pthread_barrier_wait(&barrier);
    for (unsigned i = 0; i < sizeof blocks / sizeof *blocks; i++)
        CHECK((blocks[i] = malloc(i == 0 ? 100 : MIB - 10000)) != NULL);
    for (unsigned i = 0; i < sizeof blocks / sizeof *blocks; i++)
        free(blocks[i]);
    return NULL;
}

static void begin_together(rlim_t bytes) {
    for (unsigned time = 0; time < TIMES; time++) {
        pid_t child = fork();
        if (child == 0) {
            pthread_t threads[BEGINNERS];
            pthread_attr_t attributes;
            CHECK(pthread_attr_init(&attributes) == 0 && pthread_attr_setstacksize(&attributes, MIB / 4) == 0);
            CHECK(pthread_barrier_init(&barrier, NULL, BEGINNERS + 1) == 0);
            for (unsigned i = 0; i < BEGINNERS; i++)
                CHECK(pthread_create(&threads[i], &attributes, begin_at_once, NULL) == 0);
            set("call", bytes);
            pthread_barrier_wait(&barrier);
            for (unsigned i = 0; i < BEGINNERS; i++)
                CHECK(pthread_join(threads[i], NULL) == 0);
            _exit(0);
        }
        await(child);
    }
}

enum { REFUSED = 8, ASKS = 100000 }; /* more than a region of that size has heaps, many times over */

static void *ask_in_vain(void *unused) {
    pthread_barrier_wait(&barrier);
    for (unsigned i = 0; i < ASKS; i++)
        CHECK(malloc(100) == NULL);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    void *block = malloc(100);
    CHECK(block != NULL);
    free(block);
    return unused;
}

/* Whoever is refused a heap may ask again at each malloc, at the same time as others: once there is memory, each thread
 * gets one. */
static void ask_together(rlim_t bytes) {
    pthread_t threads[REFUSED];
    pthread_attr_t attributes;
    CHECK(pthread_attr_init(&attributes) == 0 && pthread_attr_setstacksize(&attributes, MIB / 4) == 0);
    CHECK(pthread_barrier_init(&barrier, NULL, REFUSED + 1) == 0);
    for (unsigned i = 0; i < REFUSED; i++)
        CHECK(pthread_create(&threads[i], &attributes, ask_in_vain, NULL) == 0);
    set("setrlimit", MIB);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    set("setrlimit", bytes);
    pthread_barrier_wait(&barrier);
    for (unsigned i = 0; i < REFUSED; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

enum { NOT_POSSIBLE = 77 };

/* Whoever may lock as much as he wants, and gives that right up later, may lock no more than the limit then. The limit
 * counts what is locked: the heap need not keep below it. */
static void lock(size_t bytes) {
    struct rlimit limit;
    void *first = malloc(140000);
    size_t kib = 0, usable = malloc_usable_size(first);
    CHECK(getrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    limit.rlim_cur = min(limit.rlim_max, bytes);
    CHECK(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0) {
        CHECK(limit.rlim_cur < 64 * MIB); /* else it fits */
        exit(NOT_POSSIBLE);
    }
    char line[256];
    FILE *f = fopen("/proc/self/status", "r");
    CHECK(f != NULL);
    while (kib == 0 && fgets(line, sizeof line, f) != NULL)
        sscanf(line, "VmLck: %zu kB", &kib);
    CHECK(fclose(f) == 0);
    CHECK(kib > 0 && kib < 64 * 1024);
    work_in_threads(NULL, 0);
    CHECK(munlockall() == 0);
    void *large = malloc(bytes), *usual = malloc(140000); /* would be packed if memory were scarce */
    CHECK(large != NULL && malloc_usable_size(usual) == usable);
    free(large);
    free(usual);
    free(first);
}

int main(int count, char **arguments) {
    CHECK(count == 3);
    const char *how = arguments[1];
    size_t bytes = strtoul(arguments[2], NULL, 10) * MIB;
    if (strcmp(how, "refused") == 0) {
        struct rlimit limit;
        CHECK(getrlimit(RLIMIT_AS, &limit) == 0);
        if (limit.rlim_cur != bytes) {
            set("setrlimit", bytes);
            execv(arguments[0], arguments);
            CHECK(!"executed");
        }
        ask_together(bytes);
        return 0;
    }
    work(NULL);
    if (strcmp(how, "together") == 0) {
        begin_together(bytes);
        return 0;
    }
    if (strcmp(how, "locked") == 0) {
        lock(bytes);
        return 0;
    }
    if (strcmp(how, "call") != 0 && strcmp(how, "stay") != 0) { /* free memory counts, too */
        static char *peak[PEAK];
        for (unsigned i = 0; i < PEAK; i++) {
            CHECK((peak[i] = malloc(MIB)) != NULL);
            memset(peak[i], 1, MIB);
        }
        for (unsigned i = 0; i < PEAK; i++)
            free(peak[i]);
    }
    if (strcmp(how, "stay") == 0) {
        live_with_little(NULL, NULL);
        return 0;
    }
    limit_others(bytes);
    pid_t child = fork(); /* does the same, and its own children do not change what it is */
    if (child == 0) {
        limit_others(bytes);
        set(how, bytes);
        live_with_little(NULL, NULL);
        _exit(0);
    }
    await(child);
    child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); /* libc does not know of this one */
    if (child == 0) {
        set(how, bytes);
        if (strcmp(how, "call") != 0)
            CHECK(mmap(NULL, MIB, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
        _exit(0);
    }
    await(child);
    work_in_threads(how, bytes);
    live_with_little(arguments[0], arguments[2]);
    CHECK(malloc(2 * bytes) == NULL);
    set(how, bytes + 100 * MIB);
    set(how, bytes - 20 * MIB);
    live_with_little(NULL, NULL);
    set(how, RLIM_INFINITY);
    static char *pieces[PIECES];
    for (unsigned i = 0; i < PIECES; i++) {
        CHECK((pieces[i] = malloc(2 * MIB)) != NULL);
        pieces[i][0] = (char)i;
    }
    char *large = malloc(6000 * MIB);
    CHECK(large != NULL);
    large[6000 * MIB - 1] = 1;
    work_in_threads(NULL, 0);
    for (unsigned i = 0; i < PIECES; i++) {
        CHECK(pieces[i][0] == (char)i);
        free(pieces[i]);
    }
    free(large);
    puts("ok");
    return 0;
}
