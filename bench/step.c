/* step [SIZE]: counts the instructions of malloc and free on a hit, by single-stepping a child that calls them.
 *
 *   1. The child allocates and frees blocks of SIZE bytes (48) until it is warm, and stops itself.
 *   2. It is stepped through CALLS mallocs and CALLS frees, each between two marker functions. Every instruction
 *      outside this program's own text counts: the allocator's, but not the call and the PLT.
 *   3. The result is the median per call, so an occasional slow path does not show.
 *
 * It counts instructions, not time, so a busy machine gives the same result. It works for any preloaded allocator. */
/* SPDX-License-Identifier: MIT */
#include <elf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

/* STEPS_MAX: a restartable sequence (tcmalloc's per-CPU caches) restarts after every step and never ends. */
enum { CALLS = 41, WARM = 400, STEPS_MAX = 200000 };

#define MARKER(name, number)                                                                                           \
    static __attribute__((noinline)) void name(void) { __asm__ volatile("" ::"i"(number) : "memory"); }
MARKER(mark_malloc, 1)
MARKER(mark_free, 2)
MARKER(mark_end, 3)

extern char __executable_start, etext;

static _Noreturn void child_run(size_t size) {
    static void *warm[WARM], *blocks[CALLS];
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
        _exit(90);
    for (int i = 0; i < WARM; i++)
        warm[i] = malloc(size);
    for (int i = 0; i < WARM; i += 2)
        free(warm[i]);
    for (int i = 0; i < WARM; i += 2)
        warm[i] = malloc(size);
    raise(SIGSTOP);
    for (int i = 0; i < CALLS; i++) {
        mark_malloc();
        blocks[i] = malloc(size);
        mark_end();
    }
    for (int i = 0; i < CALLS; i++) {
        mark_free();
        free(blocks[i]);
        mark_end();
    }
    _exit(0);
}

static uintptr_t program_counter(pid_t pid) {
    struct user_regs_struct registers;
    struct iovec data = {&registers, sizeof registers};
    if (ptrace(PTRACE_GETREGSET, pid, (void *)NT_PRSTATUS, &data) != 0)
        return 0;
#if defined(__x86_64__)
    return registers.rip;
#else
    return registers.pc;
#endif
}

static int count_order(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

static void report(const char *what, int *counts, int count) {
    if (count != CALLS) {
        fprintf(stderr, "step: %d calls of %s seen, %d expected\n", count, what, CALLS);
        exit(1);
    }
    qsort(counts, CALLS, sizeof *counts, count_order);
    printf("step %s: %d\nstep %s_most: %d\n", what, counts[CALLS / 2], what, counts[CALLS - 1]);
}

int main(int argc, char **argv) {
    size_t size = argc > 1 ? strtoul(argv[1], NULL, 10) : 48;
    static int counts[2][CALLS + 1];
    int calls[2] = {0, 0}, status, *counted = NULL;
    pid_t pid = fork();
    if (pid == 0)
        child_run(size);
    if (waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status)) {
        fprintf(stderr, "step: the child cannot be traced\n");
        return 1;
    }
    for (int steps = 0;; steps++) {
        if (steps == STEPS_MAX) {
            kill(pid, SIGKILL);
            fprintf(stderr, "step: it cannot be stepped through, as a restartable sequence begins anew\n");
            return 1;
        }
        if (ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) != 0 || waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status))
            break;
        uintptr_t at = program_counter(pid);
        if (at == (uintptr_t)mark_malloc || at == (uintptr_t)mark_free) {
            int which = at == (uintptr_t)mark_free;
            counted = calls[which] < CALLS ? &counts[which][calls[which]++] : NULL;
        } else if (at == (uintptr_t)mark_end) {
            counted = NULL;
        } else if (counted != NULL && (at < (uintptr_t)&__executable_start || at >= (uintptr_t)&etext)) {
            ++*counted;
        }
    }
    report("malloc", counts[0], calls[0]);
    report("free", counts[1], calls[1]);
    return 0;
}
