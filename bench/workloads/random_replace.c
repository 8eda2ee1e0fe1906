/* random_replace LIVE SIZE OPS SEED [LEAN]: a random one of LIVE blocks is freed and allocated anew.
 *
 * The steady state of servers.  * SIZE 0: uniform in 16-1040 B. An operation is one free and one malloc. LEAN 1: no
 * tags, a loop of few instructions, for counting: the difference of two runs by the difference of their OPS. */
#include "workload.h"

enum { LIVE, SIZE, OPS, SEED, LEAN };

static struct argument args[] = {
    {"LIVE", 100000, 1, 1u << 31},
    {"SIZE", 64, 0, 1u << 30},
    {"OPS", 5000000, 0, 0},
    {"SEED", 42, 0, 0},
    {"LEAN", 0, 0, 1},
};

static size_t size_draw(uint64_t *random) {
    return args[SIZE].value != 0 ? args[SIZE].value : 16 + random_below(random, 1025);
}

static void run_tagged(uint32_t live, uint64_t random) {
    struct slot *slots = must(calloc(live, sizeof *slots));
    for (uint32_t i = 0; i < live; i++)
        slot_fill(&slots[i], size_draw(&random), i);
    double start = now_seconds();
    for (uint64_t op = 0; op < args[OPS].value; op++) {
        struct slot *slot = &slots[random_below(&random, live)];
        slot_clear(slot);
        slot_fill(slot, size_draw(&random), (uint32_t)op);
    }
    report_speed(args[OPS].value, now_seconds() - start);
    report_value("rss_bytes", rss_bytes());
    slots_clear(slots, live);
    free(slots);
}

/* The size is masked out of the draw that gives the place: mixed sizes cost two instructions. */
static void run_lean(uint32_t live, uint64_t random) {
    unsigned char **blocks = must(calloc(live, sizeof *blocks));
    uint64_t size = args[SIZE].value != 0 ? args[SIZE].value : 16;
    uint64_t mask = args[SIZE].value != 0 ? 0 : 1023;
    for (uint32_t i = 0; i < live; i++)
        blocks[i] = must(malloc(size + (random_next(&random) & mask)));
    double start = now_seconds();
    for (uint64_t op = args[OPS].value; op != 0; op--) {
        uint64_t draw = random_next(&random);
        unsigned char **place = &blocks[((draw >> 32) * live) >> 32];
        free(*place);
        unsigned char *block = malloc(size + (draw & mask));
        *block = 1;
        *place = block;
    }
    report_speed(args[OPS].value, now_seconds() - start);
    for (uint32_t i = 0; i < live; i++)
        free(blocks[i]);
    free(blocks);
}

int main(int argc, char **argv) {
    ARGUMENTS_READ(argc, argv, args);
    if (args[SIZE].value != 0 && args[SIZE].value < 8)
        fail(2, "SIZE is 0 or at least 8");
    (args[LEAN].value ? run_lean : run_tagged)((uint32_t)args[LIVE].value, random_seed(args[SEED].value));
}
