/* See python_fake.h. */
/* SPDX-License-Identifier: MIT */
#include "python_fake.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "observe/profile.h"
#include "observe/python.h"

unsigned long Py_Version = 0x030c01f0;
char PyCode_Type[8];
static _Thread_local struct fake *used;
void *PyGILState_GetThisThreadState(void);
void *PyGILState_GetThisThreadState(void) { return used; }

enum { STATE = 0, WAY = 20, FRAMES = 24, FRAME_WORDS = 16, CODES = 96, CODE_WORDS = 32, TEXTS = 200, TEXT_WORDS = 32 };

/* Offsets in bytes, as CPython's headers have them. In 3.10 a state leads to its frame directly, no frame stands for a
 * call from C, and a frame counts the instructions that it has reached. */
struct shape {
    unsigned thread_id, frame, code, previous, reached, name, file, lines, first_line, narrow, wide;
};
static const struct shape of_3_10 = {176, 24, 32, 24, 96, 112, 104, 120, 40, 48, 72};
static const struct shape of_3_12 = {136, 56, 0, 8, 56, 128, 112, 136, 68, 40, 56};
static bool is_3_10(void) { return Py_Version >> 16 == 0x30a; }
static const struct shape *shape_here(void) { return is_3_10() ? &of_3_10 : &of_3_12; }

static void *at(uintptr_t *record, unsigned offset) { return (char *)record + offset; }
static void put(uintptr_t *record, unsigned offset, const void *value) {
    *(uintptr_t *)at(record, offset) = (uintptr_t)value;
}

static uintptr_t *string_in(struct fake *f, unsigned number, const void *characters, size_t count, unsigned width,
                            int ascii) {
    uintptr_t *s = &f->words[TEXTS + number * TEXT_WORDS];
    s[2] = count;
    s[4] = 0x20 | width << 2 | (ascii ? 0x40 : 0);
    memcpy(at(s, ascii ? shape_here()->narrow : shape_here()->wide), characters, count * width);
    return s;
}

void fake_version(unsigned minor) { Py_Version = 0x030001f0 | (unsigned long)minor << 16; }

static void put_code(uintptr_t *code, unsigned number, const uintptr_t *name, const uintptr_t *file,
                     const uintptr_t *lines) {
    const struct shape *shape = shape_here();
    code[1] = (uintptr_t)PyCode_Type;
    *(uint32_t *)at(code, shape->first_line) = 10 + number;
    put(code, shape->name, name);
    put(code, shape->file, file);
    put(code, shape->lines, lines);
}

void fake_make(struct fake *f) {
    static const uint8_t latin[] = {'g', 'r', 0xf6, 0xdf, 'e'};
    static const uint16_t wide[] = {0x20ac, 'u', 'r', 'o'};
    const struct shape *shape = shape_here();
    memset(f, 0, sizeof *f);
    put(&f->words[STATE], shape->thread_id, (void *)pthread_self());
    put(&f->words[STATE], shape->frame, &f->words[is_3_10() ? FRAMES : WAY]);
    f->words[WAY] = (uintptr_t)&f->words[FRAMES];
    uintptr_t *names[] = {string_in(f, 0, "leaf", 4, 1, 1), string_in(f, 1, latin, 5, 1, 0),
                          string_in(f, 2, wide, 4, 2, 0)};
    uintptr_t *file = string_in(f, 3, "/a.py", 5, 1, 1), *lines = &f->words[TEXTS + 4 * TEXT_WORDS];
    lines[2] = 3;
    for (unsigned i = 0; i < 4; i++) { /* the third frame is C's, and 3.10 has none */
        uintptr_t *frame = &f->words[FRAMES + i * FRAME_WORDS];
        uintptr_t *code = &f->words[CODES + (i < 3 ? i : 2) * CODE_WORDS];
        put(frame, shape->code, code);
        put(frame, shape->previous, i < 3 ? frame + (is_3_10() && i == 1 ? 2 : 1) * FRAME_WORDS : NULL);
        if (is_3_10())
            *(uint32_t *)at(frame, shape->reached) = i + 1;
        else
            put(frame, shape->reached, (char *)code + 192 + 2 * (i + 1));
        ((char *)frame)[70] = i == 2 && !is_3_10() ? 3 : 0;
        put_code(code, i, names[i < 3 ? i : 2], file, lines);
    }
}

void fake_claim_ascii(struct fake *f) {
    uintptr_t *s = &f->words[TEXTS + 1 * TEXT_WORDS];
    s[4] |= 0x40;
    memcpy(s + 5, s + 7, 5);
}

void fake_share_frames(struct fake *f, struct fake *with) { f->words[WAY] = with->words[WAY]; }

void fake_use(struct fake *fake) { used = fake; }

unsigned fake_capture(uintptr_t *words, unsigned max) {
    if (load_acquire(&hak_profile.stacks) == NULL)
        profile_want(1);
    return python_capture(words, max);
}

void fake_describe(uintptr_t word, char *text, unsigned bytes) {
    const struct python_code *code = &load_relaxed(&hak_python.codes)[word >> PYTHON_NUMBER_SHIFT & 0xffff];
    const char *at = load_acquire(&code->text);
    *text = '\0';
    if (at != NULL)
        snprintf(text, bytes, "%.*s %.*s %u %u", (int)code->name_bytes, at, (int)code->file_bytes,
                 at + code->name_bytes, code->first_line, code->lines_bytes);
}

unsigned fake_codes(void) { return PYTHON_CODES; }
