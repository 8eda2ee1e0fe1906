"""./hak test: the stages, and what runs them side by side.

 1. A stage is a function in the table STAGES; its output goes to build/test-logs/NAME.log.
 2. A stage passes if it raises nothing. The tests it ran are counted from its output.
 3. Each runs in a process and a process group of its own, so that an interrupt reaches all its programs.
"""
# SPDX-License-Identifier: MIT
import contextlib
import os
import pathlib
import re
import resource
import shutil
import signal
import sys
import tempfile
import time

import packages
from base import BENCH, BUILD, JOBS, LIBRARY, ROOT, TOOL, Steps, die, figures, forked, output, python, run
from bench import suite_names, workloads
from fuzz import FUZZERS, fuzz_targets
from build import (COMMAND_CRATES, WITH_CLANG, WITH_GCC, build_bench, build_cli, build_library, build_lines,
                   compile_in, configure_in, in_cli)
from lint import lint, lint_text
from packages import missing, need, obtained, present
from use import doc, run_demo

LOGS = BUILD / "test-logs"

# ---- the library's own tests ----


def no_cores():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def ctest(name, *words, jobs=JOBS, **more):
    """Runs all tests that were built in build/NAME, or those that the words choose."""
    run("ctest", "--test-dir", BUILD / name, "--output-on-failure", "--no-tests=error", "--timeout", "3000",
        "--parallel", jobs, *words, preexec_fn=no_cores, **more)


def ctest_in(name, *words, **more):
    """As ctest; then what the tests say of figures."""
    try:
        ctest(name, *words, **more)
    finally:
        with contextlib.suppress(OSError):
            log = (BUILD / name / "Testing/Temporary/LastTest.log").read_text(errors="replace")
            print("".join(re.findall(r"^figure: .*\n", log, re.MULTILINE)), end="", flush=True)


# By the directory below build/. gcc: the library as it is shipped, under every test except the model checker's. clang:
# with assertions, under the tests to which they may add something and which the sanitized builds, which also have
# assertions, do not run, and a fourth as long; and the model checker, which has assertions in every build and is built
# only here.
TEST_BUILDS = {
    "gcc": ("release", *WITH_GCC, "-DHAKMEM_TESTS=ON", "-DHAKMEM_RACES=OFF"),
    "clang": ("checked", *WITH_CLANG, "-DHAKMEM_RACES=ON", "-DHAKMEM_TESTS_ONCE=ON"),
    "asan": ("asan",),
    "tsan": ("tsan",),
}


def build_tests(name, **more):
    compile_in(name, *TEST_BUILDS[name], **more)


def stage_of_tests(name, **more):
    build_tests(name)
    ctest_in(name, **more)


def stage_pairs():
    """The two other pairs of compiler and build must compile without warnings; the tests that may depend on the pair
    run."""
    compile_in("gcc-checked", "checked", *WITH_GCC, "-DHAKMEM_TESTS=OFF")
    compile_in("clang-release", "release", *WITH_CLANG, "-DHAKMEM_TESTS=ON", "-DHAKMEM_BENCH=ON", "-DHAKMEM_RACES=OFF",
               target="pairs")
    ctest_in("clang-release", "--label-regex", "pairs")


def one_test(name, test):
    """Builds and runs the tests that a pattern names, in one of these builds or in the command's crates."""
    if name == "cli":
        build_bench()
        build_cli()
        in_cli("test", *COMMAND_CRATES, test, env={"HAKMEM_LIBRARY": BENCH / "libhakmem.so"})
        return
    if name not in TEST_BUILDS:
        die(f"./hak test STAGE TEST: STAGE is one of: cli {' '.join(TEST_BUILDS)}")
    if not (BUILD / name / "build.ninja").exists():
        configure_in(name, *TEST_BUILDS[name])
    targets = output("ninja", "-C", str(BUILD / name), "-t", "targets", "all").splitlines()
    build_tests(name, target=test if f"{test}: phony" in targets else None)
    ctest_in(name, "--tests-regex", test)


# ---- what the editing loop runs ----


