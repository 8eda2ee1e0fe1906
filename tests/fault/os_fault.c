/* os.h for tests: os_linux.c, os_memory.c, os_files.c and os_merge.c unchanged, but each of their system calls goes
 * through a gate that can make it fail.
 *
 *  1. The headers come first, then a gate_… function for each call, then macros that replace the calls by the gates.
 *  2. A failing call is not made, or does only a part of its work (enum fault_part), as when the kernel finds out late
 *     or is interrupted.
 *  3. This file is linked before the library, so its os_* functions replace the library's. The linker wraps the
 *     pthread_ functions that the library calls elsewhere. */
/* SPDX-License-Identifier: MIT */
#include "fault.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "../../src/base/os.h"
#include "../../src/heap/heap.h"
#include "../../src/blocks/kinds.h"
#include "../../src/base/options.h"
#include "../../src/process/presence.h"
#include "../../src/secure/secure_span.h"
#include "../../src/space/purge.h"
#include "../../src/space/superslab.h"

static struct fault_plan plan; /* constant while armed */
static _Atomic bool armed;
static _Atomic unsigned calls[FAULT_COUNTS], injected[FAULT_COUNTS];
static _Atomic size_t occupied_bytes;
static _Atomic size_t committed_bytes;
static _Atomic unsigned threads_started;
static _Atomic(_Atomic uint32_t *) parked_word;
static _Atomic uint32_t parked_value;
static _Atomic unsigned timed_waits;
static _Atomic unsigned clock_ms = 1000000;

/* ---- the gate ---- */

static bool fails(enum fault_call call) {
    if (!load_acquire(&armed))
        return false;
    unsigned of_call = atomic_fetch_add(&calls[call], 1) + 1, of_any = atomic_fetch_add(&calls[FAULT_ANY], 1) + 1;
    unsigned k = plan.call == FAULT_ANY ? of_any : of_call;
    if ((plan.call != FAULT_ANY && plan.call != (int)call) || k < plan.from || k >= plan.to)
        return false;
    atomic_fetch_add(&injected[call], 1);
    atomic_fetch_add(&injected[FAULT_ANY], 1);
    return true;
}

static int failed(void) {
    errno = plan.error;
    return -1;
}

/* How much of a range is done: whole pages, and never all of it. */
static size_t part_of(size_t bytes) {
    size_t page = (size_t)getpagesize(), most = round_down(bytes - 1, page);
    switch (plan.part) {
    case FAULT_NONE_DONE: return 0;
    case FAULT_MOST_DONE: return most;
    default: return round_down(bytes / 2, page);
    }
}

/* Whether the call fails by the plan, or would exceed the bound on writable bytes. */
static bool refuses(enum fault_call call, size_t bytes, int protection) {
    if (fails(call))
        return true;
    if (!load_acquire(&armed) || !(protection & PROT_WRITE))
        return false;
    size_t whole = atomic_fetch_add(&committed_bytes, bytes) + bytes;
    if (plan.commit_most == 0 || whole <= plan.commit_most)
        return false;
    atomic_fetch_sub(&committed_bytes, bytes);
    atomic_fetch_add(&injected[FAULT_ANY], 1);
    return true;
}

static void *gate_mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset) {
    bool may_be_occupied = flags & MAP_FIXED_NOREPLACE, over = flags & MAP_FIXED;
    if ((plan.error == EEXIST && !may_be_occupied) ||
        !refuses(over ? FAULT_mmap_over : FAULT_mmap, bytes, protection)) {
        void *got = mmap(address, bytes, protection, flags, fd, offset);
        if (got == MAP_FAILED && errno == EEXIST)
            atomic_fetch_add(&occupied_bytes, bytes);
        return got;
    }
    if (over && plan.part == FAULT_TARGET_GONE)
        munmap(address, bytes);
    else if (over && part_of(bytes) != 0)
        munmap(address, part_of(bytes));
    if (plan.error == EEXIST)
        atomic_fetch_add(&occupied_bytes, bytes);
    failed();
    return MAP_FAILED;
}

