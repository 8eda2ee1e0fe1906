/* The tuned constants, in one table: what a preset, an option or another process may change while the program runs.
 *
 *  1. Each tunable is one word, or one word for each class. Only slow paths read the words, with one relaxed load each.
 *  2. Every value within a tunable's range is safe: where a value does not suit a class, its reader clamps it.
 *  3. HAKMEM_TUNE sets tunables at the start, hak_option_set and `hakmem set` while the program runs.
 *  4. Options that are tuned constants, too, such as RETAIN_PERCENT, stay options (base/options.h).
 *
 * Any thread reads and writes. A thread that has just read the old value acts on that once more. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "base/options.h"
#include "region/classes.h"

// clang-format off
/* X(name, default, min, max, unit, help, measured): the last is for docs/options.md alone, which `./hak doc` makes. */
#define TUNABLES(X) \
X(owned_slabs,         16,    0, 65536,    "slabs", \
  "partly used slabs that a heap owns beside other threads before it has refilled from such slabs", \
  "CPU time with 1 instead of 16: `object_graph` 1.5 times, `server_sessions` 2.3 times; `sleeper 2000 256` keeps 15 " \
  "MB with 16, 26 MB with 256") \
X(credit_slabs,        512,   0, 65536,    "slabs", \
  "further slabs that a heap may own after as many refills from such slabs; in a large heap its share of half the " \
  "heap", \
  "bounds what a sleeping thread holds back to 32 MiB") \
X(batch_blocks,        128,   1, 8192,     "blocks", \
  "frees of another heap's blocks that are gathered for one slab before they are sent, or half a slab if that is " \
  "less", \
  "producer and consumer of 1 KiB blocks: 180 atomics per 1,000 frees with an eighth of the slab, 60 with half") \
X(loan_from_frees,     16384, 1, INT32_MAX, "frees", \
  "frees of other heaps' blocks since the last refill after which a thread takes slabs on loan", \
  "with 1,024 `soak` was 5 % larger") \
X(check_frees,         64,    1, 4096,     "frees", \
  "frees for each block in its list between two checks whether a current slab is empty", \
  "`latency`: with 16, P99.99 of free was 5 to 9 us, with 64 as without checks (0.5 to 0.9 us)") \
X(ring_min_blocks,     8,     1, 1024,     "blocks", \
  "blocks that a ring may hold at least, if its options and RING_BYTES allow them", \
  "`soak` with 4 instead of 8, or ring_min_bytes a quarter or half: 1.24 to 1.31 times the peak of what was live, no " \
  "gain") \
X(ring_min_bytes,      65536, 0, INT32_MAX, "bytes",       "the same in bytes; the larger counts", "as above") \
X(ring_spills,         3,     1, 255,      "spills", \
  "times that a ring runs full without running empty before its capacity halves", \
  "`sweep 8000 600`: 158 instructions an operation; 100 if rings are neither halved nor emptied, and all they hold " \
  "stays") \
X(large_ring_percent,  25,    0, 100,      "percent", \
  "of RING_BYTES that rings of large blocks may hold, or as much as may be EMPTY if that is more", \
  "rounds of 6 blocks of 200,000 bytes: 1,837 instructions a pair, 445 with 100; of 40 blocks of 100,000 bytes: " \
  "1,736 and 1,992") \
X(shrunk_slots,        16,    1, INT32_MAX, "slots", \
  "by which the heap of the only thread must have shrunk, and by a third, before the thread empties its rings", \
  "rounds of 600 blocks of 8,000 bytes, allocated and freed: 315 instructions a pair, 200 if rings are never emptied")

/* Tunables with a value for each class: TINY for tiny classes, RING for rings of mid and large blocks. */
#define CLASS_TUNABLES(X) \
X(reuse_frees,    TINY, 0,    0,  4096,  "frees", \
  "frees after which a full slab is used again, less than a quarter of the slab; 0: a sixteenth of the slab's " \
  "blocks, at least 8", \
  "replacing random blocks among 100,000 of 64 B takes 218 instructions a pair with 1, 65 with a sixteenth, 64 with " \
  "an eighth; 60.5, 61.9 and 63.9 MB resident on the mixed run; at least 8 instead of 4 takes 1 KiB from 122 to 88 " \
  "instructions and 4 % more memory") \
