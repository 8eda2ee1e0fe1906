/* Clearing pages by whatever costs least: by hand where they are resident, by purging where not. */
/* SPDX-License-Identifier: MIT */
#include "base/clear.h"
#include "base/os.h"

#include <string.h>

/* More than this the system clears: the program may never touch most of it. */
#define CLEAR_BY_PURGE_BYTES (32 * MIB)

/* Whole pages. What is not resident stays so: to purge it costs less than to touch it, and makes it zero if it was swapped out. */
static void clear_run(char *at, size_t bytes, bool resident) {
    if (bytes != 0 && (resident || !os_advise(OS_PURGE, at, bytes)))
        memset(at, 0, bytes);
}

static void clear_resident(char *at, size_t bytes) {
    unsigned char pages[512];
    const size_t page = os_page_bytes();
    size_t run = 0;
    bool resident = false;
    for (size_t done = 0, n; done < bytes; done += n * page) {
        n = min_size((bytes - done) / page, sizeof pages);
        if (!os_resident(at + done, n * page, pages))
            memset(pages, 1, n);
        for (size_t i = 0; i < n; i++) {
            if ((pages[i] & 1) == resident)
                continue;
            clear_run(at + run, done + i * page - run, resident);
            run = done + i * page;
            resident = !resident;
        }
    }
    clear_run(at + run, bytes - run, resident);
}

static unsigned is_resident(char *at, size_t page) {
    unsigned char resident;
    return !os_resident(at, page, &resident) || (resident & 1) != 0;
}

/* Clearing resident pages by hand costs less than purging them (10 and 75 us a MiB), unless
 * there are too many for the processor's caches; what is not resident should stay so. Three pages show which it is. */
void *clear_pages(void *block, size_t bytes) {
    char *p = block;
    const size_t page = os_page_bytes(), whole = round_down(bytes, page);
    memset(p + whole, 0, bytes - whole);
    if (bytes >= CLEAR_BY_PURGE_BYTES || os_is_confined()) {
        clear_run(p, whole, bytes < CLEAR_BY_PURGE_BYTES);
        return p;
    }
    unsigned resident = is_resident(p + round_down(whole / 8 * 7, page), page);
    resident += is_resident(p + round_down(whole / 4, page), page);
    if (resident == 2)
        memset(p, 0, whole);
    else if (resident + is_resident(p + page, page) == 0)
        clear_run(p, whole, false);
    else
        clear_resident(p, whole);
    return p;
}
