/* All that HAKMEM asks of the operating system, in one page.
 *
 * Every call keeps errno and reports by its return value, so that free never changes errno. Every call may fail, and
 * callers go on without it. The kernel works through a range page by page and mapping by mapping, and may refuse or be
 * interrupted anywhere. So each call on a range says what was done after a failure: "nothing", or "a part", which may
 * be any of the pages. tests/fault makes each call fail in both ways.
 * Addresses and sizes are multiples of os_page_bytes() unless said otherwise.
 * All may be called from any thread; none allocates. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "base/base.h"

enum os_map_kind {
    /* address space alone, without access: anywhere, or at exactly this address if it is not NULL. All or nothing */
    OS_RESERVE,
    OS_MEMORY, /* readable and writable memory anywhere. All or nothing */
    /* readable and writable memory at exactly this address; fails where something is mapped. All or nothing */
    OS_AT,
    /* replaces what is mapped at exactly this address by fresh memory. All, or a part: then any of the pages may no
     * longer be mapped, and the others hold what they held */
    OS_FRESH,
    /* As OS_FRESH, but without access; with pages of the size that the system gives where none is asked for; with huge
     * pages, where there is a template for them. All other kinds refuse huge pages. */
    OS_FRESH_SHUT,
    OS_FRESH_PLAIN,
    OS_FRESH_HUGE,
};
/* The first four are given only before main, those about dumps also where the program asks for it: a sandbox that the
 * program has entered may end it at any advice that glibc's malloc does not give. Memory that is mapped later has the
 * advice of its template (os_template). */
enum os_advice {
    OS_HUGE,    /* huge pages wanted. A part: a hint for some of the pages */
    OS_NO_HUGE, /* huge pages not wanted, whatever the system's default is. A part, likewise */
    OS_WIPE,    /* the child of a fork sees zero here. A part: the child sees zero in some of the pages */
    OS_NO_DUMP, /* core dumps leave the pages out. A part: they have some of the pages */
    OS_DUMP,    /* core dumps have the pages again. A part: they lack some of the pages */
    OS_PURGE,   /* the pages go back and read as zero afterwards. A part: each page reads as zero or as before */
    /* The system may take each page until that is next written to; the page reads as zero then. A part: the system may
     * take some of the pages. */
    OS_LAZY,
};
/* Before main, once: makes reserved addresses templates, first for OS_FRESH_HUGE, then for OS_FRESH where the kernel
 * needs one. Nothing else may use them. */
#define OS_TEMPLATE_BYTES (16 * MIB)
#define OS_TEMPLATES_BYTES (2 * OS_TEMPLATE_BYTES)
void os_make_templates(void *address, bool huge);
bool os_end_templates(void); /* true: from now on nothing is mapped like them, and they may be unmapped */
void os_know_kernel(void);   /* at the start: what its version tells of moves */

size_t os_page_bytes(void);
extern HAK_HIDDEN _Atomic size_t os_page_bytes_known; /* 0: not asked yet. For inspect.c */
unsigned os_processor(void);   /* the number of the processor that runs this thread; 0 where that is not known */
unsigned os_processors(void);  /* how many may run the program's threads; 1 where that is not known */
bool os_knows_processor(void); /* os_processor makes no system call here */
bool os_had_filter(void);      /* there was a seccomp filter at the start; one that came later is not known */
bool os_places_memory(void);   /* the program has a memory policy (numactl); false where asking may be fatal */
bool os_has_wide(void);        /* HAK_WIDE: the processor has such vectors, and the kernel keeps them */
void *os_map(enum os_map_kind kind, void *address, size_t bytes); /* NULL: no memory; OS_OCCUPIED: something is there */
#define OS_OCCUPIED ((void *)-1)
/* At the start: maps and smaps name what lies between these addresses, and all that is mapped from now on: from `slabs`
 * on "hakmem: slabs", elsewhere and where the system chose the place "hakmem: tables". A hint, until it is refused. */
void os_name_mappings(void *tables, void *slabs);
bool os_unmap(void *address, size_t bytes); /* all, or a part: the other pages hold what they held */
/* These change the access and not the contents. A part: each page has the access it had, or the new one. */
bool os_commit(void *address, size_t bytes); /* readable and writable; ends what the next two began */
bool os_forbid(void *address, size_t bytes); /* no access */
bool os_freeze(void *address, size_t bytes); /* read-only */
bool os_advise(enum os_advice advice, void *address, size_t bytes);
/* Moves the pages of `from` to `to`, which must read as zero. All or nothing, wherever the kernel stops; but if nothing
 * was moved, any page of `to` may be unmapped, or have memory. */
