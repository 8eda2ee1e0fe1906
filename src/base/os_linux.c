/* os.h on Linux, over libc's thin wrappers where those are no cancellation points: a thread that is being cancelled
 * would end inside malloc, whose caller may hold locks or be noexcept. What libc lets be cancelled (open, read, write,
 * close, nanosleep, msync and fcntl) is asked of the kernel by syscall(), which is not. tests/entry holds the list.
 *
 * The kernel's own headers are not used: musl comes without them, and older ones lack some of the names. */
/* SPDX-License-Identifier: MIT */
#include "base/os_call.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#define THREAD_STACK_BYTES (256 * KIB) /* the program's thread-local variables have room in it */

enum { PROBE_SHIFT = 12, PROBE_BYTES = 1 << PROBE_SHIFT }; /* the smallest page there is */
enum { PUT_BACK_BYTES = 2 * MIB };                         /* copied between two purges */
enum { FENCE_MS = 20 };
enum { FUTEX_WAIT_PRIVATE = 128, FUTEX_WAKE_PRIVATE = 129 };
enum { POLICY_DEFAULT = 0, POLICY_LOCAL = 4 }; /* both: a page lies where it is first touched */

#ifndef PR_SET_PTRACER
#define PR_SET_PTRACER 0x59616d61
#endif
#ifndef PR_SET_PTRACER_ANY
#define PR_SET_PTRACER_ANY ((unsigned long)-1)
#endif
#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif
#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

/* libc's own pthread_create. One that the program or a preloaded tool has put in its place may take locks and allocate
 * under them: called from within malloc, it would wait for itself. */
typedef int thread_starter(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

enum {
    READABLE_PAGES = 1024,
    PROCESSORS_ASKED_MAX = 1024 /* malloc's stack is small */
};

/* What is known of the system. The atomics pair with themselves: whatever thread finds a thing out, it stores the same
 * value, and no other memory depends on it, so relaxed accesses are enough; `exit_key` is made by one
 * compare-and-swap. */
static struct os_state {
    /* Any thread. */
    _Atomic size_t page_bytes;   /* 0: not asked yet */
    _Atomic uint8_t move;        /* enum move_support */
    _Atomic uint32_t processors; /* 0: not asked yet, or not known */
    _Atomic uint32_t exit_key;   /* the pthread key of os_at_thread_exit, + 1; 0: none yet */
    /* Constant after the start. */
    _Atomic(_Atomic uint32_t *) process;           /* where its number is kept; NULL: nowhere */
    _Atomic(void *) huge_template, plain_template; /* of OS_FRESH_HUGE, of OS_FRESH; NULL: none */
    long seccomp_at_start;                         /* the mode; a container's filter refuses without killing */
    thread_starter *start_thread;                  /* NULL: not known */
} os_state;
static HAK_APART char program_path[1024]; /* as os_state's constants; "" if it is longer */
static HAK_APART _Atomic uintptr_t
    read_pages[READABLE_PAGES]; /* pages that could be read: hints. As the atomics above */

/* libgcc would ask at the start of every program. Asking takes a virtual machine microseconds. */
bool os_has_wide(void) {
#if defined(__x86_64__)
    unsigned a, b, c, d, kept, upper;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE))
        return false;
    __asm__("xgetbv" : "=a"(kept), "=d"(upper) : "c"(0));
    return (kept & 6) == 6 && __get_cpuid_count(7, 0, &a, &b, &c, &d) && b & bit_AVX2;
#else
    return false;
#endif
}

size_t os_page_bytes(void) {
    size_t known = load_relaxed(&os_state.page_bytes);
    if (known == 0) {
        known = getauxval(AT_PAGESZ);
        store_relaxed(&os_state.page_bytes, known);
    }
    return known;
}

bool os_advise(enum os_advice advice, void *address, size_t bytes) {
    static const int native[] = {
        [OS_HUGE] = MADV_HUGEPAGE,    [OS_NO_HUGE] = MADV_NOHUGEPAGE, [OS_WIPE] = MADV_WIPEONFORK,
        [OS_NO_DUMP] = MADV_DONTDUMP, [OS_PURGE] = MADV_DONTNEED,     [OS_LAZY] = MADV_FREE};
    int saved = errno;
    bool done = madvise(address, bytes, native[advice]) == 0;
    errno = saved;
    return done;
}

