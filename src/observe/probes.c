/* The probes themselves: see probes.h. The macros of systemtap's sys/sdt.h, of which we keep a copy, write the
 * notes. */
/* SPDX-License-Identifier: MIT */
#include "observe/probes.h"

#define _SDT_HAS_SEMAPHORES 1 /* NOLINT(bugprone-reserved-identifier): sdt.h asks for it */
#define STAP_SDT_ARG_CONSTRAINT r
#include "third_party/sys/sdt.h"

/* Stored in the file, not in zeroed memory, because the kernel finds them by their offset in the file. */
#define SEMAPHORE __attribute__((section(".probes"), used)) volatile unsigned short
SEMAPHORE otel_memory_alloc_semaphore;
SEMAPHORE otel_memory_free_semaphore;

HAK_NOINLINE void probe_alloc_fire(const void *block, size_t bytes, size_t weight_bytes) {
    register const void *first __asm__(ARGUMENT_1) = block;
    register size_t second __asm__(ARGUMENT_2) = bytes;
    register size_t third __asm__(ARGUMENT_3) = weight_bytes;
    STAP_PROBE3(otel_memory, alloc, first, second, third);
}

HAK_NOINLINE void probe_free_fire(const void *block) {
    register const void *first __asm__(ARGUMENT_1) = block;
    STAP_PROBE1(otel_memory, free, first);
}
