/* The options: one table, from which the parser, the environment names, HAKMEM_HELP, JSON and the docs derive.
 *
 * An option is read from, in this order: the environment (HAKMEM_NAME; not of privileged programs), the string `hak_options`
 * compiled into the program, glibc's own MALLOC_ variable where there is one, the default. Values are plain words that
 * may be read at any time; those marked LIVE may be changed while the program runs. */
/* SPDX-License-Identifier: MIT */
#ifndef HAK_OPTIONS_H
#define HAK_OPTIONS_H

#include "base/base.h"

enum option_kind { OPTION_NUMBER, OPTION_BYTES, OPTION_CHOICE, OPTION_TEXT, OPTION_LIST };
enum option_when { START, LIVE };
enum purge_mode { PURGE_NEVER, PURGE_LAZY, PURGE_AUTO, PURGE_EAGER };
enum huge_mode { HUGE_NEVER, HUGE_AUTO, HUGE_ALWAYS };
enum error_mode { ON_ERROR_ABORT, ON_ERROR_WARN, ON_ERROR_IGNORE };
enum stats_mode { STATS_OFF, STATS_TEXT, STATS_JSON };
enum { L2_CAP_RANGES = 7 }; /* up to 2, 4, 8, 16, 32, 40 KiB and above */

#define OPTION_UNLIMITED ((uint64_t)INT64_MAX)

