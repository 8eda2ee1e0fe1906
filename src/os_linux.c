/* os.h on Linux, over libc's thin wrappers. The kernel's own headers are not used: musl comes without them, and older
 * ones lack some of the names. */
#include "os.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define THREAD_STACK_BYTES (256 * KIB) /* the program's thread-local variables have room in it */

enum { PROBE_SHIFT = 12, PROBE_BYTES = 1 << PROBE_SHIFT }; /* the smallest page there is */
enum { SEGMENTS_MOST = 64, NOTE_BYTES_MOST = 256 };
enum { FUTEX_WAIT_PRIVATE = 128, FUTEX_WAKE_PRIVATE = 129 };
enum { MEMBARRIER_PRIVATE_EXPEDITED = 1 << 3, MEMBARRIER_REGISTER_PRIVATE_EXPEDITED = 1 << 4 };

#ifndef PR_SET_PTRACER
#define PR_SET_PTRACER 0x59616d61
#endif
#ifndef PR_SET_PTRACER_ANY
#define PR_SET_PTRACER_ANY ((unsigned long)-1)
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
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

size_t os_page_bytes(void) {
    static _Atomic size_t bytes; /* pairs with itself: every thread stores the same value */
    size_t known = load_relaxed(&bytes);
    if (known == 0) {
        known = getauxval(AT_PAGESZ);
        store_relaxed(&bytes, known);
    }
    return known;
}

void *os_map(enum os_map_kind kind, void *address, size_t bytes) {
    int saved = errno;
    int protection = kind == OS_RESERVE ? PROT_NONE : PROT_READ | PROT_WRITE;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    if (kind == OS_AT || (kind == OS_RESERVE && address != NULL))
        flags |= MAP_FIXED_NOREPLACE;
    if (kind == OS_FRESH)
        flags |= MAP_FIXED;
    void *got = mmap(address, bytes, protection, flags, -1, 0);
    bool occupied = errno == EEXIST;
    errno = saved;
    if (got == MAP_FAILED)
        return occupied ? OS_OCCUPIED : NULL;
    if (kind != OS_FRESH && address != NULL && got != address) { /* a kernel before 4.17 takes the address as a hint */
        os_unmap(got, bytes);
        return OS_OCCUPIED;
    }
    return got;
}

bool os_unmap(void *address, size_t bytes) {
    int saved = errno;
    bool done = munmap(address, bytes) == 0;
    errno = saved;
    return done;
}

static bool protect(void *address, size_t bytes, int protection) {
    int saved = errno;
    bool done = mprotect(address, bytes, protection) == 0;
    errno = saved;
    return done;
}

bool os_commit(void *address, size_t bytes) { return protect(address, bytes, PROT_READ | PROT_WRITE); }
bool os_forbid(void *address, size_t bytes) { return protect(address, bytes, PROT_NONE); }

bool os_advise(enum os_advice advice, void *address, size_t bytes) {
    static const int native[] = {[OS_PURGE] = MADV_DONTNEED,
                                 [OS_HUGE] = MADV_HUGEPAGE,
                                 [OS_NO_HUGE] = MADV_NOHUGEPAGE,
                                 [OS_POPULATE] = MADV_POPULATE_WRITE,
                                 [OS_WIPE] = MADV_WIPEONFORK};
    int saved = errno;
    bool done = madvise(address, bytes, native[advice]) == 0;
    errno = saved;
    return done;
}

bool os_move(void *from, void *to, size_t bytes) {
    enum { UNKNOWN, KEEPS, FORGETS }; /* qemu's user mode before 8.1 takes `from` for unmapped: once is enough */
    static _Atomic int kernel;        /* pairs with itself: every thread finds out the same */
    if (load_relaxed(&kernel) == FORGETS)
        return false;
    int saved = errno;
    void *got = mremap(from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to);
    unsigned char resident;
    if (got == to && load_relaxed(&kernel) == UNKNOWN) {
        store_relaxed(&kernel, mincore(from, os_page_bytes(), &resident) == 0 ? KEEPS : FORGETS);
        if (load_relaxed(&kernel) == FORGETS)
            os_map(OS_FRESH, from, bytes);
    }
    errno = saved;
    return got == to;
}

