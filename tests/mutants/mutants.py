#!/usr/bin/env python3
"""Changes the sources in small ways, one at a time, and sees whether a test fails: what none notices, none guards.

usage: mutants.py [COUNT] [--seed N] [--only PATTERN] [--seconds N] [--tests REGEX] [--again VERDICT] [--report]

 1. A mutant is one change within a function of src/: a comparison, an operator, a number, a condition that is always
    true or always false, a statement that is left out. COUNT of them (1,000) are drawn by the seed, evenly over the
    files, counting those of each that were judged before.
 2. All of them are compiled at once into a copy of the tree, as `hak_is_mutant(17) ? (a <= b) : (a < b)`. What does not
    compile so is left out. Which mutant a program is, a word in its file says: 5 minutes of building, once.
 3. Each test says which mutants it reaches, some cases of a GoogleTest program at a time: in minutes, once.
 4. The tests that reach the mutant run, shortened, those first that found others of its file, and then the cheapest,
    until one fails: as many as take N seconds of CPU together (60). What no test reaches has survived. A test that uses
    ten times its CPU time, that waits with nothing left to wake it, or that takes 4 GiB, has failed. None of these
    depends on what else the machine does. The model checker's harnesses are among the tests.
 5. What has survived is compiled by itself, as it is shipped: it is no mutant if that makes the same code. What
    `equivalent.txt` names changes nothing that a program could notice, and counts neither.
 6. Verdicts go to `judged.txt`, one by one. What is there is not judged again, except with --again VERDICT (survived,
    say: with more seconds, or after tests were added); what the sources no longer have is dropped.
"""
# SPDX-License-Identifier: MIT
import argparse
import collections
import contextlib
import fnmatch
import hashlib
import json
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TREES = ROOT / "build" / "mutants"
EQUIVALENT, JUDGED = HERE / "equivalent.txt", HERE / "judged.txt"
VERDICTS = ("killed", "survived", "equivalent")
# Without the wings.
CORE_FOLDERS = ("src/alloc", "src/base", "src/blocks", "src/entry", "src/heap", "src/machine", "src/pool",
                "src/process", "src/region", "src/space", "src/threads", "src/tiers")
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
ASSIGNMENTS = {"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="}
BEFORE = ASSIGNMENTS | {";", "{", "}", ",", "(", "[", "?", ":", "return", "else", "do", "case"}  # an expression
NOTHING = "(void)0"
BEHIND = {";", "}", ",", ")", "]", "?", ":"}

# A change: of the file's text, [start, end) becomes `text`. That makes `variant` of the expression [begin, stop) around
# it, for which a conditional can stand.
Change = collections.namedtuple("Change", "file line start end text begin stop variant")


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


def matching(tokens, number, step=1):
    """The token that closes the bracket at that number, or opens it with a step of -1; None if there is none."""
    depth = 0
    while 0 <= number < len(tokens):
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(tokens[number][0], 0)
        if depth == 0:
            return number
        number += step
    return None


