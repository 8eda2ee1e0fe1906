/* os.h for tests: os_linux.c as it is, but each of its calls of the system goes through a gate that can make it fail.
 *
 *  1. The headers come first, then a gate_… for each call, then macros that put the gates in the calls' places.
 *  2. A call that fails is not made, or half of it is (madvise and mprotect over the first half of the range; mremap
 *     has unmapped its target), as the kernel does when it finds out late.
 *  3. Linked before the library, this file's os_* are taken instead of the library's. */
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

#include "../../src/heap.h"
#include "../../src/options.h"

static struct fault_plan plan; /* constant while armed */
static _Atomic bool armed;
static _Atomic unsigned calls[FAULT_COUNTS], injected[FAULT_COUNTS];
static _Atomic size_t occupied_bytes;
static _Atomic unsigned not_mapped_afresh;
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

static size_t half_of(size_t bytes) { return plan.half ? round_down(bytes / 2, (size_t)getpagesize()) : 0; }

static void *gate_mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset) {
    bool may_be_occupied = flags & MAP_FIXED_NOREPLACE;
    if ((plan.error == EEXIST && !may_be_occupied) || !fails(FAULT_mmap))
        return mmap(address, bytes, protection, flags, fd, offset);
    failed();
    if (plan.error == EEXIST)
        atomic_fetch_add(&occupied_bytes, bytes);
    if (flags & MAP_FIXED)
        atomic_fetch_add(&not_mapped_afresh, 1);
    return MAP_FAILED;
}

static int gate_munmap(void *address, size_t bytes) { return fails(FAULT_munmap) ? failed() : munmap(address, bytes); }

static int gate_mprotect(void *address, size_t bytes, int protection) {
    if (!fails(FAULT_mprotect))
        return mprotect(address, bytes, protection);
    if (half_of(bytes) != 0)
        mprotect(address, half_of(bytes), protection);
    return failed();
}

static int gate_madvise(void *address, size_t bytes, int advice) {
    if (!fails(FAULT_madvise))
        return madvise(address, bytes, advice);
    if (half_of(bytes) != 0)
        madvise(address, half_of(bytes), advice);
    return failed();
}

static void *gate_mremap(void *from, size_t bytes, size_t new_bytes, int flags, void *to) {
    if (!fails(FAULT_mremap))
        return mremap(from, bytes, new_bytes, flags, to);
    if (plan.half)
        munmap(to, new_bytes);
    failed();
    return MAP_FAILED;
}

static int gate_mincore(void *address, size_t bytes, unsigned char *pages) {
    return fails(FAULT_mincore) ? failed() : mincore(address, bytes, pages);
}

static int gate_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *with) {
    return fails(FAULT_pthread_create) ? plan.error : pthread_create(thread, attributes, run, with);
}

static long gate_syscall(long number, long a, long b, long c, ...) {
    bool is_counted = number != SYS_rt_sigprocmask; /* it asks for nothing */
    if (is_counted && fails(number == SYS_membarrier ? FAULT_membarrier : FAULT_futex))
        return failed();
    va_list more;
    va_start(more, c);
    long d = va_arg(more, long); /* every call has it */
    va_end(more);
    return syscall(number, a, b, c, d, NULL, 0);
}

static int gate_getrlimit(int which, struct rlimit *limit) {
    return fails(FAULT_getrlimit) ? failed() : getrlimit(which, limit);
}

static int gate_open(const char *path, int flags, mode_t mode, ...) {
    return fails(FAULT_open) ? failed() : open(path, flags, mode);
}

static ssize_t gate_write(int fd, const void *text, size_t bytes) {
    return fails(FAULT_write) ? failed() : write(fd, text, bytes);
}

static int gate_fcntl(int fd, int command, int with) {
    return fails(FAULT_fcntl) ? failed() : fcntl(fd, command, with);
}

static int gate_clock_gettime(clockid_t which, struct timespec *now) {
    (void)which;
    unsigned ms = load_relaxed(&clock_ms);
    *now = (struct timespec){.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    return 0;
}

static int gate_nanosleep(const struct timespec *time, struct timespec *left) {
    (void)left;
    fault_clock_advance((unsigned)(time->tv_sec * 1000 + time->tv_nsec / 1000000));
    return sched_yield();
}

#define mmap gate_mmap
#define munmap gate_munmap
#define mprotect gate_mprotect
#define madvise gate_madvise
#define mremap gate_mremap
#define mincore gate_mincore
#define pthread_create gate_pthread_create
#define syscall gate_syscall
#define getrlimit gate_getrlimit
#define open(...) gate_open(__VA_ARGS__, 0)
#define write gate_write
#define fcntl gate_fcntl
#define clock_gettime gate_clock_gettime
#define nanosleep gate_nanosleep
#include "../../src/os_linux.c"

/* ---- for the test ---- */

void fault_arm(const struct fault_plan *with) {
    plan = *with;
    for (unsigned i = 0; i < FAULT_COUNTS; i++)
        store_relaxed(&calls[i], 0), store_relaxed(&injected[i], 0);
    store_relaxed(&occupied_bytes, 0);
    store_relaxed(&not_mapped_afresh, 0);
    store_release(&armed, true);
}

void fault_lift(void) { store_release(&armed, false); }
unsigned fault_calls(int call) { return load_relaxed(&calls[call]); }
size_t fault_occupied_bytes(void) { return load_relaxed(&occupied_bytes); }
unsigned fault_not_mapped_afresh(void) { return load_relaxed(&not_mapped_afresh); }
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

void fault_no_reservation(void) { store_relaxed(&option_values[OPT_REGION_BYTES], 0); }
void fault_huge_pages_always(void) { store_relaxed(&option_values[OPT_HUGE_PAGES], HUGE_ALWAYS); }

/* Slots of the span that begins here; 0: no span does. */
static size_t span_slots(size_t slot) {
    const struct slab *s = slab_of_slot(slot);
    switch ((enum slab_kind)slab_kind(s)) {
    case KIND_TINY: return 1;
    case KIND_MID:
    case KIND_LARGE: return s->slots;
    case KIND_HUGE: return huge_superslabs_of(s->bytes) * SUPERSLAB_SLOTS;
    default: return 0;
    }
}

struct fault_slots fault_count_slots(void) {
    struct fault_slots n = {0, 0, 0};
    size_t end = load_acquire(&hak_region.superslabs) * SUPERSLAB_SLOTS;
    for (size_t slot = 0, covered = 0; slot < end; slot++) {
        uint64_t w = load_acquire(&superslab_at(slot / SUPERSLAB_SLOTS)->word);
        bool active = word_active(w) >> slot % SUPERSLAB_SLOTS & 1,
             resident = word_resident(w) >> slot % SUPERSLAB_SLOTS & 1;
        n.active += active;
        n.empty += resident && !active;
        if (active && slot >= covered)
            covered = slot + span_slots(slot);
        n.nobodys += active && slot >= covered;
    }
    for (uint32_t at = load_acquire(&hak_region.unmapped); at != 0;
         at = load_relaxed(&superslab_at(at - 1)->changed_ms)) {
        n.active -= SUPERSLAB_SLOTS; /* not lost: the next to need a SuperSlab tries to map it */
        n.nobodys -= SUPERSLAB_SLOTS;
    }
    return n;
}
