"""Runs of one command under several allocators: how they are started, ordered and compared.

1. An allocator is a preloaded library; each run goes through bench/launch, which proves from /proc/PID/maps that
   the library is there and reads the peak RSS of the program alone.
2. Rounds are interleaved: every allocator runs once per round, and each round starts with another one.
3. A ratio is taken within a round, between neighbours in time, never between medians of a whole session. What is
   printed is the median of these ratios with a bootstrap 95 % interval.
4. The base runs twice per round. Base against itself (the A/A line) shows what the machine can resolve: a
   difference smaller than that interval means nothing.
"""
import json
import os
import random
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
SYSTEM, HAKMEM = "system", "hakmem"
PEERS = {"jemalloc": "libjemalloc.so.2", "mimalloc": "libmimalloc.so.2", "tcmalloc": "libtcmalloc_minimal.so.4"}
PEER_PACKAGES = {"jemalloc": "libjemalloc2", "mimalloc": "libmimalloc2.0", "tcmalloc": "libtcmalloc-minimal4"}
AGAIN = " (A/A)"


class BenchError(Exception):
    """Something that keeps a run from being measured; its text is for the user."""


@dataclass
class Sample:
    """What one run cost. `values` is what the workload printed, by key."""
    wall_s: float
    cpu_s: float
    peak_rss: int
    faults: int
    values: dict = field(default_factory=dict)

    @property
    def ops(self):
        return self.values.get("ops/s")

    @property
    def speed(self):
        return self.ops or 1 / self.wall_s


# ---- allocators and the build ----

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


def tree_find():
    """build/release if it has the workloads, else build/bench, where ./hak bench builds them."""
    release, bench = REPOSITORY / "build" / "release", REPOSITORY / "build" / "bench"
    return bench if not (release / "bench").is_dir() and bench.is_dir() else release


@dataclass
class Build:
    """A build tree and the allocators that can be measured with it: name -> library, None for the system's."""
    tree: Path
    allocators: dict
    checked: Path = None

    @classmethod
    def find(cls, tree=None, library=None):
        tree = Path(tree).resolve() if tree else tree_find()
        library = Path(library) if library else tree / "libhakmem.so"
        allocators = {SYSTEM: None}
        if library.exists():
            allocators[HAKMEM] = library.resolve()
        for name, soname in PEERS.items():
            path = library_find(soname)
            if path:
                allocators[name] = path
        return cls(tree, allocators)

    def missing(self):
        """One line per allocator that is not there, and how to get it."""
        lines = []
        if HAKMEM not in self.allocators:
            lines.append("hakmem: no libhakmem.so in " + os.path.relpath(self.tree) + " (./hak build)")
        lines += [f"{name}: not installed (apt-get install {PEER_PACKAGES[name]})"
                  for name in PEERS if name not in self.allocators]
        return lines

    def program(self, name):
        path = self.tree / "bench" / name
        if not path.exists():
            raise BenchError(f"{os.path.relpath(path)} is not built; do: cmake --preset release -DHAKMEM_BENCH=ON "
                             "&& cmake --build --preset release  (or name another tree with --build)")
        return path

    def preload(self, allocator):
        """The environment's LD_PRELOAD entry for tools that are not run through launch."""
        library = self.allocators[allocator]
        return str(library) if library else ""


# ---- one run ----

def environment(extra=None):
    """This process's environment without a preload of its own; HAKMEM_* options of the caller stay in force."""
    env = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    env.update(extra or {})
    return env