def stage_quick():
    """Runs the tests labelled quick, shortened, in the directory of stage gcc."""
    build_tests("gcc", target="quick")
    ctest_in("gcc", "--label-regex", "quick", env={"HAK_TEST_SHORTER": 20})


def stage_races():
    """The model checker's harnesses, without their seeded bugs."""
    build_tests("clang", target="races")
    ctest_in("clang", "--tests-regex", "^races_[a-z_]*$", "--exclude-regex", "_finds_")


# ---- stages of several steps ----


def stage_driver():
    step = Steps()
    step("commands of the driver", ROOT / "tests/driver.sh")
    step("what each gate is to find", "python3", ROOT / "tests/gates_test.py")
    step("what a release refuses, and what it makes", ROOT / "tests/release.sh")
    step("what a mutant is", "python3", ROOT / "tests/mutants/mutants_test.py")
    step("peers that are not those we know", ROOT / "tests/peers.sh")
    step.end()


def run_workloads():
    """Runs the workloads under HAKMEM, small. Each checks what it allocates, and tiny.toml contains all of them."""
    suite = ROOT / "bench/suites/tiny.toml"
    named = set(re.findall(r'^command = \["\{bench\}/([a-z_]*)"', suite.read_text(), re.MULTILINE))
    if lacking := set(workloads()) - named:
        sys.exit(f"bench/suites/tiny.toml lacks: {' '.join(sorted(lacking))}")
    run(TOOL, "compare", "--suite", suite, "--var", f"bench={BENCH}/bench", "--only", "hakmem", "--rounds", "1")


def run_demonstration():
    """What `./hak run` shows, in one round, which decides nothing."""
    drawing = BUILD / "service.svg"
    drawing.unlink(missing_ok=True)
    with tempfile.TemporaryFile() as out:
        if os.waitpid(forked(run_demo, "--rounds", "1", out=out.fileno()), 0)[1]:
            sys.exit(1)
        out.seek(0)
        text = out.read().decode()
    for line in ("  ━━━ hakmem  ─── system", "HAKMEM against the system allocator, 1 round:", "  CPU time ",
                 "  average memory ", "  ./hak compare --area -- PROGRAM ARGS…",
                 "  ./hak hakmem explain -- PROGRAM ARGS…"):
        if line not in text:
            sys.exit(f"not shown: {line}\n{text}")
    if not drawing.is_file() or not drawing.read_text().startswith("<svg"):
        sys.exit("build/service.svg is not drawn")


def read_suite(suite):
    run(TOOL, "compare", "--list", "--suite", suite, "--var", f"bench={BENCH}/bench", "--var", f"recipes={BUILD}",
        stdout=open(os.devnull, "w", encoding="utf-8"))


def stage_cli():
    """The command, which clippy compiles, its report in a browser, the suites, the workloads and the recorder."""
    step = Steps()
    build_bench()
    build_lines()
    build_cli()
    library = os.environ["HAKMEM_LIBRARY"] = str(BENCH / "libhakmem.so")
    tests = ROOT / "cli/tests"
    step("tests of the command", in_cli, "test", *COMMAND_CRATES)
    step("report in a browser", "python3", tests / "report_browser.py", TOOL)
    step("map and live page in a browser", "python3", tests / "map_browser.py", TOOL, library)
    step("heap profiles", "python3", tests / "profile_test.py", TOOL, library)
    step("recorder", "python3", ROOT / "bench/traces/test_record.py", BENCH / "bench/replay")
    step("counts", "python3", ROOT / "bench/test_counts.py", BENCH)
    for name in suite_names():
        step(f"suite {name}", read_suite, ROOT / f"bench/suites/{name}.toml")
    for name in suite_names("recipes"):
        step(f"recipe {name}", read_suite, ROOT / f"bench/recipes/{name}.toml")
    step("table of recipes", "python3", ROOT / "bench/recipes/test_page.py")
    step("every workload", run_workloads)
    step("the first demonstration", run_demonstration)
    step.end()


