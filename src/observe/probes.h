/* Probes (USDT) that show sampled blocks to a profiler outside the process: otel_memory:alloc and otel_memory:free, as
 * OpenTelemetry's eBPF profiler defines them (its design document 00003).
 *
 *  1. A probe is a nop in a function of its own, described by an ELF note (.note.stapsdt), and a semaphore, which the
 *     kernel raises while somebody has a breakpoint there.
 *  2. The first semaphore lies in the word by which heaps see that samples are wanted (profile.h). So a tracer that
 *     attaches to otel_memory:alloc starts sampling, every PROFILE_BYTES unless a profile has begun, and one that
 *     detaches ends it.
 *  3. The arguments are in the registers in which a function gets them, because that profiler does not look up in the
 *     note where they are.
 *
 * For any thread at any time. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "base/base.h"

/* A sampled block was handed out. It stands for `weight_bytes` of such blocks: its size divided by the probability that
 * a block of its size is sampled. Called while hak_asked.alloc_tracers is not 0. */
void probe_alloc(const void *block, size_t bytes, size_t weight_bytes);

/* A sampled block is being freed. Frees of other blocks have no probe. Called while hak_asked.free_tracers is not
 * 0. */
void probe_free(const void *block);
