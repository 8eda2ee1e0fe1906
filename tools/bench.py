"""./hak bench: the workloads, the suites, and what counts."""
# SPDX-License-Identifier: MIT
import os
import pathlib
import re
import sys
import time

from base import BENCH, BUILD, CHECKED, LIBRARY, PEERS, RESULTS, ROOT, TOOL, Failed, die, python, replace_by, run, say
from build import build_checked, build_cli, build_library, build_lines, measurable
from packages import install_each, need

SUITES = ("reports", "field", "sweep", "traces", "real")  # of `./hak bench suite all`
BULK_PEERS = "jemalloc-debian,gperftools,mimalloc2-debian"  # of `./hak bench bulk`, where no peers are built
RECIPE_PEERS = "system,hakmem,jemalloc,mimalloc2,mimalloc3,snmalloc,tcmalloc"
FLAGS = {"--quiet", "--list", "--check-output", "--tax", "--area", "--quick"}


def workloads():
    """The workloads' files, by name."""
    found = (path for path in (ROOT / "bench/workloads").rglob("*") if path.suffix in (".c", ".cc"))
    return {path.stem: path for path in sorted(found, key=lambda path: path.stem)}


def workload_list():
    """What each workload's file says of itself first: its arguments, then what it does."""
    for path in workloads().values():
        first = path.read_text().split("\n", 1)[0]
        yield re.sub(r"^/\* | \*/$", "", first).replace(": ", "\n    ", 1)


def fast_peers():
    """Those of the peers that are built whose tag is fast."""
    tables = PEERS.read_text().split("[[")
    return [re.search(r'^name = "(.*?)"', table, re.MULTILINE).group(1) for table in tables
            if re.search(r'^tags = .*"fast"', table, re.MULTILINE)]


def suite_names(folder="suites"):
    return sorted(path.stem for path in (ROOT / "bench" / folder).glob("*.toml"))


class Arguments:
    """options: those of `hakmem compare`, with their values; words: the others, in order."""

    def __init__(self, words):
        self.options, self.words = [], []
        words = list(words)
        while words:
            word = words.pop(0)
            if word == "--":
                self.words += words
                break
            if not word.startswith("--"):
                self.words.append(word)
            elif "=" in word or word in FLAGS:
                self.options.append(word)
            elif words:
                self.options += [word, words.pop(0)]
            else:
                die(f"bench: {word} takes a value")

    def has(self, name):
        return any(one == f"--{name}" or one.startswith(f"--{name}=") for one in self.options)

    def default(self, name, value):
        """Adds the option unless it is given."""
        if not self.has(name):
            self.options += [f"--{name}", value]

    def choose(self, *peers):
        """Measures only these, if peers are built and the options choose none."""
        if PEERS.exists() and not self.has("without"):
            self.default("only", ",".join(peers or ["hakmem", "system", *fast_peers()]))


def bench_workload(*words):
    given = Arguments(words)
    if not given.words:
        die("bench: no workload is named; see ./hak bench --help")
    name, *more = given.words
    if name not in workloads():
        say(f"hak: bench: {name}: no such workload; there are:")
        say("\n".join(workload_list()))
        sys.exit(2)
    measurable()
    given.default("baseline", "hakmem")
    if name != "empty":
        given.default("metric", f"^{name} ops/s: ([0-9.]+)")
    replace_by(TOOL, "compare", *given.options, "--", BENCH / "bench" / name, *more)


