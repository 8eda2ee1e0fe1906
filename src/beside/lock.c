/* mlockall: where RLIMIT_MEMLOCK is a limit, it counts all that is mapped, accessible or not, and so what the library
 * has reserved. That goes back before, if the program fits into the limit then, or may exceed it, as root: it may give
 * up that right later. Not in secure mode: without a reservation all of a SuperSlab is accessible, and so locked. In a
 * child of vfork as elsewhere, since the call locks its parent's memory.
 *
 * A file of its own, so that a program that has the archive and a mlockall of its own can be linked. */
/* SPDX-License-Identifier: MIT */
#include "alloc/alloc.h"
#include "base/mode.h"
#include "base/os.h"
#include "beside/next.h"

#include <sys/mman.h>

#define LEAST_BYTES (16 * MIB) /* a small program and what of the reservation stays */

typedef int locker(int);

HAK_API locker mlockall;
HAK_API int mlockall(int flags) {
    locker *next = (locker *)next_function(NEXT_mlockall); /* NOLINT: an address */
    size_t limit = os_locked_limit();
    bool counts = flags & MCL_CURRENT && limit != SIZE_MAX && !mode()->free_is_shut;
    if (counts && (limit >= LEAST_BYTES || os_began_as_root())) {
        alloc_limit(limit, limit);
        alloc_limit(os_address_limit(), os_data_limit()); /* the heap need not keep below it */
    }
    return next != NULL ? next(flags) : os_lock_all(flags);
}
