/* larson [THREADS] [SECONDS] [MIN] [MAX] [CHUNKS] [ROUNDS] [SEED] [GENERATIONS]: server simulation.
 *
 * Larson and Krishnan's well-known program, rewritten. The arguments are in the order of the reports' `larson 1 5 1
 * 1000 100 10000 42`: 1 thread, 5 s, blocks of 1-1000 B, 100 blocks per thread, 10,000 rounds, seed 42. (The original's
 * order is SECONDS MIN MAX CHUNKS ROUNDS SEED THREADS, in which the reports' numbers make no sense: MIN 5 and MAX 1.)
 *   1. main fills one array of CHUNKS blocks per thread, and frees and refills it in random order;
 *   2. a thread replaces ROUNDS * CHUNKS random blocks of its array, hands the array on to a thread that it starts, and
 *      ends: blocks are freed by threads that did not allocate them;
 *   3. this goes on for SECONDS or, if SECONDS is 0, for GENERATIONS threads per array: fixed work.
 *
 * An operation is one replacement: a free and a malloc. */
/* SPDX-License-Identifier: MIT */
#include "workload.h"
#include <semaphore.h>

enum { THREADS, SECONDS, MIN, MAX, CHUNKS, ROUNDS, SEED, GENERATIONS };

static struct argument args[] = {
    {"THREADS", 1, 1, 4096},       {"SECONDS", 0, 0, 86400},     {"MIN", 8, 1, 1u << 30}, {"MAX", 1000, 1, 1u << 30},
    {"CHUNKS", 1000, 1, 1u << 30}, {"ROUNDS", 100, 1, 1u << 30}, {"SEED", 42, 0, 0},      {"GENERATIONS", 100, 1, 0},
};

struct server {
    struct slot *slots;
    uint64_t random;
    uint64_t replaced;
    uint64_t generation;
};

static atomic_bool stop;
static sem_t finished;

static void replace(struct server *server, uint32_t at) {
    uint32_t range = (uint32_t)(args[MAX].value - args[MIN].value + 1);
    if (server->slots[at].block != NULL)
        slot_clear(&server->slots[at]);
    slot_fill(&server->slots[at], args[MIN].value + random_below(&server->random, range), (uint32_t)server->replaced++);
}

static void *serve(void *argument) {
    struct server *server = argument;
    uint32_t chunks = (uint32_t)args[CHUNKS].value;
    for (uint64_t round = 0; round < args[ROUNDS].value; round++) {
        for (uint32_t i = 0; i < chunks; i++)
            replace(server, random_below(&server->random, chunks));
        if (atomic_load_explicit(&stop, memory_order_relaxed))
            break;
    }
    server->generation++;
    bool timed = args[SECONDS].value != 0;
    if (timed ? atomic_load(&stop) : server->generation == args[GENERATIONS].value)
        sem_post(&finished);
    else
        pthread_detach(thread_start(serve, server));
    return NULL;
}

int main(int argc, char **argv) {
    ARGUMENTS_READ(argc, argv, args);
    if (args[MIN].value > args[MAX].value)
        fail(2, "MIN is larger than MAX");
    uint32_t threads = (uint32_t)args[THREADS].value, chunks = (uint32_t)args[CHUNKS].value;
    struct server *servers = must(calloc(threads, sizeof *servers));
    sem_init(&finished, 0, 0);
    for (uint32_t i = 0; i < threads; i++) {
        servers[i].slots = must(calloc(chunks, sizeof *servers[i].slots));
        servers[i].random = random_seed(args[SEED].value + i);
        for (uint32_t at = 0; at < chunks; at++)
            replace(&servers[i], at);
        for (uint32_t n = 0; n < chunks; n++)
            replace(&servers[i], random_below(&servers[i].random, chunks));
        servers[i].replaced = 0;
    }

    double start = now_seconds();
    for (uint32_t i = 0; i < threads; i++)
        pthread_detach(thread_start(serve, &servers[i]));
    if (args[SECONDS].value != 0) {
        rest_ms((unsigned)args[SECONDS].value * 1000);
        atomic_store(&stop, true);
    }
    for (uint32_t i = 0; i < threads; i++)
        while (sem_wait(&finished) != 0)
            ;
    double seconds = now_seconds() - start;

    uint64_t replaced = 0, generations = 0;
    for (uint32_t i = 0; i < threads; i++) {
        replaced += servers[i].replaced;
        generations += servers[i].generation;
        slots_clear(servers[i].slots, chunks);
        free(servers[i].slots);
    }
    report_speed(replaced, seconds);
    report_value("threads_started", generations);
    free(servers);
}
