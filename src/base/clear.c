/* Clearing and touching pages, by whatever costs least: by hand, or by purging if there are many. */
/* SPDX-License-Identifier: MIT */
#include "base/clear.h"
#include "base/os.h"

#include <string.h>

/* More than this the system clears: the program may never touch most of it. */
#define CLEAR_BY_PURGE_BYTES (32 * MIB)

bool is_all_zero(const void *words, size_t bytes) {
    for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, (const char *)words + at, sizeof word);
        if (word != 0)
            return false;
    }
    return true;
}

/* Clearing by hand costs less than purging (10 and 75 us a MiB) where pages were written to, unless there are too many
 * for the processor's caches; what was not should stay without memory. Three pages show which it is. */
void *clear_pages(void *block, size_t bytes) {
    char *p = block;
    const size_t page = os_page_bytes(), whole = round_down(bytes, page);
    memset(p + whole, 0, bytes - whole);
    unsigned written = !is_all_zero(p + round_down(whole / 8 * 7, page), page);
    written += !is_all_zero(p + round_down(whole / 4, page), page);
    bool any = written != 0 || !is_all_zero(p + page, page);
    if ((whole >= CLEAR_BY_PURGE_BYTES || !any) && os_advise(OS_PURGE, p, whole))
        return p;
    if (written == 2)
        return memset(p, 0, whole);
    for (size_t at = 0; at < whole; at += page)
        if (!is_all_zero(p + at, page))
            memset(p + at, 0, page);
    return p;
}

bool make_zero(void *pages, size_t bytes) {
    if (os_advise(OS_PURGE, pages, bytes))
        return true;
    bool accessible = os_commit(pages, bytes);
    if (accessible)
        memset(pages, 0, bytes);
    return accessible;
}

void touch_pages(void *begin, size_t bytes) {
    for (size_t at = 0; at < bytes; at += os_page_bytes())
        *((volatile char *)begin + at) = 0;
}
