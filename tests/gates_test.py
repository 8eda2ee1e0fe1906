#!/usr/bin/env python3
"""Plants in a small tree what each gate of ./hak test is to find, and sees the gate fail. If this fails, a gate lets
through what it is there to stop. Elsewhere are layers_test.py, install/abi.sh, release.sh, the seeds of races/ and
prove/, history/faulty.c, mutants/mutants_test.py, bench/test_counts.py for what grows, the last line of counts_test,
sanitizer_finds_… in CMakeLists.txt, and in fast_path_test and entry/ the tests called Watch. docs/reliability.md lists
all of them."""
# SPDX-License-Identifier: MIT
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

PROJECT = pathlib.Path(__file__).resolve().parent.parent
SCRATCH = pathlib.Path(tempfile.mkdtemp())
ROOT = SCRATCH / "tree"
shutil.copytree(PROJECT / "tools", ROOT / "tools")  # the driver takes the tree that it is in for the project
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tools"))
import base  # noqa: E402
import build  # noqa: E402
import docs_names  # noqa: E402
import fuzz  # noqa: E402
import lint  # noqa: E402
import long  # noqa: E402
import packages  # noqa: E402
import stages  # noqa: E402

TESTS = ROOT / "tests"


def plant(name, text):
    path = ROOT / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def git(*words):
    subprocess.run(["git", "-C", ROOT, *words], check=True, env=os.environ | {"GIT_CONFIG_GLOBAL": os.devnull})


def setUpModule():
    for name in (".clang-format", ".clang-tidy", "hak", ".ci/run"):
        plant(name, (PROJECT / name).read_text())
    for path in [*(PROJECT / "tests").glob("*.py"), PROJECT / "tests/kit.sh", PROJECT / "tests/grown.txt"]:
        if path.name != "gates_test.py":  # it has words that are to be in no source
            plant(f"tests/{path.name}", path.read_text())
    plant("src/one.c", "/* One. */\n/* SPDX-License-Identifier: MIT */\nint one(void) { return 1; }\n")
    plant("CMakeLists.txt", "# SPDX-License-Identifier: MIT\n")
    for name in ("README.md", "python/README.md", "docs/programs/one.md"):
        plant(name, "# A page\n\n```sh run\ntrue\n```\n")
    for name in docs_names.DOCUMENTS:
        plant(f"docs/{name}.md", "# A page of `one`\n")
    plant("tests/races/races.c", "/* SPDX-License-Identifier: MIT */\n")
    for folder in ("bench", "cli/tests", "include", "packaging"):
        (ROOT / folder).mkdir(parents=True, exist_ok=True)
    plant("cli/Cargo.toml", '[package]\nname = "one"\nversion = "0.1.0"\nedition = "2021"\n')
    plant("cli/src/lib.rs", "//! One.\n// SPDX-License-Identifier: MIT\n")
    subprocess.run(["cargo", "generate-lockfile", "--offline", "--quiet"], cwd=ROOT / "cli", check=True)
    git("init", "--quiet")
    git("add", "--all")


def tearDownModule():
    shutil.rmtree(SCRATCH)
    print(f"\nfigure: gates_faults {Gate.found}", flush=True)  # behind the dots of unittest


class Gate(unittest.TestCase):
    found = 0  # faults that were planted and found

    def said(self, task, *args):
        """The status and the output of a task; a path is a script, run by this Python."""
        if not callable(task):
            task, args = base.run, (sys.executable, task, *args)
        with tempfile.TemporaryFile() as out:
            status = os.waitpid(base.forked(task, *args, out=out.fileno(), errors=out.fileno()), 0)[1]
            out.seek(0)
            return status, out.read().decode(errors="replace")

    def passes(self, task, *args):
        """So that what a gate finds later is what was planted."""
        status, text = self.said(task, *args)
        self.assertEqual(status, 0, text)
        return text

    def finds(self, sought, task, *args):
        status, text = self.said(task, *args)
        self.assertNotEqual(status, 0, text)
        self.assertIn(sought, text)
        Gate.found += 1
        return text

    def planted(self, sought, name, text, task, *args):
        """Passes without the file, and finds what is sought with it."""
        self.passes(task, *args)
        path = ROOT / name
        before = path.read_text() if path.exists() else None
        plant(name, text)
        self.finds(sought, task, *args)
        path.unlink()
        if before is not None:
            plant(name, before)


