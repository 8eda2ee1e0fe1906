/* The search: tries every order of the threads' shared accesses, and every choice they may make, by running the harness
 * again and again.
 *
 *  1. Threads are coroutines on this one thread. Before each shared access, explore_point decides which thread goes on.
 *     A decision is a number, and the decisions determine the execution. The search is depth first: the last decision
 *     that has another choice takes it, and all decisions before it are repeated.
 *  2. What the rest of an execution can do depends on what the threads have read and on the order of stores, not on how
 *     that came about. An execution ends when a hash of that state was met before (61 bits: a harness has a few million
 *     states, so a false match has a chance below 10^-5). Accesses that commute are tried in one order only (sleep
 *     sets).
 *  3. An execution goes back to a moment of the one before it, and repeats only the decisions since then. A log undoes
 *     what was written meanwhile; the threads' stacks and what else belongs to the moment were copied. Up to nine times
 *     as many executions run in a second as if each began anew.
 *
 * usage: races HARNESS         every execution must be right
 *        races --anew HARNESS  the same, where each execution begins anew
 *        races --seed BUG      with that bug in the sources (seeds.h), one execution of its harness must be wrong */
/* SPDX-License-Identifier: MIT */
#include "model.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucontext.h>

enum {
    STACK_BYTES = 256 * 1024,
    CHECKER = RACE_THREADS,
    COROUTINES,
    DECISIONS_MAX = 4096,
    SLEEP_MASK = (1 << RACE_THREADS) - 1,
    FRAME_BYTES = 256 /* of explore_point, at most */
};
/* The search of a harness named _long ends here though there is more, and says so: its table has 2 GiB by then. */
#define EXECUTIONS_MAX 65000000u
#define STATES_MAX ((size_t)1 << 27)

unsigned explore_thread;
bool explore_running;
const bool explore_reorders = true;

enum outcome { RUNS, COMPLETE, MET_BEFORE, RESTART, FAILED };

static struct {
    const struct race *race;
    unsigned threads;
    struct {
        jmp_buf start, here;
        char *frame;   /* of explore_point, where it waits */
        int64_t place; /* what the coroutine is about to access */
        bool writes, alive;
    } coroutine[COROUTINES];
    jmp_buf home;
    ucontext_t context;
    enum outcome outcome;
    bool starting; /* threads run only up to their first shared access */
    struct decision {
        unsigned of, chosen;
        unsigned todo, sleep; /* sets of threads: those to choose from, and those that sleep */
    } decision[DECISIONS_MAX];
    unsigned decisions, repeated, sleep;
    uint64_t *met;
    size_t met_used, met_room;
    uint64_t executions, complete;
    uint32_t seen;
    bool seeded, anew, bounded;
} x;
static _Alignas(4096) char stacks[COROUTINES][STACK_BYTES];

bool explore_own(uintptr_t address) { return address - (uintptr_t)stacks < sizeof stacks; }

_Noreturn static void leave(enum outcome outcome) {
    x.outcome = outcome;
    longjmp(x.home, 1);
}

_Noreturn void race_fail(const char *what) {
    fprintf(stderr, "%s: %s%s\n", x.race->name, x.seeded ? "found: " : "", what);
    if (!x.seeded)
        trace_print();
    if (!explore_running)
        exit(2); /* in setup */
    leave(FAILED);
}

_Noreturn void explore_give_up(const char *why) {
    fprintf(stderr, "%s: %s\n", x.race->name, why);
    trace_print();
    exit(2);
}

/* ---- states that were met before ----
 * A set of hashes with open addressing; 0 marks a free entry. The low bits of an entry are the threads that slept when
 * the state was met, that is, those that have not gone on from there. */

static uint64_t *met_find(uint64_t hash) {
    for (size_t i = hash >> 8 & (x.met_room - 1);; i = (i + 1) & (x.met_room - 1))
        if (x.met[i] == 0 || ((x.met[i] ^ hash) & ~(uint64_t)SLEEP_MASK) == 0)
            return &x.met[i];
}

static void met_grow(void) {
    uint64_t *old = x.met;
    size_t room = x.met_room;
    x.met_room = room != 0 ? room * 2 : 1 << 16;
    x.met = calloc(x.met_room, sizeof *x.met);
    if (x.met == NULL)
        explore_give_up("no memory");
    for (size_t i = 0; i < room; i++)
        if (old[i] != 0)
            *met_find(old[i]) = old[i];
    free(old);
}

