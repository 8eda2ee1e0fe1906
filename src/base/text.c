/* See text.h. */
/* SPDX-License-Identifier: MIT */
#include "base/text.h"
#include "base/os.h"

#include <stdarg.h>
#include <string.h>

void text_flush(struct text *t) {
    if (t->fd >= 0) {
        os_write(t->fd, t->buffer, t->length);
        t->length = 0;
    }
}

void text_put(struct text *t, const char *bytes, size_t count) {
    if (t->fd >= 0 && t->length + count > t->bytes)
        text_flush(t);
    if (t->fd >= 0 && count > t->bytes) {
        os_write(t->fd, bytes, count);
        return;
    }
    if (t->length < t->bytes)
        memcpy(t->buffer + t->length, bytes, min_size(count, t->bytes - t->length));
    t->length += count;
}

void text_string(struct text *t, const char *s) { text_put(t, s, strlen(s)); }

static void put_digits(struct text *t, uint64_t n, unsigned base) {
    char digits[20];
    size_t at = sizeof digits;
    do {
        digits[--at] = "0123456789abcdef"[n % base];
        n /= base;
    } while (n != 0);
    text_put(t, digits + at, sizeof digits - at);
}

struct text text_into(char *buffer, size_t bytes) {
    return (struct text){buffer, bytes, 0, -1};
}
size_t text_end(struct text *t) {
    if (t->bytes > 0)
        t->buffer[min_size(t->length, t->bytes - 1)] = '\0';
    return t->length;
}

void text_number(struct text *t, uint64_t n) { put_digits(t, n, 10); }

static void put_signed(struct text *t, int64_t n) {
    text_string(t, n < 0 ? "-" : "");
    text_number(t, n < 0 ? -(uint64_t)n : (uint64_t)n);
}

static void text_hex(struct text *t, uintptr_t n) {
    text_put(t, "0x", 2);
    put_digits(t, n, 16);
}

void text_hex_bytes(struct text *t, const void *bytes, size_t count) {
    for (const uint8_t *at = bytes, *end = at + count; at < end; at++)
        text_put(t, (char[]){"0123456789abcdef"[*at >> 4], "0123456789abcdef"[*at & 15]}, 2);
}

void text_bytes(struct text *t, uint64_t n) {
    static const char *const units[] = {" B", " KiB", " MiB", " GiB", " TiB"};
    unsigned unit = n >> 60 != 0; /* ten times as many, and half of 1,024, are no number */
    uint64_t tenths = (unit != 0 ? n / 1024 : n) * 10;
    while (tenths >= 10240 && unit < 4) {
        tenths = (tenths + 512) / 1024;
        unit++;
    }
    text_number(t, tenths / 10);
    if (unit > 0) {
        text_put(t, ".", 1);
        text_number(t, tenths % 10);
    }
    text_string(t, units[unit]);
}

