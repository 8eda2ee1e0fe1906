/* See slab.h. */
/* SPDX-License-Identifier: MIT */
#include "heap/slab.h"
#include "base/fail.h"
#include "blocks/inbox.h"
#include "blocks/kinds.h"
#include "heap/pages.h"
#include "heap/sample.h"
#include "pool/pool.h"
#include "process/presence.h"
#include "process/tunables.h"
#include "space/arena_space.h"

#define CHECK_BLOCKS_MAX 512
#define CHECK_LATER_FREES (1 << 16) /* slabs with more blocks are not walked, only asked whether a sample is due */
/* An empty current slab stays if at most this much of it was carved: a program that holds one block does not start slab
 * after slab. With 0, a block of 1,000 bytes that was allocated and freed 100,000 times took a tenth of an instruction
 * more. */
#define KEEP_CURRENT_BYTES 8192
#define ADOPTIONS_A_BLOCK 2 /* for each block of a refill; beyond, the heap frees more than it allocates */
#define ADOPTIONS_MAX 4096
#define EVICT_AT_ONCE 64
#define VERIFY_FIRST 64  /* slabs that a heap gives back are looked at block by block … */
#define VERIFY_EVERY 16  /* … then one in sixteen */
#define PREFETCH_SHARE 4 /* a quarter of a slab's blocks, or lines, is worth bringing all into the cache */

/* ---- the two lists ---- */

static uint32_t number_of(const struct slab *s) { return (uint32_t)slot_of(s) + 1; }

/* A signal's handler may fork between any two of these stores, and the child's thread ends with what is there by then.
 * However many of the stores were done, slab_unlist takes a slab whose place is set off whatever names it, so that each
 * list ends. The child may lose the slab. */
static void list_on_class(struct heap *h, struct slab *s) {
    _Atomic uint32_t *first = &h->owned.class_first[slab_class(s)];
    s->tiny.class_prev = 0;
    s->tiny.class_next = load_relaxed(first);
    slab_enter(s, PLACE_USABLE);
    atomic_signal_fence(memory_order_seq_cst);
    if (s->tiny.class_next != 0)
        slab_of_slot(s->tiny.class_next - 1)->tiny.class_prev = number_of(s);
    store_relaxed(first, number_of(s));
}

static void list_owned(struct heap *h, struct slab *s) {
    struct slab_lists *lists = &h->owned;
    s->tiny.next = 0;
    s->tiny.prev = lists->last;
    add_owned(&lists->slabs, 1);
    slab_enter(s, PLACE_OWNED);
    atomic_signal_fence(memory_order_seq_cst);
    if (lists->last != 0)
        slab_of_slot(lists->last - 1)->tiny.next = number_of(s);
    else
        lists->first = number_of(s);
    atomic_signal_fence(memory_order_seq_cst);
    lists->last = number_of(s);
}

void slab_unlist(struct heap *h, struct slab *s) {
    struct slab_lists *lists = &h->owned;
    uint32_t number = number_of(s);
    _Atomic uint32_t *class_first = &lists->class_first[slab_class(s)];
    bool was_owned = slab_is(s, PLACE_OWNED);
    if (slab_is(s, PLACE_USABLE)) {
        if (load_relaxed(class_first) == number)
            store_relaxed(class_first, s->tiny.class_next);
        else if (s->tiny.class_prev != 0)
            slab_of_slot(s->tiny.class_prev - 1)->tiny.class_next = s->tiny.class_next;
        if (s->tiny.class_next != 0)
            slab_of_slot(s->tiny.class_next - 1)->tiny.class_prev = s->tiny.class_prev;
    }
    if (was_owned) {
        if (PROVEN(unlist_first, lists->first == number))
            lists->first = s->tiny.next;
        else if (s->tiny.prev != 0)
            slab_of_slot(s->tiny.prev - 1)->tiny.next = s->tiny.next;
        if (lists->last == number)
            lists->last = s->tiny.prev;
        else if (s->tiny.next != 0)
            slab_of_slot(s->tiny.next - 1)->tiny.prev = s->tiny.prev;
    }
    atomic_signal_fence(memory_order_seq_cst);
    slab_leave(s, PLACE_USABLE | PLACE_OWNED);
    atomic_signal_fence(memory_order_seq_cst);
    add_owned(&lists->slabs, -(uint32_t)was_owned);
}

/* ---- freeing ---- */

/* All blocks are back. So nobody else can know the slab any more, because every way to it leads through a block that is
 * out. */
