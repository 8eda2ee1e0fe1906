/* The options: one table, from which the parser, the environment names, HAKMEM_HELP, JSON and the docs derive.
 *
 * At the start the first of these that sets an option wins: the environment (HAKMEM_NAME; not of privileged programs),
 * the policy file (arena/policy.h), the string `hak_options` compiled into the program, glibc's own MALLOC_ variable
 * where there is one, the preset (learn/presets.h), the default. Values are plain words that may be read at any time;
 * those marked LIVE may be changed while the program runs. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "base/base.h"
#include "base/mode.h"

enum option_kind { OPTION_NUMBER, OPTION_BYTES, OPTION_CHOICE, OPTION_TEXT };
enum option_when { START, LIVE };
enum purge_mode { PURGE_NEVER, PURGE_LAZY, PURGE_AUTO, PURGE_EAGER };
enum huge_mode { HUGE_NEVER, HUGE_AUTO, HUGE_ALWAYS };
enum numa_mode { NUMA_OFF, NUMA_AUTO, NUMA_TWO, NUMA_FOUR };
enum error_mode { ON_ERROR_AUTO, ON_ERROR_ABORT, ON_ERROR_WARN, ON_ERROR_IGNORE, ON_ERROR_REPORT };
enum ace_mode { ACE_OFF, ACE_OBSERVE, ACE_ON };
enum goal { GOAL_TIME, GOAL_BALANCED, GOAL_MEMORY };
/* What they set: learn/presets.h. */
enum preset { PRESET_BALANCED, PRESET_LEAN, PRESET_BURSTY, PRESET_THROUGHPUT, PRESET_COUNT };
enum stats_mode { STATS_OFF, STATS_TEXT, STATS_JSON };

#define OPTION_UNLIMITED ((uint64_t)INT64_MAX)

// clang-format off
/* X(name, kind, when, default, min, max, choices, help): options that are set most often come first. */
#define OPTIONS(X) \
X(HELP,            NUMBER, START, 0, 0, 1, "", "1 prints this table when the program starts") \
X(STATS,           CHOICE, LIVE,  STATS_OFF, 0, 2, "0|1|json", "statistics at exit: none, text or JSON") \
X(STATS_FILE,      TEXT,   START, 0, 0, 0, "", \
  "file for the statistics instead of the standard error; %p becomes the process ID; a name without %p gets it " \
  "appended; implies STATS=1") \
X(PURGE,           CHOICE, LIVE,  PURGE_AUTO, 0, 3, "never|lazy|auto|eager", \
  "when EMPTY slots go back to the system: never keeps all that the SS_CACHE limits allow; lazy gives what auto " \
  "would, but the system takes it only when it needs memory; auto keeps RETAIN_BYTES plus RETAIN_PERCENT; eager " \
  "keeps nothing, at one system call for each slot") \
X(RETAIN_PERCENT,  NUMBER, LIVE,  10, 0, 1000, "", \
  "EMPTY slots that PURGE=auto keeps in addition, in percent of the slots in use") \
X(RETAIN_BYTES,    BYTES,  LIVE,  1 * MIB, 0, 1 * TIB, "", \
  "size of the EMPTY slots that PURGE=auto keeps, however little is live") \
X(DECAY_MS,        NUMBER, LIVE,  10000, 10, OPTION_UNLIMITED, "", \
  "milliseconds after which unused EMPTY slots go back in every mode except PURGE=never") \
X(HUGE_PAGES,      CHOICE, START, HUGE_AUTO, 0, 2, "never|auto|always", \
  "use of huge pages; auto uses them where the heap is so large that they waste little") \
X(HARD_LIMIT,      BYTES,  LIVE,  0, 0, OPTION_UNLIMITED, "", \
  "maximum size of the heap, 0 for none; if a request still exceeds the limit after all free memory has gone back, " \
  "the request returns NULL with ENOMEM. The size is exact: slots in use or EMPTY, their tables and 64 KiB for each " \
  "thread, but not what huge pages round up") \
X(SOFT_LIMIT,      BYTES,  LIVE,  0, 0, OPTION_UNLIMITED, "", \
  "size of the heap, counted as for HARD_LIMIT, above which the program's callback runs " \
  "(hak_set_soft_limit_callback), once each time the heap grows past it; 0 for none") \
X(SOFT_LIMIT_PROFILE, TEXT, START, 0, 0, 0, "", \
  "file for the heap profile each time the heap passes SOFT_LIMIT, for `hakmem flame`; named as DUMP_SIGNAL says; " \
  "implies PROFILE=1") \
