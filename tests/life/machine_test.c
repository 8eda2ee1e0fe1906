/* What must hold on every machine and with every libc, in plain C, so that it also runs where there is no C++ library:
 * contents, errno, threads that end with destructors, threads that only free, fork while threads allocate, 1 TiB of
 * addresses, the line about a double free. Each case prints "ok NAME"; the first failure ends the program. */
/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <hakmem.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(x) ((x) ? (void)0 : die(#x, __LINE__))
enum { HANG_SECONDS = 600, THREADS = 4 };

static _Noreturn void die(const char *what, int line) {
    fprintf(stderr, "machine_test:%d: not true: %s\n", line, what);
    exit(1);
}

static const size_t sizes[] = {1, 16, 48, 1000, 1025, 20000, 65536, 65537, 300000, 1 << 20, (1 << 20) + 1, 5000000};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static char *filled(size_t size) {
    char *block = malloc(size);
    CHECK(block != NULL);
    CHECK((uintptr_t)block % (size < 16 ? 8 : 16) == 0);
    CHECK(hak_usable_size(block) >= size); /* hak_usable_size refuses foreign blocks, so this malloc is HAKMEM's */
    memset(block, (char)size, size);
    return block;
}

static void check_filled(const char *block, size_t size) {
    for (size_t at = 0; at < size; at += at < 2000 ? 1 : 509)
        CHECK(block[at] == (char)size);
}

static void contents(void) {
    for (int i = 0; i < SIZES; i++) {
        char *block = filled(sizes[i]);
        block = realloc(block, sizes[i] * 3);
        CHECK(block != NULL);
        check_filled(block, sizes[i]);
        memset(block, 0xee, sizes[i] * 3);
        free(block);
        char *zero = calloc(3, sizes[i]);
        CHECK(zero != NULL && zero[0] == 0 && memcmp(zero, zero + 1, sizes[i] * 3 - 1) == 0);
        free(zero);
    }
    for (size_t alignment = sizeof(void *); alignment <= 4 << 20; alignment *= 2) {
        void *block;
        CHECK(posix_memalign(&block, alignment, 100) == 0 && (uintptr_t)block % alignment == 0);
        free(block);
    }
}

static void errno_is_kept(void) {
    for (int i = 0; i < SIZES; i++) {
        char *block = filled(sizes[i]);
        errno = 4321;
        free(block);
        CHECK(errno == 4321);
    }
    hak_trim();
    CHECK(errno == 4321);
    volatile size_t impossible = PTRDIFF_MAX;
    CHECK(malloc(impossible) == NULL && errno == ENOMEM);
}

/* ---- threads ---- */

static pthread_key_t key;
static atomic_int destructors;

static void at_thread_end(void *value) {
    check_filled(value, 300);
    free(value);
    for (int i = 0; i < SIZES; i++)
        free(filled(sizes[i]));
    destructors++;
}

static void *short_life(void *nothing) {
    pthread_setspecific(key, filled(300));
    for (size_t size = 1; size < 100000; size = size * 5 / 4 + 1)
        free(filled(size));
    return nothing;
}

static void threads_end(void) {
    pthread_t thread[THREADS];
    CHECK(pthread_key_create(&key, at_thread_end) == 0);
    for (int round = 0; round < 50; round++) {
        for (int i = 0; i < THREADS; i++)
            CHECK(pthread_create(&thread[i], NULL, short_life, NULL) == 0);
        for (int i = 0; i < THREADS; i++)
            CHECK(pthread_join(thread[i], NULL) == 0);
    }
    CHECK(destructors == 50 * THREADS);
    pthread_key_delete(key);
}

static _Atomic(char *) handed[64];
static atomic_bool stop;

/* Frees blocks that others left, and leaves some of its own. */
static void *exchange(void *seed) {
    for (unsigned i = (unsigned)(uintptr_t)seed; !stop; i = i * 1103515245 + 12345)
        free(atomic_exchange(&handed[i >> 8 & 63], filled(1 + (i >> 16) % 3000)));
    return NULL;
}

static void *only_free(void *nothing) {
    while (!stop)
        for (int i = 0; i < 64; i++)
            free(atomic_exchange(&handed[i], NULL));
    return nothing;
}

static void fork_among_threads(void) {
    pthread_t thread[THREADS];
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&thread[i], NULL, i == 0 ? only_free : exchange, (void *)(uintptr_t)i) == 0);
    for (int round = 0; round < 50; round++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            alarm(HANG_SECONDS);
            for (int i = 0; i < 64; i++)
                free(atomic_exchange(&handed[i], NULL));
            for (int i = 0; i < SIZES; i++)
                free(filled(sizes[i]));
            _exit(0);
        }
        int status;
        CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    stop = true;
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(thread[i], NULL) == 0);
    for (int i = 0; i < 64; i++)
        free(handed[i]);
}

/* ---- addresses, checks ---- */

/* A smaller region (HAKMEM_REGION_BYTES) has no room for the block: then NULL is the right answer. */
static void sparse(void) {
    size_t size = (size_t)1 << 40;
    char *block = malloc(size);
    if (block == NULL) {
        CHECK(errno == ENOMEM);
        puts("skipped: no room for 1 TiB in this region");
        return;
    }
    for (size_t at = 0; at < size; at += size / 8 + 12345)
        block[at] = 1;
    CHECK(block[size - 1] == 0);
    free(block);
}

static void double_free_is_told(void) {
    int ends[2], status;
    char line[200] = "";
    CHECK(pipe(ends) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        dup2(ends[1], 2);
        void *volatile block = filled(48);
        free(block);
        free(block);
        _exit(0);
    }
    close(ends[1]);
    CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    CHECK(read(ends[0], line, sizeof line - 1) > 0);
    CHECK(strncmp(line, "hakmem: double free of 0x", 25) == 0);
    close(ends[0]);
}

static void run(const char *name, void (*test)(void)) {
    test();
    printf("ok   %s\n", name);
    fflush(stdout);
}

int main(void) {
    run("contents", contents);
    run("errno is kept", errno_is_kept);
    run("threads end", threads_end);
    run("fork among threads", fork_among_threads);
    run("1 TiB", sparse);
    run("double free is told", double_free_is_told);
    return 0;
}
