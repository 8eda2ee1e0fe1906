#!/usr/bin/env python3
"""./hak bench bulk: the whole picture of bulk work, as curves over the blocks' size and over their number.

    bulk.py suite [--quick]   prints a suite for `hakmem compare`: the workload sweep in every phase, size and number
    bulk.py steps RESULT      says where a curve of HAKMEM takes a step that no peer's curve takes; status 1 if any does

1. A phase is what is timed (mallocs or frees), the order of the frees, and how much is freed in each of several rounds.
2. Along a curve one thing grows: the size at BYTES of blocks in all, or the number of blocks of one size.
3. A step is a rise of the time of one operation between two neighbouring points of HAKMEM's curve by more than STEP,
   where every peer's rise is less by STEP_APART. Only times above NOISE_NS count.
"""
# SPDX-License-Identifier: MIT
import argparse
import json
import sys
from pathlib import Path

HAKMEM = "hakmem"
BYTES = 32 * 2**20
BYTES_MAX = 768 * 2**20
OPERATIONS_MIN = 400_000  # of one run: fewer are over before the clock and the caches have settled
SIZES = (8, 16, 32, 64, 128, 256, 512, 1024, 1536, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144, 524288,
         1048576)
SIZES_COUNTED = (16, 64, 1024, 16384)
COUNTS = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)
RANDOM, SAME, REVERSE, OTHER_THREAD = range(4)  # sweep's ORDER
PHASES = (  # name, what is timed, ORDER, PERCENT
    ("fill", "fills/s", SAME, 100),
    ("free in order", "frees/s", SAME, 100),
    ("free in reverse", "frees/s", REVERSE, 100),
    ("free in random order", "frees/s", RANDOM, 100),
    ("free in another thread", "frees/s", OTHER_THREAD, 100),
    ("free 10 %", "frees/s", RANDOM, 10),
    ("free 50 %", "frees/s", RANDOM, 50),
    ("free 90 %", "frees/s", RANDOM, 90),
    ("free 99 %", "frees/s", RANDOM, 99),
    ("refill 50 %", "fills/s", RANDOM, 50),
)
STEP, STEP_APART, NOISE_NS = 1.6, 1.25, 15


def rounds_of(count, percent):
    """Partial sweeps say little in one round."""
    freed = max(1, count * percent // 100)
    return min(200, max(1 if percent == 100 else 3, OPERATIONS_MIN // freed))


def workload(phase, curve, x, unit, size, count):
    name, timed, order, percent = phase
    command = ["{bench}/sweep", size, count, 1, percent, rounds_of(count, percent), order]
    return "\n".join((
        "[[workload]]",
        f'name = "{name}, {curve}: {x:,} {unit}"',
        f'group = "{name}"',
        f"command = {json.dumps([str(word) for word in command])}",
        f"metric = 'sweep {timed}: ([0-9]+)'",
        f'metric_name = "{timed}"',
        f'curve = {{ name = "{name}, {curve}", x = {x}, unit = "{unit}" }}',
        "timeout_s = 120",
        ""))


def suite(quick):
    yield 'title = "Bulk work"\nrounds = 3\nbaseline = "hakmem"\n'
    sizes, counts = (SIZES[::3], COUNTS[::2]) if quick else (SIZES, COUNTS)
    for phase in PHASES:
        for size in sizes:
            yield workload(phase, f"{BYTES >> 20} MiB", size, "B", size, max(64, BYTES // size))
        for size in SIZES_COUNTED:
            for count in counts:
                if count * size <= BYTES_MAX:
                    yield workload(phase, f"blocks of {size:,} B", count, "blocks", size, count)


def curves(result):
    """(curve, unit) -> allocator -> sorted (x, ns of an operation)."""
    found = {}
    for each in result["workloads"]:
        if each["curve"] is None:
            continue
        lines = found.setdefault((each["curve"]["name"], each["curve"]["unit"]), {})
        for one in each["results"]:
            if one["summary"] is not None:
                nanoseconds = 1e9 / one["summary"]["metric"]["median"]
                lines.setdefault(one["allocator"], []).append((each["curve"]["x"], nanoseconds))
    return {key: {name: sorted(points) for name, points in lines.items()} for key, lines in found.items()}


def steps(result):
    for (curve, unit), lines in curves(result).items():
        ours = lines.get(HAKMEM, [])
        peers = {name: dict(points) for name, points in lines.items() if name not in (HAKMEM, "system")}
        for (before_x, before), (x, after) in zip(ours, ours[1:]):
            rises = {name: points[x] / points[before_x] for name, points in peers.items()
                     if x in points and before_x in points}
            rise = after / max(before, NOISE_NS)
            if rise > STEP and rises and rise > max(rises.values()) * STEP_APART:
                others = ", ".join(f"{name} {peers[name][before_x]:.0f} to {peers[name][x]:.0f}"
                                   for name in sorted(rises))
                yield (f"{curve}: {before:.0f} to {after:.0f} ns from {before_x:,.0f} to {x:,.0f} {unit} ({others})")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("suite").add_argument("--quick", action="store_true",
                                              help="every third size, every second number")
    commands.add_parser("steps").add_argument("result", type=Path)
    options = parser.parse_args()
    if options.command == "suite":
        print("\n".join(suite(options.quick)))
        return
    found = list(steps(json.loads(options.result.read_text())))
    print(f"{len(found)} steps that no peer takes" + (":" if found else ""))
    for line in found:
        print("  " + line)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