class Lint(Gate):
    def test_format(self):
        self.planted("one.h:1:4: error: code should be clang-formatted", "include/one.h", "int  one (void) ;\n",
                     lint.lint_format)

    def test_scripts(self):
        self.planted("SC2086", "bench/rm.sh", "#!/bin/sh\nrm $1\n", lint.lint_scripts)
        self.planted("SyntaxError", "packaging/one.py", "def one(:\n", lint.lint_python)

    def test_sources(self):
        self.planted("clang-analyzer-core.NullDereference", "src/two.c", "int *one(int n);\nint two(int n) {\n"
                     "    int *p = n > 1 ? &n : 0;\n    return *p;\n}\n", lint.lint_sources)
        self.planted("bugprone-branch-clone", "src/two.c", "int two(int n) { return n > 1 ? 1 : 1; }\n"
                     "int three(int n) {\n    if (n)\n        return 1;\n    else\n        return 1;\n}\n",
                     lint.lint_sources)

    def test_text(self):
        self.planted("src/two.c: has no line SPDX", "src/two.c", "int two(void) { return 2; }\n", TESTS / "licence.py")
        for name in ("src/two.h", "bench/two.py", "packaging/two.sh", "tools/two.py"):
            self.planted(f"{name}:1: 124 columns, more than 120", name, f"/* {0:0118} */\n", TESTS / "columns.py")

    def test_prose(self):
        """Code, rows of tables and addresses may be wide; `./hak format` wraps the rest."""
        page, columns = "docs/programs/two.md", TESTS / "columns.py"
        item = "- so " + "`a b` 1. " * 13
        may_be_wide = f"```\n{item}\n```\n| {item} |\nhttps://{0:0120}\n"
        plant(page, may_be_wide)
        self.planted(f"{page}:6: 122 columns, more than 120", page, may_be_wide + item, columns)
        plant(page, may_be_wide + item)
        base.run(sys.executable, PROJECT / "docs/wrap.py", ROOT / page)
        self.passes(columns)
        self.assertEqual((ROOT / page).read_text(),
                         may_be_wide + "- so " + "`a b` 1. " * 11 + "`a b` 1.\n  `a b` 1.")
        (ROOT / page).unlink()

    def test_names(self):
        names = TESTS / "docs_names.py"
        self.planted("docs/costs.md: no_such_word is in no source", "docs/costs.md", "`no_such_word`\n", names)
        self.planted("docs/costs.md: two is not in one.c", "docs/costs.md", "`one` and `two` in `one.c`\n", names)
        self.planted("nothing is no harness", "docs/protocols.md", "**Harness:** nothing.\n", names)

    def test_floors_of_the_command(self):
        """Modules that go up, that go round, or that nobody has placed."""
        tree, check = SCRATCH / "command", PROJECT / "tests/cli_layers.py"

        def with_files(**files):
            shutil.rmtree(tree, ignore_errors=True)
            for name, text in {"main": "mod low;\nmod high;\n", "low": "", "high": "use crate::low::{self, One};\n",
                               "low/a": "use super::b::B;\n", "low/b": "use super::Low;\n", **files}.items():
                (tree / f"cli/src/{name}.rs").parent.mkdir(parents=True, exist_ok=True)
                (tree / f"cli/src/{name}.rs").write_text(text)
            (tree / "docs").mkdir(exist_ok=True)
            (tree / "docs/tour.md").write_text("| floor | modules of the command |\n|---|---|\n| 1 | `low` |\n"
                                               "| 2 | `high` |\n")
        with_files()
        self.passes(check, tree)
        with_files(low="fn one() -> crate::high::High {}\n")
        self.finds("cli/src: low of floor 1 uses high of floor 2", check, tree)
        with_files(new="")
        self.finds("cli/src: new is on no floor of docs/tour.md", check, tree)
        with_files(**{"low/b": "use crate::{high, low::a};\n"})
        self.finds("cli/src/low: a circle: a uses b, b uses a", check, tree)
        with_files(**{"low/b": "#[cfg(test)]\nmod tests {\n    use super::super::a;\n}\n"})
        self.passes(check, tree)

    def test_rust(self):
        self.planted("Diff in", "cli/src/lib.rs", "fn  one() {}\n", lint.lint_rust, "cli")
        with mock.patch.dict(os.environ, HAK_CLI_PROFILE="dev"):
            self.planted("clippy::ptr_arg", "cli/src/lib.rs", "pub fn one(v: &Vec<u8>) -> usize {\n    v.len()\n}\n",
                         build.in_cli, "check")

    def test_machines(self):
        """A source that asks for the machine, and a machine that nobody refuses."""
        tree = SCRATCH / "machines"
        for name in ("tests/machines.sh", "src/base/base.h"):
            (tree / name).parent.mkdir(parents=True)
            shutil.copy(PROJECT / name, tree / name)
        check = (base.run, tree / "tests/machines.sh", tree / "build", "sources")
        self.passes(*check)
        other = tree / "src/two.c"
        other.write_text("#ifdef __linux__\nint two;\n#endif\n")
        self.finds("src/two.c:1:#ifdef __linux__", *check)
        other.unlink()
        header = tree / "src/base/base.h"
        header.write_text(header.read_text().replace("#error", "#warning"))
        self.finds("i386 is not refused", *check)

    def test_a_machine_that_cannot_be_had(self):
        """It is left out in one line; what can be had runs, and must pass."""
        said = {"run": lambda *words: print(*words), "missing": lambda *_: ["one-gcc", "one-qemu"]}
        with mock.patch.multiple(stages, obtained=lambda _: False, **said):
            text = self.passes(stages.stage_machines)
        self.assertRegex(text, r"^left out: aarch64, for which .* cannot be installed: one-gcc one-qemu\n.* musl\n$")
        with mock.patch.multiple(stages, obtained=lambda _: True, **said):
            self.assertRegex(self.passes(stages.stage_machines), r"^[^\n]* sources musl aarch64-smoke\n$")

    def test_programs_that_the_system_cannot_run(self):
        """Only these are left out. A compiler that makes scripts stands in for one that makes aarch64's programs."""
        if packages.missing("aarch64"):
            self.skipTest("there are no such programs here")
        tree, tools = SCRATCH / "emulated", SCRATCH / "emulated/tools"
        (tree / "tests").mkdir(parents=True)
        tools.mkdir()
        shutil.copy(PROJECT / "tests/machines.sh", tree / "tests")
        smoke = (base.run, tree / "tests/machines.sh", tree / "build", "aarch64-smoke")
        with mock.patch.dict(os.environ, PATH=f"{tools}:{os.environ['PATH']}"):
            for status in 1, 0:
                compiler = tools / "aarch64-linux-gnu-gcc"
                compiler.write_text("#!/bin/sh\nwhile [ $# -gt 1 ]; do shift; done\n"
                                    f'printf "#!/bin/sh\\nexit {status}\\n" >"$1" && chmod +x "$1"\n')
                compiler.chmod(0o755)
                failed, text = self.said(*smoke)
                self.assertEqual(failed == 0, status == 1, text)
                self.assertIn("left out: aarch64, whose programs this system cannot run" if status else
                              "FAIL aarch64, the shortest tests", text)

    def test_bugs_for_proofs(self):
        """A bug that is to be planted where the sources have changed."""
        tree = SCRATCH / "proofs"
        (tree / "tests/prove").mkdir(parents=True)
        shutil.copy(PROJECT / "tests/prove/prove.py", tree / "tests/prove")
        (tree / "tests/prove/seeds.txt").write_text("one src/one.c\n- return 1;\n+ return 2;\n")
        (tree / "src").mkdir()
        (tree / "src/one.c").write_text("int one(void) { return 1; }\n")
        self.passes(tree / "tests/prove/prove.py", "--fits")
        (tree / "src/one.c").write_text("int one(void) { return 3; }\n")
        self.finds("src/one.c has this 0 times: return 1;", tree / "tests/prove/prove.py", "--fits")

    def test_walks(self):
        """What a reader follows: ten more functions on the way of a malloc that takes a slot."""
        tree = SCRATCH / "walks"
        for folder in ("src", "include"):
            shutil.copytree(PROJECT / folder, tree / folder)
        (tree / "tests").mkdir()
        for path in [*(PROJECT / "tests").glob("walks.*"), *(PROJECT / "tests").glob("grown.*")]:
            shutil.copy(path, tree / "tests")
        pool = next((tree / "src").rglob("pool.c"))
        more = "".join(f"static int more{n}(int n) {{ n++; return n; }}\n" for n in range(10))
        text = pool.read_text()
        head = text.index("\nsize_t pool_take(")
        body = text.index("{\n", head) + 1
        pool.write_text(more + text[:body] + "".join(f" more{n}(0);" for n in range(10)) + text[body:])
        self.finds("say why in tests/grown.txt", tree / "tests/walks.py")
        path = tree / "tests/walks.c"
        path.write_text(path.read_text().replace("(8 << 20)", "(1 << 20)"))
        self.finds("no free gets to purge_empty", tree / "tests/walks.py")