enum os_moved {
    OS_MOVED_NOTHING, /* `from` holds what it held */
    OS_MOVED_PAGES,   /* all; `from` is mapped and reads as zero */
    OS_MOVED_MAPPING, /* all; `from` is no longer mapped */
};
enum os_moved os_move(void *from, void *to, size_t bytes);
bool os_is_mapped(void *address, size_t bytes); /* all of it. Cannot fail, because it allocates nothing */
/* One byte for each page, bit 0: resident. Nothing is known after a failure, whatever `pages` holds. malloc and free
 * must not call this, nor may anything that the program did not ask for: a sandbox may end the program at this call. */
bool os_resident(void *address, size_t bytes, unsigned char *pages);
/* Before main, once: asks how many processors there are, and looks up what os_start_thread needs, with calls that take
 * the dynamic linker's locks. */
void os_find_threads(void);
/* Starts a detached thread with all signals blocked, by libc's own pthread_create and not by one that the program or a
 * tool has put in its place; may allocate. False: it failed, libc's own is not known, or a sandbox is there. */
bool os_start_thread(void *(*run)(void *));
/* run(value) is called when this thread ends, and once more if this was called again meanwhile. All threads pass the
 * same `run`. */
bool os_at_thread_exit(void (*run)(void *), void *value);
/* Waits while *word == value, until os_wake, for at most `ms` milliseconds; may return early. */
void os_wait(_Atomic uint32_t *word, uint32_t value, unsigned ms);
#define OS_WITHOUT_END UINT32_MAX
void os_wake(_Atomic uint32_t *word);
void os_sleep(unsigned ms);
/* Afterwards every thread of the process sees what this thread stored before, and this thread sees what they stored
 * before, as if each had executed a fence. Takes 20 ms. */
bool os_fence_threads(void);   /* true */
void os_allow_readers(void);   /* lets processes of the same user read this one where Yama forbids it */
size_t os_address_limit(void); /* bytes of address space this process may still have; SIZE_MAX without limit */
size_t os_data_limit(void);    /* bytes of writable memory of its own that it may still have, likewise */
size_t os_locked_limit(void);  /* bytes that it may lock, likewise */
/* prlimit and mlockall, where libc's cannot be found. They set errno as those do. */
struct rlimit;
int os_set_limit(int process, int resource, const struct rlimit *limit, struct rlimit *before);
int os_lock_all(int flags);
uint32_t os_now_ms(void); /* coarse, monotonic, wraps after 49 days */
uint64_t os_now_ns(void); /* exact, monotonic */
uint64_t os_cpu_ns(void); /* that all threads of the process have used */
/* What the thread does between these two may be timed unless the kernel has switched it out meanwhile, or a signal has
 * come. false, too, where the kernel does not tell: without restartable sequences (rseq). */
void os_watch_switches(void);
bool os_was_switched(void);
/* Milliseconds from `then` to `now`; 0 if another thread has set `then` meanwhile, a minute ahead at most. A `then`
 * that is older than 49 days, or 0 because it was never set, may look young for as long as the age that is asked
 * about. */
#define OS_AHEAD_MS_MAX 60000
HAK_INLINE uint32_t os_age_ms(uint32_t now, uint32_t then) {
    return now - then <= UINT32_MAX - OS_AHEAD_MS_MAX ? now - then : 0;
}
/* A moment to be stored where 0 means never; whether the one that was stored is less than `ms` ago. */
HAK_INLINE uint32_t os_stamp_ms(void) { return os_now_ms() | 1; }
HAK_INLINE bool os_is_recent(uint32_t stamp_ms, uint64_t ms) {
    return stamp_ms != 0 && os_age_ms(os_now_ms(), stamp_ms) < ms;
}
char **os_environment(void); /* also before libc has started; NULL: not to be had yet */
/* qemu's user mode runs the program; it keeps a few bytes for each mapped page, accessible or not. The first call must
 * come before the program may have changed its environment. Makes no system call. */
bool os_is_emulated(void);
bool os_is_in_valgrind(void);         /* makes no system call */
bool os_is_from_start(const char *s); /* one of the strings that the kernel put on the stack: it may be written */
bool os_began_as_root(void);          /* makes no system call */
bool os_is_privileged(void);          /* the environment belongs to a user with fewer rights (setuid) */
uint32_t os_process(void);            /* the kernel's number of this process; asked once, if there is a place for it */
/* From now on os_process keeps the number there; a fork's child must find zero in it. */
void os_keep_process(_Atomic uint32_t *number);
bool os_is_vforked(void); /* this is a process of its own, in the memory of the one that os_process names */
uint32_t os_thread(void); /* the kernel's number of this thread */
/* Random numbers: not predictable from outside, constant for the life of the process; none tells anything about
 * another. */