def expression(tokens, first, last):
    """The first and the last token of the smallest whole expression that has these: an argument, an index, a condition,
    the right side of an assignment, or a statement."""
    while tokens[first - 1][0] not in BEFORE:
        first -= 1
        if tokens[first][0] in (")", "]"):
            opening = matching(tokens, first, -1)
            if tokens[opening - 1][0] in ("if", "while", "for", "switch"):
                first += 1
                break
            first = opening
    while tokens[last + 1][0] not in BEHIND:
        last += 1
        if tokens[last][0] in "([{":
            last = matching(tokens, last)
    return first, last


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
    tokens, found, depth = tokens_of(text), [], 0

    def change(first, last, new, around):
        start, end, begin, stop = (tokens[first].start(), tokens[last].end(), tokens[around[0]].start(),
                                   tokens[around[1]].end())
        if new == ";":
            variant = NOTHING if depth == 0 else "1"  # for (;;)
        elif start < begin:
            variant = new  # a condition's parentheses are outside
        else:
            variant = text[begin:start] + new + text[end:stop]
        found.append(Change(name, text.count("\n", 0, start) + 1, start, end, new, begin, stop, variant))

    for first, last in functions(tokens):
        depth = 0
        for at in range(first + 1, last):
            token, before = tokens[at][0], tokens[at - 1][0]
            depth += {"(": 1, ")": -1}.get(before, 0)
            if token in SWAPS:
                change(at, at, SWAPS[token], expression(tokens, at, at))
            elif token in BINARY and re.search(r"[\w)\]]$", before) and before not in ("return", "case"):
                change(at, at, BINARY[token], expression(tokens, at, at))
            elif number := NUMBER.match(token):
                value = int(number[1], 0)
                for other in (value + 1, value - 1)[:2 if value else 1]:
                    change(at, at, f"{other}{number[2]}", expression(tokens, at, at))
            elif token in ("if", "while") and tokens[at + 1][0] == "(" and (close := matching(tokens, at + 1)):
                condition = text[tokens[at + 1].start():tokens[close].end()]
                for constant in ("0 &&", "1 ||")[:2 if token == "if" else 1]:
                    change(at + 1, close, f"({constant} {condition})", (at + 2, close - 1))
            elif before in ";{}" and (end := statement_end(tokens, at, last)):
                change(at, end, ";", (at, end - 1))
    return [each for each in found if "\n" not in text[each.start:each.end]
            and not re.search(r"^[ \t]*#", text[each.begin:each.stop], re.MULTILINE)]


def lines_of(text, change):
    """The line as it is and as it becomes."""
    begin, end = text.rfind("\n", 0, change.start) + 1, text.find("\n", change.end)
    return text[begin:end].strip(), (text[begin:change.start] + change.text + text[change.end:end]).strip()


def keys_of(name, text, changes):
    """{(file, the line before, after, which of several): change}: stays the same where other lines change."""
    seen, keys = collections.Counter(), {}
    for change in changes:
        lines = lines_of(text, change)
        seen[lines] += 1
        keys[name, *lines, seen[lines]] = change
    return keys


def planted(text, changes):
    """The text with all of {number: change} in it: each makes a difference where hak_is_mutant(number)."""
    at = collections.defaultdict(list)
    for number, change in changes.items():
        variant = " ".join(re.sub(r"/\*.*?\*/|//[^\n]*", " ", change.variant, flags=re.DOTALL).split("\n"))
        at[change.begin, -change.stop].append((number, variant))
    out, ends, done = [], [], 0
    for begin, stop in sorted(at):
        while ends and ends[-1] <= begin:
            out += [text[done:ends[-1]], "))"]
            done = ends.pop()
        if ends and -stop > ends[-1]:
            continue  # a macro's arguments, perhaps: neither around the other
        cast = "(void)" * any(variant == NOTHING for _, variant in at[begin, stop])
        out += [text[done:begin], "("]
        out += [f"hak_is_mutant({number}) ? {cast}({variant}) : " for number, variant in at[begin, stop]]
        out += [f"{cast}("]
        ends.append(-stop)
        done = begin
    while ends:
        out += [text[done:ends[-1]], "))"]
        done = ends.pop()
    return "".join(out) + text[done:]


def is_wanted(name, only):
    return is_core(name) if only == "core" else not only or fnmatch.fnmatch(name, only)


def is_core(name):
    return os.path.dirname(name) in CORE_FOLDERS


def drawn(seed, only, keys_of_file):
    """[key]: all changes in the order in which they are tried, one of each file in turn."""
    files = sorted(name for name in keys_of_file if is_wanted(name, only))
    random.Random(seed).shuffle(files)
    for name in files:
        random.Random(f"{seed} {name}").shuffle(keys_of_file[name])
    longest = max((len(keys_of_file[name]) for name in files), default=0)
    return [keys_of_file[name][at] for at in range(longest) for name in files if at < len(keys_of_file[name])]