bool os_resident(void *address, size_t bytes, unsigned char *pages) {
    int saved = errno;
    bool done = mincore(address, bytes, pages) == 0;
    errno = saved;
    return done;
}

bool os_start_thread(void *(*run)(void *)) {
    int saved = errno;
    pthread_attr_t attributes;
    sigset_t all, before;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, THREAD_STACK_BYTES);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool done = pthread_create(&thread, &attributes, run, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    errno = saved;
    return done;
}

void os_sleep_ms(unsigned ms) {
    struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    nanosleep(&time, NULL);
}

static long call(long number, long a, long b, long c) {
    int saved = errno;
    long got = syscall(number, a, b, c, NULL, NULL, 0);
    errno = saved;
    return got;
}

void os_wait(_Atomic uint32_t *word, uint32_t value) { call(SYS_futex, (long)word, FUTEX_WAIT_PRIVATE, (long)value); }
void os_wake(_Atomic uint32_t *word) { call(SYS_futex, (long)word, FUTEX_WAKE_PRIVATE, INT_MAX); }

bool os_fence_threads(void) {
    return call(SYS_membarrier, MEMBARRIER_PRIVATE_EXPEDITED, 0, 0) == 0 ||
           (call(SYS_membarrier, MEMBARRIER_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0 &&
            call(SYS_membarrier, MEMBARRIER_PRIVATE_EXPEDITED, 0, 0) == 0);
}

void os_allow_readers(void) {
    int saved = errno;
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    errno = saved;
}

size_t os_address_limit(void) {
    int saved = errno;
    struct rlimit limit;
    bool known = getrlimit(RLIMIT_AS, &limit) == 0;
    errno = saved;
    return known && limit.rlim_cur != RLIM_INFINITY ? (size_t)limit.rlim_cur : SIZE_MAX;
}

uint32_t os_now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (uint32_t)((uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000);
}

uint32_t os_thread(void) { return (uint32_t)call(SYS_gettid, 0, 0, 0); }

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

/* The kernel reads a signal mask of 8 bytes, then finds that there is nothing of the kind to be done with it. */
static bool page_readable(uintptr_t page) {
    enum { REMEMBERED = 1024, NO_SUCH_ACTION = -1, MASK_BYTES = 8 };
    static _Atomic uintptr_t remembered[REMEMBERED]; /* pages that were readable; pairs with itself: they are hints */
    _Atomic uintptr_t *place = &remembered[page % REMEMBERED];
    if (load_relaxed(place) == page)
        return true;
    int saved = errno;
    syscall(SYS_rt_sigprocmask, NO_SUCH_ACTION, page << PROBE_SHIFT, 0L, (long)MASK_BYTES);
    bool readable = errno == EINVAL;
    errno = saved;
    if (readable)
        store_relaxed(place, page);
    return readable;
}

bool os_readable(uintptr_t address, size_t bytes) {
    if (address + bytes < address || address >> PROBE_SHIFT == 0)
        return false;
    for (uintptr_t page = address >> PROBE_SHIFT; page <= (address + bytes - 1) >> PROBE_SHIFT; page++)
        if (!page_readable(page))
            return false;
    return true;
}

/* glibc's struct dl_find_object. The name is bound without a version, so that the library loads where there is none. */
struct found_object {
    uint64_t flags;
    void *begin, *end;
    struct link_map *link_map;
    void *unwind_table;
    uint64_t reserved[7];
};
__asm__(".symver hak_find_object, _dl_find_object@");
extern int hak_find_object(void *address, struct found_object *found) HAK_WEAK;
extern const ElfW(Ehdr) __ehdr_start HAK_HIDDEN HAK_WEAK; /* this library's, or the program's that it is linked into */

static uint64_t identity_add(uint64_t identity, uint64_t word) {
    identity = (identity ^ word) * 0x9e3779b97f4a7c15u;
    return identity ^ identity >> 32;
}

/* What an ELF header and what follows it say. False: there is none. */
HAK_STRAY static bool module_read(struct os_module *module, const ElfW(Ehdr) * header) {
    const ElfW(Phdr) *segments = (const void *)(header + 1), *segment; /* where every linker has them */
    if (!os_readable((uintptr_t)header, PROBE_BYTES) || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
        header->e_phoff != sizeof *header || header->e_phnum > SEGMENTS_MOST)
        return false;
    uintptr_t first = UINTPTR_MAX, end = 0, table = 0;
    for (segment = segments; segment < segments + header->e_phnum; segment++) {
        if (segment->p_type == PT_LOAD) {
            first = min_size(first, segment->p_vaddr - segment->p_offset);
            end = max_size(end, segment->p_vaddr + segment->p_memsz);
        }
        if (segment->p_type == PT_GNU_EH_FRAME)
            table = segment->p_vaddr;
    }
    module->base = (uintptr_t)header - first;
    if (module->end == 0)
        module->begin = (uintptr_t)header, module->end = module->base + end;
    for (segment = segments; segment < segments + header->e_phnum; segment++) {
        const uint8_t *at = (const uint8_t *)(module->base + segment->p_vaddr);
        module->identity = identity_add(module->identity, segment->p_vaddr + (segment->p_memsz << 32));
        if (segment->p_type == PT_NOTE && segment->p_filesz <= NOTE_BYTES_MOST)
            for (size_t word = 0; word < segment->p_filesz / sizeof(uint64_t); word++)
                module->identity = identity_add(module->identity, ((const uint64_t *)at)[word]);
        if (segment->p_type == PT_LOAD && table != 0 && table - segment->p_vaddr < segment->p_filesz) {
            module->unwind_table = (const uint8_t *)(module->base + table);
            module->table_begin = at, module->table_end = at + segment->p_filesz;
        }
    }
    return true;
}

static const ElfW(Ehdr) * program_header(void) { return (const ElfW(Ehdr) *)getauxval(AT_PHDR) - 1; }

bool os_find_module(uintptr_t address, struct os_module *module) {
    struct found_object found;
    if (hak_find_object != NULL) {
        if (hak_find_object((void *)address, &found) != 0)
            return false;
        const struct link_map *map = found.link_map;
        *module =
            (struct os_module){(uintptr_t)found.begin, (uintptr_t)found.end, .base = map->l_addr, .path = map->l_name};
        module_read(module, *map->l_name == '\0' ? program_header() : (const void *)map->l_addr);
        return true;
    }
    *module = (struct os_module){.path = ""};
    if (module_read(module, program_header()) && address - module->begin < module->end - module->begin)
        return true;
    *module = (struct os_module){.path = "libhakmem.so"};
    return module_read(module, &__ehdr_start) && address - module->begin < module->end - module->begin;
}

const char *os_fault_access(const void *context) {
#if defined(__x86_64__)
    return ((const ucontext_t *)context)->uc_mcontext.gregs[REG_ERR] & 2 ? "write" : "read";
#else
    (void)context;
    return "access";
#endif
}

size_t os_write(int fd, const char *text, size_t bytes) {
    int saved = errno;
    size_t done = 0;
    while (done < bytes) {
        ssize_t wrote = write(fd, text + done, bytes - done);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            break;
        done += (size_t)wrote;
    }
    errno = saved;
    return done;
}

int os_open_output(const char *path) {
    int saved = errno;
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
    errno = saved;
    return fd;
}

int os_keep_output(int fd) {
    int saved = errno;
    int kept = fcntl(fd, F_DUPFD_CLOEXEC, 200); /* above what programs that close everything they opened reach */
    errno = saved;
    return kept;
}

void os_close(int fd) {
    int saved = errno;
    close(fd);
    errno = saved;
}
void os_copy_file(int fd, const char *path) {
    int saved = errno;
    int from = open(path, O_RDONLY | O_CLOEXEC);
    char piece[4096];
    ssize_t n = 0;
    while (from >= 0 && ((n = read(from, piece, sizeof piece)) > 0 || (n < 0 && errno == EINTR)))
        os_write(fd, piece, n > 0 ? (size_t)n : 0);
    if (from >= 0)
        close(from);
    errno = saved;
}
size_t os_read_file(const char *path, char *buffer, size_t bytes) {
    int saved = errno;
    size_t got = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        ssize_t n = read(fd, buffer, bytes - 1);
        got = n > 0 ? (size_t)n : 0;
        close(fd);
    }
    buffer[got] = '\0';
    errno = saved;
    return got;
}
