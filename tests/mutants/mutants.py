#!/usr/bin/env python3
"""Changes the sources in small ways, one at a time, and sees whether a test fails: what none notices, none guards.

usage: mutants.py [COUNT] [--seed N] [--only PATTERN] [--seconds N] [--tests REGEX] [--jobs N] [--results FILE]
                  [--again VERDICT] [--report]

 1. A mutant is one change within a function of src/: a comparison, an operator, a number, a condition that is always
    true or always false, a statement that is left out. COUNT of them (200) are drawn by the seed, as many in each file.
 2. One that does not compile, or compiles to the same library, is none; another of that file is taken in its place.
    What `equivalent.txt` names changes nothing that a program could notice, and counts neither.
 3. A second build says which lines each test reaches, case by case of a GoogleTest program. Of a header's mutant only
    those objects are compiled that have code of the function.
 4. The tests that reach the line run, shortened, the cheapest first, until one fails: as many as take N seconds of CPU
    together (60). What no test reaches has survived. A test that uses ten times its CPU time, that waits with nothing
    left to wake it, or that takes 4 GiB, has failed. None of these depends on what else the machine does.
 5. Results are kept in FILE. A mutant that is there is not run again, except with --again VERDICT (survived, say), and
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

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from coverage import ranges  # noqa: E402  of tests/, not of PyPI

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TREES = ROOT / "build" / "mutants"
EQUIVALENT = HERE / "equivalent.txt"
# Without the wings.
CORE_FOLDERS = ("src", "src/base", "src/entry", "src/machine", "src/region", "src/scarce", "src/space")
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

# Of the file's text, [start, end) becomes text; the function has these lines.
Change = collections.namedtuple("Change", "file line start end text function")


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

    def line_at(offset):
        return text.count("\n", 0, offset) + 1

    def change(first, last, new):
        start, end = tokens[first].start(), tokens[last].end()
        found.append(Change(name, line_at(start), start, end, new, lines))

    for first, last in functions(tokens):
        lines = range(line_at(tokens[first].start()), line_at(tokens[last].start()) + 1)
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
LINE_OF_CODE = re.compile(r"^(\S+\.[ch]) +(\d+) ", re.MULTILINE)  # readelf's
WITH_TESTS = ["-DHAKMEM_TESTS=ON", "-DHAKMEM_RACES=OFF", "-DHAKMEM_WERROR=OFF"]


def printed(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


class Build:
    """The tests with nothing changed, and how each file in it is made."""

    def __init__(self, folder):
        self.folder = folder
        self.source = ROOT
        self.links, self.lock = {}, threading.Lock()

    def make(self, *options):
        log = TREES / "build.log"
        with open(log, "w", encoding="utf-8") as out:
            for command in (["cmake", "--preset", "release", "-S", ROOT, "-B", self.folder, *WITH_TESTS, *options],
                            ["ninja", "-C", self.folder, "hakmem", "tests/all"]):
                if subprocess.run(command, cwd=ROOT, stdout=out, stderr=out, check=False).returncode:
                    sys.exit(f"mutants: {command[0]} failed; see {log}")

    def read(self):
        cache = (self.folder / "CMakeCache.txt").read_text()
        self.source = pathlib.Path(re.search(r"CMAKE_HOME_DIRECTORY:INTERNAL=(.*)", cache)[1])
        self.library = next(path for path in self.folder.glob("libhakmem.so.*.*") if not path.is_symlink())
        self.lines = {}  # of an object: the lines of the sources that it has code of
        lines = printed("ninja", "-C", self.folder, "-t", "commands", "hakmem", "tests/all").splitlines()
        self.compiles = {found[1]: line for line in lines if (found := re.search(r" -o (\S+\.o) -c ", line))}
        self.links |= {found[1]: line for line in lines if (found := re.search(r" -o (\S+)(?<!\.o) ", line))}
        self.users = collections.defaultdict(set)
        for block in printed("ninja", "-C", self.folder, "-t", "deps").split("\n\n"):
            name, *files = block.splitlines() or [""]
            for file in files:
                # ccache writes relative ones.
                path = os.path.relpath(os.path.normpath(self.folder / file.strip()), self.source)
                if path.startswith("src/"):
                    self.users[path].add(name.split(":")[0])

    def lines_in(self, name):
        """(file, line) of all code in the object, as it is without optimisation."""
        if name not in self.lines:
            made = TREES / f"lines-{threading.get_ident()}.o"
            command = re.sub(r"-M[DTF]+(?: \S+\.[od])?\b", "", self.compiles[name])
            command = command.replace(f" -o {name} ", f" -o {made} ")
            subprocess.run(["sh", "-c", f"{command} -O0 -g1 -w"], cwd=self.folder, check=True)
            table = printed("readelf", "--debug-dump=decodedline", "-W", made)
            self.lines[name] = {(found[1], int(found[2])) for found in LINE_OF_CODE.finditer(table)}
        return self.lines[name]

    def objects_of(self, file, lines):
        """The library's objects that have code of these lines."""
        names = [name for name in self.users[file] if name.startswith("CMakeFiles/")]
        return [name for name in names if self.has_code(name, file, lines)]

    def has_code(self, name, file, lines):
        """Whether the object may have code of one of the lines."""
        if not file.endswith(".h") or not re.search(r"\.c\.o$", name):
            return True
        return any((os.path.basename(file), line) in self.lines_in(name) for line in lines)

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

    def __init__(self, build, folder, file, text, lines):
        self.build, self.folder, self.file, self.lines = build, folder, file, lines
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
        names = self.build.objects_of(self.file, self.lines)
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
                in_order = sorted(self.objects.items(), key=lambda each: of in each[0])
                mine = {os.path.basename(old): new for old, new in in_order
                        if os.path.basename(old) in members and old.startswith("CMakeFiles/")}
                command = command.replace(f" {archive} ", " " + " ".join(map(str, mine.values())) + f" {archive} ")
        command = command.replace(f" -o {name} ", f" -o {made} ")
        return self.run(command.split(" && /usr/bin/cmake -E cmake_symlink")[0])

    def places(self, test):
        """What the test is to see in place of the build's files; None if that cannot be made."""
        found = {self.build.library: self.folder / self.build.library.name}
        name = os.path.relpath(test.command[0], self.build.folder)
        if name in self.build.links:
            own = [user for user in self.build.users[self.file]
                   if f" {user} " in self.build.links[name] and self.build.has_code(user, self.file, self.lines)]
            archives = ("tests/libhakmem_plain.a", "libhakmem.a")
            is_ours = any(f" {archive} " in self.build.links[name] for archive in archives)
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


