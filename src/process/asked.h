/* What is asked of the heap: by the profile, by tracers, and by other processes, which write here (observe/inspect.h).
 *
 * Whoever asks changes `wanted`. In every allocation that is no hit of alloc.h the heap compares that word with what it
 * saw last, so it learns of any change with one load. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "base/options.h"

enum { SAMPLE_CALLERS = 64 }; /* return addresses that are kept of a sample, at most */

struct asked {
    union {
        _Atomic uint64_t wanted;
        struct { /* each part is written separately */
            /* mean bytes between samples for the profile; 0: none. Whoever can write here can switch it on and off */
            _Atomic uint32_t wanted_bytes;
            /* tracers that listen to the probes. The kernel counts: these two are the semaphores of observe/probes.c */
            volatile uint16_t alloc_tracers;
            _Atomic uint16_t requests; /* another process adds 1 after it has asked for something */
        };
    };
    volatile uint16_t free_tracers;
    _Atomic uint64_t purge_wanted; /* another process adds 1: each thread gives back what it can, once */
    /* sample.c's: the last `wanted`, and GUARD_SAMPLE_BYTES, that it signalled to all heaps */
    _Atomic uint64_t told, told_guard_bytes;
};
extern HAK_HIDDEN struct asked hak_asked;

/* Mean bytes between samples, as the profile wants them, or else a tracer of the probes; 0: nobody does. */
HAK_INLINE uint32_t asked_interval(void) {
    uint32_t bytes = load_relaxed(&hak_asked.wanted_bytes);
    return bytes == 0 && hak_asked.alloc_tracers != 0 ? (uint32_t)option(OPT_PROFILE_BYTES) : bytes;
}
