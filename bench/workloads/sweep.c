/* sweep [SIZE] [COUNT] [THREADS] [PERCENT] [ROUNDS] [ORDER] [SEED]: what was filled is freed in bulk, in no order.
 *
 * The end of a hash table, a collector's sweep, a compiler's exit. Each thread fills COUNT blocks of SIZE bytes and
 * then frees PERCENT of them. In each further round it allocates as many again and frees them. ORDER: 0 random, 1 as
 * they were allocated, 2 the other way round, 3 random and by another thread. An operation is one free, or one malloc
 * after the first fill; mallocs, those of the first fill included, and frees are also timed apart. */
/* SPDX-License-Identifier: MIT */
#include "workload.h"

enum { SIZE, COUNT, THREADS, PERCENT, ROUNDS, ORDER, SEED };
enum { ORDER_RANDOM, ORDER_SAME, ORDER_REVERSE, ORDER_OTHER_THREAD };

static struct argument args[] = {
    {"SIZE", 64, 8, 1u << 30}, {"COUNT", 1000000, 1, 1u << 31}, {"THREADS", 1, 1, 256},
    {"PERCENT", 100, 1, 100},  {"ROUNDS", 1, 1, 1000000},       {"ORDER", 0, 0, 3},
    {"SEED", 42, 0, 0},
};

/* What a worker fills, and the thread that frees for it where the order says so. */
struct sweeper {
    struct slot *slots;
    uint32_t count, freed;
    double filling, freeing; /* seconds */
    pthread_t freer;
    pthread_barrier_t handed_on; /* to the freer, and back */
};

static double total_filling, total_freeing;
static pthread_mutex_t totals_lock = PTHREAD_MUTEX_INITIALIZER;

static void fill(struct sweeper *self, const uint32_t *order, uint32_t count) {
    double begun = now_seconds();
    for (uint32_t i = 0; i < count; i++) {
        struct slot *slot = &self->slots[order != NULL ? order[i] : i];
        slot->block = must(malloc(args[SIZE].value));
        slot->size = 8; /* of which the tag is checked: free reads them, too */
        tag_write(slot->block, slot->size, slot->tag);
    }
    self->filling += now_seconds() - begun;
}

static void free_all(struct sweeper *self) {
    double begun = now_seconds();
    for (uint32_t i = 0; i < self->freed; i++)
        slot_clear(&self->slots[i]);
    self->freeing += now_seconds() - begun;
}

static void *freer(void *argument) {
    struct sweeper *self = argument;
    for (uint64_t round = 0; round < args[ROUNDS].value; round++) {
        pthread_barrier_wait(&self->handed_on);
        free_all(self);
        pthread_barrier_wait(&self->handed_on);
    }
    return NULL;
}

static void sweep(struct sweeper *self) {
    if (args[ORDER].value != ORDER_OTHER_THREAD) {
        free_all(self);
        return;
    }
    pthread_barrier_wait(&self->handed_on);
    pthread_barrier_wait(&self->handed_on);
}

/* The slots, tagged so that the block allocated as the tag-th lies where it is to be freed: slot after slot is the
 * order wanted. Returns the slots in the order of allocation. */
static uint32_t *slots_shuffle(struct sweeper *self, unsigned index) {
    bool random_order = args[ORDER].value == ORDER_RANDOM || args[ORDER].value == ORDER_OTHER_THREAD;
    uint64_t random = random_seed(args[SEED].value + index);
    uint32_t count = self->count;
    for (uint32_t i = 0; i < count; i++)
        self->slots[i].tag = i;
    for (uint32_t i = count - 1; random_order && i > 0; i--) {
        uint32_t at = random_below(&random, i + 1), tag = self->slots[at].tag;
        self->slots[at].tag = self->slots[i].tag;
        self->slots[i].tag = tag;
    }
    uint32_t *order = pages_map(count * sizeof *order);
    for (uint32_t i = 0; i < count; i++)
        order[args[ORDER].value == ORDER_REVERSE ? count - 1 - self->slots[i].tag : self->slots[i].tag] = i;
    return order;
}

static void *worker(void *argument) {
    struct sweeper self = {.count = (uint32_t)args[COUNT].value};
    self.freed = (uint32_t)(args[COUNT].value * args[PERCENT].value / 100);
    self.slots = pages_map(self.count * sizeof *self.slots);
    uint32_t *order = slots_shuffle(&self, ((struct worker *)argument)->index);
    bool handed_on = args[ORDER].value == ORDER_OTHER_THREAD;
    if (handed_on) {
        pthread_barrier_init(&self.handed_on, NULL, 2);
        self.freer = thread_start(freer, &self);
    }
    fill(&self, order, self.count);
    worker_start(argument);
    for (uint64_t round = 0; round < args[ROUNDS].value; round++) {
        if (round != 0)
            fill(&self, NULL, self.freed);
        sweep(&self);
    }
    worker_end(argument);
    if (handed_on)
        pthread_join(self.freer, NULL);
    slots_clear(self.slots, self.count);
    munmap(self.slots, self.count * sizeof *self.slots);
    munmap(order, self.count * sizeof *order);
    pthread_mutex_lock(&totals_lock);
    total_filling += self.filling;
    total_freeing += self.freeing;
    pthread_mutex_unlock(&totals_lock);
    return NULL;
}

/* By all threads together, as if they had taken turns: each thread's own speed times their number. */
static void report_rate(const char *key, uint64_t operations, double seconds_of_all) {
    double seconds = seconds_of_all / (double)args[THREADS].value;
    report_value(key, (uint64_t)((double)operations / (seconds > 1e-9 ? seconds : 1e-9)));
}

int main(int argc, char **argv) {
    ARGUMENTS_READ(argc, argv, args);
    double seconds = workers_run_or_work((unsigned)args[THREADS].value, worker);
    uint64_t freed = args[COUNT].value * args[PERCENT].value / 100;
    uint64_t rounds = args[ROUNDS].value, all = args[THREADS].value;
    report_speed(all * freed * (2 * rounds - 1), seconds);
    report_rate("fills/s", all * (args[COUNT].value + freed * (rounds - 1)), total_filling);
    report_rate("frees/s", all * freed * rounds, total_freeing);
    report_value("rss_after_bytes", rss_bytes());
}
