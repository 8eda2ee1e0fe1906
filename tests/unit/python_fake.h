/* An interpreter that is none: the symbols and records by which the library finds frames of CPython 3.12 or 3.10, in
 * plain memory. */
/* SPDX-License-Identifier: MIT */
#ifndef HAKMEM_TESTS_PYTHON_FAKE_H
#define HAKMEM_TESTS_PYTHON_FAKE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { FAKE_WORDS = 512 };

/* A thread's records, as words: those of its state, what leads to its frames, three frames, a code for each, their
 * strings. */
struct fake {
    uintptr_t words[FAKE_WORDS];
};

/* The innermost frame's function is called "leaf", at line 10; the others "größe" and "€uro", in "/a.py". A frame that
 * stands for a call from C lies between the last two. */
void fake_make(struct fake *fake);
void fake_version(unsigned minor);        /* 12, or 10: of what is made from now on, and of the interpreter */
void fake_claim_ascii(struct fake *fake); /* the name "größe" says that all its characters are ASCII's */
void fake_share_frames(struct fake *fake, struct fake *with); /* `fake` has the other's frames from now on */
void fake_use(struct fake *fake); /* by this thread; NULL: it is no thread of the interpreter */
unsigned fake_capture(uintptr_t *words, unsigned max);
/* What was noted of the code in a frame's word: "leaf /a.py 10 3" (name, file, first line, bytes of the table of
 * lines); empty: nothing. */
void fake_describe(uintptr_t word, char *text, unsigned bytes);
unsigned fake_codes(void); /* how many there are room for */

#ifdef __cplusplus
}
#endif
#endif
