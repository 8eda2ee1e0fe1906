/* See exit_check.h.
 *
 *  1. Live blocks of kinds that keep a canary behind each block (kinds.h, `check`): an overflow of a block that is never freed.
 *  2. The first slot behind one in use that was never used is zero, or an overflow ran on into it. Slots are used from the lowest
 *     on, so a long overflow gets there.
 *  3. SuperSlabs without memory, from which huge blocks come and to which they go back, are zero, or something was written there
 *     since. Reading a page that has no memory is a fault, so this ends after CLEAN_SUPERSLABS. */
/* SPDX-License-Identifier: MIT */
#include "observe/exit_check.h"
#include "base/fail.h"
#include "base/options.h"
#include "kinds.h"
#include "presence.h"
#include "secure/zero.h"
#include "superslab.h"

enum {
    EXIT_SUPERSLABS = 256, /* 512 MiB: some 60 us, a page of records each */
    CLEAN_SUPERSLABS = 4,  /* some 500 us, in a program that has such */
    LOOK_BYTES = 64,       /* of an unused slot */
};

static void check_unused(size_t superslab) {
    uint64_t w = load_relaxed(&superslab_at(superslab)->word);
    uint32_t used = word_active(w) | word_resident(w);
    for (uint32_t left = used << 1 & superslab_zero_slots(superslab); left != 0; left &= left - 1) {
        char *slot = slot_address(superslab * SUPERSLAB_SLOTS + lowest_bit(left));
        if (unlikely(!narrow_is_zero((uintptr_t)slot, LOOK_BYTES)))
            fail_unused_written(slot);
    }
}

static void check_clean(void) {
    size_t at = superslab_find(SET_CLEAN, NODE_ANY, 0);
    for (unsigned n = 0; at != BITSET_NONE && n < CLEAN_SUPERSLABS; n++, at = superslab_find(SET_CLEAN, NODE_ANY, at + 1)) {
        char *begin = slot_address(at * SUPERSLAB_SLOTS);
        if (superslab_zero_slots(at) == UINT32_MAX && !memory_is_zero((uintptr_t)begin, SUPERSLAB_BYTES))
            fail_unused_written(begin);
    }
}

void exit_check(void) {
    if (presence_clients() != 1 || presence_lost_threads())
        return;
    if (!option(OPT_SECURE)) /* there free memory is inaccessible */
        check_clean();
    size_t superslabs = min_size(load_acquire(&hak_region_use.superslabs), EXIT_SUPERSLABS);
    for (size_t slot = 0; slot < superslabs * SUPERSLAB_SLOTS; slot++) {
        struct slab *s = slab_of_slot(slot);
        if (slot % SUPERSLAB_SLOTS == 0 && !option(OPT_SECURE))
            check_unused(slot / SUPERSLAB_SLOTS);
        if (kind_of(s)->check != NULL)
            kind_of(s)->check(s);
    }
}
