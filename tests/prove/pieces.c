/* Packed slots: runs of pieces of 1 KiB, which may go over slots. If one of these fails, two blocks share a piece,
 * or a piece is lost. Bounds: two slots that have packs, both packed. */
/* SPDX-License-Identifier: MIT */
#include "prove.h"

#include "tiers/packed.c"

struct region hak_region;
struct region_use hak_region_use;
enum { SLOTS = 2, PIECES = SLOTS * PACK_PIECES };
static struct pack packs[SLOTS];
static struct slab records[SLOTS];
static struct superslab superslab;
static struct client client;
static unsigned given; /* slots that went back */

/* What the sources call besides. */
bool superslab_is_free_slot(size_t slot, uint64_t w) {
    (void)slot, (void)w;
    return false; /* both slots are packed */
}
void pool_give(struct client *c, size_t slot, unsigned slots, unsigned tag, bool resident) {
    (void)c, (void)tag, (void)resident;
    PROVE(slots == 1 && packs[slot].free == 0);
    given++;
}
enum pool_answer pool_take_slot(struct client *c, size_t slot, bool *zero) {
    (void)c, (void)slot, (void)zero;
    PROVE(false); /* no slot is free */
    return POOL_REFUSED;
}
bool region_commit_packs(size_t slots) {
    (void)slots;
    return false;
}

static void any_packs(void) {
    hak_region.packs = packs;
    hak_region.slabs = (char *)records;
    hak_region.rows = (struct superslab_row *)(void *)&superslab;
    superslab.word = word_of(ALL_SLOTS, ALL_SLOTS);
    hak_region_use.packs = SLOTS;
    hak_region_use.superslabs = 1;
    for (unsigned i = 0; i < SLOTS; i++) {
        packs[i].free = nondet_u64();
        packs[i].ends = nondet_u64();
    }
}
static bool has(const _Atomic uint64_t *word, size_t piece) { return *word >> piece % PACK_PIECES & 1; }
static bool is_free(size_t piece) { return has(&packs[piece / PACK_PIECES].free, piece); }
static size_t any_piece(void) {
    size_t piece = nondet_size();
    GIVEN(piece < PIECES);
    return piece;
}

/* Every two packs, every range in them: next_free finds the first free piece of it. */
void prove_next_free(void) {
    /* --unwind 4 */
    any_packs();
    size_t at = any_piece(), end = any_piece() + 1, other = any_piece();
    GIVEN(at < end);
    size_t next = next_free(at, end);
    PROVE(next >= at && next <= end && (next == end || is_free(next)));
    PROVE(other < at || other >= next || !is_free(other));
}

/* Likewise: last_taken_end finds the end of the last piece that is not free. */
void prove_last_taken(void) {
    /* --unwind 4 */
    any_packs();
    size_t at = any_piece(), end = any_piece() + 1, other = any_piece();
    GIVEN(at < end);
    size_t taken = last_taken_end(at, end);
    PROVE(taken >= at && taken <= end && (taken == at || !is_free(taken - 1)));
    PROVE(other < taken || other >= end || is_free(other));
}

/* Every two packs and every end in them: pieces_of says how far it is to the next end. */
void prove_pieces_of(void) {
    /* --unwind 4 */
    any_packs();
    size_t first = any_piece(), other = any_piece();
    size_t n = pieces_of(first);
    PROVE(n >= 1 && first + n <= PIECES);
    bool ends = has(&packs[(first + n - 1) / PACK_PIECES].ends, first + n - 1);
    PROVE(ends || n == 1);
    PROVE(other < first || other >= first + n - 1 || !has(&packs[other / PACK_PIECES].ends, other));
}

/* Every pack, every set of pieces, and up to two changes by others meanwhile: take_pieces takes all of them, in one
 * step, where all were free, or none; give_pieces makes just these free, and the slot goes back if, and only if,
 * that makes all of them free. */
void prove_pieces(void) {
    /* --unwind 4 */
    any_packs();
    uint64_t pieces = nondet_u64();
    GIVEN(pieces != 0 && (packs[0].free & pieces) == 0);
    if (nondet_bool()) {
        uint64_t before = packs[0].free;
        give_pieces(&client, 0, pieces);
        PROVE(given == ((before | pieces) == ~(uint64_t)0));
        PROVE(packs[0].free == (given ? 0 : before | pieces));
        return;
    }
    packs[0].free = nondet_u64();
    others_may_write = 2;
    bool took = take_pieces(&client, 0, pieces) == POOL_TOOK;
    PROVE(step.count == took && given == 0);
    PROVE(!took || ((step.before & pieces) == pieces && step.after == (step.before & ~pieces)));
}

/* Every number of pieces up to the 32 MiB that are packed: its step begins with no more pieces than that, and the
 * next one with more. */
void prove_steps(void) {
    /* --unwind 1 */
    size_t n = nondet_size();
    GIVEN(n >= 1 && n <= PACKED_BYTES_MAX / PIECE_BYTES);
    unsigned step = step_of(n);
    PROVE(step < STEPS - 1 && least_of(step) <= n);
    PROVE(n < least_of(step + 1) || least_of(step + 1) == least_of(step));
}
