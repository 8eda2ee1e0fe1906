/* Canaries: words behind blocks that show overflows. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "base/os.h"
#include "region/region.h"

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
 * stay untouched and a program may even give back the pages in which its block ends, at any time. */
#define CANARY_TAIL_BYTES 32 /* an overflow that begins within this distance behind the block is seen */

HAK_INLINE void canary_put(const struct slab *s, char *at, size_t bytes) {
    uint64_t canary = canary_of((uintptr_t)s), words[] = {canary, canary, canary, canary};
    if (likely(bytes >= sizeof words))
        memcpy(at, words, sizeof words);
    else
        memcpy(at, words, bytes);
}
/* Compares page by page: the canary may lie on two pages, of which the program has given back one. */
__attribute__((noinline, cold, unused)) static bool canary_is_intact_on_pages(const struct slab *s, const char *at,
                                                                              size_t bytes) {
    static const char zeroes[CANARY_TAIL_BYTES];
    uint64_t canary = canary_of((uintptr_t)s), words[] = {canary, canary, canary, canary};
    size_t whole = min_size(bytes, sizeof words), first = min_size(-(uintptr_t)at % os_page_bytes(), whole);
    size_t rest = whole - first;
    return (memcmp(at, words, first) == 0 || memcmp(at, zeroes, first) == 0) &&
           (memcmp(at + first, (const char *)words + first, rest) == 0 || memcmp(at + first, zeroes, rest) == 0);
}
HAK_INLINE bool canary_is_intact(const struct slab *s, const char *at, size_t bytes) {
    uint64_t canary = canary_of((uintptr_t)s), found[4];
    if (likely(bytes >= sizeof found)) {
        memcpy(found, at, sizeof found);
        if (likely(((found[0] ^ canary) | (found[1] ^ canary) | (found[2] ^ canary) | (found[3] ^ canary)) == 0) ||
            (found[0] | found[1] | found[2] | found[3]) == 0)
            return true;
    }
    return canary_is_intact_on_pages(s, at, bytes);
}
/* Whether the bytes are mapped, asked before a look that need not be: a program may keep the page in which its block
 * ends from its children (MADV_DONTFORK), as RDMA libraries do. A sandbox that allows malloc allows the calls. */
__attribute__((noinline, cold, unused)) static bool canary_is_there(const char *at, size_t bytes) {
    const size_t page = os_page_bytes();
    bool there = true;
    for (uintptr_t p = round_down((uintptr_t)at, page); there && p < (uintptr_t)at + bytes; p += page) {
        void *got = os_map(OS_RESERVE, (void *)p, page); /* NOLINT: an address */
        there = got == OS_OCCUPIED;
        if (got == (void *)p) /* NOLINT: likewise */
            os_unmap(got, page);
    }
    return there;
}
_Static_assert(CANARY_TAIL_BYTES == 4 * sizeof(uint64_t), "a canary is four words");