/* From Linux 6.7 on, memory that is mapped for a stack has no huge pages. */
static bool stacks_refuse_huge_pages(void) {
    struct utsname system;
    unsigned major = 0, minor = 0;
    if (uname(&system) != 0)
        return false;
    const char *at = system.release;
    for (; *at >= '0' && *at <= '9'; at++)
        major = major * 10 + (unsigned)(*at - '0');
    for (at += *at == '.'; *at >= '0' && *at <= '9'; at++)
        minor = minor * 10 + (unsigned)(*at - '0');
    return major > 6 || (major == 6 && minor >= 7);
}

void os_make_templates(void *address, bool huge) {
    char *plain = (char *)address + OS_TEMPLATE_BYTES;
    int saved = errno;
    if (huge && os_advise(OS_HUGE, address, OS_TEMPLATE_BYTES))
        store_relaxed(&os_state.huge_template, address);
    if (!stacks_refuse_huge_pages() && os_advise(OS_NO_HUGE, plain, OS_TEMPLATE_BYTES))
        store_relaxed(&os_state.plain_template, plain);
    errno = saved;
}

/* Fresh memory with the advice of the template, which stays where it is (Linux 5.7). A part, as OS_FRESH. */
static bool map_like(void *template, char *at, size_t bytes, int protection) {
    const int flags = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;
    for (size_t done = 0, some; done < bytes; done += some) {
        some = min_size(bytes - done, OS_TEMPLATE_BYTES);
        if (mremap(template, some, some, flags, at + done) != at + done)
            return false;
    }
    return mprotect(at, bytes, protection) == 0;
}

static bool map_fresh(enum os_map_kind kind, void *address, size_t bytes) {
    int protection = kind == OS_FRESH_SHUT ? PROT_NONE : PROT_READ | PROT_WRITE;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    void *huge = load_relaxed(&os_state.huge_template), *plain = load_relaxed(&os_state.plain_template);
    if (kind == OS_FRESH_HUGE && huge != NULL && map_like(huge, address, bytes, protection))
        return true;
    if (kind == OS_FRESH_PLAIN || (kind == OS_FRESH_HUGE && huge == NULL))
        return mmap(address, bytes, protection, flags, -1, 0) == address;
    return (plain != NULL && map_like(plain, address, bytes, protection)) ||
           mmap(address, bytes, protection, flags | MAP_STACK, -1, 0) == address;
}

