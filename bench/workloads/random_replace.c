/* random_replace LIVE SIZE OPS SEED [LEAN]: a random one of LIVE blocks is freed and allocated anew.
 *
 * The steady state of servers. SIZE 0: sizes uniform in 16-1040 B. An operation is one free and one malloc. LEAN 1 uses
 * no tags and a loop of few instructions, for counting: divide the difference of two runs by the difference of their
 * OPS. */
/* SPDX-License-Identifier: MIT */
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

/* One step of a generator that takes two instructions; its high half is used. */
#define LEAN_STEP(random) ((random) = 6364136223846793005u * (random) + 1442695040888963407u)

static void run_lean_fixed(unsigned char **blocks, uint64_t live, uint64_t random, size_t size) {
    for (uint64_t op = args[OPS].value; op != 0; op--) {
        unsigned char **place = &blocks[((LEAN_STEP(random) >> 32) * live) >> 32];
        free(*place);
        unsigned char *block = malloc(size);
        *block = 1;
        *place = block;
    }
}

static void run_lean_mixed(unsigned char **blocks, uint64_t live, uint64_t random) {
    for (uint64_t op = args[OPS].value; op != 0; op--) {
        unsigned char **place = &blocks[((LEAN_STEP(random) >> 32) * live) >> 32];
        free(*place);
        unsigned char *block = malloc(16 + (random >> 20 & 1023));
        *block = 1;
        *place = block;
    }
}

static void run_lean(uint32_t live, uint64_t random) {
    unsigned char **blocks = must(calloc(live, sizeof *blocks));
    size_t size = args[SIZE].value;
    for (uint32_t i = 0; i < live; i++)
        blocks[i] = must(malloc(size != 0 ? size : 16 + (LEAN_STEP(random) >> 20 & 1023)));
    double start = now_seconds();
    if (size != 0)
        run_lean_fixed(blocks, live, random, size);
    else
        run_lean_mixed(blocks, live, random);
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