static int gate_munmap(void *address, size_t bytes) {
    if (!fails(FAULT_munmap))
        return munmap(address, bytes);
    if (part_of(bytes) != 0)
        munmap(address, part_of(bytes));
    return failed();
}

static int gate_mprotect(void *address, size_t bytes, int protection) {
    if (!refuses(FAULT_mprotect, bytes, protection))
        return mprotect(address, bytes, protection);
    if (part_of(bytes) != 0)
        mprotect(address, part_of(bytes), protection);
    return failed();
}

static int gate_madvise(void *address, size_t bytes, int advice) {
    static _Atomic unsigned lazy_calls;
    if (advice == MADV_FREE && atomic_fetch_add(&lazy_calls, 1) % 2 == 0)
        advice = MADV_DONTNEED; /* the system takes the pages at once */
    if (!fails(FAULT_madvise))
        return madvise(address, bytes, advice);
    if (part_of(bytes) != 0)
        madvise(address, part_of(bytes), advice);
    return failed();
}

static void *gate_mremap(void *from, size_t bytes, size_t new_bytes, int flags, void *to) {
    if (!fails(FAULT_mremap))
        return mremap(from, bytes, new_bytes, flags, to);
    size_t moved = plan.part != FAULT_TARGET_GONE ? part_of(bytes) : 0;
    if (moved != 0 && mremap(from, moved, moved, flags, to) != to)
        moved = 0;
    if (plan.part == FAULT_TARGET_GONE || plan.part == FAULT_HALF_DONE)
        munmap((char *)to + moved, new_bytes - moved);
    failed();
    return MAP_FAILED;
}

static int gate_mincore(void *address, size_t bytes, unsigned char *pages) {
    if (!fails(FAULT_mincore))
        return mincore(address, bytes, pages);
    memset(pages, 1, part_of(bytes) / (size_t)getpagesize());
    return failed();
}

static int gate_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *with) {
    int error = fails(FAULT_pthread_create) ? plan.error : pthread_create(thread, attributes, run, with);
    atomic_fetch_add(&threads_started, error == 0);
    return error;
}

/* NOLINTBEGIN: these names belong to the linker */
int __real_pthread_key_create(pthread_key_t *key, void (*destructor)(void *));
int __wrap_pthread_key_create(pthread_key_t *key, void (*destructor)(void *));
int __wrap_pthread_key_create(pthread_key_t *key, void (*destructor)(void *)) {
    return fails(FAULT_pthread_key_create) ? plan.error : __real_pthread_key_create(key, destructor);
}

int __real_pthread_setspecific(pthread_key_t key, const void *value);
int __wrap_pthread_setspecific(pthread_key_t key, const void *value);
int __wrap_pthread_setspecific(pthread_key_t key, const void *value) {
    return fails(FAULT_pthread_setspecific) ? plan.error : __real_pthread_setspecific(key, value);
}
/* NOLINTEND */

/* Returns which call of the plan a direct system call of the two files is, or -1 if it cannot fail. */
static int fault_of(long number) {
    switch (number) {
    case SYS_membarrier: return FAULT_membarrier;
    case SYS_openat:
    case SYS_userfaultfd:
    case SYS_memfd_create: return FAULT_open;
    case SYS_read: return FAULT_read;
    case SYS_write:
    case SYS_pwrite64: return FAULT_write;
    case SYS_fcntl:
    case SYS_ioctl: return FAULT_fcntl;
    case SYS_futex: return FAULT_futex;
    default: return -1; /* other calls have no plan of their own */
    }
}

