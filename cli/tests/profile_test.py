#!/usr/bin/env python3
"""`hakmem profile`, `flame` and `diff` from outside, on programs whose allocations are known.

    profile_test.py HAKMEM LIBRARY [--keep DIRECTORY]

HAKMEM is the built command, LIBRARY is libhakmem.so. Profiles are read here by a decoder of our own, so that the
command cannot agree with itself; by Go's pprof as well where there is one. Pages are opened in headless Chromium.
"""
import argparse
import gzip
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock
import xml.etree.ElementTree

from report_browser import Browser

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE / "profile" / "planted.cc"
INTERVAL = 8192
GROWTH = 8 << 20 # of LEAK, between the second and the third profile
# Bytes allocated and in use by the line's mark; blocks are as large as asked for.
KNOWN = {"LEAK": (4000 * 4096, 4000 * 4096, 4096), "INLINED": (2000 * 2000, 2000 * 2000, 2000),
         "TEMPORARY": (20000 * 1600, 0, 1600), "LONG": (3000 * 1000, 0, 1000), "THREAD": (500 * 8192, 500 * 8192, 8192)}


# Commands that name frames. On a busy machine libc's debug files, if it has them, may take longer than names may.
NAMING = ("flame", "diff", "leak", "learn", "symbolize")
WITHOUT_LIBC = ["--debug-directory", "absent"]


def line_of(mark):
    lines = SOURCE.read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(f"// {mark}"))


# ---- pprof's protobuf, by the wire format alone ----

