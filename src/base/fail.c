/* See fail.h. */
/* SPDX-License-Identifier: MIT */
#include "base/fail.h"
#include "base/options.h"
#include "base/os.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

static _Atomic bool is_over, was_told_over; /* hints: set by the thread that ends the program */

void fail_program_is_over(bool over) { store_relaxed(&is_over, over); }

static bool fail_ends_program(bool harmless) {
    switch (option(OPT_ON_ERROR)) {
    case ON_ERROR_AUTO: return (!harmless && !load_relaxed(&is_over)) || mode()->all_errors_abort;
    case ON_ERROR_ABORT:
    case ON_ERROR_REPORT: return true;
    default: return false;
    }
}

/* Callers of harmless errors whose line was printed. A place pairs with itself: whoever fills it prints the line. NULL:
 * the program is over. */
static HAK_APART _Atomic(const void *) told[FAIL_CALLERS_MAX];

static bool was_told(const void *caller) {
    if (caller == NULL)
        return rmw_swap(&was_told_over, true);
    for (unsigned i = 0; i < FAIL_CALLERS_MAX; i++) {
        const void *noted = load_relaxed(&told[i]);
        if (noted == NULL && rmw_cas(&told[i], &noted, caller))
            return false;
        if (noted == caller)
            return true;
    }
    return true;
}

static _Atomic(fail_explainer *) explainer; /* NULL: none. Released with what it reads */

void fail_explain(fail_explainer *explain) { store_release(&explainer, explain); }

/* Writes the line and what is known about p. `caller`: of a harmless error, else NULL. */
static void fail_finish(struct text *line, const void *p, const void *caller) {
    bool ends = fail_ends_program(caller != NULL), once = !ends && option(OPT_ON_ERROR) == ON_ERROR_AUTO;
    if (option(OPT_ON_ERROR) == ON_ERROR_IGNORE || (once && was_told(caller)))
        return;
    size_t length = min_size(line->length, line->bytes - 1);
    line->buffer[length] = '\n';
    os_write(2, line->buffer, length + 1);
    line->buffer[length] = '\0';
    fail_explainer *explain = load_acquire(&explainer);
    if (explain != NULL)
        explain(line->buffer, p, ends, once ? caller : NULL);
    if (ends)
        abort();
}

void fail_double_free(const void *p, size_t block_bytes, enum freer freer) {
    static const char *const freer_text[] = {"", ", freed by this thread", ", freed by another thread"};
    TEXT_TO_FD(line, -1, 256);
    text_format(&line, "hakmem: double free of %x (%u-byte block%s)", (uintptr_t)p, (uint64_t)block_bytes,
                freer_text[freer]);
    fail_finish(&line, p, NULL);
}

void fail_bad_query(const char *call, const void *p, const char *why, size_t block_bytes, const void *caller) {
    TEXT_TO_FD(line, -1, 256);
    if (strcmp(call, "free") == 0)
        text_format(&line, "hakmem: invalid free of %x (", (uintptr_t)p);
    else
        text_format(&line, "hakmem: invalid pointer %x in %s (", (uintptr_t)p, call);
    if (block_bytes != 0)
        text_format(&line, "inside a %u-byte block)", (uint64_t)block_bytes);
    else
        text_format(&line, "%s)", why);
    fail_finish(&line, p, caller);
}

void fail_bad_pointer(const char *call, const void *p, const char *why, size_t block_bytes) {
    fail_bad_query(call, p, why, block_bytes, NULL);
}

void fail_bad_size(const void *p, size_t size_claimed, size_t block_bytes, const void *caller) {
    TEXT_TO_FD(line, -1, 256);
    text_format(&line, "hakmem: free of %x with size %u (%u-byte block)", (uintptr_t)p, (uint64_t)size_claimed,
                (uint64_t)block_bytes);
    fail_finish(&line, p, caller);
}

void fail_operator(const void *p, bool array_delete, size_t block_bytes) {
    TEXT_TO_FD(line, -1, 256);
    text_format(&line, "hakmem: free of %x by operator delete%s, allocated by operator new%s (%u-byte block)",
                (uintptr_t)p, array_delete ? "[]" : "", array_delete ? "" : "[]", (uint64_t)block_bytes);
    fail_finish(&line, p, NULL);
}

void fail_damage(const char *what, const void *p, size_t bytes) {
    TEXT_TO_FD(line, -1, 256);
    text_format(&line, "hakmem: %s of %x (%u-byte block)", what, (uintptr_t)p, (uint64_t)bytes);
    fail_finish(&line, p, NULL);
}

void fail_overwritten_link(const void *slab, size_t block_bytes) {
    TEXT_TO_FD(line, -1, 256);
    text_format(&line,
                "hakmem: write after free among the %u-byte blocks at %x, or overflow into one, before this call "
                "(GUARD_SAMPLE_BYTES finds the write)",
                (uint64_t)block_bytes, (uintptr_t)slab);
    fail_finish(&line, slab, NULL);
}

void fail_unused_written(const void *at) {
    TEXT_TO_FD(line, -1, 256);
    text_format(&line, "hakmem: write into unused memory at %x, before this call (GUARD_SAMPLE_BYTES finds the write)",
                (uintptr_t)at);
    fail_finish(&line, at, NULL);
}

void fail_bad_arena(const char *call, uintptr_t handle) {
    TEXT_TO_FD(line, -1, 256);
    text_format(&line, "hakmem: %s with %x, which is no arena, or one that was destroyed or released", call, handle);
    fail_finish(&line, NULL, NULL);
}

#ifdef HAK_CHECKED
/* LCOV_EXCL_START: no test can make HAKMEM fail its own assertions */
void fail_assert(const char *file, int line, const char *what) {
    text_line("hakmem: %s:%u: assertion failed: %s", file, (uint64_t)line, what);
    abort();
}
/* LCOV_EXCL_STOP */
#endif
