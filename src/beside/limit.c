/* setrlimit and prlimit: what the library has reserved and never used counts against a limit on addresses, and free
 * memory against both. A program that lowers its own gets that back before, or else it could map nothing any more: no
 * library, no file, no thread's stack.
 *
 * Then all goes on to libc. Nothing is done for other processes, nor by a vfork's child, whose limits are its own but
 * whose memory is its parent's. Where a limit is set by a system call, the region gives up its reservation when it is
 * first refused memory. */
/* SPDX-License-Identifier: MIT */
#include "alloc/alloc.h"
#include "base/os.h"
#include "beside/next.h"

#include <sys/resource.h>
#include <sys/types.h>

typedef int set_limit(int, const struct rlimit *);
typedef int process_limit(pid_t, int, const struct rlimit *, struct rlimit *);
_Static_assert(sizeof(struct rlimit) == 2 * sizeof(uint64_t), "the names with and without 64 are one function");

static size_t bytes_of(const struct rlimit *limit) {
    return limit->rlim_cur != RLIM_INFINITY ? (size_t)limit->rlim_cur : SIZE_MAX;
}

static void prepare(int resource, const struct rlimit *limit) {
    if ((resource != RLIMIT_AS && resource != RLIMIT_DATA) || limit == NULL ||
        !os_readable_now((uintptr_t)limit, sizeof *limit) || os_is_vforked())
        return;
    alloc_limit(resource == RLIMIT_AS ? bytes_of(limit) : os_address_limit(),
                resource == RLIMIT_DATA ? bytes_of(limit) : os_data_limit());
}

/* By names of ours, as libcs give the resource different types. */
HAK_API int limit_set(int resource, const struct rlimit *limit) __asm__("setrlimit");
HAK_API int limit_set(int resource, const struct rlimit *limit) {
    set_limit *next = (set_limit *)next_function(NEXT_setrlimit); /* NOLINT: an address */
    prepare(resource, limit);
    return next != NULL ? next(resource, limit) : os_set_limit(0, resource, limit, NULL);
}

HAK_API int limit_set_of(pid_t process, int resource, const struct rlimit *limit,
                         struct rlimit *before) __asm__("prlimit");
HAK_API int limit_set_of(pid_t process, int resource, const struct rlimit *limit, struct rlimit *before) {
    process_limit *next = (process_limit *)next_function(NEXT_prlimit); /* NOLINT: an address */
    if (process == 0 || (uint32_t)process == os_process())
        prepare(resource, limit);
    return next != NULL ? next(process, resource, limit, before) : os_set_limit(process, resource, limit, before);
}

HAK_API int limit_set_64(int, const struct rlimit *) __asm__("setrlimit64") __attribute__((alias("setrlimit")));
HAK_API int limit_set_of_64(pid_t, int, const struct rlimit *, struct rlimit *) __asm__("prlimit64")
    __attribute__((alias("prlimit")));