def suite_run(name, given, *more):
    """Runs a suite, or the suite of a FILE.toml; returns whether `hakmem compare` liked it."""
    file = pathlib.Path(name if name.endswith(".toml") else ROOT / "bench/suites" / f"{name}.toml")
    if file == ROOT / "bench/suites/real.toml":
        install_each("real")
    elif file == ROOT / "bench/suites/traces.toml":
        need("traces")
    name = f"tax-{file.stem}" if given.has("tax") else file.stem
    more = list(more)
    written = RESULTS / name
    for option, value in {"baseline": "hakmem", "json": f"{written}.json", "html": f"{written}.html"}.items():
        more += [] if given.has(option) else [f"--{option}", value]
    RESULTS.mkdir(parents=True, exist_ok=True)
    try:
        run(TOOL, "compare", "--suite", file, "--var", f"bench={BENCH}/bench", *more, *given.options)
    except Failed as failed:
        if failed.returncode == 130:
            sys.exit(130)
        return False
    return True


def bench_suite(*words):
    given = Arguments(words)
    ends = None
    if given.words == ["all"]:
        given.words = SUITES
        given.choose()
        given.default("rounds", "7")
        ends = None if given.has("max-time") else 5100  # all together; what remains of 90 minutes is for set-ups
    names = " ".join(["all", *suite_names()])
    if not given.words:
        die(f"bench suite: name a file, or one of: {names}")
    for one in given.words:
        if not one.endswith(".toml") and one not in suite_names():
            die(f"bench suite: {one}: no such suite; there are: {names}")
        if one.endswith(".toml") and not os.path.isfile(one):
            die(f"bench suite: {one}: no such file")
    if given.has("tax"):
        need("tax")
    measurable()
    began, good = time.monotonic(), True
    for one in given.words:
        left = ["--max-time", f"{max(1, int(ends - (time.monotonic() - began)))}s"] if ends else []
        good &= suite_run(one, given, *left)
    sys.exit(not good)


def bench_tax(*words):
    """The allocator's tax on suites, `real` if none is named."""
    given = Arguments(words)
    bench_suite("--tax", *given.options, *(given.words or ["real"]))


def bench_area(*words):
    """The price of time and memory on programs that work and rest, for the peers that are meant to be fast."""
    given = Arguments(words)
    given.choose()
    bench_suite("--area", *given.options, *(given.words or ["area"]))


def bench_recipes(*words):
    """What people change allocators for: bench/recipes/NAME.toml, or all of them. What a recipe needs from a registry
    goes to build/recipes, plots to docs/plots/recipes, and the table to docs/recipes.md."""
    given, known = Arguments(words), suite_names("recipes")
    for one in given.words:
        if one not in known:
            die(f"bench recipes: {one}: no such recipe; there are: {' '.join(known)}")
    install_each("recipes")
    measurable()
    given.choose(RECIPE_PEERS)
    given.default("baseline", "system")
    plots = ROOT / "docs/plots/recipes"
    plots.mkdir(parents=True, exist_ok=True)
    good = True
    for one in given.words or known:
        good &= suite_run(f"{ROOT}/bench/recipes/{one}.toml", given, "--area", "--var", f"recipes={BUILD}/recipes",
                          "--svg", plots / f"{one}.svg")
    python("bench/recipes/page.py", RESULTS, ROOT / "docs/recipes.md")
    sys.exit(not good)


def bench_bulk(*words):
    """Three peers unless --only says otherwise: a curve each."""
    quick = list(words[:1]) if words[:1] == ("--quick",) else []
    given = Arguments(words[len(quick):])
    if given.words:
        die(f"bench bulk: {given.words[0]}: not an option")
    measurable()
    if not given.has("without"):
        given.default("only", "hakmem," + (",".join(fast_peers()[:3]) if PEERS.exists() else BULK_PEERS))
    with open(BUILD / "bulk.toml", "w", encoding="utf-8") as suite:
        python("bench/bulk.py", "suite", *quick, stdout=suite)
    good = suite_run(f"{BUILD}/bulk.toml", given)
    python("bench/bulk.py", "steps", RESULTS / "bulk.json")
    sys.exit(not good)


def bench_rings(*words):
    """Capacities of rings, side by side: fixed ones, those of the reports by class, and the adaptive ones."""
    need("count")
    measurable()
    RESULTS.mkdir(parents=True, exist_ok=True)
    python("bench/rings.py", os.environ["HAKMEM_LIBRARY"], BENCH / "bench", "--json", RESULTS / "rings.json", *words)


