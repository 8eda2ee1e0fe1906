/* For programs that wait until the test that started them has looked at them. */
/* SPDX-License-Identifier: MIT */
#ifndef READS_OF_PARENT_H
#define READS_OF_PARENT_H

#include <stdio.h>
#include <unistd.h>

/* How many reads the process that started this one has made; -1 where the kernel does not tell. */
static long reads_of_parent(void) {
    char path[64], line[64];
    long reads = -1;
    snprintf(path, sizeof path, "/proc/%d/io", (int)getppid());
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file))
        sscanf(line, "syscr: %ld", &reads);
    if (file)
        fclose(file);
    return reads;
}

#endif
