/* Between the parts of the model checker: tsan.c sees accesses, model.c says what they may do, explore.c tries it all. */
/* SPDX-License-Identifier: MIT */
#ifndef HAKMEM_TESTS_RACES_MODEL_H
#define HAKMEM_TESTS_RACES_MODEL_H

#include "explore.h"
#include "seeds.h"

/* Accesses, in whatever thread is running. `pc`: whence, for traces. */
void model_plain(uintptr_t address, size_t bytes, bool write, const void *pc);

void model_set(uintptr_t address, size_t bytes, uint8_t value, const void *pc); /* as memset */

enum model_op { OP_LOAD, OP_STORE, OP_SWAP, OP_ADD, OP_SUB, OP_AND, OP_OR, OP_XOR, OP_CAS };
/* Returns what was read. Of a CAS `*expected` is compared with; it succeeded if that is what is returned. */
uint64_t model_atomic(enum model_op op, uintptr_t address, unsigned bytes, uint64_t operand, const uint64_t *expected,
                      int order, int failure_order, const void *pc);

/* The thread's next atomic access is not as it should be. */
void model_break_next(enum fault fault);
bool model_runs_threads(void); /* neither setup nor check */

/* For explore.c. An execution begins, with everything written by the last one undone. */
void model_begin(unsigned threads);
/* From here on there is one thread, which comes after all others. */
void model_check_begins(void);
uint64_t model_hash(void);         /* of all that the rest of the execution depends on */
bool model_own(uintptr_t address); /* memory of the explorer: stacks and tables */

/* trace.c; `op` is an enum model_op, or OP_FENCE. */
enum { OP_FENCE = OP_CAS + 1 };
void trace_begin(void);
void trace_note(int op, uintptr_t address, uint64_t read, uint64_t written, bool latest, const void *pc);
void trace_print(void);

/* seeds.c: the bug is there from now on. Returns the name of its harness, or NULL: there is no such bug. */
const char *seed_choose(const char *name);

/* From explore.c. */
extern unsigned explore_thread; /* that is running */
extern bool explore_running;    /* an execution is under way; else accesses are plain ones of one thread */
unsigned explore_choose(unsigned n);
/* Before an access that others may notice: to which address, by its number; only two loads of one address commute. */
void explore_point(int64_t place, bool write);
#define EXPLORE_ALL (-1)                         /* commutes with nothing */
_Noreturn void explore_restart(void);            /* what was known about the sharing of memory was wrong */
_Noreturn void explore_give_up(const char *why); /* the checker's limits, not a bug that was found */
extern const uintptr_t explore_stacks_begin;
extern const size_t explore_stacks_bytes;

#endif
