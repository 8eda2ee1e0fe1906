/* latency [PASSES] [OPS] [SLOTS] [SEED]: how long single mallocs and frees take, up to P99.99 and the worst.
 *
 *   1. Each pass is its own process, from the first allocation on, and makes the same OPS operations: a random one of
 *      SLOTS slots is freed if taken, else filled with 16 B-1 MiB, small ones more often. In waves of 8 * SLOTS
 *      operations the slots fill up to 93 % and empty to 7 %: fresh slabs, emptied slabs, large blocks. One slot in 16
 *      is swapped with a slot of a partner thread: frees of others' blocks, and blocks that come back. Writing to a
 *      block (its page faults) is not timed.
 *   2. Times come from the CPU's counter and go into a histogram with buckets 0.8 % wide; the percentiles are over all
 *      passes. `timer_ns` is the time measured for nothing; every figure includes it.
 *   3. Operations are grouped in chunks of 1,000. A chunk in which the thread was preempted is dropped (and counted).
 *   4. The worst is a time that no interrupt explains: take each chunk's slowest operation, its minimum over the
 *      passes, and the maximum over chunks. worst_seen_ns is the slowest single operation.
 * An operation is one iteration; ops/s includes the timing. */
/* SPDX-License-Identifier: MIT */
#include "workload.h"
#include <sys/resource.h>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

enum { PASSES, OPS, SLOTS, SEED };
enum {
    CHUNK = 1000,
    POWERS = 16,
    FINE_BITS = 7,
    BUCKETS = (40 - FINE_BITS) << FINE_BITS,
    LENT = 256,
    TRIES = 8,
    SWAP_EVERY = 16
};
enum { MALLOC, FREE, KINDS };

static const char *const names[KINDS] = {"malloc", "free"};
static struct argument args[] = {
    {"PASSES", 4, 1, 64}, {"OPS", 600000, CHUNK, 1u << 30}, {"SLOTS", 20000, 1, 1u << 24}, {"SEED", 42, 0, 0}};

/* One pass; shared with the process that runs it. */
struct pass {
    uint32_t buckets[KINDS][BUCKETS];
    uint64_t chunks_dropped;
    double seconds;
    uint64_t slowest[][KINDS]; /* for each chunk, in ticks; 0 if dropped */
};

static struct handover to_partner, from_partner;

/* ---- the timer ---- */

/* Reads ticks of a counter that all cores share. Earlier instructions end before it, and later ones begin after it. */
static inline uint64_t ticks_read(void) {
#if defined(__x86_64__)
    _mm_lfence();
    uint64_t ticks = __rdtsc();
    _mm_lfence();
    return ticks;
#elif defined(__aarch64__)
    uint64_t ticks;
    __asm__ volatile("isb\n\tmrs %0, cntvct_el0\n\tisb" : "=r"(ticks)::"memory");
    return ticks;
#else
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
#endif
}

static double ticks_per_ns(void) {
    uint64_t first = ticks_read();
    double start = now_seconds();
    rest_ms(20);
    return (double)(ticks_read() - first) / ((now_seconds() - start) * 1e9);
}

static int ticks_order(const void *a, const void *b) {
    uint64_t one = *(const uint64_t *)a, two = *(const uint64_t *)b;
    return (one > two) - (one < two);
}

static uint64_t timer_ticks(void) {
    uint64_t seen[CHUNK];
    for (int i = 0; i < CHUNK; i++) {
        uint64_t start = ticks_read();
        seen[i] = ticks_read() - start;
    }
    qsort(seen, CHUNK, sizeof *seen, ticks_order);
    return seen[CHUNK / 2];
}

/* ---- the histogram: 128 buckets per power of two ---- */

static size_t bucket_of(uint64_t ticks) {
    ticks += 1u << FINE_BITS;
    unsigned power = 63u - (unsigned)__builtin_clzll(ticks);
    size_t bucket = ((size_t)(power - FINE_BITS) << FINE_BITS) + (ticks >> (power - FINE_BITS)) - (1u << FINE_BITS);
    return bucket < BUCKETS ? bucket : BUCKETS - 1;
}

