#!/usr/bin/env python3
"""Installs the programs of programs.toml and runs each under glibc's malloc and with the library preloaded.

usage: soak.py --library LIBRARY [--commit NAME] [--results FILE] [--quick] [--jobs N] [--again] [PROGRAM…]

1. A program's session is a shell script, with a server beside it if it has one, as the user nobody in an empty folder.
2. It passes if under both the status is 0, the output is the same and holds what programs.toml expects, the processes
   that the witness must see call the right malloc, and the library printed nothing.
3. Its peak is what its largest process had resident at most, as the kernel counts it, or the highest sum of the PSS of
   all its processes, in samples 50 ms apart, if that is more. A server's idle memory is that sum two seconds after the
   work.
4. Results are kept in FILE. What was run with the same version, session and library is not run again; --again does.
   --quick runs what programs.toml marks as quick, and does not wait for idle memory.
"""
# SPDX-License-Identifier: MIT

import argparse
import concurrent.futures
import contextlib
import dataclasses
import datetime
import functools
import glob
import hashlib
import inspect
import json
import os
import pathlib
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import tomllib

import inputs

HERE = pathlib.Path(__file__).resolve().parent
PROJECT = HERE.parent.parent
FETCHED = PROJECT / "build" / "programs"  # what comes from pip and npm
TABLE = HERE / "programs.toml"
AS_ROOT = [] if os.geteuid() == 0 else ["sudo", "-n"]
LIBC = "libc.so.6"  # preloaded, it comes before a malloc that the program is linked with
IDLE_SECONDS = 2
SAMPLE_SECONDS = 0.05
SIDES = ("glibc", "hakmem")
TAIL = 1500


class Failure(Exception):
    """One or more lines that say what went wrong."""


@dataclasses.dataclass(frozen=True)
class Program:
    """A row of programs.toml, whose opening says what each field means."""
    kind: str
    name: str
    packages: str
    probe: str
    run: str
    expect: str
    pip: str = ""
    npm: str = ""
    server: str = ""
    ready: str = ""
    stop: str = "TERM"
    witness: str = ""
    says: str = ""
    note: str = ""
    seconds: int = 1800
    root: bool = False
    quick: bool = False

    def found(self):
        """The file that the probe names, or None."""
        files = sorted(glob.glob(str(FETCHED / self.probe)))  # an absolute probe stays as it is
        return files[-1] if files else None

    def digest(self):
        """A digest of all that a session depends on."""
        text = repr(dataclasses.replace(self, note="", seconds=0)) + inspect.getsource(inputs)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def read_table(text):
    return [Program(kind=kind, name=name, **row)
            for kind, rows in tomllib.loads(text).items() for name, row in rows.items()]


# ---- installing ----

def run_quietly(*command, **options):
    return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False, **options)


@functools.cache
def update_lists():
    return run_quietly(*AS_ROOT, "apt-get", "-qq", "update").returncode


@contextlib.contextmanager
def no_services():
    """While packages are installed, Debian starts no server of theirs."""
    policy = pathlib.Path("/usr/sbin/policy-rc.d")
    ours = os.geteuid() == 0 and not policy.exists()
    if ours:
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)
    try:
        yield
    finally:
        if ours:
            policy.unlink()


def known_package(names):
    """Of NAME|NAME… the first that apt can install."""
    for name in names.split("|"):
        if re.search(r"Candidate: [^(]", run_quietly("apt-cache", "policy", name).stdout):
            return name
    return names.split("|")[0]


def not_installed(packages):
    """Of NAME|NAME…, those of which none is installed."""
    names = [name for choice in packages.split() for name in choice.split("|")]
    lines = run_quietly("dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n", *names).stdout.splitlines()
    there = {line.split()[0] for line in lines if line.endswith(" installed")}
    return [choice for choice in packages.split() if not there & set(choice.split("|"))]


