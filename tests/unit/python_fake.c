/* See python_fake.h. */
/* SPDX-License-Identifier: MIT */
#include "python_fake.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "observe/profile.h"
#include "observe/python.h"

const unsigned long Py_Version = 0x030c01f0;
char PyCode_Type[8];
static _Thread_local struct fake *used;
void *PyGILState_GetThisThreadState(void);
void *PyGILState_GetThisThreadState(void) { return used; }

enum { STATE = 0, WAY = 20, FRAMES = 24, FRAME_WORDS = 16, CODES = 96, CODE_WORDS = 32, TEXTS = 200, TEXT_WORDS = 32 };

static uintptr_t *string_in(struct fake *f, unsigned number, const void *characters, size_t count, unsigned width,
                            int ascii) {
    uintptr_t *s = &f->words[TEXTS + number * TEXT_WORDS];
    s[2] = count;
    s[4] = 0x20 | width << 2 | (ascii ? 0x40 : 0);
    memcpy(s + (ascii ? 5 : 7), characters, count * width);
    return s;
}

void fake_make(struct fake *f) {
    static const uint8_t latin[] = {'g', 'r', 0xf6, 0xdf, 'e'};
    static const uint16_t wide[] = {0x20ac, 'u', 'r', 'o'};
    memset(f, 0, sizeof *f);
    f->words[STATE + 136 / 8] = (uintptr_t)pthread_self();
    f->words[STATE + 56 / 8] = (uintptr_t)&f->words[WAY];
    f->words[WAY] = (uintptr_t)&f->words[FRAMES];
    uintptr_t *names[] = {string_in(f, 0, "leaf", 4, 1, 1), string_in(f, 1, latin, 5, 1, 0),
                          string_in(f, 2, wide, 4, 2, 0)};
    uintptr_t *file = string_in(f, 3, "/a.py", 5, 1, 1), *lines = &f->words[TEXTS + 4 * TEXT_WORDS];
    lines[2] = 3;
    for (unsigned i = 0; i < 4; i++) { /* the third frame is C's */
        uintptr_t *frame = &f->words[FRAMES + i * FRAME_WORDS];
        uintptr_t *code = &f->words[CODES + (i < 3 ? i : 2) * CODE_WORDS];
        frame[0] = (uintptr_t)code;
        frame[1] = i < 3 ? (uintptr_t)(frame + FRAME_WORDS) : 0;
        frame[7] = (uintptr_t)code + 192 + 2 * (i + 1);
        ((char *)frame)[70] = i == 2 ? 3 : 0;
        code[1] = (uintptr_t)PyCode_Type;
        ((uint32_t *)(void *)code)[68 / 4] = 10 + i;
        code[128 / 8] = (uintptr_t)names[i < 3 ? i : 2];
        code[112 / 8] = (uintptr_t)file;
        code[136 / 8] = (uintptr_t)lines;
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