/* Returns the smallest number of ticks in a bucket. */
static uint64_t bucket_ticks(size_t bucket) {
    size_t power = bucket >> FINE_BITS, fine = bucket & ((1u << FINE_BITS) - 1);
    return (((uint64_t)1 << FINE_BITS | fine) << power) - (1u << FINE_BITS);
}

static uint64_t percentile(const uint64_t *counts, double part) {
    uint64_t all = 0, below = 0;
    for (size_t i = 0; i < BUCKETS; i++)
        all += counts[i];
    size_t bucket = 0;
    for (; bucket < BUCKETS - 1; bucket++)
        if ((double)(below += counts[bucket]) >= part * (double)all)
            break;
    return bucket_ticks(bucket);
}

/* ---- a pass ---- */

/* Frees the block it gets, and gives one of its own in return. */
static void *partner_work(void *argument) {
    uint64_t random = random_seed(args[SEED].value + 1);
    (void)argument;
    for (struct slot *slot; (slot = handover_take(&to_partner)) != NULL;) {
        if (slot->block != NULL)
            slot_clear(slot);
        slot_fill(slot, random_size(&random, POWERS), (uint32_t)random);
        handover_give(&from_partner, slot);
    }
    return NULL;
}

static uint64_t preemptions(void) {
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return (uint64_t)usage.ru_nivcsw;
}

/* Whether the thread has been preempted, other than by its own waiting. */
struct watch {
    uint64_t before;
    bool preempted;
};

/* Swaps `slot` for one that the partner has filled. */
static void partner_swap(struct slot *slot, struct slot **spare, struct watch *watch) {
    void *filled;
    if (!handover_try_take(&from_partner, &filled)) {
        watch->preempted = watch->preempted || preemptions() != watch->before;
        filled = handover_take(&from_partner);
        watch->before = preemptions();
    }
    **spare = *slot;
    *slot = *(struct slot *)filled;
    handover_give(&to_partner, *spare);
    *spare = filled;
    (*spare)->block = NULL;
}

static uint64_t operate(struct slot *slot, int kind, uint64_t *random, uint32_t tag) {
    uint64_t start, end;
    if (kind == MALLOC) {
        size_t size = random_size(random, POWERS);
        start = ticks_read();
        unsigned char *block = malloc(size);
        end = ticks_read();
        *slot = (struct slot){must(block), (uint32_t)size, tag};
        tag_write(block, size, tag);
    } else {
        tag_check(slot->block, slot->size, slot->tag);
        start = ticks_read();
        free(slot->block);
        end = ticks_read();
        slot->block = NULL;
    }
    return end - start;
}

static void pass_run(struct pass *pass) {
    uint32_t count = (uint32_t)args[SLOTS].value;
    uint64_t random = random_seed(args[SEED].value), wave = 8 * (uint64_t)count;
    struct slot *slots = pages_map(count * sizeof *slots), *lent = pages_map((LENT + 1) * sizeof *lent);
    struct slot *spare = &lent[LENT];
    static struct {
        uint32_t bucket;
        int kind;
    } done[CHUNK];
    pthread_t partner = thread_start(partner_work, NULL);
    for (uint32_t i = 0; i < LENT; i++)
        handover_give(&to_partner, &lent[i]);

    double start = now_seconds();
    for (uint64_t op = 0; op + CHUNK <= args[OPS].value;) {
        uint64_t *slowest = pass->slowest[op / CHUNK];
        struct watch watch = {preemptions(), false};
        int filled = 0;
        for (int i = 0; i < CHUNK; i++, op++) {
            bool filling = op % wave < wave / 2;
            struct slot *slot = &slots[random_below(&random, count)];
            for (int tries = 0; tries < TRIES && (slot->block == NULL) != filling; tries++)
                slot = &slots[random_below(&random, count)];
            int kind = slot->block == NULL ? MALLOC : FREE;
            if (random_below(&random, SWAP_EVERY) == 0) {
                partner_swap(slot, &spare, &watch);
                if (kind == MALLOC)
                    continue;
            }
            uint64_t ticks = operate(slot, kind, &random, (uint32_t)op);
            done[filled].bucket = (uint32_t)bucket_of(ticks);
            done[filled++].kind = kind;
            slowest[kind] = ticks > slowest[kind] ? ticks : slowest[kind];
        }
        if (watch.preempted || preemptions() != watch.before) {
            pass->chunks_dropped++;
            slowest[MALLOC] = slowest[FREE] = 0;
            continue;
        }
        while (filled-- > 0)
            pass->buckets[done[filled].kind][done[filled].bucket]++;
    }
    pass->seconds = now_seconds() - start;
    handover_give(&to_partner, NULL);
    pthread_join(partner, NULL);
    slots_clear(slots, count);
    slots_clear(lent, LENT + 1);
}

