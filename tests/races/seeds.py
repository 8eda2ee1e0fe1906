#!/usr/bin/env python3
"""Bugs put into copies of the sources on purpose: each must be found by its harness.

usage: seeds.py NAME SOURCES OUT    copies src/ to OUT with the bug NAME in it

A bug is a text that must occur exactly once in its file, and what it becomes: when the source changes so that the text
is no longer there the build fails, and somebody has to say what the bug is now.
"""
import pathlib
import shutil
import sys

RELAXED = "memory_order_relaxed"
SEEDS = {
    # ownership
    "adopt_relaxed": (
        "slab.c",
        "if (!rmw_cas(&s->owner, &nobody, h))",
        f"if (!atomic_compare_exchange_strong_explicit(&s->owner, &nobody, h, {RELAXED}, {RELAXED}))",
    ),
    "adopt_no_cas": (
        "slab.c",
        "if (!rmw_cas(&s->owner, &nobody, h))",
        "if (!(load_seq(&s->owner) == nobody && (store_seq(&s->owner, h), true)))",
    ),
    "let_go_release": ("slab.c", "store_seq(&s->owner, OWNER_NONE);", "store_release(&s->owner, OWNER_NONE);"),
    "let_go_no_look": ("slab.c", "if (load_seq(&s->inbox) == 0 || !slab_adopt(h, s)) {", "{"),
    "flush_acquire": ("remote.c", "= load_seq(&s->owner); /* pairs", "= load_acquire(&s->owner); /* pairs"),
    "push_relaxed": (
        "remote.c",
        "while (!rmw_cas(&s->inbox, &old, word));",
        f"while (!atomic_compare_exchange_strong_explicit(&s->inbox, &old, word, {RELAXED}, {RELAXED}));",
    ),
    "let_go_relaxed": ("slab.c", "store_seq(&s->owner, OWNER_NONE);", "store_relaxed(&s->owner, OWNER_NONE);"),
    "take_inbox_relaxed": (
        "remote.c",
        "load_relaxed(&s->inbox) != 0 ? rmw_swap(&s->inbox, 0) : 0;",
        f"atomic_exchange_explicit(&s->inbox, 0, {RELAXED});",
    ),
    "take_inbox_twice": (
        "remote.c",
        "load_relaxed(&s->inbox) != 0 ? rmw_swap(&s->inbox, 0) : 0;",
        "load_acquire(&s->inbox);\n    store_seq(&s->inbox, 0);",
    ),
    "exit_owner_unseen": (
        "tiny.c",
        "struct slab *s = slab_of_block(block);\n            if (load_relaxed(&s->owner) == h)",
        "struct slab *s = slab_of_block(block);\n            if (true)",
    ),
    "keep_unlisted": (
        "slab.c",
        "s->own_frees = own_frees;\n    list_owned(h, s);\n    keep_few(h, s);",
        "s->own_frees = own_frees;\n    keep_few(h, s);",
    ),
    "keep_drops_inbox": (
        "slab.c",
        "if (load_relaxed(&s->inbox) != 0) /* others free this class, too */\n        *returns = 0;",
        "store_seq(&s->inbox, 0);",
    ),
    "let_go_listed": ("slab.c", "if (s->place & PLACE_OWNED) {\n        list_on_class", "{\n        list_on_class"),
    # the pool
    "purge_unclaimed": (
        "purge.c",
        "while (!rmw_cas(&ss->word, &w, w | claim.slots));",
        "while (!rmw_cas(&ss->word, &w, w));",
    ),
    "limit_no_cas": (
        "purge.c",
        "while (!rmw_cas(&totals, &t, t + total_of((int64_t)slots, 0)));",
        "while ((rmw_add(&totals, total_of((int64_t)slots, 0)), false));",
    ),
    "refused_kept": ("pool.c", "put_back(slot, slots, wish.was_resident);", ""),
    "give_relaxed": (
        "pool.c",
        "uint64_t before = rmw_and(&ss->word, ~mask);",
        f"uint64_t before = atomic_fetch_and_explicit(&ss->word, ~mask, {RELAXED});",
    ),
    "hint_no_look": (
        "pool.c",
        "bitset_remove(&hak_region.sets, set, superslab);\n    if (sets_of(load_seq(word)) & bit)",
        "bitset_remove(&hak_region.sets, set, superslab);\n    if (false)",
    ),
    "take_in_relaxed": (
        "pool.c",
        "if (rmw_cas(&ss->word, &w, taken)) {",
        f"if (atomic_compare_exchange_strong_explicit(&ss->word, &w, taken, {RELAXED}, {RELAXED})) {{",
    ),
    "remove_no_look": ("bitset.h", "if (level > 0 && load_seq(", "if (false && load_seq("),
    "remove_acquire": ("bitset.h", "if (level > 0 && load_seq(", "if (level > 0 && load_acquire("),
    # mid
    "take_any_class": ("mid.c", "if (slab_class(s) != c) {", "if (false) {"),
    "retire_any_class": (
        "mid.c",
        "if (all_blocks(slab_class(s)) == all)\n            break;",
        "break;",
    ),
    "trim_relaxed": (
        "mid.c",
        "ours = rmw_swap(&s->free_blocks, 0)",
        f"ours = atomic_exchange_explicit(&s->free_blocks, 0, {RELAXED})",
    ),
    "retire_unswapped": (
        "mid.c",
        "!rmw_cas(&s->free_blocks, &all, 0)) {",
        "(store_seq(&s->free_blocks, 0), false)) {",
    ),
    "return_relaxed": (
        "mid.c",
        "uint64_t before = rmw_or(&s->free_blocks, mask);",
        f"uint64_t before = atomic_fetch_or_explicit(&s->free_blocks, mask, {RELAXED});",
    ),
    # outboxes and rings
    "gather_unasked": ("remote.c", "if (likely(caches_enter(h)))\n        gather", "if (caches_enter(h) || true)\n        gather"),
    "home_unasked": (
        "remote.c",
        "if (caches_enter(h) && h->outbox_blocks != 0 &&",
        "if (h->outbox_blocks != 0 && caches_enter(h) &&",
    ),
    "freeze_no_fence": ("heap.c", "return os_fence_threads() && !load", "return !load"),
    "thaw_relaxed": ("heap.c", "rmw_and(&h->caches_flags, (uint8_t)~CACHES_FROZEN)",
                     "atomic_fetch_and_explicit(&h->caches_flags, (uint8_t)~CACHES_FROZEN, memory_order_relaxed)"),
    "leave_relaxed": ("heap.h", "store_release(&h->caches_busy, false)", "store_relaxed(&h->caches_busy, false)"),
    # heaps
    "take_idle_twice": (
        "heap.c",
        "if (rmw_cas(&h->in_use, &in_use, true))",
        "if (load_seq(&h->in_use) == in_use && (store_seq(&h->in_use, true), true))",
    ),
    "find_idle_once": ("heap.c", "number == BITSET_NONE && row < rows &&", "false && row < rows &&"),
    "put_idle_late": (
        "heap.c",
        "store_seq(&h->in_use, false);\n    bitset_add(&idle, 0, h->number);",
        "bitset_add(&idle, 0, h->number);\n    store_seq(&h->in_use, false);",
    ),
    "newest_relaxed": ("heap.c", "return load_acquire(&", "return load_relaxed(&"),
}


def main():
    name, sources, out = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    file, right, wrong = SEEDS[name]
    text = (sources / file).read_text()
    if text.count(right) != 1:
        sys.exit(f"seeds.py: {name}: {file} has {text.count(right)} times, not once:\n{right}")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    for path in sources.glob("*.[ch]"):
        shutil.copy(path, out)
    (out / file).write_text(text.replace(right, wrong))


main()