X(ON_ERROR,        CHOICE, START, ON_ERROR_AUTO, 0, 4, "auto|abort|warn|ignore|report", \
  "what happens on a double free, an invalid free, an overwritten free block and the like: abort prints a line and " \
  "the calls that led there, and ends the program; report also writes REPORT_FILE; warn prints the line alone; " \
  "ignore prints nothing. After warn and ignore the faulty call has no effect. auto is abort, except that an error " \
  "that harmed nothing, such as a delete with a wrong size, prints one line for each caller and the program goes on; " \
  "with SECURE=1 it ends, too") \
X(REPORT_FILE,     TEXT,   START, 0, 0, 0, "", \
  "file for the error as JSON, instead of hakmem-report.%p.json; %p becomes the process ID; a name without %p gets " \
  "it appended; implies ON_ERROR=report") \
X(CRASH_LOG,       NUMBER, START, 0, 0, 1, "", \
  "1 prints one line about the heap on SIGSEGV, SIGBUS and SIGABRT, before the program's own handler runs, whenever " \
  "that was set; at most 16 times") \
X(GUARD_SAMPLE_BYTES, BYTES, LIVE,  0, 0, 2 * GIB, "", \
  "mean bytes between two blocks that are placed between guard pages, where an overflow or a use after free ends the " \
  "program with a report of the access: 1g costs nothing in production, 4k finds what can be reproduced; 0 for none; " \
  "not with SECURE=1") \
X(SECURE,          NUMBER, START, 0, 0, 1, "", \
  "1 finds more errors and makes them harder to exploit, but costs time and memory: canaries, zero on free, " \
  "quarantine, random placement, guard pages; see docs/secure.md") \
X(SECURE_STACKS,   NUMBER, START, 0, 0, 1, "", \
  "with SECURE=1, 1 keeps the stacks that last allocated and freed each block, for reports of errors; see " \
  "docs/secure.md for what that costs") \
X(QUARANTINE_BYTES, BYTES, START, 8 * KIB, 0, 1 * GIB, "", \
  "with SECURE=1, size of the freed blocks of each class that a thread holds back, between 2 and 64 blocks") \
X(PROFILE,         NUMBER, START, 0, 0, 1, "", \
  "1 samples allocations from the start, for heap profiles; not with SECURE=1") \
X(PROFILE_FILE,    TEXT,   START, 0, 0, 0, "", \
  "file for the heap profile at exit and on SIGTERM, for `hakmem flame`; %p becomes the process ID; a name without " \
  "%p gets it appended; implies PROFILE=1") \
X(PROFILE_BYTES,   BYTES,  LIVE,  512 * KIB, 1, 256 * MIB, "", \
  "mean bytes between two samples; a new value counts when the profile starts again") \
X(PROFILE_RATE,    NUMBER, LIVE,  4000, 0, OPTION_UNLIMITED, "", \
  "approximate maximum number of samples per second in each thread; at the maximum, samples become rarer and each " \
  "counts for more; 0 for none") \
X(PROFILE_PYTHON,  NUMBER, LIVE,  1, 0, 1, "", "0 leaves Python's functions out of the heap profile's stacks") \
X(DUMP_SIGNAL,     NUMBER, START, 0, 0, 64, "", \
  "signal on which the heap profile is written to PROFILE_FILE (or hakmem.%p.%n.heap), and with STATS=1 the " \
  "statistics to STATS_FILE; 0 for none. %p becomes the process ID and %n the number of the dump; a name without " \
  "them gets them appended; implies PROFILE=1, as do the next three") \
X(DUMP_INTERVAL_MS, NUMBER, LIVE, 0, 0, OPTION_UNLIMITED, "", \
  "milliseconds between two dumps like those on DUMP_SIGNAL, while the program allocates; 0 for none") \
X(DUMP_GROWTH_BYTES, BYTES, LIVE, 0, 0, OPTION_UNLIMITED, "", \
  "writes a dump when the blocks in use have grown by this since the last dump, or since their minimum after it; 0 " \
  "for none") \
X(DUMP_PEAK,       NUMBER, LIVE,  0, 0, 1, "", \
  "1 writes a dump when the blocks in use reach a new peak that exceeds the one at the last dump by an eighth and by " \
  "1 MiB") \
X(DUMP_PAUSE_MS,   NUMBER, LIVE,  1000, 0, OPTION_UNLIMITED, "", \
  "minimum number of milliseconds between two dumps for DUMP_GROWTH_BYTES or DUMP_PEAK") \
X(DUMP_BYTES,      BYTES,  LIVE,  256 * MIB, 0, OPTION_UNLIMITED, "", \
  "total size of the process's dumps after which no more are written; files at exit do not count") \
X(INSPECT,         NUMBER, START, 0, 0, 1, "", \
  "1 lets other processes of the same user read the heap (`hakmem explain PID`) where Yama's ptrace_scope 1 forbids " \
  "that") \
