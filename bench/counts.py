#!/usr/bin/env python3
"""./hak bench counts: what a machine's speed cannot change, counted per operation, as threads and heap grow.

  callgrind  instructions of everything but the program itself; D1 and LL misses of the whole process, in caches
  simulated with
             fixed sizes
  kernel     system calls and faults per 1,000 operations, by strace -c -f and wait4
  atomics    read-modify-writes per 1,000 operations: HAKMEM's checked build counts its own
  lines      lines that move from thread to thread and compare-and-swaps that fail, per 1,000 operations, where all
             accesses are made in one order (bench/lines/lines.h); a line that holds tables, or blocks
  bytes      what a thread costs that holds a few blocks, that sleeps, that has ended

1. Every figure is the difference of two runs of different length by the difference of their operations: what start,
   filling and end cost cancels out. (The path "fill and empty" is the run with the heap less the run without, and bytes
   are of one run.)
2. An allocator that cannot run under valgrind, or is not the one that runs there, is named with the reason.
3. Nothing of HAKMEM grows with threads but by a reason that growth.py lists: what does makes the status 1.
"""
# SPDX-License-Identifier: MIT
import argparse
import json
import os
import platform
import subprocess
import sys
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.dont_write_bytecode = True  # no cache directory in the source tree
from cases import CASES
from growth import TOLERANCE, breaks_the_rule, figure, findings, losses
from meters import (CACHES_TEXT, HAKMEM, LEAST_STEP, MIB, REPOSITORY, RETRIES, TABLE_LINES, BenchError, Counter, Place,
                    allocators_find)

PLACES_SHOWN = 30  # of a case, at most


# ---- measuring ----

