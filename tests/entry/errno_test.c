/* errno is 0 as main begins, also where the start's questions are refused: /proc/self/exe cannot be read where there is
 * no /proc. */
/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int count, char **arguments) {
    if (count == 2) {
        int error = errno;
        free(malloc(100));
        printf("errno is %d\n", error);
        return error != 0;
    }
    struct sock_filter refuses[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_readlinkat, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOENT),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof refuses / sizeof *refuses, refuses};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
        perror("no seccomp");
        return 2;
    }
    execl(arguments[0], arguments[0], "refused", (char *)NULL);
    perror(arguments[0]);
    return 2;
}
