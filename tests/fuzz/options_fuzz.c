/* libFuzzer over the options parser: the input is a compiled-in list, NAME=VALUE,…. Whatever it is, every option has a
 * legal value afterwards, and that value's text reads back as the same value. If it fails, a typing error in the
 * environment makes the allocator run with values it was not designed for. */
/* SPDX-License-Identifier: MIT */
#include "../../src/options.c"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t executions;

static void print_figure(void) { printf("figure: fuzz_options_executions %zu\n", executions); }

static void check_option(enum option o) {
    const struct option_entry *e = &option_table[o];
    char text[512], again[512], one[1];
    size_t length = option_format(o, text, sizeof text);
    if (length != strlen(text) || option_get(e->name, again, sizeof again) != length || strcmp(text, again) != 0)
        abort();
    if (option_format(o, one, sizeof one) != length || one[0] != '\0' || option_format(o, NULL, 0) != length)
        abort();
    if (e->kind != OPTION_TEXT && (option(o) < e->min || option(o) > e->max))
        abort();
    if (!parse_value(o, text, length) || option_format(o, again, sizeof again) != length || strcmp(text, again) != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (executions++ == 0)
        atexit(print_figure);
    char *settings = malloc(size + 1);
    memcpy(settings, data, size);
    settings[size] = '\0';
    apply_compiled_in(settings);
    char *value = strchr(settings, '=');
    if (value != NULL) {
        *value++ = '\0';
        option_set(settings, value);
    }
    free(settings);
    for (unsigned o = 0; o < OPTION_COUNT; o++)
        check_option((enum option)o);
    return 0;
}
