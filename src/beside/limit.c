/* setrlimit and prlimit: what the library has reserved and never used counts against a limit on addresses, and free
 * memory against both. A program that lowers its own gets that back before, or else it could map nothing any more: no
 * library, no file, no thread's stack.
 *
 * Then all goes on to libc. Nothing is done for other processes, nor by a vfork's child, whose limits are its own but
 * whose memory is its parent's. Where a limit is set by a system call, the region gives up its reservation when it is
 * first refused memory. */
/* SPDX-License-Identifier: MIT */
#include "alloc.h"
#include "base/os.h"
#include "beside/next.h"

#include <sys/resource.h>
#include <sys/types.h>

#ifdef __GLIBC__
typedef __rlimit_resource_t resource_type;
#else
typedef int resource_type;
#endif
typedef int set_limit(resource_type, const struct rlimit *);
typedef int process_limit(pid_t, resource_type, const struct rlimit *, struct rlimit *);

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

HAK_API int setrlimit(resource_type resource, const struct rlimit *limit) {
    set_limit *next = (set_limit *)next_function(NEXT_setrlimit); /* NOLINT: an address */
    prepare((int)resource, limit);
    return next != NULL ? next(resource, limit) : os_set_limit(0, (int)resource, limit, NULL);
}

HAK_API int prlimit(pid_t process, resource_type resource, const struct rlimit *limit, struct rlimit *before) {
    process_limit *next = (process_limit *)next_function(NEXT_prlimit); /* NOLINT: an address */
    if (process == 0 || (uint32_t)process == os_process())
        prepare((int)resource, limit);
    return next != NULL ? next(process, resource, limit, before) : os_set_limit(process, (int)resource, limit, before);
}

#ifdef __GLIBC__ /* other libcs have one name for both */
_Static_assert(sizeof(struct rlimit) == sizeof(struct rlimit64), "the names of both are one function");
HAK_API int setrlimit64(resource_type, const struct rlimit64 *) __attribute__((alias("setrlimit")));
HAK_API int prlimit64(pid_t, resource_type, const struct rlimit64 *, struct rlimit64 *)
    __attribute__((alias("prlimit")));
#endif
