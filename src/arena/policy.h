/* Which policy a call of malloc has, depending on who calls: the file HAKMEM_POLICY says. docs/arenas.md has its
 * format.
 *
 *  1. A line names a call site by one to five frames, innermost first: the build id of a module, and the offset there
 *     of the address to which the call returns. So lines hold wherever modules are loaded. Further frames tell the
 *     callers of a wrapper such as xmalloc apart. A line `set NAME=VALUE` sets a tunable or an option instead.
 *  2. The answer is cached by return address. Mostly that is all a call takes: a multiplication, a load, a comparison.
 *  3. For a wrapper the cache has a step: where its caller's return address is, relative to the stack pointer or the
 *     frame pointer. The unwind table is asked for that once; the address is then found by one load. The key becomes a
 *     mix of the addresses so far.
 *  4. Frames of this library, such as that of operator new, are stepped over.
 *
 * A wrong answer, as after another library was loaded where an old one was, places a block badly, and a wrong step
 * makes that wrapper slow; such a step ends where nothing can be read. The lines and what they are compared with are
 * constant after the start. Any thread calls policy_of; it never allocates and takes no lock. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "base/base.h"

enum { POLICY_CACHE_BITS = 13, POLICY_UNKNOWN = 255 }; /* 8,192 call sites, 64 KiB */

/* An entry is 0, or a key above what belongs to it: a policy, or the number of a step. Any thread. */
extern HAK_HIDDEN _Atomic uint64_t policy_cache[1 << POLICY_CACHE_BITS];
HAK_INLINE size_t policy_index(uint64_t key) { return key * 0x9e3779b97f4a7c15u >> (64 - POLICY_CACHE_BITS); }
/* The cached policy or step of the key; POLICY_UNKNOWN: it is not in the first entry where it may be. */
HAK_INLINE unsigned policy_cached(uint64_t key) {
    uint64_t entry = load_relaxed(&policy_cache[policy_index(key)]);
    return likely(entry >> 8 == key) ? entry & 255 : POLICY_UNKNOWN;
}

/* Reads the file, if there is one and policies have an effect, and sets what it says. Called before HAKMEM_TUNE is
 * applied. False: there are no call sites. A bad line is reported, and none counts. */
bool policy_start(void);

/* enum hak_policy, for whoever called the function with this frame (__builtin_frame_address): the caller's frame
 * pointer, the address where the caller continues, and above them the caller's stack. policy_cached with that address
 * saves the call, if it returns a policy. */
unsigned policy_of(const uintptr_t *frame);