X(NAME_MAPPINGS,   NUMBER, START, 0, 0, 1, "", \
  "1 lets /proc/PID/maps and smaps say what memory is the heap's (`[anon:hakmem: slabs]`, `[anon:hakmem: tables]`), " \
  "where the kernel has names (Linux 5.17, if built so). malloc then calls prctl: not for programs that enter a " \
  "sandbox (seccomp)") \
X(CGROUP,          NUMBER, LIVE,  1, 0, 1, "", \
  "1 gives more memory back when the memory cgroup is near its limit; the cgroup's limit never makes a request fail; " \
  "0 ignores the cgroup") \
X(PRESSURE,        NUMBER, LIVE,  0, 0, 100, "", \
  "memory pressure at which the purger gives back as much as in an idle program: percent of the last ten seconds in " \
  "which something waited for memory (PSI of the cgroup, else of the machine), 10 for example; 0 for never. The " \
  "purger then opens files of the kernel, also those with the cgroup's limit: not for programs that enter a sandbox " \
  "(seccomp)") \
X(PRESET,          CHOICE, START, PRESET_BALANCED, 0, 3, "balanced|lean|bursty|throughput", \
  "named values of PURGE, RETAIN_BYTES, RETAIN_PERCENT and DECAY_MS, where these have not been set; docs/options.md " \
  "lists them") \
X(POLICY,          TEXT,   START, 0, 0, 0, "", \
  "file that says for call sites of malloc how long their blocks live, and sets tunables and options; `hakmem learn` " \
  "and `hakmem tune` write such files; see docs/arenas.md. Not with SECURE=1") \
X(ACE,             CHOICE, LIVE,  ACE_OFF, 0, 2, "0|observe|on", \
  "observe times one in 16 slow paths of malloc for the ledger, which says by class what they cost, and rates " \
  "presets by what they would have cost (hak_stats_json, `hakmem top`); on uses the preset that is rated best; see " \
  "docs/options.md") \
X(GOAL,            CHOICE, LIVE,  GOAL_BALANCED, 0, 2, "time|balanced|memory", \
  "what memory is worth to ACE: 1 GiB that is kept for one second counts like 30, 150 or 600 ms of CPU time") \
X(TUNE,            TEXT,   START, 0, 0, 0, "", \
  "tuned constants to set at the start, separated by commas or semicolons: NAME=VALUE, or NAME:BYTES=VALUE for one " \
  "size of blocks; docs/options.md lists them") \
X(RING_BYTES,      BYTES,  LIVE,  4 * MIB, 0, 1 * GIB, "", \
  "maximum size of the blocks in all rings of a thread; less if many threads share RING_BYTES_TOTAL") \
X(RING_BYTES_TOTAL, BYTES, LIVE,  0, 0, 1 * TIB, "", \
  "maximum size of the blocks in the rings of all threads together, of which each thread has an equal part, but at " \
  "least 128 KiB; 0 for RING_BYTES times the number of processors that the program may use, or times 8 if these are " \
  "fewer") \
X(SS_CACHE_COUNT,  NUMBER, LIVE,  256, 0, 65536, "", "maximum number of wholly empty SuperSlabs that stay resident") \
X(SS_CACHE_BYTES,  BYTES,  LIVE,  512 * MIB, 0, 1 * TIB, "", "maximum size of the EMPTY slots that stay resident") \
X(SS_CACHE_AGE_MS, NUMBER, LIVE,  60000, 0, OPTION_UNLIMITED, "", \
  "milliseconds that a wholly empty SuperSlab may stay resident, except the last one") \
X(PURGER,          NUMBER, LIVE,  1, 0, 1, "", \
  "1 lets a background thread purge in programs that have threads; with 0 the threads that free memory purge") \
X(HUGE_PAGES_FROM, BYTES,  START, 16 * MIB, 0, 1 * TIB, "", \
  "size of the heap above which HUGE_PAGES=auto asks for huge pages") \
X(NUMA,            CHOICE, START, NUMA_AUTO, 0, 3, "off|auto|2|4", \
  "auto gives each thread memory of the NUMA node on which it runs, if the machine has several and the program was " \
  "started without a memory policy (numactl); off shares all memory among all threads; 2 and 4 act as if the machine " \
  "had two or four nodes, processor N being on node N modulo 2 or 4, which shows on any machine what nodes cost") \
X(DRAIN,           NUMBER, LIVE,  1, 0, 1, "", \
  "1 drains a thread's outbox, which gathers frees of other threads' blocks, every DRAIN_INTERVAL such frees") \
X(DRAIN_INTERVAL,  NUMBER, LIVE,  1024, 1, OPTION_UNLIMITED, "", "frees of other threads' blocks between two drains") \
X(POPULATE,        NUMBER, LIVE,  0, 0, 1, "", "1 touches all pages of a new slot at once when a size class grows") \
X(MESH,            NUMBER, LIVE,  0, 0, 1, "", \
  "1 lets sparse slabs of blocks up to 1 KiB share pages when memory goes back (malloc_trim, an idle program, a heap " \
  "that grows); an experiment: see docs/compaction.md for what the program must not do") \
