/* os.h on Linux, with os_memory.c and os_files.c, over libc's thin wrappers where those are no cancellation points: a
 * thread that is being cancelled would end inside malloc, whose caller may hold locks or be noexcept. libc may
 * cancel a thread in open, read, write, close, nanosleep, msync and fcntl, so these go to the kernel by syscall().
 * tests/entry holds the list.
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
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define THREAD_STACK_BYTES (256 * KIB) /* the program's thread-local variables have room in it */

enum { FENCE_MS = 20 };
enum { POLICY_DEFAULT = 0, POLICY_LOCAL = 4 }; /* both: a page lies where it is first touched */

#ifndef PR_SET_PTRACER
#define PR_SET_PTRACER 0x59616d61
#endif
#ifndef PR_SET_PTRACER_ANY
#define PR_SET_PTRACER_ANY ((unsigned long)-1)
#endif

/* libc's own pthread_create. One that the program or a preloaded tool has put in its place may take locks and allocate
 * under them: called from within malloc, it would wait for itself. */
typedef int thread_starter(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

enum { PROCESSORS_ASKED_MAX = 1024 }; /* malloc's stack is small */

/* What is known of the system. The atomics pair with themselves: every thread that finds something out stores the same
 * value, and no other memory depends on the value, so relaxed accesses are enough. One compare-and-swap makes
 * `exit_key`. */
static struct os_state {
    /* Any thread. */
    _Atomic uint32_t processors;   /* 0: not asked yet, or not known */
    _Atomic uint32_t process_kept; /* the last number that was kept, by this process or one whose copy it is */
    _Atomic uint32_t exit_key;     /* the pthread key of os_at_thread_exit, + 1; 0: none yet */
    /* Constant after the start. */
    _Atomic(_Atomic uint32_t *) process; /* where its number is kept; NULL: nowhere */
    long seccomp_at_start;               /* the mode; a container's filter refuses without killing */
    thread_starter *start_thread;        /* NULL: not known */
} os_state;
_Atomic size_t os_page_bytes_known;       /* likewise */
static HAK_APART char program_path[1024]; /* as os_state's constants; "" if it is longer */

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
    size_t known = load_relaxed(&os_page_bytes_known);
    if (known == 0) {
        known = getauxval(AT_PAGESZ);
        store_relaxed(&os_page_bytes_known, known);
    }
    return known;
}

/* ---- processors and nodes ---- */

/* The mode of seccomp: 0 without. For before main alone: there is no harmless way to ask later. */
static long seccomp_mode(void) { return os_call(SYS_prctl, PR_GET_SECCOMP, 0, 0); }

unsigned os_processor(void) {
    int saved = errno, number = (int)os_answer(saved, sched_getcpu());
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
    syscall(SYS_futex, (long)word, (long)FUTEX_WAIT_PRIVATE, (long)value, ends ? (long)&time : 0L);
    errno = saved;
}
void os_sleep(unsigned ms) {
    static _Atomic uint32_t nobody_wakes;
    os_wait(&nobody_wakes, 0, ms);
}
void os_wake(_Atomic uint32_t *word) { os_call(SYS_futex, (long)word, FUTEX_WAKE_PRIVATE, INT_MAX); }

/* Instead of membarrier, at which a sandbox may end the program. A processor empties its store buffer within a
 * microsecond, and has executed a fence when it goes on to another thread or to the host: so what any thread stored
 * when this began has long been seen when it ends. */