X(carve_bytes,    TINY, 4096, 64, 65536, "bytes", \
  "of new blocks that are cut at once", \
  "a page: less makes more refills, more touches pages early") \
X(kept_slabs,     TINY, 8,    0,  255,   "slabs", \
  "full slabs that a heap keeps because it frees their blocks itself", \
  "replacing blocks of 1 KiB takes 122 instructions a pair with such slabs kept, 160 with all let go") \
X(ring_blocks,    RING, 1024, 1,  1024,  "blocks", \
  "that a ring may hold at most; RING_BYTES bounds it, too", \
  "docs/experiments.md, rings") \
X(refill_percent, RING, 50,   1,  100,   "percent", \
  "of a mid ring's capacity that a refill takes, as far as slabs have free blocks", \
  "docs/experiments.md, rings") \
X(spill_percent,  RING, 50,   1,  100,   "percent", \
  "of a ring's capacity that a spill gives back", \
  "docs/experiments.md, rings")
// clang-format on

/* With POPULATE=1 a heap faults in each new slab of a class as a whole once it has started this many: that makes at
 * most a sixteenth more resident than was asked for. */
enum { POPULATE_FROM_SLABS = 16 };

enum tunable {
#define TUNABLE_ENUM(name, ...) TUNE_##name,
    TUNABLES(TUNABLE_ENUM) TUNABLE_COUNT,
#undef TUNABLE_ENUM
};
enum class_tunable {
#define CLASS_TUNABLE_ENUM(name, ...) TUNE_##name,
    CLASS_TUNABLES(CLASS_TUNABLE_ENUM) CLASS_TUNABLE_COUNT,
#undef CLASS_TUNABLE_ENUM
    TUNED_CLASSES = TINY_CLASSES + RING_CLASSES, /* tiny classes, then rings */
};

struct tunables {
    _Atomic uint32_t word[TUNABLE_COUNT];
    _Atomic uint32_t of_class[CLASS_TUNABLE_COUNT][TUNED_CLASSES];
};
extern HAK_HIDDEN struct tunables hak_tunables;

/* The entry of each tunable, first those without classes; `choices` is the unit. Constant. */
extern HAK_HIDDEN const struct option_entry tunable_table[TUNABLE_COUNT + CLASS_TUNABLE_COUNT];

/* Classes that a tunable has values for. */
struct tunable_range {
    uint8_t first, end;
};
extern HAK_HIDDEN const struct tunable_range tunable_ranges[CLASS_TUNABLE_COUNT];

/* The size of the blocks of a class, or in a ring. */
size_t tuned_bytes(unsigned class_id);

HAK_INLINE uint32_t tuned(enum tunable t) { return load_relaxed(&hak_tunables.word[t]); }
HAK_INLINE uint32_t tuned_class(enum class_tunable t, unsigned class_id) {
    return load_relaxed(&hak_tunables.of_class[t][class_id]);
}
HAK_INLINE uint32_t tuned_ring(enum class_tunable t, unsigned ring) { return tuned_class(t, TINY_CLASSES + ring); }

/* Applies HAKMEM_TUNE, and prints a line for each part of it that is wrong. */
void tunables_init(void);

/* What NAME=VALUE sets: words of a tunable, or else an option that may be set while the program runs. */
struct setting {
    _Atomic uint32_t *first;
    unsigned words; /* 0: an option */
    struct option_value value;
};
/* Returns 0, EINVAL or ENOENT, or EPERM: the option is set by the environment alone. */
int setting_parse(const char *text, size_t length, struct setting *s);
/* At the start. Where the environment has set the option, its value stays. */
void setting_apply(const struct setting *s);

/* NAME is that of a tunable, or NAME:BYTES for the class that serves requests of BYTES. Returns 0, EINVAL, or ENOENT:
 * there is no such tunable. */
int tunable_set(const char *name, const char *value);
/* As hak_option_get: the value, or values of classes as 4096,64:8192. Returns SIZE_MAX if there is no such tunable. */
size_t tunable_get(const char *name, char *buffer, size_t bytes);