void *os_map(enum os_map_kind kind, void *address, size_t bytes) {
    int saved = errno;
    if (kind >= OS_FRESH) {
        bool done = map_fresh(kind, address, bytes);
        errno = saved;
        return done ? address : NULL;
    }
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

static bool protect(void *address, size_t bytes, int protection) {
    int saved = errno;
    bool done = mprotect(address, bytes, protection) == 0;
    errno = saved;
    return done;
}

bool os_commit(void *address, size_t bytes) { return protect(address, bytes, PROT_READ | PROT_WRITE); }
bool os_forbid(void *address, size_t bytes) { return protect(address, bytes, PROT_NONE); }
bool os_freeze(void *address, size_t bytes) { return protect(address, bytes, PROT_READ); }

/* By libc's name, as all that drops pages: registration caches (MPI, UCX) watch these names. */
bool os_unmap(void *address, size_t bytes) {
    int saved = errno;
    bool done = munmap(address, bytes) == 0;
    errno = saved;
    return done;
}

/* Whether the kernel can read there: a word to wait at, for no time, if its value is an unlikely one. */
static bool can_read(uintptr_t address) {
    enum { UNLIKELY = 0x2e6a91c5 };
    static const struct timespec none = {0, 0};
    int saved = errno;
    syscall(SYS_futex, address & ~(uintptr_t)3, (long)FUTEX_WAIT_PRIVATE, (long)UNLIKELY, &none, 0L, 0L);
    bool readable = errno != EFAULT;
    errno = saved;
    return readable;
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

static bool is_zero(const char *at, size_t bytes) {
    uint64_t all = 0, word;
    for (size_t i = 0; i < bytes; i += sizeof word) {
        memcpy(&word, at + i, sizeof word);
        all |= word;
    }
    return all == 0;
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
            if (!can_read((uintptr_t)to + at) || is_zero(to + at, page))
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

/* ---- processors and nodes ---- */

/* The mode of seccomp: 0 without. For before main alone: there is no harmless way to ask later. */
static long seccomp_mode(void) { return os_call(SYS_prctl, PR_GET_SECCOMP, 0, 0); }

unsigned os_processor(void) {
    int saved = errno, number = sched_getcpu();
    errno = saved;
    return number > 0 ? (unsigned)number : 0;
}

static uint32_t count_processors(void) {
    uint64_t allowed[PROCESSORS_ASKED_MAX / 64];
    long bytes = os_call(SYS_sched_getaffinity, 0, sizeof allowed, (long)(uintptr_t)allowed);
    uint32_t n = 0;
    for (long i = 0; i < bytes / (long)sizeof *allowed; i++)
        n += count_bits(allowed[i]);
    return n;
}
unsigned os_processors(void) { return (unsigned)max_size(load_relaxed(&os_state.processors), 1); }

bool os_had_filter(void) { return os_state.seccomp_at_start > 0; }

/* A filter that was there before the program, such as a container's, may end it at this call. */
bool os_places_memory(void) {
    int policy = POLICY_DEFAULT;
    return seccomp_mode() == 0 && os_call(SYS_get_mempolicy, (long)&policy, 0, 0) == 0 && policy != POLICY_DEFAULT &&
           policy != POLICY_LOCAL;
}

bool os_purge(const struct os_range *ranges, unsigned n) {
    bool done = true;
    for (unsigned i = 0; i < n; i++)
        done &= os_advise(OS_PURGE, ranges[i].address, ranges[i].bytes);
    return done;
}

static bool emulator_has(void *page) {
    int saved = errno;
    unsigned char resident;
    bool has = mincore(page, os_page_bytes(), &resident) == 0 || errno != ENOMEM;
    errno = saved;
    return has;
}

/* Kernels before 5.7 know no move that keeps `from`, qemu's user mode before 8.1 unmaps it. */
enum move_support { MOVE_UNKNOWN, MOVE_KEEPS, MOVE_LACKS };

enum os_moved os_move(void *from, void *to, size_t bytes) {
    if (load_relaxed(&os_state.move) == MOVE_LACKS)
        return OS_MOVED_NOTHING;
    int saved = errno;
    bool done = mremap(from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to) == to;
    bool invalid = errno == EINVAL, is_known = load_relaxed(&os_state.move) != MOVE_UNKNOWN;
    errno = saved;
    if (!done) {
        if (invalid && !is_known)
            store_relaxed(&os_state.move, MOVE_LACKS);
        fill_holes(to, bytes);
        os_move_back(from, to, bytes);
        return OS_MOVED_NOTHING;
    }
    /* mprotect fails where nothing is mapped, and every sandbox allows it. In qemu it succeeds there, msync as
     * well, and MAP_FIXED_NOREPLACE finds the place occupied: only mincore tells, and only MAP_FIXED maps. */
    bool is_emulated = os_is_emulated(), kept = true;
    if (!is_known) {
        kept = is_emulated ? emulator_has(from) : os_commit(from, bytes) || os_is_mapped(from, bytes);
        store_relaxed(&os_state.move, kept ? MOVE_KEEPS : MOVE_LACKS);
    }
    return kept || os_map(is_emulated ? OS_FRESH : OS_AT, from, bytes) == from ? OS_MOVED_PAGES : OS_MOVED_MAPPING;
}

bool os_resident(void *address, size_t bytes, unsigned char *pages) {
    int saved = errno;
    bool done = mincore(address, bytes, pages) == 0;
    errno = saved;
    return done;
}

/* ---- threads ---- */

extern thread_starter __pthread_create HAK_WEAK; /* NOLINT: libc's own name, which only static programs can see */

static void find_program(void);
void os_find_threads(void) {
    find_program();
    os_state.seccomp_at_start = seccomp_mode();
    store_relaxed(&os_state.processors, count_processors());
    if (HAK_IS_SANITIZED)
        os_state.start_thread =
            pthread_create; /* the sanitizer has to know every thread that runs what it has compiled */
    else if (__pthread_create != NULL)
        os_state.start_thread = __pthread_create;
    else /* in libc, which is where a function lies that nobody wraps */
        os_state.start_thread = (thread_starter *)os_find_function(/* NOLINT: an address */
                                                                   "pthread_create", (uintptr_t)pthread_create,
                                                                   (uintptr_t)pthread_attr_setstacksize);
}

bool os_start_thread(void *(*run)(void *)) {
    if (os_state.start_thread == NULL)
        return false;
    int saved = errno;
    pthread_attr_t attributes;
    sigset_t all, before;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, THREAD_STACK_BYTES);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool done = os_state.start_thread(&thread, &attributes, run, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    errno = saved;
    return done;
}

bool os_at_thread_exit(void (*run)(void *), void *value) {
    uint32_t key = load_acquire(&os_state.exit_key);
    if (key == 0) { /* two first threads may both make a key; one of them is deleted again */
        pthread_key_t made;
        if (pthread_key_create(&made, run) != 0)
            return false;
        if (rmw_cas(&os_state.exit_key, &key, made + 1))
            key = made + 1;
        else
            pthread_key_delete(made);
    }
    return pthread_setspecific(key - 1, value) == 0;
}

void os_wait(_Atomic uint32_t *word, uint32_t value, unsigned ms) {
    struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    int saved = errno;
    bool ends = ms != OS_WITHOUT_END;
    syscall(SYS_futex, (long)word, (long)FUTEX_WAIT_PRIVATE, (long)value, ends ? (long)&time : 0L, 0L);
    errno = saved;
}
void os_wake(_Atomic uint32_t *word) { os_call(SYS_futex, (long)word, FUTEX_WAKE_PRIVATE, INT_MAX); }

/* Instead of membarrier, at which a sandbox may end the program. A processor empties its store buffer within a
 * microsecond, and has executed a fence when it goes on to another thread or to the host: so what any thread stored
 * when this began has long been seen when it ends. */
bool os_fence_threads(void) {
    static _Atomic uint32_t nobody_wakes;
    uint64_t end_ns = os_now_ns() + FENCE_MS * 1000000ull;
    atomic_thread_fence(memory_order_seq_cst);
    do
        os_wait(&nobody_wakes, 0, FENCE_MS);
    while (os_now_ns() < end_ns);
    atomic_thread_fence(memory_order_seq_cst);
    return true;
}

void os_allow_readers(void) {
    int saved = errno;
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    errno = saved;
}

static size_t limit_of(int resource) {
    int saved = errno;
    struct rlimit limit;
    bool known = getrlimit(resource, &limit) == 0;
    errno = saved;
    return known && limit.rlim_cur != RLIM_INFINITY ? (size_t)limit.rlim_cur : SIZE_MAX;
}
size_t os_address_limit(void) { return limit_of(RLIMIT_AS); }
size_t os_data_limit(void) { return limit_of(RLIMIT_DATA); }
int os_set_limit(int process, int resource, const struct rlimit *limit, struct rlimit *before) {
    return (int)syscall(SYS_prlimit64, (long)process, (long)resource, limit, before);
}

uint32_t os_now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (uint32_t)((uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000);
}

uint64_t os_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* What the kernel put on the stack: the number of arguments, these, NULL, the environment, NULL. glibc's loader tells
 * where. */
extern void *__libc_stack_end HAK_WEAK; /* NOLINT: its name */
char **os_environment(void) {
    if (environ != NULL || &__libc_stack_end == NULL || __libc_stack_end == NULL)
        return environ;
    const long *arguments = __libc_stack_end;
    return (char **)__libc_stack_end + 1 + *arguments + 1;
}
/* A mutex that checks for errors notes who holds it: glibc knows the number, and the kernel is not asked. */
uint32_t os_thread(void) {
#ifdef PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP
    pthread_mutex_t own = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
    pthread_mutex_lock(&own);
    uint32_t number = (uint32_t)own.__data.__owner;
    pthread_mutex_unlock(&own);
    return number;
#else
    return (uint32_t)os_call(SYS_gettid, 0, 0, 0);
#endif
}

uint64_t os_random(void) {
    uint64_t words[2] = {0, 0};
    const void *bytes = (const void *)getauxval(AT_RANDOM);
    if (bytes != NULL)
        memcpy(words, bytes, sizeof words);
    /* The stack protector uses the first word as it is: mix, so that neither gives the other away. */
    uint64_t x = words[0] ^ (words[1] << 32 | words[1] >> 32);
    x ^= x >> 30, x *= 0xbf58476d1ce4e5b9u, x ^= x >> 27, x *= 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static bool page_readable_now(uintptr_t page) { return can_read(page << PROBE_SHIFT); }

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
    if (address + bytes < address || address >> PROBE_SHIFT == 0)
        return false;
    for (uintptr_t page = address >> PROBE_SHIFT; page <= (address + bytes - 1) >> PROBE_SHIFT; page++)
        if (!readable(page))
            return false;
    return true;
}
bool os_readable(uintptr_t address, size_t bytes) { return pages_readable(address, bytes, page_readable); }
bool os_readable_now(uintptr_t address, size_t bytes) { return pages_readable(address, bytes, page_readable_now); }

static void find_program(void) {
    long room = (long)sizeof program_path;
    long length = syscall(SYS_readlinkat, (long)AT_FDCWD, (long)"/proc/self/exe", (long)program_path, room, 0L);
    program_path[length > 0 && length < room ? length : 0] = '\0';
}
const char *os_program(void) { return program_path[0] != '\0' ? program_path : (const char *)getauxval(AT_EXECFN); }

/* ---- the process ---- */

void os_keep_process(_Atomic uint32_t *number) {
    store_relaxed(&os_state.process, number);
    os_process();
}

uint32_t os_process(void) {
    _Atomic uint32_t *kept = load_relaxed(&os_state.process);
    uint32_t number = kept != NULL ? load_relaxed(kept) : 0;
    if (number != 0)
        return number;
    number = (uint32_t)getpid();
    if (kept != NULL)
        store_relaxed(kept, number);
    return number;
}

bool os_is_vforked(void) {
    _Atomic uint32_t *kept = load_relaxed(&os_state.process);
    uint32_t number = kept != NULL ? load_relaxed(kept) : 0;
    return number != 0 && number != (uint32_t)getpid();
}

/* The request that valgrind.h calls RUNNING_ON_VALGRIND: instructions that do nothing, behind which valgrind looks for
 * more. */
bool os_is_in_valgrind(void) {
    enum { RUNNING_ON_VALGRIND = 0x1001 };
    volatile uintptr_t request[6] = {RUNNING_ON_VALGRIND};
    uintptr_t answer = 0;
#if defined(__x86_64__)
    __asm__ volatile("rolq $3, %%rdi\n\trolq $13, %%rdi\n\trolq $61, %%rdi\n\trolq $51, %%rdi\n\txchgq %%rbx, %%rbx"
                     : "+d"(answer)
                     : "a"(request)
                     : "cc", "memory");
#else
    register uintptr_t result __asm__("x3") = answer;
    register volatile uintptr_t *of __asm__("x4") = request;
    __asm__ volatile(
        "ror x12, x12, #3\n\tror x12, x12, #13\n\tror x12, x12, #51\n\tror x12, x12, #61\n\torr x10, x10, x10"
        : "+r"(result)
        : "r"(of)
        : "cc", "memory");
    answer = result;
#endif
    return answer != 0;
}

bool os_is_privileged(void) { return getauxval(AT_SECURE) != 0; }

/* ---- files ---- */

size_t os_write(int fd, const char *text, size_t bytes) {
    int saved = errno;
    size_t done = 0;
    while (done < bytes) {
        long wrote = os_ask(SYS_write, fd, (long)(text + done), (long)(bytes - done));
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            break;
        done += (size_t)wrote;
    }
    errno = saved;
    return done;
}

static int open_file(const char *path, int flags) {
    int saved = errno;
    int fd = (int)syscall(SYS_openat, (long)AT_FDCWD, (long)path, (long)(flags | O_CLOEXEC), 0600L, 0L);
    errno = saved;
    return fd;
}

/* Bytes read, as many as there are at once; 0 at the end and on failure. */
static size_t read_some(int fd, char *buffer, size_t bytes) {
    int saved = errno;
    long n;
    do
        n = os_ask(SYS_read, fd, (long)buffer, (long)bytes);
    while (n < 0 && errno == EINTR);
    errno = saved;
    return n > 0 ? (size_t)n : 0;
}

/* Does only the system make what has this name? An entry of /dev itself, a terminal, a descriptor of this process:
 * /dev/stderr is a link. Other places may be anybody's: /dev/shm is, and so is where /proc/self/cwd leads. */
static bool is_of_system(const char *path) {
    static const char *const folders[] = {"/dev/", "/dev/fd/", "/dev/pts/", "/proc/self/fd/"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        size_t length = strlen(folders[i]);
        const char *name = path + length;
        if (strncmp(path, folders[i], length) == 0 && *name != '\0' && strchr(name, '/') == NULL &&
            strcmp(name, "..") != 0)
            return true;
    }
    return false;
}

bool os_is_device(const char *path) {
    struct stat s;
    int saved = errno;
    bool is = is_of_system(path) ||
              (syscall(SYS_newfstatat, (long)AT_FDCWD, (long)path, (long)&s, (long)AT_SYMLINK_NOFOLLOW, 0L) == 0 &&
               (S_ISFIFO(s.st_mode) || S_ISCHR(s.st_mode)));
    errno = saved;
    return is;
}

/* Whether what is there may be written to: a file under one name, or no file at all, which only this user or root
 * made. */
static bool is_own(int fd, const char *path, int flags) {
    struct stat s;
    uid_t user = (uid_t)os_call(SYS_geteuid, 0, 0, 0);
    int saved = errno;
    bool known = syscall(SYS_newfstatat, (long)fd, (long)path, (long)&s, (long)flags, 0L) == 0;
    errno = saved;
    return known && (s.st_uid == user || s.st_uid == 0) && (!S_ISREG(s.st_mode) || s.st_nlink == 1);
}

int os_open_output(const char *path) {
    if (is_of_system(path))
        return open_file(path, O_WRONLY | O_APPEND | O_NOCTTY);
    int fd = open_file(path, O_WRONLY | O_CREAT | O_EXCL);
    if (fd >= 0 || !is_own(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW))
        return fd;
    fd = open_file(path, O_WRONLY | O_NOFOLLOW | O_NOCTTY);
    if (fd >= 0 && !is_own(fd, "", AT_EMPTY_PATH)) { /* it was exchanged meanwhile */
        os_close(fd);
        return -1;
    }
    if (fd >= 0)
        os_call(SYS_ftruncate, fd, 0, 0); /* a FIFO has nothing to cut */
    return fd;
}

/* Its number is above what programs reach that close everything they opened. */
int os_keep_output(int fd) { return (int)os_call(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 200); }

uint64_t os_written(int fd) {
    long place = os_call(SYS_lseek, fd, 0, SEEK_CUR);
    return place > 0 ? (uint64_t)place : 0;
}

int os_open_input(const char *path) { return open_file(path, O_RDONLY); }

static bool is_file(int fd, const char *path, int flags) {
    struct stat s;
    int saved = errno;
    bool is = syscall(SYS_newfstatat, (long)fd, (long)path, (long)&s, (long)flags, 0L) == 0 && S_ISREG(s.st_mode);
    errno = saved;
    return is;
}

int os_open_file(const char *path) {
    int fd = is_file(AT_FDCWD, path, 0) ? open_file(path, O_RDONLY | O_NONBLOCK | O_NOCTTY) : -1;
    if (fd < 0 || is_file(fd, "", AT_EMPTY_PATH))
        return fd;
    os_close(fd); /* it was exchanged meanwhile */
    return -1;
}

size_t os_read_at(int fd, void *buffer, size_t bytes, uint64_t place) {
    int saved = errno;
    long n = syscall(SYS_pread64, (long)fd, (long)buffer, (long)bytes, (long)place, 0L);
    errno = saved;
    return n > 0 ? (size_t)n : 0;
}

void os_close(int fd) { os_call(SYS_close, fd, 0, 0); }

void os_copy_file(int fd, const char *path, char *buffer, size_t bytes) {
    int from = open_file(path, O_RDONLY);
    size_t n;
    if (from < 0)
        return;
    while ((n = read_some(from, buffer, bytes)) > 0)
        os_write(fd, buffer, n);
    os_close(from);
}

size_t os_read_file(const char *path, char *buffer, size_t bytes) {
    size_t got = 0;
    int fd = open_file(path, O_RDONLY);
    if (fd >= 0) {
        got = read_some(fd, buffer, bytes - 1);
        os_close(fd);
    }
    buffer[got] = '\0';
    return got;
}