def point(count, allocator, case, x, lengths) -> dict:
    """unit -> count per operation, from a short and a long run, or a whole one; likewise for Places."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGESIZE") // MIB
    if case.mebibytes(x) > free:
        raise BenchError(f"{case.mebibytes(x) / 1024:.0f} GiB are not free")
    runs = [count(allocator, case.command(x, length)) for length in lengths]
    operations = case.operations(x, lengths[-1]) - (case.operations(x, lengths[0]) if len(lengths) > 1 else 0)
    if len(runs) == 1:
        runs.insert(0, {})
    return {unit: (runs[1].get(unit, 0) - runs[0].get(unit, 0)) / operations for unit in {**runs[0], **runs[1]}}


class Counts:
    """Measures all cases; `series` holds (case, unit) -> allocator -> points, `places` (case, unit, what) -> function
    -> points, `missing` what could not be counted."""

    def __init__(self, counter, options):
        self.counter, self.options = counter, options
        self.series = defaultdict(lambda: defaultdict(list))
        self.places = defaultdict(lambda: defaultdict(dict))
        self.missing = {}

    def tasks(self, allocators):
        """(allocator, case, meter, x)"""
        for case in CASES:
            if self.options.case not in case.name:
                continue
            for allocator in allocators:
                ours = allocator.name == HAKMEM
                for meter in self.counter.METERS:
                    if (meter not in case.lengths or meter not in self.options.meters
                            or meter in self.counter.OURS and not ours
                            or meter == "atomics" and not self.counter.checked
                            or meter == "kernel" and self.options.quick and not ours
                            or meter == "callgrind" and allocator.name in self.missing):
                        continue
                    for x in case.xs_of(meter, ours, self.options.quick):
                        yield allocator, case, meter, x

    def measure(self, allocators):
        for allocator in allocators if "callgrind" in self.options.meters else ():
            try:
                self.counter.callgrind(allocator, ["random_replace", 10, 64, 10, 42, 1])
            except BenchError as error:
                self.missing[allocator.name] = f"{allocator.name} under valgrind: {error}"
        with ThreadPoolExecutor(max(1, self.options.jobs)) as pool:
            tasks = list(self.tasks(allocators))
            results = [pool.submit(point, getattr(self.counter, meter), allocator, case, x, case.lengths[meter](x))
                       for allocator, case, meter, x in tasks]
            for number, ((allocator, case, meter, x), result) in enumerate(zip(tasks, results), 1):
                progress(f"{number} of {len(tasks)}: {allocator.name}, {case.name}, {x} {case.x_unit}: {meter}")
                try:
                    self.note(allocator, case, x, result.result())
                except BenchError as error:
                    self.missing[allocator.name, case.name, meter, x] = (
                        f"{allocator.name}, {case.name}, {x} {case.x_unit}, {meter}: {error}")
        progress("")

    def note(self, allocator, case, x, counted):
        for unit, value in counted.items():
            if isinstance(unit, Place):
                self.places[case, unit.unit, unit.what][unit.code][x] = value
            else:
                self.series[case, unit][allocator.name].append((x, round(value, 4)))

    def paths(self) -> list:
        """A table each: what is counted of a case, by allocator."""
        return [{"name": case.name, "unit": unit, "x_unit": case.x_unit, "note": case.note, "least": LEAST_STEP[unit],
                 "series": [{"allocator": allocator, "points": points} for allocator, points in series.items()]}
                for (case, unit), series in sorted(self.series.items(), key=self.order)]

    @staticmethod
    def order(item):
        case, unit = item[0]
        return CASES.index(case), list(LEAST_STEP).index(unit)

    def where(self) -> list:
        """What moves and fails, by what lies there: those of each case that count most."""
        whole = defaultdict(list)
        for (case, unit, what), functions in self.places.items():
            xs = sorted({x for points in functions.values() for x in points})
            of = {name: sum(points.values()) for name, points in functions.items()}
            most = max(of.values())
            names = [name for name in sorted(of, key=of.get, reverse=True) if of[name] > most / 5][:3]
            points = [(x, round(sum(points.get(x, 0) for points in functions.values()), 2)) for x in xs]
            whole[case, unit].append({"what": what, "code": names, "points": points})
        found = []
        for (case, unit), places in sorted(whole.items(), key=self.order):
            places.sort(key=lambda place: -max(y for _, y in place["points"]))
            shown = [place for place in places[:PLACES_SHOWN] if max(y for _, y in place["points"]) > 0.5]
            found.append({"name": case.name, "unit": unit, "x_unit": case.x_unit, "places": shown})
        return [each for each in found if each["places"]]


def progress(text):
    if sys.stderr.isatty():
        sys.stderr.write("\r\033[K" + text[:100])
        sys.stderr.flush()


# ---- output ----

def tables_print(report):
    """A table per case: a row per unit and allocator. Where all of them count nothing, one row says so."""
    for name in dict.fromkeys(path["name"] for path in report["paths"]):
        units = [path for path in report["paths"] if path["name"] == name]
        xs = sorted({x for path in units for series in path["series"] for x, _ in series["points"]})
        rows = []
        for path in units:
            whole = path["unit"].endswith("1,000") or "thread" in path["unit"]
            unit = path["unit"] + ("" if whole else " per operation")
            if all(abs(y) < 0.05 for series in path["series"] for _, y in series["points"]):
                rows.append([f"{unit}: none under any"])
                continue
            for series in path["series"]:
                rows.append([f"{unit}: {series['allocator']}", *cells(series["points"], xs)])
            for places in report["places"]:
                if (places["name"], places["unit"]) == (name, path["unit"]):
                    rows += [[f"  {place['what']} ({', '.join(place['code'])})"[:90], *cells(place["points"], xs)]
                             for place in places["places"]]
        print(f"\n{name}" + (f" ({units[0]['note']})" if units[0]["note"] else ""))
        table_print([units[0]["x_unit"], *(f"{x:g}" for x in xs)],
                    [row + [""] * (len(xs) + 1 - len(row)) for row in rows])
    for key, text in (("unexplained", "series of HAKMEM grow without a reason"), ("explained", "grow by a reason"),
                      ("losses", "counts are above the best peer's")):
        lines = {"unexplained": [each["line"] for each in report["findings"] if each["reason"] is None],
                 "explained": [f"{each['line']}: {each['reason']}" for each in report["findings"] if each["reason"]],
                 "losses": report["losses"]}[key]
        print(f"\n{len(lines)} {text}, by more than {(TOLERANCE - 1) * 100:.0f} %")
        for line in lines:
            print("  " + line)
    for line in report["missing"]:
        print("not counted: " + line)


def cells(points, xs) -> list:
    values = dict(points)
    return [figure(values[x]) if x in values else "" for x in xs]


def table_print(header, rows):
    """Columns as wide as they need to be; the first left, the others right."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    bold, plain = ("\033[1m", "\033[0m") if sys.stdout.isatty() else ("", "")

    def line(row):
        return "  ".join(cell.ljust(widths[i]) if i == 0 else cell.rjust(widths[i]) for i, cell in enumerate(row))

    print(bold + line(header).rstrip() + plain)
    for row in rows:
        print(line(row).rstrip())


def machine() -> str:
    valgrind = subprocess.run(["valgrind", "--version"], capture_output=True, text=True, check=False).stdout.strip()
    return f"{valgrind}, {CACHES_TEXT}; Linux {platform.release()}, {os.cpu_count()} cores"


def jobs_default() -> int:
    free_bytes = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGESIZE")
    return max(1, min(os.cpu_count() or 1, free_bytes // (5 * 1024 * MIB)))


def meters_parse(text) -> list:
    chosen = text.split(",")
    if unknown := set(chosen) - set(Counter.METERS):
        raise argparse.ArgumentTypeError(f"{', '.join(sorted(unknown))}: there are {', '.join(Counter.METERS)}")
    return chosen


def options_parse(argv):
    parser = argparse.ArgumentParser(prog="./hak bench counts", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", metavar="DIR", default=REPOSITORY / "build" / "release", help="the build tree")
    parser.add_argument("--library", metavar="FILE", help="the library to measure (libhakmem.so in the tree)")
    parser.add_argument("--checked", metavar="LIB", help="the checked library, which counts atomics")
    parser.add_argument("--peers", metavar="FILE", default=REPOSITORY / "build" / "peers" / "peers.toml",
                        help="the peers; without the file, Debian's packages")
    parser.add_argument("--only", metavar="A,B", help="these allocators only")
    parser.add_argument("--case", metavar="TEXT", default="", help="only cases whose name contains TEXT")
    parser.add_argument("--meters", metavar="A,B", type=meters_parse, default=list(Counter.METERS),
                        help="these meters only")
    parser.add_argument("--json", metavar="OUT", help="write the report there, too")
    parser.add_argument("--quick", action="store_true",
                        help="one or two points per path: about five minutes on two cores")
    parser.add_argument("--jobs", type=int, default=jobs_default(), metavar="N",
                        help="runs at once (all cores, if each finds 5 GiB free)")
    return parser.parse_args(argv)


def missing(counts, allocators, options) -> list:
    lines = list(counts.missing.values())
    if any(each.name == "tcmalloc" for each in allocators) and "tcmalloc" not in counts.missing:
        lines.append("tcmalloc's per-CPU caches: valgrind knows no restartable sequences, it runs without")
    if "atomics" in options.meters and not options.checked:
        lines.append("atomics: no checked library (--checked)")
    return lines


def main(argv) -> int:
    options = options_parse(argv)
    try:
        allocators = allocators_find(options)
        checked = Path(options.checked).resolve() if options.checked else None
        if checked and not checked.exists():
            raise BenchError(f"{checked}: there is no checked library")
        counter = Counter(Path(options.build).resolve(), checked)
        for case in CASES:
            for program in {counter.bench, *([counter.lines_bench] if "lines" in case.lengths else [])}:
                if not (program / case.command(64, 1)[0]).exists():
                    raise BenchError(f"{program / case.command(64, 1)[0]} is not built")
        counts = Counts(counter, options)
        counts.measure(allocators)
    except BenchError as error:
        progress("")
        print(f"./hak bench counts: {error}", file=sys.stderr)
        return 2
    paths = counts.paths()
    report = {"title": "Counts that do not depend on the machine", "machine": machine(),
              "allocators": {each.name: each.version for each in allocators}, "paths": paths, "places": counts.where(),
              "findings": findings(paths), "losses": losses(paths), "missing": missing(counts, allocators, options)}
    tables_print(report)
    if options.json:
        Path(options.json).write_text(json.dumps(report, indent=1) + "\n")
    return 1 if any(map(breaks_the_rule, report["findings"])) else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        print(file=sys.stderr)
        sys.exit(130)