def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def fields(data):
    """(number, value) of a message: numbers as int, the rest as bytes."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        elif key & 7 == 2:
            size, at = varint(data, at)
            value, at = data[at:at + size], at + size
            assert len(value) == size, "cut short"
        else:
            raise AssertionError(f"wire type {key & 7} is not pprof's")
        yield key >> 3, value


def numbers(values):
    """Of a repeated number, packed or not."""
    for value in values:
        at = 0
        while isinstance(value, bytes) and at < len(value):
            number, at = varint(value, at)
            yield number
        if isinstance(value, int):
            yield value


def message(data):
    found = {}
    for number, value in fields(data):
        found.setdefault(number, []).append(value)
    return found


def decode(path):
    """A profile: types, samples as (frames, values, labels), mappings as (file, build id)."""
    whole = message(gzip.decompress(pathlib.Path(path).read_bytes()))
    texts = [text.decode() for text in whole[6]]
    assert texts[0] == "", "the first string is empty, as the format wants"

    def one(entry, number):
        return entry.get(number, [0])[0]
    types = [tuple(texts[one(message(entry), at)] for at in (1, 2)) for entry in whole[1]]
    functions = {one(entry, 1): entry for entry in map(message, whole.get(5, []))}
    mappings = {one(entry, 1): entry for entry in map(message, whole.get(3, []))}
    places = {}
    for entry in map(message, whole.get(4, [])):
        frames = []
        for line in map(message, entry.get(4, [])):
            function = functions[one(line, 1)]
            frames.append((texts[one(function, 2)], texts[one(function, 4)], one(line, 2)))
        mapping = mappings.get(one(entry, 2))
        if mapping:
            assert one(mapping, 2) <= one(entry, 3) < one(mapping, 3), "an address lies in its mapping"
        places[one(entry, 1)] = frames or [(hex(one(entry, 3)), "", 0)]
    samples = []
    for entry in map(message, whole.get(2, [])):
        frames = [frame for place in numbers(entry.get(1, [])) for frame in places[place]]
        labels = [(texts[one(label, 1)], texts[one(label, 2)] or one(label, 3), texts[one(label, 4)])
                  for label in map(message, entry.get(3, []))]
        values = list(numbers(entry[2]))
        assert len(values) == len(types)
        samples.append((frames, dict(zip([name for name, _ in types], values)), labels))
    files = {texts[one(entry, 5)]: texts[one(entry, 6)] for entry in mappings.values()}
    return {"types": types, "samples": samples, "files": files, "period": one(whole, 12),
            "default": texts[one(whole, 14)], "comments": [texts[number] for number in numbers(whole.get(13, []))]}


def marked_lines(path):
    """Of a script: the line of each mark."""
    lines = enumerate(pathlib.Path(path).read_text().splitlines(), 1)
    return {line.split("  # ")[1]: number for number, line in lines if "  # " in line}


def known_pythons():
    """One of each version that the library knows."""
    say = "import sys; print(sys.version_info[1], sys.executable)"
    found = {}
    for path in [shutil.which("python3", path=os.defpath),
                 *pathlib.Path.home().glob(".pyenv/versions/3.*/bin/python3")]:
        if path:
            minor, executable = subprocess.run([path, "-c", say], capture_output=True, text=True).stdout.split()
            if 9 <= int(minor) <= 13:
                found.setdefault(minor, executable)
    return list(found.values())


class Planted:
    """The program, at its first stop."""

    def __init__(self, program, growth=0, **options):
        self.process = run_under(program, growth, options)
        self.expect("ready")

    def expect(self, word):
        line = self.process.stdout.readline().strip()
        if line != word:
            raise AssertionError(f"the program said {line!r}, not {word!r}")

    def grow(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.expect("grown")

    def end(self):
        self.process.stdin.close()
        if self.process.wait() != 0:
            raise AssertionError(f"the program ended with {self.process.returncode}")
        self.process.stdout.close()

    @property
    def pid(self):
        return str(self.process.pid)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for end in (self.process.stdin, self.process.stdout):
            end.close()


def run_under(program, growth, options):
    environment = {**os.environ, "LD_PRELOAD": Profiles.library,
                   **{f"HAKMEM_{name}": str(value) for name, value in {"PROFILE_RATE": 0, **options}.items()}}
    return subprocess.Popen([program, str(growth)], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            text=True)


class Profiles(unittest.TestCase):
    hakmem = library = keep = None

    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        cls.place = pathlib.Path(cls.keep or cls.directory.name).resolve()
        cls.place.mkdir(parents=True, exist_ok=True)
        cls.program = cls.place / "planted"
        # main stays a symbol of the stripped program: the neighbour whose name others must not get.
        subprocess.run(["g++", "-std=c++17", "-O2", "-g", "-pthread", "-Wl,--build-id,--export-dynamic-symbol=main",
                        "-o", cls.program, SOURCE], check=True)
        # Of one run: the live process twice, and what it left at its end.
        cls.live, cls.grown, cls.at_exit = (cls.place / name for name in ("live.pb.gz", "grown.pb.gz", "exit.txt"))
        pattern = cls.place / "exit-%p.txt"
        with Planted(cls.program, GROWTH >> 10, PROFILE_BYTES=INTERVAL, PROFILE_FILE=pattern) as planted:
            cls.run_tool("profile", "dump", planted.pid, "-o", cls.live)
            planted.grow()
            cls.run_tool("profile", "dump", planted.pid, "-o", cls.grown)
            planted.end()
        (cls.place / f"exit-{planted.pid}.txt").rename(cls.at_exit)

    @classmethod
    def tearDownClass(cls):
        cls.directory.cleanup()

    @classmethod
    def run_tool(cls, *arguments, status=0):
        arguments = [str(one) for one in arguments]
        words = 2 if arguments[:2] == ["profile", "dump"] else 1 if arguments[0] in NAMING else 0
        if words and "--debug-directory" not in arguments:
            arguments[words:words] = WITHOUT_LIBC
        done = subprocess.run([cls.hakmem, *arguments], capture_output=True, text=True, timeout=1200, cwd=cls.place)
        if done.returncode != status:
            raise AssertionError(f"hakmem {' '.join(map(str, arguments))}: status {done.returncode}\n{done.stderr}")
        return done.stderr if status else done.stdout

    @staticmethod
    def let_run(pid, seconds):
        """Returns when the process has had so much time of a processor from now on, however busy the machine is."""
        def had():
            fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        end = had() + seconds
        while had() < end:
            time.sleep(0.01)

    @staticmethod
    def until(wanted, *attempts):
        """The first of the attempts' results that is as wanted, else the last. On a busy machine what is watched for a
        few seconds may not have had its turn in them, so each attempt watches longer."""
        for attempt in attempts:
            result = attempt()
            if wanted(result):
                break
        return result

    def sites(self, source, *options):
        """From --json: the sites by the mark of their line."""
        found = json.loads(self.run_tool("flame", source, "--json", *options))
        marks = {line_of(mark): mark for mark in [*KNOWN, "CONTAINER", "INLINER"]}
        return {marks[site["line"]]: site for site in found["sites"]
                if site["file"].endswith("planted.cc") and site["line"] in marks}, found

    def assert_near(self, estimate, truth, block, what):
        """Within 5 standard errors of the truth, so that chance has no part in a failure."""
        chance = 1 - 2.718281828 ** (-block / INTERVAL)
        error = block * ((truth / block) * (1 - chance) / chance) ** 0.5
        self.assertLess(abs(estimate - truth), 5 * error + block, f"{what}: {estimate}, is {truth}, error {error:.0f}")

    def test_known_allocations_are_found_at_their_lines(self):
        for source in (self.live, self.at_exit):
            found, whole = self.sites(source)
            self.assertEqual(next(iter(found)), "LEAK", "most is in use where it leaks")
            for mark, (allocated, in_use, block) in KNOWN.items():
                if mark == "LEAK" and source == self.at_exit:
                    allocated, in_use = allocated + GROWTH, in_use + GROWTH
                self.assertIn(mark, found, f"{source}: no site at the line of {mark}")
                self.assert_near(found[mark]["allocated"]["bytes"], allocated, block, f"{mark} allocated")
                if in_use:
                    self.assert_near(found[mark]["in_use"]["bytes"], in_use, block, f"{mark} in use")
                    blocks = found[mark]["in_use"]["objects"] * block
                    self.assert_near(blocks, in_use, block, f"{mark}, blocks in use")
                else:
                    self.assertEqual(found[mark]["in_use"], {"objects": 0, "bytes": 0}, f"{mark}: all was freed")
            self.assertEqual(found["LEAK"]["function"], "Cache::leak(unsigned long, int)")
            self.assertEqual(whole["profile"]["at_exit"], source == self.at_exit)
            self.assertIn("main", [frame["function"] for frame in found["LEAK"]["callers"]])

    def test_inlined_functions_and_containers_are_named(self):
        found, whole = self.sites(self.live)
        self.assertEqual(found["INLINED"]["function"], "grab", "it has no symbol of its own")
        self.assertEqual(found["INLINED"]["callers"][0]["line"], line_of("INLINER"))
        # What a vector and its strings allocate counts for the line that fills them; the way there stays in the stack.
        self.assertTrue(found["CONTAINER"]["function"].startswith("fill("))
        self.assertGreater(found["CONTAINER"]["in_use"]["bytes"], 4000 * 900 * 0.7)
        names = {frame["function"] for place in whole["profile"]["places"] for frame in place["frames"]}
        self.assertTrue(any("basic_string" in name for name in names))
        for name in ("malloc", "calloc", "aligned_alloc", "operator new(unsigned long)", "hak_malloc", "free"):
            self.assertNotIn(name, names, "allocator functions are cut off")

    def test_lifetimes_tell_short_from_long(self):
        found, _ = self.sites(self.live, "--metric", "alloc_space")
        short = sum(one["freed"]["bytes"] for one in found["TEMPORARY"]["lifetimes"] if one["at_least_ns"] <= 16e6)
        self.assertGreater(short, found["TEMPORARY"]["allocated"]["bytes"] * 0.5)
        self.assertTrue(found["LONG"]["lifetimes"])
        for one in found["LONG"]["lifetimes"]:
            self.assertGreaterEqual(one["at_least_ns"], 64e6, "these live 80 ms at least")

    def test_files_are_what_pprof_reads(self):
        profile = decode(self.live)
        self.assertEqual(profile["types"], [("alloc_objects", "count"), ("alloc_space", "bytes"),
                                            ("inuse_objects", "count"), ("inuse_space", "bytes"),
                                            ("peak_objects", "count"), ("peak_space", "bytes")])
        self.assertEqual((profile["period"], profile["default"]), (INTERVAL, "inuse_space"))
        self.assertIn("command: planted", profile["comments"])
        self.assertRegex(profile["files"][str(self.program)], "^[0-9a-f]{40}$")
        leaked = sum(values["inuse_space"] for frames, values, _ in profile["samples"]
                     if frames[0][2] == line_of("LEAK") and frames[0][1] == str(SOURCE))
        self.assert_near(leaked, *KNOWN["LEAK"][1:], "LEAK in pprof's file")
        for frames, values, labels in profile["samples"]:
            if labels:
                self.assertEqual((labels[0][0], labels[0][2], values["inuse_space"]), ("lifetime", "nanoseconds", 0))
            else:
                self.assertEqual(values["inuse_space"], values["alloc_space"])
        again = self.place / "again.pb.gz"
        self.run_tool("flame", self.live, "-o", again)
        self.assertEqual(decode(again), profile, "what is read and written again says the same")

    def test_real_pprof_agrees(self):
        pprof = shutil.which("pprof")
        if not pprof:
            self.skipTest("no pprof in PATH (go install github.com/google/pprof@latest)")
        done = subprocess.run([pprof, "-top", "-lines", "-sample_index=inuse_space", self.live], text=True,
                              capture_output=True, check=True)
        first = done.stdout.split("flat%", 1)[1].splitlines()[1]
        self.assertIn("Cache::leak", first)
        self.assertIn(f"planted.cc:{line_of('LEAK')}", first)

    def test_stripped_programs_and_debug_files(self):
        stripped, debug = self.place / "stripped", self.place / "debug"
        shutil.copy(self.program, stripped)
        identity = subprocess.run(["readelf", "-n", self.program], capture_output=True, text=True, check=True).stdout
        identity = re.search("Build ID: ([0-9a-f]+)", identity).group(1)
        apart = debug / ".build-id" / identity[:2] / f"{identity[2:]}.debug"
        apart.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["objcopy", "--only-keep-debug", self.program, apart], check=True)
        none = self.place / "no-debug"
        none.mkdir(exist_ok=True)

        def functions(debug_directory, program):
            path = self.place / "names.pb.gz"
            with Planted(program, PROFILE=1, PROFILE_BYTES=INTERVAL) as planted:
                self.run_tool("profile", "dump", planted.pid, "-o", path, "--debug-directory", debug_directory)
                planted.end()
            heaviest = max(decode(path)["samples"], key=lambda sample: sample[1]["inuse_space"])
            return path, heaviest[0][0]
        subprocess.run(["strip", "--strip-debug", stripped], check=True)
        _, frame = functions(none, stripped)
        self.assertEqual(frame, ("Cache::leak(unsigned long, int)", "", 0), "the symbol table's name")
        subprocess.run(["strip", "--strip-all", stripped], check=True)
        path, frame = functions(none, stripped)
        path = path.rename(self.place / "unnamed.pb.gz")
        self.assertRegex(frame[0], "^0x[0-9a-f]+$", "no name, rather than a wrong one")
        self.assertRegex(self.run_tool("flame", path, "--debug-directory", none), r"stripped\+0x[0-9a-f]+")
        # Names may come later, from a debug file on another day; or at once.
        self.assertIn(f"Cache::leak at planted.cc:{line_of('LEAK')}",
                      self.run_tool("flame", path, "--debug-directory", debug))
        # Or from a server, by debuginfod's tool.
        self.assertRegex(self.run_tool("flame", path, "--debug-directory", none),
                         r"\nNote: stripped has no debug information: install debuginfod and set DEBUGINFOD_URLS=")
        tool = none / "debuginfod-find"
        tool.write_text(f'#!/bin/sh\ntest "$*" = "debuginfo {identity}" && echo "{apart}"\n')
        tool.chmod(0o755)
        servers = {"PATH": f"{none}:{os.environ['PATH']}", "DEBUGINFOD_URLS": "http://localhost:1"}
        with unittest.mock.patch.dict(os.environ, servers):
            text = self.run_tool("flame", path, "--debug-directory", none)
            self.assertIn(f"Cache::leak at planted.cc:{line_of('LEAK')}", text)
            tool.write_text("#!/bin/sh\nexit 1\n")
            text = self.run_tool("flame", path, "--debug-directory", none)
            self.assertIn("debuginfod-find gets none from DEBUGINFOD_URLS", text)
        _, frame = functions(debug, stripped)
        self.assertEqual((frame[0], frame[2]), ("Cache::leak(unsigned long, int)", line_of("LEAK")))
        # A debug file that does not belong to it is not taken.
        subprocess.run(["g++", "-g", "-Wl,--build-id", "-pthread", "-o", apart, SOURCE], check=True)
        text = self.run_tool("flame", path, "--debug-directory", debug)
        self.assertRegex(text, r"stripped\+0x[0-9a-f]+")
        self.assertNotIn("planted.cc", text)
        # Nor is the program, once it has been built anew.
        shutil.copy(apart, stripped)
        text = self.run_tool("flame", path, "--debug-directory", none)
        self.assertRegex(text, r"stripped\+0x[0-9a-f]+")
        self.assertNotIn("planted.cc", text)
        self.assertIn("stripped is not the file that was mapped", text)

    def test_formats_of_other_tools(self):
        folded, scope = self.place / "live.folded", self.place / "live.speedscope.json"
        self.run_tool("flame", self.live, "-o", folded, "-o", scope)
        lines = dict(line.rsplit(" ", 1) for line in folded.read_text().splitlines())
        leaked = sum(int(value) for names, value in lines.items() if names.endswith(";Cache::leak(unsigned long, int)"))
        self.assert_near(leaked, *KNOWN["LEAK"][1:], "LEAK in folded stacks")
        document = json.loads(scope.read_text())
        check_speedscope(self, document)
        chosen = document["profiles"][document["activeProfileIndex"]]
        self.assertEqual((chosen["name"], chosen["unit"]), ("bytes in use", "bytes"))
        self.assertEqual(sum(chosen["weights"]), sum(map(int, lines.values())))

    def test_differences_name_what_grew(self):
        before, after = self.live, self.grown
        found = json.loads(self.run_tool("diff", before, after, "--json"))
        first = found["changes"][0]
        self.assertEqual((first["function"], first["line"]), ("Cache::leak(unsigned long, int)", line_of("LEAK")))
        self.assert_near(first["after"] - first["before"], GROWTH, 4096, "growth")
        own = [one for one in found["changes"] if one["file"] == str(SOURCE)]
        self.assertEqual(len(own), 1, "nothing else of the program's has changed")
        text = self.run_tool("diff", before, after)
        self.assertRegex(text, r"bytes in use grew by [789].* MiB, from")
        self.assertRegex(text, rf"\+[789]\S* MiB .*Cache::leak at planted.cc:{line_of('LEAK')}")
        self.assertRegex(self.run_tool("diff", after, before), r"shrank by(?s:.*)−[789]\S* MiB .*Cache::leak")
        self.assertIn("No site changed", self.run_tool("diff", before, before))
        drawing = self.place / "diff.svg"
        self.run_tool("diff", before, after, "-o", drawing)
        self.assertIn("Cache::leak", drawing.read_text())
        self.assertTrue(xml.etree.ElementTree.parse(drawing).getroot().tag.endswith("svg"))

    def test_sampling_is_switched_on_in_programs_that_run(self):
        work = """import sys
