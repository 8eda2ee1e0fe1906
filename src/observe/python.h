/* Python functions on the stack of the calling thread, for sampled profiles.
 *
 *  1. CPython's own function finds the state of the calling thread. From there we follow the frames, innermost first.
 *  2. Each frame becomes one word: the number of its code object, and the instruction that it has reached.
 *  3. The name, file and line table of a code object are copied when it is first seen, because the object may be gone
 *     when somebody reads the profile. Entries are added but never removed. The `hakmem` command turns instructions
 *     into lines.
 *
 * Works with CPython 3.9 to 3.13 if the interpreter was there when the program started; other versions yield no frames.
 * Never allocates and takes no lock. Before it reads the interpreter's memory it asks the kernel whether that is
 * readable. Any thread may call it, with or without the interpreter's lock, because a thread's frames change only while
 * the thread itself runs. */
/* SPDX-License-Identifier: MIT */
#pragma once

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
    _Atomic uint64_t hash; /* identifies the code object; 0: the entry is unused. Pairs with itself */
    /* Name, file and lines in a row; NULL: not copied yet, or no room. Pairs with itself; publishes the rest. */
    _Atomic(char *) text;
    uint32_t name_bytes, file_bytes; /* UTF-8 */
    uint32_t lines_bytes;
    uint32_t first_line;
};

struct python {
    _Atomic(struct python_code *) codes; /* PYTHON_CODES, and PYTHON_TEXT_BYTES behind them; NULL: none yet */
    _Atomic uint64_t text_used;          /* bytes handed out; may exceed PYTHON_TEXT_BYTES */
    _Atomic uint32_t minor;              /* minor version of the interpreter, 3.x; 0: no frame was seen yet */
};
extern HAK_HIDDEN struct python hak_python;

/* The table that begins at `codes`. */
#define PYTHON_TABLE_BYTES (PYTHON_CODES * sizeof(struct python_code) + PYTHON_TEXT_BYTES)

/* Stores the words of the calling thread's frames, innermost first, and returns how many: at most `max`.
 * hak_python.codes must be set. */
unsigned python_capture(uintptr_t *words, unsigned max);
