/* The interfaces between the parts of the model checker: tsan.c sees the accesses, model.c says what each may do, and
 * explore.c tries every possibility. */
/* SPDX-License-Identifier: MIT */
#ifndef HAKMEM_TESTS_RACES_MODEL_H
#define HAKMEM_TESTS_RACES_MODEL_H

#include "explore.h"
#include "seeds.h"

/* An access by the running thread. `pc` is the accessing instruction, for traces. */
void model_plain(uintptr_t address, size_t bytes, bool write, const void *pc);

void model_set(uintptr_t address, size_t bytes, uint8_t value, const void *pc); /* like memset */

enum model_op { OP_LOAD, OP_STORE, OP_SWAP, OP_ADD, OP_SUB, OP_AND, OP_OR, OP_XOR, OP_CAS };
bool model_own(uintptr_t address); /* whether this is private, or the checker's own memory: stacks and tables */
/* Returns the value that was read. A CAS compares with `*expected`; it succeeded if the returned value equals that. */
uint64_t model_atomic(enum model_op op, uintptr_t address, unsigned bytes, uint64_t operand, const uint64_t *expected,
                      int order, int failure_order, const void *pc);

uint64_t model_access(enum model_op op, uintptr_t address, unsigned bytes, uint64_t operand, const uint64_t *expected,
                      int order, int failure_order, const void *pc); /* the same, never broken */
bool model_runs_threads(void);                                       /* false in setup and check */

/* For explore.c. Begins an execution, after undoing everything that the last one wrote. */
void model_begin(unsigned threads);
void model_keep(void); /* once: what of the model belongs to each moment */
/* From here on one thread runs, which happens after all the others. */
void model_check_begins(void);
uint64_t model_hash(void); /* of everything that the rest of the execution depends on */

/* broken.c. Breaks the thread's next atomic access in this way; broken_begin ends that for all threads. */
void model_break_next(enum fault fault);
void broken_begin(void);
void broken_keep(void);

/* memory.c: what is there, without any model of who sees it. */
unsigned memory_written(void);                         /* how many words since an execution began */
void memory_undo(unsigned written);                    /* of all words but the first `written` */
void memory_remember(uintptr_t address, size_t bytes); /* what stands there, before it is overwritten */
uint64_t memory_load(uintptr_t address, unsigned bytes);
void memory_store(uintptr_t address, unsigned bytes, uint64_t value);
uint64_t memory_result(enum model_op op, uint64_t old, uint64_t operand, unsigned bytes);
/* An atomic access when no other thread can see it: in setup and check, and at addresses that one thread uses. */
uint64_t memory_atomic(enum model_op op, uintptr_t address, unsigned bytes, uint64_t operand, const uint64_t *expected);
bool memory_is_watched(uintptr_t address);
bool memory_is_private(uintptr_t address);

/* moments.c: the last execution's moments, to which the next one goes back. A moment is what memory_remember remembers,
 * what is kept, and pieces of the moment's own. */
struct piece {
    void *address;
    size_t bytes;
};
void moment_keep(void *address, size_t bytes);
/* `at` grows from moment to moment; moment_last returns that of the last one, or MOMENT_NONE. */
void moment_take(unsigned at, const struct piece *pieces, unsigned n);
#define MOMENT_NONE (-1)
int moment_last(void);
bool moment_return(unsigned at); /* to the last one that is no later; false: there is none */
void moment_forget(void);        /* all of them */

/* trace.c; `op` is an enum model_op, or OP_FENCE. */
enum { OP_FENCE = OP_CAS + 1 };
void trace_begin(void);
void trace_keep(void);
void trace_note(int op, uintptr_t address, uint64_t read, uint64_t written, bool latest, const void *pc);
void trace_print(void);

/* seeds.c: switches the bug on. Returns the name of the harness that must find it, or NULL if there is no such bug. */
const char *seed_choose(const char *name);

/* From explore.c. */
extern unsigned explore_thread; /* the running thread */
extern bool explore_running;    /* an execution is under way; otherwise all accesses are plain ones by one thread */
unsigned explore_choose(unsigned n);
/* Call before an access that others may notice. `place` numbers the address; only two loads of one address commute. */
void explore_point(int64_t place, bool write);
#define EXPLORE_ALL (-1)                         /* commutes with nothing */
_Noreturn void explore_restart(void);            /* what was learned about shared memory so far was incomplete */
_Noreturn void explore_give_up(const char *why); /* a limit of the checker was reached; no bug was found */
bool explore_own(uintptr_t address);             /* whether that is in a thread's stack */

#endif