def install(program):
    """Returns None, or why the program is not there."""
    steps = []
    packages = program.packages + (" npm" if program.npm and not shutil.which("npm") else "")
    if wanted := not_installed(packages) if packages else []:
        update_lists()
        steps.append([*AS_ROOT, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq",
                      "-o", "DPkg::Lock::Timeout=300", "--no-remove", "--no-install-recommends", "install",
                      *map(known_package, wanted)])
    if program.pip and not program.found():
        steps += [["/usr/bin/python3", "-m", "venv", "--system-site-packages", FETCHED],
                  [FETCHED / "bin/pip", "install", "--quiet", "--disable-pip-version-check", *program.pip.split()]]
    if program.npm and not program.found():
        steps.append(["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", FETCHED,
                      *program.npm.split()])
    FETCHED.mkdir(parents=True, exist_ok=True)
    with no_services():
        for step in steps:
            done = run_quietly(*map(str, step))
            if done.returncode:
                return (done.stdout.strip().splitlines() or [f"status {done.returncode}"])[-1]
    return None if program.found() else f"{program.probe} is not there after the installation"


def version(program):
    """The version of what holds the probe: a Debian package, or a module of pip or npm."""
    file = pathlib.Path(program.found())
    if FETCHED in file.parents:
        if program.npm:
            return json.loads((file / "package.json").read_text())["version"]
        return re.search(r"-([0-9][^-]*)\.dist-info", str(file)).group(1)
    files = (str(file.resolve()), str(file), str(file.resolve()).removeprefix("/usr"))  # bash lies in /bin for dpkg
    found = (run_quietly("dpkg-query", "-S", name) for name in files)
    owner = next((run.stdout.split(":")[0].split(",")[0] for run in found if run.returncode == 0), None)
    text = run_quietly("dpkg-query", "-W", "-f", "${Version}", owner).stdout if owner else "?"
    return text.split(":", 1)[-1]


# ---- processes ----