/* As many arguments as a call can have, as in libc's: those that were not passed are not used. */
static long gate_syscall(long number, ...) {
    va_list arguments;
    va_start(arguments, number);
    long a = va_arg(arguments, long), b = va_arg(arguments, long), c = va_arg(arguments, long),
         d = va_arg(arguments, long), e = va_arg(arguments, long), f = va_arg(arguments, long);
    va_end(arguments);
    int call = fault_of(number);
    if (number == SYS_mmap) {
        void *got = gate_mmap((void *)a, (size_t)b, (int)c, (int)d, (int)e, f); /* NOLINT: an address */
        return got == MAP_FAILED ? -1 : (long)got;
    }
    if (number == SYS_munmap)
        return gate_munmap((void *)a, (size_t)b); /* NOLINT: an address */
    if (number == SYS_futex && b == 128 && d != 0) {
        const struct timespec *time = (const struct timespec *)d; /* NOLINT: an address */
        if (time->tv_sec == 0 && time->tv_nsec == 0)              /* no wait: can the word be read? */
            return syscall(number, a, b, c, d, e, f);
        if (load_relaxed(&parked_word) == (_Atomic uint32_t *)a) /* NOLINT: an address */
            store_relaxed(&parked_word, NULL);
        rmw_add(&timed_waits, 1);
        /* A wait takes no time, and ends a little late. */
        fault_clock_advance((unsigned)(time->tv_sec * 1000 + time->tv_nsec / 1000000) + 1);
        sched_yield();
        errno = ETIMEDOUT;
        return -1;
    }
    if (call >= 0 && fails((enum fault_call)call)) {
        if (call == FAULT_write && plan.part != FAULT_NONE_DONE)
            return syscall(number, a, b, (c + 1) / 2, d);
        return failed();
    }
    if (number == SYS_futex && b == 128) { /* FUTEX_WAIT_PRIVATE: waits while the word is `c` */
        store_relaxed(&parked_value, (uint32_t)c);
        store_release(&parked_word, (_Atomic uint32_t *)a); /* NOLINT: an address */
    }
    if (number == SYS_nanosleep) {                                /* used where a wait was refused */
        const struct timespec *time = (const struct timespec *)a; /* NOLINT: an address */
        fault_clock_advance((unsigned)(time->tv_sec * 1000 + time->tv_nsec / 1000000));
        return sched_yield();
    }
    return syscall(number, a, b, c, d, e, f);
}

static int gate_getrlimit(int which, struct rlimit *limit) {
    return fails(FAULT_getrlimit) ? failed() : getrlimit(which, limit);
}

