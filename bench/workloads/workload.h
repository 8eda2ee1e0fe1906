/* Shared by the workloads: arguments, random numbers, clock, RSS, tags in blocks, a hand-over ring.
 *
 * C++ workloads use only the first half; they make blocks, tags and threads themselves.
 *
 * Every workload prints lines of the form "NAME KEY: NUMBER", its throughput as "NAME ops/s: N". It knows no allocator
 * beyond malloc, calloc, realloc and free; pages_map() maps memory that must not count as the allocator's. A block that
 * does not contain what was written to it ends the program with status 3. */
/* SPDX-License-Identifier: MIT */
#ifndef WORKLOAD_H
#define WORKLOAD_H

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- errors and arguments ---- */

__attribute__((noreturn)) static inline void fail(int status, const char *what) {
    fprintf(stderr, "%s: %s\n", program_invocation_short_name, what);
    exit(status);
}

struct argument {
    const char *name;
    uint64_t value; /* the default before arguments_read, the value in force after it */
    uint64_t least;
    uint64_t most; /* 0 for no bound */
};

static inline void arguments_read(int argc, char **argv, struct argument *args, int count) {
    bool good = argc - 1 <= count;
    for (int i = 0; good && i < argc - 1; i++) {
        char *end;
        errno = 0;
        uint64_t value = strtoull(argv[i + 1], &end, 10);
        good = argv[i + 1][0] >= '0' && argv[i + 1][0] <= '9' && *end == 0 && errno == 0 && value >= args[i].least &&
               (args[i].most == 0 || value <= args[i].most);
        if (good)
            args[i].value = value;
    }
    if (good)
        return;
    fprintf(stderr, "usage: %s", program_invocation_short_name);
    for (int i = 0; i < count; i++)
        fprintf(stderr, " [%s]", args[i].name);
    fprintf(stderr, "\n");
    for (int i = 0; i < count; i++) {
        fprintf(stderr, "  %-12s at least %llu", args[i].name, (unsigned long long)args[i].least);
        if (args[i].most != 0)
            fprintf(stderr, ", at most %llu", (unsigned long long)args[i].most);
        fprintf(stderr, "\n");
    }
    exit(2);
}

#define ARGUMENTS_READ(argc, argv, args) arguments_read(argc, argv, args, (int)(sizeof(args) / sizeof(args)[0]))

/* ---- time and output ---- */

static inline double now_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static inline void rest_ms(unsigned ms) {
    struct timespec left = {ms / 1000, (long)(ms % 1000) * 1000000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
}

static inline void report_value(const char *key, uint64_t value) {
    printf("%s %s: %llu\n", program_invocation_short_name, key, (unsigned long long)value);
}

static inline void report_speed(uint64_t operations, double seconds) {
    report_value("ops/s", (uint64_t)((double)operations / (seconds > 1e-9 ? seconds : 1e-9)));
}

/* Returns what the kernel says about a process's memory ("Rss:", "Pss:"), in bytes. smaps_rollup walks the page tables;
 * before Linux 6.17, the counters in status and statm lag by up to a few hundred KiB. */
static inline uint64_t memory_bytes(const char *process, const char *key) {
    char text[2048];
    snprintf(text, sizeof text, "/proc/%s/smaps_rollup", process);
    int fd = open(text, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (got < 0)
        fail(1, "/proc/PID/smaps_rollup cannot be read");
    close(fd);
    text[got] = 0;
    const char *line = text;
    while ((line = strchr(line, '\n')) != NULL)
        if (strncmp(++line, key, strlen(key)) == 0)
            return strtoull(line + strlen(key), NULL, 10) * 1024;
    fail(1, "/proc/PID/smaps_rollup lacks a line");
}

static inline uint64_t rss_bytes(void) { return memory_bytes("self", "Rss:"); }

/* Waits for a child. If it failed, this program ends with its status. */
static inline void child_wait(pid_t child) {
    int status;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            fail(1, "waitpid failed");
    if (status != 0)
        fail(WIFEXITED(status) ? WEXITSTATUS(status) : 1, "a child did not end well");
}

/* ---- random numbers: xorshift64 ---- */

static inline uint64_t random_seed(uint64_t seed) {
    seed = (seed + 0x9E3779B97F4A7C15u) * 0xBF58476D1CE4E5B9u;
    seed = (seed ^ (seed >> 27)) * 0x94D049BB133111EBu;
    return seed != 0 ? seed : 1;
}

static inline uint64_t random_next(uint64_t *state) {
    uint64_t x = *state;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return *state = x;
}

/* Uniform in 0 … bound-1; bound < 2^32. */
static inline uint32_t random_below(uint64_t *state, uint32_t bound) {
    return (uint32_t)(((random_next(state) >> 32) * bound) >> 32);
}

/* Returns a size as programs request them, mostly small: 16-31 B half of the time, and each further power of two half
 * as often as the one before, `powers` of them. So every power of two gets about the same number of bytes. */
static inline uint32_t random_size(uint64_t *state, unsigned powers) {
    uint64_t bits = random_next(state) >> 16;
    uint32_t least = 16u << (unsigned)__builtin_ctzll(bits >> 24 | 1u << (powers - 1));
    return least + (uint32_t)((bits & 0xFFFFFF) * least >> 24);
}

/* Maps zeroed memory of the program's own, which the allocator does not see. */
static inline void *pages_map(size_t bytes) {
    void *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED)
        fail(1, "mmap failed");
    return pages;
}

#ifndef __cplusplus
#include <stdatomic.h>

/* ---- blocks and their tags ---- */

struct slot {
    unsigned char *block; /* NULL if the slot is free */
    uint32_t size;
    uint32_t tag;
};

static inline void tag_write(unsigned char *block, size_t size, uint32_t tag) {
    if (size >= 8) {
        memcpy(block, &tag, 4);
        memcpy(block + size - 4, &tag, 4);
    } else if (size > 0) {
        block[0] = (unsigned char)tag;
    }
}

static inline void tag_check(const unsigned char *block, size_t size, uint32_t tag) {
    uint32_t head = tag, tail = tag;
    if (size >= 8) {
        memcpy(&head, block, 4);
        memcpy(&tail, block + size - 4, 4);
    } else if (size > 0) {
        head = (tag & ~0xFFu) | block[0];
    }
    if (head != tag || tail != tag)
        fail(3, "a block does not hold what was written into it");
}

static inline void *must(void *block) {
    if (block == NULL)
        fail(1, "out of memory");
    return block;
}

static inline void slot_fill(struct slot *slot, size_t size, uint32_t tag) {
    slot->block = must(malloc(size));
    slot->size = (uint32_t)size;
    slot->tag = tag;
    tag_write(slot->block, size, tag);
}

static inline void slot_clear(struct slot *slot) {
    tag_check(slot->block, slot->size, slot->tag);
    free(slot->block);
    slot->block = NULL;
}

static inline void slots_clear(struct slot *slots, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (slots[i].block != NULL)
            slot_clear(&slots[i]);
}

/* ---- threads ---- */

static inline pthread_t thread_start(void *(*entry)(void *), void *argument) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, entry, argument) != 0)
        fail(1, "a thread could not be started");
    return thread;
}