X(REGION_BYTES,    BYTES,  START, 16 * TIB, 0, 64 * TIB, "", \
  "address space to reserve; with 0, SuperSlabs are mapped on demand, as under a finite RLIMIT_AS and in qemu's user " \
  "mode") \
X(SUPERSLAB,       NUMBER, START, 1, 0, 1, "", \
  "0 leaves all blocks to libc's own allocator, but not those of arenas, so that a program can be run with HAKMEM " \
  "and without; statistics, profiles, limits and checks do not see them then. Where libc has no allocator beside " \
  "(musl, static programs), and with SECURE=1, a line says that the switch is ignored") \
X(KEEP_DEEPBIND,   NUMBER, START, 0, 0, 1, "", \
  "1 leaves RTLD_DEEPBIND in calls of dlopen; by default the library takes the flag away, because a library that is " \
  "opened with it has libc's malloc and free instead of the program's (CRASH_LOG=1 prints a line)") \
X(DEBUG,           TEXT,   START, 0, 0, 0, "", \
  "events that the checked build logs, separated by commas: acquire (slots taken), free (slots given back), lru (the " \
  "SuperSlab cache), drain (drains of the outbox and of rings), tables (that a table is full), retries (at exit, how " \
  "often a thread had to try again because another was faster)")

/* X(option, implied, value): an option that is set at the start to anything but 0 sets the implied one, too, to this
 * value, unless that was set itself. */
#define OPTION_IMPLICATIONS(X) \
X(STATS_FILE,         STATS,    STATS_TEXT) \
X(REPORT_FILE,        ON_ERROR, ON_ERROR_REPORT) \
X(PROFILE_FILE,       PROFILE,  1) \
X(SOFT_LIMIT_PROFILE, PROFILE,  1) \
X(DUMP_SIGNAL,        PROFILE,  1) \
X(DUMP_INTERVAL_MS,   PROFILE,  1) \
X(DUMP_GROWTH_BYTES,  PROFILE,  1) \
X(DUMP_PEAK,          PROFILE,  1)
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

/* Parsed values, by enum option. The texts of TEXT options are in option_texts. Any thread reads. Those of START
 * options and the mode are written by options_init and read-only from the start's end on (region_freeze); LIVE ones are
 * written by option_set. */
struct HAK_FROZEN start_options {
    _Atomic uint64_t value[OPTION_COUNT];
    struct mode mode;
};
extern HAK_HIDDEN struct start_options start_options;
extern HAK_HIDDEN _Atomic uint64_t live_options[OPTION_COUNT];
enum { OPTION_TEXT_BYTES = 256 }; /* with the terminator */
extern HAK_HIDDEN char option_texts[OPTION_COUNT][OPTION_TEXT_BYTES];

HAK_INLINE _Atomic uint64_t *option_word(enum option o) {
    return OPTIONS_LIVE >> o & 1 ? &live_options[o] : &start_options.value[o];
}
HAK_INLINE uint64_t option(enum option o) { return load_relaxed(option_word(o)); }
HAK_INLINE const struct mode *mode(void) { return &start_options.mode; }

/* The text of a TEXT option, "" when unset. */
const char *option_text(enum option o);

/* Reads the environment. May be called again, at no cost. Prints a line for each unknown name or bad value. */
void options_init(void);

/* Whether to print a line about what is wrong with the option's value: not if a process above this one has done so,
 * from which this one has the variable. It is marked for the processes that this one starts. At the start alone. */
bool option_may_complain(enum option o);

/* Reads a NUMBER or BYTES within the entry's range, with its unit. */
bool option_parse(const struct option_entry *e, const char *s, size_t length, uint64_t *value);

/* hak_option_get, hak_option_set: see hakmem.h. option_set returns 0, EINVAL or EPERM. */
size_t option_get(const char *name, char *buffer, size_t bytes);
int option_set(const char *name, const char *value);

struct option_value {
    enum option option;
    uint64_t value;
};
/* Parses a value for an option that is one number and may be set while the program runs. Returns 0; ENOENT: there is no
 * such option; EPERM: it is no such option; EINVAL: it has no such value. */
int option_parse_live(const char *name, size_t name_length, const char *value, size_t length, struct option_value *v);
/* Has the environment set the option? False before options_init. */
bool option_is_from_environment(enum option o);
/* Has it been set at the start, by the environment or hak_options? */
bool option_was_set(enum option o);

/* Name of the option, and its value as text; for JSON and the statistics. */
const char *option_name(enum option o);
size_t option_format(enum option o, char *buffer, size_t bytes);
