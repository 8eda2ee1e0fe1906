/* The words of SuperSlabs: which slots are taken, given, lengthened. If one of these fails, two blocks share a
 * slot, or a slot is lost. What holds for every word, and for a word that another thread has just changed, holds
 * however threads alternate: the word changes by read-modify-writes alone. */
/* SPDX-License-Identifier: MIT */
#include "prove.h"

#include "space/superslab.c"

struct region hak_region;
struct region_use hak_region_use;
static struct superslab first; /* SuperSlab 0, and no other: the solver keeps all memory that an address may mean */
static _Atomic uint64_t sets[SETS];
static struct client client;
enum { AT = 0 };

/* What the sources call besides. The totals and the clock are not looked at. */
void account_count_cached(ptrdiff_t n) { (void)n; }
void account_count_lazy(ptrdiff_t n) { (void)n; }
void account_count_changed(ptrdiff_t n) { (void)n; }
uint32_t account_clock_ms(void) { return nondet_u32(); }
unsigned nodes_here(void) { return 0; }
struct arena *arena_numbered(uint32_t number) {
    (void)number;
    PROVE(false); /* there are none here */
    return NULL;
}

/* One SuperSlab of the process, with any word. The sets have no level, and so no members, except where they are
 * looked at. */
static struct superslab *any_superslab(void) {
    hak_region.rows = (struct superslab_row *)(void *)&first;
    hak_region.nodes = 1;
    struct superslab *ss = superslab_at(AT);
    ss->word = nondet_u64();
    ss->lazy = nondet_u32();
    return ss;
}
static struct superslab_wish any_wish(void) {
    struct superslab_wish wish = {.client = &client, .slots = nondet_unsigned(), .align = nondet_unsigned(), .tag = 0};
    GIVEN(wish.slots >= 1 && wish.slots <= SUPERSLAB_SLOTS);
    GIVEN(is_power_of_two(wish.align) && wish.align <= SUPERSLAB_SLOTS);
    return wish;
}
/* The bits from `start` on, in another way than the sources make them. */
static uint32_t bits_of(unsigned start, unsigned slots) {
    uint32_t bits = 0;
    for (unsigned i = 0; i < SUPERSLAB_SLOTS; i++)
        bits |= (uint32_t)(i >= start && i - start < slots) << i;
    return bits;
}

/* Every set of free slots, every length from 1 to 32 and every place: run_starts has the place if, and only if, as many
 * slots as the length says are free from there on; span_mask has just these slots. */
void prove_runs(void) {
    /* --unwind 7 --unwindset bits_of.0:33 */
    uint32_t free = nondet_u32();
    unsigned n = nondet_unsigned(), at = nondet_unsigned();
    GIVEN(n >= 1 && n <= SUPERSLAB_SLOTS && at < SUPERSLAB_SLOTS);
    bool fits = at + n <= SUPERSLAB_SLOTS;
    PROVE(!fits || span_mask(at, n) == bits_of(at, n));
    bool is = fits && (free & bits_of(at, n)) == bits_of(at, n);
    PROVE((run_starts(free, n) >> at & 1) == is);
}

/* Every word, every first span, and up to three further ones: choose_further gives as many whole spans of EMPTY slots,
 * none of them of the first, as are wished for; fewer only if there is no place for one more. */
void prove_further(void) {
    /* --unwind 7 --unwindset bits_of.0:33 */
    struct superslab_wish wish = any_wish();
    uint64_t w = nondet_u64();
    unsigned start = nondet_unsigned(), other = nondet_unsigned(), spans = 0;
    wish.further = nondet_unsigned();
    GIVEN(wish.further <= 3 && start <= SUPERSLAB_SLOTS - wish.slots && other <= SUPERSLAB_SLOTS - wish.slots);
    uint32_t first = bits_of(start, wish.slots), one_more = bits_of(other, wish.slots);
    uint32_t empty = word_resident(w) & ~word_active(w), further;
    wish.spans = 1;
    further = choose_further(w, first, &wish);
    PROVE((further & ~empty) == 0 && (further & first) == 0);
    for (uint32_t left = further; left != 0; spans++) {
        uint32_t span = bits_of(lowest_bit(left), wish.slots);
        PROVE((span & ~left) == 0 && spans < wish.further);
        left &= ~span;
    }
    PROVE(wish.spans == spans + 1);
    PROVE(spans == wish.further || (first & ~empty) != 0 || (one_more & (~empty | first | further)) != 0);
}

