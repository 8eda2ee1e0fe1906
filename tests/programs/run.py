#!/usr/bin/env python3
"""Runs real programs with and without a preloaded allocator, and compares their output.

usage: run.py --library LIBRARY [--jobs N] [PROGRAM…]

A program passes if, on both sides, every command ends with status 0 in time and the verdict (the part of the output
that the test keeps) is the same and not empty. On the preloaded side, every process that started must also call the
library's malloc, as witness.c finds out from its /proc/PID/maps, and the expected programs must be among them.
Prints one line for each program: `ok`, or `FAIL` with everything needed to see why.
"""
# SPDX-License-Identifier: MIT

import argparse
import concurrent.futures
import contextlib
import glob
import hashlib
import os
import pathlib
import pwd
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree

HERE = pathlib.Path(__file__).resolve().parent
PROJECT = HERE.parent.parent
TIMEOUT = 3000  # far beyond what anything takes, on a busy machine too
TAIL = 1500
PROGRAMS = {}


class Failure(Exception):
    """One or more lines that say what went wrong."""


class Side:
    """One program on one side: its scratch directory, environment and witness."""

    def __init__(self, name, scratch, witness, library):
        self.library = library
        self.directory = scratch / f"{name}-{'preloaded' if library else 'system'}"
        self.directory.mkdir()
        self.witnessed = self.directory / "witness"
        self.witnessed.touch()
        self.witnessed.chmod(0o666)
        self.user = None
        self.environment = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "TZ": "UTC", "HOME": str(self.directory),
            "TMPDIR": str(self.directory), "WITNESS_FILE": str(self.witnessed),
            "LD_PRELOAD": f"{library}:{witness}" if library else str(witness)}

    def be_unprivileged(self):
        """Makes later commands run as nobody, who owns the directory. Without root nothing changes."""
        if os.geteuid() == 0:
            self.user = pwd.getpwnam("nobody")
            os.chown(self.directory, self.user.pw_uid, self.user.pw_gid)

    def start(self, *command, **options):
        who = {"user": self.user.pw_uid, "group": self.user.pw_gid, "extra_groups": []} if self.user else {}
        return subprocess.Popen([str(word) for word in command], cwd=self.directory, env=self.environment,
                                start_new_session=True, **who, **options)

    def run(self, *command, stdin=subprocess.DEVNULL, env=None, timeout=TIMEOUT):
        """Returns the standard output of a command that must succeed. `stdin` is a file, a text, or nothing."""
        text = stdin.encode() if isinstance(stdin, str) else None
        saved, self.environment = self.environment, {**self.environment, **(env or {})}
        process = self.start(*command, stdin=subprocess.PIPE if text is not None else stdin, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE)
        self.environment = saved
        try:
            output, errors = process.communicate(text, timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, errors = process.communicate()
            raise Failure(describe(command, f"not finished after {timeout} s", output, errors)) from None
        if process.returncode != 0 or b"hakmem:" in errors:
            raise Failure(describe(command, f"status {process.returncode}", output, errors))
        return output.decode(errors="replace")

    @contextlib.contextmanager
    def server(self, *command):
        """Runs a server. The caller has to end it, and its status must be 0."""
        log = self.directory / "server.log"
        with open(log, "wb") as file:
            process = self.start(*command, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
        try:
            yield process
            status = process.wait(TIMEOUT)
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise Failure(f"{error}\nserver log:\n{log.read_text(errors='replace')[-TAIL:]}") from error
        text = log.read_text(errors="replace")
        if status != 0 or "hakmem:" in text:
            raise Failure(describe(command, f"server ended with status {status}", text.encode(), b""))

    def check_witness(self, expected):
        """Raises an exception unless every process called the right malloc."""
        lines = [line.split("\t") for line in self.witnessed.read_text().splitlines()]
        seen = {os.path.basename(program) for _, program, _ in lines}
        if missing := [name for name in expected if name not in seen]:
            raise Failure(f"no process of {', '.join(missing)} was seen; seen: {', '.join(sorted(seen)) or 'none'}")
        for pid, program, file in lines:
            if (file == str(self.library)) != bool(self.library):
                raise Failure(f"process {pid} ({program}) calls malloc of {file}")


def describe(command, what, output, errors):
    words = " ".join(str(word) for word in command)
    text = b"\n".join(part[-TAIL:] for part in (output, errors)).decode(errors="replace").strip()
    return f"{words[:200]}: {what}\n{text}"


def wait_until(ready, process):
    """Waits until `ready` returns true. Gives up if the server has ended."""
    for _ in range(6000):
        if process.poll() is not None:
            raise Failure("the server ended early")
        if ready():
            return
        time.sleep(0.1)
    raise Failure("the server is not ready after ten minutes")


def digest(text):
    return hashlib.sha256(text if isinstance(text, bytes) else text.encode()).hexdigest()


def program(name, needs, witnesses):
    """Registers a test: a function from a side to a verdict. `needs` lists patterns of files that must exist."""
    def register(function):
        PROGRAMS[name] = (function, needs, witnesses)
        return function
    return register


# ---- the programs ----

# Tests of CPython's in which its clock decides: what times out in how long, and who gets a lock after a rest of 10 ms.
PYTHON_BY_CLOCK = [f"*{name}*" for name in ("timeout", "LockTests.", "EventTests.", "ConditionTests.",
                                            "ConditionAsRLockTests.", "SemaphoreTests.", "BarrierTests.")]


@program("python", ["/usr/bin/python3.11", "/usr/lib/python3.11/test/test_dict.py"], ["python3.11"])
def python(side):
    report = side.directory / "report.xml"
    ignored = [word for pattern in PYTHON_BY_CLOCK for word in ("--ignore", pattern)]
    side.run("/usr/bin/python3.11", "-m", "test", *ignored, f"--junit-xml={report}", "test_dict", "test_list",
             "test_json", "test_threading", "test_subprocess", "test_gc", env={"PYTHONMALLOC": "malloc"})
    return "\n".join(sorted(f"{case.get('name')} {case.get('result')} {' '.join(child.tag for child in case)}"
                            for case in xml.etree.ElementTree.parse(report).iter("testcase")))


@program("sqlite3", ["/usr/bin/sqlite3"], ["sqlite3"])
def sqlite3(side):
    script = side.directory / "work.sql"
    generator = random.Random(1)
    with open(script, "w", encoding="ascii") as file:
        file.write(".bail on\ncreate table t(id integer primary key, kind int, body text);\nbegin;\n")
        while file.tell() < 100_000_000:
            file.write(f"insert into t(kind, body) values ({generator.randrange(500)}, "
                       f"'{generator.randbytes(generator.randrange(20, 1000)).hex()}');\n")
        file.write("commit;\ncreate index k on t(kind, substr(body, 1, 20));\n"
                   "update t set body = body || 'more' where kind % 7 = 0;\ndelete from t where kind % 5 = "
                   "0;\nvacuum;\n"
                   "select kind, count(*), sum(length(body)), max(body) from t group by kind order by 3 desc limit "
                   "20;\n"
                   "select count(*) from t a join t b on a.kind = b.kind and substr(a.body, 1, 20) < substr(b.body, 1, "
                   "20)"
                   " where a.kind < 20;\npragma integrity_check;\n.sha3sum\n")
    with open(script, "rb") as file:
        verdict = side.run("/usr/bin/sqlite3", ":memory:", stdin=file)
    script.unlink()
    return verdict


@program("g++", ["/usr/bin/g++", "/usr/include/gtest/gtest.h"], ["cc1plus", "x86_64-linux-gnu-as"])
def gxx(side):
    sources = sorted((PROJECT / "tests/unit").glob("*_test.cc"), key=lambda path: path.stat().st_size)
    result = side.directory / "test.o"
    side.run("/usr/bin/g++", "-std=c++17", "-O2", "-D_GNU_SOURCE", f"-I{PROJECT}/include", f"-I{PROJECT}/src",
             f"-I{PROJECT}/tests", "-c", sources[-1], "-o", result)
    return digest(result.read_bytes())


def history(commits):
    """Yields a repository in the input format of `git fast-import`."""
    generator = random.Random(2)
    files = {f"dir{number % 12}/file{number}.txt": [] for number in range(150)}
    for commit in range(commits):
        yield (f"commit refs/heads/main\ncommitter A <a@example.org> {1_600_000_000 + commit * 60} +0000\n"
               f"data <<END\nChange {commit}\n\n{generator.randbytes(20).hex()}\nEND\n")
        for path in generator.sample(sorted(files), 4):
            lines = files[path]
            lines.insert(generator.randrange(len(lines) + 1), generator.randbytes(generator.randrange(5, 60)).hex())
            text = "\n".join(lines) + "\n"
            yield f"M 100644 inline {path}\ndata {len(text)}\n{text}\n"


@program("git", ["/usr/bin/git"], ["git"])
def git(side):
    def run(*words, **options):
        return side.run("/usr/bin/git", *words, **options)
    side.environment.update(GIT_CONFIG_NOSYSTEM="1")
    run("init", "--quiet", "--bare", "origin")
    run("-C", "origin", "fast-import", "--quiet", stdin="".join(history(2500)))
    run("-C", "origin", "symbolic-ref", "HEAD", "refs/heads/main")
    run("clone", "--quiet", "--no-local", "origin", "clone")
    log = run("-C", "clone", "log", "--stat", "-p")
    run("-C", "clone", "repack", "-a", "-d", "-f", "--quiet", "--threads=2", "--window=50")
    run("-C", "clone", "fsck", "--full", "--strict")
    objects = run("-C", "clone", "cat-file", "--batch-all-objects", "--batch-check")
    blame = run("-C", "clone", "blame", "dir0/file0.txt")
    return f"{run('-C', 'clone', 'rev-parse', 'HEAD')}{run('-C', 'clone', 'status')}" + \
        "\n".join(f"{text.count(chr(10))} {digest(text)}" for text in (log, objects, blame))


@program("perl", ["/usr/bin/perl"], ["perl"])
def perl(side):
    return side.run("/usr/bin/perl", HERE / "work.pl")


@program("lua", ["/usr/bin/lua5.4"], ["lua5.4"])
def lua(side):
    return side.run("/usr/bin/lua5.4", HERE / "work.lua")


@program("node", ["/usr/bin/node"], ["node"])
def node(side):
    return side.run("/usr/bin/node", HERE / "work.js")


# What a version is called, as a process's file is: php8.2, php-fpm8.2.
PHP, PHP_FPM = "/usr/bin/php", max(glob.glob("/usr/sbin/php-fpm[0-9]*"), default="/usr/sbin/php-fpm")


@program("php", [PHP], [os.path.basename(os.path.realpath(PHP))])
def php(side):
    inline = side.run(PHP, "-r", "foreach (get_loaded_extensions() as $name) echo $name, PHP_EOL;")
    return inline + "".join(side.run(PHP, HERE / "work.php", seed) for seed in (1, 2))


def fastcgi(path, **parameters):
    """Returns what a FastCGI server at the socket answers to one request."""
    def record(kind, content=b""):
        return struct.pack(">BBHHBx", 1, kind, 1, len(content), 0) + content

    def pair(name, value):
        return struct.pack(">BB", len(name), len(value)) + name.encode() + value.encode()
    begin, parameter, stdin, stdout, end = 1, 4, 5, 6, 3
    answer = b""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(TIMEOUT)
        connection.connect(str(path))
        named = b"".join(pair(name, str(value)) for name, value in parameters.items())
        connection.sendall(record(begin, struct.pack(">HB5x", 1, 0)) + record(parameter, named) + record(parameter) +
                           record(stdin))
        with connection.makefile("rb") as stream:
            while len(header := stream.read(8)) == 8:
                _, kind, _, length, padding = struct.unpack(">BBHHBx", header)
                content = stream.read(length + padding)[:length]
                answer += content if kind == stdout else b""
                if kind == end:
                    return answer.decode(errors="replace")
    raise Failure(f"the answer ends early:\n{answer[-TAIL:].decode(errors='replace')}")


@program("php-fpm", [PHP_FPM], [os.path.basename(PHP_FPM)])
def php_fpm(side):
    side.be_unprivileged()
    page, listens = side.directory / "work.php", side.directory / "php.sock"
    shutil.copy(HERE / "work.php", page)
    page.chmod(0o644)
    configuration = side.directory / "fpm.conf"
    configuration.write_text(f"[global]\nerror_log = {side.directory}/fpm.log\n[www]\nlisten = {listens}\npm = static\n"
                             "pm.max_children = 2\npm.max_requests = 5\n")

    def ready():
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
            return connection.connect(str(listens)) is None

    with side.server(PHP_FPM, "--nodaemonize", "--fpm-config", configuration) as server:
        wait_until(ready, server)
        answers = [fastcgi(listens, SCRIPT_FILENAME=page, QUERY_STRING=f"seed={seed % 3}", REQUEST_METHOD="GET")
                   for seed in range(20)]
        server.send_signal(signal.SIGQUIT)
    if "exited on signal" in (log := (side.directory / "fpm.log").read_text()):
        raise Failure(f"a worker crashed:\n{log[-TAIL:]}")
    return "\n".join(answers)


@program("redis", ["/usr/bin/redis-server", "/usr/bin/redis-benchmark"], ["redis-benchmark", "redis-check-rdb"])
def redis(side):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])

    def cli(*words, **options):
        return side.run("/usr/bin/redis-cli", "-p", port, *words, **options)

    def ready():
        with contextlib.suppress(Failure):
            return cli("ping") == "PONG\n"

    with side.server("/usr/bin/redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--io-threads", "2",
                     "--enable-debug-command", "local", "--dir", side.directory) as server:
        wait_until(ready, server)
        report = side.run("/usr/bin/redis-benchmark", "-p", port, "-n", "5000", "-c", "20", "-P", "8", "-r", "10000",
                          "-d", "300", "-q")
        verdict = re.findall(r"^(.*): [\d.]+ requests per second", report.replace("\r", "\n"), re.MULTILINE)
        cli("flushall", "async")
        generator = random.Random(3)
        commands = []
        for number in range(40000):
            commands.append(f"set key:{number} {generator.randbytes(generator.randrange(1, 300)).hex()}")
            commands.append(f"zadd sorted:{number % 97} {generator.randrange(10**6)} "
                            f"member:{generator.randrange(5000)}")
            commands.append(f"hset hash:{number % 1009} field:{generator.randrange(300)} {generator.random()}")
            commands.append(f"append key:{generator.randrange(number + 1)} {'x' * (1 + generator.randrange(50))}")
            commands.append(f"del key:{generator.randrange(number + 1)}")
        verdict.append(cli("--pipe", stdin="\r\n".join(commands) + "\r\n"))
        cli("bgsave")
        wait_until(lambda: "rdb_bgsave_in_progress:0" in cli("info", "persistence"), server)
        verdict += re.findall("rdb_last_bgsave_status:.*", cli("info", "persistence"))
        verdict += [cli("debug", "digest"), cli("dbsize"), cli("debug", "reload"), cli("debug", "digest")]
        cli("shutdown", "nosave")
    return "\n".join(verdict)


