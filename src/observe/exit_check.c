/* The last look at the heap, when the program ends: what no later call would find.
 *
 *  1. Live blocks of kinds that keep a canary behind each block (kinds.h, `check`): an overflow of a block that is
 *     never freed.
 *  2. The first slot behind one in use that was never used is zero, or an overflow ran on into it. Slots are used from
 *     the lowest on, so a long overflow gets there.
 *  3. Where huge blocks were freed and purged, memory is zero, or something was written there since. Reading a page
 *     that has no memory is a fault, so this ends after HAD_HUGE_MAX. */
/* SPDX-License-Identifier: MIT */
#include "base/fail.h"
#include "base/options.h"
#include "blocks/kinds.h"
#include "blocks/zero.h"
#include "process/hooks.h"
#include "process/presence.h"
#include "secure/secure.h"
#include "space/superslab.h"

enum {
    LOOK_BYTES = 64,       /* of an unused slot */
    EXIT_SUPERSLABS = 256, /* are looked at, 512 MiB: some 60 us, a page of records each */
};

static void check_unused(size_t superslab) {
    uint64_t w = load_relaxed(&superslab_at(superslab)->word);
    uint32_t used = word_active(w) | word_resident(w);
    for (uint32_t left = used << 1 & superslab_zero_slots(superslab); left != 0; left &= left - 1) {
        char *slot = slot_address(superslab * SUPERSLAB_SLOTS + lowest_bit(left));
        if (unlikely(!narrow_is_zero((uintptr_t)slot, LOOK_BYTES)) && presence_is_single())
            fail_unused_written(slot);
    }
}

/* Returns whether it looked. */
static bool check_freed_huge(size_t superslab) {
    char *begin = slot_address(superslab * SUPERSLAB_SLOTS);
    bool looks = load_relaxed(&superslab_at(superslab)->had_huge) && superslab_zero_slots(superslab) == UINT32_MAX;
    if (looks && !memory_is_zero((uintptr_t)begin, SUPERSLAB_BYTES) && presence_is_single())
        fail_unused_written(begin);
    return looks;
}

static void check_free(void) {
    size_t superslabs = min_size(load_acquire(&hak_region_use.superslabs), EXIT_SUPERSLABS);
    unsigned huge = 0;
    for (size_t i = 0; i < superslabs; i++) {
        check_unused(i);
        huge += huge < HAD_HUGE_MAX && check_freed_huge(i);
    }
}

/* Damage behind live blocks that have a canary, and writes into memory that is unused, the latter where free memory can
 * be read. Looks only in a program with one thread; one that the library did not see made has counted itself before it
 * takes and writes what seemed to be unused. */
static void exit_check(void) {
    if (!presence_is_single())
        return;
    if (!mode()->free_is_shut)
        check_free();
    size_t superslabs = min_size(load_acquire(&hak_region_use.superslabs), EXIT_SUPERSLABS);
    for (size_t slot = 0; slot < superslabs * SUPERSLAB_SLOTS; slot++) {
        struct slab *s = slab_of_slot(slot);
        if (kind_of(s)->check != NULL)
            kind_of(s)->check(s);
    }
}

void hook_last_checks(void) {
    exit_check();
    if (kind_serves(&kind_secure_small))
        secure_check_at_exit();
}