class Pages(Gate):
    def test_links_and_names(self):
        pages = TESTS / "pages.py"
        for link in ("one.md", "#one", "../README.md#one"):
            self.planted(f"links to {link}, which", "docs/tour.md", f"# A page\n\n[one]({link})\n", pages)
        self.planted("names src/no.c, which is not there", "docs/tour.md", "`src/no.c`\n", pages)
        self.planted("two is not in src/one.c", "docs/tour.md", "`two` in `src/one.c`\n", pages)
        self.planted("README.md: 200 lines, more than 150", "README.md", "line\n" * 200, pages)

    def test_blocks(self):
        """Whatever line of a block fails, whatever comes after it."""
        plant("build/release/libhakmem.so", "")
        self.planted("---- docs/tour.md:2", "docs/tour.md", "one\n```sh run\nfalse\ntrue\n```\n", stages.run_blocks)
        self.planted("---- docs/programs/one.md:1", "docs/programs/one.md", "```sh run\nfalse | true\ntrue\n```\n",
                     stages.run_blocks)
        self.assertIn("left out: no no-such-program here",
                      self.passes(stages.run_block, "README.md:1", ["no-such-program"], "false\n", SCRATCH))

    def test_generated(self):
        kept = (ROOT / "README.md").read_text()
        for file in stages.GENERATED:
            plant(file, "old\n")
        with mock.patch.object(stages, "doc", lambda: None):
            self.passes(stages.doc_is_new)
        with mock.patch.object(stages, "doc", lambda: plant(stages.GENERATED[-1], "new\n")):
            self.finds("> new", stages.doc_is_new)
        plant("README.md", kept)


