#!/usr/bin/env python3
"""Changes the sources in small ways, one at a time, and sees whether a test fails: what no test notices, no test
guards.

usage: mutants.py [COUNT] [--seed N] [--only PATTERN] [--seconds N] [--jobs N] [--results FILE] [--again VERDICT]
[--report]

 1. A mutant is one change within a function of src/: a comparison, an operator, a number, a condition that is always
    true or always false, a statement that is left out. COUNT of them (200) are drawn by the seed, as many in each file.
 2. One that does not compile, or compiles to the same library, is none; another of that file is taken in its place.
    What `equivalent.txt` names changes nothing that a program could notice, and counts neither.
 3. Tests run, shortened, the cheapest first, until one fails: as many as take N seconds of CPU together (60). A test
    that uses ten times its CPU time, that waits with nothing left to wake it, or that takes 4 GiB, has failed. None of
    these depends on what else the machine does.
 4. Results are kept in FILE. A mutant that is there is not run again, except with --again VERDICT (survived, say), and
    then not with the tests that it has passed. For tests that are new take a new FILE.
"""
# SPDX-License-Identifier: MIT
import argparse
import collections
import concurrent.futures
import contextlib
import fnmatch
import hashlib
import json
import os
import pathlib
import random
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TREES = ROOT / "build" / "mutants"
EQUIVALENT = HERE / "equivalent.txt"
CORE_FOLDERS = ("src", "src/base", "src/entry", "src/machine", "src/region", "src/scarce",
                "src/space")  # without the wings
UNCHANGED = "src/tiny.c"  # compiled as it is, to see that what is replaced works
MOST_MEMORY_KIB = 4 << 20
IDLE_SAMPLES = 20

# ---- what can be changed ----

TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|^[ \t]*\#(?:[^\n\\]|\\\n|\\.)*|[A-Za-z_]\w*"""
    r"""|\d[\w.]*|<<=|>>=|->|\+\+|--|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|<<|>>|\S""", re.DOTALL | re.MULTILINE)
SWAPS = {"==": "!=", "!=": "==", "<": "<=", "<=": "<", ">": ">=", ">=": ">", "&&": "||", "||": "&&", "<<": ">>",
         ">>": "<<", "+=": "-=", "-=": "+=", "|=": "&=", "&=": "|=", "++": "--", "--": "++", "true": "false",
         "false": "true"}
BINARY = {"+": "-", "-": "+", "|": "&", "&": "|", "/": "*", "%": "/"}  # if an operand stands before them
NUMBER = re.compile(r"(0[xX][0-9a-fA-F]+|[1-9]\d*|0)([uUlL]*)$")
NO_STATEMENT = {"if", "else", "for", "while", "do", "switch", "case", "default", "return", "break", "continue", "goto",
                "static", "const", "struct", "enum", "union", "sizeof", "asm", "__asm__", "_Static_assert", "extern"}

Change = collections.namedtuple("Change", "file line start end text")  # of the file's text, [start, end) becomes text


def tokens_of(text):
    return [found for found in TOKEN.finditer(text) if not found[0].lstrip().startswith(("//", "/*", "#"))]


def functions(tokens):
    """The numbers of the first and the last token of each function's body."""
    depth = first = 0
    for number, token in enumerate(tokens):
        if token[0] == "{":
            if depth == 0:
                first = number
            depth += 1
        elif token[0] == "}":
            depth -= 1
            if depth == 0 and tokens[first - 1][0] == ")":
                yield first, number


def matching(tokens, number):
    """The token that closes the parenthesis at that number."""
    depth = 0
    for at in range(number, len(tokens)):
        depth += {"(": 1, ")": -1}.get(tokens[at][0], 0)
        if depth == 0:
            return at
    return None


def statement_end(tokens, number, last):
    """The semicolon of the statement that begins there, if it is an assignment or a call; else None."""
    if last - number < 2:
        return None
    first, second, third = (token[0] for token in tokens[number:number + 3])
    if not re.match(r"[A-Za-z_*(]", first) or first in NO_STATEMENT:
        return None
    if re.match(r"\w", second) or (first != "*" and second == "*" and re.match(r"[A-Za-z_]", third)):
        return None  # a declaration
    for at in range(number, last):
        if tokens[at][0] in "{}:?":
            return None
        if tokens[at][0] == ";":
            return at
    return None


