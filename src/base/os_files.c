/* The files of os.h. What libc lets be cancelled is asked of the kernel, as in os_linux.c. */
/* SPDX-License-Identifier: MIT */
#include "base/os_call.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

void os_write(int fd, const char *text, size_t bytes) {
    int saved = errno;
    size_t done = 0;
    while (done < bytes) {
        long wrote = os_ask(SYS_write, fd, (long)(text + done), (long)(bytes - done));
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            break;
        done += (size_t)wrote;
    }
    errno = saved;
}

static int open_file(const char *path, int flags) {
    int saved = errno;
    return (int)os_answer(saved, syscall(SYS_openat, (long)AT_FDCWD, (long)path, (long)(flags | O_CLOEXEC), 0600L));
}

/* Bytes read, as many as there are at once; 0 at the end and on failure. */
static size_t read_some(int fd, char *buffer, size_t bytes) {
    int saved = errno;
    long n;
    do
        n = os_ask(SYS_read, fd, (long)buffer, (long)bytes);
    while (n < 0 && errno == EINTR);
    errno = saved;
    return n > 0 ? (size_t)n : 0;
}

/* Does only the system make what has this name? An entry of /dev itself, a terminal, a descriptor of this process:
 * /dev/stderr is a link. Other places may be anybody's: /dev/shm is, and so is where /proc/self/cwd leads. */
static bool is_of_system(const char *path) {
    static const char *const folders[] = {"/dev/", "/dev/fd/", "/dev/pts/", "/proc/self/fd/"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        size_t length = strlen(folders[i]);
        const char *name = path + length;
        if (strncmp(path, folders[i], length) == 0 && *name != '\0' && strchr(name, '/') == NULL &&
            strcmp(name, "..") != 0)
            return true;
    }
    return false;
}

static bool stat_at(int fd, const char *path, int flags, struct stat *s) {
    int saved = errno;
    return os_answer(saved, syscall(SYS_newfstatat, (long)fd, (long)path, (long)s, (long)flags)) == 0;
}

bool os_is_device(const char *path) {
    struct stat s;
    return is_of_system(path) ||
           (stat_at(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, &s) && (S_ISFIFO(s.st_mode) || S_ISCHR(s.st_mode)));
}

/* Whether what is there may be written to: a file under one name, or no file at all, which only this user or root
 * made. */
static bool is_own(int fd, const char *path, int flags) {
    struct stat s;
    uid_t user = (uid_t)os_call(SYS_geteuid, 0, 0, 0);
    return stat_at(fd, path, flags, &s) && (s.st_uid == user || s.st_uid == 0) &&
           (!S_ISREG(s.st_mode) || s.st_nlink == 1);
}

int os_open_output(const char *path) {
    if (is_of_system(path))
        return open_file(path, O_WRONLY | O_APPEND | O_NOCTTY);
    int fd = open_file(path, O_WRONLY | O_CREAT | O_EXCL);
    if (fd >= 0 || !is_own(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW))
        return fd;
    fd = open_file(path, O_WRONLY | O_NOFOLLOW | O_NOCTTY);
    if (fd >= 0 && !is_own(fd, "", AT_EMPTY_PATH)) { /* it was exchanged meanwhile */
        os_close(fd);
        return -1;
    }
    if (fd >= 0)
        os_call(SYS_ftruncate, fd, 0, 0); /* a FIFO has nothing to cut */
    return fd;
}

/* By fstat, which sandboxes that a program has entered since its start allow sooner than newfstatat. */
static bool stat_open(int fd, struct stat *s) { return fd >= 0 && os_call(SYS_fstat, fd, (long)s, 0) == 0; }

/* Its number is above what programs reach that close everything they opened. */
struct os_kept os_keep_output(int fd) {
    struct stat s;
    struct os_kept kept = {(int)os_call(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 200), 0, 0};
    if (stat_open(fd, &s))
        kept.device = s.st_dev, kept.file = s.st_ino;
    return kept;
}

static bool leads_there(const struct os_kept *kept, int fd) {
    struct stat s;
    return stat_open(fd, &s) && s.st_dev == kept->device && s.st_ino == kept->file;
}
bool os_is_kept(const struct os_kept *kept) { return leads_there(kept, kept->fd); }
int os_kept_at(const struct os_kept *kept, int fd) {
    return os_is_kept(kept) ? kept->fd : leads_there(kept, fd) ? fd : -1;
}

uint64_t os_written(int fd) {
    long place = os_call(SYS_lseek, fd, 0, SEEK_CUR);
    return place > 0 ? (uint64_t)place : 0;
}

int os_open_input(const char *path) { return open_file(path, O_RDONLY); }

static bool is_file(int fd, const char *path, int flags) {
    struct stat s;
    return stat_at(fd, path, flags, &s) && S_ISREG(s.st_mode);
}

int os_open_file(const char *path) {
    int fd = is_file(AT_FDCWD, path, 0) ? open_file(path, O_RDONLY | O_NONBLOCK | O_NOCTTY) : -1;
    if (fd < 0 || is_file(fd, "", AT_EMPTY_PATH))
        return fd;
    os_close(fd); /* it was exchanged meanwhile */
    return -1;
}

size_t os_read_at(int fd, void *buffer, size_t bytes, uint64_t place) {
    int saved = errno;
    long n = os_answer(saved, syscall(SYS_pread64, (long)fd, (long)buffer, (long)bytes, (long)place));
    return n > 0 ? (size_t)n : 0;
}

void os_close(int fd) { os_call(SYS_close, fd, 0, 0); }

void os_copy_file(int fd, const char *path, char *buffer, size_t bytes) {
    int from = open_file(path, O_RDONLY);
    size_t n;
    if (from < 0)
        return;
    while ((n = read_some(from, buffer, bytes)) > 0)
        os_write(fd, buffer, n);
    os_close(from);
}

size_t os_read_file(const char *path, char *buffer, size_t bytes) {
    size_t got = 0;
    int fd = open_file(path, O_RDONLY);
    if (fd >= 0) {
        got = read_some(fd, buffer, bytes - 1);
        os_close(fd);
    }
    buffer[got] = '\0';
    return got;
}