bool os_fence_threads(void) {
    uint64_t end_ns = os_now_ns() + FENCE_MS * 1000000ull;
    atomic_thread_fence(memory_order_seq_cst);
    do
        os_sleep(FENCE_MS);
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
size_t os_locked_limit(void) { return limit_of(RLIMIT_MEMLOCK); }
int os_set_limit(int process, int resource, const struct rlimit *limit, struct rlimit *before) {
    return (int)syscall(SYS_prlimit64, (long)process, (long)resource, limit, before);
}
int os_lock_all(int flags) { return (int)syscall(SYS_mlockall, (long)flags); }

static uint64_t read_clock(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}
uint32_t os_now_ms(void) { return (uint32_t)(read_clock(CLOCK_MONOTONIC_COARSE) / 1000000); }
uint64_t os_now_ns(void) { return read_clock(CLOCK_MONOTONIC); }
uint64_t os_cpu_ns(void) { return read_clock(CLOCK_PROCESS_CPUTIME_ID); }

/* ---- was the thread switched out? ---- */

#if defined(__x86_64__)
#define RSEQ_SIGNATURE 0x53053053
#define READ_THREAD_POINTER "mov %%fs:0, %0"
#elif defined(__aarch64__)
#define RSEQ_SIGNATURE 0xd428bc00
#define READ_THREAD_POINTER "mrs %0, tpidr_el0"
#elif defined(__riscv)
#define RSEQ_SIGNATURE 0xf1401073
#define READ_THREAD_POINTER "mv %0, tp"
#endif

/* What libc has agreed on with the kernel for each thread (linux/rseq.h, glibc 2.35). When the kernel returns to a
 * thread that was switched out, it clears `sequence`, unless the thread is in the code that this names. */
struct rseq {
    uint32_t cpu_start;
    int32_t cpu; /* negative: libc could not agree */
    const struct rseq_sequence *volatile sequence;
};
struct rseq_sequence {
    uint32_t version, flags;
    const uint32_t *start; /* of code … */
    uint64_t bytes;
    const uint32_t *abort; /* and where the thread would go on; the signature stands before it */
} __attribute__((aligned(32)));
static const uint32_t no_code[] = {0, RSEQ_SIGNATURE, 0};
static const struct rseq_sequence in_no_code = {.start = &no_code[0], .bytes = 1, .abort = &no_code[2]};

extern const ptrdiff_t __rseq_offset HAK_WEAK; /* NOLINT: their names */
extern const unsigned __rseq_size HAK_WEAK;    /* NOLINT */

static struct rseq *own_rseq(void) {
    if (&__rseq_size == NULL || &__rseq_offset == NULL || __rseq_size == 0)
        return NULL;
    char *thread;
    __asm__(READ_THREAD_POINTER : "=r"(thread));
    struct rseq *own = (struct rseq *)(thread + __rseq_offset);
    return own->cpu >= 0 ? own : NULL;
}
void os_watch_switches(void) {
    struct rseq *own = own_rseq();
    if (own != NULL)
        own->sequence = &in_no_code;
}
bool os_was_switched(void) {
    struct rseq *own = own_rseq();
    bool was = own != NULL && own->sequence == NULL;
    if (own != NULL)
        own->sequence = NULL;
    return was;
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

static uint64_t mix(uint64_t x) {
    x ^= x >> 30, x *= 0xbf58476d1ce4e5b9u, x ^= x >> 27, x *= 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* From two words. libc uses them as they are, the first for the stack protector: mixed, so that neither gives the other
 * away. Whoever knows one number still lacks a word for the next. */
uint64_t os_random(enum os_random which) {
    uint64_t words[2] = {0, 0};
    const void *bytes = (const void *)getauxval(AT_RANDOM);
    if (bytes != NULL)
        memcpy(words, bytes, sizeof words);
    return mix(mix(words[0] + (which + 1) * 0x9e3779b97f4a7c15u) ^ words[1]);
}

static void find_program(void) {
    int saved = errno; /* where there is no such file main would begin with an error */
    long room = (long)sizeof program_path;
    long length = syscall(SYS_readlinkat, (long)AT_FDCWD, (long)"/proc/self/exe", (long)program_path, room);
    errno = saved;
    program_path[length > 0 && length < room ? length : 0] = '\0';
}
const char *os_program(void) { return program_path[0] != '\0' ? program_path : (const char *)getauxval(AT_EXECFN); }

/* ---- the process ---- */

static void keep_process(_Atomic uint32_t *kept, uint32_t number) {
    store_relaxed(kept, number); /* not read first: that were a page fault more */
    store_relaxed(&os_state.process_kept, number);
}
void os_keep_process(_Atomic uint32_t *number) {
    keep_process(number, (uint32_t)getpid());
    store_relaxed(&os_state.process, number);
}

static uint32_t kept_process(void) {
    _Atomic uint32_t *kept = load_relaxed(&os_state.process);
    return kept != NULL ? load_relaxed(kept) : 0;
}

/* No number is kept yet: is the calling thread the first of a process with memory of its own? To glibc a vfork's child
 * is still the thread that made it; so is a child by a system call, whose memory is a copy of its parent's. musl does
 * not keep the number of a thread, so there the first process to ask after a fork is taken for the fork's child. */
static bool is_copy(uint32_t process) {
    uint32_t thread = os_thread();
    return thread == process || thread == load_relaxed(&os_state.process_kept);
}

uint32_t os_process(void) {
    uint32_t number = kept_process();
    if (number != 0)
        return number;
    number = (uint32_t)getpid();
    if (load_relaxed(&os_state.process) != NULL && is_copy(number))
        keep_process(load_relaxed(&os_state.process), number);
    return number;
}

bool os_is_vforked(void) {
    uint32_t number = kept_process(), own = (uint32_t)getpid();
    return number != 0 ? number != own : !is_copy(own) && os_thread() != (uint32_t)os_call(SYS_gettid, 0, 0, 0);
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
#elif defined(__aarch64__)
    register uintptr_t result __asm__("x3") = answer;
    register volatile uintptr_t *of __asm__("x4") = request;
    __asm__ volatile(
        "ror x12, x12, #3\n\tror x12, x12, #13\n\tror x12, x12, #51\n\tror x12, x12, #61\n\torr x10, x10, x10"
        : "+r"(result)
        : "r"(of)
        : "cc", "memory");
    answer = result;
#else /* riscv64: in valgrind since 3.25, by an instruction of its own */
    (void)request;
#endif
    return answer != 0;
}

/* They lie between the random bytes and the program's name. */
bool os_is_from_start(const char *s) {
    return (uintptr_t)s > getauxval(AT_RANDOM) && (uintptr_t)s < getauxval(AT_EXECFN) && getauxval(AT_RANDOM) != 0;
}
bool os_began_as_root(void) { return getauxval(AT_EUID) == 0; }
bool os_is_privileged(void) { return getauxval(AT_SECURE) != 0; }