def changes_of(name, text):
    tokens, found = tokens_of(text), []

    def change(first, last, new):
        start, end = tokens[first].start(), tokens[last].end()
        found.append(Change(name, text.count("\n", 0, start) + 1, start, end, new))

    for first, last in functions(tokens):
        for at in range(first + 1, last):
            token, before = tokens[at][0], tokens[at - 1][0]
            if token in SWAPS:
                change(at, at, SWAPS[token])
            elif token in BINARY and re.search(r"[\w)\]]$", before) and before not in ("return", "case"):
                change(at, at, BINARY[token])
            elif number := NUMBER.match(token):
                value = int(number[1], 0)
                change(at, at, f"{value + 1}{number[2]}")
                if value:
                    change(at, at, f"{value - 1}{number[2]}")
            elif token in ("if", "while") and tokens[at + 1][0] == "(" and (close := matching(tokens, at + 1)):
                condition = text[tokens[at + 1].start():tokens[close].end()]
                change(at + 1, close, f"(0 && {condition})")
                if token == "if":
                    change(at + 1, close, f"(1 || {condition})")
            elif before in ";{}" and (end := statement_end(tokens, at, last)):
                change(at, end, ";")
    return [each for each in found if "\n" not in text[each.start:each.end]]


def mutated(text, change):
    return text[:change.start] + change.text + text[change.end:]


def lines_of(text, change):
    """The line as it is and as it becomes."""
    begin, end = text.rfind("\n", 0, change.start) + 1, text.find("\n", change.end)
    return text[begin:end].strip(), (text[begin:change.start] + change.text + text[change.end:end]).strip()


def key_of(text, change):
    return f"{change.file}:{change.line}: {' => '.join(lines_of(text, change))} @{change.start}"


def is_wanted(name, only):
    return is_core(name) if only == "core" else not only or fnmatch.fnmatch(name, only)


def is_core(name):
    return os.path.dirname(name) in CORE_FOLDERS


def drawn(seed, only, sources):
    """All changes, in the order in which they are tried: lists of one file's each, of which one is taken at a time."""
    files = sorted(name for name in sources if is_wanted(name, only))
    random.Random(seed).shuffle(files)
    lists = {}
    for name in files:
        changes = changes_of(name, sources[name])
        random.Random(f"{seed} {name}").shuffle(changes)
        if changes:
            lists[name] = changes
    return lists


def equivalents():
    """(file, line as it is, line as it becomes): reason. In the file a block of four lines each."""
    texts = re.split(r"\n{2,}", EQUIVALENT.read_text())
    blocks = [text.strip().split("\n") for text in texts if not text.startswith("#")]
    for block in blocks:
        if len(block) != 4:
            sys.exit(f"{EQUIVALENT.name}: no four lines: {block[0]}")
    return {tuple(block[:3]): block[3] for block in blocks}


# ---- the build, and what of it a mutant changes ----

Test = collections.namedtuple("Test", "name command environment labels passes fails inverted")


