/* libFuzzer over sequences of calls: the bytes are steps (operations.h), every answer is checked, and everything is
 * freed at the end. If it fails, a sequence of calls that a program may make corrupts its memory. */
/* SPDX-License-Identifier: MIT */
#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static World world;
    static Machine machine(subject(), world, 0, kFuzzPlaces);
    machine.most_bytes = size_t{8} << 20;
    Machine::reset_options();
    fuzz_counts.executions++;
    for (size_t at = 0; at + kStepBytes <= size; at += kStepBytes) {
        Step step = step_of_bytes(data + at);
        if (step.call != CALL_fork) /* fork is slow, and the model test covers it */
            machine.run(step);
        fuzz_counts.operations++;
    }
    machine.free_all();
    machine.free_the_exchange();
    if (world.live() != 0)
        abort();
    return 0;
}

FuzzCounts fuzz_counts("operations");
