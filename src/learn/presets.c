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

/* What presets have changed, less the default: 0 at first; a value below the default wraps. A change is in `giving`
 * before it is made and in `given` afterwards: a child that is forked between finds it in one of them. The applying
 * thread's. */
static uint64_t given[PRESET_WORDS], giving[PRESET_WORDS];

static bool is_given(enum preset_word word, uint64_t value) {
    uint64_t change = value - option_table[preset_options[word]].initial;
    return change == given[word] || change == giving[word];
}

static uint64_t wanted(unsigned preset, enum preset_word word) {
    uint64_t value = preset_values[preset][word];
    return value != UNCHANGED ? value : option_table[preset_options[word]].initial;
}

uint64_t preset_value(unsigned preset, enum preset_word word) {
    uint64_t seen = option(preset_options[word]);
    return is_given(word, seen) ? wanted(preset, word) : seen;
}

void preset_apply(unsigned preset) {
    for (unsigned word = 0; word < PRESET_WORDS; word++) {
        uint64_t seen = option(preset_options[word]), value = wanted(preset, word);
        if (!is_given(word, seen))
            continue;
        giving[word] = value - option_table[preset_options[word]].initial;
        atomic_signal_fence(memory_order_seq_cst);
        if (seen == value || rmw_cas(option_word(preset_options[word]), &seen, value))
            given[word] = giving[word];
    }
}

void presets_start(void) { preset_apply((unsigned)option(OPT_PRESET)); }