def printed(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


class Build:
    """The tests with nothing changed, and how each file in it is made."""

    def __init__(self, folder):
        self.folder = folder
        self.source = ROOT
        self.links, self.lock = {}, threading.Lock()

    def make(self):
        log = TREES / "build.log"
        environment = {name: value for name, value in os.environ.items() if not name.endswith("_LAUNCHER")}
        with open(log, "w", encoding="utf-8") as out:
            for command in (["cmake", "--preset", "release", "-S", ROOT, "-B", self.folder, "-DCMAKE_C_COMPILER=gcc",
                             "-DCMAKE_CXX_COMPILER=g++", "-DHAKMEM_TESTS=ON", "-DHAKMEM_RACES=OFF",
                             "-DHAKMEM_WERROR=OFF"],
                            ["ninja", "-C", self.folder, "hakmem", "tests/all"]):
                if subprocess.run(command, cwd=ROOT, stdout=out, stderr=out, env=environment, check=False).returncode:
                    sys.exit(f"mutants: {command[0]} failed; see {log}")

    def read(self):
        cache = (self.folder / "CMakeCache.txt").read_text()
        self.source = pathlib.Path(re.search(r"CMAKE_HOME_DIRECTORY:INTERNAL=(.*)", cache)[1])
        self.library = next(path for path in self.folder.glob("libhakmem.so.*.*") if not path.is_symlink())
        lines = printed("ninja", "-C", self.folder, "-t", "commands", "hakmem", "tests/all").splitlines()
        self.compiles = {found[1]: line for line in lines if (found := re.search(r" -o (\S+\.o) -c ", line))}
        self.links |= {found[1]: line for line in lines if (found := re.search(r" -o (\S+)(?<!\.o) ", line))}
        self.users = collections.defaultdict(set)
        for block in printed("ninja", "-C", self.folder, "-t", "deps").split("\n\n"):
            name, *files = block.splitlines() or [""]
            for file in files:
                if file.strip().startswith(str(self.source / "src")):
                    self.users[str(pathlib.Path(file.strip()).relative_to(self.source))].add(name.split(":")[0])

    def tests(self):
        text = printed("ctest", "--test-dir", self.folder, "--show-only=json-v1")
        for test in json.loads(text)["tests"]:
            properties = {each["name"]: each["value"] for each in test.get("properties", [])}
            environment = dict(each.split("=", 1) for each in properties.get("ENVIRONMENT", []))
            yield Test(test["name"], test.get("command"), environment, properties.get("LABELS", []),
                       properties.get("PASS_REGULAR_EXPRESSION", []),
                       properties.get("FAIL_REGULAR_EXPRESSION", []), properties.get("WILL_FAIL", False))


class Mutant:
    """What is made anew of one, in a folder of its own. Each file there is seen in place of the build's."""

    def __init__(self, build, folder, file, text):
        self.build, self.folder, self.file = build, folder, file
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(build.source / "src", folder / "src")  # a header is searched for beside the file that names it
        (folder / file).write_text(text)
        self.objects = {}  # as the build calls them: where they are

    def run(self, command):
        return subprocess.run(["sh", "-c", command], cwd=self.build.folder, stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0

    def object(self, name):
        """Compiles the object with the change; false if that fails."""
        made = self.folder / name.replace("/", "-")
        command = self.build.compiles[name].replace(f" -o {name} ", f" -o {made} ")
        command = command.replace(f"{self.build.source}/src", f"{self.folder}/src")
        command = re.sub(r"^ccache | -Werror\b", "", command)
        command = re.sub(r"-M[DTF]+(?: \S+\.[od])?\b", "", command)
        self.objects[name] = made
        return self.run(command)

    def compile(self):
        """Makes the library; says whether it is "no code" or the "same code", or None."""
        names = [name for name in self.build.users[self.file] if name.startswith("CMakeFiles/")]
        if not all(self.object(name) for name in names):
            return "no code"
        if all(made.read_bytes() == (self.build.folder / name).read_bytes() for name, made in self.objects.items()):
            return "same code"
        return None if self.link(str(self.build.library.relative_to(self.build.folder))) else "no code"

    def link(self, name):
        """Links a file of the build with what is new, before the archive that has it as it was."""
        command, made = self.build.links[name], self.folder / name.replace("/", "-")
        for old, new in self.objects.items():
            command = command.replace(f" {old} ", f" {new} ")
        for archive, of in (("tests/libhakmem_plain.a", "hakmem_objects"), ("libhakmem.a", "hakmem_program_objects")):
            if f" {archive} " in command:
                members = printed("ar", "t", self.build.folder / archive).split()
                mine = {os.path.basename(old): new for old,
                        new in sorted(self.objects.items(), key=lambda each: of in each[0])
                        if os.path.basename(old) in members and old.startswith("CMakeFiles/")}
                command = command.replace(f" {archive} ", " " + " ".join(map(str, mine.values())) + f" {archive} ")
        command = command.replace(f" -o {name} ", f" -o {made} ")
        return self.run(command.split(" && /usr/bin/cmake -E cmake_symlink")[0])

    def places(self, test):
        """What the test is to see in place of the build's files; None if that cannot be made."""
        found = {self.build.library: self.folder / self.build.library.name}
        name = os.path.relpath(test.command[0], self.build.folder)
        if name in self.build.links:
            own = [user for user in self.build.users[self.file] if f" {user} " in self.build.links[name]]
            is_ours = any(f" {archive} " in self.build.links[name] for archive in ("tests/libhakmem_plain.a",
                                                                                   "libhakmem.a"))
            if own or is_ours:
                if not all(user in self.objects or self.object(user) for user in own) or not self.link(name):
                    return None
                found[pathlib.Path(test.command[0])] = self.folder / name.replace("/", "-")
        return found


# ---- a test ----

def group_of(process):
    """What the process and its children do: seconds of CPU so far, KiB resident, and whether a thread wants to run."""
    ticks = pages = 0
    runs = False
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, IndexError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[3]) == process.pid:  # its session
                ticks += sum(map(int, fields[11:15]))
                pages += int(fields[21])
                for task in (stat.parent / "task").glob("*/stat"):
                    runs |= task.read_text().rpartition(")")[2].split()[0] in "RD"
    return ticks / os.sysconf("SC_CLK_TCK"), pages * (os.sysconf("SC_PAGE_SIZE") >> 10), runs


def problem_of(process, seconds):
    """Waits for the process; returns None, or why it was not waited for any longer."""
    idle, last = 0, -1.0
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.5)
            return None
        used, kib, runs = group_of(process)
        idle = 0 if runs or used != last else idle + 1
        last = used
        if used > seconds:
            return "takes too long"
        if kib > MOST_MEMORY_KIB:
            return "takes too much memory"
        if idle > IDLE_SAMPLES:
            return "hangs"


