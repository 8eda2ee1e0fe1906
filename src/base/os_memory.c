/* The mappings of os.h: made, ended, advised about, moved and looked at. */
/* SPDX-License-Identifier: MIT */
#include "base/clear.h"
#include "base/os_call.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif
#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif
#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41
#endif
#ifndef PR_SET_VMA_ANON_NAME
#define PR_SET_VMA_ANON_NAME 0
#endif

enum { PROBE_BYTES = 1 << OS_PAGE_SHIFT };
enum { PUT_BACK_BYTES = 2 * MIB }; /* copied between two purges */
enum { END_WAITS = 100 };          /* ms */
enum { READABLE_PAGES = 1024 };

/* Kernels before 5.7 know no move that keeps `from`, qemu's user mode before 8.1 unmaps it. */
enum move_support { MOVE_UNKNOWN, MOVE_KEEPS, MOVE_LACKS };

/* As os_state. */
static struct {
    /* Of OS_FRESH_HUGE, of OS_FRESH; NULL: none. Set at the start, read while `template_users` counts the thread, and
     * cleared by any thread, which then waits for the others: all sequentially consistent. */
    _Atomic(void *) huge_template, plain_template;
    _Atomic uint32_t template_users;
    /* of os_name_mappings; NULL: mappings get no names. Any thread ends them */
    _Atomic(void *) slabs_from;
    _Atomic uint8_t move;       /* enum move_support; any thread */
    _Atomic bool moves_several; /* a move of several mappings is one call. Since the start */
} os_mapping;
/* Pages that could be read: hints. As os_mapping. */
static HAK_APART _Atomic uintptr_t read_pages[READABLE_PAGES];

bool os_advise(enum os_advice advice, void *address, size_t bytes) {
    static const int native[] = {
        [OS_HUGE] = MADV_HUGEPAGE,    [OS_NO_HUGE] = MADV_NOHUGEPAGE, [OS_WIPE] = MADV_WIPEONFORK,
        [OS_NO_DUMP] = MADV_DONTDUMP, [OS_DUMP] = MADV_DODUMP,        [OS_PURGE] = MADV_DONTNEED,
        [OS_LAZY] = MADV_FREE};
    int saved = errno;
    return os_answer(saved, madvise(address, bytes, native[advice])) == 0;
}

static bool is_from_linux(unsigned from_major, unsigned from_minor) {
    struct utsname system;
    unsigned major = 0, minor = 0;
    if (uname(&system) != 0)
        return false;
    const char *at = system.release;
    for (; *at >= '0' && *at <= '9'; at++)
        major = major * 10 + (unsigned)(*at - '0');
    for (at += *at == '.'; *at >= '0' && *at <= '9'; at++)
        minor = minor * 10 + (unsigned)(*at - '0');
    return major > from_major || (major == from_major && minor >= from_minor);
}
/* Memory that is mapped for a stack has no huge pages. */
static bool stacks_refuse_huge_pages(void) { return is_from_linux(6, 7); }

void os_know_kernel(void) {
    int saved = errno;
    store_relaxed(&os_mapping.moves_several, is_from_linux(6, 17));
    errno = saved;
}

void os_make_templates(void *address, bool huge) {
    char *plain = (char *)address + OS_TEMPLATE_BYTES;
    int saved = errno;
    if (huge && os_advise(OS_HUGE, address, OS_TEMPLATE_BYTES))
        store_relaxed(&os_mapping.huge_template, address);
    if (!stacks_refuse_huge_pages() && os_advise(OS_NO_HUGE, plain, OS_TEMPLATE_BYTES))
        store_relaxed(&os_mapping.plain_template, plain);
    errno = saved;
}

/* In a fork's child `template_users` may count threads that are not here. */
bool os_end_templates(void) {
    store_seq(&os_mapping.huge_template, NULL); /* pairs with map_like */
    store_seq(&os_mapping.plain_template, NULL);
    for (unsigned waited = 0; load_seq(&os_mapping.template_users) != 0; os_sleep(1))
        if (waited++ == END_WAITS)
            return false;
    return true;
}

/* Fresh memory with the advice of the template, which stays where it is (Linux 5.7). A part, as OS_FRESH. */
static bool map_like(_Atomic(void *) *template, char *at, size_t bytes, int protection) {
    const int flags = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;
    if (load_seq(template) == NULL)
        return false;
    rmw_add(&os_mapping.template_users, 1); /* pairs with os_end_templates: that waits, or this finds none */
    void *from = load_seq(template);
    size_t done = 0;
    while (from != NULL && done < bytes) {
        size_t some = min_size(bytes - done, OS_TEMPLATE_BYTES);
        if (mremap(from, some, some, flags, at + done) != at + done)
            break;
        done += some;
    }
    rmw_add(&os_mapping.template_users, (uint32_t)-1);
    return done >= bytes && mprotect(at, bytes, protection) == 0;
}

