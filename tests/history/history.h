/* The file that record.c writes and check.cc reads: one for each process, of records of one size. The first says whose
 * child the process is. Chunks of HISTORY_CHUNK_BYTES follow from HISTORY_OPENING_BYTES on; each begins with a record
 * that names its thread. Zeroes end a chunk. */
/* SPDX-License-Identifier: MIT */
#ifndef HISTORY_H
#define HISTORY_H

#include <stdint.h>

enum { HISTORY_OPENING_BYTES = 1 << 16 /* the largest page */, HISTORY_CHUNK_BYTES = 1 << 18, HISTORY_NAME_BYTES = 32 };

enum history_kind {
    HISTORY_NONE,
    HISTORY_PROCESS, /* begin: the first moment of this process */
    HISTORY_THREAD,  /* begin: the thread's number */
    HISTORY_MALLOC,  /* end: malloc and its like have returned `new` */
    HISTORY_FREE,    /* begin: free of `old` is about to be called */
    HISTORY_REALLOC, /* both; end is 0 while it has not returned, and `new` 0 if it failed */
    HISTORY_FORK,    /* begin and end: around a fork */
};

/* Moments are numbers of one counter, which a child goes on from. */
struct history_event {
    uint64_t begin, end;
    uint64_t old, new_block;
    uint64_t size : 48, log2_alignment : 8, kind : 8; /* size and alignment as requested; 0 for none */
    uint64_t usable;                                  /* bytes, as malloc_usable_size says at once */
};

/* The first record of a file, as long as an event. */
struct history_process {
    uint64_t begin;
    char parent[HISTORY_NAME_BYTES]; /* the name of its file; empty if this program was started by exec */
    uint64_t kind;
};

enum { HISTORY_CHUNK_EVENTS = HISTORY_CHUNK_BYTES / sizeof(struct history_event) };

#endif
