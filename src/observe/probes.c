/* The probes themselves: see probes.h. The macros of systemtap's sys/sdt.h, of which we keep a copy, write the
 * notes. */
/* SPDX-License-Identifier: MIT */
#include "observe/probes.h"

#define _SDT_HAS_SEMAPHORES 1 /* NOLINT(bugprone-reserved-identifier): sdt.h asks for it */
#define STAP_SDT_ARG_CONSTRAINT r
#include "third_party/sys/sdt.h"

/* The semaphores as assembly names them: fields of struct asked, whose C names are no concern of sdt.h. */
#define otel_memory_alloc_semaphore hak_asked + 4
#define otel_memory_free_semaphore hak_asked + 8
#undef _SDT_NOTE_SEMAPHORE_USE
#define _SDT_NOTE_SEMAPHORE_USE(provider, name) /* NOLINT(bugprone-reserved-identifier): likewise */

HAK_NOINLINE void probe_alloc(const void *block, size_t bytes, size_t weight_bytes) {
    register const void *first __asm__(ARGUMENT_1) = block;
    register size_t second __asm__(ARGUMENT_2) = bytes;
    register size_t third __asm__(ARGUMENT_3) = weight_bytes;
    STAP_PROBE3(otel_memory, alloc, first, second, third);
}

HAK_NOINLINE void probe_free(const void *block) {
    register const void *first __asm__(ARGUMENT_1) = block;
    STAP_PROBE1(otel_memory, free, first);
}
