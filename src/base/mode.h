/* What differs between the usual mode and secure mode: each is a row of constants.
 *
 * options_init chooses the row by the option SECURE, which nobody else reads, and copies it to where mode() finds it
 * (options.h): one load, as for an option, from a page that is read-only once the library has started. A member says
 * what differs, not in which mode. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "base/base.h"

struct heap;
struct kind;

struct mode {
    /* The kind whose row allocates every size. NULL: each tier has a kind, and blocks to 64 KiB have the size and
     * alignment of their class. */
    const struct kind *front_kind;
    void *(*malloc)(struct heap *h, size_t bytes); /* for a malloc that is no hit. NULL: alloc.c chooses the tier */
    /* Notes that operator new, or new[] (`array`), made the block, and returns the block; NULL stays NULL. */
    void *(*note_new)(void *p, bool array); /* NULL: nobody needs to know */
    /* Operator delete, or delete[] (`array`), is about to free the block: reports the wrong operator. */
    void (*check_delete)(const void *p, bool array); /* NULL: any operator will do */
    uint32_t heap_end_bytes;                         /* of a heap's memory: its end, which rings leave alone */
    uint8_t window_log2_min;                         /* of the SuperSlabs in a window, by what their tables take */
    bool all_errors_abort; /* with ON_ERROR=auto: those that harmed nothing, too, and those found at the end */
    bool free_is_shut;     /* slots are inaccessible until a kind opens what it hands out */
    bool free_is_zero;     /* and malloc checks that: nothing becomes LAZY, and wide vectors pay */
    bool has_quarantine;   /* freed blocks wait in the heap before they are handed out again */
    bool has_stacks;       /* SECURE_STACKS=1 keeps those that allocated and freed each block */
    bool has_samples;      /* of the profile, and between guard pages */
    bool has_lanes;        /* policies and lanes say where blocks lie; else chance does */
    bool heaps_rest;       /* a heap without a thread may keep its slabs */
    bool libc_may_serve;   /* SUPERSLAB=0 leaves all blocks to libc's allocator */
};
extern HAK_HIDDEN const struct mode mode_secure; /* secure/secure_alloc.c; the usual row is in options.c */
