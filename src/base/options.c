/* The parser and printer of the options table. Of two options alone this file knows what they do: SUPERSLAB=0
 * depends on libc, and users take GUARD_SAMPLE_BYTES=1 for a switch.
 *
 * A setting that cannot be read gets one line, which says what can.
 *
 * The first call may come before libc has started, from the loader: what depends on the locale cannot be used then. */
/* SPDX-License-Identifier: MIT */
#include "base/options.h"
#include "base/os.h"
#include "base/os_malloc.h"
#include "base/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

// clang-format off
const struct option_entry option_table[OPTION_COUNT] = {
#define OPTION_ENTRY(name, kind, when, initial, min, max, choices, help) \
    {#name, initial, min, max, choices, help, OPTION_##kind, when},
    OPTIONS(OPTION_ENTRY)
#undef OPTION_ENTRY
};
#define OPTION_INITIAL(name, kind, when, initial, ...) initial,
HAK_AMONG_FROZEN struct start_options start_options = {
    {OPTIONS(OPTION_INITIAL)},
    .mode = {.window_log2_min = 5, .has_samples = true, .has_lanes = true, .heaps_rest = true, .libc_may_serve = true}};
_Atomic uint64_t live_options[OPTION_COUNT] = {OPTIONS(OPTION_INITIAL)};
#undef OPTION_INITIAL
// clang-format on

HAK_APART char option_texts[OPTION_COUNT][OPTION_TEXT_BYTES]; /* of TEXT options */

/* A program may define this string to compile its options in. */
HAK_API HAK_WEAK extern const char *hak_options;

const char *option_name(enum option o) { return option_table[o].name; }
/* Most programs set none: they do not touch the texts. */
const char *option_text(enum option o) { return option(o) ? option_texts[o] : ""; }

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static int lower(char c) { return c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c; }
static bool same_letters(const char *a, const char *b, size_t length) {
    for (size_t i = 0; i < length; i++)
        if (lower(a[i]) != lower(b[i]))
            return false;
    return true;
}

/* The bits that a unit shifts by, 0 if there is none: k, m, g or t, also kb and KiB, with a space before. *s: behind
 * it. */
static unsigned parse_unit(const char **s, const char *end) {
    static const char units[] = "kmgt";
    const char *at = *s + (end - *s >= 2 && **s == ' ');
    const char *unit = at < end && *at != '\0' ? strchr(units, lower(*at)) : NULL;
    if (unit == NULL)
        return 0;
    at++;
    if (end - at >= 2 && lower(at[0]) == 'i')
        at++;
    if (at < end && lower(*at) == 'b')
        at++;
    *s = at;
    return 10 * (unsigned)(unit - units + 1);
}

/* The digits behind a decimal point, as millionths. */
static const char *parse_fraction(const char *s, const char *end, uint64_t *millionths) {
    for (uint64_t digit = 100000; s < end && is_digit(*s); s++, digit /= 10)
        *millionths += (uint64_t)(*s - '0') * digit;
    return s;
}

/* Parses a number with an optional unit behind it, and with that a fraction. Returns what follows it, NULL when there
 * is no number or it is too large. */
static const char *parse_number(const char *s, size_t length, uint64_t *value) {
    const char *end = s + length;
    uint64_t n = 0, millionths = 0;
    if (length == 0 || !is_digit(*s))
        return NULL;
    for (; s < end && is_digit(*s); s++)
        if (__builtin_mul_overflow(n, 10, &n) || __builtin_add_overflow(n, (uint64_t)(*s - '0'), &n))
            return NULL;
    bool has_fraction = end - s >= 2 && s[0] == '.' && is_digit(s[1]);
    if (has_fraction)
        s = parse_fraction(s + 1, end, &millionths);
    unsigned shift = parse_unit(&s, end);
    if (n > UINT64_MAX >> shift || (has_fraction && shift == 0))
        return NULL;
    return __builtin_add_overflow(n << shift, (millionths << shift) / 1000000, value) ? NULL : s;
}

static bool parse_choice(const char *choices, const char *s, size_t length, uint64_t *value) {
    uint64_t n = 0;
    for (const char *choice = choices; *choice != '\0'; n++) {
        size_t size = strcspn(choice, "|");
        if (size == length && same_letters(choice, s, length)) {
            *value = n;
            return true;
        }
        choice += size + (choice[size] == '|');
    }
    return false;
}

static bool is_switch(const struct option_entry *e) { return e->kind == OPTION_NUMBER && e->max == 1; }

/* Words for 0 and 1, of options that may have these values. */
static bool parse_switch(const struct option_entry *e, const char *s, size_t length, uint64_t *value) {
    bool has_both = is_switch(e) || strncmp(e->choices, "0|1", 3) == 0;
    if (!has_both || !parse_choice("off|on|no|yes|false|true", s, length, value))
        return false;
    *value %= 2;
    return true;
}

bool option_parse(const struct option_entry *e, const char *s, size_t length, uint64_t *value) {
    const char *end = parse_switch(e, s, length, value) ? s + length : parse_number(s, length, value);
    return end == s + length && *value >= e->min && *value <= e->max;
}

/* The value of an option that is one word and not a text. */
static bool parse_word(const struct option_entry *e, const char *s, size_t length, uint64_t *value) {
    if (e->kind == OPTION_CHOICE)
        return parse_choice(e->choices, s, length, value) || parse_switch(e, s, length, value);
    return option_parse(e, s, length, value);
}

static bool parse_value(enum option o, const char *s, size_t length) {
    const struct option_entry *e = &option_table[o];
    uint64_t value = 0;
    if (e->kind == OPTION_TEXT) {
        if (length >= OPTION_TEXT_BYTES)
            return false;
        memcpy(option_texts[o], s, length);
        option_texts[o][length] = '\0';
        store_relaxed(option_word(o), length != 0);
        return true;
    }
    if (!parse_word(e, s, length, &value))
        return false;
    store_relaxed(option_word(o), value);
    return true;
}

/* Whether `name` names the option `known`, with or without HAKMEM_. */
static bool is_named(const char *name, size_t length, const char *known) {
    if (length > 7 && same_letters(name, "HAKMEM_", 7))
        name += 7, length -= 7;
    return strlen(known) == length && same_letters(known, name, length);
}

/* The option named by `name`; OPTION_COUNT if there is none. */
static enum option find_option(const char *name, size_t length) {
    unsigned o = 0;
    while (o < OPTION_COUNT && !is_named(name, length, option_table[o].name))
        o++;
    return (enum option)o;
}

enum { OPTION_NAME_MAX = 32 }; /* letters of the longest name, and some */

/* How many letters must be added or left out to turn one name into the other, regardless of case. */
static size_t name_distance(const char *a, size_t a_length, const char *b) {
    size_t b_length = strlen(b);
    uint8_t row[OPTION_NAME_MAX + 1]; /* distances of the first letters of a to the first j of b */
    for (size_t j = 0; j <= b_length; j++)
        row[j] = (uint8_t)j;
    for (size_t i = 1; i <= a_length; i++) {
        size_t diagonal = row[0];
        row[0] = (uint8_t)i;
        for (size_t j = 1; j <= b_length; j++) {
            size_t replaced = diagonal + (lower(a[i - 1]) != lower(b[j - 1]) ? 2 : 0);
            diagonal = row[j];
            row[j] = (uint8_t)min_size(replaced, min_size(row[j], row[j - 1]) + 1u);
        }
    }
    return row[b_length];
}

/* The option that was meant, if one name is near: of three letters one may be too many, or missing. OPTION_COUNT if
 * there is none. */
static enum option guess_option(const char *name, size_t length) {
    if (length > 7 && same_letters(name, "HAKMEM_", 7))
        name += 7, length -= 7;
    unsigned guess = OPTION_COUNT;
    size_t min_distance = (length + 4) / 3;
    for (unsigned o = 0; length <= OPTION_NAME_MAX && o < OPTION_COUNT; o++) {
        size_t distance = name_distance(name, length, option_table[o].name);
        if (distance < min_distance)
            guess = o, min_distance = distance;
    }
    return (enum option)guess;
}

static void describe_values(struct text *t, const struct option_entry *e) {
    switch (e->kind) {
    case OPTION_CHOICE: text_string(t, e->choices); break;
    case OPTION_TEXT: text_format(t, "text of at most %u bytes", (uint64_t)OPTION_TEXT_BYTES - 1); break;
    default:
        if (e->max == OPTION_UNLIMITED)
            text_format(t, "%u or more", e->min);
        else if (e->kind == OPTION_BYTES)
            text_format(t, "%b to %b", e->min, e->max);
        else
            text_format(t, "%u to %u", e->min, e->max);
    }
}

/* How values are written that are not plain numbers. */
static const char *describe_form(const struct option_entry *e) {
    if (is_switch(e))
        return ", off or on";
    return e->kind == OPTION_BYTES ? ", in bytes or as in 512m or 1.5g" : "";
}

static void put_choice(struct text *t, const struct option_entry *e, uint64_t value) {
    const char *choice = e->choices;
    for (uint64_t i = 0; i < value; i++)
        choice += strcspn(choice, "|") + 1;
    text_put(t, choice, strcspn(choice, "|"));
}

static void put_value(struct text *t, const struct option_entry *e, uint64_t value) {
    if (e->kind == OPTION_CHOICE)
        put_choice(t, e, value);
    else if (e->kind == OPTION_BYTES)
        text_bytes(t, value);
    else if (e->kind != OPTION_TEXT)
        text_number(t, value);
}

/* Bit o: the environment has set option o; something has. Written by options_init, read at the start. */
static uint64_t from_environment, were_set;

bool option_is_from_environment(enum option o) { return from_environment >> o & 1; }
bool option_was_set(enum option o) { return were_set >> o & 1; }

/* Whoever takes the option for a switch has all blocks guarded, until there is no room for more, which is soon. */
static bool is_hardly_meant(enum option o) { return o == OPT_GUARD_SAMPLE_BYTES && option(o) == 1; }

/* A setting NAME=VALUE from the environment or from hak_options. True if it cannot be read, or is hardly meant: then,
 * unless `was_told`, a line repeats the name as the user wrote it. */
static bool apply_setting(const char *name, size_t name_length, const char *value, size_t value_length, bool was_told) {
    enum option o = find_option(name, name_length);
    if (o < OPTION_COUNT && parse_value(o, value, value_length)) {
        were_set |= (uint64_t)1 << o;
        if (!is_hardly_meant(o))
            return false;
    }
    if (was_told)
        return true;
    TEXT_TO_FD(line, 2, 512);
    text_format(&line, "hakmem: %q=%q: ", name, name_length, value, value_length);
    if (o == OPTION_COUNT) {
        enum option guess = guess_option(name, name_length);
        text_string(&line, "no such option");
        if (guess != OPTION_COUNT)
            text_format(&line, ", did you mean %s?", option_name(guess));
        text_string(&line, " (HAKMEM_HELP=1 lists them); ignored\n");
    } else if (is_hardly_meant(o)) {
        text_string(&line, "not a switch, but the bytes between two samples: 1g costs nothing in production, 4k finds "
                           "what can be reproduced\n");
    } else {
        text_string(&line, "expected ");
        describe_values(&line, &option_table[o]);
        text_format(&line, "%s; using ", describe_form(&option_table[o]));
        if (option_table[o].kind == OPTION_TEXT)
            text_format(&line, "\"%s\"", option_text(o));
        put_value(&line, &option_table[o], option(o));
        text_string(&line, "\n");
    }
    text_flush(&line);
    return true;
}

static void apply_compiled_in(const char *settings) {
    while (*settings != '\0') {
        size_t length = strcspn(settings, ", \n");
        size_t name = strcspn(settings, "=, \n");
        if (name < length)
            apply_setting(settings, name, settings + name + 1, length - name - 1, false);
        else if (length > 0)
            apply_setting(settings, length, "", 0, false);
        settings += length;
        settings += strspn(settings, ", \n");
    }
}

static void apply_implications(void) {
    static const struct {
        enum option option, implied;
        uint64_t value;
    } rows[] = {
#define OPTION_IMPLICATION(option, implied, value) {OPT_##option, OPT_##implied, value},
        OPTION_IMPLICATIONS(OPTION_IMPLICATION)
#undef OPTION_IMPLICATION
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (option(rows[i].option) != 0 && !option_was_set(rows[i].implied))
            store_relaxed(option_word(rows[i].implied), rows[i].value);
}

/* Set before the values are. The first call comes from the start, or from an allocation before it: as making a thread
 * allocates, there is one thread then. */
static _Atomic bool were_read;

/* The value, if the entry is NAME=VALUE. */
static const char *value_of(const char *entry, const char *name) {
    size_t length = strlen(name);
    return strncmp(entry, name, length) == 0 && entry[length] == '=' ? entry + length + 1 : NULL;
}

/* Variables of the hakmem command, which the programs it starts inherit. */
static bool is_the_commands(const char *entry) {
    return value_of(entry, "HAKMEM_LIBRARY") != NULL || value_of(entry, "HAKMEM_PEERS") != NULL;
}

/* The length of the variable's name, if that is an option's, or should be one; else 0. */
static size_t option_name_length(const char *entry) {
    const char *equals = strchr(entry, '=');
    size_t length = equals != NULL ? (size_t)(equals - entry) : 0;
    return length >= 7 && same_letters(entry, "HAKMEM_", 7) && !is_the_commands(entry) ? length : 0;
}

/* The processes that this one starts inherit its environment, and a line for each of a build's thousand compilers helps
 * nobody. So a variable for which a line was printed begins like this from then on, which means the same. */
static const char told_as[] = {'h', 'A'};

static bool was_told(const char *entry) { return memcmp(entry, told_as, sizeof told_as) == 0; }

static void mark_told(char *entry) {
    if (os_is_from_start(entry))
        memcpy(entry, told_as, sizeof told_as);
}

/* Bit o: a process above this one has printed a line about what option o is set to. Written by options_init. */
static uint64_t were_told;

static void apply_variable(char *entry, size_t length) {
    const char *value = entry + length + 1;
    enum option o = find_option(entry, length);
    uint64_t bit = (uint64_t)(o < OPTION_COUNT) << o % OPTION_COUNT;
    from_environment |= bit;
    were_told = was_told(entry) ? were_told | bit : were_told & ~bit;
    if (apply_setting(entry, length, value, strlen(value), was_told(entry)))
        mark_told(entry);
}

/* A shell that sets an option of which a line was printed adds a variable to the marked one, and wants the new one. */
static void apply_environment(char **environment) {
    for (unsigned pass = 0; pass < 2; pass++)
        for (char **entry = environment; *entry != NULL; entry++) {
            size_t length = option_name_length(*entry);
            if (length != 0 && was_told(*entry) == (pass == 0))
                apply_variable(*entry, length);
        }
}

/* A privileged program's environment belongs to the user who started the program, so nothing in it counts. What is
 * compiled in is the program's own. */
static char **trusted_environment(void) {
    static char *nothing[] = {NULL};
    char **environment = os_environment();
    return environment != NULL && os_is_privileged() ? nothing : environment;
}

bool option_may_complain(enum option o) {
    char **entry = trusted_environment();
    for (; entry != NULL && *entry != NULL; entry++) {
        size_t length = option_name_length(*entry);
        if (length != 0 && find_option(*entry, length) == o)
            mark_told(*entry);
    }
    return !(were_told >> o & 1);
}

/* Only where libc has an allocator can it serve (beside/other.h). */
static void check_superslab(void) {
    if (option(OPT_SUPERSLAB) || (os_malloc_exists() && mode()->libc_may_serve))
        return;
    if (option_may_complain(OPT_SUPERSLAB))
        text_line("hakmem: HAKMEM_SUPERSLAB=0: %s; ignored",
                  mode()->libc_may_serve ? "this program's libc has no allocator beside" : "not with HAKMEM_SECURE=1");
    store_relaxed(option_word(OPT_SUPERSLAB), true);
}

enum { HELP_COLUMNS = 80, HELP_INDENT = 6 };

/* The words of `s`, line by line. */
static void put_wrapped(struct text *t, const char *s) {
    size_t column = HELP_COLUMNS;
    while (*s != '\0') {
        size_t length = strcspn(s, " ");
        bool fits = column + 1 + length <= HELP_COLUMNS;
        if (!fits)
            text_string(t, "\n     ");
        column = (fits ? column : HELP_INDENT - 1) + 1 + length;
        text_string(t, " ");
        text_put(t, s, length);
        s += length + (s[length] == ' ');
    }
    text_string(t, "\n");
}

/* An entry an option: name, kind and values, default, help. */
static void print_help(int fd) {
    TEXT_TO_FD(t, fd, 1024);
    text_string(&t, "HAKMEM's options, those first that are set most often. live: can be changed\n"
                    "while the program runs. docs/options.md has them as a table.\n");
    for (unsigned o = 0; o < OPTION_COUNT; o++) {
        const struct option_entry *e = &option_table[o];
        text_format(&t, "\n  HAKMEM_%s: ", e->name);
        describe_values(&t, e);
        if (e->kind != OPTION_TEXT) {
            text_string(&t, "; default ");
            put_value(&t, e, e->initial);
        }
        text_string(&t, e->when == LIVE ? "; live" : "");
        put_wrapped(&t, e->help);
    }
    text_flush(&t);
}

void options_init(void) {
    char **environment = load_relaxed(&were_read) ? NULL : trusted_environment();
    if (environment == NULL)
        return;
    store_relaxed(&were_read, true);
    for (char **entry = environment; *entry != NULL; entry++) {
        const char *value = value_of(*entry, "MALLOC_TRIM_THRESHOLD_"); /* glibc's */
        if (value != NULL)
            parse_value(OPT_RETAIN_BYTES, value, strlen(value));
    }
    if (&hak_options != NULL && hak_options != NULL)
        apply_compiled_in(hak_options);
    apply_environment(environment);
    apply_implications();
    if (option(OPT_SECURE))
        start_options.mode = mode_secure;
    check_superslab();
    if (option(OPT_HELP))
        print_help(2);
}

size_t option_format(enum option o, char *buffer, size_t bytes) {
    struct text t = text_into(buffer, bytes);
    const struct option_entry *e = &option_table[o];
    uint64_t value = option(o);
    if (e->kind == OPTION_TEXT) {
        text_string(&t, option_text(o));
    } else if (e->kind == OPTION_CHOICE) {
        put_choice(&t, e, value);
    } else {
        text_number(&t, value);
    }
    return text_end(&t);
}

size_t option_get(const char *name, char *buffer, size_t bytes) {
    options_init();
    enum option o = find_option(name, strlen(name));
    if (o == OPTION_COUNT)
        return errno = EINVAL, 0;
    return option_format(o, buffer, bytes);
}

int option_set(const char *name, const char *value) {
    options_init();
    enum option o = find_option(name, strlen(name));
    if (o == OPTION_COUNT)
        return EINVAL;
    if (option_table[o].when == START)
        return EPERM;
    return parse_value(o, value, strlen(value)) ? 0 : EINVAL;
}

int option_parse_live(const char *name, size_t name_length, const char *value, size_t length, struct option_value *v) {
    v->option = find_option(name, name_length);
    if (v->option == OPTION_COUNT)
        return ENOENT;
    const struct option_entry *e = &option_table[v->option];
    if (e->when == START || e->kind == OPTION_TEXT)
        return EPERM;
    return parse_word(e, value, length, &v->value) ? 0 : EINVAL;
}