def stage_rust():
    """The crates, which clippy compiles, with malloc replaced; and what a program gets from their packages, with it as
    it is."""
    step = Steps()
    need("rust")
    os.environ["CARGO_TARGET_DIR"] = str(BUILD / "rust")
    os.chdir(ROOT / "rust")
    run("cargo", "fetch", "--locked")
    clippy = ("env", "RUSTC_WORKSPACE_WRAPPER=clippy-driver", "RUSTFLAGS=-Dwarnings")
    test = ("cargo", "test", "--locked", "--offline", "--all-features")
    step("tests of the crates", *clippy, *test)
    step("the same in secure mode", *clippy, "HAKMEM_SECURE=1", *test, "--package", "hakmem", "--tests")
    step("packages", ROOT / "tests/crates.sh")
    step.end()


def stage_python():
    """The wheel, around the command that stage cli builds, too."""
    need("python")
    build_cli()
    run(ROOT / "tests/wheel.sh", TOOL, BUILD / "wheel")


def stage_install():
    """Every way in which a project uses the library, and what is installed beside it."""
    step = Steps()
    build_library()
    tests = ROOT / "tests/install"
    step("a project that uses it", tests / "run.sh", LIBRARY.parent)
    step("beside another malloc", tests / "beside.sh", LIBRARY.parent)
    step("installed, used, removed", tests / "tree.sh")
    step("links in the way of the installer", tests / "links.sh")
    step("one file", tests / "amalgamation.sh")
    step("binary interface", tests / "abi.sh")
    step.end()


def stage_machines():
    """Of the emulated machines only the shortest tests on aarch64, if its packages can be had; ./hak soak runs all."""
    steps = ["sources", "musl"]
    if obtained("aarch64"):
        steps.append("aarch64-smoke")
    else:
        print(f"left out: aarch64, for which these packages cannot be installed: {' '.join(missing('aarch64'))}")
    run(ROOT / "tests/machines.sh", BUILD / "machines", *steps)


def stage_programs():
    """A program that can't be installed must not keep the others from being tested: its own test reports that and
    fails."""
    step = Steps()
    build_library()
    tests = ROOT / "tests/programs"
    step("long sessions", "python3", tests / "run.py", "--library", LIBRARY)
    step("what runs short ones", "python3", tests / "soak_test.py")
    step("short sessions", "python3", tests / "soak.py", "--quick", "--jobs", JOBS, "--library", LIBRARY)
    step.end()


# ---- the documentation ----

# What ./hak doc writes.
GENERATED = [f"docs/{name}.md" for name in ("options", "migrating", "reliability", "tried")] + [
    "README.md", "cli/src/heap/terms.rs"]


def doc_blocks():
    """Each block of the documentation that is opened by ```sh run: its place, what it needs (programs, files, root),
    and its text."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs/programs").glob("*.md"))]
    for page in pages:
        place, lines = None, []
        for number, line in enumerate(page.read_text().splitlines(), 1):
            if line.startswith("```sh run"):
                place, wanted, lines = f"{page.relative_to(ROOT)}:{number}", line[len("```sh run"):].split(), []
            elif not line.startswith("```"):
                lines.append(line)
            elif place:
                yield place, wanted, "\n".join(lines) + "\n"
                place = None


def run_block(place, wanted, text, folders):
    """The blocks of a page about programs share a folder below FOLDERS, in which the page's files are."""
    print(f"---- {place}", flush=True)
    for one in wanted:
        if os.geteuid() != 0 if one == "root" else not present(one):
            print(f"left out: no {one} here")
            return
    here, page = ROOT, place.split(".md:")[0]
    if page.startswith("docs/programs/"):  # as a user who has installed HAKMEM; another user must be able to read it
        here = folders / pathlib.Path(page).name
        if not here.exists():
            here.mkdir()
            shutil.copy(LIBRARY, here)
            folders.chmod(0o1777)
            here.chmod(0o1777)
            for file in (ROOT / page).glob("*"):
                shutil.copy(file, here)
    block = folders / "block"
    block.write_text(text)
    run("timeout", "3000", "bash", "-euo", "pipefail", "-x", block, cwd=here, stdin=open(os.devnull, encoding="utf-8"),
        env={"LD_LIBRARY_PATH": here, "HAKMEM_LIBRARY": LIBRARY, "PATH": f"{BUILD}:{os.environ['PATH']}"})