static bool map_fresh(enum os_map_kind kind, void *address, size_t bytes) {
    int protection = kind == OS_FRESH_SHUT ? PROT_NONE : PROT_READ | PROT_WRITE;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    bool huge = kind == OS_FRESH_HUGE && load_seq(&os_mapping.huge_template) != NULL;
    if (huge && map_like(&os_mapping.huge_template, address, bytes, protection))
        return true;
    if (kind == OS_FRESH_PLAIN || (kind == OS_FRESH_HUGE && !huge))
        return mmap(address, bytes, protection, flags, -1, 0) == address;
    return map_like(&os_mapping.plain_template, address, bytes, protection) ||
           mmap(address, bytes, protection, flags | MAP_STACK, -1, 0) == address;
}

/* ---- names ---- */

/* The first refusal is the last: a kernel that is built without names would refuse each time. */
static void name_mapping(void *at, size_t bytes, const char *name) {
    int saved = errno;
    if (prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, (uintptr_t)at, bytes, name) != 0)
        store_relaxed(&os_mapping.slabs_from, NULL);
    errno = saved;
}

void os_name_mappings(void *tables, void *slabs) {
    store_relaxed(&os_mapping.slabs_from, slabs);
    name_mapping(tables, (size_t)((char *)slabs - (char *)tables), "hakmem: tables");
}

static void *map_unnamed(enum os_map_kind kind, void *address, size_t bytes) {
    int saved = errno;
    if (kind >= OS_FRESH)
        return os_answer(saved, map_fresh(kind, address, bytes)) ? address : NULL;
    int protection = kind == OS_RESERVE ? PROT_NONE : PROT_READ | PROT_WRITE;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK;
    if (kind == OS_AT || (kind == OS_RESERVE && address != NULL))
        flags |= MAP_FIXED_NOREPLACE;
    void *got = mmap(address, bytes, protection, flags, -1, 0);
    bool occupied = errno == EEXIST;
    errno = saved;
    if (got == MAP_FAILED)
        return occupied ? OS_OCCUPIED : NULL;
    if (address != NULL && got != address) { /* a kernel before 4.17 takes the address as a hint */
        os_unmap(got, bytes);
        return OS_OCCUPIED;
    }
    return got;
}

void *os_map(enum os_map_kind kind, void *address, size_t bytes) {
    void *got = map_unnamed(kind, address, bytes), *slabs_from = load_relaxed(&os_mapping.slabs_from);
    if (unlikely(slabs_from != NULL) && got != NULL && got != OS_OCCUPIED)
        name_mapping(got, bytes, address >= slabs_from ? "hakmem: slabs" : "hakmem: tables");
    return got;
}

static bool protect(void *address, size_t bytes, int protection) {
    int saved = errno;
    return os_answer(saved, mprotect(address, bytes, protection)) == 0;
}

bool os_commit(void *address, size_t bytes) { return protect(address, bytes, PROT_READ | PROT_WRITE); }
bool os_forbid(void *address, size_t bytes) { return protect(address, bytes, PROT_NONE); }
bool os_freeze(void *address, size_t bytes) { return protect(address, bytes, PROT_READ); }

/* By libc's name, as all that drops pages: registration caches (MPI, UCX) watch these names. */
bool os_unmap(void *address, size_t bytes) {
    int saved = errno;
    return os_answer(saved, munmap(address, bytes)) == 0;
}

/* Whether the kernel can read there: a word to wait at, for no time, if its value is an unlikely one. */
static bool can_read(uintptr_t address) {
    enum { UNLIKELY = 0x2e6a91c5 };
    static const struct timespec none = {0, 0};
    int saved = errno;
    syscall(SYS_futex, address & ~(uintptr_t)3, (long)FUTEX_WAIT_PRIVATE, (long)UNLIKELY, &none);
    return os_answer(saved, errno != EFAULT);
}

/* Is all of it mapped, and readable? */
bool os_is_mapped(void *address, size_t bytes) {
    const size_t page = os_page_bytes();
    size_t at = 0;
    while (at < bytes && can_read((uintptr_t)address + at))
        at += page;
    return at >= bytes;
}

/* A move that was refused may have unmapped any part of its target. At once, before another thread's mapping comes
 * there. */
static void fill_holes(char *at, size_t bytes) {
    const size_t page = os_page_bytes();
    for (size_t piece = 0, some; piece < bytes; piece += some) {
        some = min_size(bytes - piece, PUT_BACK_BYTES);
        if (os_is_mapped(at + piece, some))
            continue;
        for (size_t hole = piece, end; hole < piece + some; hole = end + page) {
            for (end = hole; end < piece + some && !os_is_mapped(at + end, page);)
                end += page;
            if (end > hole)
                os_map(OS_AT, at + hole, end - hole);
        }
    }
}

