/* prefork [CHILDREN] [REQUESTS] [WARM_MIB] [SEED]: a master with a warm heap forks children that serve requests.
 *
 *   1. The master fills WARM_MIB MiB with blocks of 16 B-16 KiB.
 *   2. Each child makes REQUESTS requests: it reads 16 warm blocks, allocates 50 blocks of 16 B-4 KiB and frees them;
 *      one request in 50 replaces a warm block by one of the same size. Pages that a child, or its allocator, writes to
 *      are no longer shared.
 *   3. When all are finished but still exist, the master sums up the PSS of all processes.
 *
 * An operation is one request. */
/* SPDX-License-Identifier: MIT */
#include "workload.h"

enum { CHILDREN, REQUESTS, WARM_MIB, SEED };
enum { READ = 16, BLOCKS = 50, REPLACE_EVERY = 50, WARM_POWERS = 10, REQUEST_POWERS = 8 };

static struct argument args[] = {
    {"CHILDREN", 4, 1, 1000}, {"REQUESTS", 15000, 1, 0}, {"WARM_MIB", 32, 1, 16000}, {"SEED", 42, 0, 0}};
static struct slot *warm;
static uint32_t warm_count;

static void request_serve(uint64_t number, uint64_t *random) {
    struct slot blocks[BLOCKS];
    for (int i = 0; i < READ; i++) {
        struct slot *slot = &warm[random_below(random, warm_count)];
        tag_check(slot->block, slot->size, slot->tag);
    }
    for (int i = 0; i < BLOCKS; i++)
        slot_fill(&blocks[i], random_size(random, REQUEST_POWERS), (uint32_t)number + (uint32_t)i);
    if (number % REPLACE_EVERY == 0) {
        struct slot *slot = &warm[random_below(random, warm_count)];
        slot_clear(slot);
        slot_fill(slot, slot->size, (uint32_t)number);
    }
    slots_clear(blocks, BLOCKS);
}

/* A byte in `done` reports success; the end of `leave` lets all children exit. */
static __attribute__((noreturn)) void child_run(uint64_t index, int done, int leave) {
    uint64_t random = random_seed(args[SEED].value + 1 + index);
    char byte = 0;
    for (uint64_t number = 0; number < args[REQUESTS].value; number++)
        request_serve(number, &random);
    if (write(done, &byte, 1) != 1 || close(done) != 0 || read(leave, &byte, 1) != 0)
        _exit(1);
    _exit(0);
}

static uint64_t pss_of(pid_t pid) {
    char process[32];
    snprintf(process, sizeof process, "%d", (int)pid);
    return memory_bytes(process, "Pss:");
}

int main(int argc, char **argv) {
    ARGUMENTS_READ(argc, argv, args);
    uint64_t children = args[CHILDREN].value, bytes = args[WARM_MIB].value << 20,
             random = random_seed(args[SEED].value);
    warm = pages_map((bytes / 16 + 1) * sizeof *warm);
    for (uint64_t have = 0; have < bytes; have += warm[warm_count++].size)
        slot_fill(&warm[warm_count], random_size(&random, WARM_POWERS), warm_count);
    pid_t *pids = pages_map(children * sizeof *pids);
    int done[2], leave[2];
    if (pipe(done) != 0 || pipe(leave) != 0)
        fail(1, "no pipe");

    double start = now_seconds();
    for (uint64_t i = 0; i < children; i++) {
        pids[i] = fork();
        if (pids[i] < 0)
            fail(1, "fork failed");
        if (pids[i] == 0) {
            close(leave[1]);
            child_run(i, done[1], leave[0]);
        }
    }
    close(done[1]);
    char byte;
    uint64_t well = 0, pss = 0;
    while (well < children && read(done[0], &byte, 1) == 1)
        well++;
    double seconds = now_seconds() - start;
    if (well == children)
        pss = pss_of(getpid());
    for (uint64_t i = 0; i < well && well == children; i++)
        pss += pss_of(pids[i]);
    close(leave[1]);
    for (uint64_t i = 0; i < children; i++)
        child_wait(pids[i]);
    report_speed(children * args[REQUESTS].value, seconds);
    report_value("pss_all_bytes", pss);
    report_value("warm_bytes", bytes);
    slots_clear(warm, warm_count);
}