def run_test(build, test, seconds, places, output, more=(), environment=()):
    """Returns what is wrong, or None. `places` says what the test sees instead of which file."""
    def prepare():
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        pathlib.Path("/proc/self/oom_score_adj").write_text("1000")

    binds = "".join(f"mount --bind {shlex.quote(str(new))} {shlex.quote(str(old))} && " for old, new in places.items())
    began = output.with_suffix(".began")
    environment = {**os.environ, "HAK_TEST_SHORTER": "20", **test.environment, **dict(environment)}
    began.unlink(missing_ok=True)
    preload = environment.pop("LD_PRELOAD", "")
    shell = ["unshare", "-m" if os.geteuid() == 0 else "-rm", "sh", "-c",
             f': >{shlex.quote(str(began))} && exec env LD_PRELOAD={shlex.quote(preload)} "$@"', "sh"]
    shell[4] = binds + shell[4]
    with open(output, "wb") as out:
        process = subprocess.Popen([*shell, *test.command, *more], cwd=build.folder / "tests",
                                   stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
                                   env=environment, preexec_fn=prepare)
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


# ---- what each test reaches ----

INSTRUMENTED = ("-O1 -fprofile-instr-generate -fcoverage-mapping -mllvm -runtime-counter-relocation"
                " -Wno-unused-command-line-argument")
MOST_ITEMS = 12  # of a test: what each reaches takes a run
Item = collections.namedtuple("Item", "test case cpu seconds")  # a case of a test, or with "" the whole of one


def numbers_of(text):
    for part in text.split():
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


