/* Python functions on the stack of the calling thread, for sampled profiles.
 *
 *  1. CPython says which of its threads this one is. That thread's frames are followed, the innermost first.
 *  2. A frame becomes a word: the number of its code, and which instruction has been reached.
 *  3. What a code is called, its file and its table of lines are copied when it is first seen, because the code may be gone when
 *     somebody reads the profile. Codes are added but never removed. The command finds the lines.
 *
 * CPython 3.9 to 3.13, if it was there when the program started; other versions have no frames. Never allocates, takes no
 * lock; the kernel is asked whether memory of the interpreter can be read. Any thread calls it, with or without the
 * interpreter's lock: a thread's frames change only while it runs itself. */
/* SPDX-License-Identifier: MIT */
#ifndef HAK_PYTHON_H
#define HAK_PYTHON_H

#include "base/base.h"

#define PYTHON_TEXT_BYTES (2 * MIB)
enum {
    PYTHON_FRAMES = 40, /* of one stack */
    PYTHON_CODES = 4096,
};

/* A frame's word, which is no address: PYTHON_FRAME, the number of its code, the instruction's number in it. */
#define PYTHON_FRAME ((uintptr_t)1 << 63)
#define PYTHON_ENTRY ((uintptr_t)1 << 62) /* called from C: the next frame further out has another C frame */
#define PYTHON_NUMBER_SHIFT 32

struct python_code {
    _Atomic uint64_t hash; /* of what tells it from others; 0: not in use. Pairs with itself */
    _Atomic(char *)
        text; /* name, file, lines, one behind the other; NULL: not known yet, or no room. Pairs with itself, for the rest */
    uint32_t name_bytes, file_bytes; /* UTF-8 */
    uint32_t lines_bytes;
    uint32_t first_line;
};

struct python {
    _Atomic(struct python_code *) codes; /* PYTHON_CODES, and PYTHON_TEXT_BYTES behind them; NULL: none yet */
    _Atomic uint64_t text_used;          /* bytes given out; may exceed PYTHON_TEXT_BYTES */
    _Atomic uint32_t minor;              /* of the interpreter's version, 3.x; 0: no frame was seen */
};
extern HAK_HIDDEN struct python hak_python;

/* What begins at codes. */
#define PYTHON_TABLE_BYTES (PYTHON_CODES * sizeof(struct python_code) + PYTHON_TEXT_BYTES)

/* The frames' words, innermost first. Returns how many, at most `max`. hak_python.codes is set. */
unsigned python_capture(uintptr_t *words, unsigned max);

#endif