def run_test(build, test, seconds, places, output):
    """Returns what is wrong, or None; and the CPU time. `places` says what the test sees instead of which file."""
    def prepare():
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        pathlib.Path("/proc/self/oom_score_adj").write_text("1000")

    binds = "".join(f"mount --bind {shlex.quote(str(new))} {shlex.quote(str(old))} && " for old, new in places.items())
    began, environment = output.with_suffix(".began"), {**os.environ, "HAK_TEST_SHORTER": "20", **test.environment}
    began.unlink(missing_ok=True)
    preload = environment.pop("LD_PRELOAD", "")
    shell = ["unshare", "-m" if os.geteuid() == 0 else "-rm", "sh", "-c",
             f': >{shlex.quote(str(began))} && exec env LD_PRELOAD={shlex.quote(preload)} "$@"', "sh"]
    shell[4] = binds + shell[4]
    with open(output, "wb") as out:
        process = subprocess.Popen([*shell, *test.command], cwd=build.folder / "tests", stdin=subprocess.DEVNULL,
                                   stdout=out,
                                   stderr=out, start_new_session=True, env=environment, preexec_fn=prepare)
    problem = problem_of(process, seconds)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    text = output.read_text(errors="replace")
    if not began.exists():
        raise RuntimeError(f"{test.name} was not run: {text}")
    if not problem:
        failed = process.returncode != 0
        if test.passes:
            failed = not any(re.search(pattern, text, re.MULTILINE) for pattern in test.passes)
        failed |= any(re.search(pattern, text) for pattern in test.fails)
        problem = "fails" if failed != test.inverted else None
    return problem


# ---- the run ----

