/* Everything that the library asks of libc and of the kernel; entry_test holds the library to this list.
 *
 * Add a name that the library comes to need here, with the reason. A function cannot be kAnyTime if it is a
 * cancellation point, takes one of libc's locks, opens a file or starts a thread: malloc is called with any of the
 * program's locks held, by threads that are being cancelled, and in sandboxes. */
/* SPDX-License-Identifier: MIT */
#ifndef HAKMEM_TESTS_ENTRY_ASKED_H
#define HAKMEM_TESTS_ENTRY_ASKED_H

#include <sys/syscall.h>

/* Who makes the call once the library has started. */
enum class When {
    kAnyTime, /* malloc, free and the rest */
    kSamples, /* malloc and free of a sampled block: PROFILE, GUARD_SAMPLE_BYTES, hak_profile_start */
    kPurger,  /* the purger, and malloc when it starts the purger: in a program with threads, without a sandbox */
    kEnding,  /* a call that ends the program with a line of output, and the crash line */
    kRequest, /* statistics, malloc_info, options, the profile's file: on a call, at exit, or at SOFT_LIMIT */
    kStart,   /* nobody: only before main */
    kLinker,  /* nobody by name: the compiler and the linker insert it, or it is not a function */
};

struct Asked {
    const char *name;
    When when;
    const char *why;
};

constexpr Asked kSymbols[] = {
    /* From libc: these compute, or are plain system calls. */
    {"__errno_location", When::kAnyTime, "errno"},
    {"memcmp", When::kAnyTime, "computes"},
    {"memchr", When::kAnyTime, "computes; clang's strchr"},
    {"bcmp", When::kAnyTime, "computes; clang's memcmp"},
    {"memcpy", When::kAnyTime, "computes"},
    {"memmove", When::kAnyTime, "computes"},
    {"memset", When::kAnyTime, "computes"},
    {"strchr", When::kAnyTime, "computes"},
    {"strcmp", When::kAnyTime, "computes"},
    {"strcspn", When::kAnyTime, "computes"},
    {"strlen", When::kAnyTime, "computes"},
    {"strncmp", When::kAnyTime, "computes"},
    {"strspn", When::kAnyTime, "computes"},
    {"strstr", When::kAnyTime, "computes"},
    {"getauxval", When::kAnyTime, "computes: the page size; reads what the kernel put on the stack"},
    {"clock_gettime", When::kAnyTime,
     "how old EMPTY slots are, and what pages cost, without the kernel; with ACE also the process's CPU time"},
    {"mmap", When::kAnyTime, "the region, SuperSlabs in a window"},
    {"mprotect", When::kAnyTime, "commits the region"},
    {"madvise", When::kAnyTime, "purges"},
    {"munmap", When::kAnyTime, "what two threads mapped at once, scratch memory"},
    {"mremap", When::kAnyTime, "realloc of a huge block moves pages; memory with the advice of a template"},
    {"__libc_malloc", When::kAnyTime, "SUPERSLAB=0: libc's own allocator serves"},
    {"__libc_calloc", When::kAnyTime, "likewise"},
    {"__libc_realloc", When::kAnyTime, "likewise"},
    {"__libc_memalign", When::kAnyTime, "likewise"},
    {"__libc_free", When::kAnyTime, "likewise"},
    {"syscall", When::kAnyTime, "what libc would make a cancellation point; which calls, the list below says"},
    {"pthread_key_create", When::kAnyTime, "a thread's heap is given back at its end; glibc takes no lock for it"},
    {"pthread_key_delete", When::kAnyTime, "two first threads made a key; no lock"},
    {"pthread_setspecific", When::kAnyTime, "a thread's first malloc; may allocate, which the heap is ready for"},
    {"sched_getcpu", When::kAnyTime, "where several NUMA nodes are: reads a word of the kernel's in user space"},
    {"__rseq_size", When::kLinker, "libc's, data: is there such a word? aarch64"},
    {"pthread_self", When::kSamples, "computes: is the state that Python gives this thread's?"},
    {"PyGILState_GetThisThreadState", When::kSamples, "Python's, if it is there: reads a thread-local variable"},
    {"Py_Version", When::kLinker, "Python's, data"},
    {"PyCode_Type", When::kLinker, "likewise"},
    {"PyIter_Send", When::kLinker, "Python's: is never called, is there since 3.10"},
    {"PyThreadState_GetFrame", When::kLinker, "likewise, since 3.9"},
    {"_dl_find_object", When::kSamples, "whose code an address is; made for signal handlers, without a lock"},

    {"pthread_create", When::kPurger, "where libc has no table to look its own one up in"},
    {"__pthread_create", When::kPurger, "libc's own, in static programs"},
    {"pthread_attr_init", When::kPurger, "detached, with a small stack"},
    {"pthread_attr_destroy", When::kPurger, "likewise"},
    {"pthread_attr_setdetachstate", When::kPurger, "likewise"},
    {"pthread_attr_setstacksize", When::kPurger, "likewise"},
    {"pthread_sigmask", When::kPurger, "it takes no signal of the program's"},
    {"sigfillset", When::kPurger, "likewise"},

    {"strrchr", When::kEnding, "computes: the name of the library's file, to leave its calls out of a report"},
    {"abort", When::kEnding, "after the line of a failure"},
    {"raise", When::kEnding, "the signal that the crash line was written for"},
    {"sigaddset", When::kRequest, "the program's sigset, signal and the like, while crashes are caught"},
    {"sigemptyset", When::kRequest, "likewise"},
    {"sigismember", When::kRequest, "likewise"},
    {"sigprocmask", When::kRequest, "likewise"},
    {"getpid", When::kStart, "ACE=on, statistics, names of files; later only in the child of a fork"},
    {"mincore", When::kRequest, "hak_stats_print and hak_stats_json: what is resident"},
    {"fwrite", When::kRequest, "malloc_info, which disables cancellation: the stream is the caller's"},
    {"pthread_setcancelstate", When::kRequest, "likewise"},
    {"__environ", When::kRequest, "options, read at the first call of any that comes before the start"},
    {"environ", When::kRequest, "likewise"},
    {"__libc_stack_end", When::kRequest, "likewise"},
    {"hak_options", When::kRequest, "likewise; the program's"},
    {"__rseq_offset", When::kAnyTime, "a variable: where the thread's restartable sequence is"},
    {"__rseq_size", When::kAnyTime, "a variable"},

    {"dl_iterate_phdr", When::kStart,
     "libc's own pthread_create and, with SUPERSLAB=0, malloc_usable_size; takes the dynamic linker's lock. Also where "
     "operator new has no memory, and the program no C++ library"},
    {"uname", When::kStart, "which kernel: does MAP_STACK refuse huge pages?"},
    {"getrlimit", When::kStart,
     "RLIMIT_AS and RLIMIT_DATA; later where reserving addresses has failed, and in mlockall"},
    {"prctl", When::kStart, "INSPECT=1; with NAME_MAPPINGS=1 also whoever maps memory"},
    {"__sigaction", When::kRequest,
     "CRASH_LOG and GUARD_SAMPLE_BYTES: at the start, or when the option is set; the end of a crash"},
    {"pthread_mutex_lock", When::kSamples, "a mutex of the function's own notes which thread this is"},
    {"pthread_mutex_unlock", When::kSamples, "likewise"},

    {"__cxa_finalize", When::kLinker, "of every shared library"},
    {"__gmon_start__", When::kLinker, "of every shared library"},
    {"_ITM_deregisterTMCloneTable", When::kLinker, "of every shared library"},
    {"_ITM_registerTMCloneTable", When::kLinker, "of every shared library"},
    {"__stack_chk_fail", When::kLinker, "compilers that protect stacks by default"},
    {"__tls_get_addr", When::kLinker, "the checked build's count, on machines that reach it so"},
    {"__gxx_personality_v0", When::kLinker, "operator new(nothrow) where the new_handler throws"},
    {"__cxa_begin_catch", When::kLinker, "likewise"},
    {"__cxa_end_catch", When::kLinker, "likewise"},
    {"_Unwind_Resume", When::kLinker, "likewise"},
    {"_ZSt9terminatev", When::kLinker, "likewise"},
    {"_ZSt15get_new_handlerv", When::kLinker, "operator new without memory"},
    {"_ZSt17__throw_bad_allocv", When::kLinker, "likewise"},
};