/* Workers that start together. Each takes its own times, because main may be woken long after the workers it starts. */
struct worker {
    pthread_t thread;
    unsigned index;
    double start, end;
};

static pthread_barrier_t workers_barrier;

static inline void worker_start(struct worker *worker) {
    pthread_barrier_wait(&workers_barrier);
    worker->start = now_seconds();
}

/* Call before cleaning up: no worker cleans up while another is still measured. */
static inline void worker_end(struct worker *worker) {
    worker->end = now_seconds();
    pthread_barrier_wait(&workers_barrier);
}

/* Runs `entry` with a struct worker in `count` threads. Returns the seconds from the first start to the last end. */
static inline double workers_run(unsigned count, void *(*entry)(void *)) {
    struct worker *workers = must(calloc(count, sizeof *workers));
    pthread_barrier_init(&workers_barrier, NULL, count);
    for (unsigned i = 0; i < count; i++) {
        workers[i].index = i;
        workers[i].thread = thread_start(entry, &workers[i]);
    }
    for (unsigned i = 0; i < count; i++)
        pthread_join(workers[i].thread, NULL);
    double start = workers[0].start, end = workers[0].end;
    for (unsigned i = 1; i < count; i++) {
        start = workers[i].start < start ? workers[i].start : start;
        end = workers[i].end > end ? workers[i].end : end;
    }
    free(workers);
    return end - start;
}

/* The same, but a single worker is the program's own thread: a program of one thread is one, which may make a
 * difference. */
static inline double workers_run_or_work(unsigned count, void *(*entry)(void *)) {
    struct worker alone = {.index = 0};
    if (count > 1)
        return workers_run(count, entry);
    pthread_barrier_init(&workers_barrier, NULL, 1);
    entry(&alone);
    return alone.end - alone.start;
}

/* A ring from one producer to one consumer. It uses only loads and stores, so that every atomic read-modify-write of a
 * run is the allocator's. */
enum { HANDOVER_PLACES = 1024 };

struct handover {
    _Alignas(64) atomic_size_t given; /* written by the producer */
    _Alignas(64) atomic_size_t taken; /* written by the consumer */
    _Alignas(64) void *places[HANDOVER_PLACES];
};

static inline void handover_wait(unsigned *tries) {
    if (++*tries % 64 == 0)
        sched_yield();
}

/* Returns false if the ring is full. */
static inline bool handover_try_give(struct handover *ring, void *block) {
    size_t given = atomic_load_explicit(&ring->given, memory_order_relaxed);
    if (given - atomic_load_explicit(&ring->taken, memory_order_acquire) == HANDOVER_PLACES)
        return false;
    ring->places[given % HANDOVER_PLACES] = block;
    atomic_store_explicit(&ring->given, given + 1, memory_order_release);
    return true;
}

/* Returns false if the ring is empty. */
static inline bool handover_try_take(struct handover *ring, void **block) {
    size_t taken = atomic_load_explicit(&ring->taken, memory_order_relaxed);
    if (atomic_load_explicit(&ring->given, memory_order_acquire) == taken)
        return false;
    *block = ring->places[taken % HANDOVER_PLACES];
    atomic_store_explicit(&ring->taken, taken + 1, memory_order_release);
    return true;
}

static inline void handover_give(struct handover *ring, void *block) {
    for (unsigned tries = 0; !handover_try_give(ring, block);)
        handover_wait(&tries);
}

static inline void *handover_take(struct handover *ring) {
    void *block;
    for (unsigned tries = 0; !handover_try_take(ring, &block);)
        handover_wait(&tries);
    return block;
}

#endif
#endif