class Run:
    def __init__(self, arguments):
        self.arguments = arguments
        paths = sorted((ROOT / "src").rglob("*.[ch]"))
        self.sources = {str(path.relative_to(ROOT)): path.read_text() for path in paths}
        self.lists = drawn(arguments.seed, arguments.only, self.sources)
        self.equivalent = equivalents()
        self.results = self.known()
        self.lock = threading.Lock()
        self.build = Build((arguments.build or TREES / "build").resolve())
        self.tests = []

    def key(self, change):
        return key_of(self.sources[change.file], change)

    def known(self):
        """What FILE says about the mutants of the sources as they are, by today's list of equivalent ones."""
        results = json.loads(self.arguments.results.read_text()) if self.arguments.results.exists() else {}
        keys = {key_of(text, change) for name, text in self.sources.items() for change in changes_of(name, text)}
        results = {key: result for key, result in results.items() if key in keys}
        for file, before, after in self.equivalent:
            if not any(key.startswith(f"{file}:") and f": {before} => {after} @" in key for key in keys):
                print(f"{EQUIVALENT.name}: no longer in the sources: {file}: {before}", flush=True)
        for result in results.values():
            if result["verdict"] in ("survived", "equivalent"):
                result["verdict"] = self.verdict_of_survivor(result["file"], result["before"], result["after"])
        return results

    def verdict_of_survivor(self, *change):
        return "equivalent" if change in self.equivalent else "survived"

    def write(self):
        self.arguments.results.parent.mkdir(parents=True, exist_ok=True)
        beside = self.arguments.results.with_suffix(".new")
        beside.write_text(json.dumps(self.results, indent=1, sort_keys=True) + "\n")
        beside.replace(self.arguments.results)

    def keep(self, change, verdict, test="", passed=()):
        before, after = lines_of(self.sources[change.file], change)
        if verdict == "survived":
            verdict = self.verdict_of_survivor(change.file, before, after)
        with self.lock:
            self.results[self.key(change)] = {"file": change.file, "line": change.line, "before": before,
                                              "after": after, "verdict": verdict, "test": test, "passed": passed}
            self.write()
        if verdict in ("killed", "survived", "equivalent"):
            print(f"{verdict:<10} {change.file}:{change.line}: {before} => {after}  {test}", flush=True)
        return verdict

    def measure(self):
        """Chooses the tests, by the CPU time that each takes with nothing changed, which is kept in a file."""
        file, most = TREES / "measured.json", self.arguments.seconds
        known = json.loads(file.read_text()) if file.exists() else {}
        tests = {test.name: test for test in self.build.tests() if test.command and "soak" not in test.labels}
        unchanged = Mutant(self.build, TREES / "unchanged", UNCHANGED, self.sources[UNCHANGED])
        if unchanged.compile() != "same code" or not unchanged.link(self.build.library.name):
            sys.exit("mutants: with nothing changed the library is not the same")
        for name in [name for name in tests if name not in known]:
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            problem = run_test(self.build, tests[name], most, unchanged.places(tests[name]), TREES / "output")
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            known[name] = round(used, 2) if not problem else None  # what fails with nothing changed, or takes too long
            file.write_text(json.dumps(known, indent=1) + "\n")
        together = 0.0
        for name in sorted((name for name in tests if known[name] is not None), key=lambda name: known[name]):
            together += known[name]
            if together <= most:
                self.tests.append((tests[name], max(10, 10 * known[name])))
        print(f"{len(self.tests)} of {len(tests)} tests, which take {most} s of CPU together", flush=True)

    def judge(self, change):
        """Runs one mutant; returns its verdict."""
        folder = TREES / f"work-{threading.get_ident()}"
        mutant = Mutant(self.build, folder, change.file, mutated(self.sources[change.file], change))
        verdict = mutant.compile()
        if verdict:
            return self.keep(change, verdict)
        passed = list(self.results.get(self.key(change), {}).get("passed", []))
        for test, seconds in self.tests:
            if test.name in passed:
                continue
            places = mutant.places(test)
            if places is None:
                return self.keep(change, "no code")
            if run_test(self.build, test, seconds, places, folder / "output"):
                return self.keep(change, "killed", test.name)
            passed.append(test.name)
        return self.keep(change, "survived", passed=passed)

    def next_of(self, name):
        """The next change of the file that is to be run, or a verdict that is there; None if there is none left."""
        while self.lists.get(name):
            change = self.lists[name].pop()
            verdict = self.results.get(self.key(change), {}).get("verdict")
            if verdict in ("killed", "survived", "equivalent") and verdict != self.arguments.again:
                return verdict
            if verdict not in ("no code", "same code"):
                return change
        return None

    def take(self, name):
        """One mutant of the file, whatever it takes to find one."""
        while (change := self.next_of(name)) is not None:
            if isinstance(change, str) or self.judge(change) in ("killed", "survived", "equivalent"):
                return

    def run(self):
        TREES.mkdir(parents=True, exist_ok=True)
        if not self.arguments.build:
            self.build.make()
        self.build.read()
        self.measure()
        rounds = [name for _ in range(self.arguments.count) for name in self.lists][:self.arguments.count]
        with concurrent.futures.ThreadPoolExecutor(self.arguments.jobs) as pool:
            list(pool.map(self.take, rounds))


def report(results):
    """The score by folder and file, and the figures."""
    rows = collections.defaultdict(collections.Counter)
    for result in results.values():
        for name in (result["file"], "all", *(["core"] if is_core(result["file"]) else [])):
            rows[name][result["verdict"]] += 1
    for name, row in sorted(rows.items()):
        count = row["killed"] + row["survived"]
        if count:
            print(f"{name:<36} {row['killed']:>4} of {count:>4} killed, {100 * row['killed'] / count:5.1f} %"
                  f"{', %d equivalent' % row['equivalent'] if row['equivalent'] else ''}")
    for kind, name in (("", "all"), ("_core", "core")):
        for verdict in ("killed", "survived", "equivalent"):
            print(f"figure: mutants{kind}_{verdict} {rows[name][verdict]}")


def main():
    parser = argparse.ArgumentParser(description="Changes the sources one at a time and sees whether a test fails.")
    parser.add_argument("count", nargs="?", type=int, default=200)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--only", help="of the files' names, such as src/tiny.c or 'src/base/*'; or: core")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--build", type=pathlib.Path, help="a build that is there already")
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "build" / "results" / "mutants.json")
    parser.add_argument("--again")
    parser.add_argument("--report", action="store_true", help="only the score of what was run")
    arguments = parser.parse_args()
    run = Run(arguments)
    if not arguments.report:
        run.run()
    run.write()
    report(run.results)


if __name__ == "__main__":
    main()
