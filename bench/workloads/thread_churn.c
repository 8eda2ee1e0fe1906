/* thread_churn [THREADS] [AT_ONCE] [BLOCKS] [SEED]: threads that live for a few allocations.
 *
 * THREADS threads are started one after the other, and at most AT_ONCE run at a time. Each frees the blocks that an
 * earlier thread left, allocates BLOCKS of 16-1040 B, frees every second one and ends. An operation is one thread. RSS
 * is taken when the last thread has ended: it shows what dead threads left behind. */
/* SPDX-License-Identifier: MIT */
#include "workload.h"

enum { THREADS, AT_ONCE, BLOCKS, SEED };

static struct argument args[] = {
    {"THREADS", 6000, 1, 0}, {"AT_ONCE", 4, 1, 4096}, {"BLOCKS", 20, 1, 1u << 20}, {"SEED", 42, 0, 0}};

struct place {
    struct slot *slots;
    uint64_t random;
    pthread_t thread;
};

static void *live(void *argument) {
    struct place *place = argument;
    size_t count = args[BLOCKS].value;
    slots_clear(place->slots, count);
    for (size_t i = 0; i < count; i++)
        slot_fill(&place->slots[i], 16 + random_below(&place->random, 1025), (uint32_t)i);
    for (size_t i = 0; i < count; i += 2)
        slot_clear(&place->slots[i]);
    return NULL;
}

int main(int argc, char **argv) {
    ARGUMENTS_READ(argc, argv, args);
    uint64_t places_count = args[AT_ONCE].value, threads = args[THREADS].value;
    struct place *places = pages_map(places_count * sizeof *places);
    for (uint64_t i = 0; i < places_count; i++) {
        places[i].slots = pages_map(args[BLOCKS].value * sizeof *places[i].slots);
        places[i].random = random_seed(args[SEED].value + i);
    }
    (void)rss_bytes();
    uint64_t at_start = rss_bytes();
    double start = now_seconds();
    for (uint64_t i = 0; i < threads; i++) {
        struct place *place = &places[i % places_count];
        if (i >= places_count)
            pthread_join(place->thread, NULL);
        place->thread = thread_start(live, place);
    }
    for (uint64_t i = 0; i < places_count && i < threads; i++)
        pthread_join(places[i].thread, NULL);
    report_speed(threads, now_seconds() - start);
    uint64_t after = rss_bytes();
    report_value("rss_over_start_bytes", after > at_start ? after - at_start : 0);
    for (uint64_t i = 0; i < places_count; i++)
        slots_clear(places[i].slots, args[BLOCKS].value);
}
