/* sleeping_threads [THREADS] [BLOCKS] [TRAFFIC] [REST_MS] [SEED]: what a thread costs that holds a few blocks and
 * sleeps.
 *
 *   1. THREADS threads start, touch the stack that they will need, and sleep: RSS at the start.
 *   2. Each allocates BLOCKS blocks of 16-1040 B; all sleep: RSS when held.
 *   3. Each replaces random ones of 100 blocks of 16-1040 B and 10 of 2-32 KiB TRAFFIC times, and frees them; all sleep
 *      for REST_MS: RSS when idle.
 *   4. They free what they hold and end; main sleeps for REST_MS: RSS when ended.
 *
 * Prints the bytes for each thread above the start, or at the end above what there was before the threads, without the
 * blocks that the program holds. The program maps its lists itself and touches them first. An operation is one
 * replacement. */
/* SPDX-License-Identifier: MIT */
#include "workload.h"

enum { THREADS, BLOCKS, TRAFFIC, REST_MS, SEED };
enum { SMALL = 100, LARGE = 10, STACK_BYTES = 256 * 1024, STACK_TOUCHED = 24 * 1024 };

static struct argument args[] = {{"THREADS", 16, 1, 32768},
                                 {"BLOCKS", 4, 1, 100},
                                 {"TRAFFIC", 1000, 0, 0},
                                 {"REST_MS", 2000, 0, 60000},
                                 {"SEED", 42, 0, 0}};
static pthread_barrier_t step;

struct sleeper {
    struct slot held[SMALL];
    struct slot traffic[SMALL + LARGE];
    uint64_t random, live_bytes;
};

static __attribute__((noinline)) void touch_stack(void) {
    volatile char stack[STACK_TOUCHED];
    for (size_t i = 0; i < sizeof stack; i += 1024)
        stack[i] = 1;
}

static size_t small_size(struct sleeper *self) { return 16 + random_below(&self->random, 1025); }

static void traffic(struct sleeper *self) {
    for (uint64_t i = 0; i < args[TRAFFIC].value; i++) {
        uint32_t at = random_below(&self->random, SMALL + LARGE);
        struct slot *slot = &self->traffic[at];
        if (slot->block != NULL)
            slot_clear(slot);
        slot_fill(slot, at < SMALL ? small_size(self) : (size_t)2048 << random_below(&self->random, 5), (uint32_t)i);
    }
    slots_clear(self->traffic, SMALL + LARGE);
}

/* Each step begins when all have come to the barrier, and main once more when it has looked. */
static void *live(void *argument) {
    struct sleeper *self = argument;
    touch_stack();
    pthread_barrier_wait(&step);
    pthread_barrier_wait(&step);
    for (uint64_t i = 0; i < args[BLOCKS].value; i++) {
        slot_fill(&self->held[i], small_size(self), (uint32_t)i);
        self->live_bytes += self->held[i].size;
    }
    pthread_barrier_wait(&step);
    pthread_barrier_wait(&step);
    traffic(self);
    pthread_barrier_wait(&step);
    pthread_barrier_wait(&step);
    slots_clear(self->held, args[BLOCKS].value);
    return NULL;
}

/* What is resident now for each thread beyond `less`. */
static void report(const char *key, uint64_t less) {
    uint64_t rss = rss_bytes();
    report_value(key, rss > less ? (rss - less) / args[THREADS].value : 0);
}

int main(int argc, char **argv) {
    ARGUMENTS_READ(argc, argv, args);
    uint64_t threads = args[THREADS].value, live_bytes = 0;
    struct sleeper *sleepers = pages_map(threads * sizeof *sleepers);
    pthread_t *ids = pages_map(threads * sizeof *ids);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_barrier_init(&step, NULL, (unsigned)threads + 1);
    for (uint64_t i = 0; i < threads; i++) {
        memset(&sleepers[i], 0, sizeof sleepers[i]);
        sleepers[i].random = random_seed(args[SEED].value + i);
        ids[i] = pthread_self();
    }
    (void)rss_bytes();
    uint64_t before_threads = rss_bytes();
    for (uint64_t i = 0; i < threads; i++) {
        if (pthread_create(&ids[i], &attributes, live, &sleepers[i]) != 0)
            fail(1, "a thread could not be started");
    }
    pthread_barrier_wait(&step);
    uint64_t at_start = rss_bytes();
    pthread_barrier_wait(&step);
    pthread_barrier_wait(&step);
    for (uint64_t i = 0; i < threads; i++)
        live_bytes += sleepers[i].live_bytes;
    report("held_bytes", at_start + live_bytes);
    double start = now_seconds();
    pthread_barrier_wait(&step);
    pthread_barrier_wait(&step);
    double seconds = now_seconds() - start;
    rest_ms((unsigned)args[REST_MS].value);
    report("idle_bytes", at_start + live_bytes);
    pthread_barrier_wait(&step);
    for (uint64_t i = 0; i < threads; i++)
        pthread_join(ids[i], NULL);
    rest_ms((unsigned)args[REST_MS].value);
    report("ended_bytes", before_threads);
    report_speed(threads * args[TRAFFIC].value, seconds);
}
