#!/usr/bin/env python3
"""./hak bench quick: measures every figure the project holds itself to, and prints it with its target.

1. A figure is one entry of FIGURES: a function that yields Results, which are printed as they come.
2. Figures that do not depend on the machine are counted: instructions (step, callgrind), system calls (strace),
   atomics (the checked build's counters), SuperSlabs. The others are ratios from `hakmem compare` on a group of
   suites/quick.toml.
3. A figure that cannot be measured is short, with the reason as its measurement: nothing is skipped silently.
"""
# SPDX-License-Identifier: MIT
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

sys.dont_write_bytecode = True  # no cache directory in the source tree
from meters import HAKMEM, MIB, REPOSITORY, SYSTEM, BenchError, Counter, allocators_find

SUITE = REPOSITORY / "bench" / "suites" / "quick.toml"
MEMORY_CALLS = "mmap,munmap,madvise,mprotect,mremap,brk"
RANDOM_MIXED_RUNS = (["200000", "4096", "1234567"], ["100000", "256", "42"])


@dataclass
class Result:
    figure: str
    measured: str
    target: str
    ok: bool
    value: object = None
    detail: str = ""


class Quick:
    """Shared by the figures: the builds, the allocators, the number of rounds."""

    def __init__(self, options):
        build = Path(options.build).resolve()
        self.counter = Counter(build, Path(options.checked).resolve())
        self.bench, self.tool, self.rounds = build / "bench", options.tool, options.rounds
        found = allocators_find(options)
        self.allocators = {each.name: each for each in found}
        self.peers = [each.name for each in found if each.name not in (HAKMEM, SYSTEM)]
        self.library = self.allocators[HAKMEM].libraries[0]
        self.peers_file = Path(options.peers)
        if not self.peers:
            raise BenchError("there is no other allocator; ./hak bench peers")

    def compare(self, group, names, rounds):
        """Returns the workloads of a group as `hakmem compare` measured them: name -> allocator -> its summary.

        HAKMEM against itself has the key None.
        """
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "out.json"
            peers = ["--peers", self.peers_file] if self.peers_file.exists() else []
            done = subprocess.run([self.tool, "compare", "--suite", SUITE, "--group", group, "--only", ",".join(names),
                                   "--baseline", HAKMEM, "--rounds", str(rounds), "--var", f"bench={self.bench}",
                                   "--hakmem", self.library, *peers, "--json", out], stdout=subprocess.DEVNULL,
                                  check=False)
            if done.returncode not in (0, 1):  # 1: an allocator failed a run, perhaps not ours
                raise BenchError(f"hakmem compare ended with status {done.returncode}")
            document = json.loads(out.read_text())
        found = {}
        for workload in document["workloads"]:
            found[workload["name"]] = {each["allocator"]: each["summary"] for each in workload["results"]}
            found[workload["name"]][None] = workload["again"]["summary"]
            for each in workload["results"]:
                if each["allocator"] == HAKMEM and not each["summary"]:
                    raise BenchError(f"{workload['name']}: {each['failures'][0]}")
        for missing in document["missing_workloads"]:
            raise BenchError(f"{missing['name']}: {missing['reason']}")
        return found

    def instructions(self, *command):
        """Returns the instructions of a whole run under HAKMEM, including the program's own."""
        costs = self.counter.object_costs(self.allocators[HAKMEM], command)
        return sum(cost[0] for cost in costs.values())


# ---- numbers as text ----

def amount(number):
    """1234567 -> 1.23 M: three significant digits."""
    for limit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "K")):
        if abs(number) >= limit:
            return f"{number / limit:.{2 if abs(number) < 10 * limit else 1}f} {letter}"
    return f"{number:.0f}"


def mebibytes(number):
    return f"{number / MIB:.1f} MiB"


def interval(ratio):
    return f"{ratio['median']:.3f} [{ratio['low']:.3f}-{ratio['high']:.3f}]"


def at_most(figure, value, limit, text=lambda value: f"{value:g}", detail=""):
    return Result(figure, text(value), f"<= {text(limit)}", value <= limit, value, detail)


# ---- the figures ----

