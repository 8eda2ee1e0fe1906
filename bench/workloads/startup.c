/* startup [RUNS] [BLOCKS]: starts itself RUNS times, one after the other; each makes BLOCKS allocations and ends.
 *
 * RUNS 0 is such a run. Blocks are 16-1040 B; one in eight is freed at once, the others at the end. An operation is one
 * run: exec, dynamic linking, the first allocations, exit. */
/* SPDX-License-Identifier: MIT */
#include "workload.h"
#include <spawn.h>

enum { RUNS, BLOCKS };

static struct argument args[] = {{"RUNS", 300, 0, 0}, {"BLOCKS", 100, 1, 1u << 20}};

static void run(void) {
    size_t count = args[BLOCKS].value;
    uint64_t random = random_seed(1);
    struct slot *slots = must(calloc(count, sizeof *slots));
    for (size_t i = 0; i < count; i++) {
        slot_fill(&slots[i], 16 + random_below(&random, 1025), (uint32_t)i);
        if (i % 8 == 7)
            slot_clear(&slots[i]);
    }
    slots_clear(slots, count);
    free(slots);
}

int main(int argc, char **argv) {
    ARGUMENTS_READ(argc, argv, args);
    if (args[RUNS].value == 0) {
        run();
        return 0;
    }
    char blocks[32], program[4096];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length < 0)
        fail(1, "/proc is not there");
    program[length] = 0;
    snprintf(blocks, sizeof blocks, "%llu", (unsigned long long)args[BLOCKS].value);
    char *const child_argv[] = {argv[0], (char[]){"0"}, blocks, NULL};
    double start = now_seconds();
    for (uint64_t i = 0; i < args[RUNS].value; i++) {
        pid_t child;
        if (posix_spawn(&child, program, NULL, NULL, child_argv, environ) != 0)
            fail(1, "posix_spawn failed");
        child_wait(child);
    }
    report_speed(args[RUNS].value, now_seconds() - start);
}
