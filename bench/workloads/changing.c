/* changing [DAY] [ROUNDS] [SCALE_PERCENT] [SEED]: a program that changes its ways, so that no fixed setting suits all
 * of its phases.
 *
 * A day is a list of phases, repeated ROUNDS times:
 *
 *   0 pools  two pools of blocks, tiny and mid, by turns        3 serve   a batch, then a server with two threads
 *   1 build  a build server: compilations, a link, a pause      4 roles   blocks change threads, in one direction, then
 *            the other
 *   2 tides  a cache that grows, is evicted, and is read        5 hours   each hour has sizes of its own; one block in
 *            20 stays
 *
 * SCALE_PERCENT scales the bytes of all phases. Prints for each phase the nanoseconds an operation (one malloc or one
 * free), and the RSS at its end above the live bytes. */
/* SPDX-License-Identifier: MIT */
#include "workload.h"

#include <stddef.h>

enum { DAY, ROUNDS, SCALE_PERCENT, SEED };
enum { THREADS_MAX = 2, STAY_ONE_IN = 20, POOL_BYTES_MAX = 200 << 20, BLOCK_BYTES_MIN = 30 };

enum way { FILL, EVICT, FREE_ALL, REPLACE, HAND_OVER, REST };

struct phase {
    const char *name;
    enum way way;
    unsigned pool, threads; /* HAND_OVER: the thread that allocates, 0 or 1 */
    uint32_t least, most;   /* size of a block */
    uint32_t
        /* FILL: MiB more; EVICT: one block in this number stays; REPLACE, HAND_OVER: thousands of blocks; REST: ms */
        amount;
};

enum { POOLS = 2, PHASES_MAX = 12 };

// clang-format off
static const struct phase days[][PHASES_MAX] = {
    {{"fill_tiny", FILL, 0, 1, 16, 64, 8}, {"fill_mid", FILL, 1, 1, 1100, 8000, 24},
     {"tiny", REPLACE, 0, 1, 16, 64, 1500}, {"mid", REPLACE, 1, 1, 1100, 8000, 300},
     {"tiny_again", REPLACE, 0, 1, 16, 64, 1500}, {"mid_again", REPLACE, 1, 1, 1100, 8000, 300},
     {"free_tiny", FREE_ALL, 0, 1, 0, 0, 0}, {"free_mid", FREE_ALL, 1, 1, 0, 0, 0}},
    {{"compile", FILL, 0, 2, 16, 1040, 48}, {"done", FREE_ALL, 0, 2, 0, 0, 0}, {"compile_2", FILL, 0, 2, 16, 1040, 48},
     {"done_2", FREE_ALL, 0, 2, 0, 0, 0}, {"link", FILL, 1, 1, 40000, 900000, 96},
      {"relocate", REPLACE, 1, 1, 40000, 900000, 2},
     {"linked", FREE_ALL, 1, 1, 0, 0, 0}, {"pause", REST, 0, 1, 0, 0, 200}},
    {{"flood", FILL, 0, 1, 100, 2000, 64}, {"high", REPLACE, 0, 1, 100, 2000, 300}, {"ebb", EVICT, 0, 1, 0, 0, 8},
     {"low", REPLACE, 0, 1, 100, 2000, 300}, {"quiet", REST, 0, 1, 0, 0, 200}, {"out", FREE_ALL, 0, 1, 0, 0, 0}},
    {{"batch", FILL, 0, 1, 16, 4000, 96}, {"end", FREE_ALL, 0, 1, 0, 0, 0}, {"sessions", FILL, 1, 2, 16, 2000, 8},
     {"serve", REPLACE, 1, 2, 16, 2000, 1500}, {"night", REST, 0, 1, 0, 0, 200}, {"close", FREE_ALL, 1, 2, 0, 0, 0}},
    {{"there", HAND_OVER, 0, 0, 32, 512, 800}, {"own", FILL, 0, 2, 32, 512, 16}, {"work", REPLACE, 0, 2, 32, 512, 800},
     {"back", HAND_OVER, 0, 1, 32, 512, 800}, {"large", HAND_OVER, 0, 0, 4000, 30000, 100},
      {"end", FREE_ALL, 0, 2, 0, 0, 0}},
    {{"hour_1", FILL, 0, 1, 16, 100, 24}, {"over_1", EVICT, 0, 1, 0, 0, STAY_ONE_IN},
      {"hour_2", FILL, 0, 1, 300, 900, 24},
     {"over_2", EVICT, 0, 1, 0, 0, STAY_ONE_IN}, {"hour_3", FILL, 0, 1, 100, 300, 24},
      {"over_3", EVICT, 0, 1, 0, 0, STAY_ONE_IN},
     {"hour_4", FILL, 0, 1, 2000, 9000, 24}, {"over_4", EVICT, 0, 1, 0, 0, STAY_ONE_IN},
      {"end", FREE_ALL, 0, 1, 0, 0, 0}},
};
// clang-format on

enum { DAYS = sizeof days / sizeof days[0] };

static struct argument args[] = {
    {"DAY", 0, 0, DAYS - 1}, {"ROUNDS", 3, 1, 1000}, {"SCALE_PERCENT", 100, 1, 1000}, {"SEED", 42, 0, 0}};

/* A pool's blocks, one part for each thread. Slots lie in memory of the program's own. */
struct part {
    struct slot *slots;
    size_t used, most_used, room;
    uint64_t live, random, operations;
};

