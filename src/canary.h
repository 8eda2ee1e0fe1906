/* Canaries: words behind blocks that show overflows. */
/* SPDX-License-Identifier: MIT */
#ifndef HAK_CANARY_H
#define HAK_CANARY_H

#include "region.h"

#include <string.h>

HAK_INLINE uint64_t canary_fold(uint64_t a, uint64_t b) {
    __uint128_t product = (__uint128_t)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}
/* Computed from two secrets and the block's address, in a way that does not reveal the secrets. No byte of it is zero,
 * so a string that is one byte too long always changes it. */
HAK_INLINE uint64_t canary_of(uintptr_t block) {
    return canary_fold(block ^ hak_region.key, hak_region.second_key) | 0x0101010101010101;
}

/* ---- large and huge blocks: the usable size is what was asked for ----
 * A canary lies behind it. In new memory the canary is not written, and zero is accepted as well, so the memory may
 * stay untouched and a program may even give back the pages in which its block ends. */
#define CANARY_TAIL_BYTES 32 /* an overflow that begins within this distance behind the block is seen */

HAK_INLINE size_t asked_bytes(const struct slab *s) { return s->bytes - s->slack_bytes; }
HAK_INLINE void canary_put(const struct slab *s, char *at, size_t bytes) {
    uint64_t canary = canary_of((uintptr_t)s), words[] = {canary, canary, canary, canary};
    if (likely(bytes >= sizeof words))
        memcpy(at, words, sizeof words);
    else
        memcpy(at, words, bytes);
}
HAK_INLINE bool canary_is_intact(const struct slab *s, const char *at, size_t bytes) {
    static const char zeroes[CANARY_TAIL_BYTES];
    uint64_t canary = canary_of((uintptr_t)s), words[] = {canary, canary, canary, canary}, found[4];
    if (unlikely(bytes < sizeof words))
        return memcmp(at, words, bytes) == 0 || memcmp(at, zeroes, bytes) == 0;
    memcpy(found, at, sizeof words);
    return likely(((found[0] ^ canary) | (found[1] ^ canary) | (found[2] ^ canary) | (found[3] ^ canary)) == 0) ||
           (found[0] | found[1] | found[2] | found[3]) == 0;
}
_Static_assert(CANARY_TAIL_BYTES == 4 * sizeof(uint64_t), "a canary is four words");

#endif
