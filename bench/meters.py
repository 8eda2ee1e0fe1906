# SPDX-License-Identifier: MIT
"""The meters of counts.py and quick.py: each runs a command under an allocator and counts something of the whole
run."""
import json
import os
import re
import shutil
import subprocess
import tempfile
import tomllib
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parent.parent
HAKMEM, SYSTEM = "hakmem", "system"
CACHES = ("--I1=32768,8,64", "--D1=32768,8,64", "--LL=2097152,16,64")
CACHES_TEXT = "simulated caches: D1 32 KiB 8-way, LL 2 MiB 16-way"
DEBIAN = {"jemalloc-debian": "libjemalloc.so.2", "gperftools": "libtcmalloc_minimal.so.4",
          "mimalloc2-debian": "libmimalloc.so.2"}
MIB = 2**20

# What is counted: the name of a unit, and the least growth that counts. Below it is the noise of threads that meet at
# other moments, or of what the kernel maps at once.
INSTRUCTIONS, D1, LL = "instructions", "D1 misses", "LL misses"
CALLS, FAULTS = "system calls per 1,000", "faults per 1,000"
ATOMICS = "atomics per 1,000"
TABLE_LINES, BLOCK_LINES, RETRIES = "table lines moved per 1,000", "block lines moved per 1,000", "retries per 1,000"
HELD, IDLE, ENDED = "bytes of a thread", "bytes of an idle thread", "bytes of a thread that has ended"
LEAST_STEP = {INSTRUCTIONS: 3, D1: 0.1, LL: 0.1, CALLS: 0.2, FAULTS: 0.5, ATOMICS: 2, TABLE_LINES: 5, BLOCK_LINES: 20,
              RETRIES: 0.5, HELD: 2048, IDLE: 8192, ENDED: 2048}
SIMULATED = (INSTRUCTIONS, D1, LL)


class BenchError(Exception):
    """Something that keeps a run from being counted; its text is for the user."""


class Place(NamedTuple):
    """Where lines move or retries happen: `what` is a field, a table or blocks, `code` the function."""
    unit: str
    what: str
    code: str


# ---- the allocators ----

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
    """Runs commands under an allocator and counts. METERS return unit -> count of the whole run."""

    METERS = ("callgrind", "kernel", "bytes", "atomics", "lines")
    OURS = ("atomics", "lines")  # only HAKMEM can be compiled for these

    def __init__(self, build: Path, checked: Path | None):
        self.bench, self.checked, self.lines_bench = build / "bench", checked, build / "bench" / "lines"
        self.code = Symbols()

    def program(self, command) -> list:
        """The words of a command: a workload by its name, any other program by its path."""
        return [str(self.bench / str(command[0])), *map(str, command[1:])]

    def object_costs(self, allocator, command) -> dict:
        """Object file -> the nine counts of callgrind; the allocator's libraries are among them."""
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "out"
            # Valgrind gives a program 128 GiB: the region grows as it is needed, so that 64 GiB fit. Its instructions
            # take fifty times as long, so what is done every ten seconds would be counted as often as in fifty times
            # the time.
            tool_run([*allocator.words(), "HAKMEM_REGION_BYTES=0", "HAKMEM_DECAY_MS=500000",
                      "valgrind", "-q", "--tool=callgrind", "--cache-sim=yes", *CACHES,
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

    def callgrind(self, allocator, command) -> dict:
        costs = self.object_costs(allocator, command)
        total = [sum(cost[event] for cost in costs.values()) for event in range(9)]
        program = os.path.realpath(self.program(command)[0])
        own = sum(cost[0] for name, cost in costs.items() if os.path.realpath(name) != program)
        return {INSTRUCTIONS: own, D1: total[4] + total[5], LL: total[7] + total[8]}

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

    def kernel(self, allocator, command) -> dict:
        return {CALLS: 1000 * self.system_calls(allocator, command), FAULTS: 1000 * self.faults(allocator, command)}

    def values(self, allocator, command) -> dict:
        """What a workload prints in lines of the form "NAME KEY: NUMBER": KEY -> number."""
        text = tool_run([*allocator.words(), *self.program(command)])
        return {key: int(number) for key, number in re.findall(r"^\S+ (\S+): (\d+)$", text, re.M)}

    def bytes(self, allocator, command) -> dict:
        values = self.values(allocator, command)
        return {HELD: values["held_bytes"], IDLE: values["idle_bytes"], ENDED: values["ended_bytes"]}

    def statistics(self, library, command) -> dict:
        """What HAKMEM writes of itself at the end of a run."""
        with tempfile.TemporaryDirectory() as folder:
            tool_run(["/usr/bin/env", f"LD_PRELOAD={library}", "HAKMEM_STATS=json",
                      f"HAKMEM_STATS_FILE={folder}/%p", *self.program(command)])
            written = list(Path(folder).iterdir())
            if len(written) != 1:
                raise BenchError(f"{command[0]}: {len(written)} statistics are written by {library}")
            return json.loads(written[0].read_text())

    def atomics(self, _, command) -> dict:
        return {ATOMICS: 1000 * self.statistics(self.checked, command)["counters"]["atomic_rmw"]}

    def lines(self, _, command) -> dict:
        """Also Place -> count. Huge pages are off: whether they pay is measured by time."""
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "lines"
            tool_run(["/usr/bin/env", f"LINES_FILE={out}", "HAKMEM_HUGE_PAGES=never",
                      self.lines_bench / str(command[0]), *command[1:]])
            rows = [line.split("\t") for line in out.read_text().splitlines()]
        counts = defaultdict(int, {TABLE_LINES: 0, BLOCK_LINES: 0, RETRIES: 0})
        events = {"failed": RETRIES, "read-modify-write": ATOMICS}
        for event, table, what, data, module, code, times in rows:
            ours = "libhakmem_lines" in module
            unit = events.get(event) or (BLOCK_LINES if table == "block" else TABLE_LINES)
            if table == "data":
                what = self.code.variable(module, int(data, 16))
            elif table == "block":
                what = "the library's" if ours else "the program's"
            falsely = ", falsely" if event == "moved falsely" else ""
            function = self.code.function(module, int(code, 16)) if ours else "the program"
            if unit != ATOMICS:  # of which the real run has the figure
                counts[unit] += 1000 * int(times)
            counts[Place(unit, f"{table}: {what}{falsely}", function)] += 1000 * int(times)
        return counts


class Symbols:
    """Names of functions and variables, asked once for each address."""

    def __init__(self):
        self.functions, self.variables = {}, {}

    def function(self, module, code) -> str:
        """The function that the access was written in, and the one it was compiled into."""
        if (module, code) not in self.functions:
            names = tool_run(["addr2line", "-f", "-i", "-e", module, hex(code - 1)]).splitlines()[::2]
            outer = re.sub(r"\..*", "", names[-1])
            self.functions[module, code] = names[0] if names[0] == outer else f"{names[0]} in {outer}"
        return self.functions[module, code]

    def variable(self, module, address) -> str:
        if module not in self.variables:
            rows = [line.split() for line in tool_run(["nm", "-S", "--defined-only", module]).splitlines()]
            self.variables[module] = [(int(row[0], 16), int(row[1], 16), row[3]) for row in rows if len(row) == 4]
        for begin, size, name in self.variables[module]:
            if begin <= address < begin + size:
                return f"{name} + {address - begin}"
        return "?"


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
