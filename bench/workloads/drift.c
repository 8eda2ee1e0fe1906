/* drift [LIVE_MIB] [OPS] [CYCLES] [SEED]: LIVE_MIB stay live while sizes drift from small to large and back.
 *
 * A scaled-down day of a server: the middle size goes from 32 B up to 8 KiB and down again, CYCLES times in OPS
 * operations; each size is within a factor of two of it. One block in eight lives long: it joins the old ones, where a
 * random one is freed; the others leave in about the order in which they came. As much is freed as is allocated. RSS
 * over the live bytes is sampled 16 times in a cycle; the mean and the maximum are printed. An operation is one malloc
 * and one free. */
/* SPDX-License-Identifier: MIT */
#include "workload.h"

enum { LIVE_MIB, OPS, CYCLES, SEED };
enum { SAMPLES = 16 };

static struct argument args[] = {
    {"LIVE_MIB", 16, 1, 16000}, {"OPS", 1500000, 64, 0}, {"CYCLES", 2, 1, 1000}, {"SEED", 42, 0, 0}};

/* A bag of blocks that is also a queue. */
struct blocks {
    struct slot *slots;
    size_t mask, first, count;
    uint64_t bytes, bytes_most;
};

static void put(struct blocks *blocks, struct slot slot) {
    blocks->slots[(blocks->first + blocks->count++) & blocks->mask] = slot;
    blocks->bytes += slot.size;
}

/* Frees the block `at` places behind the first; the first takes its place. */
static void drop(struct blocks *blocks, size_t at) {
    struct slot *slot = &blocks->slots[(blocks->first + at) & blocks->mask];
    blocks->bytes -= slot->size;
    slot_clear(slot);
    *slot = blocks->slots[blocks->first & blocks->mask];
    blocks->first++;
    blocks->count--;
}

/* Returns the middle size after `op` operations. Its logarithm, in units of 1/256, goes 5 … 13 … 5 in a cycle. */
static uint32_t middle(uint64_t op) {
    uint64_t length = args[OPS].value / args[CYCLES].value + 1, at = op % length * 4096 / length;
    uint64_t power = 5 * 256 + (at < 2048 ? at : 4096 - at);
    uint32_t whole = 1u << (power >> 8);
    return whole + (uint32_t)(whole * (power & 255) >> 8);
}

int main(int argc, char **argv) {
    ARGUMENTS_READ(argc, argv, args);
    uint64_t random = random_seed(args[SEED].value), limit = args[LIVE_MIB].value << 20;
    struct blocks kinds[2] = {{.bytes_most = limit / 2}, {.bytes_most = limit / 2}}; /* young and old */
    size_t places = 1;
    while (places < limit / 32)
        places *= 2;
    for (int i = 0; i < 2; i++) {
        kinds[i].slots = pages_map(places * sizeof(struct slot));
        memset(kinds[i].slots, 0, places * sizeof(struct slot)); /* resident from the start, so it adds no drift */
        kinds[i].mask = places - 1;
    }
    (void)rss_bytes();
    uint64_t at_start = rss_bytes(), every = args[OPS].value / args[CYCLES].value / SAMPLES, samples = 0;
    uint64_t over_sum = 0, over_most = 0;
    double seconds = 0, start = now_seconds();
    for (uint64_t op = 0; op < args[OPS].value; op++) {
        uint32_t size = middle(op);
        struct slot slot;
        slot_fill(&slot, size / 2 + random_below(&random, size), (uint32_t)op);
        bool old = random_below(&random, 8) == 0;
        struct blocks *blocks = &kinds[old];
        put(blocks, slot);
        while (blocks->bytes > blocks->bytes_most || blocks->count > blocks->mask)
            drop(blocks, random_below(&random, old || blocks->count < 64 ? (uint32_t)blocks->count : 64));
        if (op % every == every - 1) {
            seconds += now_seconds() - start;
            uint64_t known = at_start + kinds[0].bytes + kinds[1].bytes, rss = rss_bytes();
            uint64_t over = rss > known ? rss - known : 0;
            over_sum += over;
            over_most = over > over_most ? over : over_most;
            samples++;
            start = now_seconds();
        }
    }
    report_speed(args[OPS].value, seconds + now_seconds() - start);
    report_value("over_live_mean_bytes", over_sum / samples);
    report_value("over_live_most_bytes", over_most);
    for (int i = 0; i < 2; i++)
        while (kinds[i].count > 0)
            drop(&kinds[i], 0);
}