enum { PARTS = POOLS * THREADS_MAX };
static struct part parts[PARTS];
static const struct phase *phase;
static struct handover handover;

static uint64_t scaled(uint64_t amount) { return amount * args[SCALE_PERCENT].value / 100; }

static void put(struct part *part, struct slot *slot) {
    slot_fill(slot, phase->least + random_below(&part->random, phase->most - phase->least + 1),
              (uint32_t)part->operations++);
    part->live += slot->size;
}

static void take_out(struct part *part, struct slot *slot) {
    part->live -= slot->size;
    part->operations++;
    slot_clear(slot);
}

static void fill(struct part *part, unsigned share) {
    for (uint64_t most = part->live + scaled((uint64_t)phase->amount << 20) / share; part->live < most;
         put(part, &part->slots[part->used++]))
        if (part->used == part->room)
            fail(1, "a pool is full");
    part->most_used = part->used > part->most_used ? part->used : part->most_used;
}

/* Frees in random order all blocks but one in `stay_one_in`; 0: all. */
static void evict(struct part *part, unsigned stay_one_in) {
    size_t stay = stay_one_in != 0 ? part->used / stay_one_in : 0;
    while (part->used > stay) {
        struct slot *slot = &part->slots[random_below(&part->random, (uint32_t)part->used)];
        take_out(part, slot);
        *slot = part->slots[--part->used];
    }
}

static void replace(struct part *part, unsigned share) {
    for (uint64_t left = scaled((uint64_t)phase->amount * 1000) / share; left > 0 && part->used > 0; left--) {
        struct slot *slot = &part->slots[random_below(&part->random, (uint32_t)part->used)];
        take_out(part, slot);
        put(part, slot);
    }
}

static void hand_over(struct part *part, bool gives) {
    for (uint64_t left = scaled((uint64_t)phase->amount * 1000); left > 0; left--, part->operations++)
        if (gives)
            handover_give(&handover,
                          must(malloc(phase->least + random_below(&part->random, phase->most - phase->least + 1))));
        else
            free(handover_take(&handover));
}

static void *work(void *argument) {
    struct worker *worker = argument;
    struct part *part = &parts[phase->pool * THREADS_MAX + worker->index];
    worker_start(worker);
    switch (phase->way) {
    case FILL: fill(part, phase->threads); break;
    case EVICT: evict(part, phase->amount); break;
    case FREE_ALL: evict(part, 0); break;
    case REPLACE: replace(part, phase->threads); break;
    case HAND_OVER: hand_over(part, worker->index == phase->threads); break;
    case REST: rest_ms(phase->amount); break;
    }
    worker_end(worker);
    return NULL;
}

/* What the slots themselves take: their pages stay touched. */
static uint64_t slots_resident(void) {
    uint64_t bytes = 0;
    for (unsigned i = 0; i < PARTS; i++)
        bytes += parts[i].most_used * sizeof(struct slot);
    return bytes;
}

static uint64_t sum_of(size_t field) {
    uint64_t sum = 0;
    for (unsigned i = 0; i < PARTS; i++)
        sum += *(uint64_t *)((char *)&parts[i] + field);
    return sum;
}

/* Runs the phase in its threads, or in this one. */
static double run(void) {
    if (phase->way == HAND_OVER || phase->threads > 1)
        return workers_run(THREADS_MAX, work);
    struct worker worker = {0};
    pthread_barrier_init(&workers_barrier, NULL, 1);
    work(&worker);
    return worker.end - worker.start;
}

static void report_phase(const char *what, uint64_t value) {
    char key[64];
    snprintf(key, sizeof key, "%s_%s", phase->name, what);
    report_value(key, value);
}

int main(int argc, char **argv) {
    ARGUMENTS_READ(argc, argv, args);
    const struct phase *day = days[args[DAY].value];
    for (unsigned i = 0; i < PARTS; i++) {
        struct part *part = &parts[i];
        part->room = scaled(POOL_BYTES_MAX) / BLOCK_BYTES_MIN + 1;
        part->slots = pages_map(part->room * sizeof *part->slots);
        part->random = random_seed(args[SEED].value + i);
    }
    (void)rss_bytes();
    double seconds = 0, phase_seconds[PHASES_MAX] = {0};
    uint64_t phase_operations[PHASES_MAX] = {0}, over[PHASES_MAX] = {0};
    for (uint64_t round = 0; round < args[ROUNDS].value; round++)
        for (unsigned i = 0; i < PHASES_MAX && day[i].name != NULL; i++) {
            phase = &day[i];
            uint64_t before = sum_of(offsetof(struct part, operations));
            double took = run();
            phase_operations[i] += sum_of(offsetof(struct part, operations)) - before;
            phase_seconds[i] += took;
            seconds += phase->way != REST ? took : 0;
            uint64_t known = sum_of(offsetof(struct part, live)) + slots_resident(), rss = rss_bytes();
            over[i] += rss > known ? (rss - known) / args[ROUNDS].value : 0;
        }
    report_speed(sum_of(offsetof(struct part, operations)), seconds);
    for (unsigned i = 0; i < PHASES_MAX && day[i].name != NULL; i++) {
        phase = &day[i];
        if (phase_operations[i] != 0)
            report_phase("ns", (uint64_t)(phase_seconds[i] * 1e9 / (double)phase_operations[i]));
        report_phase("over_bytes", over[i]);
    }
    return 0;
}
