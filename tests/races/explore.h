/* A model checker for the allocator's own sources. A harness is one to three functions that run as threads; the checker
 * tries every execution of them that the C11 memory model allows.
 *
 * The sources are compiled with the compiler's ThreadSanitizer instrumentation but linked with tsan.c, so every access,
 * plain or atomic, arrives here with its memory order. model.c says what is covered and what is not.
 *
 * A harness is compiled in the same way: what its threads write is undone before the next execution, and data races
 * between them are found. `setup` runs once, before all executions. `check` runs after every execution that reached its
 * end, and sees everything that the threads wrote. */
/* SPDX-License-Identifier: MIT */
#ifndef HAKMEM_TESTS_RACES_EXPLORE_H
#define HAKMEM_TESTS_RACES_EXPLORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RACE_THREADS = 3 };

struct race {
    const char *name;
    const char *loses; /* what the user loses if it fails */
    void (*setup)(void);
    void (*thread[RACE_THREADS])(void); /* NULL after the last one */
    void (*check)(void);
    /* The number of outcomes passed to race_saw. Each must occur, so a harness in which nothing happens fails. */
    unsigned outcomes;
    bool (*finish)(void); /* runs after all executions and returns false if something is missing; may be NULL */
};
extern const struct race *const races[]; /* ends with NULL */

/* Reports that the execution is wrong, with the accesses that led to it, and ends it. */
_Noreturn void race_fail(const char *what);
/* Leaves an execution of which nothing new is to be learned, as when a thread waits and is woken for no reason. */
_Noreturn void race_leave(void);
#define race_expect(x) ((x) ? (void)0 : race_fail("expected: " #x))

/* Called in `check`: records that this outcome, from 0 to `outcomes` - 1, occurred. */
void race_saw(unsigned outcome);

/* Returns a number from 0 to n - 1; the checker tries each one. */
unsigned race_choose(unsigned n);

/* Names these addresses in traces. */
void race_label(const void *address, size_t bytes, const char *name);

/* Ignores accesses to this memory: a thread-local variable, which is one and the same for all threads here. */
void race_private(const void *address, size_t bytes);

/* Undoes writes here but does not look for races, where that would only cost time. */
void race_unwatched(const void *address, size_t bytes);

/* Zeroes a word every `step` bytes, as the kernel does when it takes pages. The checker treats each as a normal
 * write. */
void race_zero(void *address, size_t bytes, size_t step);

/* Call before an effect of the kernel on `bytes` at `address`. Returns true if the effect is to come late (seeds.h);
 * the checker will call `effect` then. */
bool race_put_off(void (*effect)(void *address, size_t bytes), void *address, size_t bytes);

/* Whether stores to one address may come into effect in another order than that in which they are made. */
extern const bool explore_reorders;

/* The barrier that os_fence_threads issues. */
void race_fence_threads(void);

#endif
