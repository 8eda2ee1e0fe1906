/* comprehensive [ROUNDS] [SEED]: six patterns of 100 blocks of 16, 32, 64 and 128 B, one thread.
 *
 * The patterns of the reports' comprehensive set, each ROUNDS times per size:
 *   lifo, fifo, random   all are allocated, then freed backwards, in order, in random order
 *   interleaved          all are allocated; each is freed and allocated anew twice, in order; all are freed
 *   long_lived           one in ten stays for ten rounds, the others are freed in order
 *   mixed                sizes 16, 32, 64 and 128 B in turn, freed in random order (named after the first size)
 * An operation is one malloc or one free. Each pattern's own speed is printed as PATTERN_SIZE_ops/s. */
/* SPDX-License-Identifier: MIT */
#include "workload.h"

enum { ROUNDS, SEED };
enum { LIFO, FIFO, RANDOM, INTERLEAVED, LONG_LIVED, MIXED, PATTERNS };
enum { BLOCKS = 100, ROUNDS_OF_LIFE = 10 };

static const char *const names[PATTERNS] = {"lifo", "fifo", "random", "interleaved", "long_lived", "mixed"};
static struct argument args[] = {{"ROUNDS", 5000, 1, 0}, {"SEED", 42, 0, 0}};
static struct slot slots[BLOCKS];

/* Whether block `i` is freed in this round: a long-lived one stays until its own turn among ten. */
static bool dies(int pattern, size_t i, uint64_t round) {
    return pattern != LONG_LIVED || i % 10 != 0 || round % ROUNDS_OF_LIFE == i / 10;
}

/* Runs one round. Returns the number of operations. `order` is a permutation of the blocks. */
static uint64_t round_run(int pattern, size_t size, uint64_t round, const unsigned char *order) {
    uint64_t operations = 0;
    for (size_t i = 0; i < BLOCKS; i++) {
        if (slots[i].block == NULL) {
            slot_fill(&slots[i], pattern == MIXED ? size << i % 4 : size, (uint32_t)(round + i));
            operations++;
        }
    }
    for (size_t n = 0; pattern == INTERLEAVED && n < 2 * BLOCKS; n++, operations += 2) {
        slot_clear(&slots[n % BLOCKS]);
        slot_fill(&slots[n % BLOCKS], size, (uint32_t)(round + n));
    }
    for (size_t n = 0; n < BLOCKS; n++) {
        size_t i = pattern == LIFO ? BLOCKS - 1 - n : pattern == RANDOM || pattern == MIXED ? order[n] : n;
        if (dies(pattern, i, round)) {
            slot_clear(&slots[i]);
            operations++;
        }
    }
    return operations;
}

int main(int argc, char **argv) {
    ARGUMENTS_READ(argc, argv, args);
    uint64_t random = random_seed(args[SEED].value), all = 0;
    unsigned char order[BLOCKS];
    double all_seconds = 0;
    for (unsigned i = 0; i < BLOCKS; i++) { /* a random permutation, from the inside out */
        unsigned at = random_below(&random, i + 1);
        order[i] = order[at];
        order[at] = (unsigned char)i;
    }
    for (int pattern = 0; pattern < PATTERNS; pattern++) {
        for (size_t size = 16; size <= (pattern == MIXED ? 16 : 128); size *= 2) {
            uint64_t operations = 0;
            double start = now_seconds();
            for (uint64_t round = 0; round < args[ROUNDS].value; round++)
                operations += round_run(pattern, size, round, order);
            double seconds = now_seconds() - start;
            slots_clear(slots, BLOCKS);
            printf("comprehensive %s_%zu_ops/s: %.0f\n", names[pattern], size, (double)operations / seconds);
            all += operations;
            all_seconds += seconds;
        }
    }
    report_speed(all, all_seconds);
}