class Tests(Gate):
    def test_ctest(self):
        for name in ("none", "some", "steady"):
            (ROOT / "build" / name).mkdir(parents=True, exist_ok=True)
        file = "build/some/CTestTestfile.cmake"
        self.finds("No tests were found", stages.ctest_in, "none")
        plant(file, "add_test(one true)\n")
        self.planted("1 tests failed out of 1", file, "add_test(one false)\n", stages.ctest_in, "some")
        self.planted("two (Not Run)", file, "add_test(one true)\nadd_test(two no-such-program)\n", stages.ctest_in,
                     "some")

        def steady():
            sys.exit(not long.steady_run("some", "usual"))
        self.planted("some on a usual machine: one Failed", file, "add_test(one false)\n", steady)

    def test_one_test_alone(self):
        """In a tree where nothing is configured yet, too: no other test is built."""
        built = []
        with mock.patch.multiple(stages, configure_in=lambda name, *_: plant(f"build/{name}/build.ninja",
                                                                             "build pool_test: phony\n"),
                                 build_tests=lambda _, target: built.append(target), ctest_in=lambda *_: None):
            stages.one_test("gcc", "pool_test")
        self.assertEqual(built, ["pool_test"])

    def test_fuzzers(self):
        plant("tests/fuzz/corpus/one/seed", "")
        fuzzer = "build/fuzz/tests/fuzz/fuzz_one"
        plant(fuzzer, '#!/bin/sh\necho "figure: one 1"\n')
        (ROOT / fuzzer).chmod(0o755)
        self.assertIn("figure: one 1", self.passes(fuzz.fuzz_target, "one", 1))
        with open(ROOT / fuzzer, "a", encoding="utf-8") as more:
            more.write("echo broken\nexit 77\n")
        self.assertIn("broken", self.finds(f"again: {fuzzer}", fuzz.fuzz_target, "one", 1))

    def test_coverage(self):
        words = (TESTS / "coverage.py", ROOT / "build/lines.info", ROOT / "src", 95)
        plant("build/lines.info", f"SF:{ROOT}/src/one.c\nDA:3,1\nDA:1,1\n")
        self.passes(*words)
        plant("build/lines.info", f"SF:{ROOT}/src/one.c\nDA:3,0\nDA:1,1\n")
        self.finds("not reached: 3", *words)

    def test_workloads(self):
        """A workload that no suite runs."""
        plant("bench/workloads/one.c", "")
        plant("bench/suites/tiny.toml", 'command = ["{bench}/one", "1"]\n')
        with mock.patch.object(stages, "TOOL", "true"):
            self.planted("bench/suites/tiny.toml lacks: two", "bench/workloads/two.c", "", stages.run_workloads)
        with mock.patch.object(stages, "TOOL", "false"):
            self.finds("", stages.run_workloads)
            self.finds("", stages.read_suite, ROOT / "bench/suites/tiny.toml")

    def test_demonstration(self):
        """A demonstration that lacks a line, or the drawing."""
        def shows(last, drawing):
            def demo(*_):
                print("  ━━━ hakmem  ─── system\nHAKMEM against the system allocator, 1 round:\n  CPU time 1")
                print(f"  average memory 1\n  ./hak compare --area -- PROGRAM ARGS…\n{last}")
                plant("build/service.svg", drawing)
            return mock.patch.object(stages, "run_demo", demo)
        explained = "  ./hak hakmem explain -- PROGRAM ARGS…"
        with shows(explained, "<svg>"):
            self.passes(stages.run_demonstration)
        with shows(explained, ""):
            self.finds("is not drawn", stages.run_demonstration)
        with shows("", "<svg>"):
            self.finds("not shown:   ./hak hakmem explain", stages.run_demonstration)

    def test_proofs(self):
        """A cbmc that always says the same: what cannot be proved, a bug that is not found, and what it did not look
        at."""
        prove, cbmc = PROJECT / "tests/prove/prove.py", SCRATCH / "cbmc"

        def says(text, status):
            cbmc.write_text(f"#!/bin/sh\necho '{text}'\nexit {status}\n")
            cbmc.chmod(0o755)
        says("** 0 of 3 failed", 0)
        self.finds("FAIL offers finds src/", prove, cbmc, "offers")
        says("[offers.assertion.1] line 1 x: FAILURE\nVERIFICATION FAILED", 10)
        self.finds("[offers.assertion.1] line 1 x: FAILURE", prove, cbmc, "offers")
        says("**** WARNING: no body for function strcspn\n** 0 of 3 failed", 0)
        self.finds("strcspn has no body", prove, cbmc, "offers")
        self.finds("no such proof: nothing", prove, cbmc, "nothing")