class Reach:
    """The lines that each item reaches, counted by clang in a build of their own and kept in a file."""

    def __init__(self, folder):
        self.build = Build(folder)
        self.file = TREES / "reach.json"
        self.known = json.loads(self.file.read_text()) if self.file.exists() else {}
        self.items = []
        self.of_line = collections.defaultdict(set)  # (file, line): numbers of items
        self.code = collections.defaultdict(list)  # of a file: the lines that a test can reach

    def cases_of(self, test):
        """The cases of a GoogleTest program that is run as it is, some together where there are many; or [""]."""
        if len(test.command) > 1 or b"gtest_list_tests" not in pathlib.Path(test.command[0]).read_bytes():
            return [""]
        environment = {**os.environ, **test.environment, "LLVM_PROFILE_FILE": os.devnull}
        found, suite = [], ""
        for line in subprocess.run([test.command[0], "--gtest_list_tests"], capture_output=True, text=True, check=True,
                                   env=environment).stdout.splitlines():
            name = line.split("#")[0].rstrip()
            if name.startswith("  "):
                found.append(suite + name.strip())
            elif name.endswith("."):
                suite = name
        found = [case for case in found if "DISABLED_" not in case]
        some = -(-len(found) // MOST_ITEMS)
        return [":".join(found[at:at + some]) for at in range(0, len(found), some)]

    def measure(self, tests, most):
        for test in tests:
            program = pathlib.Path(test.command[0]).read_bytes()
            digest = hashlib.sha1(program + self.build.library.read_bytes()).hexdigest()
            for case in self.cases_of(test):
                name = name_of(test, case)
                if self.known.get(name, {}).get("digest") != digest:
                    self.known[name] = {"digest": digest, **self.measured(test, case, most)}
                    self.file.write_text(json.dumps(self.known) + "\n")
                yield name, test, case

    def measured(self, test, case, most):
        profiles = TREES / "profiles"
        shutil.rmtree(profiles, ignore_errors=True)
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        problem = run_test(self.build, test, most, {}, TREES / "output", [f"--gtest_filter={case}"] if case else [],
                           {"LLVM_PROFILE_FILE": str(profiles / "%c%p-%m.profraw")})
        after, seconds = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - began
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return {"cpu": round(cpu, 2), "seconds": round(seconds, 2), "problem": problem,
                "lines": self.lines(test, profiles)}

    def lines(self, test, profiles):
        """{file: lines that were reached}; those that were not have a minus."""
        names = sorted(map(str, profiles.glob("*.profraw"))) if profiles.exists() else []
        counted = {}
        if names:
            (TREES / "profiles.txt").write_text("\n".join(names))
            subprocess.run([clang_tool("llvm-profdata"), "merge", "-sparse", "-failure-mode=all",
                            f"--input-files={TREES / 'profiles.txt'}", "-o", TREES / "all.profdata"],
                           check=False, capture_output=True)
            for program in {str(self.build.library), os.path.realpath(test.command[0])}:
                text = subprocess.run([clang_tool("llvm-cov"), "export", "-format=lcov", "-instr-profile",
                                       TREES / "all.profdata", program, ROOT / "src"],
                                      capture_output=True, text=True, check=False).stdout
                file = ""
                for line in text.splitlines():
                    if line.startswith("SF:"):
                        file = os.path.relpath(ROOT / line[3:], ROOT)
                    elif line.startswith("DA:"):
                        number, count = line[3:].split(",")[:2]
                        lines = counted.setdefault(file, {})
                        lines[int(number)] = lines.get(int(number), False) or count != "0"
        def which(lines, wanted):
            return ranges(sorted(number for number, is_reached in lines.items() if is_reached == wanted))

        return {file: [which(lines, True), which(lines, False)]
                for file, lines in counted.items() if file.startswith("src/")}

    def take(self, name, test, case):
        known = self.known[name]
        for file, (reached, others) in known["lines"].items():
            for line in numbers_of(reached):
                self.of_line[file, line].add(len(self.items))
            self.code[file] = sorted({*self.code[file], *numbers_of(reached), *numbers_of(others)})
        self.items.append(Item(test, case, known["cpu"], known["seconds"]))

    def items_of(self, change):
        """Those that reach the line; if it is none of code, the one before it in the function."""
        lines = [line for line in self.code[change.file] if line <= change.line and line in change.function]
        found = self.of_line[change.file, lines[-1]] if lines else set()
        return sorted((self.items[number] for number in found), key=lambda item: item.seconds)


def clang_tool(name):
    return printed("clang", f"--print-prog-name={name}").strip()


# ---- the run ----

LONG = 3  # seconds: a case that takes so long is run by itself, after the others


def name_of(test, case):
    first, *others = case.split(":")
    return test.name + f"/{first}" * (case != "") + f"+{len(others)}" * (others != [])


def filter_of(items):
    cases = [item.case for item in items if item.case]
    return [f"--gtest_filter={':'.join(cases)}", "--gtest_fail_fast"] if cases else []


class Run:
    def __init__(self, arguments):
        self.arguments = arguments
        paths = sorted((ROOT / "src").rglob("*.[ch]"))
        self.sources = {str(path.relative_to(ROOT)): path.read_text() for path in paths}
        self.lists = drawn(arguments.seed, arguments.only, self.sources)
        self.equivalent = equivalents()
        self.results = self.known()
        self.lock = threading.Lock()
        self.build = Build(TREES / "build")
        self.reach = Reach(TREES / "reach")
        self.sound = {}

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
        """Finds which lines each test reaches; tests that fail with nothing changed, or take too long, are left out."""
        unchanged = self.unchanged()
        is_same = self.build.users[UNCHANGED] and unchanged.compile() == "same code"
        if not is_same or not unchanged.link(self.build.library.name):
            sys.exit("mutants: with nothing changed the library is not the same")
        tests = {test.name: test for test in self.build.tests() if test.command and "soak" not in test.labels}
        others = [test for test in self.reach.build.tests()
                  if test.name in tests and re.search(self.arguments.tests, test.name)]
        for name, test, case in self.reach.measure(others, self.arguments.seconds):
            if self.reach.known[name]["problem"] is None or "golden" in test.labels:
                self.reach.take(name, tests[test.name], case)
        print(f"{len(self.reach.items)} cases of {len(others)} tests, which reach {len(self.reach.of_line)} lines",
              flush=True)

    def unchanged(self):
        return Mutant(self.build, TREES / "unchanged", UNCHANGED, self.sources[UNCHANGED], range(0))

    def is_sound(self, test, cases):
        """Whether these cases pass with nothing changed, which is tried once for each test."""
        if test.name not in self.sound:
            limit = 60 + 10 * sum(item.cpu for item in cases)
            self.sound[test.name] = run_test(self.build, test, limit, {}, TREES / "output", filter_of(cases)) is None
            print("" if self.sound[test.name] else f"fails with nothing changed: {test.name}\n", end="", flush=True)
        return self.sound[test.name]

    def judge(self, change):
        """Runs one mutant; returns its verdict."""
        key = self.key(change)
        passed = list(self.results.get(key, {}).get("passed", []))
        items = [item for item in self.reach.items_of(change) if name_of(item.test, item.case) not in passed]
        if not items and passed:
            return self.keep(change, "survived", passed=passed)  # nothing new
        folder = TREES / f"work-{threading.get_ident()}"
        mutant = Mutant(self.build, folder, change.file, mutated(self.sources[change.file], change), change.function)
        verdict = mutant.compile()
        if verdict:
            return self.keep(change, verdict)
        for test, cases in self.groups(items):
            places = mutant.places(test)
            if places is None:
                return self.keep(change, "no code")
            limit = max(10, 10 * sum(item.cpu for item in cases))
            problem = run_test(self.build, test, limit, places, folder / "output", filter_of(cases))
            if problem and self.is_sound(test, cases):
                text = (folder / "output").read_text(errors="replace")
                found = re.search(r"^\[  FAILED  \] (\S+\.\S+?),? ", text, re.MULTILINE)
                return self.keep(change, "killed", test.name + (f"/{found[1]}" if found else ""))
            passed += [name_of(item.test, item.case) for item in cases]
        return self.keep(change, "survived", passed=passed)

    def groups(self, items):
        """(test, its cases) of what fits into the time, the shortest first: one process for all cases of a test."""
        groups, cpu = collections.defaultdict(list), 0.0
        for item in items:
            cpu += item.cpu
            if cpu > self.arguments.seconds:
                break
            groups[item.test.name, item.seconds > LONG].append(item)
        order = sorted(groups.values(), key=lambda cases: sum(item.seconds for item in cases))
        return [(cases[0].test, cases) for cases in order]

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
        gcc = ["-DCMAKE_C_COMPILER=gcc", "-DCMAKE_CXX_COMPILER=g++"]
        clang = ["-DCMAKE_C_COMPILER=clang", "-DCMAKE_CXX_COMPILER=clang++",
                 *(f"-DCMAKE_{language}_FLAGS={INSTRUMENTED}" for language in ("C", "CXX"))]
        for build, options in (self.build, gcc), (self.reach.build, clang):
            build.make(*options)
            build.read()
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
    parser.add_argument("--tests", default="", help="only tests whose name this regular expression matches")
    parser.add_argument("--jobs", type=int, default=1)
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