/* A move was refused. From Linux 6.17 on the kernel moves a range mapping by mapping, and what it moved before it
 * refused stays moved. Which that is it does not tell, but `to` was zero: what is not zero there now is to go back. By
 * copying, since another move may be refused, too. The pages that were moved keep the access they had in `from`, as do
 * those of `from`: the program may have made them read-only. */
static void os_move_back(char *from, char *to, size_t bytes) {
    const size_t page = os_page_bytes();
    for (size_t piece = 0, end; piece < bytes; piece = end) {
        bool any = false;
        end = min_size(piece + PUT_BACK_BYTES, bytes);
        for (size_t at = piece; at < end; at += page) {
            if (!can_read((uintptr_t)to + at) || is_all_zero(to + at, page))
                continue;
            if (!any)
                os_commit(from + piece, end - piece);
            memcpy(from + at, to + at, page);
            any = true;
        }
        if (any) /* so that no more than a piece has memory twice */
            os_advise(OS_PURGE, to + piece, end - piece);
    }
}

static bool emulator_has(void *page) {
    int saved = errno;
    unsigned char resident;
    return os_answer(saved, mincore(page, os_page_bytes(), &resident) == 0 || errno != ENOMEM);
}

/* Before Linux 6.17 a move of several mappings is refused only once its target is unmapped, where another thread's
 * mapping may come then. Growth of several is refused at once, as nothing else is, with EFAULT; that of one finds no
 * room, or gives its page back. */
static bool may_move(void *from, size_t bytes) {
    if (load_relaxed(&os_mapping.moves_several))
        return true;
    int saved = errno;
    const size_t page = os_page_bytes();
    bool grew = mremap(from, bytes, bytes + page, 0, NULL) != MAP_FAILED, several = !grew && errno == EFAULT;
    if (grew)
        munmap((char *)from + bytes, page);
    return os_answer(saved, !several);
}

enum os_moved os_move(void *from, void *to, size_t bytes) {
    if (load_relaxed(&os_mapping.move) == MOVE_LACKS || !may_move(from, bytes))
        return OS_MOVED_NOTHING;
    int saved = errno;
    bool done = mremap(from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to) == to;
    bool invalid = errno == EINVAL, is_known = load_relaxed(&os_mapping.move) != MOVE_UNKNOWN;
    errno = saved;
    if (!done) {
        if (invalid && !is_known)
            store_relaxed(&os_mapping.move, MOVE_LACKS);
        fill_holes(to, bytes);
        os_move_back(from, to, bytes);
        return OS_MOVED_NOTHING;
    }
    /* mprotect fails where nothing is mapped, and every sandbox allows it. In qemu it succeeds there, msync as
     * well, and MAP_FIXED_NOREPLACE finds the place occupied: only mincore tells, and only MAP_FIXED maps. */
    bool is_emulated = os_is_emulated(), kept = true;
    if (!is_known) {
        kept = is_emulated ? emulator_has(from) : os_commit(from, bytes) || os_is_mapped(from, bytes);
        store_relaxed(&os_mapping.move, kept ? MOVE_KEEPS : MOVE_LACKS);
    }
    return kept || os_map(is_emulated ? OS_FRESH : OS_AT, from, bytes) == from ? OS_MOVED_PAGES : OS_MOVED_MAPPING;
}

bool os_resident(void *address, size_t bytes, unsigned char *pages) {
    int saved = errno;
    return os_answer(saved, mincore(address, bytes, pages)) == 0;
}

/* ---- what can be read ---- */

static bool page_readable_now(uintptr_t page) { return can_read(page << OS_PAGE_SHIFT); }

static bool page_readable(uintptr_t page) {
    _Atomic uintptr_t *place = &read_pages[page % READABLE_PAGES];
    if (load_relaxed(place) == page)
        return true;
    bool readable = page_readable_now(page);
    if (readable)
        store_relaxed(place, page);
    return readable;
}

static bool pages_readable(uintptr_t address, size_t bytes, bool (*readable)(uintptr_t page)) {
    if (address + bytes < address || address >> OS_PAGE_SHIFT == 0)
        return false;
    for (uintptr_t page = address >> OS_PAGE_SHIFT; page <= (address + bytes - 1) >> OS_PAGE_SHIFT; page++)
        if (!readable(page))
            return false;
    return true;
}
bool os_readable(uintptr_t address, size_t bytes) { return pages_readable(address, bytes, page_readable); }
bool os_readable_now(uintptr_t address, size_t bytes) { return pages_readable(address, bytes, page_readable_now); }
