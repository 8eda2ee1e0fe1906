/* See secure_random.h. */
/* SPDX-License-Identifier: MIT */
#include "secure/secure_random.h"
#include "base/os.h"

uint64_t secure_random(struct heap *h) {
    uint64_t *state = secure_random_state(h);
    if (unlikely(*state == 0))
        *state = canary_fold(hak_region.second_key, (uintptr_t)h ^ os_random(OS_RANDOM_SEED) ^ os_now_ms());
    return secure_next_random(h);
}