def descendants(root):
    """The PIDs of all processes below that one."""
    children = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                text = pathlib.Path("/proc", name, "stat").read_text()
                children.setdefault(int(text.rpartition(")")[2].split()[1]), []).append(int(name))
    found, todo = [], [root]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def pss_kib(pids):
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            found = re.search(r"^Pss: +(\d+)", pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
            total += int(found.group(1)) if found else 0
    return total


class Kept:
    """A script that runs under the keeper, with everything that it starts."""

    def __init__(self, side, name, script):
        self.name, self.report = name, side.outside / f"{name}.report"
        self.files = {stream: side.outside / f"{name}.{stream}" for stream in ("out", "err")}
        self.report.unlink(missing_ok=True)
        with open(self.files["out"], "wb") as out, open(self.files["err"], "wb") as err:
            self.process = subprocess.Popen(
                [side.keeper, self.report, "env", f"LD_PRELOAD={side.preload}", "/bin/sh", "-ec", script],
                cwd=side.directory, env=side.environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                start_new_session=True)
        self.peak_kib = 0
        self.done = threading.Event()
        self.sampler = threading.Thread(target=self.sample, daemon=True)
        self.sampler.start()

    def sample(self):
        while not self.done.wait(SAMPLE_SECONDS):
            self.peak_kib = max(self.peak_kib, pss_kib(descendants(self.process.pid)))

    def numbers(self):
        """What the keeper has reported so far."""
        return [int(word) for word in self.report.read_text().split()] if self.report.exists() else []

    def text(self, stream):
        return self.files[stream].read_text(errors="replace")

    def wait(self, seconds):
        """Waits for the script. Returns its status, or None if it has not ended by then."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if len(self.numbers()) > 1:
                return self.numbers()[1]
            time.sleep(0.02)
        return None

    def end(self):
        """Ends what the script has left behind, and with that the keeper."""
        for number, seconds in ((signal.SIGTERM, 5), (signal.SIGKILL, 600)):
            for pid in descendants(self.process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(seconds)
                break
        self.done.set()
        self.sampler.join()
        self.peak_kib = max(self.peak_kib, self.numbers()[-1])


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def answers(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


# ---- one side ----

class Side:
    """One program under one malloc: its folder, which is the same for both, its environment and its processes."""

    def __init__(self, program, kit, library, idle_seconds):
        self.program, self.library, self.idle_seconds = program, library, idle_seconds
        self.keeper = kit / "keeper"
        self.preload = f"{library or LIBC}:{kit / 'witness.so'}"
        self.directory, self.outside = kit / "here" / program.name, kit / "outside" / program.name
        for folder in (self.directory, self.outside):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        self.witnessed = self.outside / "witness"
        self.witnessed.touch()
        self.witnessed.chmod(0o666)
        self.port, port2 = free_port(), free_port()
        self.environment = {
            "PATH": f"{FETCHED}/bin:{FETCHED}/node_modules/.bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8",
            "TZ": "UTC", "HOME": str(self.directory), "TMPDIR": str(self.directory), "IN": str(kit / "inputs"),
            "PORT": str(self.port), "PORT2": str(port2), "PROBE": program.found(), "USER": "root", "SHELL": "/bin/sh",
            "WITNESS_FILE": str(self.witnessed)}

    def script(self, text):
        """Root's scripts run as they are, others as nobody; only root can choose."""
        if os.geteuid() != 0 or self.program.root:
            return text
        who = pwd.getpwnam("nobody")
        os.chown(self.directory, who.pw_uid, who.pw_gid)
        self.environment |= {"USER": "nobody", "LOGNAME": "nobody", "SCRIPT": text}
        return 'exec setpriv --reuid=nobody --regid=nogroup --clear-groups /bin/sh -ec "$SCRIPT"'

    def start(self, name, text):
        return Kept(self, name, self.script(text))

    def run(self):
        """Returns the results, without `problem` if all went well."""
        start, result, server = time.monotonic(), {}, None
        try:
            if self.program.server:
                server = self.start("server", self.program.server)
                self.wait_until_ready(server)
            result["output"] = self.work(server is None, result)
            if server:
                if self.idle_seconds:
                    time.sleep(self.idle_seconds)
                    result["idle_kib"] = pss_kib(descendants(server.process.pid))
                self.stop(server, result)
            self.check_witness()
        except Failure as failure:
            result["problem"] = str(failure)
        finally:
            if server:
                server.end()
                result["peak_kib"] = server.peak_kib
        result["seconds"] = round(time.monotonic() - start, 1)
        return result

    def wait_until_ready(self, server):
        def ready():
            if not self.program.ready:
                return answers(self.port)
            return subprocess.run(["/bin/sh", "-c", script], cwd=self.directory, env=self.environment,
                                  stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode == 0
        script = self.script(self.program.ready)
        for _ in range(6000):
            if len(server.numbers()) > 1:
                raise Failure(self.described(server, f"ended early with status {server.numbers()[1]}"))
            if ready():
                return
            time.sleep(0.1)
        raise Failure(self.described(server, "not ready after ten minutes"))

    def work(self, alone, result):
        """Runs the session; returns its output."""
        session = self.start("session", self.program.run)
        try:
            status = session.wait(self.program.seconds)
        finally:
            session.end()
        if alone:
            result["peak_kib"] = session.peak_kib
        if status != 0:
            what = f"not finished after {self.program.seconds} s" if status is None else f"status {status}"
            raise Failure(self.described(session, what))
        self.check_silence(session)
        output = session.text("out")
        for name in ("PORT", "PORT2"):
            output = re.sub(rf"\b{self.environment[name]}\b", name, output)
        if not re.search(self.program.expect, output, re.MULTILINE):
            raise Failure(self.described(session, f"the output lacks {self.program.expect!r}"))
        return output

    def stop(self, server, result):
        """Stops the server, by a signal or a command."""
        if len(server.numbers()) > 1:
            raise Failure(self.described(server, f"ended with status {server.numbers()[1]} before it was stopped"))
        if self.program.stop.isupper():
            os.kill(server.numbers()[0], signal.Signals["SIG" + self.program.stop])
        else:
            self.start("stop", self.program.stop).end()
        result["status"] = server.wait(600)
        if result["status"] is None:
            raise Failure(self.described(server, "not stopped after ten minutes"))
        self.check_silence(server)

    def check_silence(self, kept):
        logs = [file.read_text(errors="replace") for file in self.directory.glob("*.log") if file.is_file()]
        for text in (kept.text("out"), kept.text("err"), *logs):
            for line in re.findall("hakmem: [^ ].*", text):  # two spaces: a further line about the same
                if not self.program.says or not re.search(self.program.says, line):
                    raise Failure(f"{kept.name}: the library printed: {line[:500]}")

    def check_witness(self):
        """Raises an exception unless the named programs were seen, and call the right malloc."""
        lines = [line.split("\t") for line in self.witnessed.read_text(errors="replace").splitlines()]
        seen = {}
        for _, program, file in lines:
            seen.setdefault(os.path.basename(program), set()).add(file)
        for name in (self.program.witness or os.path.basename(os.path.realpath(self.program.found()))).split():
            if name == "-":
                continue
            if name not in seen:
                raise Failure(f"no process of {name} was seen; seen: {', '.join(sorted(seen)) or 'none'}")
            if wrong := {file for file in seen[name] if not file.endswith(str(self.library or LIBC))}:
                raise Failure(f"{name} calls malloc of {', '.join(sorted(wrong))}")

    def described(self, kept, what):
        text = "\n".join(part[-TAIL:].strip() for part in (kept.text("out"), kept.text("err")))
        logs = [f"{file.name}: {file.read_text(errors='replace')[-TAIL:]}" for file in self.directory.glob("*.log")
                if file.is_file()]
        return "\n".join([f"{kept.name}: {what}", text, *logs]).strip()


# ---- both sides ----

def first_difference(theirs, ours):
    for number, pair in enumerate(zip(theirs.splitlines() + ["(end)"], ours.splitlines() + ["(end)"]), 1):
        if pair[0] != pair[1]:
            return f"line {number} under glibc: {pair[0][:300]}\npreloaded: {pair[1][:300]}"
    return "in line ends"


def judge(theirs, ours):
    """What is wrong with a program that ran under both, or None."""
    if "problem" in theirs:
        return f"under glibc: {theirs['problem']}"
    if "problem" in ours:
        return f"preloaded: {ours['problem']}"
    if theirs.get("status") != ours.get("status"):
        return f"the server ends with status {theirs.get('status')} under glibc and {ours.get('status')} preloaded"
    if theirs["output"] != ours["output"]:
        return f"the outputs differ: {first_difference(theirs['output'], ours['output'])}"
    return None


class Results:
    """What FILE holds: for each program its version and session, and what it did on both sides."""

    def __init__(self, file, table=()):
        self.file = file
        old = json.loads(file.read_text())["programs"] if file and file.exists() else {}
        self.rows = {program.name: old[program.name] for program in table if program.name in old}

    def is_fresh(self, name, key, library, side):
        row = self.rows.get(name, {})
        return row.get("key") == key and "problem" not in row.get(side, {"problem": ""}) and \
            (side == "glibc" or (row.get("library") == library and not row.get("problem")))

    def keep(self, name, **row):
        self.rows[name] = row
        if self.file:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            beside = self.file.with_suffix(".new")
            beside.write_text(json.dumps({"programs": self.rows}, indent=1) + "\n")
            beside.replace(self.file)


class Soak:
    """All programs, one after the other."""

    def __init__(self, arguments, table, kit):
        self.arguments, self.kit = arguments, kit
        self.library = kit / "library.so"
        self.digest = hashlib.sha256(self.library.read_bytes()).hexdigest()[:16]
        self.results = Results(arguments.results, table)
        self.lock = threading.Lock()
        self.failed = 0

    def line(self, program, problem, text=""):
        self.failed += bool(problem)
        print(f"{'FAIL' if problem else 'ok  '} {program.name:<16}{text}", flush=True)
        if problem:
            print("\n".join("       " + line for line in problem.splitlines()), flush=True)

    def sides(self, program, key):
        """The results of both mallocs, and whether both are old ones."""
        old = {} if self.arguments.again else self.results.rows.get(program.name, {})
        idle_seconds = 0 if self.arguments.quick else IDLE_SECONDS
        is_fresh = all(self.results.is_fresh(program.name, key, self.digest, side) for side in SIDES)
        kept = SIDES if old and is_fresh else ()  # both anew, since PSS depends on what else runs at the time
        sides = {}
        for side in SIDES:
            if not any("problem" in done for done in sides.values()):
                library = self.library if side == "hakmem" else None
                sides[side] = old[side] if side in kept else Side(program, self.kit, library, idle_seconds).run()
        return sides, bool(kept)

    def run(self, program):
        common = {"kind": program.kind, "note": program.note}
        if program.root and os.geteuid() != 0:
            print(f"     {program.name:<16}left out: needs root", flush=True)
            return
        with self.lock:
            if absent := install(program):
                self.results.keep(program.name, **common, absent=absent)
                self.line(program, f"not installed: {absent}")
                return
        common["version"] = version(program)
        key = f"{common['version']} {program.digest()}"
        sides, old = self.sides(program, key)
        if old:
            return
        problem = judge(sides["glibc"], sides.get("hakmem", {}))
        with self.lock:
            self.results.keep(program.name, **common, **sides, key=key, library=self.digest,
                              commit=self.arguments.commit, date=datetime.date.today().isoformat(),
                              **({"problem": problem} if problem else {}))
            self.line(program, problem, figures(sides))


def figures(sides):
    words = [f"{sum(side['seconds'] for side in sides.values()):7.1f} s"]
    for name in ("peak", "idle"):
        if all(sides.get(side, {}).get(name + "_kib") for side in SIDES):
            theirs, ours = (sides[side][name + "_kib"] / 1024 for side in SIDES)
            words.append(f"{name} {theirs:8.1f} {ours:8.1f} MiB {ours / theirs:5.2f}")
    return "   ".join(words)


def make_kit(kit, library):
    """The folder has the library, the witness, the keeper and the inputs, where nobody can read them."""
    kit.chmod(0o755)
    shutil.copy(library, kit / "library.so")
    shared = ["-shared", "-fPIC", "-Wl,-z,now"]
    for options, source, made in ((shared, "witness.c", "witness.so"), ([], "keeper.c", "keeper")):
        subprocess.run(["cc", "-O2", *options, str(HERE / source), "-o", str(kit / made)], check=True)
    inputs.write(kit / "inputs")


def main():
    parser = argparse.ArgumentParser(description="Runs real programs under glibc's malloc and under HAKMEM.")
    parser.add_argument("--library", required=True)
    parser.add_argument("--commit", default="")
    parser.add_argument("--results", type=pathlib.Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("programs", nargs="*")
    arguments = parser.parse_args()
    table = read_table(TABLE.read_text())
    if unknown := set(arguments.programs) - {program.name for program in table}:
        parser.error(f"no such program: {min(unknown)}")
    signal.signal(signal.SIGINT, signal.default_int_handler)
    kit = pathlib.Path(tempfile.mkdtemp(prefix="hakmem-soak-"))
    try:
        make_kit(kit, arguments.library)
        soak = Soak(arguments, table, kit)
        chosen = [program for program in table if program.name in arguments.programs or
                  (not arguments.programs and (program.quick or not arguments.quick))]
        with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
            try:
                for _ in pool.map(soak.run, chosen):
                    pass
            finally:
                pool.shutdown(cancel_futures=True)
    finally:
        shutil.rmtree(kit, ignore_errors=True)
    sys.exit(soak.failed > 0)


if __name__ == "__main__":
    main()
