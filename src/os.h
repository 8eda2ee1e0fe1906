/* All that HAKMEM asks of the operating system, in one page.
 *
 * Every call keeps errno and reports by its return value, so that free never changes errno. Every call may fail, and
 * callers go on without it. Addresses and sizes are multiples of os_page_bytes() unless said otherwise.
 * All may be called from any thread; none allocates. */
#ifndef HAK_OS_H
#define HAK_OS_H

#include "base.h"

enum os_map_kind {
    OS_RESERVE, /* address space only, no memory, no access: anywhere, or at exactly this address if it is not NULL */
    OS_AT,      /* readable and writable memory at exactly this address; fails where something is mapped */
    OS_FRESH,   /* replaces what is mapped at exactly this address by fresh memory */
};
enum os_advice {
    OS_PURGE,    /* give the pages back; they read as zero afterwards. On failure they are unchanged */
    OS_HUGE,     /* huge pages wanted */
    OS_NO_HUGE,  /* huge pages not wanted, whatever the system's default is */
    OS_POPULATE, /* make the pages resident and writable now, in one go */
    OS_WIPE,     /* the child of a fork sees zero here */
};

size_t os_page_bytes(void);
void *os_map(enum os_map_kind kind, void *address, size_t bytes); /* NULL: no memory; OS_OCCUPIED: something is there */
#define OS_OCCUPIED ((void *)-1)
bool os_unmap(void *address, size_t bytes);
bool os_commit(void *address, size_t bytes); /* makes reserved addresses readable and writable */
bool os_forbid(void *address, size_t bytes); /* no access from now on; os_commit ends it. What is there stays */
bool os_advise(enum os_advice advice, void *address, size_t bytes);
/* Moves the pages of `from` to `to`, which lose what they held; `from` stays mapped and reads as zero. */
bool os_move(void *from, void *to, size_t bytes);
bool os_resident(void *address, size_t bytes, unsigned char *pages); /* one byte a page, bit 0: resident */
bool os_start_thread(void *(*run)(void *));                          /* detached, all signals blocked; may allocate */
void os_sleep_ms(unsigned ms);
void os_wait(_Atomic uint32_t *word, uint32_t value); /* while *word == value, until os_wake; may return early */
void os_wake(_Atomic uint32_t *word);
/* What this thread stored before is seen by every thread of the process afterwards, and what they stored before is seen by
 * this one, as if each had executed a fence. False: not to be had. */
bool os_fence_threads(void);
void os_allow_readers(void);   /* of the same user: they may read this process, where Yama forbids it */
size_t os_address_limit(void); /* bytes of address space this process may still have; SIZE_MAX without limit */
uint32_t os_now_ms(void);      /* coarse, monotonic, wraps after 49 days */
uint32_t os_thread(void);      /* the kernel's number of this thread */
uint64_t os_random(void);      /* not predictable from outside; constant for the life of the process */
/* Can these bytes be read? Remembers pages that could; for places that are likely to be there still. In a signal handler, too. */
bool os_readable(uintptr_t address, size_t bytes);
/* What is loaded as one: the program, a library. */
struct os_module {
    uintptr_t begin, end;        /* addresses: of all of it, or of a part where others may lie between */
    uintptr_t base;              /* how far its own addresses were moved */
    uint64_t identity;           /* differs if another one lies where this one did: of its segments and its build id */
    const char *path;            /* as the dynamic linker names it: "" for the program. While it stays loaded */
    const uint8_t *unwind_table; /* its .eh_frame_hdr, NULL if it has none */
    const uint8_t *table_begin, *table_end; /* the segment in which that lies: readable throughout */
};
/* False: in none that is known. Without glibc's _dl_find_object (2.35) those are the program and this library. Takes no lock;
 * in a signal handler, too, and while libraries are loaded and unloaded. */
bool os_find_module(uintptr_t address, struct os_module *module);
/* "read", "write" or, where that is not to be told, "access": of the fault that a signal handler got this context for. */
const char *os_fault_access(const void *context);
size_t os_write(int fd, const char *text, size_t bytes); /* whole, restarted when interrupted; bytes written */
int os_open_output(const char *path);                    /* created or emptied; -1 on failure */
void os_copy_file(int fd, const char *path);             /* appends what it reads there, as far as it can */
void os_close(int fd);
int os_keep_output(int fd); /* a private copy that programs do not close by accident; -1 on failure */
size_t os_read_file(const char *path, char *buffer, size_t bytes); /* terminated; 0 when it cannot be read */

#endif
