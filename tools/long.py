"""What takes long: proofs, soaking, steadiness, coverage."""
# SPDX-License-Identifier: MIT
import datetime
import json
import os
import re
import shlex
import shutil
import subprocess
import sys

from base import (BUILD, JOBS, LIBRARY, RESULTS, ROOT, TOOL, Failed, die, ended, figures, number, output, python, run,
                  say, teed)
from build import WITH_CLANG, WITH_GCC, build_cli, build_library, compile_logged, in_cli
from fuzz import FUZZERS, fuzz_readers, fuzz_targets
from packages import candidate, install_each, need, present
from stages import TEST_BUILDS, counts, ctest, ctest_in

# ---- proofs ----

CBMC_RELEASE = "trixie"  # the first of Debian's with cbmc 6
CBMC_PACKAGES = ("cbmc", "minisat", "libc6", "libgcc-s1", "libstdc++6")


def unpack_cbmc():
    """Where no package of this system's will do: unpacks that release's, and the libraries they need, below
    build/tools, where their own loader runs them. Takes no password, and nothing of the system changes."""
    tools = BUILD / "tools/cbmc"
    sites = output("apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages").split()
    site = next((one for one in sites if re.search("/debian/?$", one)), None)
    if not site or not present("dpkg-deb"):
        die("please install cbmc 6, a model checker for C: Debian 13 has it as cbmc")
    say(f"unpacking cbmc of Debian {CBMC_RELEASE} into build/tools …")
    shutil.rmtree(tools, ignore_errors=True)
    for folder in ("bin", "root", "lists/partial", "archives/partial"):
        (tools / folder).mkdir(parents=True)
    (tools / "sources.list").write_text(
        f"deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] {site} {CBMC_RELEASE} main\n")
    settings = {"Dir::Etc::SourceList": tools / "sources.list", "Dir::Etc::SourceParts": "/dev/null",
                "Dir::State::Lists": tools / "lists", "Dir::State::Status": "/dev/null", "Dir::Cache": tools,
                "APT::Sandbox::User": "root"}
    get = ["apt-get", "-qq", *(word for name, value in settings.items() for word in ("-o", f"{name}={value}"))]
    quiet = {"stdin": subprocess.DEVNULL, "stderr": subprocess.STDOUT}
    try:
        with open(tools / "log", "w", encoding="utf-8") as log:
            run(*get, "update", stdout=log, **quiet)
            run(*get, "download", *CBMC_PACKAGES, cwd=tools / "archives", stdout=log, **quiet)
    except Failed:
        say((tools / "log").read_text(), end="")
        die(f"cbmc of Debian {CBMC_RELEASE} cannot be had; please install cbmc 6")
    root = tools / "root"
    for package in (tools / "archives").glob("*.deb"):
        run("dpkg-deb", "-x", package, root)
    loader = next(root.glob("usr/lib/*/ld-linux-*.so.*"))
    words = [loader, "--library-path", f"{loader.parent}:{root}/usr/lib", root / "usr/bin/cbmc"]
    program = tools / "bin/cbmc"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(map(str, words))} "$@"\n')
    program.chmod(0o755)
    shutil.rmtree(tools / "archives")
    shutil.rmtree(tools / "lists")


def need_cbmc():
    """Puts cbmc 6 into PATH: that which is there, this system's package, or another release's."""
    os.environ["PATH"] = f"{BUILD}/tools/cbmc/bin:{os.environ['PATH']}"
    if present("cbmc"):
        return
    if int(candidate("cbmc").split(".")[0] or 0) >= 6:
        need("cbmc")
    else:
        unpack_cbmc()
    if not present("cbmc"):
        die(f"cbmc 6 or newer is needed; this one says: {output('cbmc', '--version')}")