def stage_good():
    print("ok   one\nRan 2 tests in 0.1s")


def stage_partly():
    print("left out: one, of which there is none\nok   two")


def stage_bad():
    base.run("false")
    base.run("true")


def stage_steps():
    step = base.Steps()
    step("one", "false")
    step("two", lambda: None)
    step.end()


class Stages(Gate):
    def runs(self, *names, **changed):
        """Runs stages of this file, which need nothing."""
        known = {"missing": lambda *_: [], "build_library": lambda: None,
                 "STAGES": {name: globals()[f"stage_{name}"] for name in names}}
        with mock.patch.multiple(stages, **(known | changed)):
            return self.said(stages.run_tests)

    def test_a_stage_fails(self):
        """Whatever its last command says, and whatever the others do."""
        status, text = self.runs("good")
        self.assertEqual(status, 0, text)
        self.assertIn("\n4 passed, 0 failed\n", text)
        status, text = self.runs("good", "bad")
        self.assertNotEqual(status, 0)
        self.assertIn("FAIL bad ", text)
        status, text = self.runs("steps", "good")
        self.assertNotEqual(status, 0)
        self.assertIn("\n     FAIL one\n", text)
        self.assertIn("\n5 passed, 2 failed\n", text)

    def test_what_a_stage_left_out_is_said(self):
        status, text = self.runs("partly")
        self.assertEqual(status, 0, text)
        self.assertRegex(text, r"\nok   partly .*\n     left out: one, of which there is none\n")

    def test_what_can_be_left_out(self):
        """Only what could not be installed: its reason is said, and the caller goes on."""
        with mock.patch.multiple(packages, missing=lambda *_: ["one"], install=lambda *_: packages.die("no network")):
            self.assertEqual(self.said(lambda: sys.exit(packages.obtained("one"))), (0, "hak: no network\n"))
        with mock.patch.object(packages, "missing", lambda *_: []):
            self.assertNotEqual(self.said(lambda: sys.exit(packages.obtained("one")))[0], 0)

    def test_what_a_log_counts(self):
        log = "\n".join(["50% tests passed, 1 tests failed out of 2", "test result: ok. 3 passed; 1 failed; 0 ignored",
                         "Ran 4 tests in 0.1s", "FAILED (failures=1, errors=1)", "ok   one", "FAIL two"])
        self.assertEqual(stages.counts(log), (7, 5))

    def test_stages_run_while_another_program_holds_the_lock(self):
        ready, installed = SCRATCH / "good has run", SCRATCH / "installed"

        def installs(good, *_):
            packages.waits()
            ended = time.monotonic() + 600
            while not ready.exists() and time.monotonic() < ended:
                time.sleep(0.01)
            if not good or not ready.exists():
                sys.exit(1)
            installed.write_text("")

        def runs(good):
            ready.unlink(missing_ok=True)
            installed.unlink(missing_ok=True)
            return self.runs(STAGES={"bad": stage_good, "good": lambda: ready.write_text("")},
                             section_of={"bad": "late", "good": "early"}.get, need=lambda *_: installs(good),
                             missing=lambda *names: ["x"] if "late" in names and not installed.exists() else [])
        status, text = runs(True)
        self.assertEqual(status, 0, text)
        self.assertRegex(text, r"^ +\d+:\d\d   running: good\n")  # first, though it is the last by name
        status, text = runs(False)
        self.assertNotEqual(status, 0, text)
        self.assertIn("FAIL bad         left out: its packages cannot be installed", text)
        self.assertIn("ok   good ", text)

    def test_waiting_for_the_lock_is_said_and_named_as_the_cause(self):
        holders = ["apt (process 7)"] * 31 + [""]
        with mock.patch.object(packages, "lock_holder", lambda: holders.pop(0)):
            text = self.passes(packages.wait_for_lock, "gcc", lambda _: None)
        self.assertEqual(text, "waiting for dpkg's lock, which apt (process 7) holds: 0:00 …\n"
                               "waiting for dpkg's lock, which apt (process 7) holds: 0:30 …\n")
        with mock.patch.object(packages, "lock_holder", lambda: "apt (process 7)"):
            self.finds("cannot be installed: gcc: apt (process 7) has held dpkg's lock for 30 minutes",
                       packages.wait_for_lock, "gcc", lambda _: None)

    def test_who_holds_a_lock(self):
        lock = SCRATCH / "lock"
        self.assertEqual(packages.holder_of(SCRATCH / "no lock"), "")
        lock.write_text("")
        self.assertEqual(packages.holder_of(lock), "")
        hold = ("import fcntl, sys; file = open(sys.argv[1], 'w'); fcntl.lockf(file, fcntl.LOCK_EX); "
                "print(flush=True); sys.stdin.read()")
        command = [sys.executable, "-c", hold, lock]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
            holder.stdout.readline()
            self.assertRegex(packages.holder_of(lock), rf"^\S+ \(process {holder.pid}\)$")
            holder.stdin.close()
        self.assertEqual(packages.holder_of(lock), "")


class Needs(Gate):
    def test_sections(self):
        """Every section that the driver names, and every one that a section names, is there."""
        for name in packages.SECTIONS:
            self.assertTrue(list(packages.needs(name)), name)
        self.assertEqual(dict(packages.needs("text"))["shellcheck"], "shellcheck")
        self.assertLess(set(packages.needs("build")), set(packages.needs("test")))

    def test_presence(self):
        self.assertTrue(packages.present("sh") and packages.present("/bin/s*") and packages.present("g++ <vector>"))
        self.assertFalse(packages.present("no-such-program")
                         or packages.present("/no/*") or packages.present("g++ <no>"))


if __name__ == "__main__":
    unittest.main()
