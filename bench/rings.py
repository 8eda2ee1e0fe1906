#!/usr/bin/env python3
"""The sweep over ring capacities: rings.py LIBRARY WORKLOADS [--quick] [ROUNDS] [--json FILE].

Runs the reports' two workloads, and one that fills and frees in turn, with rings of mid and large blocks of fixed
capacities, with the reports' capacities by class, and as they adapt by default. For each: CPU time (the median of
interleaved rounds), the library's instructions an operation (callgrind, one run), refills in percent of the operations,
and the bytes of a thread's ring entries, 16 each. An adaptive ring has 128 at least, and four times as many when they
do not suffice. Prints a table in Markdown.

A capacity is fixed by the tunables ring_blocks and ring_min_blocks, without halving (ring_spills)."""
# SPDX-License-Identifier: MIT
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

CAPS = [16, 24, 32, 40, 48, 56, 64, 96, 128]
BY_CLASS = {2: 24, 4: 32, 8: 48, 16: 64, 32: 64, 40: 32, 64: 24}  # the reports': KiB up to which, blocks
WORKLOADS = {  # name: arguments, short and long; operations of the long one
    "mid_large_mt": (["2", "{}", "128"], 4000, 40000, lambda n: 2 * n),
    "random_mixed": (["{}", "400", "42"], 20000, 200000, lambda n: n),
    "sweep": (["8000", "600", "1", "100", "{}", "1"], 10, 60, lambda n: 1200 * n),
}


def write_policy(file):
    """The reports' capacities, as a policy file: more of them than HAKMEM_TUNE takes."""
    lines = ["hakmem policy 1", "set ring_blocks=16"]
    for kib in range(2, 65):
        blocks = next(blocks for to, blocks in BY_CLASS.items() if kib <= to)
        lines.append(f"set ring_blocks:{kib}k={blocks}")
    file.write("\n".join(lines) + "\n")
    file.flush()


def settings(policy):
    """Name and environment of each setting, in the order of the table."""
    for cap in CAPS:
        yield str(cap), {"HAKMEM_TUNE": f"ring_blocks={cap},ring_min_blocks={cap},ring_min_bytes=0,ring_spills=255"}
    yield "by class", {"HAKMEM_POLICY": policy, "HAKMEM_TUNE": "ring_min_blocks=1024,ring_spills=255"}
    yield "adaptive", {}
    yield "adaptive, kept", {"HAKMEM_TUNE": "ring_spills=255,shrunk_slots=1000000"}


class Sweep:
    def __init__(self, library, workloads):
        self.library, self.workloads = library, workloads

    def command(self, workload, n):
        return [str(self.workloads / workload), *(part.format(n) for part in WORKLOADS[workload][0])]

    def environment(self, setting, **more):
        return {**os.environ, "LD_PRELOAD": self.library, "HAKMEM_REGION_BYTES": "16g", **setting, **more}

    def time(self, workload, setting):
        """Seconds of CPU time."""
        child = subprocess.Popen(self.command(workload, WORKLOADS[workload][2]), stdout=subprocess.DEVNULL,
                                 env=self.environment(setting))
        _, status, usage = os.wait4(child.pid, 0)
        if status:
            sys.exit(f"{workload}: status {status}")
        return usage.ru_utime + usage.ru_stime

    def refills(self, workload, setting):
        """In percent of the operations, and how many rings needed more than the first one."""
        with tempfile.NamedTemporaryFile() as file:
            subprocess.run(self.command(workload, WORKLOADS[workload][2]), stdout=subprocess.DEVNULL, check=True,
                           env=self.environment(setting, HAKMEM_STATS="json", HAKMEM_STATS_FILE=file.name))
            stats = json.loads(pathlib.Path(file.name).read_text())
        operations = WORKLOADS[workload][3](WORKLOADS[workload][2])
        rings = [ring for ring in stats["rings"] if ring["misses"] > 1]
        return 100 * sum(ring["misses"] for ring in rings) / operations, len(rings)

    def instructions(self, workload, setting):
        """Of the library, an operation: of a long run without those of a short one."""
        counts, operations = [], []
        for n in WORKLOADS[workload][1:3]:
            with tempfile.NamedTemporaryFile() as file:
                subprocess.run(["valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={file.name}",
                                *self.command(workload, n)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               check=True, env=self.environment(setting))
                text = pathlib.Path(file.name).read_text()
            counts.append(self_cost(text, pathlib.Path(self.library).name))
            operations.append(WORKLOADS[workload][3](n))
        return (counts[1] - counts[0]) / (operations[1] - operations[0])


def self_cost(text, library):
    """The instructions of one object file, from callgrind's output."""
    names, inside, called, total = {}, False, False, 0
    for line in text.splitlines():
        found = re.match(r"ob=\((\d+)\)(?: (.*))?", line)
        if found:
            names.setdefault(found.group(1), found.group(2))
            inside = names[found.group(1)].endswith(library) if names[found.group(1)] else False
        elif line.startswith("cob="):
            number, _, name = line[5:].partition(") ")
            if name:
                names.setdefault(number, name)
        elif line.startswith("calls="):
            called = True
        elif re.match(r"[+\-*\d]", line):
            if inside and not called:
                total += int(line.split()[1])
            called = False
    return total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library", type=lambda path: str(pathlib.Path(path).resolve()))
    parser.add_argument("workloads", type=pathlib.Path)
    parser.add_argument("rounds", nargs="?", type=int, default=11)
    parser.add_argument("--quick", action="store_true", help="three rounds")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    sweep, results = Sweep(options.library, options.workloads), []
    policy = tempfile.NamedTemporaryFile("w")
    write_policy(policy)
    for workload in WORKLOADS:
        all_settings = list(settings(policy.name))
        times = {name: [] for name, _ in all_settings}
        for _ in range(3 if options.quick else options.rounds):  # interleaved, so that drift is everybody's
            for name, setting in all_settings:
                times[name].append(sweep.time(workload, setting))
        print(f"\n| {workload}: rings | CPU ms | instructions an operation | refills, % | entries, B "
              f"|\n|---|---|---|---|---|")
        for name, setting in all_settings:
            seconds = statistics.median(times[name])
            refills, rings = sweep.refills(workload, setting)
            cap = int(name) if name.isdigit() else max(BY_CLASS.values()) if name == "by class" else 128
            row = {"workload": workload, "rings": name, "cpu_ms": 1000 * seconds, "refills_percent": refills,
                   "instructions": sweep.instructions(workload, setting),
                   "entries_bytes": 16 * cap * rings}
            results.append(row)
            print(f"| {name} | {row['cpu_ms']:.1f} | {row['instructions']:.1f} | {refills:.2f} | "
                  f"{row['entries_bytes']} |", flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
