/* See presets.h. */
/* SPDX-License-Identifier: MIT */
#include "learn/presets.h"

#define HOT_CARVE_BYTES (16 * KIB)
#define HOT_REUSE_SHARE 8 /* of a slab's blocks; a sixteenth otherwise */

enum preset_word { WORD_RETAIN_BYTES, WORD_RETAIN_PERCENT, WORD_DECAY_MS, WORD_LOAN, WORD_CARVE, PRESET_WORDS };

static const uint64_t preset_values[PRESET_COUNT][PRESET_WORDS] = {
#define PRESET_VALUES(id, name, ...) [PRESET_##id] = {__VA_ARGS__},
    PRESETS(PRESET_VALUES)
#undef PRESET_VALUES
};
const char *const preset_names[PRESET_COUNT] = {
#define PRESET_NAME(id, name, ...) [PRESET_##id] = name,
    PRESETS(PRESET_NAME)
#undef PRESET_NAME
};

static const enum option preset_options[] = {
    [WORD_RETAIN_BYTES] = OPT_RETAIN_BYTES, [WORD_RETAIN_PERCENT] = OPT_RETAIN_PERCENT, [WORD_DECAY_MS] = OPT_DECAY_MS};

/* What presets have changed, less the default: 0 at first. The applying thread's. */
static HAK_APART struct {
    uint64_t option[WORD_LOAN];
    uint32_t loan, reuse[TINY_CLASSES], carve[TINY_CLASSES];
    unsigned adapted_from;
} given;

/* The value, or the default. */
static uint64_t value_of(unsigned preset, enum preset_word word, uint64_t initial) {
    uint64_t value = preset_values[preset == PRESET_ADAPTED ? given.adapted_from : preset][word];
    return value != UNCHANGED ? value : initial;
}

static uint64_t option_value(unsigned preset, enum preset_word word) {
    return value_of(preset, word, option_table[preset_options[word]].initial);
}

struct preset_keeps preset_keeps(unsigned preset) {
    return (struct preset_keeps){option_value(preset, WORD_RETAIN_BYTES), option_value(preset, WORD_RETAIN_PERCENT),
                                 option_value(preset, WORD_DECAY_MS)};
}

/* Writes a word unless somebody else has. Wrapping differences: a value below the default is one, too. */
static void give_option(enum preset_word word, uint64_t value) {
    uint64_t initial = option_table[preset_options[word]].initial, seen = initial + given.option[word];
    if (rmw_cas(option_word(preset_options[word]), &seen, value))
        given.option[word] = value - initial;
}
static void give_tuned(_Atomic uint32_t *word, uint32_t *given_word, uint64_t initial, uint64_t value) {
    uint32_t seen = (uint32_t)initial + *given_word;
    if (seen != value && rmw_cas(word, &seen, (uint32_t)value))
        *given_word = (uint32_t)(value - initial);
}

void preset_apply(unsigned preset, const uint64_t *hot) {
    for (unsigned word = 0; word < WORD_LOAN; word++)
        give_option(word, option_value(preset, word));
    uint64_t loan = tunable_table[TUNE_loan_from_frees].initial;
    uint64_t carve = tunable_table[TUNABLE_COUNT + TUNE_carve_bytes].initial;
    give_tuned(&hak_tunables.word[TUNE_loan_from_frees], &given.loan, loan, value_of(preset, WORD_LOAN, loan));
    for (unsigned c = 0; c < TINY_CLASSES; c++) {
        bool is_hot = preset == PRESET_ADAPTED && (hot[c / 64] >> c % 64 & 1) != 0;
        give_tuned(&hak_tunables.of_class[TUNE_carve_bytes][c], &given.carve[c], carve,
                   is_hot ? HOT_CARVE_BYTES : value_of(preset, WORD_CARVE, carve));
        give_tuned(&hak_tunables.of_class[TUNE_reuse_frees][c], &given.reuse[c], 0,
                   is_hot ? size_classes[c].blocks / HOT_REUSE_SHARE : 0);
    }
}

void preset_adapt_from(unsigned preset) { given.adapted_from = preset != PRESET_ADAPTED ? preset : given.adapted_from; }

void presets_start(void) {
    if (option(OPT_PRESET) != PRESET_BALANCED)
        preset_apply((unsigned)option(OPT_PRESET), NULL);
}