/* Returns the threads that are to go on from here; the others sleep from now on. */
static unsigned threads_to_try(unsigned alive) {
    if (x.met_used * 2 >= x.met_room)
        met_grow();
    uint64_t hash = (model_hash() | (SLEEP_MASK + 1)) & ~(uint64_t)SLEEP_MASK;
    uint64_t *met = met_find(hash);
    unsigned todo = alive & ~x.sleep, slept = (unsigned)(*met & SLEEP_MASK);
    if (*met == 0)
        x.met_used++;
    else
        todo = slept & ~x.sleep;
    *met = hash | (*met == 0 ? x.sleep & alive : slept & x.sleep);
    x.sleep |= alive & ~todo;
    return todo;
}

void race_saw(unsigned outcome) { x.seen |= 1u << outcome; }

/* ---- decisions ---- */

static struct decision *decision(void) {
    if (x.repeated == x.decisions) {
        if (x.decisions == DECISIONS_MAX)
            explore_give_up("too many decisions");
        x.decision[x.decisions++] = (struct decision){0, 0, 0, 0};
    }
    return &x.decision[x.repeated++];
}

unsigned explore_choose(unsigned n) {
    if (n == 0)
        explore_give_up("nothing is allowed: an error of the model");
    if (n == 1)
        return 0;
    struct decision *d = decision();
    d->of = n;
    return d->chosen;
}

static bool next_decisions(void) {
    while (x.decisions > 0 && x.decision[x.decisions - 1].chosen + 1 == x.decision[x.decisions - 1].of)
        x.decisions--;
    if (x.decisions == 0)
        return false;
    x.decision[x.decisions - 1].chosen++;
    return true;
}

/* ---- coroutines ---- */

static bool commute(unsigned a, unsigned b) {
    if (x.coroutine[a].place == EXPLORE_ALL || x.coroutine[b].place == EXPLORE_ALL)
        return false;
    return x.coroutine[a].place != x.coroutine[b].place || !(x.coroutine[a].writes || x.coroutine[b].writes);
}

/* Threads that have not been resumed since then wait in explore_point. */
static void take_moment(void) {
    struct piece stack[RACE_THREADS];
    unsigned n = 0;
    for (unsigned i = 0; i < x.threads; i++) {
        char *end = stacks[i] + STACK_BYTES, *from = x.coroutine[i].frame - FRAME_BYTES;
        if (x.coroutine[i].alive)
            stack[n++] = (struct piece){from, (size_t)(end - from)};
    }
    moment_take(x.repeated, stack, n);
}

/* Returns the thread that goes on. Threads that already went on from here in earlier executions sleep until an access
 * happens that does not commute with their next one: until then they would only reach states explored before. */
static unsigned decide(void) {
    unsigned alive = 0;
    for (unsigned i = 0; i < x.threads; i++)
        alive |= (unsigned)x.coroutine[i].alive << i;
    if (alive == 0)
        leave(COMPLETE);
    if (!x.anew && (int)x.repeated > moment_last())
        take_moment();
    bool fresh = x.repeated == x.decisions;
    unsigned todo = fresh ? threads_to_try(alive) : 0;
    if (fresh && todo == 0)
        leave(MET_BEFORE);
    struct decision *d = decision();
    if (fresh)
        *d = (struct decision){.of = (unsigned)__builtin_popcount(todo), .todo = todo, .sleep = x.sleep};
    x.sleep = d->sleep;
    todo = d->todo;
    for (unsigned i = 0; i < d->chosen; i++, todo &= todo - 1)
        x.sleep |= todo & -todo;
    unsigned thread = (unsigned)__builtin_ctz(todo);
    for (unsigned i = 0; i < x.threads; i++)
        if (!commute(i, thread))
            x.sleep &= ~(1u << i);
    return thread;
}

_Noreturn static void go_on_with(unsigned thread) {
    if (!x.coroutine[thread].alive)
        explore_give_up("an execution was not repeated as it was: something is not put back between executions");
    explore_thread = thread;
    longjmp(x.coroutine[thread].here, 1);
}

void explore_point(int64_t place, bool write) {
    unsigned me = explore_thread;
    x.coroutine[me].frame = __builtin_frame_address(0);
    x.coroutine[me].place = place;
    x.coroutine[me].writes = write;
    if (setjmp(x.coroutine[me].here) != 0)
        return;
    if (x.starting)
        leave(RUNS);
    unsigned next = decide();
    if (next != me)
        go_on_with(next);
}

void explore_restart(void) { leave(RESTART); }
void race_leave(void) { leave(MET_BEFORE); }

static void coroutine_main(void) {
    if (setjmp(x.coroutine[explore_thread].start) == 0)
        setcontext(&x.context);
    unsigned me = explore_thread;
    if (me == CHECKER) {
        if (x.race->check != NULL)
            x.race->check();
        leave(COMPLETE);
    }
    x.race->thread[me]();
    x.coroutine[explore_thread].alive = false;
    if (x.starting)
        leave(RUNS);
    go_on_with(decide());
}

