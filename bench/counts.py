#!/usr/bin/env python3
"""./hak bench counts: what a machine's speed cannot change, counted per operation, as threads and heap grow.

  instructions              of everything but the program itself (callgrind, self cost by object file)
  D1 and LL misses          of the whole process, in caches simulated with fixed sizes
  system calls, faults      per 1,000 operations, by strace -c -f and wait4
  atomics                   read-modify-writes per 1,000 operations: HAKMEM's checked build counts its own

1. Every figure is the difference of two runs of different length by the difference of their operations: what start,
   filling and end cost cancels out. (The path "fill and empty" is the run with the heap less the run without.)
2. An allocator that cannot run under valgrind, or is not the one that runs there, is named with the reason.
3. A finding is a series of HAKMEM that grows along its x by more than TOLERANCE and the unit's least step; a loss a
   point where a peer counts less by as much.
"""
# SPDX-License-Identifier: MIT
import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Callable

REPOSITORY = Path(__file__).resolve().parent.parent
HAKMEM, SYSTEM = "hakmem", "system"
CACHES = ("--I1=32768,8,64", "--D1=32768,8,64", "--LL=2097152,16,64")
CACHES_TEXT = "simulated caches: D1 32 KiB 8-way, LL 2 MiB 16-way"
DEBIAN = {"jemalloc-debian": "libjemalloc.so.2", "gperftools": "libtcmalloc_minimal.so.4",
          "mimalloc2-debian": "libmimalloc.so.2"}
TOLERANCE = 1.10
# The least growth that counts, by unit: below it is the noise of threads that meet at other moments.
LEAST_STEP = {"instructions": 3, "D1 misses": 0.1, "LL misses": 0.1, "system calls per 1,000": 0.2,
              "faults per 1,000": 0.5, "atomics per 1,000": 2}
SIMULATED = ("instructions", "D1 misses", "LL misses")
PER_1000 = ("system calls per 1,000", "faults per 1,000")
ATOMICS = "atomics per 1,000"
MIB = 2**20


class BenchError(Exception):
    """Something that keeps a run from being counted; its text is for the user."""


# ---- what is run ----

@dataclass(frozen=True)
class Case:
    """A workload with one argument that grows, and one that sets how long it runs."""
    name: str
    x_unit: str
    xs: tuple
    command: Callable  # (x, length) -> words
    operations: Callable  # (x, length) -> how many
    simulated: Callable  # x -> (short, long) under callgrind
    native: Callable  # x -> (short, long) else
    few: tuple  # the xs at which peers are measured; --quick: the first two HAKMEM, the first one peers
    note: str = ""