/* Every word and every wish for 1 to 32 slots at an alignment: choose_start gives a place where the slots are free,
 * and aligned; none only if there is none. It prefers slots that are resident. */
void prove_choice(void) {
    /* --unwind 7 --unwindset bits_of.0:33 */
    struct superslab *ss = any_superslab();
    struct superslab_wish wish = any_wish();
    uint32_t active = word_active(ss->word), resident = word_resident(ss->word);
    GIVEN((active & ~resident) == 0);
    unsigned start = choose_start(ss, ss->word, &wish), other = nondet_unsigned();
    GIVEN(other % wish.align == 0 && other <= SUPERSLAB_SLOTS - wish.slots);
    uint32_t mask = bits_of(start, wish.slots), other_mask = bits_of(other, wish.slots);
    bool other_fits = (active & other_mask) == 0;
    if (start == SUPERSLAB_SLOTS) {
        PROVE(!other_fits);
        return;
    }
    PROVE(start % wish.align == 0 && start + wish.slots <= SUPERSLAB_SLOTS);
    PROVE((active & mask) == 0);
    bool is_empty = (resident & mask) == mask;
    PROVE(is_empty || !other_fits || (resident & other_mask) != other_mask);
}

/* Every word, every wish, two further spans at most, and up to two changes by other threads meanwhile: superslab_take
 * makes the slots that it returns ACTIVE and resident, which nobody had, and no others, in one step; it says which
 * were resident, and does so only in a SuperSlab that is in use, or wholly free, as it was asked. Where there are
 * further spans all slots were EMPTY. Otherwise it has changed nothing. */
void prove_take(void) {
    /* --unwind 7 --unwindset bits_of.0:33,superslab_changed.1:10 */
    any_superslab();
    struct superslab_wish wish = any_wish();
    wish.further = nondet_unsigned();
    GIVEN(wish.further <= 2);
    bool whole = nondet_bool();
    others_may_write = 2;
    size_t slot = superslab_take(AT, whole, &wish);
    PROVE(step.count == (slot != BITSET_NONE));
    if (slot == BITSET_NONE)
        return;
    PROVE(slot / SUPERSLAB_SLOTS == AT);
    uint32_t mask = bits_of((unsigned)(slot % SUPERSLAB_SLOTS), wish.slots), taken = wish.taken;
    PROVE((taken & mask) == mask);
    PROVE((word_active(step.before) & taken) == 0);
    PROVE(taken == mask || (word_resident(step.before) & taken) == taken);
    PROVE(step.after == (step.before | word_of(taken, taken)));
    PROVE((word_active(step.before) == 0) == whole);
    PROVE(wish.was_resident == (word_resident(step.before) & taken));
    PROVE(wish.was_cached == word_is_cached(step.before));
}

/* Every word, every span and every greater length, and up to two changes by others: superslab_extend takes just the
 * slots behind the span, all free before, or changes nothing. */
void prove_extend(void) {
    /* --unwind 7 --unwindset bits_of.0:33 */
    any_superslab();
    unsigned start = nondet_unsigned(), slots = nondet_unsigned(), wanted = nondet_unsigned(), was_resident;
    GIVEN(start < SUPERSLAB_SLOTS && slots >= 1 && slots < wanted && wanted <= SUPERSLAB_SLOTS);
    GIVEN(start + slots <= SUPERSLAB_SLOTS);
    others_may_write = 2;
    bool done = superslab_extend(AT * SUPERSLAB_SLOTS + start, slots, wanted, &was_resident);
    PROVE(step.count == done);
    if (done) {
        uint32_t mask = bits_of(start + slots, wanted - slots);
        PROVE(start + wanted <= SUPERSLAB_SLOTS);
        PROVE((word_active(step.before) & mask) == 0);
        PROVE(step.after == (step.before | word_of(mask, mask)));
        PROVE(was_resident == (word_resident(step.before) & mask));
    }
}

/* Every word and every span that the caller has in it: superslab_give ends just these slots, which stay resident if
 * they are to; and what superslab_take or superslab_extend took superslab_put_back gives back as it was. */
