#!/usr/bin/env python3
"""The crates of allocators in one run, by turns: rust.py DIRECTORY [ROUNDS]. DIRECTORY holds the programs of
rust/bench.

For each workload and allocator: the medians of CPU time and of peak memory, relative to HAKMEM's."""
# SPDX-License-Identifier: MIT
import pathlib
import statistics
import sys

import measured

ALLOCATORS = ["hakmem", "mimalloc", "jemalloc", "snmalloc", "system"]
WORKLOADS = ["trees", "maps", "vectors", "messages"]


def main():
    directory, rounds = pathlib.Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 7
    results = {}
    for _ in range(rounds):
        for workload in WORKLOADS:
            for allocator in ALLOCATORS:
                results.setdefault((workload, allocator), []).append(measured.run([directory / allocator, workload]))
    medians = {key: [statistics.median(column) for column in zip(*values)] for key, values in results.items()}
    print(f"CPU time and peak memory relative to hakmem's: less is better; medians of {rounds} rounds\n")
    print(f"{'':10}" + "".join(f"{allocator:>14}" for allocator in ALLOCATORS))
    for workload in WORKLOADS:
        base = medians[workload, "hakmem"]
        ratios = ([a / b for a, b in zip(medians[workload, allocator], base)] for allocator in ALLOCATORS)
        print(f"{workload:10}" + "".join(f"{time:8.2f} {memory:5.2f}" for time, memory in ratios))


if __name__ == "__main__":
    main()
