/* Tests of the checker: small programs, each with an outcome that RC11 allows or forbids. It must find the allowed
 * ones. */
/* SPDX-License-Identifier: MIT */
#include "explore.h"

#include "base/base.h"

#include <stdio.h>
#include <string.h>

enum kind { END, LOAD, STORE, ADD, FENCE_THREADS };
enum order { RLX, ACQ, REL, SEQ };
enum address { X, Y, ADDRESSES };
enum { ACCESSES_MAX = 4 };

struct access {
    enum kind kind;
    enum address at;
    enum order order;
    int value;
};

// clang-format off
#define LD(at, order) {LOAD, at, order, 0}
#define ST(at, order, value) {STORE, at, order, value}
#define AD(at, order, value) {ADD, at, order, value}
#define FE {FENCE_THREADS, X, SEQ, 0}
static const struct program {
    const char *name;
    struct access thread[RACE_THREADS][ACCESSES_MAX];
    const char *outcome; /* what was read, thread after thread; then the final values of x and y */
    bool allowed;
} programs[] = {
    {"store buffering", {{ST(X, RLX, 1), LD(Y, RLX)}, {ST(Y, RLX, 1), LD(X, RLX)}}, "00 11", true},
    {"store buffering, seq", {{ST(X, SEQ, 1), LD(Y, SEQ)}, {ST(Y, SEQ, 1), LD(X, SEQ)}}, "00 11", false},
    {"store buffering, one load acq", {{ST(X, SEQ, 1), LD(Y, ACQ)}, {ST(Y, SEQ, 1), LD(X, SEQ)}}, "00 11", true},
    {"store buffering, one store rel", {{ST(X, REL, 1), LD(Y, SEQ)}, {ST(Y, SEQ, 1), LD(X, SEQ)}}, "00 11", true},
    {"store buffering, rmw and seq", {{AD(X, SEQ, 1), LD(Y, SEQ)}, {AD(Y, SEQ, 1), LD(X, SEQ)}}, "0000 11", false},
    {"store buffering, rmw and acq", {{AD(X, SEQ, 1), LD(Y, ACQ)}, {AD(Y, SEQ, 1), LD(X, SEQ)}}, "0000 11", true},
    {"store buffering, one fence of all",
     {{ST(X, RLX, 1), LD(Y, RLX)}, {ST(Y, RLX, 1), FE, LD(X, RLX)}}, "00 11", false},
    {"message passing", {{ST(X, RLX, 1), ST(Y, RLX, 1)}, {LD(Y, ACQ), LD(X, RLX)}}, "10 11", true},
    {"message passing, rel and rlx", {{ST(X, RLX, 1), ST(Y, REL, 1)}, {LD(Y, RLX), LD(X, RLX)}}, "10 11", true},
    {"message passing, rel and acq", {{ST(X, RLX, 1), ST(Y, REL, 1)}, {LD(Y, ACQ), LD(X, RLX)}}, "10 11", false},
    {"release sequence", {{ST(X, RLX, 1), ST(Y, REL, 1)}, {AD(Y, RLX, 1)}, {LD(Y, ACQ), LD(X, RLX)}}, "120 12", false},
    {"release sequence, cut",
     {{ST(X, RLX, 1), ST(Y, REL, 1)}, {LD(Y, RLX), ST(Y, RLX, 2)}, {LD(Y, ACQ), LD(X, RLX)}}, "120 12", true},
    {"read after read", {{ST(X, RLX, 1)}, {LD(X, RLX), LD(X, RLX)}}, "10 10", false},
    {"read after write", {{ST(X, RLX, 1), LD(X, RLX)}, {ST(X, RLX, 2)}}, "0 10", false},
    {"two writes to two", {{ST(X, RLX, 1), ST(Y, RLX, 2)}, {ST(Y, RLX, 1), ST(X, RLX, 2)}}, " 11", true},
    {"two writes to two, seq", {{ST(X, SEQ, 1), ST(Y, SEQ, 2)}, {ST(Y, SEQ, 1), ST(X, SEQ, 2)}}, " 11", false},
    {"load buffering", {{LD(X, RLX), ST(Y, RLX, 1)}, {LD(Y, RLX), ST(X, RLX, 1)}}, "11 11", false},
    {"atomicity", {{AD(X, RLX, 1)}, {AD(X, RLX, 1)}}, "00 10", false},
    {"atomicity, and a write", {{AD(X, RLX, 1)}, {ST(X, RLX, 4)}}, "0 10", false}, /* the write comes first or last */
    {"write to read causality",
     {{ST(X, RLX, 1)}, {LD(X, ACQ), ST(Y, REL, 1)}, {LD(Y, ACQ), LD(X, RLX)}}, "110 11", false},
    {"write to read causality, rlx",
     {{ST(X, RLX, 1)}, {LD(X, RLX), ST(Y, RLX, 1)}, {LD(Y, RLX), LD(X, RLX)}}, "110 11", true},
    {"read to write causality",
     {{ST(X, REL, 1)}, {LD(X, ACQ), LD(Y, ACQ)}, {ST(Y, REL, 1), LD(X, ACQ)}}, "100 11", true},
    {"read to write causality, seq",
     {{ST(X, SEQ, 1)}, {LD(X, SEQ), LD(Y, SEQ)}, {ST(Y, SEQ, 1), LD(X, SEQ)}}, "100 11", false},
    /* RC11 differs here from the original C11, whose rule Power does not keep. */
    {"Z6.U",
     {{ST(X, SEQ, 1), ST(Y, REL, 1)}, {AD(Y, SEQ, 1), LD(Y, RLX)}, {ST(Y, SEQ, 3), LD(X, SEQ)}}, "130 13", true},
    {"Z6.U, seq",
     {{ST(X, SEQ, 1), ST(Y, SEQ, 1)}, {AD(Y, SEQ, 1), LD(Y, SEQ)}, {ST(Y, SEQ, 3), LD(X, SEQ)}}, "130 13", false},
};
// clang-format on
enum { PROGRAMS = sizeof programs / sizeof *programs };

