/* See fail.h. */
#include "fail.h"
#include "options.h"
#include "text.h"

#include <stdlib.h>
#include <string.h>

static bool silent(void) { return option(OPT_ON_ERROR) == ON_ERROR_IGNORE; }

static _Atomic(void (*)(const void *)) more;

void fail_explain(void (*explain)(const void *p)) { store_release(&more, explain); }

static void end(const void *p) {
    void (*explain)(const void *) = load_acquire(&more);
    if (explain != NULL)
        explain(p);
    if (option(OPT_ON_ERROR) == ON_ERROR_ABORT)
        abort();
}

void fail_double_free(const void *p, size_t block_bytes, enum freer freer) {
    static const char *const by[] = {"", ", freed by this thread", ", freed by another thread"};
    if (silent())
        return;
    text_line("hakmem: double free of %x (%u-byte block%s)", (uintptr_t)p, (uint64_t)block_bytes, by[freer]);
    end(p);
}

void fail_bad_pointer(const char *call, const void *p, const char *why, size_t block_bytes) {
    if (silent())
        return;
    TEXT_TO_FD(line, 2, 256);
    if (strcmp(call, "free") == 0)
        text_format(&line, "hakmem: invalid free of %x (", (uintptr_t)p);
    else
        text_format(&line, "hakmem: invalid pointer %x in %s (", (uintptr_t)p, call);
    if (block_bytes != 0)
        text_format(&line, "inside a %u-byte block)\n", (uint64_t)block_bytes);
    else
        text_format(&line, "%s)\n", why);
    text_flush(&line);
    end(p);
}

void fail_bad_size(const void *p, size_t told, size_t block_bytes) {
    if (silent())
        return;
    text_line("hakmem: free of %x with size %u (%u-byte block)", (uintptr_t)p, (uint64_t)told, (uint64_t)block_bytes);
    end(p);
}

void fail_operator(const void *p, bool array_delete, size_t block_bytes) {
    if (silent())
        return;
    text_line("hakmem: free of %x by operator delete%s, made by operator new%s (%u-byte block)", (uintptr_t)p,
              array_delete ? "[]" : "", array_delete ? "" : "[]", (uint64_t)block_bytes);
    end(p);
}

void fail_damage(const char *what, const void *p, size_t bytes) {
    if (silent())
        return;
    text_line("hakmem: %s of %x (%u-byte block)", what, (uintptr_t)p, (uint64_t)bytes);
    end(p);
}

void fail_overwritten_link(const void *slab, size_t block_bytes) {
    if (silent())
        return;
    text_line("hakmem: write after free among the %u-byte blocks at %x, or overflow into one", (uint64_t)block_bytes,
              (uintptr_t)slab);
    end(slab);
}

#ifdef HAK_CHECKED
/* LCOV_EXCL_START: no test can provoke a bug of HAKMEM's own */
void fail_assert(const char *file, int line, const char *what) {
    text_line("hakmem: %s:%u: assertion failed: %s", file, (uint64_t)line, what);
    abort();
}
/* LCOV_EXCL_STOP */
#endif