def live_of(mebibytes, size):
    return max(1, int(mebibytes * MIB) // size)


def replace_command(size, mebibytes, length):
    return ["random_replace", live_of(mebibytes, size), size if size != 528 else 0, length, 42, 1]


def replace_lengths(size, extra, mebibytes):
    """At least every second place is taken anew before the difference begins, but for heaps too large to wait for."""
    short = min(live_of(mebibytes, size), 1_000_000)
    return short, short + extra


def split(total, threads, per_unit):
    """How often each of `threads` must do a unit of `per_unit` operations, to have done `total` together."""
    return max(1, total // (threads * per_unit))


def lengths_of(short, long, per_unit):
    return lambda threads: (split(short, threads, per_unit), split(long, threads, per_unit))


THREADS = (1, 2, 4, 8, 16, 32, 64)
CHUNKS, ROUNDS = 200, 4  # larson: 800 replacements per thread and generation


def replace_case(name, size, xs, few, note=""):
    return Case(name, "MiB live", xs, partial(replace_command, size), lambda x, n: n,
                partial(replace_lengths, size, 200_000), partial(replace_lengths, size, 2_000_000), few, note)


SWEEPS = (("in order", 1), ("in reverse", 2), ("in random order", 0), ("in random order, in another thread", 3))


def sweep_case(name, order):
    """Each round allocates and frees every block: operations of both kinds, by halves."""
    return Case(f"bulk: blocks of 64 B freed {name}", "thousand blocks", (1, 3, 10, 30, 100, 300),
                lambda x, n: ["sweep", 64, x * 1000, 1, 100, n, order], lambda x, n: 2 * x * 1000 * n,
                lambda x: (1, 1 + max(1, 100 // x)), lambda x: (1, 1 + max(1, 1000 // x)), (1, 30, 300))


def sweep_size_case(name, order):
    return Case(f"bulk: 8 MiB freed {name}, by size", "B", (8, 64, 512, 1024, 4096, 16384, 65536, 262144, 1048576),
                lambda x, n: ["sweep", x, max(1, 8 * MIB // x), 1, 100, n, order],
                lambda x, n: 2 * max(1, 8 * MIB // x) * n, lambda x: (1, 2 if x < 4096 else 20),
                lambda x: (1, 3 if x < 4096 else 100), (8, 1024, 16384, 262144))


CASES = (
    replace_case("hit path: a random one of 256 blocks of 64 B replaced", 64, (1 / 64,), (1 / 64,)),
    replace_case("steady state: a random block of 64 B replaced", 64, (1, 4, 16, 64), (1, 16, 64)),
    replace_case("mixed: a random block of 16-1,040 B replaced", 528, (1, 4, 16, 64, 256), (1, 64)),
    replace_case("large heap: a random block of 1,024 B replaced", 1024, (1, 16, 256, 1024, 4096), (1, 256),
                 "1 GiB and more: the heap is not replaced as a whole before counting"),
    Case("fill and empty: blocks of 1,024 B", "MiB live", (1, 4, 16, 64, 256, 1024, 4096),
         lambda x, n: ["random_replace", live_of(x, 1024) if n else 1, 1024, 0, 42, 1],
         lambda x, n: live_of(x, 1024) if n else 0, lambda x: (0, 1), lambda x: (0, 1), (1, 256),
         "whole runs: each block costs a malloc, a free and its fresh memory"),
    Case("classes: larson, one thread, blocks of 8 B to x", "B at most", (16, 64, 256, 1024, 4096, 32768),
         lambda x, n: ["larson", 1, 0, 8, x, 1000, 10, 42, n], lambda x, n: n * 10_000,
         lambda x: (10, 30), lambda x: (20, 120), (16, 1024, 32768)),
    Case("threads: small_mt", "threads", THREADS, lambda x, n: ["small_mt", x, n, 100, 16],
         lambda x, n: 2 * x * n * 100, lengths_of(100_000, 400_000, 200), lengths_of(1_000_000, 9_000_000, 200),
         (1, 8, 64)),
    Case("threads: larson", "threads", THREADS, lambda x, n: ["larson", x, 0, 8, 1000, CHUNKS, ROUNDS, 42, n],
         lambda x, n: x * n * CHUNKS * ROUNDS, lengths_of(100_000, 300_000, CHUNKS * ROUNDS),
         lengths_of(500_000, 2_500_000, CHUNKS * ROUNDS), (1, 8, 64), "a thread per 800 replacements"),
    Case("threads: mid_large_mt", "threads", THREADS, lambda x, n: ["mid_large_mt", x, n, 128],
         lambda x, n: x * n, lengths_of(100_000, 300_000, 1), lengths_of(500_000, 2_500_000, 1), (1, 8, 64)),
    Case("threads: producers and as many consumers", "threads", THREADS[1:],
         lambda x, n: ["producer_consumer", 64, n, x // 2, x // 2], lambda x, n: n,
         lambda x: (100_000, 300_000), lambda x: (500_000, 2_500_000), (2, 8, 64)),
    *(sweep_case(*each) for each in SWEEPS),
    *(sweep_size_case(*each) for each in SWEEPS),
)


@dataclass
class Allocator:
    name: str
    libraries: list
    environment: dict = field(default_factory=dict)
    version: str = ""

    def words(self) -> list:
        """env VARIABLE=VALUE…, to stand before a command: tools themselves run without the allocator."""
        variables = dict(self.environment)
        if self.libraries:
            variables["LD_PRELOAD"] = ":".join(map(str, self.libraries))
        return ["/usr/bin/env", *(f"{name}={value}" for name, value in variables.items())]


def library_find(soname):
    """Path of a shared library, asked from the loader's cache, else looked for where distributions put them."""
    ldconfig = shutil.which("ldconfig", path=os.environ.get("PATH", "") + ":/sbin:/usr/sbin")
    if ldconfig:
        cache = subprocess.run([ldconfig, "-p"], capture_output=True, text=True).stdout
        for name, path in re.findall(r"^\s*(\S+) \(.*\) => (\S+)$", cache, re.M):
            if name == soname and Path(path).exists():
                return Path(path)
    for pattern in ("usr/lib/*/", "lib/*/", "usr/lib64/", "usr/lib/", "usr/local/lib/"):
        for path in sorted(Path("/").glob(pattern + soname)):
            return path
    return None


def allocators_find(options) -> list:
    library = (Path(options.library) if options.library else Path(options.build) / "libhakmem.so").resolve()
    if not library.exists():
        raise BenchError(f"{library}: there is no library; ./hak build")
    found = [Allocator(HAKMEM, [library]), Allocator(SYSTEM, [])]
    peers = Path(options.peers)
    if peers.exists():
        for entry in tomllib.loads(peers.read_text())["allocator"]:
            if options.only or "fast" in entry.get("tags", ()):
                libraries = [(peers.parent / name).resolve() for name in entry["libraries"]]
                found.append(Allocator(entry["name"], libraries, entry.get("environment", {}), entry["version"]))
    else:
        found += [Allocator(name, [path]) for name, soname in DEBIAN.items() if (path := library_find(soname))]
    if not options.only:
        return found
    wanted = options.only.split(",")
    unknown = set(wanted) - {allocator.name for allocator in found}
    if unknown:
        raise BenchError(f"{', '.join(sorted(unknown))}: not among {', '.join(a.name for a in found)}")
    return [allocator for allocator in found if allocator.name in wanted]


# ---- one run ----

class Counter:
    """Runs commands under an allocator and counts. Every method returns unit -> count of the whole run."""

    def __init__(self, build: Path, checked: Path | None):
        self.bench, self.checked = build / "bench", checked

    def program(self, command) -> list:
        """The words of a command: a workload by its name, any other program by its path."""
        return [str(self.bench / str(command[0])), *map(str, command[1:])]

    def object_costs(self, allocator, command) -> dict:
        """Object file -> the nine counts of callgrind; the allocator's libraries are among them."""
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "out"
            tool_run([*allocator.words(), "valgrind", "-q", "--tool=callgrind", "--cache-sim=yes", *CACHES,
                      "--fair-sched=try", f"--callgrind-out-file={out}", *self.program(command)])
            text = out.read_text(errors="replace")
        costs = object_costs(text)
        total = [sum(cost[event] for cost in costs.values()) for event in range(9)]
        if [int(word) for word in re.search(r"^totals: (.*)", text, re.M).group(1).split()] != total:
            raise BenchError("callgrind's file does not add up")
        for library in allocator.libraries:
            if not any(os.path.realpath(name) == str(library) for name in costs):
                raise BenchError(f"{library.name} has run no instruction under valgrind")
        return costs

    def simulated(self, allocator, command) -> dict:
        costs = self.object_costs(allocator, command)
        total = [sum(cost[event] for cost in costs.values()) for event in range(9)]
        program = os.path.realpath(self.program(command)[0])
        own = sum(cost[0] for name, cost in costs.items() if os.path.realpath(name) != program)
        return {"instructions": own, "D1 misses": total[4] + total[5], "LL misses": total[7] + total[8]}

    def system_calls(self, allocator, command, only=None) -> int:
        """Of all threads; sched_yield is the workloads' own, while they wait for each other."""
        with tempfile.TemporaryDirectory() as folder:
            table = Path(folder) / "calls"
            preload = [word for variable in allocator.words()[1:] for word in ("-E", variable)]
            tool_run(["strace", "-f", "-c", "-o", table, *(["-e", f"trace={only}"] if only else []), *preload,
                      *self.program(command)])
            rows = [line.split() for line in table.read_text().splitlines()]
        return sum(int(row[3]) for row in rows
                   if len(row) >= 5 and row[3].isdigit() and row[-1] not in ("total", "sched_yield"))

    def faults(self, allocator, command) -> int:
        """Minor faults, with those of env before it becomes the program."""
        words = [*allocator.words(), *self.program(command)]
        silence = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
        _, status, usage = os.wait4(os.posix_spawn(words[0], words, environment(), file_actions=silence), 0)
        if status != 0:
            raise BenchError(f"{command[0]} ended with status {os.waitstatus_to_exitcode(status)}")
        return usage.ru_minflt

    def calls(self, allocator, command) -> dict:
        return {PER_1000[0]: 1000 * self.system_calls(allocator, command),
                PER_1000[1]: 1000 * self.faults(allocator, command)}

    def values(self, allocator, command) -> dict:
        """What a workload prints in lines of the form "NAME KEY: NUMBER": KEY -> number."""
        text = tool_run([*allocator.words(), *self.program(command)])
        return {key: int(number) for key, number in re.findall(r"^\S+ (\S+): (\d+)$", text, re.M)}

    def statistics(self, library, command) -> dict:
        """What HAKMEM writes of itself at the end of a run."""
        with tempfile.TemporaryDirectory() as folder:
            tool_run(["/usr/bin/env", f"LD_PRELOAD={library}", "HAKMEM_STATS=json",
                      f"HAKMEM_STATS_FILE={folder}/%p", *self.program(command)])
            written = list(Path(folder).iterdir())
            if len(written) != 1:
                raise BenchError(f"{command[0]}: {len(written)} statistics are written by {library}")
            return json.loads(written[0].read_text())

    def atomics(self, command) -> dict:
        return {ATOMICS: 1000 * self.statistics(self.checked, command)["counters"]["atomic_rmw"]}


def environment() -> dict:
    """This process's environment without a preload of its own; HAKMEM_* options of the caller stay in force."""
    return {name: value for name, value in os.environ.items()
            if name not in ("LD_PRELOAD", "HAKMEM_LIBRARY", "HAKMEM_PEERS")}


def tool_run(command) -> str:
    try:
        done = subprocess.run([str(word) for word in command], env=environment(), capture_output=True, text=True,
                              errors="replace", timeout=600, check=False)
    except FileNotFoundError:
        raise BenchError(f"{command[0]} is not installed") from None
    except subprocess.TimeoutExpired:
        raise BenchError("no end within 600 s") from None
    if done.returncode != 0 or "cannot be preloaded" in done.stderr:
        lines = [line for line in done.stderr.splitlines() if line.strip(" =0123456789") and not line.startswith("--")]
        raise BenchError(f"status {done.returncode}: {lines[0].strip() if lines else 'no word why'}"[:200])
    return done.stdout


def object_costs(text: str) -> dict:
    """Self cost by object file from callgrind's output: name -> nine counts, in the order of its "events" line.

    Lines that begin with a position hold a cost of the object named last by "ob="; the one after "calls=" holds
    what the callee cost, and is the callee's own.
    """
    names, costs, current, callee = {}, defaultdict(lambda: [0] * 9), "", False
    for line in text.splitlines():
        if line[:1] in "0123456789+-*" and line:
            if not callee:
                cost = costs[current]
                for event, count in enumerate(line.split()[1:]):
                    cost[event] += int(count)
            callee = False
        elif line.startswith(("ob=", "cob=")):
            number, _, name = line.split("=", 1)[1].partition(" ")
            names.setdefault(number, name or number)
            if line.startswith("ob="):
                current = names[number]
        elif line.startswith("calls="):
            callee = True
    return costs


# ---- growth ----

def point(count, case, x, lengths) -> dict:
    """unit -> count per operation, from a short and a long run."""
    short, long = lengths(x)
    operations = case.operations(x, long) - case.operations(x, short)
    first, second = (count(case.command(x, length)) for length in (short, long))
    return {unit: (second[unit] - first[unit]) / operations for unit in second}


class Counts:
    """Measures all cases; `series` holds (case name, unit) -> allocator -> points, `missing` what could not be."""

    def __init__(self, counter, quick, jobs):
        self.counter, self.quick = counter, quick
        self.series = defaultdict(lambda: defaultdict(list))
        self.missing = {}
        self.jobs = jobs

    def tasks(self, allocators):
        """(allocator name, case, x, what counts a run, the lengths of its two runs)."""
        for case in CASES:
            for allocator in allocators:
                ours = allocator.name == HAKMEM
                xs = case.xs if ours and not self.quick else case.few
                for x in xs if not self.quick else xs[:2] if ours else xs[:1]:
                    if allocator.name not in self.missing:
                        yield allocator.name, case, x, partial(self.counter.simulated, allocator), case.simulated
                    if ours or not self.quick:
                        yield allocator.name, case, x, partial(self.counter.calls, allocator), case.native
                    if ours and self.counter.checked:
                        yield allocator.name, case, x, self.counter.atomics, case.native

    def measure(self, allocators):
        for allocator in allocators:
            try:
                self.counter.simulated(allocator, ["random_replace", 10, 64, 10, 42, 1])
            except BenchError as error:
                self.missing[allocator.name] = f"{allocator.name} under valgrind: {error}"
        with ThreadPoolExecutor(self.jobs) as pool:
            tasks = list(self.tasks(allocators))
            results = [pool.submit(point, count, case, x, lengths) for _, case, x, count, lengths in tasks]
            for number, ((name, case, x, _, _), result) in enumerate(zip(tasks, results), 1):
                progress(f"{number} of {len(tasks)}: {name}, {case.name}, {x} {case.x_unit}")
                try:
                    for unit, value in result.result().items():
                        self.series[case.name, unit][name].append((x, round(value, 4)))
                except BenchError as error:
                    self.missing[name, case.name, x] = f"{name}, {case.name}, {x} {case.x_unit}: {error}"
        progress("")


def progress(text):
    if sys.stderr.isatty():
        sys.stderr.write("\r\033[K" + text[:100])
        sys.stderr.flush()


def growth(points) -> tuple:
    """(x, y) of the start and of the highest point after it."""
    return points[0], max(points, key=lambda pair: pair[1])


def rise(points, xs) -> float:
    first, highest = growth([pair for pair in points if pair[0] in xs])
    return highest[1] - first[1]


def is_inherent(unit, series) -> bool:
    """The caches are too small for the program's own data, too: misses grow only if they do so more than a peer's."""
    if unit not in SIMULATED[1:]:
        return False
    xs = set.intersection(*({x for x, _ in points} for points in series.values()))
    rises = {name: rise(points, xs) for name, points in series.items()} if xs else {HAKMEM: 0}
    least = min((each for name, each in rises.items() if name != HAKMEM), default=rises[HAKMEM])
    return rises[HAKMEM] <= max(least, 0) * TOLERANCE + LEAST_STEP[unit]


def findings(counts) -> list:
    lines = []
    for (case, unit), series in counts.series.items():
        if len(series.get(HAKMEM, ())) < 2 or is_inherent(unit, series):
            continue
        (x0, y0), (x1, y1) = growth(series[HAKMEM])
        if y1 <= y0 * TOLERANCE or y1 - y0 < LEAST_STEP[unit]:
            continue
        others = [f"{name} {' to '.join(figure(y) for _, y in growth(points))}"
                  for name, points in series.items() if name != HAKMEM and len(points) > 1]
        x_unit = next(each.x_unit for each in CASES if each.name == case)
        lines.append(f"{case}: {unit} grow from {figure(y0)} at {x0:g} to {figure(y1)} at {x1:g} {x_unit}" +
                     (f" ({'; '.join(others)})" if others else ""))
    return lines


def losses(counts) -> list:
    """Where a peer counts less at a point both were measured at, by more than TOLERANCE and the least step."""
    lines = []
    for (case, unit), series in counts.series.items():
        ours = dict(series.get(HAKMEM, ()))
        for x, y in ours.items():
            peers = {name: dict(points)[x] for name, points in series.items() if name != HAKMEM and x in dict(points)}
            best = min(peers, key=peers.get, default=None)
            if best and y > max(peers[best], 0) * TOLERANCE and y - peers[best] >= LEAST_STEP[unit]:
                x_unit = next(each.x_unit for each in CASES if each.name == case)
                lines.append(f"{case}, {x:g} {x_unit}: {unit} {figure(y)}, {best} {figure(peers[best])}")
    return lines


def figure(value) -> str:
    value = 0 if abs(value) < 0.005 else value
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


# ---- output ----

def paths(counts) -> list:
    found = []
    for (name, unit), series in counts.series.items():
        case = next(each for each in CASES if each.name == name)
        found.append({"name": name, "unit": unit, "x_unit": case.x_unit, "note": case.note,
                      "series": [{"allocator": allocator, "points": points} for allocator, points in series.items()]})
    return found


def tables_print(report):
    """A table per case: a row per unit and allocator. Where all of them count nothing, one row says so."""
    for name in dict.fromkeys(path["name"] for path in report["paths"]):
        units = [path for path in report["paths"] if path["name"] == name]
        xs = sorted({x for path in units for series in path["series"] for x, _ in series["points"]})
        rows = []
        for path in sorted(units, key=lambda path: list(LEAST_STEP).index(path["unit"])):
            unit = path["unit"] + ("" if path["unit"].endswith("1,000") else " per operation")
            if all(abs(y) < 0.05 for series in path["series"] for _, y in series["points"]):
                rows.append([f"{unit}: none under any"])
                continue
            for series in path["series"]:
                values = dict(series["points"])
                cells = [figure(values[x]) if x in values else "" for x in xs]
                rows.append([f"{unit}: {series['allocator']}", *cells])
        print(f"\n{name}" + (f" ({units[0]['note']})" if units[0]["note"] else ""))
        table_print([units[0]["x_unit"], *(f"{x:g}" for x in xs)],
                    [row + [""] * (len(xs) + 1 - len(row)) for row in rows])
    for key, text in (("findings", "series of HAKMEM grow"), ("losses", "counts are above the best peer's")):
        print(f"\n{len(report[key])} {text} by more than {(TOLERANCE - 1) * 100:.0f} %")
        for line in report[key]:
            print("  " + line)
    for line in report["missing"]:
        print("not counted: " + line)


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


def options_parse(argv):
    parser = argparse.ArgumentParser(prog="./hak bench counts", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", metavar="DIR", default=REPOSITORY / "build" / "release", help="the build tree")
    parser.add_argument("--library", metavar="FILE", help="the library to measure (libhakmem.so in the tree)")
    parser.add_argument("--checked", metavar="LIB", help="the checked library, which counts atomics")
    parser.add_argument("--peers", metavar="FILE", default=REPOSITORY / "build" / "peers" / "peers.toml",
                        help="the peers; without the file, Debian's packages")
    parser.add_argument("--only", metavar="A,B", help="these allocators only")
    parser.add_argument("--json", metavar="OUT", help="write the report there, too")
    parser.add_argument("--quick", action="store_true", help="one or two points per path: under three minutes")
    parser.add_argument("--jobs", type=int, default=jobs_default(), metavar="N",
                        help="runs at once (all cores, if each finds 5 GiB free)")
    return parser.parse_args(argv)


def main(argv) -> int:
    options = options_parse(argv)
    try:
        allocators = allocators_find(options)
        checked = Path(options.checked).resolve() if options.checked else None
        if checked and not checked.exists():
            raise BenchError(f"{checked}: there is no checked library")
        build = Path(options.build).resolve()
        for name in sorted({case.command(1, 1)[0] for case in CASES}):
            if not (build / "bench" / name).exists():
                raise BenchError(f"{build / 'bench' / name} is not built")
        counts = Counts(Counter(build, checked), options.quick, max(1, options.jobs))
        counts.measure(allocators)
    except BenchError as error:
        progress("")
        print(f"./hak bench counts: {error}", file=sys.stderr)
        return 2
    report = {"title": "Counts that do not depend on the machine", "machine": machine(),
              "allocators": {each.name: each.version for each in allocators}, "paths": paths(counts),
              "findings": findings(counts), "losses": losses(counts),
              "missing": list(counts.missing.values())}
    if any(each.name == "tcmalloc" for each in allocators) and "tcmalloc" not in counts.missing:
        report["missing"].append("tcmalloc's per-CPU caches: valgrind knows no restartable sequences, it runs without")
    if not checked:
        report["missing"].append("atomics: no checked library (--checked)")
    tables_print(report)
    if options.json:
        Path(options.json).write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        print(file=sys.stderr)
        sys.exit(130)
