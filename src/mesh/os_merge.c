/* os_merge.h on Linux: other threads' writes are held by userfaultfd while the pages are copied to a memfd, whose
 * private mappings then share them. */
/* SPDX-License-Identifier: MIT */
#include "mesh/os_merge.h"
#include "base/os_call.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { USERFAULTFD_API = 0xaa, UFFD_USER_MODE_ONLY = 1, UFFD_MODE_WP = 2, UFFD_WP_ON = 1 };
enum { UFFD_FEATURE_WP = 1, UFFD_FEATURE_WP_FILES = 1 << 12 };
enum { MFD_CLOSE_ON_EXEC = 1, MFD_NEVER_EXEC = 8 }; /* the latter of Linux 6.3, where a system may demand it */
#define UFFD_IOCTL_API 0xc018aa3fu
#define UFFD_IOCTL_REGISTER 0xc020aa00u
#define UFFD_IOCTL_UNREGISTER 0x8010aa01u
#define UFFD_IOCTL_WAKE 0x8010aa02u
#define UFFD_IOCTL_WRITE_PROTECT 0xc018aa06u

static bool control(int fd, unsigned long request, uint64_t *argument) {
    return os_call(SYS_ioctl, fd, (long)request, (long)argument) == 0; /* not ioctl, which has another type in musl */
}

static int open_fault_fd(long flags, bool *holds_files) {
    int fd = (int)os_call(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | flags, 0, 0);
    uint64_t api[3] = {USERFAULTFD_API, UFFD_FEATURE_WP, 0};
    if (fd >= 0 && !control(fd, UFFD_IOCTL_API, api)) {
        os_close(fd);
        return -1;
    }
    *holds_files = api[1] & UFFD_FEATURE_WP_FILES; /* the kernel answers with all that it has */
    return fd;
}

/* /proc/self/task has a directory for each thread, and two links besides. */
static bool is_only_thread(void) {
    struct stat tasks;
    return os_call(SYS_newfstatat, AT_FDCWD, (long)"/proc/self/task", (long)&tasks) == 0 && tasks.st_nlink == 3;
}

static void set_signals(const uint64_t *mask, uint64_t *before) {
    int saved = errno;
    syscall(SYS_rt_sigprocmask, (long)SIG_SETMASK, mask, before, (long)sizeof *mask);
    errno = saved;
}

bool os_hold_begin(struct os_hold *hold) {
    const uint64_t all = UINT64_MAX;
    set_signals(&all, &hold->signals); /* a handler that writes to what is held would wait for itself */
    hold->fd = -1;
    hold->holds_files = true;
    if (is_only_thread())
        return true;
    hold->fd = open_fault_fd(0, &hold->holds_files);
    if (hold->fd < 0)
        hold->fd = open_fault_fd(UFFD_USER_MODE_ONLY, &hold->holds_files);
    if (hold->fd >= 0)
        return true;
    set_signals(&hold->signals, NULL);
    return false;
}

bool os_hold_writes(const struct os_hold *hold, void *address, size_t bytes) {
    uint64_t range[4] = {(uint64_t)(uintptr_t)address, bytes, UFFD_MODE_WP, 0};
    if (hold->fd < 0)
        return true;
    if (!control(hold->fd, UFFD_IOCTL_REGISTER, range))
        return false;
    range[2] = UFFD_WP_ON;
    if (control(hold->fd, UFFD_IOCTL_WRITE_PROTECT, range))
        return true;
    os_let_write(hold, address, bytes, false);
    return false;
}

void os_let_write(const struct os_hold *hold, void *address, size_t bytes, bool replaced) {
    uint64_t range[2] = {(uint64_t)(uintptr_t)address, bytes};
    if (hold->fd >= 0)
        control(hold->fd, replaced ? UFFD_IOCTL_WAKE : UFFD_IOCTL_UNREGISTER, range);
}

void os_hold_end(const struct os_hold *hold) {
    if (hold->fd >= 0)
        os_close(hold->fd); /* whatever is still held is let go */
    set_signals(&hold->signals, NULL);
}

int os_open_memory(size_t bytes) {
    struct rlimit limit;
    int saved = errno, fd = -1;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur >= bytes) /* else a signal ends the program */
        fd = (int)os_ask(SYS_memfd_create, (long)"hakmem", MFD_CLOSE_ON_EXEC | MFD_NEVER_EXEC, 0);
    if (fd < 0 && errno == EINVAL)
        fd = (int)os_ask(SYS_memfd_create, (long)"hakmem", MFD_CLOSE_ON_EXEC, 0);
    errno = saved;
    return fd;
}

bool os_fill_memory(int fd, const void *from, size_t bytes) {
    int saved = errno;
    return os_answer(saved, syscall(SYS_pwrite64, (long)fd, from, (long)bytes, 0L)) == (long)bytes;
}

bool os_map_copy(int fd, void *address, size_t bytes) {
    int saved = errno;
    const int protection = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE;
    /* A sanitizer takes mmap for a write to what other threads hold there. */
    void *got = HAK_IS_SANITIZED
                    ? (void *)syscall(SYS_mmap, address, (long)bytes, (long)protection, (long)flags, (long)fd, 0L)
                    : mmap(address, bytes, protection, flags, fd, 0);
    errno = saved;
    return got == address;
}
