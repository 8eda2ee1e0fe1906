/* Runs a program as if on Linux 4.18, the oldest kernel that HAKMEM is for, and with addresses of 57 bits:
 *
 *     old_kernel ERROR PROGRAM ARGS…     ERROR: ENOSYS, EPERM (as containers answer) or EINVAL
 *
 * A seccomp filter refuses every system call, advice and flag that is newer, and membarrier, which a kernel can be
 * built without. It hides itself (PR_GET_SECCOMP), because in a sandbox the library leaves some calls out. It ends a
 * program that asks for an address of more than 47 bits: only there the kernel gives such addresses, which programs
 * that tag pointers cannot use. */
/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
enum { NEWEST_CALL = 334 }; /* rseq, of 4.18 */
#else
enum { NEWEST_CALL = 293 };
#endif
enum { NEWEST_ADVICE = 19, POPULATE_WRITE = 23, DONTUNMAP = 4, CLONE3 = 435, PROCESS_MADVISE = 440 };
enum { HIGH_HALF = 4, BITS_47 = 1 << (47 - 32) }; /* little-endian */

#define CALL offsetof(struct seccomp_data, nr)
#define ARGUMENT(n) (offsetof(struct seccomp_data, args) + 8 * (n))
#define LOAD(at) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, at)
#define IF(test, value, otherwise_skip) BPF_JUMP(BPF_JMP | (test) | BPF_K, value, 0, otherwise_skip)
#define ANSWER(what) BPF_STMT(BPF_RET | BPF_K, what)
#define REFUSE(error) ANSWER(SECCOMP_RET_ERRNO | (unsigned)(error))
/* Those calls of one number whose argument, or a half of it, passes the test. */
#define IN(call, argument, test, value, answer)                                                                        \
    LOAD(CALL), IF(BPF_JEQ, call, 3), LOAD(argument), IF(test, value, 1), answer

static int error_named(const char *name) {
    return strcmp(name, "EPERM") == 0 ? EPERM : strcmp(name, "EINVAL") == 0 ? EINVAL : ENOSYS;
}

static int refuse(int error) {
    struct sock_filter filter[] = {
        IN(CLONE3, CALL, BPF_JEQ, CLONE3, REFUSE(ENOSYS)), /* containers, too: libc does without only then */
        LOAD(CALL),
        IF(BPF_JGT, NEWEST_CALL, 1),
        REFUSE(error),
        IN(SYS_membarrier, CALL, BPF_JEQ, SYS_membarrier, REFUSE(error)),
        IN(SYS_madvise, ARGUMENT(2), BPF_JGT, NEWEST_ADVICE, REFUSE(EINVAL)),
        IN(SYS_mremap, ARGUMENT(3), BPF_JSET, DONTUNMAP, REFUSE(EINVAL)),
        IN(SYS_prctl, ARGUMENT(0), BPF_JEQ, PR_GET_SECCOMP, REFUSE(0)),
        IN(SYS_mmap, ARGUMENT(0) + HIGH_HALF, BPF_JGE, BITS_47, ANSWER(SECCOMP_RET_KILL_PROCESS)),
        IN(SYS_mremap, ARGUMENT(4) + HIGH_HALF, BPF_JGE, BITS_47, ANSWER(SECCOMP_RET_KILL_PROCESS)),
        ANSWER(SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof filter[0], filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static int is_refused(int error) {
    static char page[65536];
    int advice = madvise(page, sizeof page, POPULATE_WRITE) == -1 && errno == EINVAL;
    int call = syscall(PROCESS_MADVISE, 0, 0, 0, 0, 0) == -1 && errno == error;
    return advice && call && prctl(PR_GET_SECCOMP, 0, 0, 0, 0) == 0;
}

int main(int argc, char **argv) {
    if (argc < 3)
        return 2;
    int error = error_named(argv[1]);
    if (!refuse(error) || !is_refused(error)) {
        fprintf(stderr, "old_kernel: the filter does not work: %s\n", strerror(errno));
        return 3;
    }
    execv(argv[2], argv + 2);
    return 4;
}
