/* Bits and sets of them. If one of these fails, a slot that is free is not found, or one that is not is. */
/* SPDX-License-Identifier: MIT */
#include "prove.h"

#include "base/bitset.h"

/* Every word that is not 0: lowest_bit and highest_bit are bits of it, and none lies below, above. */
void prove_ends_of_word(void) {
    /* --unwind 1 */
    uint64_t x = nondet_u64();
    GIVEN(x != 0);
    unsigned low = lowest_bit(x), high = highest_bit(x), other = nondet_unsigned();
    GIVEN(other < 64 && x >> other & 1);
    PROVE(low < 64 && high < 64);
    PROVE((x >> low & 1) && (x >> high & 1));
    PROVE(low <= other && other <= high);
}

/* Every word: count_bits adds neighbouring fields, of 1, 2 and 4 bits, and then bytes. (Each step for itself, for
 * whatever the step before may give, as a solver compares no sums of 64 bits in one piece.) */
void prove_count_of_word(void) {
    /* --unwind 17 */
    uint64_t x = nondet_u64(), twos = nondet_u64(), fours = nondet_u64(), eights = nondet_u64(), i = nondet_u64();
    GIVEN(i < 64);
    PROVE((sums_of_2_bits(x) >> i / 2 * 2 & 3) == (x >> i / 2 * 2 & 1) + (x >> (i / 2 * 2 + 1) & 1));
    GIVEN((twos & (twos >> 1) & 0x5555555555555555) == 0); /* each field at most 2 */
    PROVE((sums_of_4_bits(twos) >> i / 4 * 4 & 15) == (twos >> i / 4 * 4 & 3) + (twos >> (i / 4 * 4 + 2) & 3));
    for (unsigned at = 0; at < 16; at++)
        GIVEN((fours >> at * 4 & 15) <= 4);
    PROVE((sums_of_8_bits(fours) >> i / 8 * 8 & 255) == (fours >> i / 8 * 8 & 15) + (fours >> (i / 8 * 8 + 4) & 15));
    uint64_t sum = 0;
    for (unsigned byte = 0; byte < 8; byte++) {
        GIVEN((eights >> byte * 8 & 255) <= 8);
        sum += eights >> byte * 8 & 255;
    }
    PROVE(eights * 0x0101010101010101 >> 56 == sum);
    PROVE(count_bits(x) == (unsigned)(sums_of_8_bits(sums_of_4_bits(sums_of_2_bits(x))) * 0x0101010101010101 >> 56));
}

/* Every number of bits: low_bits has those below it. Every size and power of two: round_down and round_up are the
 * nearest multiples (where the upper one is a size at all). */
void prove_masks_and_rounding(void) {
    /* --unwind 1 */
    unsigned n = nondet_unsigned(), i = nondet_unsigned();
    GIVEN(i < 64);
    PROVE((low_bits(n) >> i & 1) == (i < n));
    size_t x = nondet_size(), power = nondet_size();
    PROVE(is_power_of_two(power) == (power != 0 && power == (size_t)1 << highest_bit(power | 1)));
    GIVEN(is_power_of_two(power));
    size_t down = round_down(x, power);
    PROVE((down & (power - 1)) == 0 && down <= x && x - down < power);
    GIVEN(x <= SIZE_MAX - (power - 1));
    size_t up = round_up(x, power);
    PROVE((up & (power - 1)) == 0 && up >= x && up - x < power);
}

/* ---- sets ----
 * A family of two sets over three levels, which is how one of four looks from the third up: each level is treated
 * like the others. The second set is there so that rows lie apart. */

enum { INDICES = 64 * 64 + 64, ROWS = INDICES / 64, UPPER = 2 };

static uint64_t rows[ROWS][2], upper[UPPER][2], top[1][2];

static struct bitset_family any_family(void) {
    struct bitset_family f = {.level = {(char *)rows, (char *)upper, (char *)top}, .row_bytes = {16, 16, 16}};
    f.levels = bitset_shape(INDICES, f.rows);
    PROVE(f.levels == 3 && f.rows[0] == ROWS && f.rows[1] == UPPER && f.rows[2] == 1);
    for (unsigned i = 0; i < ROWS; i++)
        rows[i][1] = nondet_u64();
    /* the rule of the levels */
    for (unsigned i = 0; i < UPPER; i++)
        for (unsigned bit = 0; bit < 64; bit++)
            if (i * 64 + bit < ROWS && rows[i * 64 + bit][1] != 0)
                upper[i][1] |= (uint64_t)1 << bit;
    for (unsigned i = 0; i < UPPER; i++)
        if (upper[i][1] != 0)
            top[0][1] |= (uint64_t)1 << i;
    return f;
}

/* Does the rule hold at this index? */
static bool obeys(size_t index) {
    return (upper[index / 4096][1] >> index / 64 % 64 & 1) == (rows[index / 64][1] != 0) &&
           (top[0][1] >> index / 4096 & 1) == (upper[index / 4096][1] != 0);
}
static size_t any_index(void) {
    size_t index = nondet_size();
    GIVEN(index < INDICES);
    return index;
}

/* Every set over 4,160 indices, wherever the search begins: bitset_find returns a member, and there is none before
 * it. */
void prove_set_find(void) {
    /* --unwind 8 --unwindset any_family.0:66,any_family.1:65,any_family.2:3,any_family.3:3 */
    struct bitset_family f = any_family();
    size_t from = nondet_size(), other = any_index();
    size_t found = bitset_find(&f, 1, from);
    if (found != BITSET_NONE)
        PROVE(found >= from && found < INDICES && bitset_has(&f, 1, found));
    PROVE(!bitset_has(&f, 1, other) || other < from || found <= other);
    PROVE(bitset_is_empty(&f, 1) == (bitset_find(&f, 1, 0) == BITSET_NONE));
}

/* The same from above: bitset_find_last. */
void prove_set_find_last(void) {
    /* --unwind 8 --unwindset any_family.0:66,any_family.1:65,any_family.2:3,any_family.3:3 */
    struct bitset_family f = any_family();
    size_t below = nondet_size(), other = any_index();
    size_t found = bitset_find_last(&f, 1, below);
    if (found != BITSET_NONE)
        PROVE(found < below && found < INDICES && bitset_has(&f, 1, found));
    PROVE(!bitset_has(&f, 1, other) || other >= below || (found != BITSET_NONE && found >= other));
}

/* Every set over 4,160 indices and every index: bitset_add and bitset_remove change this member alone, in no other
 * set, and keep the levels' rule. */
void prove_set_changes(void) {
    /* --unwind 8 --unwindset any_family.0:66,any_family.1:65,any_family.2:3,any_family.3:3 */
    struct bitset_family f = any_family();
    size_t index = any_index(), other = any_index();
    bool had = bitset_has(&f, 1, other), adds = nondet_bool();
    if (adds)
        bitset_add(&f, 1, index);
    else
        bitset_remove(&f, 1, index);
    PROVE(bitset_has(&f, 1, other) == (other == index ? adds : had));
    PROVE(!bitset_has(&f, 0, other) && upper[other / 4096][0] == 0 && top[0][0] == 0);
    PROVE(obeys(index) && obeys(other));
}