// clang-format off
/* X(name, kind, when, default, min, max, choices, help) */
#define OPTIONS(X) \
X(REGION_BYTES,    BYTES,  START, 16 * TIB, 0, 64 * TIB, "", "address space to reserve; 0 reserves none and maps SuperSlabs on demand, as under a finite RLIMIT_AS") \
X(SUPERSLAB,       NUMBER, START, 1, 0, 1, "", "0 gives every block SuperSlabs of its own: slow, for telling whether sharing them matters to a bug") \
X(SS_CACHE_COUNT,  NUMBER, LIVE,  256, 0, 65536, "", "wholly empty SuperSlabs kept resident, at most") \
X(SS_CACHE_BYTES,  BYTES,  LIVE,  512 * MIB, 0, 1 * TIB, "", "bytes of EMPTY slots kept resident, at most") \
X(SS_CACHE_AGE_MS, NUMBER, LIVE,  60000, 0, OPTION_UNLIMITED, "", "milliseconds a wholly empty SuperSlab stays resident, at most") \
X(SS_RESERVE,      NUMBER, LIVE,  1, 0, 64, "", "wholly empty SuperSlabs that age does not take, against thrashing") \
X(PURGE,           CHOICE, LIVE,  PURGE_AUTO, 0, 3, "never|lazy|auto|eager", "when EMPTY slots go back to the system: never keeps all that the SS_CACHE bounds allow; lazy keeps as much again as is live; auto keeps RETAIN_BYTES and RETAIN_PERCENT; eager keeps nothing, at one system call a slot") \
X(RETAIN_BYTES,    BYTES,  LIVE,  1 * MIB, 0, 1 * TIB, "", "bytes of EMPTY slots kept whatever is live (auto)") \
X(RETAIN_PERCENT,  NUMBER, LIVE,  10, 0, 1000, "", "EMPTY slots kept besides, in percent of the slots in use (auto)") \
X(DECAY_MS,        NUMBER, LIVE,  10000, 10, OPTION_UNLIMITED, "", "milliseconds after which EMPTY slots that were not wanted go back all the same") \
X(PURGER,          NUMBER, LIVE,  1, 0, 1, "", "a thread of its own purges in programs that have threads; 0: the freeing thread does") \
X(HUGE_PAGES,      CHOICE, START, HUGE_AUTO, 0, 2, "never|auto|always", "huge pages: auto where the heap is so large that the waste is small") \
X(HUGE_PAGES_FROM, BYTES,  START, 64 * MIB, 0, 1 * TIB, "", "size of the heap above which auto asks for huge pages") \
X(POPULATE,        NUMBER, LIVE,  1, 0, 1, "", "fault the pages of a growing class in several at a time") \
X(DRAIN,           NUMBER, LIVE,  1, 0, 1, "", "frees of other threads' blocks gathered in the outbox are sent every DRAIN_INTERVAL frees") \
X(DRAIN_INTERVAL,  NUMBER, LIVE,  1024, 1, OPTION_UNLIMITED, "", "such frees between two drains") \
X(OWNED_SLABS,     NUMBER, LIVE,  16, 1, 65536, "", "partly used tiny slabs a thread may own besides its current ones before it has shown that it allocates from them") \
X(L2_RING_CAP,     LIST,   LIVE,  128, 1, 128, "", "blocks in a ring of the mid pool: one number, or seven by block size: up to 2/4/8/16/32/40 KiB/above, as in 24/32/48/64/64/32/24") \
X(L25_RING_CAP,    NUMBER, LIVE,  16, 1, 128, "", "blocks in a ring of the large pool") \
X(RING_BYTES,      BYTES,  LIVE,  4 * MIB, 0, 1 * GIB, "", "bytes all rings of a thread may hold (shared out when there are many threads)") \
X(HARD_LIMIT,      BYTES,  LIVE,  0, 0, OPTION_UNLIMITED, "", "bytes the heap may have at most; what would be more gets NULL and ENOMEM, after all that is free was given back. 0: no limit. Counted are slots in use or EMPTY, their tables and 64 KiB a thread, exactly; not what huge pages round up") \
X(SOFT_LIMIT,      BYTES,  LIVE,  0, 0, OPTION_UNLIMITED, "", "bytes of the heap, counted alike, above which the program's own callback is called (hak_set_soft_limit_callback), once each time they are passed. 0: none") \
X(SOFT_LIMIT_PROFILE, TEXT, START, 0, 0, 0, "", "file for the heap profile whenever SOFT_LIMIT is passed, for `hakmem flame`; %p becomes the process id; implies PROFILE=1") \
X(CGROUP,          NUMBER, LIVE,  1, 0, 1, "", "near the limit of the memory cgroup, too, more is given back; memory is never refused for it. 0: it is not looked at") \
X(PRESSURE,        NUMBER, LIVE,  10, 0, 100, "", "percent of the last ten seconds in which something waited for memory (PSI, of the cgroup, else of the machine) from which on the purger gives back what it does in an idle program; 0: never") \
X(ON_ERROR,        CHOICE, START, ON_ERROR_ABORT, 0, 2, "abort|warn|ignore", "on a double or invalid free, an overwritten free block and the like: one line and abort; the line alone; nothing. The call does nothing then") \
X(SECURE,          NUMBER, START, 0, 0, 1, "", "1 finds more errors and makes them harder to exploit, see docs/design.md: canaries, zero on free, quarantine, random places, guards; costs time and memory") \
X(QUARANTINE_BYTES, BYTES, START, 8 * KIB, 0, 1 * GIB, "", "SECURE: freed blocks a thread keeps back, in bytes for each block size, between 2 and 64 blocks") \
X(STATS,           CHOICE, LIVE,  STATS_OFF, 0, 2, "0|1|json", "statistics at exit: none, text, JSON") \
X(STATS_FILE,      TEXT,   START, 0, 0, 0, "", "file for the statistics instead of the standard error; %p becomes the process id") \
X(PROFILE,         NUMBER, START, 0, 0, 1, "", "1 samples allocations from the start, for heap profiles; not with SECURE=1") \
X(PROFILE_BYTES,   BYTES,  LIVE,  512 * KIB, 1, 256 * MIB, "", "mean bytes between samples, from the next start of the profile on") \
X(PROFILE_RATE,    NUMBER, LIVE,  4000, 0, OPTION_UNLIMITED, "", "samples a thread takes a second, about, at most: if there would be more each counts for more; 0: unlimited") \
X(PROFILE_FILE,    TEXT,   START, 0, 0, 0, "", "file for the heap profile at exit, for `hakmem flame`; %p becomes the process id; implies PROFILE=1") \
X(GUARD_SAMPLE_BYTES, BYTES, START, 0, 0, 256 * GIB, "", "mean bytes between blocks that are put between guard pages, to find overflows and uses after free in production; 0: none; not with SECURE=1") \
X(HELP,            NUMBER, START, 0, 0, 1, "", "1 prints this table at the start") \
X(INSPECT,         NUMBER, START, 0, 0, 1, "", "1 lets other processes of the same user read the heap (hakmem explain PID) where Yama's ptrace_scope 1 forbids it") \
X(CRASH_LOG,       NUMBER, START, 0, 0, 1, "", "one line about the heap on SIGSEGV, SIGBUS and SIGABRT; other handlers run after it") \
X(DEBUG,           TEXT,   START, 0, 0, 0, "", "checked build: events to log, of acquire,free,lru,drain") \
X(SS_ACQUIRE_DEBUG,    NUMBER, START, 0, 0, 1, "", "checked build: log slots taken, as DEBUG=acquire") \
X(SS_FREE_DEBUG,       NUMBER, START, 0, 0, 1, "", "checked build: log slots given back, as DEBUG=free") \
X(SS_LRU_DEBUG,        NUMBER, START, 0, 0, 1, "", "checked build: log the SuperSlab cache, as DEBUG=lru") \
X(TINY_SLL_DRAIN_DEBUG, NUMBER, START, 0, 0, 1, "", "checked build: log drains, as DEBUG=drain")
// clang-format on

