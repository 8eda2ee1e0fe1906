/* Probes (USDT) by which a profiler outside sees sampled blocks: otel_memory:alloc and otel_memory:free, as OpenTelemetry's
 * eBPF profiler defines them (its design document 00003).
 *
 *  1. A probe is a nop in a function of its own, told of by an ELF note (.note.stapsdt), and a semaphore, which the kernel
 *     raises while somebody has put a breakpoint there. While it is zero a probe costs one load and a branch.
 *  2. The arguments lie in the registers in which a function gets them: that profiler does not read where notes say they are.
 *
 * Any thread, any time. */
/* SPDX-License-Identifier: MIT */
#ifndef HAK_PROBES_H
#define HAK_PROBES_H

#include "base.h"

/* The kernel's to write; the names are the convention's. */
extern HAK_HIDDEN volatile unsigned short otel_memory_alloc_semaphore, otel_memory_free_semaphore;
void probe_alloc_fire(const void *block, size_t bytes, size_t weight_bytes);
void probe_free_fire(const void *block);

/* Does anybody want to know of sampled blocks? */
HAK_INLINE bool probe_alloc_wanted(void) { return unlikely(otel_memory_alloc_semaphore != 0); }

/* A sampled block was handed out, which stands for `weight_bytes` of such blocks: its size over the probability of a block of its
 * size to be sampled. */
HAK_INLINE void probe_alloc(const void *block, size_t bytes, size_t weight_bytes) {
    if (probe_alloc_wanted())
        probe_alloc_fire(block, bytes, weight_bytes);
}

/* A sampled block is freed; others are not told of. */
HAK_INLINE void probe_free(const void *block) {
    if (unlikely(otel_memory_free_semaphore != 0))
        probe_free_fire(block);
}

#endif