/* Those whose outcome needs a store that comes before one that was made earlier to its address. */
static bool reorders(const char *name) { return strcmp(name, "two writes to two") == 0 || strcmp(name, "Z6.U") == 0; }

static unsigned program; /* chosen by thread 0, which begins */
static char seen[PROGRAMS];
static _Atomic int memory[PROGRAMS][ADDRESSES];
static int reads[RACE_THREADS][ACCESSES_MAX];

static int load(_Atomic int *at, enum order order) {
    switch (order) {
    case RLX: return load_relaxed(at);
    case ACQ: return load_acquire(at);
    default: return load_seq(at);
    }
}

static void store(_Atomic int *at, int value, enum order order) {
    switch (order) {
    case RLX: store_relaxed(at, value); break;
    case REL: store_release(at, value); break;
    default: atomic_store_explicit(at, value, memory_order_seq_cst);
    }
}

static void run(unsigned thread) {
    int *read = reads[thread];
    for (const struct access *a = programs[program].thread[thread]; a->kind != END; a++) {
        _Atomic int *at = &memory[program][a->at];
        switch (a->kind) {
        case LOAD: *read++ = '0' + load(at, a->order); break;
        case STORE: store(at, a->value, a->order); break;
        case ADD:
            *read++ = '0' + (a->order == SEQ ? atomic_fetch_add(at, a->value)
                                             : atomic_fetch_add_explicit(at, a->value, memory_order_relaxed));
            break;
        default: race_fence_threads();
        }
    }
}

static void setup(void) {
    race_private(&program, sizeof program);
    race_private(seen, sizeof seen);
}
static void thread_0(void) {
    program = race_choose(PROGRAMS);
    run(0);
}
static void thread_1(void) { run(1); }
static void thread_2(void) { run(2); }

static void check(void) {
    char outcome[RACE_THREADS * ACCESSES_MAX + ADDRESSES + 2], *end = outcome;
    for (unsigned i = 0; i < RACE_THREADS; i++)
        for (unsigned j = 0; j < ACCESSES_MAX && reads[i][j] != 0; j++)
            *end++ = (char)reads[i][j];
    *end++ = ' ';
    for (unsigned i = 0; i < ADDRESSES; i++)
        *end++ = (char)('0' + load_relaxed(&memory[program][i]));
    *end = 0;
    seen[program] |= strcmp(outcome, programs[program].outcome) == 0;
}

static bool finish(void) {
    bool right = true;
    for (unsigned i = 0; i < PROGRAMS; i++) {
        if (seen[i] == (programs[i].allowed && (explore_reorders || !reorders(programs[i].name))))
            continue;
        fprintf(stderr, "litmus: %s: %s was%s found\n", programs[i].name, programs[i].outcome, seen[i] ? "" : " not");
        right = false;
    }
    return right;
}

const struct race litmus_race = {
    "litmus", "nothing that this checker says is true", setup, {thread_0, thread_1, thread_2}, check, 0, finish};
