/* keeper REPORT COMMAND…: runs the command and adopts the processes that it leaves behind, until the last has ended.
 *
 * The file REPORT gets three numbers: the command's PID at its start; its status once it has ended, or minus the
 * signal; and, at the end, how many KiB the largest of all processes had resident at most. The kernel counts that
 * exactly, but a process inherits the figure of the one that started it: hence a parent as small as this. */
/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv) {
    FILE *report = argc > 2 ? fopen(argv[1], "we") : NULL;
    if (!report || prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) {
        perror("keeper");
        return 2;
    }
    pid_t command = fork();
    if (command == 0) {
        setsid();
        execvp(argv[2], argv + 2);
        perror(argv[2]);
        _exit(127);
    }
    fprintf(report, "%d\n", (int)command);
    fflush(report);
    pid_t ended;
    int status;
    while ((ended = wait(&status)) > 0) {
        if (ended == command) {
            fprintf(report, "%d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
            fflush(report);
        }
    }
    struct rusage usage;
    getrusage(RUSAGE_CHILDREN, &usage);
    fprintf(report, "%ld\n", usage.ru_maxrss);
    return fclose(report) != 0;
}
