/* See seeds.h. */
/* SPDX-License-Identifier: MIT */
#include "seeds.h"
#include "model.h"

#include <string.h>

/* repeats a declaration where several lines name one access */
#define X(access, how, harness) enum fault seed_of_##access;
SEEDS(X)
#undef X

#define X(access, how, harness) {#access "_" #how, &seed_of_##access, FAULT_##how, #harness},
static const struct {
    const char *name;
    enum fault *access, fault;
    const char *harness;
} seeds[] = {SEEDS(X)};
#undef X

const char *seed_choose(const char *name) {
    for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++)
        if (strcmp(seeds[i].name, name) == 0) {
            *seeds[i].access = seeds[i].fault;
            return seeds[i].harness;
        }
    return NULL;
}

intptr_t seed_breaks(const enum fault *fault) {
    if (*fault == FAULT_none || !model_runs_threads())
        return 0;
    if (*fault == FAULT_no || *fault == FAULT_yes)
        return *fault == FAULT_no ? 1 : 2;
    model_break_next(*fault);
    return 0;
}