static void slab_give_back(struct heap *h, struct slab *s) {
    unsigned c = slab_class(s);
    HAK_ASSERT(load_relaxed(&s->inbox) == 0);
    slab_unlist(h, s);
    if (slab_purged(s) != 0)
        pages_forget(s);
    if (h->fresh[c] == s)
        h->fresh[c] = NULL;
    count(&h->client.counters, COUNT_slabs_emptied);
    slab_end_hits(s);
    store_relaxed(&s->kind, KIND_FREE);
    store_release(&s->owner, OWNER_POOL);
    pool_give(&h->client, slot_of(s), 1, c + 1, true);
}

/* Mallocs are not counted. So the current slab may be empty after as many frees as there were blocks out at the last
 * check. If less than half of those are still out, all may be on their way back, and the next check is after that many
 * frees. Otherwise it waits for enough frees to make the walk of the list cheap in comparison. The more often a slab of
 * the class was given back here, the more checks the next one stays, because the program goes up and down. */
static bool check_current(struct heap *h, struct slab *s) {
    unsigned c = slab_class(s);
    if (unlikely(sample_wanted(h)) && sample_countdown_ended(h, c))
        return false;
    if (size_classes[c].blocks > CHECK_BLOCKS_MAX) { /* it stays: the walk would be the slowest thing free ever does */
        slab_count_frees(h, c, s);
        slab_check_after(h, s, CHECK_LATER_FREES);
        if (unlikely(sample_on(h)))
            sample_cut(h, c, SAMPLE_UNCOUNTED);
        return false;
    }
    unsigned listed = links_count(s, &h->list[c]), out = slab_out(s) - listed;
    bool empty = out == 0 && slab_carved(s) * size_classes[c].block_bytes > KEEP_CURRENT_BYTES;
    if (empty && h->checks_left[c] == 0) {
        h->checks_before_giving[c] = (uint8_t)min_size(h->checks_before_giving[c] * 2u + 1, UINT8_MAX);
        h->checks_left[c] = h->checks_before_giving[c];
        slab_leave_current(h, c);
        return true;
    }
    h->checks_left[c] = (uint8_t)(h->checks_left[c] - empty);
    slab_count_frees(h, c, s);
    slab_check_after(h, s, out != 0 && out <= s->tiny.check_after / 2 ? out : out + tuned(TUNE_check_frees) * listed);
    if (unlikely(sample_on(h)))
        sample_cut(h, c, listed);
    return false;
}

/* Whether a slab that goes back is looked at block by block. Each such walk costs a cache miss for every few blocks:
 * with every slab walked `batches` takes 15 % more instructions. */
static bool slab_verify_due(struct heap *h) {
    return ++h->slabs_given_back < VERIFY_FIRST || h->slabs_given_back % VERIFY_EVERY == 0;
}

/* The list should hold all blocks of the slab: whether each has a link into the slab, and the offsets add up to the
 * right sum. Reads in address order, which the caches foresee; following the links would wait for each. */
static bool all_have_links(const struct slab *s) {
    uintptr_t slab = (uintptr_t)slab_address(s), n = slab_carved(s), bytes = size_classes[slab_class(s)].block_bytes;
    uintptr_t key = slab ^ hak_region.key, beyond = 0, sum = 0;
    for (uintptr_t block = slab, end = slab + n * bytes; block < end; block += bytes) {
        uintptr_t next = *block_word(block) ^ key;
        beyond |= next;
        sum += next;
    }
    uintptr_t first = load_relaxed(&s->tiny.list) - slab;
    return beyond < SLOT_BYTES && sum == n * (n - 1) / 2 * bytes - first + 1; /* 1: of the terminator */
}

/* Counts the listed blocks if they may not be all. A block that was freed twice, with its link overwritten in between,
 * is in the list twice, so that another seems to be back and is not. */
HAK_NOINLINE static bool all_are_back(struct slab *s) {
    if (likely(slab_purged(s) == 0 && all_have_links(s)))
        return true;
    unsigned listed = links_count(s, &s->tiny.list), all = slab_carved(s) - s->tiny.purged_blocks;
    s->tiny.countdown = all - listed;
    return s->tiny.countdown == 0;
}

/* Sets the countdown of a slab with `out` blocks out to the next number that matters. */
HAK_INLINE void set_countdown(struct slab *s, unsigned out) {
    unsigned blocks = size_classes[slab_class(s)].blocks;
    unsigned floor = out == blocks ? out - slab_reuse_frees(slab_class(s)) : slab_next_look(blocks, out);
    s->tiny.floor = (uint16_t)floor;
    s->tiny.countdown = out - floor;
}