enum os_random { OS_RANDOM_KEY, OS_RANDOM_SECOND_KEY, OS_RANDOM_PLACE, OS_RANDOM_SEED };
uint64_t os_random(enum os_random which);
enum { OS_PAGE_SHIFT = 12 }; /* of the smallest page there is */
/* Can these bytes be read? Remembers pages that could be read, so it is for places that probably still exist. Works in
 * a signal handler, too. */
bool os_readable(uintptr_t address, size_t bytes);
bool os_readable_now(uintptr_t address, size_t bytes); /* likewise, but asks the kernel each time */
/* A loaded file: the program, or a library. */
struct os_module {
    uintptr_t begin, end;        /* addresses: of all of it, or of a part where others may lie between */
    uintptr_t base;              /* how far its own addresses were moved */
    uint64_t identity;           /* differs if another one lies where this one did: of its segments and its build id */
    const char *path;            /* as the dynamic linker names it: "" for the program. While it stays loaded */
    const uint8_t *unwind_table; /* its .eh_frame_hdr, NULL if it has none */
    const uint8_t *table_begin, *table_end; /* the segment in which that lies: readable throughout */
};
/* False: the address is in no known module. Without glibc's _dl_find_object (2.35) only the program and this library
 * are known. Takes no lock; works in a signal handler, too, and while libraries are loaded and unloaded. */
bool os_find_module(uintptr_t address, struct os_module *module);
void os_know_modules(void); /* at the start: until then a static program asks itself alone */
/* The file of the module at the address, and how far its addresses were moved. Asks nothing of the kernel; false
 * without _dl_find_object. */
bool os_find_file(uintptr_t address, const char **path, uintptr_t *base);
/* The address that the module at `beside` itself has under that name, whoever else has the name; 0: none. `bound` is
 * the address that this library has bound to it: that is taken if it lies in the module and the module has no table of
 * names. `beside` 0: of the first module that has the name. Takes the dynamic linker's lock. */
uintptr_t os_find_function(const char *name, uintptr_t bound, uintptr_t beside);
/* What the program would call by a name if this library were not there. */
struct os_next {
    const char *name;
    /* The first function behind this library, in the order of loading; else the first of all; 0: there is none. */
    uintptr_t address;
    bool is_behind; /* it is behind this library */
    bool is_first;  /* nothing that was loaded before this library has the name */
};
/* Fills in all but the names. Takes the dynamic linker's lock. */
void os_find_next(struct os_next *next, unsigned count);
/* The ELF header, as it is mapped; NULL: there is none. */
const void *os_module_header(const struct os_module *module);
/* The build ID that the linker wrote into the module. False: there is none. */
#define OS_BUILD_ID_MAX 32
struct os_build_id {
    const uint8_t *bytes;
    size_t count;   /* at most OS_BUILD_ID_MAX */
    uint64_t place; /* in the file */
};
bool os_build_id(const struct os_module *module, struct os_build_id *id);
/* The path of the program's file at the start; if that could not be found out, the name by which the program was
 * called. */
const char *os_program(void);
/* Calls `act` on this signal, in its handler; if `at_default`, only if the signal ends the program now. */
bool os_on_signal(int signal_number, bool at_default, void (*act)(int signal_number));
void os_end_by(int signal_number); /* as the signal does without a handler; in its handler: when that returns */
void os_write(int fd, const char *text, size_t bytes); /* whole, restarted when interrupted; gives up at an error */
/* Makes a file that this user alone may access. An existing file is emptied if it is this user's or root's, and no link
 * (except in /dev, as /dev/stderr is). A FIFO or device is opened as it is. -1 on failure. */
int os_open_output(const char *path);
bool os_is_device(const char *path); /* a device or a FIFO, where writing overwrites nothing */
uint64_t os_written(int fd);         /* bytes in a file that was just written; 0: not known */
/* Appends to `fd` what can be read from the file, by way of the buffer. */
void os_copy_file(int fd, const char *path, char *buffer, size_t bytes);
int os_open_input(const char *path); /* -1 on failure */
int os_open_file(const char *path);  /* only a regular file: opening never waits, and has no other effect */
/* Returns how many bytes were read from `place` on, fewer at the end; 0 on failure. */
size_t os_read_at(int fd, void *buffer, size_t bytes, uint64_t place);
void os_close(int fd);
/* A private copy of a descriptor, which programs do not close by accident. Those that close whatever they did not open
 * may give its number to a file of their own, to which nothing of ours may go. */
struct os_kept {
    int fd;                /* -1: there is none */
    uint64_t device, file; /* where it led when it was made */
};
struct os_kept os_keep_output(int fd);
bool os_is_kept(const struct os_kept *kept); /* the descriptor leads there still */
/* A descriptor that leads there still: the copy, or `fd`, of which it was made; or -1. */
int os_kept_at(const struct os_kept *kept, int fd);
size_t os_read_file(const char *path, char *buffer, size_t bytes); /* terminated; 0 when it cannot be read */
