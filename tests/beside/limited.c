/* A program that lowers its own RLIMIT_AS while it runs, as vsftpd does. Whatever it does then has to find memory: blocks
 * of all sizes, threads, mappings of its own, children. Later it takes the limit away again.
 *
 * limited setrlimit | prlimit | call [stay]: how the limit is set. `call`: by a system call, which the library cannot see, so
 * the first block comes before all else. `stay`: the program was started with the limit, and sets none. */
/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <pthread.h>
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
enum { THREADS = 4, BLOCKS = 200, ROUNDS = 20, PIECES = 700 };

static void fail(int line, const char *what) {
    fprintf(stderr, "limited.c:%d: %s (%s)\n", line, what, strerror(errno));
    _exit(1);
}

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

static void work_in_threads(void) {
    pthread_t threads[THREADS];
    pthread_attr_t attributes; /* eight MiB for each stack are most of the limit */
    CHECK(pthread_attr_init(&attributes) == 0 && pthread_attr_setstacksize(&attributes, MIB) == 0);
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], &attributes, work, (void *)(i + 1)) == 0);
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

static void live_with_little(const char *program) {
    static char *blocks[BLOCKS / 2]; /* 19 MB */
    for (unsigned i = 0; i < BLOCKS / 2; i++) {
        CHECK((blocks[i] = malloc(size_of(i))) != NULL);
        memset(blocks[i], (int)i, size_of(i));
    }
    void *own = mmap(NULL, 20 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(own != MAP_FAILED);
    work_in_threads();
    pid_t child = fork();
    if (child == 0) {
        work_in_threads();
        _exit(0);
    }
    await(child);
    if (program != NULL) {
        child = vfork();
        if (child == 0) {
            execl(program, program, "stay", (char *)NULL);
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

int main(int count, char **arguments) {
    const char *how = count > 1 ? arguments[1] : "";
    work(NULL);
    if (strcmp(how, "stay") == 0) {
        live_with_little(NULL);
        return 0;
    }
    set(how, 200 * MIB);
    live_with_little(arguments[0]);
    CHECK(malloc(400 * MIB) == NULL);
    set(how, 300 * MIB);
    set(how, 150 * MIB);
    live_with_little(NULL);
    set(how, RLIM_INFINITY);
    static char *pieces[PIECES];
    for (unsigned i = 0; i < PIECES; i++) {
        CHECK((pieces[i] = malloc(2 * MIB)) != NULL);
        pieces[i][0] = (char)i;
    }
    char *large = malloc(6000 * MIB);
    CHECK(large != NULL);
    large[6000 * MIB - 1] = 1;
    work_in_threads();
    for (unsigned i = 0; i < PIECES; i++) {
        CHECK(pieces[i][0] == (char)i);
        free(pieces[i]);
    }
    free(large);
    puts("ok");
    return 0;
}
