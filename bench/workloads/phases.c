/* phases [PHASES] [PHASE_MIB] [KEEP_PERCENT] [SEED]: long-lived blocks among short-lived ones; sizes change by phase.
 *
 * Each phase allocates PHASE_MIB of blocks from its own range of sizes. At its end all are freed in random order,
 * except a random KEEP_PERCENT of them, which live for three more phases. These survivors hold the pages around them:
 * after each phase RSS (minus RSS at the start) is compared with the live bytes; the mean is printed. An operation is
 * one malloc or one free. */
/* SPDX-License-Identifier: MIT */
#include "workload.h"

enum { PHASES, PHASE_MIB, KEEP_PERCENT, SEED };
enum { LIFE = 3 };

static struct argument args[] = {
    {"PHASES", 12, 1, 100000}, {"PHASE_MIB", 16, 1, 4000}, {"KEEP_PERCENT", 5, 0, 100}, {"SEED", 42, 0, 0}};
static const uint32_t ranges[][2] = {{16, 64}, {256, 1024}, {64, 256}, {2048, 8192}, {16, 1040}, {8192, 65536}};
enum { RANGES = sizeof ranges / sizeof ranges[0] };

struct generation {
    struct slot *slots;
    size_t count;
};

/* Fills slots up to `bytes`. Returns the number of blocks. */
static size_t fill(struct slot *slots, uint64_t bytes, const uint32_t *range, uint64_t *random) {
    size_t count = 0;
    for (uint64_t have = 0; have < bytes; have += slots[count++].size)
        slot_fill(&slots[count], range[0] + random_below(random, range[1] - range[0] + 1), (uint32_t)count);
    return count;
}

/* Puts the slots in random order; the survivors are then the first ones. */
static void shuffle(struct slot *slots, size_t count, uint64_t *random) {
    for (size_t i = count; i > 1; i--) {
        size_t at = random_below(random, (uint32_t)i);
        struct slot slot = slots[at];
        slots[at] = slots[i - 1];
        slots[i - 1] = slot;
    }
}

int main(int argc, char **argv) {
    ARGUMENTS_READ(argc, argv, args);
    uint64_t random = random_seed(args[SEED].value), bytes = args[PHASE_MIB].value << 20, live = 0, operations = 0;
    size_t slots_bytes = (bytes / 16 + 1) * sizeof(struct slot);
    struct generation kept[LIFE + 1] = {0}; /* a ring */
    uint64_t over_sum = 0, over_most = 0;
    double seconds = 0;
    (void)rss_bytes();
    uint64_t at_start = rss_bytes();

    for (uint64_t phase = 0; phase < args[PHASES].value; phase++) {
        struct generation *oldest = &kept[phase % (LIFE + 1)];
        struct slot *slots = pages_map(slots_bytes);
        double start = now_seconds();
        size_t count = fill(slots, bytes, ranges[phase % RANGES], &random);
        shuffle(slots, count, &random);
        size_t survivors = count * args[KEEP_PERCENT].value / 100;
        slots_clear(slots + survivors, count - survivors);
        for (size_t i = 0; i < oldest->count; i++)
            live -= oldest->slots[i].size;
        slots_clear(oldest->slots, oldest->count);
        seconds += now_seconds() - start;
        operations += 2 * count - survivors + oldest->count;

        munmap(oldest->slots, oldest->count * sizeof *slots);
        *oldest = (struct generation){pages_map((survivors + 1) * sizeof *slots), survivors};
        memcpy(oldest->slots, slots, survivors * sizeof *slots);
        munmap(slots, slots_bytes);
        uint64_t lists = 0;
        for (size_t i = 0; i <= LIFE; i++)
            lists += kept[i].count * sizeof *slots;
        for (size_t i = 0; i < survivors; i++)
            live += oldest->slots[i].size;
        uint64_t rss = rss_bytes(), known = at_start + lists + live, over = rss > known ? rss - known : 0;
        over_sum += over;
        over_most = over > over_most ? over : over_most;
    }
    report_speed(operations, seconds);
    report_value("over_live_mean_bytes", over_sum / args[PHASES].value);
    report_value("over_live_most_bytes", over_most);
    report_value("live_bytes", live);
    for (size_t i = 0; i <= LIFE; i++)
        slots_clear(kept[i].slots, kept[i].count);
}
