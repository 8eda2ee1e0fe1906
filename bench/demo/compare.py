#!/usr/bin/env python3
"""Runs a program under the system allocator and under HAKMEM in turn, and prints the cost of each run.

usage: compare.py LIBRARY PROGRAM [ARGS…]

Figures are medians of three interleaved rounds. Time is wall-clock time; the kernel reports the other figures for the
finished process (wait4). HAKMEM itself reports where its memory is when the program ends.
"""
# SPDX-License-Identifier: MIT

import json
import os
import resource
import statistics
import sys
import tempfile
import time

ROUNDS = 3
SAME_PERCENT = 2  # smaller differences count as none: three rounds cannot resolve them
MIB = 1 << 20
COLOUR = sys.stdout.isatty() and "NO_COLOR" not in os.environ


def paint(code, text):
    return f"\033[{code}m{text}\033[0m" if COLOUR else text


def progress(text):
    """Prints a line that overwrites itself on a terminal, and nothing elsewhere."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def run(command, library, stats_path):
    """Runs the command once. Returns {"time": seconds, "rss": bytes, "faults": N, "output": bytes}."""
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    if library:
        environment.update(LD_PRELOAD=library, HAKMEM_STATS="json", HAKMEM_STATS_FILE=stats_path)
    with tempfile.TemporaryFile() as output:
        start = time.perf_counter()
        child = os.posix_spawn(command[0], command, environment,
                               file_actions=[(os.POSIX_SPAWN_DUP2, output.fileno(), 1)])
        _, status, usage = os.wait4(child, 0)
        seconds = time.perf_counter() - start
        output.seek(0)
        text = output.read()
    if library and status == 0:
        os.replace(f"{stats_path}.{child}", stats_path)
    if status != 0:
        progress("")
        sys.exit(f"compare: {command[0]} {'under HAKMEM ' if library else ''}ended with status "
                 f"{os.waitstatus_to_exitcode(status)}")
    # A process starts with the peak of the process that launched it, so a smaller program could not be measured.
    if usage.ru_maxrss <= resource.getrusage(resource.RUSAGE_SELF).ru_maxrss:
        progress("")
        sys.exit(f"compare: {command[0]} is smaller than this script; its peak RSS can't be told")
    return {"time": seconds, "rss": usage.ru_maxrss * 1024, "faults": usage.ru_minflt + usage.ru_majflt, "output": text}


def measure(command, library, stats_path):
    """Returns the medians of both sides: {"": {…}, library: {…}}."""
    runs = {"": [], library: []}
    for number in range(ROUNDS):
        for side in runs:
            progress(f"round {number + 1} of {ROUNDS}, {'HAKMEM' if side else 'system allocator'} …")
            runs[side].append(run(command, side, stats_path))
    progress("")
    outputs = {one["output"] for side in runs.values() for one in side}
    if len(outputs) != 1:
        sys.exit("compare: the program's answers differ from run to run; it should always print the same")
    return {side: {what: statistics.median(one[what] for one in ones) for what in ("time", "rss", "faults")}
            for side, ones in runs.items()}


def percent(ours, theirs):
    return round(100 * (ours - theirs) / theirs)


def difference(ours, theirs):
    change = percent(ours, theirs)
    if abs(change) < SAME_PERCENT:
        return "the same"
    return f"{abs(change)} % {'less' if change < 0 else 'more'}"


def table(medians, library):
    system, hakmem = medians[""], medians[library]
    rows = [("time", "time", lambda value: f"{value:.2f} s"),
            ("peak memory (RSS)", "rss", lambda value: f"{value / MIB:.1f} MiB"),
            ("page faults", "faults", lambda value: f"{value:,.0f}")]
    widths = (20, 18, 14, 14)

    def rule(left, middle, right):
        return paint(2, left + middle.join("─" * width for width in widths) + right)

    def line(*cells):
        bar = paint(2, "│")
        return bar + bar.join(cells) + bar

    print(rule("┌", "┬", "┐"))
    print(line(" " * widths[0], f"{'system allocator':>17} ", paint(1, f"{'HAKMEM':>13} "), f"{'HAKMEM takes':>13} "))
    print(rule("├", "┼", "┤"))
    for label, what, show in rows:
        change = percent(hakmem[what], system[what])
        code = 0 if abs(change) < SAME_PERCENT else 32 if change < 0 else 33
        print(line(f" {label:<19}", f"{show(system[what]):>17} ", paint(1, f"{show(hakmem[what]):>13} "),
                   paint(code, f"{difference(hakmem[what], system[what]):>13} ")))
    print(rule("└", "┴", "┘"))


def standing(stats_path):
    """Prints where HAKMEM's memory was at the end of the program; the terms add up."""
    with open(stats_path, encoding="utf-8") as file:
        stats = json.load(file)
    rss = dict(stats["rss_bytes"])
    total = rss.pop("total")
    print(f"\nWhere the {total / MIB:.1f} MiB of HAKMEM's heap stand when the program ends "
          f"({stats['superslabs']} SuperSlabs of 2 MiB):\n")
    for name, size in rss.items():
        bar = "█" * round(40 * max(size, 0) / total)
        print(f"  {name.replace('_', ' '):<27}{size / MIB:>8.1f} MiB {100 * size / total:>5.1f} %  {paint(36, bar)}")


def conclusion(medians, library):
    time_taken, memory = (difference(medians[library][what], medians[""][what]) for what in ("time", "rss"))
    return f"On this program HAKMEM takes {time_taken} time and {memory} memory, set against the system allocator."


def main():
    library, *command = sys.argv[1:]
    library = os.path.abspath(library)
    with tempfile.TemporaryDirectory(prefix="hakmem-") as scratch:
        stats_path = os.path.join(scratch, "stats.json")
        medians = measure(command, library, stats_path)
        table(medians, library)
        standing(stats_path)
    print(f"\n{paint(1, conclusion(medians, library))}")


if __name__ == "__main__":
    main()