def prove(*words):
    """The leaves that cbmc can follow, for all inputs, and the bugs that it must find in them: tests/prove/prove.py."""
    need("prove")
    if words[:1] == ("--list",):
        python("tests/prove/prove.py", "--list")
        return
    need_cbmc()
    good = teed(BUILD / "prove.log", python, "tests/prove/prove.py", shutil.which("cbmc"), *words)
    if not words:
        figures("prove", BUILD / "prove.log")
    sys.exit(not good)


# ---- soaking ----


def soak_programs(*words):
    """The table of programs, each under both mallocs; what has run with this library is not run again."""
    need("sessions")
    build_library()
    python("tests/programs/soak.py", "--library", LIBRARY, "--commit",
           output("git", "-C", str(ROOT), "describe", "--always", "--dirty").strip(), "--results",
           RESULTS / "programs.json", "--jobs", JOBS, *words)


def soak_histories(*words):
    """What real programs allocate and free, recorded and checked: tests/history/run.py."""
    need("sessions")
    build_library()
    good = teed(BUILD / "histories.log", python, "tests/history/run.py", "--library", LIBRARY, *words)
    if not words:
        figures("histories", BUILD / "histories.log")
    sys.exit(not good)


def soak_mutants(*words):
    """Small changes of the sources, each of which a test must notice: tests/mutants/mutants.py. Those that no test does
    are for whoever reads the list: they fail nothing."""
    need("mutants")
    good = teed(BUILD / "mutants.log", python, "tests/mutants/mutants.py", *words)
    figures("mutants", BUILD / "mutants.log")
    sys.exit(not good)


def soak_relacy(*words):
    """What the model checker says, asked of a checker of others: tests/races/relacy.cc."""
    need("relacy")
    compile_logged(BUILD / "relacy-build.log", "the harnesses could not be built", "clang", "checked", *WITH_CLANG,
                   "-DHAKMEM_RACES=ON", "-DHAKMEM_TESTS_ONCE=ON", target="races_relacy")
    good = teed(BUILD / "relacy.log", python, "tests/races/second.py", BUILD / "clang/tests/races", *words)
    if not words:
        figures("relacy", BUILD / "relacy.log")
    sys.exit(not good)


def soak_machines(*words):
    """Other machines and other libcs, or the steps that the words name: tests/machines.sh."""
    need("emulation")
    log = BUILD / "machines.log"
    good = teed(log, run, ROOT / "tests/machines.sh", BUILD / "machines", *words)
    if not words:
        passed, _ = counts(log.read_text(errors="replace"))
        with open(log, "a", encoding="utf-8") as more:
            print(f"figure: machines_tests {passed}", file=more)
        figures("machines", log)
    sys.exit(not good)


# Tests of what is shipped: another compiler's code, without counters.
NOT_INSTRUMENTED = (
    "counts_test", "fast_path_test",  # golden counts of instructions
    "calls_test", "entry_test",  # lists of calls and symbols, in which the profile's are not
    "footprint_test", "stack_use_test",  # pages and stacks, which counters enlarge
    "sandbox_test",  # whose programs may not write a profile
)