enum option {
#define OPTION_ENUM(name, ...) OPT_##name,
    OPTIONS(OPTION_ENUM)
#undef OPTION_ENUM
        OPTION_COUNT
};

/* What is known of each option; constant. */
struct option_entry {
    const char *name;
    uint64_t initial, min, max;
    const char *choices; /* of a CHOICE, separated by | */
    const char *help;
    enum option_kind kind;
    enum option_when when;
};
extern HAK_HIDDEN const struct option_entry option_table[OPTION_COUNT];

#define OPTION_LIVE_BIT(name, kind, when, ...) | (uint64_t)((when) == LIVE) << OPT_##name
#define OPTIONS_LIVE (0 OPTIONS(OPTION_LIVE_BIT)) /* bit o: option o is LIVE */
_Static_assert(OPTION_COUNT <= 64, "OPTIONS_LIVE has a bit for each option");

/* Parsed values, by enum option. TEXT and LIST options keep their text beside. Any thread reads. Those of START options are
 * written by options_init and read-only from the start's end on; LIVE ones are written by option_set. */
struct HAK_FROZEN start_options {
    _Atomic uint64_t value[OPTION_COUNT];
};
extern HAK_HIDDEN struct start_options start_options;
extern HAK_HIDDEN _Atomic uint64_t live_options[OPTION_COUNT];
enum { OPTION_TEXT_BYTES = 256 }; /* with the terminator */
extern HAK_HIDDEN char option_texts[OPTION_COUNT][OPTION_TEXT_BYTES];
extern HAK_HIDDEN _Atomic uint8_t option_l2_caps[L2_CAP_RANGES];

HAK_INLINE _Atomic uint64_t *option_word(enum option o) {
    return OPTIONS_LIVE >> o & 1 ? &live_options[o] : &start_options.value[o];
}
HAK_INLINE uint64_t option(enum option o) { return load_relaxed(option_word(o)); }

/* The text of a TEXT option, "" when unset. */
const char *option_text(enum option o);

/* Capacity option of the mid ring for blocks of this size. */
unsigned option_l2_ring_cap(size_t block_bytes);

/* Reads the environment. May be called again, at no cost. Prints a line for each unknown name or bad value. */
void options_init(void);

/* Makes the values of START options read-only, if they have been read. At the start's end. */
void options_freeze(void);

/* hak_option_get, hak_option_set: see hakmem.h. option_set returns 0, EINVAL or EPERM. */
size_t option_get(const char *name, char *buffer, size_t bytes);
int option_set(const char *name, const char *value);

/* One line an option: name, kind and values, default, help. Written to `fd`. */
void options_print_help(int fd);

/* Name of the option, and its value as text; for JSON and the statistics. */
const char *option_name(enum option o);
size_t option_format(enum option o, char *buffer, size_t bytes);

#endif
