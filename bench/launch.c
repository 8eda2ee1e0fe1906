/* launch FD LIBRARY PROGRAM ARGS…: runs PROGRAM with LIBRARY preloaded ("-": none) and writes what it cost to FD.
 *
 * One JSON line: status (exit status, or 128 + signal), loaded (LIBRARY is mapped, by /proc/PID/maps), wall_ns,
 * user_ns, system_ns, peak_rss_bytes, minor_faults.
 *   1. The child asks to be traced and executes PROGRAM; time and faults count from there.
 *   2. It runs at full speed: the tracer wakes for exec, signals and the exit of the main thread only.
 *   3. At the exit stop the address space is still there: maps and VmHWM are read. (ru_maxrss would not do: it
 *      starts with the peak of whoever forked the child.) */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t time_ns(struct timeval time) {
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_usec * 1000u;
}

static FILE *proc_open(pid_t pid, const char *name) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    return fopen(path, "re");
}

/* The number behind `key` in status, in its own unit, or 0. */
static uint64_t status_read(pid_t pid, const char *key) {
    char line[256];
    uint64_t value = 0;
    FILE *file = proc_open(pid, "status");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, key, strlen(key)) == 0)
            value = strtoull(line + strlen(key), NULL, 10);
    if (file != NULL)
        fclose(file);
    return value;
}

static uint64_t minor_faults_read(pid_t pid) {
    char line[1024] = "";
    FILE *file = proc_open(pid, "stat");
    if (file == NULL || fgets(line, sizeof line, file) == NULL)
        line[0] = 0;
    if (file != NULL)
        fclose(file);
    char *at = strrchr(line, ')');
    for (int field = 2; at != NULL && field < 10; field++)
        at = strchr(at + 1, ' ');
    return at != NULL ? strtoull(at, NULL, 10) : 0;
}

static int is_mapped(pid_t pid, const char *library) {
    char line[PATH_MAX + 128];
    int found = 0;
    FILE *file = proc_open(pid, "maps");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (strstr(line, library) != NULL)
            found = 1;
    if (file != NULL)
        fclose(file);
    return found;
}

static _Noreturn void child_run(const char *library, char **command) {
    if (library != NULL)
        setenv("LD_PRELOAD", library, 1);
    else
        unsetenv("LD_PRELOAD");
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
        perror("launch: ptrace");
    else
        execvp(command[0], command);
    perror(command[0]);
    _exit(127);
}

int main(int argc, char **argv) {
    if (argc < 4) {
        fprintf(stderr, "usage: launch FD LIBRARY|- PROGRAM ARGS...\n");
        return 2;
    }
    int report = atoi(argv[1]);
    char library[PATH_MAX];
    int preload = strcmp(argv[2], "-") != 0;
    if (preload && realpath(argv[2], library) == NULL) {
        perror(argv[2]);
        return 2;
    }
    fcntl(report, F_SETFD, FD_CLOEXEC);
    pid_t pid = fork();
    if (pid == 0)
        child_run(preload ? library : NULL, argv + 3);

    int status = 0, loaded = 0, started = 0;
    uint64_t start_ns = now_ns(), faults_before = 0, peak_bytes = 0;
    struct rusage usage;
    for (;;) {
        if (wait4(pid, &status, 0, &usage) < 0) {
            if (errno == EINTR)
                continue;
            perror("launch: wait4");
            return 2;
        }
        if (!WIFSTOPPED(status))
            break;
        int signal = WSTOPSIG(status), event = status >> 16;
        if (!started) { /* the stop after exec */
            started = 1;
            ptrace(PTRACE_SETOPTIONS, pid, NULL, PTRACE_O_TRACEEXIT | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL);
            faults_before = minor_faults_read(pid);
            signal = 0;
            start_ns = now_ns();
        } else if (event == PTRACE_EVENT_EXIT) {
            loaded = preload && is_mapped(pid, library);
            peak_bytes = status_read(pid, "VmHWM:") * 1024;
            signal = 0;
        } else if (event != 0) {
            signal = 0;
        }
        ptrace(PTRACE_CONT, pid, NULL, (void *)(intptr_t)signal);
    }
    uint64_t wall_ns = now_ns() - start_ns;
    dprintf(report,
            "{\"status\": %d, \"loaded\": %d, \"wall_ns\": %llu, \"user_ns\": %llu, \"system_ns\": %llu, "
            "\"peak_rss_bytes\": %llu, \"minor_faults\": %llu}\n",
            WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), loaded, (unsigned long long)wall_ns,
            (unsigned long long)time_ns(usage.ru_utime), (unsigned long long)time_ns(usage.ru_stime),
            (unsigned long long)peak_bytes, (unsigned long long)((uint64_t)usage.ru_minflt - faults_before));
    return 0;
}