def equivalents():
    """(file, line as it is, line as it becomes): reason. In the file a block of four lines each."""
    texts = re.split(r"\n{2,}", EQUIVALENT.read_text())
    blocks = [text.strip().split("\n") for text in texts if not text.startswith("#")]
    for block in blocks:
        if len(block) != 4:
            sys.exit(f"{EQUIVALENT.name}: no four lines: {block[0]}")
    return {tuple(block[:3]): block[3] for block in blocks}


# ---- the build ----

Test = collections.namedtuple("Test", "name command environment labels passes fails inverted")
OPTIONS = ["-DCMAKE_C_COMPILER=gcc", "-DCMAKE_CXX_COMPILER=g++", "-DHAKMEM_TESTS=ON", "-DHAKMEM_RACES=ON",
           "-DHAKMEM_WERROR=OFF", "-DCMAKE_C_FLAGS=-w -Wno-int-conversion", "-DCMAKE_CXX_FLAGS=-w"]
PLANTED = re.compile(r"races_\w+_(finds_\w+|seeds)$")  # tests of the model checker, not of the sources
MARK, UNCHANGED, RECORD = b"which mutant:", -1, -2
# The words that say which mutant a program is. What a mutant's place was reached goes to a file, where processes and
# their children share its pages.
HEADER = """\
#ifndef HAK_MUTANT
#define HAK_MUTANT
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#define HAK_MUTANT_OWN __attribute__((weak, visibility("hidden")))
#ifdef __cplusplus
extern "C" {
#endif
struct hak_mutant_word { char mark[16]; int number; };
HAK_MUTANT_OWN struct hak_mutant_word hak_mutant = {"%s", %d};
HAK_MUTANT_OWN __attribute__((aligned(4096))) unsigned char hak_mutants_reached[%d];
HAK_MUTANT_OWN __attribute__((constructor)) void hak_mutants_start(void) {
    static int file = -1;
    if (hak_mutant.number != %d || file >= 0 || (file = open("%s", O_RDWR | O_CLOEXEC)) < 0)
        return;
    unsigned char *here = hak_mutants_reached;
    unsigned char *all = (unsigned char *)mmap(0, %d, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    for (int i = 0; i < %d; i++)
        all[i] |= here[i];
    mmap(here, %d, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0);
}
#ifdef HAK_RACES /* the model checker is to see no access here */
__attribute__((no_sanitize_thread, noinline)) static int hak_is_mutant(int number) {
#else
static inline int hak_is_mutant(int number) {
#endif
    if (__builtin_expect(hak_mutant.number != %d, 1))
        return hak_mutant.number == number;
    hak_mutants_reached[number] = 1;
    return 0;
}
#ifdef __cplusplus
}
#endif
#endif
"""