def run_blocks():
    blocks = list(doc_blocks())
    if not blocks:
        die("no block of the documentation is marked to be run")
    with tempfile.TemporaryDirectory() as folders:
        for place, wanted, text in blocks:
            run_block(place, wanted, text, pathlib.Path(folders))


def doc_is_new():
    """Fails if ./hak doc would write other pages than there are."""
    with tempfile.TemporaryDirectory() as before:
        for file in GENERATED:
            shutil.copy(ROOT / file, before)
        doc()
        for file in GENERATED:
            run("diff", pathlib.Path(before) / pathlib.Path(file).name, ROOT / file)


def stage_docs():
    """Runs every block of the documentation; checks that links lead somewhere and that the generated pages are up to
    date."""
    python("tests/pages.py")
    need("docs blocks")
    build_library()
    build_cli()
    run_blocks()
    doc_is_new()


# ---- running stages ----

STAGES = {  # the longest first
    "cli": stage_cli,
    "gcc": lambda: stage_of_tests("gcc"),
    "clang": lambda: stage_of_tests("clang", env={"HAK_TEST_SHORTER": 4}),
    "asan": lambda: stage_of_tests("asan"),
    "tsan": lambda: stage_of_tests("tsan"),
    "programs": stage_programs,
    "pairs": stage_pairs,
    "lint": lint,
    "fuzz": lambda: fuzz_targets(5, *FUZZERS),
    "docs": stage_docs,
    "rust": stage_rust,
    "python": stage_python,
    "install": stage_install,
    "machines": stage_machines,
    "driver": stage_driver,
}
QUICK_STAGES = {"quick": stage_quick, "races": stage_races, "text": lint_text}
ALONE = ("lint", "fuzz", "rust", "python", *QUICK_STAGES)  # they have sections of packages.txt


def counts(text):
    """How many of what a log names passed, and how many failed: tests of ctest, cargo and Python, programs and
    steps."""
    good = bad = 0
    for failed, all_tests in re.findall(r" tests passed, (\d+) tests? failed out of (\d+)", text):
        bad, good = bad + int(failed), good + int(all_tests) - int(failed)
    for passed, failed in re.findall(r"^test result: \S+ (\d+) passed; (\d+) failed", text, re.MULTILINE):
        good, bad = good + int(passed), bad + int(failed)
    good += sum(map(int, re.findall(r"^Ran (\d+) tests? in ", text, re.MULTILINE)))
    for failures in re.findall(r"^FAILED \((.*)\)", text, re.MULTILINE):
        failed = sum(map(int, re.findall(r"\d+", failures)))
        good, bad = good - failed, bad + failed
    return good + len(re.findall(r"^ok   ", text, re.MULTILINE)), bad + len(re.findall(r"^FAIL ", text, re.MULTILINE))


TELLING = re.compile(r"^FAIL |\*\*\*(Failed|Timeout|Exception)|\[  FAILED  \]|^test .* FAILED$")
DULL = re.compile(r" Passed +[0-9.]+ sec$|^ +Start ")


