/* idle [THREADS] [MIB] [REST_MS] [SEED]: everything is freed and all threads sleep; what stays resident?
 *
 *   1. THREADS threads are started; they and main sleep: RSS at the start.
 *   2. Each allocates MIB MiB in blocks of 16 B-1 MiB, half of which the next thread frees; frees the rest; sleeps.
 *   3. Main rests for REST_MS: idle RSS. The program maps its lists itself, and unmaps them before that.
 *
 * An operation is one malloc or one free. */
/* SPDX-License-Identifier: MIT */
#include "workload.h"

enum { THREADS, MIB, REST_MS, SEED };
enum { POWERS = 16 };

static struct argument args[] = {
    {"THREADS", 4, 1, 1024}, {"MIB", 16, 1, 16000}, {"REST_MS", 1000, 0, 60000}, {"SEED", 42, 0, 0}};
static pthread_barrier_t begin, swap, end; /* only the threads wait at swap */
struct list {
    struct slot *slots;
    size_t count;
};
static struct list *lists;
static atomic_uint_fast64_t operations;

static void *work(void *argument) {
    struct list *mine = argument, *other = &lists[(size_t)(mine - lists + 1) % args[THREADS].value];
    uint64_t bytes = args[MIB].value << 20, random = random_seed(args[SEED].value + (uint64_t)(mine - lists));
    size_t slots_bytes = (bytes / 16 + 1) * sizeof *mine->slots;
    pthread_barrier_wait(&begin);

    mine->slots = pages_map(slots_bytes);
    for (uint64_t have = 0; have < bytes; have += mine->slots[mine->count++].size)
        slot_fill(&mine->slots[mine->count], random_size(&random, POWERS), (uint32_t)mine->count);
    atomic_fetch_add(&operations, 2 * mine->count);
    pthread_barrier_wait(&swap);
    for (size_t i = 0; i < mine->count; i += 2)
        slot_clear(&mine->slots[i]);
    for (size_t i = 1; i < other->count; i += 2)
        slot_clear(&other->slots[i]);
    pthread_barrier_wait(&swap);
    munmap(mine->slots, slots_bytes);
    pthread_barrier_wait(&end);
    pthread_barrier_wait(&end);
    return NULL;
}

int main(int argc, char **argv) {
    ARGUMENTS_READ(argc, argv, args);
    unsigned threads = (unsigned)args[THREADS].value;
    pthread_t *ids = pages_map(threads * sizeof *ids);
    lists = pages_map(threads * sizeof *lists);
    pthread_barrier_init(&begin, NULL, threads + 1);
    pthread_barrier_init(&swap, NULL, threads);
    pthread_barrier_init(&end, NULL, threads + 1);
    for (unsigned i = 0; i < threads; i++)
        ids[i] = thread_start(work, &lists[i]);
    rest_ms(10); /* lets the threads fall asleep */
    (void)rss_bytes();
    uint64_t at_start = rss_bytes();
    double start = now_seconds();
    pthread_barrier_wait(&begin);
    pthread_barrier_wait(&end);
    double seconds = now_seconds() - start;
    uint64_t freed = rss_bytes();
    rest_ms((unsigned)args[REST_MS].value);
    uint64_t idle = rss_bytes();
    report_speed(atomic_load(&operations), seconds);
    report_value("freed_over_start_bytes", freed > at_start ? freed - at_start : 0);
    report_value("idle_over_start_bytes", idle > at_start ? idle - at_start : 0);
    pthread_barrier_wait(&end);
    for (unsigned i = 0; i < threads; i++)
        pthread_join(ids[i], NULL);
}
