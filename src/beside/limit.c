/* setrlimit and prlimit: what the library has reserved and never used counts against a limit on addresses. A program that
 * lowers its own gets that back, or else it could map nothing any more: no library, no file, no thread's stack.
 *
 * All goes on to libc first. Nothing is done for other processes, nor by a vfork's child, whose limits are its own but
 * whose memory is its parent's. Where a limit is set by a system call, the region gives up its reservation when it is
 * first refused memory. */
/* SPDX-License-Identifier: MIT */
#include "alloc.h"
#include "base/os.h"
#include "beside/next.h"

#include <sys/resource.h>
#include <sys/types.h>

typedef int set_limit(__rlimit_resource_t, const struct rlimit *);
typedef int process_limit(pid_t, enum __rlimit_resource, const struct rlimit *, struct rlimit *);
_Static_assert(sizeof(struct rlimit) == sizeof(struct rlimit64), "the names of both are one function");

static int note(int result, int resource, const struct rlimit *limit) {
    if (result == 0 && limit != NULL && (resource == RLIMIT_AS || resource == RLIMIT_DATA) && !os_is_vforked())
        alloc_limit(os_address_limit(), os_data_limit());
    return result;
}

HAK_API int setrlimit(__rlimit_resource_t resource, const struct rlimit *limit) {
    set_limit *next = (set_limit *)next_function(NEXT_setrlimit); /* NOLINT: an address */
    int result = next != NULL ? next(resource, limit) : os_set_limit(0, (int)resource, limit, NULL);
    return note(result, (int)resource, limit);
}

HAK_API int prlimit(pid_t process, enum __rlimit_resource resource, const struct rlimit *limit, struct rlimit *before) {
    process_limit *next = (process_limit *)next_function(NEXT_prlimit); /* NOLINT: an address */
    int result =
        next != NULL ? next(process, resource, limit, before) : os_set_limit(process, (int)resource, limit, before);
    return process == 0 || (uint32_t)process == os_process() ? note(result, (int)resource, limit) : result;
}

HAK_API int setrlimit64(__rlimit_resource_t, const struct rlimit64 *) __attribute__((alias("setrlimit")));
HAK_API int prlimit64(pid_t, enum __rlimit_resource, const struct rlimit64 *, struct rlimit64 *)
    __attribute__((alias("prlimit")));
