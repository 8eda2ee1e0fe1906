/* The heap profile: what was sampled, by call stack. The program reads it, and other processes may at any moment.
 *
 *  1. Stacks: an index by hash leads to entries, which are added but never removed. Each holds the callers, the arena's
 *     name and the totals of what was sampled there, allocated and freed, with estimates: a sample whose chance was p
 *     stands for 1 / p objects.
 *  2. Samples: the live ones, found by the block's address, in levels of which each is twice as large as the last, so
 *     that few samples touch few pages. An entry is claimed by compare-and-swap, filled, then published by storing its
 *     address.
 *  3. The high-water mark: what each stack held when the live samples stood for most. The mark has a number, which goes
 *     up when they stand for more. A stack that changes while they stand for less first keeps what it holds, with the
 *     number, unless it has; one that has not kept anything for the newest number has not changed since the mark.
 *  4. Nothing waits, so a fork or a signal at any point leaves at most an entry that nobody uses.
 *
 * The memory is a mapping of fixed size, made when it is first needed and touched as it fills. Samples that find no
 * place are dropped and counted. Any thread calls anything. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "process/asked.h"

enum {
    PROFILE_CALLERS = SAMPLE_CALLERS,
    PROFILE_LIFETIMES = 32,
    PROFILE_STACKS = 8192,
    PROFILE_NAME_BYTES = 48,
    PROFILE_ARENAS = 256,      /* names; samples of arenas with other names have none */
    PROFILE_SAMPLES_MIN = 256, /* in level 0 */
    PROFILE_LEVELS = 9,
    PROFILE_SAMPLES = PROFILE_SAMPLES_MIN * ((1 << PROFILE_LEVELS) - 1),
};

struct profile_total {
    _Atomic uint64_t samples;
    _Atomic uint64_t bytes;             /* requested by these */
    _Atomic uint64_t estimated_bytes;   /* what they stand for */
    _Atomic uint64_t estimated_objects; /* in 1 / 65536 */
};

struct profile_stack {
    /* callers; 0: not in use yet. The first entry also has 0: it stands for all stacks that found no place */
    _Atomic uint32_t depth;
    uint32_t arena; /* number of its name, 0: the process, or an arena without name. Constant once depth is set */
    uint64_t hash;  /* likewise; so are the callers */
    struct profile_total allocated, freed; /* any thread; live is the difference */
    /* what was live at the mark of this number; any thread. Two that keep it at once differ by what they are adding or
     * removing, so the figures are right to within a sample for each thread */
    _Atomic uint64_t kept_mark, kept_bytes, kept_objects;
    /* freed samples that lived less than 1, 2, 4, … ms; the last: the rest */
    _Atomic uint32_t lifetimes[PROFILE_LIFETIMES];
    uintptr_t callers[PROFILE_CALLERS]; /* innermost first; then words of Python's frames, likewise */
};

/* What an arena is called; arenas of one name count together. Added, never removed. */
struct profile_arena {
    _Atomic uint64_t hash;         /* of the name; 0: the entry is unused, as the first one is. Pairs with itself */
    char name[PROFILE_NAME_BYTES]; /* with the terminator; "" for a moment after the hash */
};

struct profile_sample {
    _Atomic uintptr_t address; /* 0: unused, 1: being filled; pairs with itself, for the rest */
    uint64_t bytes, estimated_bytes, estimated_objects;
    uint32_t stack; /* index */
    uint32_t birth_ms;
    uint32_t thread; /* the kernel's number */
    uint32_t unused;
};

struct profile {
    _Atomic uint64_t dropped;                 /* samples that found no place */
    _Atomic uint64_t live_bytes, most_bytes;  /* estimated, in live samples: now, and at the mark */
    _Atomic uint64_t mark;                    /* its number. Pairs with kept_mark */
    _Atomic(char *) memory;                   /* of the tables; NULL until a caller has made it. Pairs with itself */
    _Atomic(struct profile_stack *) stacks;   /* NULL until the profile is first wanted; then constant */
    _Atomic(struct profile_sample *) samples; /* PROFILE_SAMPLES; constant once stacks is set */
    _Atomic(struct profile_arena *) arenas;   /* PROFILE_ARENAS; constant likewise */
    _Atomic(_Atomic uint32_t *) index;        /* 2 * PROFILE_STACKS numbers of stacks, 0: none; constant likewise */
    _Atomic uint32_t stacks_used;             /* entries given out; may exceed PROFILE_STACKS */
    _Atomic uint32_t levels_used;             /* of samples */
};
extern HAK_HIDDEN struct profile hak_profile;

/* Makes room for samples, which are taken every `bytes` on average from now on; 0: none are. */
void profile_want(uint64_t bytes);

/* Adds a block that was allocated with this chance of being sampled, in an arena of this name ("": none). `callers` has
 * room for PROFILE_CALLERS, too many for a small stack. False: there was no place. */
bool profile_add(const void *p, size_t bytes, double chance, const char *arena, uintptr_t *callers);
/* Removes the block, if it is there. */
void profile_freed(const void *p);
/* The bytes asked for when the block was allocated; SIZE_MAX: it is not in the profile. */
size_t profile_asked_bytes(const void *p);
/* What the stack held at the mark: estimated bytes, and objects in 1 / 65536. */
struct profile_held {
    uint64_t bytes, objects;
};
struct profile_held profile_at_mark(const struct profile_stack *s);

/* ---- as a text (profile_file.c) ---- */

/* Writes the profile into an open file. False: there is no room to put it together. */
bool profile_write(int fd, const char *moment);
