/* See policies.h. */
/* SPDX-License-Identifier: MIT */
#include "learn/policies.h"

#define HOT_CARVE_BYTES (16 * KIB)
#define HOT_REUSE_SHARE 8 /* of a slab's blocks; a sixteenth otherwise */

enum policy_word { WORD_RETAIN_BYTES, WORD_RETAIN_PERCENT, WORD_DECAY_MS, WORD_LOAN, WORD_CARVE, POLICY_WORDS };

static const uint64_t policy_values[POLICY_COUNT][POLICY_WORDS] = {
#define POLICY_VALUES(id, name, ...) {__VA_ARGS__},
    POLICIES(POLICY_VALUES)
#undef POLICY_VALUES
};
const char *const policy_names[POLICY_COUNT] = {
#define POLICY_NAME(id, name, ...) name,
    POLICIES(POLICY_NAME)
#undef POLICY_NAME
};

_Static_assert((int)POLICY_BALANCED == (int)PRESET_BALANCED, "PRESET's choices are policies");

static const enum option policy_options[] = {
    [WORD_RETAIN_BYTES] = OPT_RETAIN_BYTES, [WORD_RETAIN_PERCENT] = OPT_RETAIN_PERCENT, [WORD_DECAY_MS] = OPT_DECAY_MS};

/* What policies have changed, less the default: 0 at first. The applying thread's. */
static struct {
    uint64_t option[WORD_LOAN];
    uint32_t loan, reuse[TINY_CLASSES], carve[TINY_CLASSES];
    unsigned learned_from;
} given;

/* The value, or the default. */
static uint64_t value_of(unsigned policy, enum policy_word word, uint64_t initial) {
    uint64_t value = policy_values[policy == POLICY_LEARNED ? given.learned_from : policy][word];
    return value != UNCHANGED ? value : initial;
}

static uint64_t option_value(unsigned policy, enum policy_word word) {
    return value_of(policy, word, option_table[policy_options[word]].initial);
}

struct policy_keeps policy_keeps(unsigned policy) {
    return (struct policy_keeps){option_value(policy, WORD_RETAIN_BYTES), option_value(policy, WORD_RETAIN_PERCENT),
                                 option_value(policy, WORD_DECAY_MS)};
}

/* Writes a word unless somebody else has. Wrapping differences: a value below the default is one, too. */
static void give_option(enum policy_word word, uint64_t value) {
    uint64_t initial = option_table[policy_options[word]].initial, seen = initial + given.option[word];
    if (rmw_cas(option_word(policy_options[word]), &seen, value))
        given.option[word] = value - initial;
}
static void give_tuned(_Atomic uint32_t *word, uint32_t *given_word, uint64_t initial, uint64_t value) {
    uint32_t seen = (uint32_t)initial + *given_word;
    if (seen != value && rmw_cas(word, &seen, (uint32_t)value))
        *given_word = (uint32_t)(value - initial);
}

void policy_apply(unsigned policy, const uint64_t *hot) {
    for (unsigned word = 0; word < WORD_LOAN; word++)
        give_option(word, option_value(policy, word));
    uint64_t loan = tunable_table[TUNE_loan_from_frees].initial;
    uint64_t carve = tunable_table[TUNABLE_COUNT + TUNE_carve_bytes].initial;
    give_tuned(&hak_tunables.word[TUNE_loan_from_frees], &given.loan, loan, value_of(policy, WORD_LOAN, loan));
    for (unsigned c = 0; c < TINY_CLASSES; c++) {
        bool is_hot = policy == POLICY_LEARNED && (hot[c / 64] >> c % 64 & 1) != 0;
        give_tuned(&hak_tunables.of_class[TUNE_carve_bytes][c], &given.carve[c], carve,
                   is_hot ? HOT_CARVE_BYTES : value_of(policy, WORD_CARVE, carve));
        give_tuned(&hak_tunables.of_class[TUNE_reuse_frees][c], &given.reuse[c], 0,
                   is_hot ? size_classes[c].blocks / HOT_REUSE_SHARE : 0);
    }
}

void policy_learn_from(unsigned policy) { given.learned_from = policy != POLICY_LEARNED ? policy : given.learned_from; }

void policies_start(void) {
    if (option(OPT_PRESET) != PRESET_BALANCED)
        policy_apply((unsigned)option(OPT_PRESET), NULL);
}
