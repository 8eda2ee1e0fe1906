/* See presets.h. */
/* SPDX-License-Identifier: MIT */
#include "learn/presets.h"

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

static const enum option preset_options[] = {[WORD_PURGE] = OPT_PURGE,
                                             [WORD_RETAIN_BYTES] = OPT_RETAIN_BYTES,
                                             [WORD_RETAIN_PERCENT] = OPT_RETAIN_PERCENT,
                                             [WORD_DECAY_MS] = OPT_DECAY_MS};

/* What presets have changed, less the default: 0 at first; a value below the default wraps. The applying thread's. */
static uint64_t given[PRESET_WORDS];

static uint64_t given_value(enum preset_word word) { return option_table[preset_options[word]].initial + given[word]; }

uint64_t preset_value(unsigned preset, enum preset_word word) {
    uint64_t seen = option(preset_options[word]), value = preset_values[preset][word];
    if (seen != given_value(word))
        return seen;
    return value != UNCHANGED ? value : option_table[preset_options[word]].initial;
}

void preset_apply(unsigned preset) {
    for (unsigned word = 0; word < PRESET_WORDS; word++) {
        uint64_t seen = given_value(word), value = preset_value(preset, word);
        if (seen != value && rmw_cas(option_word(preset_options[word]), &seen, value))
            given[word] = value - option_table[preset_options[word]].initial;
    }
}

void presets_start(void) { preset_apply((unsigned)option(OPT_PRESET)); }