/* Functions that POSIX allows to be cancellation points, and that libc's code might one day need. */
constexpr const char *kCancellationPoints[] = {
    "accept", "aio_suspend", "clock_nanosleep", "close", "connect", "creat", "fcntl", "fcntl64", "fdatasync", "fsync",
    "getmsg", "getpmsg", "lockf", "mq_receive", "mq_send", "msgrcv", "msgsnd", "msync", "nanosleep", "open", "open64",
    "openat", "openat64", "pause", "poll", "ppoll", "pread", "pread64", "preadv", "pselect", "pthread_cond_timedwait",
    "pthread_cond_wait", "pthread_join", "pthread_testcancel", "putmsg", "pwrite", "pwrite64", "pwritev", "read",
    "readv", "recv", "recvfrom", "recvmsg", "select", "sem_timedwait", "sem_wait", "send", "sendmsg", "sendto",
    "sigpause", "sigsuspend", "sigtimedwait", "sigwait", "sigwaitinfo", "sleep", "system", "tcdrain", "usleep", "wait",
    "waitid", "waitpid", "write", "writev",
    /* POSIX permits these to be, but does not require it */
    "access", "chdir", "dlclose", "dlopen", "dprintf", "fclose", "fdopen", "fflush", "fgets", "fopen", "fprintf",
    "fputs", "fputc", "fread", "fscanf", "fseek", "fstat", "ftell", "getcwd", "getc", "gets", "glob", "ioctl",
    "openlog", "opendir", "popen", "posix_fadvise", "printf", "putc", "puts", "pthread_rwlock_rdlock",
    "pthread_rwlock_wrlock", "readdir", "readlink", "rename", "stat", "syslog", "unlink", "vfprintf", "vprintf"};

/* A system call. Where only one value of an argument is right, the filter also checks that argument. */
struct Call {
    long number;
    const char *name;
    When when;
    int argument; /* which one is checked; -1 for none */
    unsigned value;
    const char *why;
};

constexpr int kFutexWakePrivate = 129, kFutexWaitPrivate = 128, kDontNeed = 4, kFree = 8;
/* No call that glibc's malloc does not make, too. */
constexpr Call kCalls[] = {
    {SYS_mmap, "mmap", When::kAnyTime, -1, 0, "SuperSlabs"},
    {SYS_munmap, "munmap", When::kAnyTime, -1, 0, "what two threads mapped at once"},
    {SYS_mremap, "mremap", When::kAnyTime, -1, 0, "realloc of a huge block moves pages; huge pages"},
    {SYS_mprotect, "mprotect", When::kAnyTime, -1, 0, "tables; guards"},
    {SYS_madvise, "madvise", When::kAnyTime, 2, kDontNeed, "purges"},
    {SYS_madvise, "madvise", When::kAnyTime, 2, kFree, "purges that the system may do later"},
    {SYS_futex, "futex", When::kAnyTime, 1, kFutexWakePrivate, "wakes the purger; waits for nobody"},
    {SYS_futex, "futex", When::kSamples, 1, kFutexWaitPrivate,
     "can a place on the stack be read? For no time, and for a value that is not there"},
};

#endif