def printed(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


class Build:
    """A copy of the tree with many mutants in it. Which of them a program is, a word in its file says."""

    def __init__(self, sources):
        self.sources = sources
        self.source, self.folder, self.reached = TREES / "tree", TREES / "build", TREES / "reached"
        self.words = {}  # of each program: where they are
        self.unchanged, self.single = {}, ()  # objects of the sources as they are; the change that is compiled last

    def write(self, name, text):
        path = self.source / name
        if not path.exists() or path.read_text() != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def make(self, changes):
        """Builds it with {number: change}; returns those that compile."""
        for name in printed("git", "-C", ROOT, "ls-files").splitlines():
            to = self.source / name
            if name not in self.sources and (ROOT / name).is_file() and (
                    not to.exists() or to.stat().st_mtime < (ROOT / name).stat().st_mtime):
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, to)
        size = -(-max(changes) // 4096) * 4096 + 4096
        self.reached.write_bytes(bytes(size))
        self.write("src/mutant.h", HEADER % (MARK.decode(), UNCHANGED, size, RECORD, self.reached, *[size] * 3, RECORD))
        while True:
            for name, text in self.sources.items():
                of_file = {number: change for number, change in changes.items() if change.file == name}
                include = f'#include "{self.source}/src/mutant.h"\n#line 1\n'
                self.write(name, include * bool(of_file) + planted(text, of_file))
            bad = self.errors()
            if bad is None:
                break
            fine = {number: change for number, change in changes.items()
                    if not any(line in range(*lines_in(self.sources[change.file], change))
                               for line in bad[change.file])}
            if len(fine) == len(changes):
                sys.exit(f"mutants: the tests could not be built; see {TREES / 'build.log'}")
            changes = fine
        for path in sorted(self.folder.rglob("*")):
            if path.is_file() and not path.is_symlink() and path.suffix not in (".o", ".a"):
                content = path.read_bytes()
                if content.startswith(b"\x7fELF"):
                    self.words[path] = [found.start() + 16 for found in re.finditer(re.escape(MARK), content)]
        return changes

    def errors(self):
        """Makes all; returns None, or the lines of each file at which the compiler finds fault."""
        log = TREES / "build.log"
        with open(log, "w", encoding="utf-8") as out:
            for command in (["cmake", "--preset", "release", "-S", self.source, "-B", self.folder, *OPTIONS],
                            ["ninja", "-k0", "-j2", "-C", self.folder, "hakmem", "tests/all"]):
                status = subprocess.run(command, cwd=self.source, stdout=out, stderr=out, check=False).returncode
        if status == 0:
            return None
        lines = collections.defaultdict(set)
        for file, line in re.findall(r"\b(src/\S+?):(\d+):(?:\d+:)? (?:error|note)", log.read_text()):
            lines[file].add(int(line))
        return lines

    def become(self, number):
        """From now on the programs are this mutant."""
        for path, places in self.words.items():
            try:
                file = open(path, "r+b")
            except OSError:  # runs still
                shutil.copy2(path, path.with_suffix(".new"))
                path.with_suffix(".new").replace(path)
                file = open(path, "r+b")
            with file:
                for at in places:
                    file.seek(at)
                    file.write(number.to_bytes(4, "little", signed=True))

    def tests(self):
        text = printed("ctest", "--test-dir", self.folder, "--show-only=json-v1")
        for test in json.loads(text)["tests"]:
            properties = {each["name"]: each["value"] for each in test.get("properties", [])}
            environment = dict(each.split("=", 1) for each in properties.get("ENVIRONMENT", []))
            if test.get("command") and "soak" not in properties.get("LABELS", []) and not PLANTED.match(test["name"]):
                yield Test(test["name"], test["command"], environment, properties.get("LABELS", []),
                           properties.get("PASS_REGULAR_EXPRESSION", []),
                           properties.get("FAIL_REGULAR_EXPRESSION", []), properties.get("WILL_FAIL", False))

    def is_same_code(self, change):
        """Whether the change makes no difference to the library's objects, compiled as they are shipped: to its file's,
        or, if that is a header, to any. Those that name its function come first, as most likely to differ."""
        function, compiles = re.findall(r"(\w+)\([^;{}]*\) \{", self.sources[change.file][:change.begin])[-1], []
        for line in printed("ninja", "-C", self.folder, "-t", "commands", "hakmem").splitlines():
            if found := re.search(r" -o (CMakeFiles/hakmem_objects\.dir/(\S+\.c)\.o) -c ", line):
                if found[2] == change.file or change.file.endswith(".h"):
                    names_it = re.search(rf"\b{function}\b", self.sources[found[2]])
                    compiles.append((names_it is None, found[1], line))
        return bool(compiles) and all(self.compiled(command, name, None) == self.compiled(command, name, change)
                                      for _, name, command in sorted(compiles))

    def compiled(self, command, name, change):
        if change is None and name in self.unchanged:
            return self.unchanged[name]
        folder = TREES / "single"
        if self.single != (change,):
            shutil.rmtree(folder, ignore_errors=True)
            for file, text in self.sources.items():
                if change and file == change.file:
                    text = text[:change.start] + change.text + text[change.end:]
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                (folder / file).write_text(text)
            self.single = (change,)
        command = re.sub(r"^ccache | -w -Wno-int-conversion| -M[DTF]+(?: \S+\.[od])?\b", "", command)
        command = command.replace(f"{self.source}/src", f"{folder}/src")
        command = command.replace(f" -o {name} ", f" -o {folder}/made.o ")
        (folder / "made.o").unlink(missing_ok=True)
        subprocess.run(["sh", "-c", command], cwd=self.folder, check=False, capture_output=True)
        made = (folder / "made.o").read_bytes() if (folder / "made.o").exists() else None
        if change is None:
            self.unchanged[name] = made
        return made


def lines_in(text, change):
    first = text.count("\n", 0, change.begin) + 1
    return first, first + text.count("\n", change.begin, change.stop) + 1


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


def run_test(build, test, seconds, output, more=()):
    """Returns what is wrong, or None."""
    def prepare():
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        pathlib.Path("/proc/self/oom_score_adj").write_text("1000")

    environment = {**os.environ, "HAK_TEST_SHORTER": "20", **test.environment}
    with open(output, "wb") as out:
        process = subprocess.Popen([*test.command, *more], cwd=build.folder / "tests", stdin=subprocess.DEVNULL,
                                   stdout=out, stderr=out, start_new_session=True, env=environment, preexec_fn=prepare)
    problem = problem_of(process, seconds)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    text = output.read_text(errors="replace")
    if not problem:
        failed = process.returncode != 0
        if test.passes:
            failed = not any(re.search(pattern, text, re.MULTILINE) for pattern in test.passes)
        failed |= any(re.search(pattern, text) for pattern in test.fails)
        problem = "fails" if failed != test.inverted else None
    return problem


# ---- what each test reaches ----

MOST_ITEMS = 12  # of a test: what each reaches takes a run
Item = collections.namedtuple("Item", "test case cpu seconds")  # some cases of a test, or with "" the whole of one


def cases_of(test):
    """The cases of a GoogleTest program that is run as it is, some together where there are many; or [""]."""
    if len(test.command) > 1 or b"gtest_list_tests" not in pathlib.Path(test.command[0]).read_bytes():
        return [""]
    found, suite = [], ""
    for line in subprocess.run([test.command[0], "--gtest_list_tests"], capture_output=True, text=True, check=True,
                               env={**os.environ, **test.environment}).stdout.splitlines():
        name = line.split("#")[0].rstrip()
        if name.startswith("  "):
            found.append(suite + name.strip())
        elif name.endswith("."):
            suite = name
    found = [case for case in found if "DISABLED_" not in case]
    some = -(-len(found) // MOST_ITEMS)
    return [":".join(found[at:at + some]) for at in range(0, len(found), some)]


def filter_of(items):
    cases = [item.case for item in items if item.case]
    return [f"--gtest_filter={':'.join(cases)}", "--gtest_fail_fast"] if cases else []


class Reach:
    """Which mutants' places each item reaches."""

    def __init__(self, build, wanted, most):
        self.build, self.wanted, self.most = build, wanted, most
        self.file = TREES / "reach.json"
        self.items, self.of_mutant = [], collections.defaultdict(list)

    def measure(self):
        known = json.loads(self.file.read_text()) if self.file.exists() else {}
        digest = hashlib.sha1(b"".join(path.read_bytes() for path in
                                       sorted((self.build.source / "src").rglob("*.[ch]")))).hexdigest()
        if known.pop("", None) != digest:
            known = {}
        self.build.become(RECORD)
        for test in self.build.tests():
            if not re.search(self.wanted, test.name):
                continue
            cases = known[test.name] if test.name in known else [self.measured(test, case) for case in cases_of(test)]
            known[test.name] = cases
            self.file.write_text(json.dumps({"": digest, **known}) + "\n")
            for case, cpu, seconds, problem, reached in cases:
                if problem is None:
                    for number in reached:
                        self.of_mutant[number].append(Item(test, case, cpu, seconds))
                    self.items.append(test.name)
        print(f"{len(self.items)} cases of {len(set(self.items))} tests reach {len(self.of_mutant)} mutants",
              flush=True)

    def measured(self, test, case):
        with open(self.build.reached, "r+b") as file:  # mapped by no one
            file.write(bytes(self.build.reached.stat().st_size))
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        problem = run_test(self.build, test, self.most, TREES / "output", [f"--gtest_filter={case}"] if case else [])
        after, seconds = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - began
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        reached = [number for number, is_reached in enumerate(self.build.reached.read_bytes()) if is_reached]
        return case, round(cpu, 2), round(seconds, 2), problem, reached


# ---- the run ----

LONG = 3  # seconds: a case that takes so long is run by itself, after the others


class Run:
    def __init__(self, arguments):
        self.arguments = arguments
        paths = sorted((ROOT / "src").rglob("*.[ch]"))
        self.sources = {str(path.relative_to(ROOT)): path.read_text() for path in paths}
        self.changes = {}
        for name, text in self.sources.items():
            self.changes |= keys_of(name, text, changes_of(name, text))
        self.equivalent = equivalents()
        self.results = self.known()
        self.is_sound = {}
        # (file, test): mutants
        self.killers = collections.Counter((key[0], test) for key, (_, test) in self.results.items() if test)

    def known(self):
        """{key: [verdict, test]}: what JUDGED says of what the sources still have."""
        results = {}
        for line in JUDGED.read_text().splitlines() if JUDGED.exists() else []:
            if not line.startswith("#"):
                verdict, test, file, before, after, which = line.split("\t")
                if (key := (file, before, after, int(which))) in self.changes:
                    results[key] = [verdict, test]
        for file, before, after in self.equivalent:
            if not any(key[:3] == (file, before, after) for key in self.changes):
                print(f"{EQUIVALENT.name}: no longer in the sources: {file}: {before}", flush=True)
        for key, result in results.items():
            if result[0] in ("survived", "equivalent"):
                result[0] = "equivalent" if key[:3] in self.equivalent else "survived"
        return results

    def write(self):
        lines = ["\t".join(map(str, (verdict, test, *key))) for key, (verdict, test) in self.results.items()]
        beside = JUDGED.with_suffix(".new")
        beside.write_text("# verdict, test that failed, file, line as it is, as it becomes, which of several\n" +
                          "".join(f"{line}\n" for line in sorted(lines, key=lambda line: line.split("\t")[2:])))
        beside.replace(JUDGED)

    def keep(self, key, verdict, test=""):
        if verdict == "survived" and key[:3] in self.equivalent:
            verdict = "equivalent"
        self.results[key] = [verdict, test]
        self.write()
        file, before, after, _ = key
        print(f"{verdict:<10} {file}:{self.changes[key].line}: {before} => {after}  {test}", flush=True)

    def wanted(self):
        """The mutants to judge now: as many of each file as there are."""
        keys = collections.defaultdict(list)
        for key in self.changes:
            keys[key[0]].append(key)
        order = drawn(self.arguments.seed, self.arguments.only, keys)
        if self.arguments.again:
            return [key for key in order if self.results.get(key, [""])[0] == self.arguments.again]
        had = collections.Counter(key[0] for key, (verdict, _) in self.results.items() if verdict in VERDICTS)
        rounds, taken = collections.defaultdict(list), collections.Counter(had)
        for key in order:
            if key not in self.results:
                rounds[taken[key[0]]].append(key)
                taken[key[0]] += 1
        return [key for _, keys in sorted(rounds.items()) for key in keys][:self.arguments.count]

    def run(self):
        TREES.mkdir(parents=True, exist_ok=True)
        keys = self.wanted()
        self.build = Build(self.sources)
        began = time.monotonic()
        changes = self.build.make({number: self.changes[key] for number, key in enumerate(keys)})
        print(f"{len(changes)} of {len(keys)} mutants compile; built in {time.monotonic() - began:.0f} s", flush=True)
        began = time.monotonic()
        self.reach = Reach(self.build, self.arguments.tests, self.arguments.seconds)
        self.reach.measure()
        print(f"measured in {time.monotonic() - began:.0f} s", flush=True)
        for number, key in enumerate(keys):
            if number in changes:
                self.judge(number, key)
        self.build.become(UNCHANGED)

    def judge(self, number, key):
        self.build.become(number)
        for test, cases in self.groups(key[0], self.reach.of_mutant[number]):
            limit = max(5, 10 * sum(item.cpu for item in cases))
            problem = run_test(self.build, test, limit, TREES / "output", filter_of(cases))
            if problem and self.passes_unchanged(test, cases, number):
                self.killers[key[0], test.name] += 1
                return self.keep(key, "killed", test.name)
        same = self.build.is_same_code(self.changes[key])
        return self.keep(key, "same code" if same else "survived")

    def passes_unchanged(self, test, cases, number):
        """Whether these cases pass with nothing changed, which is tried once for each test."""
        if test.name not in self.is_sound:
            self.build.become(UNCHANGED)
            limit = 60 + 10 * sum(item.cpu for item in cases)
            self.is_sound[test.name] = run_test(self.build, test, limit, TREES / "output", filter_of(cases)) is None
            self.build.become(number)
            if not self.is_sound[test.name]:
                print(f"fails with nothing changed: {test.name}", flush=True)
        return self.is_sound[test.name]

    def groups(self, file, items):
        """(test, its cases) of what fits into the time: what killed others of the file first, then the shortest. One
        process for all cases of a test."""
        groups, cpu = collections.defaultdict(list), 0.0
        for item in sorted(items, key=lambda item: item.seconds):
            cpu += item.cpu
            if cpu > self.arguments.seconds:
                break
            if self.is_sound.get(item.test.name, True):
                groups[item.test.name, item.seconds > LONG].append(item)
        order = sorted(groups.values(), key=lambda cases: (-self.killers[file, cases[0].test.name],
                                                           sum(item.seconds for item in cases)))
        return [(cases[0].test, cases) for cases in order]


def report(results):
    """The score by folder and file, and the figures."""
    rows = collections.defaultdict(collections.Counter)
    for (file, *_), (verdict, _) in results.items():
        for name in (file, "all", *(["core"] if is_core(file) else [])):
            rows[name][verdict] += 1
    for name, row in sorted(rows.items()):
        count = row["killed"] + row["survived"]
        if count:
            print(f"{name:<36} {row['killed']:>4} of {count:>4} killed, {100 * row['killed'] / count:5.1f} %"
                  f"{', %d equivalent' % row['equivalent'] if row['equivalent'] else ''}")
    for kind, name in (("", "all"), ("_core", "core")):
        for verdict in VERDICTS:
            print(f"figure: mutants{kind}_{verdict} {rows[name][verdict]}")


def main():
    parser = argparse.ArgumentParser(description="Changes the sources one at a time and sees whether a test fails.")
    parser.add_argument("count", nargs="?", type=int, default=1000)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--only", help="of the files' names, such as src/tiers/tiny.c or 'src/base/*'; or: core")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--tests", default="", help="only tests whose name this regular expression matches")
    parser.add_argument("--again", help="those again that have this verdict")
    parser.add_argument("--report", action="store_true", help="only the score of what was run")
    arguments = parser.parse_args()
    run = Run(arguments)
    if not arguments.report:
        run.run()
    run.write()
    report(run.results)


if __name__ == "__main__":
    main()
