/* What another process needs to read and steer the heap without this one's help: `hakmem explain PID` and the others.
 *
 *  1. An ELF note (owner "HAKMEM", type 1) holds the distance from itself to `hak_inspect`, also in a stripped or
 *     static program. The reader checks magic and version.
 *  2. All the rest is plain tables: `facts` gives by name the places of the structs' fields and the values of the
 *     constants, `places` gives the addresses of the tables. So the reader has no second copy of the layout.
 *  3. To ask for something, the reader writes one word: `purge_wanted` (asked.h), or an option's value. Then it adds 1
 *     to `requests`. A thread looks at that in its next allocation that is not a hit of alloc.h (a ring's hit
 *     looks, too); a parked purger looks when its word changes and its wait is interrupted. A thread has purged when
 *     its heap's `purge_seen` equals `purge_wanted`. There is no purger to wait for if `fork_page` is NULL or its
 *     `purger` is PURGER_NONE: a program that sleeps then does nothing until it allocates.
 *
 * INSPECT_VERSION changes when the meaning of a fact does. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "heap/heap.h"

enum { INSPECT_VERSION = 1 };

struct inspect_fact {
    char name[40];          /* "slab.kind", "sizeof slab", "SLOT_BYTES" */
    uint64_t offset, bytes; /* of a field; of a constant: its value, 0 */
};

struct inspect_place {
    char name[24];
    const void *address;
};

struct inspect {
    char magic[16]; /* "hakmem inspect" */
    uint32_t version, facts_count, places_count, unused;
    const struct inspect_fact *facts;   /* constant */
    const struct inspect_place *places; /* constant */
};
extern HAK_HIDDEN struct inspect hak_inspect;