static int gate_clock_gettime(clockid_t which, struct timespec *now) {
    (void)which;
    unsigned ms = load_relaxed(&clock_ms);
    *now = (struct timespec){.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    return 0;
}

#define mmap gate_mmap
#define mprotect gate_mprotect
#define madvise gate_madvise
#define mremap gate_mremap
#define mincore gate_mincore
#define pthread_create gate_pthread_create
#define syscall gate_syscall
#define getrlimit gate_getrlimit
#define clock_gettime gate_clock_gettime
#define os_find_threads find_ungated_threads
void find_ungated_threads(void);
#include "../../src/base/os_files.c"
#include "../../src/base/os_linux.c"
#include "../../src/base/os_memory.c"
#include "../../src/mesh/os_merge.c"

#undef os_find_threads
void os_find_threads(void) { os_state.start_thread = gate_pthread_create; }

/* ---- for the test ---- */

void fault_arm(const struct fault_plan *with) {
    plan = *with;
    for (unsigned i = 0; i < FAULT_COUNTS; i++)
        store_relaxed(&calls[i], 0), store_relaxed(&injected[i], 0);
    store_relaxed(&occupied_bytes, 0);
    store_relaxed(&committed_bytes, 0);
    store_release(&armed, true);
}

void fault_lift(void) { store_release(&armed, false); }
unsigned fault_calls(int call) { return load_relaxed(&calls[call]); }
size_t fault_occupied_bytes(void) { return load_relaxed(&occupied_bytes); }
size_t fault_committed_bytes(void) { return load_relaxed(&committed_bytes); }
int fault_purger_is_parked(void) {
    _Atomic uint32_t *word = load_acquire(&parked_word);
    return word != NULL && load_relaxed(&parked_value) == PURGER_PARKED && load_relaxed(word) == PURGER_PARKED;
}
unsigned fault_threads_started(void) { return load_relaxed(&threads_started); }
unsigned fault_injected_into(int call) { return load_relaxed(&injected[call]); }

const char *fault_name(int call) {
    static const char *const names[] = {
#define FAULT_NAME(name) #name,
        FAULT_CALLS(FAULT_NAME)
#undef FAULT_NAME
            "any"};
    return names[call];
}

void fault_clock_advance(unsigned ms) { atomic_fetch_add(&clock_ms, ms); }
unsigned fault_waits(void) { return load_relaxed(&timed_waits); }

static void set_start_option(enum option o, uint64_t value) {
    os_commit(&start_options, sizeof start_options); /* the start froze them */
    store_relaxed(option_word(o), value);
}
void fault_no_reservation(void) { set_start_option(OPT_REGION_BYTES, 0); }
void fault_huge_pages_always(void) { set_start_option(OPT_HUGE_PAGES, HUGE_ALWAYS); }
void fault_secure(void) {
    set_start_option(OPT_SECURE_STACKS, 1);
    start_options.mode = mode_secure;
}

/* Returns the slots of the span that begins here, or 0 if none does. */
static size_t span_slots(size_t slot) {
    const struct slab *s = slab_of_slot(slot);
    switch ((enum slab_kind)slab_kind(s)) {
    case KIND_TINY:
    case KIND_MESHED: return 1;
    case KIND_MID:
    case KIND_LARGE: return s->slots;
    case KIND_HUGE: return huge_superslabs_of(s->single.bytes) * SUPERSLAB_SLOTS;
    case KIND_PACKED:
    case KIND_SECURE_SMALL: return 1;
    default: return 0;
    }
}

/* Whether secure mode has cut the SuperSlab and all its spans are free: it keeps some of those. */
static bool is_cut_and_free(size_t superslab) {
    uint64_t w = load_relaxed(&superslab_at(superslab)->secure);
    return w >> 32 != 0 && (uint16_t)w == low_bits(spans_of((unsigned)(w >> 32) - 1));
}

void fault_map_waiting(void) {
    while (superslab_map_waiting())
        ;
}

struct fault_slots fault_count_slots(void) {
    struct fault_slots n = {0, 0, 0};
    size_t end = load_acquire(&hak_region_use.superslabs) * SUPERSLAB_SLOTS;
    for (size_t slot = 0, covered = 0; slot < end; slot++) {
        if (is_cut_and_free(slot / SUPERSLAB_SLOTS))
            continue;
        uint64_t w = load_acquire(&superslab_at(slot / SUPERSLAB_SLOTS)->word);
        bool active = word_active(w) >> slot % SUPERSLAB_SLOTS & 1,
             resident = word_resident(w) >> slot % SUPERSLAB_SLOTS & 1;
        n.active += active;
        n.empty += resident && !active;
        if (active && slot >= covered)
            covered = slot + span_slots(slot);
        n.nobodys += active && slot >= covered;
    }
    n.active -= load_relaxed(&hak_purge.lost_slots), n.nobodys -= load_relaxed(&hak_purge.lost_slots);
    for (uint32_t at = load_acquire(&hak_region_use.parts); at != 0;
         at = load_relaxed(&superslab_at(at - 1)->next_waiting)) {
        size_t lacks = SUPERSLAB_SLOTS - load_relaxed(&superslab_at(at - 1)->mapped_slots);
        n.active -= lacks, n.nobodys -= lacks; /* likewise */
    }
    for (uint32_t at = load_acquire(&hak_region_use.unmapped); at != 0;
         at = load_relaxed(&superslab_at(at - 1)->next_waiting)) {
        n.active -= SUPERSLAB_SLOTS; /* not lost: the next thread that needs a SuperSlab tries to map it */
        n.nobodys -= SUPERSLAB_SLOTS;
    }
    return n;
}