class Runner:
    """Runs stages two at a time, because a stage that links or waits leaves cores to the other."""

    def __init__(self, stages, installer=None):
        self.stages = stages  # by name: what each does
        self.waiting = list(stages)
        self.running = {}  # by process: name and start
        self.installer = installer
        self.late = [name for name in stages if installer and missing(section_of(name))]  # these wait for it
        self.passed = self.failed = 0
        self.began = time.monotonic()

    def start(self, name):
        with open(LOGS / f"{name}.log", "w", encoding="utf-8") as log:
            pid = forked(self.stages[name], out=log.fileno(), errors=log.fileno(), group=True)
        self.running[pid] = name, time.monotonic()
        self.waiting.remove(name)
        self.progress()

    def progress(self):
        """Prints how long the run has taken and what is running."""
        seconds = int(time.monotonic() - self.began)
        names = " ".join(name for name, _ in self.running.values())
        line = f"     {seconds // 60:2}:{seconds % 60:02}" + (f"   running: {names}" if names else "")
        print(line, end=" …\033[K\r" if sys.stdout.isatty() else "\n", flush=True)

    def report(self, name, start, status, usage):
        """Reports a stage's result; of one that failed also the end of its log and the command to repeat it."""
        text = (LOGS / f"{name}.log").read_text(errors="replace")
        seconds, cpu = time.monotonic() - start, usage.ru_utime + usage.ru_stime
        good, bad = counts(text)
        self.passed, self.failed = self.passed + good + (status == 0), self.failed + bad + (status != 0)
        if status == 0:
            print(f"ok   {name:9} {seconds:4.0f} s {cpu:5.0f} s CPU" + (f" {good:5} tests" if good else ""))
            for line in re.findall("^left out: .*", text, re.MULTILINE):
                print(f"     {line}")
            return
        print(f"FAIL {name:9} {seconds:4.0f} s   again: ./hak test {name}   all of it: build/test-logs/{name}.log")
        lines = text.splitlines()
        for line in sorted(set(filter(TELLING.search, lines)))[:20]:
            print(f"     {line}")
        for line in [line for line in lines if not DULL.search(line)][-40:]:
            print(f"     | {line}")

    def reap(self):
        """Waits until a stage has ended, or the installation."""
        pid, status, usage = os.wait4(-1, 0)
        if pid == self.installer:
            self.installer = None
            if status:
                self.failed += len(self.late)
                for name in self.late:
                    print(f"FAIL {name:9}   left out: its packages cannot be installed")
                    self.waiting.remove(name)
        elif pid in self.running:
            self.report(*self.running.pop(pid), status, usage)
            self.progress()

    def stop(self):
        for pid in self.running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGTERM)

    def run(self):
        """Each stage in its turn; while packages are being installed, those first that need none of them."""
        def interrupted(*_):
            raise KeyboardInterrupt
        signal.signal(signal.SIGTERM, interrupted)
        try:
            while self.waiting or self.running:
                ready = [name for name in self.waiting if not self.installer or name not in self.late]
                if ready and len(self.running) < 2:
                    self.start(ready[0])
                else:
                    self.reap()
        except KeyboardInterrupt:
            self.stop()
            sys.exit(130)


def section_of(stage):
    """The section of packages.txt with what the stage needs."""
    return stage if stage in ALONE else "test"


def install_for(names):
    """Installs what the stages need. Returns None once that is done; but if another program holds dpkg's lock, at once
    the process that waits for it, so that stages whose packages are there run meanwhile."""
    reader, writer = os.pipe()

    def install():
        os.close(reader)
        packages.waits = lambda: os.write(writer, b"waits")
        need(*map(section_of, names))
        if "programs" in names:
            packages.install_each("session programs")
    pid = forked(install, out=1)
    os.close(writer)
    said = os.read(reader, 8)
    os.close(reader)
    if said and not missing("build"):
        return pid
    if os.waitpid(pid, 0)[1]:
        sys.exit(1)
    return None


def run_tests(*words):
    """All stages, or those that the word names."""
    names = list(STAGES) if not words else list(QUICK_STAGES) if words == ("quick",) else words[:1]
    stages = {name: task for name, task in (STAGES | QUICK_STAGES).items() if name in names}
    if not stages:
        die(f"no such stage: {names[0]}; there are: quick {' '.join(STAGES)}")
    installer = None
    if missing(*map(section_of, names), *(["session programs"] if "programs" in names else [])):
        installer = install_for(names)
    LOGS.mkdir(parents=True, exist_ok=True)
    os.environ["HAK_CLI_PROFILE"] = "dev"
    if len(words) > 1:
        return one_test(*words) if len(words) == 2 else die("usage: ./hak test [STAGE [TEST]]")
    build_library()  # here, so that no two stages build it at the same time
    runner = Runner(stages, installer)
    runner.run()
    if not words:
        figures("test", *LOGS.glob("*.log"))
    print(f"{runner.passed} passed, {runner.failed} failed")
    sys.exit(runner.failed != 0)