bool slab_countdown_ended(struct heap *h, struct slab *s) {
    if (slab_is(s, PLACE_CURRENT))
        return check_current(h, s);
    if (s->tiny.floor == 0) {
        if (slab_verify_due(h) && !all_are_back(s))
            return false;
        slab_give_back(h, s);
        return true;
    }
    bool was_usable = slab_is_usable(s);
    set_countdown(s, s->tiny.floor);
    if (was_usable) {
        pages_changed(h, s, slab_is(s, PLACE_OWNED));
    } else if (PROVEN(full_unlisted, slab_is(s, PLACE_OWNED))) {
        list_on_class(h, s);
        h->returns[slab_class(s)] +=
            h->returns[slab_class(s)] <
            tuned_class(TUNE_kept_slabs, slab_class(s)); /* this heap frees what it allocates */
    }
    return false;
}

bool slab_free(struct heap *h, struct slab *s, uintptr_t block) {
    _Atomic uintptr_t *list = s->tiny.free_to;
    block_link(block, load_relaxed(list));
    PROVEN(came_in, store_release(list, block)); /* pairs with search_freer, for own_frees */
    return --s->tiny.countdown == 0 && slab_countdown_ended(h, s);
}

bool slab_free_chain(struct heap *h, struct slab *s, uintptr_t block, uint64_t blocks) {
    uintptr_t slab = (uintptr_t)slab_address(s);
    store_relaxed(&s->tiny.own_frees, false);
    for (uint64_t left = blocks; left > 0; left--) {
        if (unlikely(!is_in_slab(block, slab))) {
            fail_overwritten_link(slab_address(s), size_classes[slab_class(s)].block_bytes);
            return false; /* the rest is lost */
        }
        uintptr_t next = block_next(block);
        if (slab_free(h, s, block))
            return true;
        block = next;
    }
    return false;
}

bool slab_drain_inbox(struct heap *h, struct slab *s) {
    uint64_t word = PROVEN(drain, rmw_swap(&s->inbox, 0));
    if (word == 0)
        return false;
    count(&h->client.counters, COUNT_inbox_batches);
    bool all = !slab_is(s, PLACE_CURRENT) && inbox_blocks(word) == slab_out(s);
    if (all && !slab_verify_due(h)) { /* the blocks need not be touched once more */
        slab_give_back(h, s);
        return true;
    }
    slab_prefetch(s, (unsigned)inbox_blocks(word));
    return slab_free_chain(h, s, inbox_newest(s, word), inbox_blocks(word));
}

/* ---- the slab that serves a class ---- */

void slab_prefetch(const struct slab *s, unsigned listed) {
    size_t bytes = size_classes[slab_class(s)].block_bytes, all = slab_carved(s) * bytes;
    size_t step = max_size(bytes, HAK_LINE);
    if (listed * step < all / PREFETCH_SHARE)
        return;
    for (const char *at = slab_address(s), *end = at + all; at < end; at += step)
        __builtin_prefetch(at, 1, 2); /* to be written, into the second cache */
}

void slab_make_current(struct heap *h, struct slab *s) {
    unsigned c = slab_class(s);
    slab_give_up_current(h, c);
    HAK_ASSERT(h->current[c] == NULL && is_terminator(load_relaxed(&h->list[c])));
    unsigned listed = slab_listed(s), out = slab_out(s);
    uintptr_t list = load_relaxed(&s->tiny.list);
    h->current[c] = s;
    store_relaxed(&s->tiny.list,
                  slab_terminator(s)); /* its blocks are elsewhere: search_lists must not meet them here */
    s->tiny.free_to = &h->list[c];
    slab_check_after(h, s, out);
    ledger_add(&h->ledger[c].blocks, listed);
    slab_enter(s, PLACE_CURRENT);
    atomic_signal_fence(memory_order_seq_cst); /* a child that a signal handler forks here can at worst lose blocks */
    store_release(&h->list[c], list);          /* as in slab_free */
    slab_prefetch(s, listed);
    if (unlikely(sample_on(h)))
        sample_made_current(h, c, listed);
}

struct slab *slab_leave_current(struct heap *h, unsigned c) {
    struct slab *s = h->current[c];
    if (s == NULL)
        return NULL;
    if (unlikely(sample_on(h)))
        sample_take_back(h, c);
    /* Counted first, because search_lists does not find the blocks while the list is the heap's no more and the slab's
     * not yet. */
    _Atomic uintptr_t list = load_relaxed(&h->list[c]);
    unsigned listed = load_relaxed(&list) != slab_terminator(s) ? links_count(s, &list) : 0;
    ledger_add(&h->ledger[c].blocks, -(uint64_t)listed);
    slab_count_frees(h, c, s);
    store_relaxed(&h->list[c], slab_terminator(s));
    atomic_signal_fence(memory_order_seq_cst); /* as above */
    h->current[c] = NULL;
    s->tiny.free_to = &s->tiny.list;
    unsigned out = slab_out(s) - listed;
    set_countdown(s, out);
    slab_leave(s, PLACE_CURRENT);
    store_relaxed(&s->tiny.list, load_relaxed(&list));
    if (out != 0)
        return s;
    slab_give_back(h, s);
    return NULL;
}

