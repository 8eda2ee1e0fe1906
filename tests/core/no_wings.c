/* The hooks of src/process/hooks.h where there are no wings: all that the core needs to be an allocator of its own.
 * Nothing is sampled, rated, moved or merged, and there are no arenas. Options of wings are not to be set. A call of a
 * wing that is off ends core_test by SIGSEGV. */
/* SPDX-License-Identifier: MIT */
#include "blocks/kinds.h"
#include "process/hooks.h"

const struct observe_hooks hooks_observe = {0};
const struct learn_hooks hooks_learn = {0};
const struct arena_hooks hooks_arena = {0};
const struct move_hooks hooks_move = {0};
const struct mesh_hooks hooks_mesh = {0};
const struct kind kind_guard_page = {0}, kind_arena = {0}, kind_meshed = {0};

/* ---- the process ---- */
bool hook_options_are_read(void) { return false; }
void hook_start(void) {}
void hook_end(void) {}
void hook_last_checks(void) {}

/* ---- secure ---- */
const struct kind kind_secure_small = {.name = "no secure block"}, kind_secure_large = {.name = "no secure block"};
const struct mode mode_secure = {0};