POSTGRES_QUERIES = """
create table t as select i, i % 1000 as k, md5(i::text) as m, repeat(md5((i * 7)::text), 1 + i % 20) as body
    from generate_series(1, 150000) i;
create index on t(m);
analyze t;
set work_mem = '64MB';
set min_parallel_table_scan_size = 0; set parallel_setup_cost = 0; set parallel_tuple_cost = 0;
select k, count(*), sum(length(body)), max(m) from t group by k order by 3 desc, 1 limit 10;
select count(*), md5(string_agg(m, ',' order by m desc)) from t where body ~ 'a[0-9]{3}f';
select count(*) from t a join t b on a.m = b.m and a.k = b.k;
select md5(string_agg(x::text, '' order by i)) from
    (select i, jsonb_build_object('id', i, 'tags', array_agg(m) over (partition by k order by i)) x
     from t where k < 20) s;
do $$ declare a text[] := '{}'; begin for n in 1 .. 3000 loop a := a || md5(n::text); end loop;
    create table u as select unnest(a) v; end $$;
select count(*), max(v) from u;
update t set body = body || body where k % 3 = 0;
delete from t where k % 4 = 0;
vacuum full t;
select count(*), sum(length(body)) from t;
"""


@program("postgres", ["/usr/lib/postgresql/*/bin/postgres"], ["initdb", "postgres", "pgbench", "psql"])
def postgres(side):
    side.be_unprivileged()
    binaries = pathlib.Path(max(glob.glob("/usr/lib/postgresql/*/bin")))
    data, where = side.directory / "data", ("-h", side.directory, "-U", "postgres")

    def ready():
        with contextlib.suppress(Failure):
            return side.run(binaries / "pg_isready", "-q", *where) == ""

    side.run(binaries / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")
    with side.server(binaries / "postgres", "-D", data, "-k", side.directory, "-c", "listen_addresses=",
                     "-c", "fsync=off", "-c", "shared_buffers=32MB") as server:
        wait_until(ready, server)
        side.run(binaries / "pgbench", "-i", "-s", "2", "-q", *where, "postgres")
        report = side.run(binaries / "pgbench", "-c", "4", "-j", "2", "-t", "250", *where, "postgres")
        verdict = re.findall("number of .*", report)
        verdict.append(side.run(binaries / "psql", "-X", "-v", "ON_ERROR_STOP=1", *where, "postgres",
                                stdin=POSTGRES_QUERIES))
        side.run(binaries / "pg_ctl", "stop", "-D", data, "-m", "fast", "-w")
    if "terminated by signal" in (log := (side.directory / "server.log").read_text()):
        raise Failure(f"a server process crashed:\n{log[-TAIL:]}")
    return "\n".join(verdict)


# ---- running them ----

def run_side(name, side):
    """Runs one program on one side. Returns (verdict, problem, seconds); verdict or problem is None."""
    function, _, witnesses = PROGRAMS[name]
    start = time.monotonic()
    verdict = problem = None
    try:
        verdict = function(side)
        if not verdict.strip():
            raise Failure("the output is empty")
        side.check_witness(witnesses)
    except Failure as failure:
        verdict, problem = None, str(failure)
    except Exception as error:  # an error in the test fails the program's line, not the whole run
        verdict, problem = None, f"{type(error).__name__}: {error}"
    return verdict, problem, time.monotonic() - start


def first_difference(ours, theirs):
    for one, other in zip(ours.splitlines() + ["(end)"], theirs.splitlines() + ["(end)"]):
        if one != other:
            return f"preloaded: {one[:500]}\nsystem:    {other[:500]}"
    return "in line ends"


class Reporter:
    """Prints a program's line once both of its sides are finished."""

    def __init__(self):
        self.lock = threading.Lock()
        self.sides = {}
        self.failed = 0

    def line(self, name, seconds, problem=None):
        self.failed += problem is not None
        print(f"{'FAIL' if problem else 'ok  '} {name:<10}{seconds:>7.1f} s", flush=True)
        if problem:
            print("\n".join("       " + text for text in problem.splitlines()), flush=True)

    def done(self, name, preloaded, result):
        with self.lock:
            results = self.sides.setdefault(name, {})
            results[preloaded] = result
            if len(results) < 2:
                return
            problem = None
            (ours, our_problem, our_time), (theirs, their_problem, their_time) = results[True], results[False]
            if our_problem:
                problem = f"preloaded: {our_problem}"
            elif their_problem:
                problem = f"under the system allocator: {their_problem}"
            elif ours != theirs:
                problem = f"the verdicts differ:\n{first_difference(ours, theirs)}"
            self.line(name, our_time + their_time, problem)


def build_witness(scratch):
    witness = scratch / "witness.so"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-Wl,-z,now", str(HERE / "witness.c"), "-o", str(witness)],
                   check=True)
    return witness


def main():
    parser = argparse.ArgumentParser(description="Runs real programs with an allocator preloaded.")
    parser.add_argument("--library", required=True)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("programs", nargs="*", help=" ".join(PROGRAMS))
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.programs if name not in PROGRAMS]:
        parser.error(f"no such program: {unknown[0]}")
    # If whoever starts this in the background has SIGINT ignored, programs would inherit that, and python's tests
    # fail.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    reporter = Reporter()
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="hakmem-programs-"))
    try:
        scratch.chmod(0o755)  # nobody must be able to read the library, wherever the project is
        library = scratch / "library.so"
        shutil.copy(arguments.library, library)
        witness = build_witness(scratch)
        with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
            for name in arguments.programs or PROGRAMS:
                if absent := [file for file in PROGRAMS[name][1] if not glob.glob(file)]:
                    reporter.line(name, 0, f"cannot be installed: {', '.join(absent)} is missing")
                    continue
                for preload in (None, library):
                    side = Side(name, scratch, witness, preload)
                    pool.submit(run_side, name, side).add_done_callback(
                        lambda future, name=name, preload=preload: reporter.done(name, bool(preload), future.result()))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    sys.exit(reporter.failed > 0)


if __name__ == "__main__":
    main()
