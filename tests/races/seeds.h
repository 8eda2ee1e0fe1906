/* Bugs that are put into the sources on purpose. `races --seed ACCESS_FAULT` runs the harness that must find the bug.
 *
 * PROVEN (base.h) names an access in the sources. A name that is not in this list does not compile. Each line of the
 * list has a test, which fails if the access does not exist or does not matter. Bugs take effect only between setup and
 * check. */
/* SPDX-License-Identifier: MIT */
#ifndef HAKMEM_TESTS_RACES_SEEDS_H
#define HAKMEM_TESTS_RACES_SEEDS_H

#include <stdint.h>

enum fault {
    FAULT_none,
    FAULT_no,      /* the named access does not happen; its value is false, or 0 */
    FAULT_yes,     /* the named access does not happen; its value is true */
    FAULT_relaxed, /* the atomic access is only relaxed */
    FAULT_acquire, /* the atomic access is only an acquire */
    FAULT_release, /* the atomic access is only a release */
    FAULT_split,   /* the read-modify-write is a load followed by a store */
    FAULT_twice,   /* the compare-and-swap that lowers a count to 0 lowers it to 1, and a second one lowers it to 0 */
    FAULT_late,    /* the store, or the kernel's effect, happens only after the thread's next write */
};

// clang-format off
/* X(access, how it is broken, harness). CMakeLists.txt reads these lines too. */
#define SEEDS(X) \
X(adopt,         relaxed, adopt) \
X(adopt,         split,   adopt) \
X(push,          relaxed, adopt) \
X(let_go,        release, last) \
X(let_go,        relaxed, exit) \
X(let_go_look,   yes,     last) \
X(send_look,     acquire, last) \
X(disown,        no,      freer) \
X(came_in,       relaxed, freer_sent) \
X(take_inbox,    relaxed, stale) \
X(take_inbox,    split,   stale) \
X(drain,         split,   keep) \
X(exit_owner,    yes,     foreign) \
X(keep_list,     no,      keep) \
X(full_unlisted, yes,     keep) \
X(purge_claim,   yes,     pool) \
X(lazy_begin,    no,      lazy) \
X(lazy_end,      no,      lazy) \
X(lazy_claim,    yes,     lazy) \
X(lazy_look,     no,      lazy_hint) \
X(changed_look,  no,      changed) \
X(note_look,     relaxed, noted) \
X(give,          relaxed, pool) \
X(hint_look,     no,      pool) \
X(take,          relaxed, cache) \
X(node_look,     relaxed, nodes) \
X(node_word,     relaxed, nodes) \
X(add_resident,  split,   limit) \
X(take_refused,  no,      limit) \
X(kept_look,     no,      cut_heap) \
X(cut_look,      yes,     cut_blindly) \
X(remove_look,   no,      bitset) \
X(remove_look,   acquire, bitset) \
X(take_class,    no,      reuse) \
X(retire,        split,   retire) \
X(give_back,     relaxed, retire) \
X(retire_class,  yes,     late_offer) \
X(trim,          relaxed, trim) \
X(popped_twice,  yes,     same_moment) \
X(huge_twice,    split,   huge_twice) \
X(freeze_fence,  yes,     rings) \
X(thaw,          relaxed, rings) \
X(leave,         relaxed, rings) \
X(gather_enter,  yes,     outbox) \
X(home_enter,    yes,     home) \
X(loan_use,      split,   loan) \
X(loan_end,      split,   loan_end) \
X(mesh_close,    release, meshed) \
X(mesh_close,    late,    meshed) \
X(closed_look,   no,      meshed) \
X(mesh_kind,     relaxed, meshed) \
X(closed_send,   no,      meshed) \
X(mesh_claim,    relaxed, mesh_hold) \
X(mesh_claim,    split,   mesh_hold) \
X(mesh_same,     yes,     mesh_reuse) \
X(mesh_closed,   no,      mesh_next) \
X(born_watched,  no,      watched) \
X(take_idle,     split,   birth) \
X(put_idle,      late,    birth) \
X(newest,        relaxed, birth) \
X(rest_end,      no,      rest) \
X(rest_look,     acquire, rest_end) \
X(rest_gathered, yes,     rest_end) \
X(rest_left,     no,      rest_end) \
X(find_idle,     no,      borrow) \
X(guard_shut,    late,    guard) \
X(guard_publish, relaxed, guard) \
X(guard_publish, split,   guard) \
X(guard_claim,   split,   guard_again) \
X(guard_claim,   relaxed, guard_again) \
X(guard_freed,   relaxed, guard_again) \
X(let_go_held,   twice,   spans) \
X(let_go_held,   relaxed, spans) \
X(offer_class,   no,      offer) \
X(unlist_first,  no,      half_listed) \
X(look_shared,   no,      unborn_look) \
X(held_mid,      no,      arena_mid) \
X(count_look,    no,      arena_cached) \
X(reserve_mine,  yes,     arena_secure) \
X(arena_name,    relaxed, arena_named)

// clang-format on

#define X(access, how, harness) extern enum fault seed_of_##access;
SEEDS(X)
#undef X

/* Returns 0 if the access is intact or only its order is broken (see model.c), otherwise its value plus 1. */
intptr_t seed_breaks(const enum fault *fault);

#define PROVEN(name, access)                                                                                           \
    ({                                                                                                                 \
        intptr_t broken_ = seed_breaks(&seed_of_##name);                                                               \
        broken_ != 0 ? (__typeof__(access))(broken_ - 1) : (access);                                                   \
    })

#endif
