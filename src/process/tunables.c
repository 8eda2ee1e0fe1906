/* See tunables.h. */
/* SPDX-License-Identifier: MIT */
#include "process/tunables.h"
#include "base/text.h"

#include <errno.h>
#include <string.h>

// clang-format off
const struct option_entry tunable_table[TUNABLE_COUNT + CLASS_TUNABLE_COUNT] = {
#define TUNABLE_ENTRY(name, initial, min, max, unit, help, measured) \
    {#name, initial, min, max, unit, help, OPTION_NUMBER, LIVE},
    TUNABLES(TUNABLE_ENTRY)
#undef TUNABLE_ENTRY
#define CLASS_TUNABLE_ENTRY(name, kinds, initial, min, max, unit, help, measured) \
    {#name, initial, min, max, unit, help, OPTION_NUMBER, LIVE},
    CLASS_TUNABLES(CLASS_TUNABLE_ENTRY)
#undef CLASS_TUNABLE_ENTRY
};

HAK_APART_DATA struct tunables hak_tunables = {
#define TUNABLE_INITIAL(name, initial, ...) initial,
    .word = {TUNABLES(TUNABLE_INITIAL)},
#undef TUNABLE_INITIAL
#define CLASS_TUNABLE_INITIAL(name, kinds, initial, ...) [TUNE_##name] = {[0 ... TUNED_CLASSES - 1] = initial},
    .of_class = {CLASS_TUNABLES(CLASS_TUNABLE_INITIAL)},
#undef CLASS_TUNABLE_INITIAL
};
// clang-format on

/* Words that a name stands for: of a tunable without classes one, else those from `first` on that its kind of classes
 * has. */
struct words {
    const struct option_entry *entry; /* NULL: there is no such tunable */
    _Atomic uint32_t *first;
    unsigned count;    /* 0: the tunable has no word for that size */
    unsigned class_id; /* of the first */
};

const struct tunable_range tunable_ranges[CLASS_TUNABLE_COUNT] = {
#define TINY                                                                                                           \
    { 0, TINY_CLASSES }
#define RING                                                                                                           \
    { TINY_CLASSES, TUNED_CLASSES }
#define CLASS_TUNABLE_RANGE(name, kinds, ...) kinds,
    CLASS_TUNABLES(CLASS_TUNABLE_RANGE)
#undef CLASS_TUNABLE_RANGE
#undef TINY
#undef RING
};
_Static_assert(TUNED_CLASSES <= UINT8_MAX, "tunable_ranges has bytes");

/* The class or ring that serves requests of `bytes`; TUNED_CLASSES if there is none. */
static unsigned tuned_class_of(uint64_t bytes) {
    if (bytes <= TINY_BYTES_MAX)
        return tiny_class_of(bytes);
    if (bytes <= MID_BYTES_MAX)
        return mid_class_of(bytes);
    return bytes <= LARGE_BYTES_MAX ? TINY_CLASSES + ring_of_slots(large_slots_of(bytes)) : TUNED_CLASSES;
}

static const struct option_entry *find_entry(const char *name, size_t length) {
    for (unsigned i = 0; i < TUNABLE_COUNT + CLASS_TUNABLE_COUNT; i++)
        if (strlen(tunable_table[i].name) == length && strncmp(tunable_table[i].name, name, length) == 0)
            return &tunable_table[i];
    return NULL;
}

static struct words find_words(const char *name, size_t length) {
    const struct option_entry any_size = {.choices = "", .max = LARGE_BYTES_MAX};
    size_t bare = strcspn(name, ":=");
    struct words w = {find_entry(name, min_size(bare, length)), NULL, 0, 0};
    if (w.entry == NULL)
        return w;
    unsigned number = (unsigned)(w.entry - tunable_table);
    if (number < TUNABLE_COUNT) {
        w.first = &hak_tunables.word[number];
        w.count = bare >= length;
        return w;
    }
    number -= TUNABLE_COUNT;
    unsigned first = tunable_ranges[number].first, end = tunable_ranges[number].end;
    if (bare < length) {
        uint64_t bytes = 0;
        bool fits = option_parse(&any_size, name + bare + 1, length - bare - 1, &bytes);
        unsigned c = fits ? tuned_class_of(bytes) : TUNED_CLASSES;
        end = c >= first && c < end ? c + 1 : first;
        first = end != first ? c : first;
    }
    w.first = &hak_tunables.of_class[number][first];
    w.class_id = first;
    w.count = end - first;
    return w;
}

static int parse_words(const char *name, size_t name_length, const char *value, size_t length, struct setting *s) {
    struct words w = find_words(name, name_length);
    uint64_t n = 0;
    if (w.entry == NULL)
        return ENOENT;
    if (w.count == 0 || !option_parse(w.entry, value, length, &n))
        return EINVAL;
    *s = (struct setting){w.first, w.count, {OPTION_COUNT, n}};
    return 0;
}

int setting_parse(const char *text, size_t length, struct setting *s) {
    size_t name = min_size(strcspn(text, "="), length), value = min_size(name + 1, length);
    int answer = parse_words(text, name, text + value, length - value, s);
    if (answer != ENOENT)
        return answer;
    *s = (struct setting){NULL, 0, {OPTION_COUNT, 0}};
    return option_parse_live(text, name, text + value, length - value, &s->value);
}

void setting_apply(const struct setting *s) {
    for (unsigned i = 0; i < s->words; i++)
        store_relaxed(&s->first[i], (uint32_t)s->value.value);
    if (s->words == 0 && !option_is_from_environment(s->value.option))
        store_relaxed(option_word(s->value.option), s->value.value);
}

int tunable_set(const char *name, const char *value) {
    struct setting s;
    int answer = parse_words(name, strlen(name), value, strlen(value), &s);
    if (answer == 0)
        setting_apply(&s);
    return answer;
}

size_t tuned_bytes(unsigned class_id) {
    return class_id < CLASSES ? size_classes[class_id].block_bytes : (class_id - CLASSES) * SLOT_BYTES;
}

size_t tunable_get(const char *name, char *buffer, size_t bytes) {
    struct text t = text_into(buffer, bytes);
    struct words w = find_words(name, strlen(name));
    if (w.entry == NULL || w.count == 0)
        return SIZE_MAX;
    uint32_t first = load_relaxed(w.first);
    text_number(&t, first);
    for (unsigned i = 1; i < w.count; i++) {
        size_t block_bytes = tuned_bytes(w.class_id + i);
        if (load_relaxed(&w.first[i]) != first &&
            tuned_class_of(block_bytes) == w.class_id + i) /* it serves some size */
            text_format(&t, ",%u:%u", (uint64_t)block_bytes, (uint64_t)load_relaxed(&w.first[i]));
    }
    return text_end(&t);
}

static void apply_part(const char *part, size_t length) {
    size_t name = min_size(strcspn(part, "="), length), value = min_size(name + 1, length);
    struct setting s;
    int answer = parse_words(part, name, part + value, length - value, &s);
    if (answer == 0) {
        setting_apply(&s);
        return;
    }
    if (!option_may_complain(OPT_TUNE))
        return;
    struct words w = find_words(part, name);
    if (answer == ENOENT)
        text_line("hakmem: HAKMEM_TUNE=%q: no such tunable (docs/options.md lists them); ignored", part, length);
    else if (w.count == 0)
        text_line("hakmem: HAKMEM_TUNE=%q: %s has no value for this size; ignored", part, length, w.entry->name);
    else
        text_line("hakmem: HAKMEM_TUNE=%q: expected %u to %u %s; ignored", part, length, w.entry->min, w.entry->max,
                  w.entry->choices);
}

void tunables_init(void) {
    for (const char *at = option_text(OPT_TUNE); *at != '\0';) {
        size_t length = strcspn(at, ",;");
        if (length != 0)
            apply_part(at, length);
        at += length + (at[length] != '\0');
    }
}
