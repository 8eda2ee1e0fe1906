"""./hak bench quick: every figure the project holds itself to, measured now, each with its target.

1. A figure is one entry of FIGURES: a function that yields Results. They are printed as they come.
2. What a machine cannot change is counted: instructions (step, callgrind), system calls (strace), atomics (the checked
   build's counters), SuperSlabs. What it can change is a ratio from one interleaved run (measure.py).
3. A figure that cannot be measured is short, with the reason as its measurement: nothing is skipped in silence.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from measure import (AGAIN, HAKMEM, PEERS, REPOSITORY, SYSTEM, BenchError, amount, environment, mebibytes, median,
                     run_once, run_rounds, speed_ratio)

MEMORY_CALLS = "mmap,munmap,madvise,mprotect,mremap,brk"
MIB = 2**20
RANDOM_MIXED_RUNS = (["200000", "4096", "1234567"], ["100000", "256", "42"])
SPEED_RUNS = (["small_mt", "4", "25000"], ["random_mixed", "20000000", "4096", "1234567"],
              ["mid_large_mt", "2", "8000000", "128"], ["larson", "2"])


@dataclass
class Result:
    figure: str
    measured: str
    target: str
    ok: bool
    value: object = None
    detail: str = ""


class Quick:
    """What the figures share: the build, the number of rounds, where progress goes."""

    def __init__(self, build, rounds, progress):
        self.build, self.rounds, self.progress = build, rounds, progress
        self.peers = [name for name in PEERS if name in build.allocators]

    def command(self, name, *args):
        return [self.build.program(name), *map(str, args)]

    def run(self, allocator, name, *args):
        self.progress.say(f"{name} {' '.join(map(str, args))} under {allocator}")
        return run_once(self.build, allocator, self.command(name, *args))

    def statistics(self, library, name, *args):
        """The JSON statistics HAKMEM writes at the end of a run."""
        self.progress.say(f"{name} {' '.join(map(str, args))} with statistics")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "stats.json"
            run_once(self.build, HAKMEM, self.command(name, *args),
                     {"HAKMEM_STATS": "json", "HAKMEM_STATS_FILE": str(path)}, library)
            if not path.exists():
                raise BenchError("no statistics were written (HAKMEM_STATS=json, HAKMEM_STATS_FILE)")
            return json.loads(path.read_text())

    def system_calls(self, allocator, command, only=None):
        """How many system calls (of the kinds in `only`) a command makes, its threads and children included."""
        self.progress.say(f"strace {Path(command[0]).name} under {allocator}")
        preload = self.build.preload(allocator)
        with tempfile.TemporaryDirectory() as folder:
            table = Path(folder) / "calls"
            tool_run(["strace", "-f", "-c", "-o", table, *(["-e", f"trace={only}"] if only else []),
                      *(["-E", f"LD_PRELOAD={preload}"] if preload else []), *command])
            rows = [line.split() for line in table.read_text().splitlines()]
        return sum(int(row[3]) for row in rows if len(row) >= 5 and row[3].isdigit() and row[-1] != "total")

    def instructions(self, allocator, name, *args):
        """Instructions of a whole run, counted by callgrind."""
        self.progress.say(f"callgrind {name} {' '.join(map(str, args))} under {allocator}")
        tool = tool_find("valgrind")
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "log"
            run_once(self.build, allocator, [tool, "--tool=callgrind", "--callgrind-out-file=/dev/null",
                                             f"--log-file={log}", *self.command(name, *args)])
            found = re.search(r"Collected\s*:\s*(\d+)", log.read_text())
        if not found:
            raise BenchError("callgrind has counted nothing")
        return int(found.group(1))


def tool_find(name):
    path = shutil.which(name)
    if not path:
        raise BenchError(f"{name} is not installed")
    return path


def tool_run(command):
    tool_find(command[0])
    done = subprocess.run([str(word) for word in command], env=environment(), capture_output=True, text=True,
                          errors="replace")
    if done.returncode != 0 or "cannot be preloaded" in done.stderr:
        raise BenchError(f"{command[0]}: status {done.returncode}: {done.stderr.strip()[-300:]}")
    return done.stdout


def at_most(figure, value, limit, text=str, detail=""):
    return Result(figure, text(value), f"<= {text(limit)}", value <= limit, value, detail)


# ---- the figures, in the order of the issue ----

def hit_paths(quick):
    """Instructions of malloc and free on a hit, single-stepped (48 B; ./hak test holds the exact counts).

    The checks are: in malloc decoding the link and clearing the word; in free is it the start of a block that was handed
    out (6), is it free already (6), encoding the link (1).
    """
    counts = {name: quick.run(name, "step").values for name in [HAKMEM, *quick.peers]}
    for call, limit, checks in (("malloc", 14, 2), ("free", 20, 13)):
        yield at_most(f"hit path of {call} without its {checks} check instructions", counts[HAKMEM][call] - checks, limit,
                      detail="whole: " + ", ".join(f"{name} {values[call]}" for name, values in counts.items()))
    whole = counts[HAKMEM]["malloc"] + counts[HAKMEM]["free"]
    yield at_most("hit paths of malloc and free with all default checks", whole, 50)


def random_mixed_memory(quick):
    """SuperSlabs, and memory system calls more than an empty program makes under glibc."""
    for args in RANDOM_MIXED_RUNS:
        run = f"random_mixed {' '.join(args)}"
        peak = quick.statistics(None, "random_mixed", *args)["superslabs_peak"]
        yield at_most(f"{run}: SuperSlabs", peak, 4)
        calls = quick.system_calls(HAKMEM, quick.command("random_mixed", *args), MEMORY_CALLS)
        empty = quick.system_calls(SYSTEM, quick.command("empty"), MEMORY_CALLS)
        yield at_most(f"{run}: memory calls over empty", calls - empty, 12, detail=f"{calls} less {empty}")


def steady_state(quick):
    """Instructions per free+malloc pair: the difference of two runs, so that start and filling cancel."""
    few, many = 1_000_000, 2_000_000
    totals = [quick.instructions(HAKMEM, "random_replace", 100000, 64, ops, 42, 1) for ops in (few, many)]
    yield at_most("random_replace 100000 64: instructions per pair", (totals[1] - totals[0]) / (many - few), 70,
                  lambda value: f"{value:.3g}")


def mixed_rss(quick):
    """Peak RSS of the mixed steady state against the leanest peer."""
    names = [HAKMEM, *quick.peers]
    samples = run_rounds(quick.build, names, quick.command("random_replace", 100000, 0, 3000000, 42), 3, HAKMEM,
                         quick.progress)
    peaks = {name: median([sample.peak_rss for sample in samples[name]]) for name in names}
    leanest = min(quick.peers, key=peaks.get)
    yield at_most(f"random_replace 100000 0: RSS to the leanest ({leanest})", peaks[HAKMEM] / peaks[leanest], 1.05,
                  lambda value: f"{value:.3f}", ", ".join(f"{name} {mebibytes(peaks[name])}" for name in names))


def scaling(quick):
    """mission.md row 7: overhead while live, and what is kept a second after the last free."""
    values = quick.run(HAKMEM, "scaling").values
    for count in (100000, 500000, 1000000):
        data = values[f"data_{count}_bytes"]
        yield at_most(f"scaling {count}: RSS over start and data", values[f"overhead_{count}_bytes"],
                      0.03 * data + MIB, mebibytes, f"data {mebibytes(data)} with the pointer array")
    yield at_most("scaling: kept one second after the last free", values["kept_after_1s_bytes"], 3 * MIB, mebibytes,
                  f"at once {mebibytes(values['rss_freed_bytes'] - values['rss_start_bytes'])}")


def speeds(quick):
    """Throughput against the best peer: the interval of the ratio reaches 1.0."""
    for name, *args in SPEED_RUNS:
        samples = run_rounds(quick.build, [HAKMEM, *quick.peers], quick.command(name, *args), quick.rounds, HAKMEM,
                             quick.progress)
        ratios = {peer: speed_ratio(samples, HAKMEM, peer) for peer in quick.peers}
        best = min(quick.peers, key=lambda peer: ratios[peer].median)
        again = speed_ratio(samples, HAKMEM + AGAIN, HAKMEM)
        ops = amount(median([sample.speed for sample in samples[HAKMEM]]))
        others = ", ".join(f"{peer} {ratios[peer].median:.2f}" for peer in quick.peers)
        yield Result(f"{name} {' '.join(args)}: speed to the best ({best})", str(ratios[best]), "up to >= 1",
                     ratios[best].high >= 1, ratios[best].median, f"{ops} ops/s; to {others}; A/A {again}")


def tiny_program(quick):
    """What loading the library costs a program that does nothing."""
    program = [tool_find("true")]
    cost = {HAKMEM: [], SYSTEM: []}
    quick.progress.say("true, nine times each")
    for _ in range(9):
        for name in cost:
            cost[name].append(run_once(quick.build, name, program))
    peak, faults = ({name: median([getattr(sample, key) for sample in cost[name]]) for name in cost}
                    for key in ("peak_rss", "faults"))
    calls = {name: quick.system_calls(name, program) for name in cost}
    yield at_most("true: RSS over glibc", peak[HAKMEM] - peak[SYSTEM], 600 * 1024, lambda n: f"{n / 1024:.0f} KiB",
                  f"{mebibytes(peak[HAKMEM])} and {mebibytes(peak[SYSTEM])}")
    for what, values, limit in (("page faults", faults, 100), ("system calls", calls, 20)):
        yield at_most(f"true: {what} over glibc", values[HAKMEM] - values[SYSTEM], limit,
                      detail=f"{values[HAKMEM]} and {values[SYSTEM]}")


def producer_consumer(quick):
    """Atomic read-modify-writes per 1,000 frees, counted by the checked build."""
    if not quick.build.checked.exists():
        raise BenchError(f"no checked library: {os.path.relpath(quick.build.checked)}")
    for size, blocks, limit in ((64, 1000000, 20), (1024, 300000, 80)):
        statistics = quick.statistics(quick.build.checked, "producer_consumer", size, blocks)
        atomics = statistics["counters"]["atomic_rmw"]
        yield at_most(f"producer_consumer {size} B: atomics per 1,000 frees", atomics * 1000 / blocks, limit,
                      lambda value: f"{value:.3g}", f"{atomics} in {blocks} blocks")


def sleeper(quick):
    """A sleeping thread that freed one block per slab: RSS falls with what the others free."""
    for keep in (10, 0):
        values = quick.run(HAKMEM, "sleeper", 10000, 64, keep).values
        live = values["live_bytes"]
        yield at_most(f"sleeper, {keep} % kept: RSS over live", values["rss_over_start_bytes"] - live,
                      0.1 * live + 4 * MIB, mebibytes,
                      f"live {mebibytes(live)}, was {mebibytes(values['rss_full_bytes'])}")


FIGURES = (hit_paths, random_mixed_memory, steady_state, mixed_rss, scaling, speeds, tiny_program, producer_consumer,
           sleeper)


# ---- printing ----

def result_print(result):
    colour, plain = ("\033[32m" if result.ok else "\033[31m", "\033[0m") if sys.stdout.isatty() else ("", "")
    verdict = "ok" if result.ok else "short"
    line = f"{colour}{verdict:5}{plain}  {result.figure:66} {result.measured:>21}  {result.target}"
    print(line + (f"\n         {result.detail}" if result.detail else ""), flush=True)


def measure_all(build, rounds, progress, only=None):
    """Measures and prints all figures (or those whose function's name contains `only`); returns the Results."""
    quick = Quick(build, rounds, progress)
    if not quick.peers:
        raise BenchError("; ".join(build.missing()))
    wanted = [figure for figure in FIGURES if not only or only in figure.__name__]
    if not wanted:
        raise BenchError(f"{only}: no such figure; there are {', '.join(figure.__name__ for figure in FIGURES)}")
    print(f"{os.cpu_count()} cores; ratios are medians of {rounds} interleaved rounds with a 95 % interval; "
          "A/A is HAKMEM against itself,\nwhat this machine can resolve just now.\n", flush=True)
    results = []
    for figure in wanted:
        try:
            for result in figure(quick):
                progress.done()
                result_print(result)
                results.append(result)
        except (BenchError, KeyError) as error:
            progress.done()
            reason = f"the run printed no {error}" if isinstance(error, KeyError) else str(error)
            results.append(Result(figure.__name__, "not measured", "", False, None, reason))
            result_print(results[-1])
    return results
