/* Probes (USDT) that show sampled blocks to a profiler outside the process: otel_memory:alloc and otel_memory:free, as
 * OpenTelemetry's eBPF profiler defines them (its design document 00003).
 *
 *  1. A probe is a nop in a function of its own, described by an ELF note (.note.stapsdt), and a semaphore, which the
 *     kernel raises while somebody has a breakpoint there. While the semaphore is zero, a probe costs a load and a
 *     branch.
 *  2. The arguments are in the registers in which a function gets them, because that profiler does not look up in the
 *     note where they are.
 *
 * For any thread at any time. */
/* SPDX-License-Identifier: MIT */
#ifndef HAK_PROBES_H
#define HAK_PROBES_H

#include "base/base.h"

/* The kernel writes them; their names follow the convention. */
extern HAK_HIDDEN volatile unsigned short otel_memory_alloc_semaphore, otel_memory_free_semaphore;
void probe_alloc_fire(const void *block, size_t bytes, size_t weight_bytes);
void probe_free_fire(const void *block);

/* Whether anybody wants to know of sampled blocks. */
HAK_INLINE bool probe_alloc_wanted(void) { return unlikely(otel_memory_alloc_semaphore != 0); }

/* A sampled block was handed out. It stands for `weight_bytes` of such blocks: its size divided by the probability that
 * a block of its size is sampled. */
HAK_INLINE void probe_alloc(const void *block, size_t bytes, size_t weight_bytes) {
    if (probe_alloc_wanted())
        probe_alloc_fire(block, bytes, weight_bytes);
}

/* A sampled block is being freed. Frees of other blocks have no probe. */
HAK_INLINE void probe_free(const void *block) {
    if (unlikely(otel_memory_free_semaphore != 0))
        probe_free_fire(block);
}

#endif