void prove_give(void) {
    /* --unwind 7 --unwindset bits_of.0:33,superslab_changed.1:10,superslab_note_class.0:33 */
    struct superslab *ss = any_superslab();
    unsigned start = nondet_unsigned(), slots = nondet_unsigned();
    GIVEN(start < SUPERSLAB_SLOTS && slots >= 1 && slots <= SUPERSLAB_SLOTS - start);
    uint32_t mask = bits_of(start, slots);
    uint64_t had = ss->word;
    if (nondet_bool()) {
        bool kept = nondet_bool();
        ss->word |= word_of(mask, mask);
        uint64_t before = ss->word, now = superslab_give(AT, mask, nondet_unsigned() % 82, kept);
        PROVE(step.count == 1 && now == ss->word && now == step.after);
        PROVE(word_active(now) == (word_active(before) & ~mask));
        PROVE(word_resident(now) == (kept ? word_resident(before) : word_resident(before) & ~mask));
    } else {
        GIVEN((word_active(had) & mask) == 0);
        ss->word |= word_of(mask, mask);
        superslab_put_back(AT, mask, word_resident(had) & mask);
        PROVE(step.count == 1 && ss->word == had);
    }
}

/* Every word before and after a change: after superslab_changed the SuperSlab is in each set that it belongs to by
 * the word, if it was in those before; and superslab_check_hint removes it from such a set only if it does not
 * belong there. */
void prove_hints(void) {
    /* --unwind 7 --unwindset superslab_changed.1:10 */
    struct superslab *ss = any_superslab();
    uint64_t before = nondet_u64(), after = ss->word;
    unsigned set = nondet_unsigned();
    GIVEN(set >= SET_EMPTY && set <= SET_CLEAN);
    hak_region.sets.level[0] = (char *)sets;
    hak_region.sets.row_bytes[0] = sizeof sets;
    hak_region.sets.rows[0] = 1;
    hak_region.sets.levels = 1;
    bool belonged = sets_of(0, before) >> (set - SET_EMPTY) & 1, belongs = sets_of(0, after) >> (set - SET_EMPTY) & 1;
    sets[set] = (uint64_t)belonged << AT;
    superslab_changed(AT, before, after);
    PROVE(!belongs || bitset_has(&hak_region.sets, set, AT));
    superslab_check_hint(set, AT);
    PROVE(bitset_has(&hak_region.sets, set, AT) == belongs);
}

/* Every word: the sets say whether the SuperSlab is in use with a slot that is EMPTY, with 1, 2, 4, 8, 16 free
 * slots in a row, or wholly free, with memory or without. */
void prove_sets_of_word(void) {
    /* --unwind 7 --unwindset bits_of.0:33 */
    uint64_t w = nondet_u64();
    uint32_t active = word_active(w), of_word = sets_of(0, w);
    unsigned order = nondet_unsigned(), at = nondet_unsigned();
    GIVEN(order <= 4 && at <= SUPERSLAB_SLOTS - (1u << order));
    bool in_use = active != 0;
    PROVE((of_word >> (SET_EMPTY - SET_EMPTY) & 1) == (in_use && (word_resident(w) & ~active) != 0));
    PROVE((of_word >> (SET_CACHED - SET_EMPTY) & 1) == word_is_cached(w));
    PROVE((of_word >> (SET_CLEAN - SET_EMPTY) & 1) == (w == 0));
    bool has_room = of_word >> (SET_ROOM_1 + order - SET_EMPTY) & 1;
    PROVE(!in_use || (active & bits_of(at, 1u << order)) != 0 || has_room);
    PROVE(!has_room || run_starts(~active, 1u << order) != 0); /* prove_runs says what that is */
    PROVE(in_use || !has_room);
}

/* Every 32 offers of a SuperSlab and every class: guess_offer finds a slot with an offer of the class if there is
 * one. */
void prove_offers(void) {
    /* --unwind 7 --unwindset prove_offers.0:33 */
    struct superslab *ss = any_superslab();
    unsigned class_id = nondet_unsigned(), other = nondet_unsigned();
    GIVEN(class_id < CLASSES && other < SUPERSLAB_SLOTS);
    for (unsigned i = 0; i < SUPERSLAB_SLOTS; i++)
        ss->offer[i] = nondet_u8();
    unsigned slot = guess_offer(ss, class_id);
    PROVE(slot <= SUPERSLAB_SLOTS);
    PROVE(slot == SUPERSLAB_SLOTS || ss->offer[slot] == offer_tag(0, class_id));
    PROVE(slot != SUPERSLAB_SLOTS || ss->offer[other] != offer_tag(0, class_id));
}