def hit_paths(quick):
    """Instructions of malloc and free on a hit, single-stepped (48 B; ./hak test has the exact counts).

    The checks: malloc decodes the link and clears the word; free checks that the pointer is the start of a block that
    was handed out (6) and is not free already (6), and encodes the link (1).
    """
    # Not with `hakmem compare`, which traces programs itself: a process has only one tracer.
    counts, without = {}, ""
    for name in [HAKMEM, *quick.peers]:
        try:
            counts[name] = quick.counter.values(quick.allocators[name], ["step"])
        except BenchError as error:
            if name == HAKMEM:
                raise
            without += f"; {name}: {error}"
    for call, limit, checks in (("malloc", 14, 2), ("free", 20, 13)):
        whole = ", ".join(f"{name} {values[call]}" for name, values in counts.items()) + without
        yield at_most(f"hit path of {call} without its {checks} check instructions", counts[HAKMEM][call] - checks,
                      limit, detail=f"whole: {whole}")
    whole = counts[HAKMEM]["malloc"] + counts[HAKMEM]["free"]
    yield at_most("hit paths of malloc and free with all default checks", whole, 50)


def random_mixed_memory(quick):
    """SuperSlabs, and memory system calls beyond those of an empty program under glibc."""
    empty = quick.counter.system_calls(quick.allocators[SYSTEM], ["empty"], MEMORY_CALLS)
    for args in RANDOM_MIXED_RUNS:
        command = ["random_mixed", *args]
        run = " ".join(command)
        peak = quick.counter.statistics(quick.library, command)["superslabs_peak"]
        yield at_most(f"{run}: SuperSlabs", peak, 4)
        calls = quick.counter.system_calls(quick.allocators[HAKMEM], command, MEMORY_CALLS)
        yield at_most(f"{run}: memory calls over empty", calls - empty, 12, detail=f"{calls} less {empty}")


def steady_state(quick):
    """Instructions per free+malloc pair: the difference of two runs, so that the start and the filling cancel out."""
    few, many = 1_000_000, 2_000_000
    totals = [quick.instructions("random_replace", 100000, 64, ops, 42, 1) for ops in (few, many)]
    yield at_most("random_replace 100000 64: instructions per pair", (totals[1] - totals[0]) / (many - few), 70,
                  lambda value: f"{value:.3g}")


def mixed_rss(quick):
    """Peak RSS of the mixed steady state against the leanest peer."""
    summaries = quick.compare("memory", [HAKMEM, *quick.peers], 3)["random_replace 100000 0"]
    peaks = {name: summary["peak_rss_bytes"]["median"] for name, summary in summaries.items() if name and summary}
    leanest = min((name for name in peaks if name != HAKMEM), key=peaks.get)
    yield at_most(f"random_replace 100000 0: RSS to the leanest ({leanest})", peaks[HAKMEM] / peaks[leanest], 1.05,
                  lambda value: f"{value:.3f}", ", ".join(f"{name} {mebibytes(peak)}" for name, peak in peaks.items()))


def kept(quick):
    """Overhead while live, and memory kept a second after the last free. Also with a sleeping thread that freed one
    block per slab: RSS falls as the others free."""
    found = {name: {key: spread["median"] for key, spread in summaries[HAKMEM]["values"].items()}
             for name, summaries in quick.compare("kept", [HAKMEM], 1).items()}
    values = found.pop("scaling")
    for count in (100000, 500000, 1000000):
        data = values[f"data_{count}"]
        yield at_most(f"scaling {count}: RSS over start and data", values[f"overhead_{count}"], 0.03 * data + MIB,
                      mebibytes, f"data {mebibytes(data)} with the pointer array")
    yield at_most("scaling: kept one second after the last free", values["kept"], 3 * MIB, mebibytes,
                  f"at once {mebibytes(values['freed'] - values['start'])}")
    for name, values in found.items():
        live = values["live"]
        yield at_most(f"{name}: RSS over live", values["over_start"] - live, 0.1 * live + 4 * MIB, mebibytes,
                      f"live {mebibytes(live)}, was {mebibytes(values['full'])}")


def speeds(quick):
    """Throughput against the best peer: the interval of the ratio must reach 1.0."""
    for name, summaries in quick.compare("speed", [HAKMEM, *quick.peers], quick.rounds).items():
        times = {peer: summaries[peer]["ratios"]["time"] for peer in quick.peers if summaries.get(peer)}
        best = min(times, key=lambda peer: times[peer]["median"])
        again = interval(summaries[None]["ratios"]["time"])
        ops = amount(summaries[HAKMEM]["metric"]["median"])
        others = ", ".join(f"{peer} {ratio['median']:.2f}" for peer, ratio in times.items())
        yield Result(f"{name}: speed to the best ({best})", interval(times[best]), "up to >= 1",
                     times[best]["high"] >= 1, times[best]["median"], f"{ops} ops/s; to {others}; A/A {again}")