def soak_conditions(*words):
    """Which conditions of the core the tests show, true and false and deciding alone: tests/conditions.py; the words
    choose tests, else all that are not soaked, but for those of what is shipped. A test that fails counts for what it
    has reached."""
    folder = BUILD / "conditions"
    need("conditions")
    shutil.rmtree(folder / "profiles", ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    run("clang-19", "-O1", "-fPIC", "-c", ROOT / "tests/ends.c", "-o", folder / "ends.o")
    ends = f"-Wl,--wrap=abort,--wrap=_exit {folder}/ends.o"
    flags = "-O1 -fprofile-instr-generate -fcoverage-mapping -fcoverage-mcdc"
    compile_logged(folder / "build.log", "the tests could not be built", "conditions", "release",
                   "-DCMAKE_C_COMPILER=clang-19", "-DCMAKE_CXX_COMPILER=clang++-19", f"-DCMAKE_C_FLAGS={flags}",
                   f"-DCMAKE_CXX_FLAGS={flags}", f"-DCMAKE_EXE_LINKER_FLAGS={ends}",
                   f"-DCMAKE_SHARED_LINKER_FLAGS={ends}", "-DHAKMEM_TESTS=ON", "-DHAKMEM_RACES=OFF",
                   "-DHAKMEM_WERROR=OFF", env={"HAK_TEST_LONGER": 3})
    with open(folder / "tests.log", "w", encoding="utf-8") as log:
        usual = ("-LE", "soak", "-E", f"^({'|'.join(NOT_INSTRUMENTED)})$")
        ended(lambda: ctest("conditions", *(words or usual), stdout=log, stderr=subprocess.STDOUT, env={
            "HAK_TEST_SHORTER": 20, "LLVM_PROFILE_FILE": f"{folder}/profiles/%p-%m.profraw"}))
    for name in re.findall(r": (\w+) \.*\*\*\*", (folder / "tests.log").read_text(errors="replace")):
        say(f"failed: {name}")
    binaries = [path for path in (folder / "tests").rglob("*_test")
                if path.is_file() and b"tiny_refill" in path.read_bytes()]
    (folder / "profiles.txt").write_text("".join(f"{path}\n" for path in (folder / "profiles").rglob("*.profraw")))
    RESULTS.mkdir(parents=True, exist_ok=True)

    def report():
        run("llvm-profdata-19", "merge", "-sparse", "-failure-mode=all", f"--input-files={folder}/profiles.txt",
            "-o", folder / "all.profdata")
        tests = re.search(r"tests passed,.* out of (\d+)", (folder / "tests.log").read_text(errors="replace"))
        print(f"figure: conditions_tests {tests[1]}", flush=True)
        python("tests/conditions.py", "llvm-cov-19", folder / "all.profdata", RESULTS / "conditions.json",
               folder / "libhakmem.so", *binaries)
    good = teed(folder / "report.txt", report)
    figures("conditions", folder / "report.txt")
    sys.exit(not good)


def soak_packages():
    """Packages of every format are built and used by what can be installed here; what cannot is named."""
    need("rust tools", "wheel", "packages")
    install_each("recipe tools")
    build_cli("release")
    tools, tests = BUILD / "package-tools", ROOT / "tests"
    if not (tools / "bin/conan").exists():
        ended(run, "python3", "-m", "venv", tools)
        pip = (tools / "bin/pip", "install", "--quiet", "--disable-pip-version-check")
        ended(run, *pip, "meson==1.12.1", "ninja==1.13.2", "ziglang==0.17.1")
        ended(run, *pip, "conan==2.34.0")
    path = {"PATH": f"{tools}/bin:{os.environ['PATH']}"}
    good = [
        ended(lambda: run(tests / "builders.sh", env=path)) == 0,
        ended(lambda: run(tests / "recipes.sh", env=path)) == 0,
        ended(run, tests / "packages.sh") == 0,
        ended(run, tests / "wheel.sh", TOOL, BUILD / "packages/wheel") == 0,
    ]
    sys.exit(not all(good))


def soak_rehearse(*words):
    """Readers' first minutes in bare systems, with what a release consists of: build/results/readers.md."""
    need("rust tools", "wheel", "packages")
    build_cli("release")
    run(ROOT / "packaging/packages.sh", "deb", "tar")
    run(ROOT / "tests/wheel.sh", TOOL, BUILD / "packages/wheel")
    good = teed(BUILD / "rehearse.log", run, ROOT / "bench/rehearse.sh", *words)
    if not words:
        figures("rehearse", BUILD / "rehearse.log")
    sys.exit(not good)


def soak_lint():
    run("env", "HAK_LINT_NODES=225000", ROOT / "hak", "lint")


def soak_wheel():
    """Cargo builds the command, as in `pip install .`"""
    need("test", "packages")
    run(ROOT / "tests/wheel.sh", "", BUILD / "whole-wheel")


def build_soak(times):
    """Time limits are multiplied, and the long harnesses are there, when the directory is configured so."""
    os.environ["HAK_TEST_LONGER"] = times
    compile_logged(BUILD / "soak-build.log", "the tests could not be built", "soak", "release", *WITH_GCC,
                   "-DHAKMEM_TESTS=ON")


def soak_tests(times):
    """The tests that take long, and what the command's tests leave to them; without the model checker's."""
    need("test")
    build_cli()
    log = BUILD / "soak.log"
    build_soak(times)
    by_the_clock = {"HAKMEM_LIBRARY": BUILD / "soak/libhakmem.so"}
    good = [
        teed(log, ctest_in, "soak", "--exclude-regex", "^races_"),
        teed(log, lambda: in_cli("test", "--workspace", "--", "--ignored", env=by_the_clock), append=True),
    ]
    figures("soak", log)
    sys.exit(not all(good))


def soak_races():
    """All harnesses of the model checker, and all bugs that they must find: also those that take many minutes."""
    need("test")
    build_soak("1")
    sys.exit(not teed(BUILD / "soak-races.log", ctest_in, "soak", "--tests-regex", "^races_"))


def soak_fuzz(times):
    """Each fuzzer as many minutes as the word says, and the command's readers six times as many."""
    need("test")
    build_cli()
    log = BUILD / "soak-fuzz.log"
    os.environ["HAK_TEST_LONGER"] = times
    good = [teed(log, fuzz_targets, 60, *FUZZERS), teed(log, fuzz_readers, 360 * int(times), append=True)]
    figures("soak-fuzz", log)
    sys.exit(not all(good))


def soak_steady():
    """52 runs."""
    steady("13")


# What `./hak soak` does, one after the other; SOAKS has what is done by its name alone, too.
NIGHT = {"lint": soak_lint, "packages": soak_packages, "wheel": soak_wheel, "machines": soak_machines, "prove": prove,
         "relacy": soak_relacy, "steady": soak_steady, "races": soak_races, "tests": soak_tests,
         "histories": soak_histories, "fuzz": soak_fuzz}
TIMED = ("tests", "fuzz")  # have TIMES
SOAKS = {**NIGHT, "programs": soak_programs, "mutants": soak_mutants, "conditions": soak_conditions,
         "rehearse": soak_rehearse}
PASSED = RESULTS / "soaked.json"  # {part of the night: the day on which it last passed}


def times_of(word):
    return str(number(word, f"soak: TIMES is a number, not '{word}'"))


def soak_part(name, *words):
    status = ended(SOAKS[name], *([times_of(*words[:1] or ["10"])] if name in TIMED else words))
    if status == 0 and name in NIGHT and (name in TIMED or not words):
        RESULTS.mkdir(parents=True, exist_ok=True)
        passed = json.loads(PASSED.read_text()) if PASSED.exists() else {}
        PASSED.write_text(json.dumps(passed | {name: datetime.date.today().isoformat()}, indent=2) + "\n")
    sys.exit(status)


def soak(*words):
    """The parts of the night; or what the word names."""
    if words and words[0] in SOAKS:
        soak_part(*words)
    times = times_of(words[0] if words else "10")
    need("test", "emulation", "packages")  # asks for a password before the night, not within
    good = [ended(run, ROOT / "hak", "soak", part, *([times] if part in TIMED else ())) == 0 for part in NIGHT]
    sys.exit(not all(good))


# ---- steadiness ----

HOSTS = ("usual", "cheap", "dear", "late")
UNHOSTED = "|^entry_test$|^sandbox_test$"  # watch the system calls, of which a made-up clock has its own


def steady_run(build, host):
    """The tests of a build once, more at a time than there are processors, on such a machine (tests/host.c). Not the
    model checker's, which is still alone; nor what a preloaded library is kept out of. Returns whether they passed."""
    folder = BUILD / "steady"
    log = folder / f"{build}-{host}.log"
    preload = {} if host == "usual" else {"LD_PRELOAD": BUILD / build / "tests/libtest_host.so", "HAK_TEST_HOST": host,
                                          "GLIBC_TUNABLES": "glibc.pthread.rseq=0"}  # times are as the machine says
    try:
        with open(log, "w", encoding="utf-8") as out:
            ctest(build, "--exclude-regex", "^races_|^privileged_test$" + ("" if host == "usual" else UNHOSTED),
                  jobs=3 * JOBS, env=preload, stdout=out,
                  stderr=subprocess.STDOUT)
        return True
    except Failed:
        text = log.read_text(errors="replace")
        with open(folder / "failed.log", "a", encoding="utf-8") as failed:
            failed.write(text)
        for name, why in re.findall(r"^ *\d+/\d+ Test *#\d+: (\S+) .*\*\*\*([A-Za-z]*)", text, re.MULTILINE):
            print(f"     {build} on a {host} machine: {name} {why}", flush=True)
        return False


def steady_runs(times):
    failed = sum(not steady_run(build, HOSTS[time % len(HOSTS)]) for time in range(times) for build in TEST_BUILDS)
    print(f"figure: steady_runs {times * len(TEST_BUILDS)}\nfigure: steady_failed_runs {failed}")
    if failed:
        die("what failed is in build/steady/failed.log")


def steady(*words):
    """All tests again and again, under load and on machines of each kind. No verdict may hang on the machine."""
    word = words[0] if words else "50"
    times = number(word, f"steady: TIMES is a number, not '{word}'")
    need("test")
    folder = BUILD / "steady"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for build in TEST_BUILDS:
        compile_logged(folder / f"{build}.log", "the tests could not be built", build, *TEST_BUILDS[build])
    log = folder / "runs.log"
    good = teed(log, steady_runs, times)
    figures("steady", log)
    sys.exit(not good)


# ---- coverage ----


def coverage():
    """Counters live in files that are mapped (%c), so that tests that abort count; one for each process (%p), so that
    code that ran before its file was mapped counts; and one for each library (%m), because two libraries that map one
    file overwrite each other or die of SIGBUS. The model checker's programs take long and contain only copies of the
    protocols, which do not count. Counting takes time, so the tests' time limits are tripled."""
    folder, good = BUILD / "coverage", True
    need("coverage")
    shutil.rmtree(folder / "profiles", ignore_errors=True)
    compile_logged(folder / "build.log", "the tests could not be built", "coverage", "coverage", "-DHAKMEM_RACES=OFF",
                   env={"HAK_TEST_LONGER": 3})
    with open(folder / "tests.log", "w", encoding="utf-8") as log:
        try:
            ctest("coverage", stdout=log, stderr=subprocess.STDOUT,
                  env={"LLVM_PROFILE_FILE": f"{folder}/profiles/%c%p-%m.profraw"})
        except Failed:
            good = False
    if not good:
        text = (folder / "tests.log").read_text(errors="replace")
        print("\n".join(re.findall("^.*(?:Failed|FAILED|Timeout|hakmem: ).*$", text, re.MULTILINE)))
    objects = [word for path in (folder / "tests").rglob("*_test") if path.is_file() and os.access(path, os.X_OK)
               for word in ("-object", path)]
    (folder / "profiles.txt").write_text("".join(f"{path}\n" for path in (folder / "profiles").rglob("*.profraw")))
    tool = {name: output("clang", f"--print-prog-name={name}").strip() for name in ("llvm-profdata", "llvm-cov")}

    def report():
        run(tool["llvm-profdata"], "merge", "-sparse",
            f"--input-files={folder}/profiles.txt", "-o", folder / "all.profdata")
        with open(folder / "lines.info", "w", encoding="utf-8") as lines:
            run(tool["llvm-cov"], "export", "-format=lcov", "-instr-profile", folder / "all.profdata",
                folder / "libhakmem.so", *objects, ROOT / "src", stdout=lines)
        python("tests/coverage.py", folder / "lines.info", ROOT / "src", 95)
    good &= teed(folder / "report.txt", report)
    figures("coverage", folder / "report.txt")
    sys.exit(not good)