def bench_sweep(*words):
    if words[:1] == ("rings",):
        bench_rings(*words[1:])
    else:
        bench_workload("sweep", *words)


def bench_rust(*words):
    need("bench rust")
    run("cargo", "build", "--release", "--locked", "--manifest-path", ROOT / "rust/bench/Cargo.toml",
        env={"CARGO_TARGET_DIR": BUILD / "rust-bench"})
    python("bench/rust.py", BUILD / "rust-bench/release", *words)


def bench_python(*words):
    own = BUILD / "python-bench"
    need("wheel")
    build_library()
    if not (own / "bin/python").exists():
        run("python3", "-m", "venv", own)
    run(own / "bin/pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes", "--only-binary",
        ":all:", "-r", ROOT / "bench/python.txt")
    run(own / "bin/python", ROOT / "bench/python.py", LIBRARY, *words)


def bench_peers():
    need("peers")
    run(ROOT / "bench/peers/build.sh")


def counted(script, name, *words):
    """One of the scripts that count, with what is built; into build/results/NAME.json."""
    need("count")
    measurable()
    build_checked()
    RESULTS.mkdir(parents=True, exist_ok=True)
    python(f"bench/{script}.py", "--build", BENCH, "--library", os.environ["HAKMEM_LIBRARY"], "--peers",
           os.environ.get("HAKMEM_PEERS", PEERS), "--checked", CHECKED, "--json", RESULTS / f"{name}.json", *words)


def bench_counts(*words):
    """Also as a page, unless the result is to go elsewhere. Status 1 says that a count has grown."""
    status = 0
    build_lines()
    try:
        counted("counts", "counts", *words)
    except Failed as failed:
        status = failed.returncode
    if status <= 1 and not Arguments(words).has("json"):
        run(TOOL, "report", "--counts", RESULTS / "counts.json", "--html", RESULTS / "counts.html")
    sys.exit(status)


def bench_quick(*words):
    counted("quick", "figures", "--tool", TOOL, *words)


def bench_report(*words):
    """Everything of bench/suites that build/results has, in the order of SUITES."""
    if words:
        die("bench report takes no arguments; build/hakmem report --help does")
    results = [f"build/results/{name}.json" for name in SUITES if (RESULTS / f"{name}.json").is_file()]
    if not results:
        die(f"build/results has no results of {' '.join(SUITES)}; ./hak bench suite NAME makes them")
    build_cli("release")
    more = ["--counts", "build/results/counts.json"] if (RESULTS / "counts.json").is_file() else []
    run(TOOL, "report", *results, "--html", "build/results/report.html", "--markdown", "build/results/report.md",
        "--plots", "build/results/plots", *more, cwd=ROOT)
    print("written: build/results/report.html, build/results/report.md and its plots")
    if len(results) == len(SUITES):
        python("docs/performance.py", "build/results/report.md", cwd=ROOT)
        print("written: the report in docs/performance.md, docs/plots/frontier.svg")


COMMANDS = {"suite": bench_suite, "tax": bench_tax, "area": bench_area, "recipes": bench_recipes, "bulk": bench_bulk,
            "sweep": bench_sweep, "rust": bench_rust, "python": bench_python, "peers": bench_peers,
            "counts": bench_counts, "quick": bench_quick, "report": bench_report}


def bench(*words):
    first = words[0] if words else "--help"
    if first in ("-h", "--help"):
        print((ROOT / "tools/bench_help.txt").read_text(), end="")
    elif first == "--workload-list":
        print("\n".join(workload_list()))
    elif first == "--checked":
        build_checked()
        os.environ["HAKMEM_LIBRARY"] = str(CHECKED)
        bench(*words[1:])
    elif first in COMMANDS:
        COMMANDS[first](*words[1:])
    else:
        bench_workload(*words)