static void make_coroutines(void) {
    for (explore_thread = 0; explore_thread < COROUTINES; explore_thread++) {
        ucontext_t context;
        getcontext(&context);
        context.uc_stack.ss_sp = stacks[explore_thread];
        context.uc_stack.ss_size = STACK_BYTES;
        context.uc_link = NULL;
        makecontext(&context, coroutine_main, 0);
        swapcontext(&x.context, &context);
    }
}

static void start(unsigned coroutine) {
    explore_thread = coroutine;
    if (setjmp(x.home) == 0)
        longjmp(x.coroutine[coroutine].start, 1);
}

static void begin(void) {
    model_begin(x.threads);
    explore_running = true;
    x.repeated = 0, x.sleep = 0;
    x.starting = true;
    for (unsigned i = 0; i < x.threads; i++)
        x.coroutine[i].alive = true;
    for (volatile unsigned i = 0; i < x.threads && x.outcome == RUNS; i++)
        start(i);
    x.starting = false;
}

static void execute(void) {
    x.outcome = RUNS;
    x.executions++;
    if (x.decisions != 0 && moment_return(x.decisions - 1)) /* before the decision that is another one now */
        x.repeated = (unsigned)moment_last(), explore_running = true;
    else
        begin();
    if (x.outcome == RUNS && setjmp(x.home) == 0)
        go_on_with(decide());
    if (x.outcome == COMPLETE) {
        x.complete++;
        model_check_begins();
        start(CHECKER);
    }
    explore_running = false;
}

static bool all_seen(void) {
    uint32_t missing = ((1u << x.race->outcomes) - 1) & ~x.seen;
    if (missing != 0)
        fprintf(stderr, "%s: outcomes %#x never came about, %#x did\n", x.race->name, missing, x.seen);
    return missing == 0 && (x.race->finish == NULL || x.race->finish());
}

/* Returns whether all executions were right. */
static bool explore(void) {
    do {
        execute();
        if (x.outcome == RESTART) {
            memset(x.met, 0, x.met_room * sizeof *x.met);
            x.met_used = 0;
            x.decisions = 0;
            x.executions = x.complete = 0;
            moment_forget();
            continue;
        }
        if (x.outcome == FAILED)
            return false;
        x.bounded = x.executions >= EXECUTIONS_MAX || x.met_used >= STATES_MAX;
        if (x.bounded && strstr(x.race->name, "_long") == NULL)
            explore_give_up("too many executions");
    } while (x.outcome == RESTART || (!x.bounded && next_decisions()));
    return true;
}

static int usage(const char *program) {
    fprintf(stderr, "usage: %s HARNESS, --anew HARNESS, or --seed BUG (see seeds.h); harnesses:\n", program);
    for (unsigned i = 0; races[i] != NULL; i++)
        fprintf(stderr, "  %-10s if it fails, %s\n", races[i]->name, races[i]->loses);
    return 2;
}

int main(int argc, char **argv) {
    x.seeded = argc == 3 && strcmp(argv[1], "--seed") == 0;
    x.anew = argc == 3 && strcmp(argv[1], "--anew") == 0;
    const char *name = argc == 2 || x.anew ? argv[argc - 1] : "";
    if (x.seeded && (name = seed_choose(argv[2])) == NULL) {
        fprintf(stderr, "no such bug in seeds.h: %s\n", argv[2]);
        return 2;
    }
    for (unsigned i = 0; races[i] != NULL; i++)
        if (strcmp(name, races[i]->name) == 0)
            x.race = races[i];
    if (x.race == NULL)
        return usage(argv[0]);
    while (x.threads < RACE_THREADS && x.race->thread[x.threads] != NULL)
        x.threads++;
    race_private(&x, sizeof x);
    moment_keep(x.coroutine, sizeof x.coroutine);
    model_keep();
    x.race->setup();
    make_coroutines();
    clock_t begin = clock();
    bool right = explore() && (x.seeded || all_seen());
    printf("%s: %u threads, %llu executions, %llu of them to the end, %zu states, %s, %.2f s\n", x.race->name,
           x.threads, (unsigned long long)x.executions, (unsigned long long)x.complete, x.met_used,
           x.outcome == FAILED ? "stopped at the first error"
           : x.bounded         ? "not all"
                               : "exhaustive",
           (double)(clock() - begin) / CLOCKS_PER_SEC);
    if (x.seeded && right)
        fprintf(stderr, "%s: the bug put in on purpose was not found: %s\n", x.race->name, argv[2]);
    else if (!right && !x.seeded)
        fprintf(stderr, "%s: so %s\n", x.race->name, x.race->loses);
    return right == x.seeded;
}
