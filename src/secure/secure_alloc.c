/* Malloc in secure mode, and the operators new and delete that fit each other. */
/* SPDX-License-Identifier: MIT */
#include "alloc/alloc.h"
#include "alloc/alloc_slow.h"
#include "base/fail.h"
#include "base/mode.h"
#include "blocks/kinds.h"
#include "secure/secure.h"
#include "threads/chores.h"

/* The hit path of secure mode. */
HAK_NOINLINE static void *secure_hit(struct heap *h, size_t bytes) {
    if (unlikely(bytes - 1 > MID_BYTES_MAX - CANARY_BYTES - 1)) /* 0, too */
        return alloc_any(bytes);
    struct secure_cache *cache = secure_cache_for(h, bytes);
    if (unlikely(!secure_has_next(cache)) || chores_are_asked(h))
        return alloc_any(bytes);
    struct secure_entry e = secure_next(h, cache);
    if (!secure_is_simple(e, cache->block_bytes))
        return secure_hand_out(e, cache->block_bytes, bytes, alloc_any);
    return secure_finish(e, cache->block_bytes, bytes);
}

HAK_COLD static void *secure_note_new(void *p, bool array) {
    if (p != NULL && load_relaxed(&hak_arrays_known))
        secure_set_maker(p, array ? MADE_BY_NEW_ARRAY : MADE_BY_NEW);
    return p;
}

/* A block that malloc made may be freed by any. */
HAK_COLD static void secure_check_delete(const void *p, bool array) {
    bool other = secure_maker_of(p) == (array ? MADE_BY_NEW : MADE_BY_NEW_ARRAY);
    if (other && load_relaxed(&hak_arrays_known))
        fail_operator(p, array, alloc_usable(p, "free"));
}

const struct mode mode_secure = {
    .front_kind = &kind_secure_small,
    .malloc = secure_hit,
    .note_new = secure_note_new,
    .check_delete = secure_check_delete,
    .heap_end_bytes = HEAP_SECURE_BYTES,
    .window_log2_min = 3,
    .all_errors_abort = true,
    .free_is_shut = true,
    .free_is_zero = true,
    .has_quarantine = true,
    .has_stacks = true,
};
