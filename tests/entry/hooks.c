/* Preloaded before the library: counts the calls that drop pages and pass libc's names, as caches of registered memory
 * (MPI, UCX) do, and says how many there were at the end. */
/* SPDX-License-Identifier: MIT */
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static long seen;

int madvise(void *address, size_t bytes, int advice) {
    seen += advice == MADV_DONTNEED || advice == MADV_FREE;
    return (int)syscall(SYS_madvise, address, bytes, advice);
}

int munmap(void *address, size_t bytes) {
    seen++;
    return (int)syscall(SYS_munmap, address, bytes);
}

void *mremap(void *address, size_t bytes, size_t new_bytes, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    void *to = va_arg(rest, void *);
    va_end(rest);
    seen++;
    return (void *)syscall(SYS_mremap, address, bytes, new_bytes, flags, to); /* NOLINT: an address */
}

void *mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset) {
    seen += (flags & MAP_FIXED) != 0;
    return (void *)syscall(SYS_mmap, address, bytes, protection, flags, fd, offset); /* NOLINT: an address */
}

__attribute__((destructor)) static void tell(void) {
    if (dprintf(STDERR_FILENO, "%ld\n", seen) < 0)
        _exit(1);
}