def run_once(build, allocator, command, extra_env=None, library=None):
    """Runs `command` (a list; the first word a path) under `allocator`, or under the library given."""
    library = library or build.allocators[allocator]
    reader, writer = os.pipe()
    try:
        done = subprocess.run(
            [str(build.program("launch")), str(writer), str(library or "-"), *map(str, command)],
            pass_fds=[writer], env=environment(extra_env), capture_output=True, text=True, errors="replace")
    finally:
        os.close(writer)
    with os.fdopen(reader) as pipe:
        report = pipe.read()
    what = f"{' '.join(map(str, [Path(command[0]).name, *command[1:]]))} under {allocator}"
    if done.returncode != 0 or not report:
        raise BenchError(f"{what}: could not be started: {done.stderr.strip()}")
    cost = json.loads(report)
    if cost["status"] != 0:
        raise BenchError(f"{what}: ended with status {cost['status']}: {done.stderr.strip()[-400:]}")
    if library and not cost["loaded"]:
        raise BenchError(f"{what}: {library} is not mapped: {done.stderr.strip()[-400:]}")
    return Sample(cost["wall_ns"] / 1e9, (cost["user_ns"] + cost["system_ns"]) / 1e9, cost["peak_rss_bytes"],
                  cost["minor_faults"], values_parse(done.stdout))


def values_parse(text):
    """The workloads' lines "NAME KEY: NUMBER" as a dictionary KEY -> number."""
    return {key: int(number) for key, number in re.findall(r"^\S+ (\S+): (\d+)$", text, re.M)}


# ---- rounds and ratios ----

class Progress:
    """One line on a terminal that says what runs now; nothing elsewhere."""

    def __init__(self, stream=sys.stderr):
        self.stream = stream if stream.isatty() else None

    def say(self, text):
        if self.stream:
            self.stream.write("\r\033[K" + text[:shutil.get_terminal_size().columns - 1])
            self.stream.flush()

    def done(self):
        if self.stream:
            self.stream.write("\r\033[K")
            self.stream.flush()


def run_rounds(build, names, command, rounds, base, progress=None):
    """Samples by allocator, one per round, in interleaved order; `base` runs twice, also as base + AGAIN."""
    entries = list(names)
    if base in entries:
        entries.insert(entries.index(base) + 1, base + AGAIN)
    samples = {name: [] for name in entries}
    for name in names:  # a warm-up: files into the page cache, errors early
        if progress:
            progress.say(f"warming up: {name}")
        run_once(build, name, command)
    for number in range(rounds):
        start = number % len(entries)
        for name in entries[start:] + entries[:start]:
            if progress:
                progress.say(f"{Path(command[0]).name}: round {number + 1} of {rounds}, {name}")
            samples[name].append(run_once(build, name.removesuffix(AGAIN), command))
    if progress:
        progress.done()
    return samples


def median(values):
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


@dataclass
class Ratio:
    """Median of per-round ratios with a bootstrap 95 % interval."""
    median: float
    low: float
    high: float

    def __str__(self):
        return f"{self.median:.3f} [{self.low:.3f}-{self.high:.3f}]"


def ratio(above, below, resamples=4000):
    """Ratio of two lists of figures taken round by round, above[i] / below[i]."""
    ratios = [a / b for a, b in zip(above, below)]
    draw = random.Random(1)
    medians = sorted(median(draw.choices(ratios, k=len(ratios))) for _ in range(resamples))
    return Ratio(median(ratios), medians[int(resamples * 0.025)], medians[int(resamples * 0.975) - 1])


def speed_ratio(samples, name, base):
    return ratio([s.speed for s in samples[name]], [s.speed for s in samples[base]])


# ---- tables ----

def amount(number, unit=""):
    """1234567 -> 1.23 M; three digits that count."""
    for limit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "K")):
        if abs(number) >= limit:
            return f"{number / limit:.{2 if abs(number) < 10 * limit else 1}f} {letter}{unit}"
    return f"{number:.0f} {unit}".rstrip()


def mebibytes(number):
    return f"{number / 2**20:.1f} MiB"


def table_print(header, rows, stream=None):
    """Columns as wide as they need to be; the first left, the others right."""
    stream = stream or sys.stdout
    cells = [list(map(str, row)) for row in rows]
    widths = [max(len(row[i]) for row in [header, *cells]) for i in range(len(header))]
    bold, plain = ("\033[1m", "\033[0m") if stream.isatty() else ("", "")

    def line(row):
        return "  ".join(cell.ljust(widths[i]) if i == 0 else cell.rjust(widths[i]) for i, cell in enumerate(row))

    print(bold + line(header).rstrip() + plain, file=stream)
    for row in cells:
        print(line(row).rstrip(), file=stream)
