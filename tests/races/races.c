/* The table of harnesses. */
/* SPDX-License-Identifier: MIT */
#include "explore.h"

// clang-format off
/* Harnesses named _long take many minutes: ./hak soak runs them. CMakeLists.txt reads these lines too. */
#define RACES(X) \
X(litmus) \
X(adopt) \
X(let_go) \
X(freer) \
X(freer_sent) \
X(noted) \
X(last) \
X(last_long) \
X(exit) \
X(foreign) \
X(foreign_long) \
X(stale) \
X(keep) \
X(keep_long) \
X(pool) \
X(limit) \
X(lazy) \
X(lazy_hint) \
X(lazy_long) \
X(changed) \
X(unborn) \
X(cut) \
X(cut_heap) \
X(cut_blindly) \
X(cache) \
X(nodes) \
X(node_offer) \
X(cache_long) \
X(bitset) \
X(retire) \
X(retire_long) \
X(reuse) \
X(refill) \
X(next_life_long) \
X(late_offer) \
X(trim) \
X(unborn_look) \
X(rings) \
X(mid_rings) \
X(same_moment) \
X(huge_twice) \
X(outbox) \
X(outbox_long) \
X(home) \
X(lend) \
X(loan) \
X(loan_end) \
X(moving) \
X(meshed) \
X(mesh_hold) \
X(mesh_reuse) \
X(mesh_next) \
X(watched) \
X(birth) \
X(borrow) \
X(rest) \
X(rest_end) \
X(forked) \
X(fork_page) \
X(several) \
X(guard) \
X(guard_again) \
X(spans) \
X(node_spans) \
X(offer) \
X(half_listed) \
X(arena_mid) \
X(arena_tiny) \
X(arena_emptied) \
X(arena_cursor) \
X(arena_sent) \
X(arena_inbox) \
X(arena_cached) \
X(arena_exit) \
X(arena_named) \
X(arena_left) \
X(arena_secure)
// clang-format on

#define X(name) extern const struct race name##_race;
RACES(X)
#undef X

#define X(name) &name##_race,
const struct race *const races[] = {RACES(X) NULL};
#undef X