/* ---- the figures ---- */

static void kind_report(struct pass *const *passes, int kind, double per_ns) {
    static const struct {
        const char *name;
        double part;
    } parts[] = {{"p50", 0.5}, {"p99", 0.99}, {"p99_9", 0.999}, {"p99_99", 0.9999}};
    static uint64_t counts[BUCKETS];
    uint64_t worst = 0, seen = 0;
    char key[64];
    memset(counts, 0, sizeof counts);
    for (uint64_t p = 0; p < args[PASSES].value; p++)
        for (size_t i = 0; i < BUCKETS; i++)
            counts[i] += passes[p]->buckets[kind][i];
    for (uint64_t chunk = 0; chunk < args[OPS].value / CHUNK; chunk++) {
        uint64_t least = UINT64_MAX;
        for (uint64_t p = 0; p < args[PASSES].value; p++) {
            uint64_t slowest = passes[p]->slowest[chunk][kind];
            seen = slowest > seen ? slowest : seen;
            least = slowest != 0 && slowest < least ? slowest : least;
        }
        worst = least != UINT64_MAX && least > worst ? least : worst;
    }
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        snprintf(key, sizeof key, "%s_%s_ns", names[kind], parts[i].name);
        report_value(key, (uint64_t)((double)percentile(counts, parts[i].part) / per_ns));
    }
    snprintf(key, sizeof key, "%s_worst_ns", names[kind]);
    report_value(key, (uint64_t)((double)worst / per_ns));
    snprintf(key, sizeof key, "%s_worst_seen_ns", names[kind]);
    report_value(key, (uint64_t)((double)seen / per_ns));
}

int main(int argc, char **argv) {
    ARGUMENTS_READ(argc, argv, args);
    uint64_t chunks = args[OPS].value / CHUNK, dropped = 0;
    struct pass *passes[64];
    double seconds = 0, per_ns = ticks_per_ns();
    for (uint64_t p = 0; p < args[PASSES].value; p++) {
        passes[p] = mmap(NULL, sizeof(struct pass) + chunks * sizeof passes[p]->slowest[0], PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (passes[p] == MAP_FAILED)
            fail(1, "mmap failed");
        pid_t child = fork();
        if (child < 0)
            fail(1, "fork failed");
        if (child == 0) {
            pass_run(passes[p]);
            _exit(0);
        }
        child_wait(child);
        dropped += passes[p]->chunks_dropped;
        seconds += passes[p]->seconds;
    }
    report_speed(args[PASSES].value * chunks * CHUNK, seconds);
    report_value("timer_ns", (uint64_t)((double)timer_ticks() / per_ns));
    for (int kind = 0; kind < KINDS; kind++)
        kind_report(passes, kind, per_ns);
    report_value("chunks_dropped", dropped);
    report_value("chunks", args[PASSES].value * chunks);
}