/* The bytes of the UTF-8 character that begins there; 0: none does. */
static size_t character_bytes(const unsigned char *s) {
    static const struct {
        unsigned char from, to, second_from, second_to, bytes; /* the first byte, the second, and all */
    } rows[] = {{0x01, 0x7f, 0, 0xff, 1},    {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
                {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
                {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4}};
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (s[0] < rows[i].from || s[0] > rows[i].to || s[1] < rows[i].second_from || s[1] > rows[i].second_to)
            continue;
        size_t bytes = 2;
        while (bytes < rows[i].bytes && s[bytes] >> 6 == 2)
            bytes++;
        return rows[i].bytes <= bytes ? rows[i].bytes : 0;
    }
    return 0;
}

/* Control characters become spaces, and bytes that are no UTF-8 question marks. */
static void put_json_string(struct text *t, const char *s) {
    text_string(t, "\"");
    for (size_t bytes; *s != '\0'; s += max_size(bytes, 1)) {
        bytes = character_bytes((const unsigned char *)s);
        if (*s == '"' || *s == '\\')
            text_string(t, "\\");
        text_put(t, bytes == 0 ? "?" : (unsigned char)*s < 0x20 ? " " : s, max_size(bytes, 1));
    }
    text_string(t, "\"");
}

/* 64 bytes at most, each control character as a question mark. */
static void put_printable(struct text *t, const char *s, size_t length) {
    for (size_t i = 0; i < min_size(length, 64); i++)
        text_put(t, (unsigned char)s[i] < 0x20 || s[i] == 0x7f ? "?" : s + i, 1);
}

static void text_format_list(struct text *t, const char *format, va_list values) {
    const char *quoted;
    for (const char *at = format; *at != '\0'; at++) {
        const char *next = strchr(at, '%');
        size_t plain = next != NULL ? (size_t)(next - at) : strlen(at);
        text_put(t, at, plain);
        if (next == NULL)
            return;
        at = next + 1;
        switch (*at) {
        case 's': text_string(t, va_arg(values, const char *)); break;
        case 'u': text_number(t, va_arg(values, uint64_t)); break;
        case 'd': put_signed(t, va_arg(values, int64_t)); break;
        case 'x': text_hex(t, va_arg(values, uintptr_t)); break;
        case 'q':
            quoted = va_arg(values, const char *);
            put_printable(t, quoted, va_arg(values, size_t));
            break;
        case 'j': put_json_string(t, va_arg(values, const char *)); break;
        case 'b': text_bytes(t, va_arg(values, uint64_t)); break;
        default: text_put(t, at, 1); break;
        }
    }
}

void text_format(struct text *t, const char *format, ...) {
    va_list values;
    va_start(values, format);
    text_format_list(t, format, values);
    va_end(values);
}

void text_cell(struct text *t, size_t width, const char *format, ...) {
    char cell[64];
    struct text own = text_into(cell, sizeof cell);
    va_list values;
    va_start(values, format);
    text_format_list(&own, format, values);
    va_end(values);
    while (own.length < min_size(width, sizeof cell))
        cell[own.length++] = ' ';
    text_put(t, cell, min_size(own.length, sizeof cell));
}

bool text_output_name(struct text *path, const char *pattern, enum output_name name, uint64_t number) {
    bool has_process = false, has_number = false;
    for (const char *s = pattern; *s != '\0'; s++) {
        if (s[0] == '%' && (s[1] == 'p' || s[1] == 'n')) {
            *(s[1] == 'p' ? &has_process : &has_number) = true;
            text_number(path, s[1] == 'p' ? (uint64_t)os_process() : number);
            s++;
        } else {
            text_put(path, s, 1);
        }
    }
    if (text_end(path) >= path->bytes || name == NAME_EXACT || os_is_device(path->buffer))
        return path->length < path->bytes;
    if (!has_process)
        text_format(path, ".%u", (uint64_t)os_process());
    if (name == NAME_NUMBERED && !has_number)
        text_format(path, ".%u", number);
    return text_end(path) < path->bytes;
}

static int open_output(const char *pattern, enum output_name name, uint64_t number) {
    TEXT_TO_FD(path, -1, 512);
    return text_output_name(&path, pattern, name, number) ? os_open_output(path.buffer) : -1;
}

HAK_AT_START void text_open_end_file(struct end_file *file, const char *pattern) {
    int fd = strstr(pattern, "%n") == NULL ? open_output(pattern, NAME_PROCESS, 1) : -1;
    if (fd < 0)
        return;
    file->kept = os_keep_output(fd);
    file->process = os_process();
    os_close(fd);
}

int text_begin_output(const struct end_file *at_end, const char *pattern, enum output_name name, uint64_t number) {
    bool kept = name == NAME_PROCESS && at_end->process == os_process() && os_is_kept(&at_end->kept);
    return kept ? at_end->kept.fd : open_output(pattern, name, number);
}

uint64_t text_end_output(const struct end_file *at_end, int fd) {
    if (fd < 0 || fd == at_end->kept.fd)
        return 0;
    uint64_t bytes = os_written(fd);
    os_close(fd);
    return bytes;
}

void text_line(const char *format, ...) {
    TEXT_TO_FD(line, 2, 512);
    va_list values;
    va_start(values, format);
    text_format_list(&line, format, values);
    va_end(values);
    text_put(&line, "\n", 1);
    text_flush(&line);
}
