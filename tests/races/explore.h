/* A model checker for the allocator's own sources: a harness is two or three functions that run as threads, and every
 * execution of them that the C11 memory model allows is tried.
 *
 * The sources are compiled with the compiler's instrumentation for ThreadSanitizer but linked with tsan.c, so that each
 * access, plain or atomic, comes here with its memory order. What is covered, and what is not, is said in model.c.
 *
 * A harness is compiled the same way: what its threads write is undone before the next execution, and a data race between
 * them is found. `setup` runs once, before; `check` after every execution that came to its end, and sees all of it. */
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
    void (*thread[RACE_THREADS])(void); /* NULL: fewer */
    void (*check)(void);
    unsigned outcomes;    /* how many there are of race_saw: a harness in which nothing happens is none */
    bool (*finish)(void); /* or NULL; after all executions: false if something is missing */
};
extern const struct race *const races[]; /* up to NULL */

/* The execution is wrong: says so, with the accesses that led to it, and ends. */
_Noreturn void race_fail(const char *what);
#define race_expect(x) ((x) ? (void)0 : race_fail("expected: " #x))

/* In `check`: this outcome was met, of 0 to `outcomes` - 1. */
void race_saw(unsigned outcome);

/* 0 to n - 1: each is tried. */
unsigned race_choose(unsigned n);

/* A name for addresses in traces. */
void race_label(const void *address, size_t bytes, const char *name);

/* Not looked at: a thread-local variable, of which all threads here have the same. */
void race_private(const void *address, size_t bytes);

/* Undone, but not looked at for races: what would only take time. */
void race_unwatched(const void *address, size_t bytes);

/* What the kernel does when it takes pages: a word every `step` bytes becomes zero, which is a write like any other. */
void race_zero(void *address, size_t bytes, size_t step);

/* For what the kernel does to `bytes` at `address`. True: it is to come late (seeds.h): `effect` will be called. */
bool race_put_off(void (*effect)(void *address, size_t bytes), void *address, size_t bytes);

/* The barrier of os_fence_threads. */
void race_fence_threads(void);

#endif
