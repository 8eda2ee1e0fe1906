/* program MODE ARGS…: programs of many kinds for the tests of `hakmem compare`.
 *
 *   work N             allocates and frees N blocks, prints a checksum, a throughput and a second number
 *   touch MIB READS    touches MIB of memory, and ends after the parent has made READS more reads
 *   lazy MIB READS     touches MIB, tells the kernel that it may take them, and ends as touch does
 *   thread MIB         the main thread ends; another one touches the memory after that
 *   tree MIB           two child processes each touch so much, and end when the parent has looked
 *   orphan FILE        a child outlives it, which writes its number to FILE
 *   hang FILE          it and a child never end; both write their numbers to FILE
 *   sleep MS FILE      sleeps, and adds a line to FILE
 *   say TEXT STATUS    prints TEXT, ends with STATUS */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../reads_of_parent.h"

static size_t mib;

static void touch(void) {
    char *block = malloc(mib << 20);
    memset(block, 1, mib << 20);
    __asm__ volatile("" : : "r"(block) : "memory");
}

static void work(long count) {
    struct timespec start, end;
    unsigned sum = 0;
    static char *blocks[64];
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (long i = 0; i < count; i++) {
        char **block = &blocks[i * 7 % 64];
        free(*block);
        *block = malloc(16 + (size_t)(i * 37 % 500));
        **block = (char)i;
        sum += (unsigned char)**block;
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    double seconds = (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) * 1e-9;
    printf("sum: %u\nops/s: %.0f\nns each: %.3f\n", sum, (double)count / seconds, seconds * 1e9 / (double)count);
}

static void wait_for_reads(int reads) {
    long begun = reads_of_parent();
    for (int polls = begun < 0 ? 1800 : 0; polls < 2000 && reads_of_parent() < begun + reads; polls++)
        usleep(10000);
}

/* A sample of a tree of three processes takes at most 24 reads: twice as many contain a whole one. */
static void wait_for_sample(void) {
    wait_for_reads(48);
}

static void *late_touch(void *unused) {
    usleep(20000);
    touch();
    wait_for_sample(); /* of a thread that outlives the main one only samples tell */
    exit(0);
    return unused;
}

/* Ends with 3 where the kernel has no lazy memory. */
static void lazy(void) {
    char *pages = mmap(NULL, mib << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(pages, 1, mib << 20);
    if (madvise(pages, mib << 20, MADV_FREE) != 0)
        exit(3);
}

static void note(const char *path) {
    FILE *file = fopen(path, "a");
    fprintf(file, "%d\n", (int)getpid());
    fclose(file);
}

static void child_start(void (*run)(const char *), const char *path) {
    if (fork() == 0) {
        run(path);
        _exit(0);
    }
}

static int touched[2], looked_at[2]; /* pipes: a byte of each child; closed once the parent has looked */

static void child_touch(const char *unused) {
    char byte = 0;
    (void)unused;
    touch();
    close(looked_at[1]);
    if (write(touched[1], &byte, 1) != 1 || read(looked_at[0], &byte, 1) != 0)
        _exit(1);
}

static void tree(void) {
    char byte;
    if (pipe(touched) || pipe(looked_at))
        exit(1);
    child_start(child_touch, NULL);
    child_start(child_touch, NULL);
    for (int child = 0; child < 2; child++)
        if (read(touched[0], &byte, 1) != 1)
            exit(1);
    wait_for_sample();
    close(looked_at[1]);
    while (wait(NULL) > 0)
        ;
}

static void child_stay(const char *path) {
    note(path);
    for (;;)
        pause();
}

static int noted[2]; /* a pipe that is closed once the child has written its number */

static void child_orphan(const char *path) {
    note(path);
    close(noted[1]);
    for (;;)
        pause();
}

static void orphan(const char *path) {
    char byte;
    if (pipe(noted))
        exit(1);
    child_start(child_orphan, path);
    close(noted[1]);
    if (read(noted[0], &byte, 1) != 0)
        exit(1);
}

int main(int argc, char **argv) {
    const char *mode = argc > 2 ? argv[1] : "";
    if (strcmp(mode, "work") == 0) {
        work(atol(argv[2]));
    } else if (strcmp(mode, "touch") == 0) {
        mib = (size_t)atol(argv[2]);
        touch();
        wait_for_reads(atoi(argv[3]));
    } else if (strcmp(mode, "lazy") == 0) {
        mib = (size_t)atol(argv[2]);
        lazy();
        wait_for_reads(atoi(argv[3]));
    } else if (strcmp(mode, "thread") == 0) {
        pthread_t thread;
        mib = (size_t)atol(argv[2]);
        pthread_create(&thread, NULL, late_touch, NULL);
        pthread_exit(NULL);
    } else if (strcmp(mode, "tree") == 0) {
        mib = (size_t)atol(argv[2]);
        tree();
    } else if (strcmp(mode, "orphan") == 0) {
        orphan(argv[2]);
    } else if (strcmp(mode, "hang") == 0) {
        child_start(child_stay, argv[2]);
        child_stay(argv[2]);
    } else if (strcmp(mode, "sleep") == 0) {
        usleep((useconds_t)atol(argv[2]) * 1000);
        note(argv[3]);
    } else if (strcmp(mode, "say") == 0) {
        puts(argv[2]);
        return atoi(argv[3]);
    } else {
        return 2;
    }
    return 0;
}