/* ---- passing ownership ---- */

bool slab_adopt(struct heap *h, struct slab *s) {
    struct heap *nobody = OWNER_NONE;
    /* pairs with the store in slab_let_go: the slab's fields are ours now */
    if (!PROVEN(adopt, rmw_cas(&s->owner, &nobody, h)))
        return false;
    if (slab_out(s) == size_classes[slab_class(s)].blocks && !heap_may_have_gathered(h, s))
        store_relaxed(&s->tiny.own_frees, true);
    return true;
}

/* While a thread sleeps, nobody else can use or trim what it owns. In a program with threads that must be little, or
 * little compared with the heap: half of the heap, shared among the threads. */
static size_t credit_max(void) {
    unsigned threads = presence_heaps();
    return max_size(tuned(TUNE_credit_slabs), account_active_slots() / (threads == 1 ? 1 : 2 * threads));
}

void slab_refilled(struct heap *h, unsigned blocks, bool partial) {
    h->owned_credit += partial;
    h->adoptions_left = (uint32_t)min_size(h->adoptions_left + ADOPTIONS_A_BLOCK * blocks, ADOPTIONS_MAX);
}

/* How many slabs the heap may own: any number while its thread is alone, because nobody else can want them. */
static size_t owned_max(struct heap *h) {
    if (presence_is_alone())
        return SIZE_MAX;
    if (h->owned_credit > tuned(TUNE_credit_slabs)) /* else it is within every bound that credit_max returns */
        h->owned_credit = (uint32_t)min_size(h->owned_credit, credit_max());
    return tuned(TUNE_owned_slabs) + h->owned_credit;
}

bool slab_has_place(struct heap *h) { return load_relaxed(&h->owned.slabs) < owned_max(h); }

static void evict_above_max(struct heap *h, const struct slab *except) {
    size_t max = owned_max(h);
    for (unsigned i = 0; i < EVICT_AT_ONCE && load_relaxed(&h->owned.slabs) > max && h->owned.first != 0; i++) {
        struct slab *oldest = slab_of_slot(h->owned.first - 1);
        if (oldest == except)
            return;
        count(&h->client.counters, COUNT_slabs_evicted);
        slab_let_go(h, oldest);
    }
}

void slab_keep(struct heap *h, struct slab *s) {
    slab_leave(s, PLACE_FRESH);
    list_owned(h, s);
    if (slab_is_usable(s))
        list_on_class(h, s);
    if (h->adoptions_left != 0)
        h->adoptions_left--;
    else
        h->owned_credit -= (h->owned_credit + 3) / 4;
    evict_above_max(h, s);
}

void slab_give_up_current(struct heap *h, unsigned c) {
    struct slab *s = slab_leave_current(h, c);
    if (s == NULL || h->fresh[c] == s)
        return;
    if (slab_carved(s) < size_classes[c].blocks) {
        slab_keep(h, s);
        return;
    }
    if (h->returns[c] != 0) {
        /* Asked before the look at the inbox, to which gathered blocks may have gone. */
        bool own_frees = !heap_may_have_gathered(h, s);
        if (load_relaxed(&s->inbox) != 0) { /* others free this class, too */
            h->returns[c] = 0;
        } else if (slab_out(s) == size_classes[c].blocks) {
            h->returns[c]--;
            store_relaxed(&s->tiny.own_frees, own_frees);
            PROVEN(keep_list, list_owned(h, s));
            evict_above_max(h, s);
            return;
        }
    }
    slab_let_go(h, s);
}

size_t slab_bytes_at_hand(const struct heap *h) {
    size_t bytes = 0;
    for (unsigned c = 0; c < TINY_CLASSES; c++) {
        const struct slab *current = h->current[c], *fresh = h->fresh[c] != current ? h->fresh[c] : NULL;
        bytes += (current != NULL ? slab_carved(current) : 0) * size_classes[c].block_bytes;
        bytes += (fresh != NULL ? slab_carved(fresh) : 0) * size_classes[c].block_bytes;
    }
    return bytes;
}