def tiny_program(quick):
    """The cost of loading the library for a program that does nothing."""
    summaries = quick.compare("start", [HAKMEM, SYSTEM], 9)["true"]
    peak, faults = ({name: summaries[name][key]["median"] for name in (HAKMEM, SYSTEM)}
                    for key in ("peak_rss_bytes", "minor_faults"))
    calls = {name: quick.counter.system_calls(quick.allocators[name], [shutil.which("true")])
             for name in (HAKMEM, SYSTEM)}
    yield at_most("true: RSS over glibc", peak[HAKMEM] - peak[SYSTEM], 600 * 1024, lambda n: f"{n / 1024:.0f} KiB",
                  f"{mebibytes(peak[HAKMEM])} and {mebibytes(peak[SYSTEM])}")
    for what, values, limit in (("page faults", faults, 100), ("system calls", calls, 20)):
        yield at_most(f"true: {what} over glibc", values[HAKMEM] - values[SYSTEM], limit,
                      detail=f"{values[HAKMEM]:g} and {values[SYSTEM]:g}")


def producer_consumer(quick):
    """Atomic read-modify-writes per 1,000 frees, counted by the checked build."""
    for size, blocks, limit in ((64, 1000000, 20), (1024, 300000, 80)):
        command = ["producer_consumer", size, blocks]
        atomics = quick.counter.statistics(quick.counter.checked, command)["counters"]["atomic_rmw"]
        yield at_most(f"producer_consumer {size} B: atomics per 1,000 frees", atomics * 1000 / blocks, limit,
                      lambda value: f"{value:.3g}", f"{atomics} in {blocks} blocks")


FIGURES = (hit_paths, random_mixed_memory, steady_state, mixed_rss, kept, speeds, tiny_program, producer_consumer)


# ---- printing ----

def result_print(result):
    colour, plain = ("\033[32m" if result.ok else "\033[31m", "\033[0m") if sys.stdout.isatty() else ("", "")
    verdict = "ok" if result.ok else "short"
    line = f"{colour}{verdict:5}{plain}  {result.figure:66} {result.measured:>21}  {result.target}"
    print(line + (f"\n         {result.detail}" if result.detail else ""), flush=True)


def measure_all(quick, only):
    """Measures and prints all figures (or those whose function's name contains `only`); returns the Results."""
    wanted = [figure for figure in FIGURES if not only or only in figure.__name__]
    if not wanted:
        raise BenchError(f"{only}: no such figure; there are {', '.join(figure.__name__ for figure in FIGURES)}")
    print(f"{os.cpu_count()} cores; ratios are medians of {quick.rounds} interleaved rounds with a 95 % interval; "
          "A/A is HAKMEM against itself,\nwhat this machine can resolve just now.\n", flush=True)
    results = []
    for figure in wanted:
        try:
            for result in figure(quick):
                result_print(result)
                results.append(result)
        except (BenchError, KeyError) as error:
            reason = f"the run printed no {error}" if isinstance(error, KeyError) else str(error)
            results.append(Result(figure.__name__, "not measured", "", False, None, reason))
            result_print(results[-1])
    return results


def options_parse(argv):
    parser = argparse.ArgumentParser(prog="./hak bench quick", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, metavar="N", help="interleaved rounds of what is timed (7)")
    parser.add_argument("--figure", metavar="TEXT", help="only figures whose name contains TEXT")
    parser.add_argument("--json", metavar="FILE", help="write the results there, too")
    parser.add_argument("--build", required=True, metavar="DIR", help="the build tree with the workloads")
    parser.add_argument("--library", metavar="LIB", help="the library to measure (libhakmem.so in the tree)")
    parser.add_argument("--checked", required=True, metavar="LIB", help="the checked library, which counts atomics")
    parser.add_argument("--peers", default="", metavar="FILE", help="the peers; without the file, Debian's packages")
    parser.add_argument("--tool", required=True, metavar="HAKMEM", help="the hakmem command")
    parser.set_defaults(only=None)
    return parser.parse_args(argv)


def main(argv):
    options = options_parse(argv)
    try:
        results = measure_all(Quick(options), options.figure)
    except BenchError as error:
        print(f"./hak bench quick: {error}", file=sys.stderr)
        return 2
    short = [result for result in results if not result.ok]
    print(f"\n{len(results) - len(short)} of {len(results)} figures reach their target.")
    if options.json:
        Path(options.json).write_text(json.dumps({"figures": [vars(result) for result in results]}, indent=1) + "\n")
    return 1 if short else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        print(file=sys.stderr)
        sys.exit(130)
