/* The parser of options. If one of these fails, a setting means another value than it says, or is read beyond its
 * end. */
/* SPDX-License-Identifier: MIT */
#include "prove.h"

#include "base/options.c"

enum { TEXT_BYTES = 21 };
static char text[TEXT_BYTES]; /* not terminated: nothing behind the text may be read */

static size_t any_text(size_t bytes_max) {
    size_t length = nondet_size();
    GIVEN(length <= bytes_max);
    for (size_t i = 0; i < bytes_max; i++)
        text[TEXT_BYTES - bytes_max + i] = (char)nondet_u8();
    return length;
}
/* So that the text ends where the variable does. */
static const char *text_of(size_t length) { return text + TEXT_BYTES - length; }

size_t strcspn(const char *s, const char *reject) {
    size_t n = 0;
    PROVE(reject[0] == '|' && reject[1] == '\0');
    while (s[n] != '\0' && s[n] != '|')
        n++;
    return n;
}

/* Every number of 20 digits that has the first 17 of 2^64: parse_number accepts it if it is below 2^64, and reads
 * just that number. */
void prove_digits(void) {
    /* --unwind 21 */
    static char digits[20] = "18446744073709551"; /* 616 follows in 2^64 */
    uint64_t rest = 0, value = 0;
    for (unsigned i = 17; i < 20; i++) {
        digits[i] = (char)nondet_u8();
        GIVEN(is_digit(digits[i]));
        rest = rest * 10 + (uint64_t)(digits[i] - '0');
    }
    const char *end = parse_number(digits, 20, &value);
    PROVE((end != NULL) == (rest <= 615));
    PROVE(end == NULL || (end == digits + 20 && value == UINT64_MAX - 615 + rest));
}

/* Every number of 17 digits that has the first 15 of 2^54, in KiB: the same. */
void prove_unit(void) {
    /* --unwind 21 */
    static char digits[18] = "180143985094819__k"; /* 84 follows in 2^54 */
    uint64_t rest = 0, value = 0;
    for (unsigned i = 15; i < 17; i++) {
        digits[i] = (char)nondet_u8();
        GIVEN(is_digit(digits[i]));
        rest = rest * 10 + (uint64_t)(digits[i] - '0');
    }
    const char *end = parse_number(digits, 18, &value);
    PROVE((end != NULL) == (rest <= 83));
    PROVE(end == NULL || (end == digits + 18 && value == (18014398509481900u + rest) << 10));
}

/* Every text of up to 5 bytes: parse_number reads nothing behind it, and stops within it; without a point, what it
 * took is a number and a unit, whose shift the value has. */
void prove_number(void) {
    /* --unwind 6 */
    size_t length = any_text(5);
    const char *s = text_of(length);
    uint64_t value = 0, n = 0;
    const char *end = parse_number(s, length, &value);
    if (end == NULL)
        return;
    PROVE(length != 0 && is_digit(*s) && end > s && end <= s + length);
    size_t digits = 0;
    for (; digits < length && is_digit(s[digits]); digits++)
        n = n * 10 + (uint64_t)(s[digits] - '0');
    if (digits < length && s[digits] == '.')
        return;
    const char *unit = s + digits;
    unsigned shift = parse_unit(&unit, s + length);
    PROVE(shift <= 40 && shift % 10 == 0 && (shift == 0) == (unit == s + digits));
    PROVE(end == unit && value == n << shift);
}

/* Every text of up to 5 bytes, as a part of a number: what stands behind the point changes the value by less than one
 * of the unit, and there is a unit. */
void prove_fraction(void) {
    /* --unwind 6 */
    size_t length = any_text(5);
    const char *s = text_of(length);
    GIVEN(length == 5 && is_digit(s[0]) && s[1] == '.' && is_digit(s[2]));
    uint64_t value = 0, whole = (uint64_t)(s[0] - '0');
    const char *end = parse_number(s, length, &value);
    GIVEN(end != NULL);
    size_t digits = 3;
    while (digits < length && is_digit(s[digits]))
        digits++;
    const char *unit = s + digits;
    unsigned shift = parse_unit(&unit, s + length);
    PROVE(shift != 0 && end == unit && value >> shift == whole);
}

/* Every text of up to 6 bytes: parse_choice takes it for a word if, and only if, it is that word, whatever its
 * case, and gives the word's number. */
void prove_choice_word(void) {
    /* --unwind 9 */
    static const char choices[] = "0|1|json|auto";
    static const char *const words[] = {"0", "1", "json", "auto"};
    size_t length = any_text(6);
    const char *s = text_of(length);
    uint64_t value = 99;
    unsigned i = nondet_unsigned();
    GIVEN(i < 4);
    size_t size = i < 2 ? 1 : 4;
    bool is = length == size;
    for (size_t at = 0; is && at < size; at++)
        is = lower(s[at]) == words[i][at];
    bool taken = parse_choice(choices, s, length, &value);
    PROVE(!is || (taken && value == i));
    PROVE(!taken || value < 4);
    PROVE(!taken || value != i || is);
}

/* Every name of an option is short enough for name_distance's row; and for every name of up to 5 letters, its
 * distance from another is 0 if they differ in case alone, and else at most the letters of both. */
void prove_name_distance(void) {
    /* --unwind 7 --unwindset strlen.0:33,prove_name_distance.0:99 */
    for (unsigned o = 0; o < OPTION_COUNT; o++)
        PROVE(strlen(option_table[o].name) <= OPTION_NAME_MAX);
    static char other[6];
    size_t length = any_text(5);
    for (unsigned i = 0; i < 5; i++)
        other[i] = (char)nondet_u8();
    size_t distance = name_distance(text_of(length), length, other), other_length = strlen(other);
    PROVE((distance == 0) == (length == other_length && same_letters(text_of(length), other, length)));
    PROVE(distance <= length + other_length);
    PROVE(distance >= (length > other_length ? length - other_length : other_length - length));
}