print('ready', flush=True)
for line in sys.stdin:
    kept = [bytes(5000) for _ in range(4000)]
    print('done', flush=True)
"""
        table = "create table t(x); select 'ready';\n"
        rows = """with recursive n(i) as (select 1 union all select i + 1 from n where i < 20000)
            insert into t select randomblob(500) from n; select 'done';\n"""
        programs = {"python3": (["/usr/bin/python3", "-c", work], "", "\n", "<module>"),
                    "sqlite3": (["sqlite3", ":memory:"], table, rows, "sqlite3")}
        for name, (command, greeting, request, part) in programs.items():
            if not shutil.which(command[0]):
                print(f"left out: {name} is not installed")
                continue
            with self.subTest(name):
                environment = {**os.environ, "LD_PRELOAD": self.library, "PYTHONMALLOC": "malloc"}
                process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                           text=True)
                pid = str(process.pid)

                def read():
                    return self.run_tool("flame", pid, "--json", "--debug-directory", self.place / "absent")

                def talk(request, answer):
                    process.stdin.write(request)
                    process.stdin.flush()
                    while (line := process.stdout.readline().strip()) != answer:
                        self.assertTrue(line, f"{name} ended")
                try:
                    talk(greeting, "ready")
                    self.assertIn("profile start", self.run_tool("flame", pid, status=2))
                    self.run_tool("profile", "start", pid, "--bytes", "16K")
                    talk(request, "done")
                    found = json.loads(read())
                    self.assertGreater(found["totals"]["alloc_space"], 5 << 20)
                    names = [frame["function"] for place in found["profile"]["places"] for frame in place["frames"]]
                    self.run_tool("profile", "stop", pid)
                    talk(request, "done")
                    self.assertEqual(json.loads(read())["totals"]["alloc_space"], found["totals"]["alloc_space"],
                                     "nothing is sampled after stop")
                finally:
                    process.stdin.close()
                    process.wait()
                    process.stdout.close()
                self.assertTrue(any(name.startswith(part) for name in names), names)

    def test_the_peak_of_a_program_that_frees_all(self):
        """Else the profile of a program that needs too much says "0 B leaked", and no more."""
        source, program = HERE / "profile" / "freeing.c", self.place / "freeing"
        lines = {line.rsplit("// ")[1]: number for number, line in enumerate(source.read_text().splitlines(), 1)
                 if "; // " in line}
        subprocess.run(["cc", "-O2", "-g", "-o", program, source], check=True)
        environment = {**os.environ, "HAKMEM_PROFILE_RATE": "0"}  # else fewer are sampled where they take less time
        run = subprocess.run([self.hakmem, "run", "--hakmem", self.library, f"--profile={INTERVAL}", "--json", "--",
                              program],
                             env=environment, capture_output=True, text=True, check=True)
        profile = json.loads(run.stderr)["profile"]
        held = {}
        for stack in profile["stacks"]:
            frames = [frame for place in stack["places"] for frame in profile["places"][place]["frames"]]
            held[frames[0]["line"]] = stack["peak"]["bytes"], stack["live"]["bytes"]
        self.assert_near(held[lines["EARLY"]][0], 6_000_000, 6000, "EARLY at the peak")
        self.assert_near(held[lines["LATE"]][0], 56_000_000, 7000, "LATE at the peak")
        self.assertEqual({live for _, live in held.values()}, {0}, "all was freed")
        run = subprocess.run([self.hakmem, "run", "--hakmem", self.library, f"--profile={INTERVAL}", "--", program],
                             env=environment, capture_output=True, text=True, check=True).stderr
        self.assertRegex(run, rf"Held at the peak, by allocation site:\n.* in use at the peak (?s:.*) refill at "
                              rf"freeing.c:{lines['LATE']}")
        self.assertNotIn("Still held", run)
        # The same from the file that the program left, and from pprof's.
        left, again = self.place / "freeing.txt", self.place / "freeing.pb.gz"
        subprocess.run([program], check=True, env={**environment, "LD_PRELOAD": self.library,
                                                   "HAKMEM_PROFILE_FILE": f"{left}.%p",
                                                   "HAKMEM_PROFILE_BYTES": str(INTERVAL)})
        next(self.place.glob("freeing.txt.*")).rename(left)
        self.assertRegex(self.run_tool("flame", left),
                         r"At the peak \S+ MiB were in use: `--metric peak_space` shows where")
        shown = self.run_tool("flame", left, "--metric", "peak_space")
        self.assertRegex(shown, rf"refill at freeing.c:{lines['LATE']}(?s:.*)fill at freeing.c:{lines['EARLY']}")
        self.run_tool("flame", left, "-o", again)
        self.assertEqual(self.run_tool("flame", again, "--metric", "peak_space").splitlines()[2:],
                         shown.splitlines()[2:])

    def test_a_failure_is_reported_with_its_lines(self):
        """Else a double free in production says what happened, but not where."""
        source, program, stripped = HERE / "profile" / "erring.c", self.place / "erring", self.place / "erring-stripped"
        lines = {line.rsplit("// ")[1]: number for number, line in enumerate(source.read_text().splitlines(), 1)
                 if "; // " in line}
        subprocess.run(["cc", "-O2", "-g", "-pthread", "-Wl,--build-id", "-w", "-o", program, source], check=True)
        subprocess.run(["strip", "-o", stripped, program], check=True)

        def report(path, how, **options):
            run = subprocess.run([path, how], capture_output=True, text=True, env={
                **os.environ, "LD_PRELOAD": self.library,
                **{f"HAKMEM_{name}": value for name, value in options.items()}})
            self.assertLess(run.returncode, 0)
            (self.place / "report.log").write_text(run.stderr)
            whole = self.run_tool("symbolize", "report.log")
            with open(self.place / "report.log") as log:
                same = subprocess.run([self.hakmem, "symbolize", *WITHOUT_LIBC], stdin=log, capture_output=True,
                                      text=True,
                                      check=True).stdout
            self.assertEqual(whole, same)
            return run.stderr.splitlines(), whole.splitlines()

        def place(function, mark):
            return f"{function} at {source}:{lines[mark]}"
        plain, whole = report(program, "double")
        self.assertRegex(plain[0], r"^hakmem: double free of 0x[0-9a-f]+ \(48-byte block, freed by this thread\)$")
        self.assertRegex(plain[1], r"^hakmem:   in process \d+ \(erring\), thread \d+ \(worker\)$")
        self.assertRegex(plain[2], rf"^hakmem:   0x[0-9a-f]+ release\+0x[0-9a-f]+ \({program}\+0x[0-9a-f]+\)$")
        self.assertEqual(whole[2], f"{plain[2]} → {place('release', 'FREE')}")
        self.assertEqual(whole[3], f"{plain[3]} → {place('work', 'SECOND')}")
        # Without names: path and build id, which must be that of the file.
        plain, whole = report(stripped, "double")
        self.assertRegex(plain[2], rf"^hakmem:   0x[0-9a-f]+ {stripped}\+0x[0-9a-f]+ \(build id [0-9a-f]{{40}}\)$")
        self.assertEqual(whole[2], plain[2])
        shutil.copy(program, stripped)
        (self.place / "report.log").write_text("\n".join(plain))
        self.assertIn(place("release", "FREE"), self.run_tool("symbolize", "report.log"))
        subprocess.run(["cc", "-O1", "-g", "-pthread", "-Wl,--build-id", "-w", "-o", stripped, source], check=True)
        self.assertNotIn("release at", self.run_tool("symbolize", "report.log"), "another program by now")
        # The same as JSON, for programs that gather reports.
        written = self.place / "report-%p.json"
        plain, whole = report(program, "after", GUARD_SAMPLE_BYTES="2", ON_ERROR="report", REPORT_FILE=str(written))
        path = next(self.place.glob("report-*.json"))
        self.assertIn(f"hakmem: the report is in {path}", plain)
        document = json.loads(path.read_text())
        self.assertEqual(f"hakmem: {document['error']}", plain[0])
        self.assertEqual((document["program"], document["process"]), (str(program), "erring"))
        self.assertIn(document["thread_name"], ("worker", "erring"))  # it may err before it has its name
        self.assertEqual([call["function"] for call in document["freed"]["calls"][:2]], ["release", "work"])
        self.assertGreater(document["statistics"]["rss_bytes"]["total"], 0)
        self.assertEqual(document["statistics"]["options"]["ON_ERROR"], "report")
        without_id = [re.sub(r"\) \(build id [0-9a-f]+\)", ")", line)
                      for line in self.run_tool("symbolize", path).splitlines()]
        self.assertEqual(without_id, whole[:len(without_id)])
        self.assertGreater(len(without_id), 8)
        # What secure mode knows with SECURE_STACKS=1: who allocated and freed the block, in lines and as JSON.
        plain, whole = report(program, "double", SECURE="1", SECURE_STACKS="1", ON_ERROR="report",
                              REPORT_FILE=str(self.place / "secure-%p.json"))
        allocated, freed = (next(at for at, line in enumerate(whole) if line.startswith(f"hakmem: {what} by thread "))
                            for what in ("allocated", "freed"))
        self.assertTrue(whole[2].endswith(f" → {place('release', 'FREE')}"), whole)
        self.assertTrue(whole[3].endswith(f" → {place('work', 'SECOND')}"), whole)
        self.assertTrue(whole[allocated + 1].endswith(f" → {place('request', 'ALLOCATE')} ← "
                                                      f"{place('work', 'REQUEST')}"), whole)
        self.assertTrue(whole[freed + 2].endswith(f" → {place('work', 'FIRST')}"), whole)
        from_json = self.run_tool("symbolize", next(self.place.glob("secure-*.json")))
        for mark in ("SECOND", "REQUEST", "FIRST"):
            self.assertIn(place("work", mark), from_json)
        # What the guard pool knows: the access, and who allocated and freed the block.
        plain, whole = report(program, "after", GUARD_SAMPLE_BYTES="2")
        self.assertRegex(plain[0], r"^hakmem: use after free of 0x[0-9a-f]+ \(48-byte block\), (write|access) at byte "
                                   r"8$")
        allocated = next(at for at, line in enumerate(plain) if line.startswith("hakmem: allocated by thread "))
        freed = next(at for at, line in enumerate(plain) if line.startswith("hakmem: freed by thread "))
        self.assertTrue(whole[2].endswith(f" → {place('work', 'WRITE')}"), whole)
        self.assertTrue(whole[allocated + 1].endswith(f" → {place('request', 'ALLOCATE')} ← "
                                                      f"{place('work', 'REQUEST')}"), whole)
        self.assertTrue(whole[freed + 1].endswith(f" → {place('release', 'FREE')}"), whole)
        self.assertTrue(whole[freed + 2].endswith(f" → {place('work', 'FIRST')}"), whole)

    def test_sampling_begins_in_a_program_that_only_hits_rings(self):
        """Else a service that is busy in one loop is never sampled, because it never looks what is asked of it."""
        program = self.place / "hitting"
        subprocess.run(["cc", "-O1", "-g", "-o", program, HERE / "profile" / "hitting.c"], check=True)
        for begin in ("profile start --bytes 64k PID", "set PID GUARD_SAMPLE_BYTES=64k"):
            with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  text=True,
                                  env={**os.environ, "LD_PRELOAD": self.library, "HAKMEM_STATS": "json"}) as run:
                self.assertEqual(run.stdout.readline(), "begun\n")
                self.run_tool(*begin.replace("PID", str(run.pid)).split())
                self.let_run(run.pid, 0.3)  # some 10,000,000 calls, of which one in 22 would be sampled
                statistics = json.loads(run.communicate()[1])
            counter = "samples_taken" if "profile" in begin else "guard_sampled"
            self.assertGreater(statistics["counters"][counter], 20, begin)

    def test_arenas_with_names_are_told_apart(self):
        """Else a profile adds up what a program keeps apart on purpose, and nobody sees which of its arenas grew."""
        program, names = self.place / "arenas", ["parser", 'scene: "cache"', ""]
        subprocess.run(["cc", "-O1", "-g", "-I", HERE.parents[1] / "include", "-o", program,
                        HERE / "profile" / "arenas.c",
                        self.library], check=True)
        written = self.place / "arenas.txt"
        with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={
                **os.environ, "LD_LIBRARY_PATH": str(pathlib.Path(self.library).parent), "HAKMEM_PROFILE_BYTES": "1",
                "HAKMEM_PROFILE_RATE": "0", "HAKMEM_PROFILE_FILE": f"{written}%p"}) as run:
            self.assertEqual(run.stdout.readline(), "filled\n")
            pid = str(run.pid)
            live = json.loads(self.run_tool("flame", pid, "--json"))
            self.run_tool("flame", pid, "-o", "arenas.pb.gz", "-o", "arenas.folded")
            text = self.run_tool("flame", pid)
        at_end = json.loads(self.run_tool("flame", f"{written}{pid}", "--json"))
        again = json.loads(self.run_tool("flame", "arenas.pb.gz", "--json"))
        for found in live, at_end, again:
            held = {site.get("arena", ""): site["in_use"]["objects"]
                    for site in found["sites"] if "fill" in site["function"]}
            self.assertEqual(held.keys(), set(names), found["sites"])
            for name, blocks in zip(names, (1000, 2000, 3000 + 4000)):
                self.assertAlmostEqual(held[name], blocks, delta=blocks / 50)
        self.assertIn("fill at arenas.c:8 in arena parser", text)
        labels = {label[1] for _, _, all_of in decode(self.place / "arenas.pb.gz")["samples"] for label in all_of
                  if label[0] == "arena"}
        self.assertEqual(labels, set(names[:2]))
        folded = (self.place / "arenas.folded").read_text()
        self.assertRegex(folded, r"(?m)^arena parser;[^\n]*main;fill \d+$")
        self.assertRegex(folded, r"(?m)^(?!arena)[^\n]*main;fill \d+$")

    def test_a_leak_is_named_while_the_program_runs(self):
        """Else a service grows, and nobody finds out where without two files and an hour between them."""
        source = HERE / "profile" / "leaking.cc"
        lines = {line.rsplit("// ")[1].split()[0]: number
                 for number, line in enumerate(source.read_text().splitlines(), 1) if "; // " in line}
        program = self.place / "leaking"
        subprocess.run(["g++", "-std=c++17", "-O2", "-g", "-o", program, source], check=True)
        rate = 6_000_000
        process = subprocess.Popen([program, str(rate)],
                                   env={**os.environ, "LD_PRELOAD": self.library, "HAKMEM_PROFILE_RATE": "0"},
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        pid = str(process.pid)
        try:
            self.assertEqual(process.stdout.readline(), "ready\n")
            def is_told(whole):
                rates = [site["rate"] for site in whole["sites"]]
                is_first = rates and whole["sites"][0]["line"] == lines["LEAK"]
                return is_first and all(4 * rate < rates[0] for rate in rates[1:])

            def leak(time, *options):
                return self.run_tool("leak", pid, "--for", time, "--bytes", "4K", *options)
            whole = self.until(is_told, *(lambda time=time: json.loads(leak(time, "--json"))
                                          for time in ("3s", "10s", "30s", "100s")))
            first = whole["sites"][0]
            self.assertEqual((first["function"], first["line"]), ("request()", lines["LEAK"]), whole)
            self.assertAlmostEqual(first["blocks_per_second"] * 700, first["rate"], delta=first["rate"] / 10)
            self.assertEqual(first["still_held"], 1, "no block of the leak was freed")
            self.assertLess(first["oldest_ms"], whole["sampled_seconds"] * 1000 + 1000)
            # What it leaks in the time is exactly known. A busy machine may keep it from leaking for a part of the
            # time.
            grew = (whole["live_after"] - whole["live_before"]) / whole["measured_seconds"]
            self.assertAlmostEqual(first["rate"], grew, delta=2 * first["margin"] + grew / 3)
            for other in whole["sites"][1:]:
                self.assertLess(other["rate"], first["rate"] / 4, "chance at most")
            # A profile says the same from now on, but samples nothing more.
            self.assertEqual(json.loads(self.run_tool("flame", pid, "--json"))["profile"]["interval"], 0)
            grows = r"^leaking \(process \d+\): the blocks it holds grew by \S+ MiB/s"
            text = self.until(lambda text: re.search(grows, text) and "request at" in text,
                              *(lambda time=time: leak(time) for time in ("1s", "10s", "100s")))
            self.assertRegex(text, grows)
            self.assertIn(f"request at leaking.cc:{lines['LEAK']}", text)
            # Between two looks it may not have had its turn.
            explained = self.until(lambda text: "It grows now" in text, *[lambda: self.run_tool("explain", pid)] * 500)
            self.assertRegex(explained, rf"\n- It grows now, by \S+ MiB a second: `hakmem leak {pid}` watches it")
            watcher = subprocess.Popen([self.hakmem, "leak", pid, "--for", "1h"], stderr=subprocess.PIPE, text=True)
            while json.loads(self.run_tool("flame", pid, "--json"))["profile"]["interval"] == 0:
                self.assertIsNone(watcher.poll())
            watcher.send_signal(signal.SIGINT)
            self.assertEqual(watcher.communicate()[1], "hakmem: interrupted before anything could be said\n")
            self.assertEqual(json.loads(self.run_tool("flame", pid, "--json"))["profile"]["interval"], 0,
                             "sampling is off after Ctrl-C")
            self.assertIn("less than a second", self.run_tool("leak", pid, "--for", "0.5s", status=2))
        finally:
            process.stdin.close()
            process.wait()
            process.stdout.close()

    def test_learn(self):
        """Else what was learned in one run places the blocks of the next one wrongly, or nothing."""
        program = self.place / "bursts"
        subprocess.run(["gcc", "-O2", "-g", "-Wl,--build-id", "-o", program, HERE / "profile" / "bursts.c"], check=True)
        policy = self.place / "bursts.policy"

        def resident(**environment):
            environment = {**os.environ, "LD_PRELOAD": self.library, **environment}
            return int(subprocess.run([program, "20", "7"], env=environment, stdin=subprocess.DEVNULL, check=True,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout)

        # Of 20 bursts none is to take an eighth of the time, or its blocks are long-lived, too: on a busy machine not
        # the first time.
        expected = (r"^hakmem policy 1\n# Learned from bursts: .*\n"
                    r"long-lived [0-9a-f]{40}\+0x[0-9a-f]+ [0-9a-f]{40}\+0x[0-9a-f]+ # wrapper < long_lived: ")
        for _ in range(20):
            self.run_tool("learn", "--hakmem", self.library, "-o", policy, "--bytes", "4K", "--", program, "20", "1")
            text = policy.read_text()
            if re.search(expected, text):
                break
        self.assertRegex(text, expected)
        self.assertNotIn("short_lived", text)
        without, with_policy = resident(), resident(HAKMEM_POLICY=str(policy))
        self.assertLess(with_policy * 1.7, without, "10 MiB are live, and 25 MiB were in a burst")
        # A running program: everything that lives now is old.
        process = subprocess.Popen([program, "12", "1"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                   env={**os.environ, "LD_PRELOAD": self.library, "HAKMEM_PROFILE": "1",
                                        "HAKMEM_PROFILE_BYTES": "4K", "HAKMEM_PROFILE_RATE": "70000"})
        try:
            process.stdout.readline()
            self.assertIn("wrapper < long_lived", self.run_tool("learn", str(process.pid), "--for", "1s", "-o", "-"))
            self.assertRegex(self.run_tool("options", str(process.pid)), r"PROFILE_RATE +70000",
                             "learn sets what it changed back")
            self.assertIn("less than a second", self.run_tool("learn", str(process.pid), "--for", "0.5s", status=2))
            # Ctrl-C ends the time: else no block can have lived for a quarter of it.
            def interrupted(seconds):
                watcher = subprocess.Popen([self.hakmem, "learn", str(process.pid), "--for", "1h", "-o", "-"],
                                           stdout=subprocess.PIPE, text=True)
                while not re.search("PROFILE_RATE +20000", self.run_tool("options", str(process.pid))):  # it has begun
                    self.assertIsNone(watcher.poll())
                time.sleep(seconds)  # it says nothing of less than a second
                watcher.send_signal(signal.SIGINT)
                return watcher.communicate()[0]
            self.assertIn("wrapper < long_lived", self.until(
                lambda text: text, *(lambda seconds=seconds: interrupted(seconds) for seconds in (2, 10, 100))))
            self.assertRegex(self.run_tool("options", str(process.pid)), r"PROFILE_RATE +70000")
            # Where samples are taken for learn alone, what was sampled before is over.
            self.run_tool("profile", "stop", str(process.pid))
            self.assertNotIn("long_lived", self.run_tool("learn", str(process.pid), "--for", "1s", "-o", "-"))
        finally:
            process.communicate()
        self.assertIn("no call sites, as there is too little to gain", subprocess.run(
            [self.hakmem, "learn", "--hakmem", self.library, "-o", policy, "--", "perl", "-e",
             "my @a = map { 'x' x $_ } 1 .. 2000"],
            stderr=subprocess.PIPE, text=True, check=True).stderr)
        self.assertEqual(len(policy.read_text().splitlines()), 2)

    def test_learn_writes_settings_that_gain(self):
        """Else a program that could take a sixth less time has to be searched by hand. Whether a setting gains depends
        on what a miss costs here, beside the rest of the program; gains.rs has the rule and a program's statistics with
        made-up times."""
        program, policy = self.place / "growing", self.place / "growing.policy"
        subprocess.run(["gcc", "-O1", "-fno-builtin", "-Wl,--build-id", "-o", program, HERE / "profile" / "growing.c"],
                       check=True)
        for rounds, most in ("1000", 1), ("1", 0):
            self.run_tool("learn", "--hakmem", self.library, "-o", policy, "--", program, rounds)
            lines = [line for line in policy.read_text().splitlines() if line.startswith("set ")]
            self.assertLessEqual(len(lines), most, lines)
            for line in lines:
                self.assertRegex(line, r"^set carve_bytes:512=16384 # \S+ [kM] misses bring [78]\.\d blocks each: ")
        policy.write_text("hakmem policy 1\nset carve_bytes:512=16384\n")
        said = subprocess.run([program, "1"], env={**os.environ, "LD_PRELOAD": self.library,
                                                   "HAKMEM_POLICY": str(policy)},
                              stderr=subprocess.PIPE, text=True, check=True)
        self.assertEqual(said.stderr, "", "the library takes such a line")

    def test_functions_of_python_are_named(self):
        """Else a Python program's memory is all _PyEval_EvalFrameDefault's."""
        directory = self.place / "päth €"
        directory.mkdir(exist_ok=True)
        script = shutil.copy(HERE / "profile" / "leaking.py", directory)
        lines = marked_lines(script)
        pythons = known_pythons()
        if not pythons:
            self.skipTest("no CPython 3.9 to 3.13")

        def start(python, name, **options):
            environment = {**os.environ, "LD_PRELOAD": self.library, "HAKMEM_PROFILE_BYTES": str(INTERVAL),
                           "HAKMEM_PROFILE_RATE": "0", "LC_ALL": "C.UTF-8",
                           "HAKMEM_PROFILE_FILE": str(self.place / name), **options}
            return subprocess.Popen([python, script, "2000"], env=environment, stdin=subprocess.DEVNULL,
                                    stdout=subprocess.DEVNULL)
        running = [start(python, f"python-{at}-%p.txt") for at, python in enumerate(pythons)]
        running.append(start(pythons[0], "python-off-%p.txt", HAKMEM_PROFILE_PYTHON="0"))
        self.assertEqual([process.wait(1200) for process in running], [0] * len(running))
        for at, (python, process) in enumerate(zip(pythons, running)):
            written = self.place / f"python-{at}-{process.pid}.txt"
            found = json.loads(self.run_tool("flame", written, "--json", "--metric", "alloc_space"))
            sites = {site["line"]: site for site in found["sites"] if site["file"] == script}
            for mark, function, allocated, block in [("LEAK", "request", 2000 * 3000, 3000),
                                                     ("PARTS", "größe", 40 * 4000, 4000),
                                                     ("CALLED BACK", "weigh", 500 * 2250, 2250)]:
                self.assertIn(lines[mark], sites, (python, mark))
                site = sites[lines[mark]]
                self.assertIn(function, site["function"], python)
                self.assert_near(site["allocated"]["bytes"], allocated, block, f"{mark} in {python}")
            callers = [frame["function"] for frame in sites[lines["CALLED BACK"]]["callers"]]
            self.assertEqual([name for name in callers if name in ("serve", "<module>")], ["serve", "<module>"], python)
            folded = self.place / "python.folded"

            def fold():  # an interpreter with debug information of its own may take longer than names may
                self.run_tool("flame", written, "-o", folded, "--metric", "alloc_space")
                return folded.read_text()
            below = r"(?m);<module>;serve;(Service\.)?request;[^;]"
            self.assertRegex(self.until(lambda text: re.search(below, text), *[fold] * 20), below,
                             "what C does is below")
            self.assertNotIn(";_PyEval_EvalFrameDefault;", folded.read_text())
        written = self.place / f"python-off-{running[-1].pid}.txt"
        self.assertNotIn("leaking.py", self.run_tool("flame", written, "--metric", "alloc_space"))

    def test_a_leak_of_python_is_named_while_it_runs(self):
        """Else whoever runs a service in Python must restart it with another tool."""
        pythons, script = known_pythons(), HERE / "profile" / "leaking.py"
        if not pythons:
            self.skipTest("no CPython 3.9 to 3.13")
        process = subprocess.Popen([pythons[0], script, "10"], env={**os.environ, "LD_PRELOAD": self.library},
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            self.assertEqual(process.stdout.readline(), "ready\n")
            text = self.until(lambda text: ".py:" in text, *(lambda time=time: self.run_tool(
                "leak", process.pid, "--for", time, "--bytes", "4K") for time in ("2s", "10s", "100s")))
            first = next(line for line in text.splitlines() if ".py:" in line)
            self.assertRegex(first, rf"request at leaking\.py:{marked_lines(script)['LEAK']}$", text)
        finally:
            process.stdin.close()
            process.wait()
            process.stdout.close()

    def test_javascript_is_named_from_the_map_of_its_compiler(self):
        """Else a leak of buffers is V8's, whoever keeps them."""
        node = shutil.which("node")
        if not node:
            self.skipTest("no node")
        script = self.place / "leaking.js"
        script.write_text("""const held = [];
            function request() {
                held.push(Buffer.alloc(100000, 1));
            }
            function serve() { for (let i = 0; i < 10; i++) request(); }
            for (let i = 0; i < 30; i++) serve();
            console.log('ready');
            process.stdin.on('end', () => process.exit(0)).resume();
            """)
        process = subprocess.Popen([node, "--perf-basic-prof", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   text=True,
                                   env={**os.environ, "LD_PRELOAD": self.library, "HAKMEM_PROFILE": "1"},
                                   cwd=self.place)
        try:
            self.assertEqual(process.stdout.readline(), "ready\n")
            first = json.loads(self.run_tool("flame", process.pid, "--json"))["sites"][0]
            self.assertEqual((first["function"], first["file"], first["line"]), ("request", str(script), 2))
            self.assertEqual(first["callers"][0]["function"], "serve")
        finally:
            process.stdin.close()
            process.wait()
            process.stdout.close()
            pathlib.Path(f"/tmp/perf-{process.pid}.map").unlink(missing_ok=True)

    def test_refuses_in_one_line(self):
        (self.place / "text").write_text("nothing\n")
        (self.place / "short.pb.gz").write_bytes(self.live.read_bytes()[:200])
        (self.place / "cut.txt").write_text(self.at_exit.read_text().split("\nmaps\n")[0])
        (self.place / "half.txt").write_text("".join(self.at_exit.read_text().splitlines(keepends=True)[:-3]))
        ended = subprocess.Popen(["true"])
        ended.wait()
        for arguments, wanted in {
            ("flame", "absent"): "no process is named absent, and there is no such file",
            ("flame", "text"): "neither a pprof profile nor",
            ("flame", "short.pb.gz"): "is damaged",
            ("flame", "cut.txt"): "is cut short",
            ("flame", "half.txt"): "is cut short",
            ("flame", str(os.getpid())): f"PID {os.getpid()} does not run HAKMEM",
            ("profile", "dump", str(ended.pid)): f"no process {ended.pid}",
            ("profile", "start", str(ended.pid)): f"no process {ended.pid}",
            ("flame", str(self.live), "-o", "x.json"): "the name does not say the format",
            ("diff", str(self.live), str(self.live), "-o", "x.folded"): "a difference is written as",
        }.items():
            text = self.run_tool(*arguments, status=2)
            self.assertIn(wanted, text)
            self.assertEqual(len(text.strip().splitlines()), 1, text)

    def test_a_file_that_cannot_be_written_is_reported(self):
        path = self.place / "absent" / "file"
        environment = {**os.environ, "LD_PRELOAD": self.library, "HAKMEM_PROFILE_FILE": str(path)}
        done = subprocess.run(["true"], env=environment, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, f"hakmem: cannot write HAKMEM_PROFILE_FILE={path}\n"))

    def test_a_program_that_ends_meanwhile(self):
        """Whatever moment it ends at: a profile or one line, nothing else."""
        for _ in range(5):
            with Planted(self.program, PROFILE=1, PROFILE_BYTES=INTERVAL) as planted:
                tool = subprocess.Popen([self.hakmem, "flame", planted.pid], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
                planted.process.kill()
                out, error = tool.communicate(timeout=1200)
            if tool.returncode == 0:
                self.assertIn("in use", out)
            else:
                self.assertEqual((tool.returncode, len(error.strip().splitlines())), (2, 1), error)

    def test_pages_in_a_browser(self):
        page, other, drawing = self.place / "live.html", self.place / "diff.html", self.place / "live.svg"
        self.run_tool("flame", self.live, "-o", page, "-o", drawing)
        self.run_tool("diff", self.live, self.grown, "-o", other)
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
            browser = Browser(profile)
            try:
                self.look_at(browser, page, other, drawing)
            finally:
                browser.close()

    def look_at(self, browser, page, other, drawing):
        for name, width, dark in (("light", 1280, False), ("dark", 1280, True), ("phone", 360, False)):
            browser.open(page, width=width, dark=dark)
            self.assertEqual(browser.complaints(), [])
            browser.screenshot(self.place / f"{name}.png")
            wide = browser.run("document.documentElement.scrollWidth - innerWidth")
            self.assertLessEqual(wide, 0, f"{name}: the page does not scroll sideways")
        browser.open(page)
        self.assertEqual([one for one in browser.addresses() if not one.startswith("file:")], [])
        width = """(part) => { const one = [...document.querySelectorAll(".flame > *")].find((one) =>
            one.title.includes(part)); const of = one.parentElement.getBoundingClientRect();
            return one.hidden ? 0 : one.getBoundingClientRect().width / of.width; }"""
        found, whole = self.sites(self.live)
        total = whole["totals"]
        share = found["LEAK"]["in_use"]["bytes"] / total["inuse_space"]
        self.assertAlmostEqual(browser.run(f"({width})('Cache::leak')"), share, delta=0.01)
        self.assertEqual(browser.run(f"({width})('temporary')"), 0, "nothing of it is in use")
        browser.run("""(() => { const select = document.querySelector(".tools select"); select.value = "2";
            select.dispatchEvent(new Event("change")); })()""")
        share = found["TEMPORARY"]["allocated"]["bytes"] / total["alloc_space"]
        self.assertAlmostEqual(browser.run(f"({width})('temporary')"), share, delta=0.01)
        browser.run("""[...document.querySelectorAll(".flame > *")].find((one) =>
            one.title.includes("temporary")).click()""")
        self.assertAlmostEqual(browser.run(f"({width})('temporary')"), 1, delta=0.01)
        self.assertIn("temporary", browser.run("document.querySelector('.status').textContent"))
        browser.run("document.querySelector('.tools button').click()")
        self.assertAlmostEqual(browser.run(f"({width})('temporary')"), share, delta=0.01)
        row = browser.run("""[...document.querySelector("table.sites").tBodies[0].rows[0].cells].map((one) =>
            [one.textContent, Number(one.dataset.value)])""")
        self.assertIn(f"planted.cc:{line_of('LEAK')}", row[0][0])
        self.assertEqual(row[2][1], found["LEAK"]["in_use"]["bytes"])
        browser.open(other)
        self.assertEqual(browser.complaints(), [])
        browser.screenshot(self.place / "diff.png")
        browser.open(drawing)
        self.assertEqual(browser.complaints(), [])
        browser.screenshot(self.place / "svg.png")
        self.assertIn("Cache::leak", browser.run("document.documentElement.textContent"))
        browser.call("Emulation.setScriptExecutionDisabled", value=True)
        browser.open(page)
        browser.call("Emulation.setScriptExecutionDisabled", value=False)
        self.assertEqual(browser.complaints(), [])
        self.assertGreater(browser.run("document.querySelectorAll('.flame > *').length"), 10)


def check_speedscope(test, document):
    """What https://www.speedscope.app/file-format-schema.json asks for."""
    test.assertEqual(document["$schema"], "https://www.speedscope.app/file-format-schema.json")
    frames = document["shared"]["frames"]
    for frame in frames:
        test.assertIsInstance(frame["name"], str)
        test.assertLessEqual(set(frame), {"name", "file", "line", "col"})
        test.assertIsInstance(frame.get("line", 0), int)
    test.assertEqual(len(document["profiles"]), 6)
    for profile in document["profiles"]:
        test.assertEqual(set(profile), {"type", "name", "unit", "startValue", "endValue", "samples", "weights"})
        test.assertEqual(profile["type"], "sampled")
        test.assertIn(profile["unit"], ("bytes", "none"))
        test.assertEqual(len(profile["samples"]), len(profile["weights"]))
        test.assertTrue(all(0 <= number < len(frames) for stack in profile["samples"] for number in stack))
        test.assertEqual(profile["endValue"] - profile["startValue"], sum(profile["weights"]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("hakmem")
    parser.add_argument("library")
    parser.add_argument("--keep")
    options, rest = parser.parse_known_args()
    Profiles.hakmem = str(pathlib.Path(options.hakmem).resolve())
    Profiles.library = str(pathlib.Path(options.library).resolve())
    Profiles.keep = options.keep
    unittest.main(argv=sys.argv[:1] + rest)
