/* Shared by the fuzz targets that run steps: how many places a machine has, and the counts printed at the end. */
/* SPDX-License-Identifier: MIT */
#ifndef HAKMEM_TESTS_FUZZ_H
#define HAKMEM_TESTS_FUZZ_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "operations.h"

constexpr size_t kFuzzPlaces = 64;

struct FuzzCounts {
    const char *name;
    size_t executions = 0, operations = 0;
    explicit FuzzCounts(const char *target) : name(target) {}
    ~FuzzCounts() {
        printf("figure: fuzz_%s_executions %zu\nfigure: fuzz_%s_operations %zu\n", name, executions, name, operations);
        fflush(stdout);
    }
};
extern FuzzCounts fuzz_counts;

#endif
