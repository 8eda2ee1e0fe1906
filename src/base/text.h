/* Text without stdio: a line or a document is put together in a buffer and written with write(2) alone. This works
 * inside malloc, in a signal handler and when memory is exhausted. A text is not shared between threads. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "base/os.h"

struct text {
    char *buffer;  /* holds the text */
    size_t bytes;  /* size of the buffer */
    size_t length; /* of the text so far; more than `bytes` if the text was cut off (fd < 0) */
    int fd;        /* takes the buffer when it is full; -1: the text is cut off instead */
};

/* A text in a caller's buffer, and its end: terminated if there is room for a byte. Returns the whole text's length. */
struct text text_into(char *buffer, size_t bytes);
size_t text_end(struct text *t);
void text_flush(struct text *t);
void text_put(struct text *t, const char *bytes, size_t count);
void text_string(struct text *t, const char *s);
void text_number(struct text *t, uint64_t n);
void text_hex_bytes(struct text *t, const void *bytes, size_t count); /* two digits each */
void text_bytes(struct text *t, uint64_t n);                          /* "1.5 MiB" */
/* %s const char*, %j the same as a string of JSON's, %q the same with its length (size_t), 64 bytes at most and each
 * control character as ?, %u uint64_t, %d int64_t, %x uintptr_t, %b bytes as uint64_t: the forms that messages need. */
void text_format(struct text *t, const char *format, ...);
/* A column of a table: the same in 64 bytes at most, and spaces up to the width. */
void text_cell(struct text *t, size_t width, const char *format, ...);

/* How a file for output is named: in the pattern, %p stands for the process id and %n for `number`. A pattern that
 * lacks one gets it appended, so that no process overwrites another's file; not where a FIFO or a device is. */
enum output_name {
    NAME_EXACT,    /* nothing is appended */
    NAME_PROCESS,  /* the process id */
    NAME_NUMBERED, /* both */
};
/* Terminated. False: the name does not fit and is cut off, so it would be another file's. */
bool text_output_name(struct text *path, const char *pattern, enum output_name name, uint64_t number);

/* A file for the program's end. It is open from the start: so it lies where the name led then, and a sandbox may forbid
 * opening it later. The child of a fork has no part in it. */
struct end_file {
    struct os_kept kept;
    uint32_t process; /* whose file it is */
};
/* Not for names with %n. Stays closed if the file cannot be opened. */
void text_open_end_file(struct end_file *file, const char *pattern);
/* Opens the file of that name or, for NAME_PROCESS, takes this process's file for the end, if there is one. -1 on
 * failure. The end closes what was opened, and returns its size. */
int text_begin_output(const struct end_file *at_end, const char *pattern, enum output_name name, uint64_t number);
uint64_t text_end_output(const struct end_file *at_end, int fd);

/* Writes one formatted line to the standard error. */
void text_line(const char *format, ...);

#define TEXT_TO_FD(name, descriptor, size)                                                                             \
    char name##_buffer[size];                                                                                          \
    struct text name = {name##_buffer, size, 0, descriptor}
