#!/usr/bin/env python3
"""./hak bench: the workloads under HAKMEM, the system allocator and its peers, side by side.

  ./hak bench NAME ARGS…        one workload, compared
  ./hak bench quick             every figure the project holds itself to, each with its target
  ./hak bench --workload-list   the workloads, a line each

How runs are ordered and compared is written in measure.py.
"""
import argparse
import json
import os
import sys
from pathlib import Path

sys.dont_write_bytecode = True  # no cache directory in the source tree
import figures
from measure import (AGAIN, HAKMEM, PEERS, REPOSITORY, SYSTEM, BenchError, Build, Progress, amount, mebibytes, median,
                     ratio, run_rounds, speed_ratio, table_print)

WORKLOADS = REPOSITORY / "bench" / "workloads"


def workload_list():
    """NAME and ARGS: what it does, as the first line of each workload's file says it."""
    lines = []
    for source in sorted(WORKLOADS.glob("*.c")):
        usage, _, what = source.read_text().split("\n", 1)[0].removeprefix("/* ").removesuffix(" */").partition(": ")
        lines.append((usage, what))
    return lines


def workload_list_print():
    for usage, what in workload_list():
        print(f"{usage}\n    {what}")


def names_select(build, only):
    """The allocators to measure, in table order."""
    known = [HAKMEM, SYSTEM, *PEERS]
    wanted = only.split(",") if only else known
    for name in wanted:
        if name not in known:
            raise BenchError(f"{name}: no such allocator; there are {', '.join(known)}")
        if only and name not in build.allocators:
            raise BenchError("; ".join(line for line in build.missing() if line.startswith(name)))
    return [name for name in known if name in wanted and name in build.allocators]


def compare(build, options):
    names = names_select(build, options.only)
    base = options.base or (HAKMEM if HAKMEM in names else names[0])
    if base not in names:
        raise BenchError(f"{base}: the base is not among the allocators measured ({', '.join(names)})")
    command = [build.program(options.name), *options.args]
    samples = run_rounds(build, names, command, options.rounds, base, Progress())

    print(f"{options.name} {' '.join(options.args)}".rstrip() +
          f"  ({options.rounds} interleaved rounds on {os.cpu_count()} cores, medians; ratios to {base})")
    header = ["allocator", "ops/s", f"speed / {base}", "wall", "CPU", "peak RSS", f"RSS / {base}", "faults"]
    rows, results = [], {}
    for name in samples:
        runs = samples[name]
        speed = speed_ratio(samples, name, base)
        memory = ratio([s.peak_rss for s in runs], [s.peak_rss for s in samples[base]])
        wall, cpu, peak, faults = (median([getattr(s, key) for s in runs])
                                   for key in ("wall_s", "cpu_s", "peak_rss", "faults"))
        ops = median([s.ops for s in runs]) if runs[0].ops else None
        results[name] = {"ops_per_s": ops, "speed_ratio": vars(speed), "wall_s": wall, "cpu_s": cpu,
                         "peak_rss_bytes": peak, "rss_ratio": vars(memory), "minor_faults": faults,
                         "samples": [dict(vars(s)) for s in runs]}
        if name.endswith(AGAIN):
            continue
        rows.append([name, amount(ops) if ops else "-", "1" if name == base else speed, f"{wall:.3f} s",
                     f"{cpu:.3f} s", mebibytes(peak), "1" if name == base else f"{memory.median:.2f}", f"{faults:.0f}"])
    table_print(header, rows)
    again = speed_ratio(samples, base + AGAIN, base)
    print(f"A/A: {base} against itself {again}: smaller differences than this mean nothing here.")
    for line in build.missing():
        print("not measured: " + line)
    return {"workload": options.name, "args": options.args, "rounds": options.rounds, "base": base, "results": results}


def quick(build, options):
    if HAKMEM not in build.allocators:
        raise BenchError("; ".join(build.missing()))
    results = figures.measure_all(build, options.rounds, Progress(), options.figure)
    short = [result for result in results if not result.ok]
    print(f"\n{len(results) - len(short)} of {len(results)} figures reach their target.")
    for line in build.missing():
        print("not measured: " + line)
    return {"figures": [vars(result) for result in results]}, 1 if short else 0


def options_parse(argv):
    parser = argparse.ArgumentParser(prog="./hak bench", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload-list", action="store_true", help="print the workloads, then end")
    parser.add_argument("--only", metavar="A,B", help=f"allocators: {', '.join([HAKMEM, SYSTEM, *PEERS])}")
    parser.add_argument("--base", metavar="A", help="the one ratios are taken to (hakmem)")
    parser.add_argument("--rounds", type=int, default=7, metavar="N", help="interleaved rounds (7)")
    parser.add_argument("--json", metavar="FILE", help="write the results there, too")
    parser.add_argument("--build", metavar="DIR", help="the build tree (build/release)")
    parser.add_argument("--library", metavar="FILE", help="the library to measure as hakmem (libhakmem.so in the tree)")
    parser.add_argument("--checked", metavar="FILE",
                        help="the checked library, for counts of atomics (build/checked/libhakmem.so)")
    parser.add_argument("--figure", metavar="TEXT", help="quick: only figures whose name contains TEXT")
    parser.add_argument("name", nargs="?", help="a workload, or quick")
    parser.add_argument("args", nargs="*", help="its arguments")
    return parser, parser.parse_intermixed_args(argv)


def main(argv):
    parser, options = options_parse(argv)
    if options.workload_list:
        workload_list_print()
        return 0
    if not options.name:
        parser.print_help()
        return 2
    if options.rounds < 1:
        parser.error("--rounds is at least 1")
    if options.name != "quick" and not (WORKLOADS / f"{options.name}.c").exists():
        print(f"./hak bench: {options.name}: no such workload; there are quick and these:", file=sys.stderr)
        for usage, _ in workload_list():
            print(f"  {usage}", file=sys.stderr)
        return 2
    build = Build.find(options.build, options.library)
    build.checked = Path(options.checked or REPOSITORY / "build" / "checked" / "libhakmem.so")
    try:
        if options.name == "quick":
            result, status = quick(build, options)
        else:
            result, status = compare(build, options), 0
    except BenchError as error:
        Progress().done()
        print(f"./hak bench: {error}", file=sys.stderr)
        return 2
    if options.json:
        Path(options.json).write_text(json.dumps(result, indent=1) + "\n")
    return status


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        print(file=sys.stderr)
        sys.exit(130)