void slab_make_dense(struct heap *h, struct slab *s) {
    slab_leave(s, PLACE_FRESH);
    slab_enter(s, PLACE_DENSE);
    list_owned(h, s);
    evict_above_max(h, s);
}

void slab_give_up_dense(struct heap *h, struct slab *s) {
    set_countdown(s, slab_carved(s) - s->tiny.purged_blocks); /* its list is empty, whatever the countdown says */
    slab_let_go(h, s);
}

static void let_go(struct heap *h, struct slab *s, bool changed) {
    unsigned c = slab_class(s);
    size_t slot = slot_of(s);
    HAK_ASSERT(h->current[c] != s);
    if (slab_is(s, PLACE_OWNED | PLACE_USABLE))
        slab_unlist(h, s);
    if (h->fresh[c] == s)
        h->fresh[c] = NULL;
    for (;;) {
        store_relaxed(&s->tiny.place, 0);
        if (load_relaxed(&s->inbox) != 0 && slab_drain_inbox(h, s)) /* true: that emptied the slab */
            return;
        bool usable = slab_is_usable(s);
        store_relaxed(&s->tiny.out, slab_out(s));
        store_relaxed(&s->tiny.due, usable ? 0 : s->tiny.countdown);
        PROVEN(disown, store_relaxed(&s->tiny.own_frees, false)); /* whoever adopts it did not free what is listed */
        count(&h->client.counters, COUNT_slabs_let_go);
        /* Pairs with send (outbox.c), which writes the inbox, then reads the owner: one of us sees the other. */
        PROVEN(let_go, store_seq(&s->owner, OWNER_NONE));
        if (PROVEN(let_go_look, load_seq(&s->inbox) == 0) || !slab_adopt(h, s)) {
            if (changed) /* noted now: an earlier look would have found an owner, and forgotten the note */
                superslab_note_changed(slot);
            if (usable)
                superslab_offer(slot, c);
            return;
        }
    }
}

void slab_let_go(struct heap *h, struct slab *s) { let_go(h, s, slab_is_usable(s)); }
void slab_put_back(struct heap *h, struct slab *s) { let_go(h, s, false); }

struct slab *slab_take_usable(struct heap *h, unsigned c) {
    uint32_t first = load_relaxed(&h->owned.class_first[c]);
    if (first == 0)
        return NULL;
    slab_unlist(h, slab_of_slot(first - 1));
    return slab_of_slot(first - 1);
}

/* ---- slabs on loan ---- */

bool slab_may_borrow(const struct heap *h) {
    return heap_remote_frees(h) - h->bulk_from >= tuned(TUNE_loan_from_frees) && h->client.arena == 0 &&
           !presence_is_alone() && presence_has_purger();
}

void slab_lend(struct heap *h, struct slab *s) {
    unsigned c = slab_class(s);
    size_t slot = slot_of(s);
    bool usable = slab_is_usable(s);
    if (rmw_add(&h->lent.slabs, 1) == 0)
        presence_gathered();
    store_release(&s->owner, slab_on_loan_to(h)); /* pairs with slab_end_loan */
    if (usable)
        superslab_offer(slot, c);
}

bool slab_end_loan(struct heap *h, struct slab *s) {
    struct heap *owner = load_relaxed(&s->owner), *borrower = slab_holder(s);
    if (borrower == NULL || owner != slab_on_loan_to(borrower) || !PROVEN(loan_end, rmw_cas(&s->owner, &owner, h)))
        return false;
    rmw_add(&borrower->lent.slabs, -1u);
    return true;
}

void slab_check_loan(struct heap *h, struct slab *s) {
    rmw_add(&h->lent.slabs, -1u);
    store_relaxed(&s->owner, h); /* others see an owner before and afterwards */
    if (presence_is_alone())
        slab_keep(h, s);
    if ((s->tiny.countdown == 0 && slab_countdown_ended(h, s)) || slab_is(s, PLACE_OWNED))
        return;
    if (load_relaxed(&s->inbox) != 0)
        slab_let_go(h, s); /* others free there, too */
    else
        slab_lend(h, s);
}

void slab_recall(struct heap *h, struct heap *from, unsigned part, unsigned parts) {
    for (size_t slot = 0; load_relaxed(&from->lent.slabs) != 0; slot++) {
        slot = space_next_active(&h->client, slot);
        if (slot == BITSET_NONE)
            return;
        struct slab *s = slab_of_slot(slot);
        if (load_relaxed(&s->owner) != slab_on_loan_to(from) || slot % parts != part || !slab_end_loan(h, s))
            continue;
        count(&h->client.counters, COUNT_slabs_recalled);
        slab_let_go(h, s);
    }
}
