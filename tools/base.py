"""What all of the driver shares: the places, running commands, and what is printed."""
# SPDX-License-Identifier: MIT
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import traceback

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
LIBRARY = BUILD / "release/libhakmem.so"
CHECKED = BUILD / "checked/libhakmem.so"
TOOL = BUILD / "hakmem"
BENCH = BUILD / "bench"
PEERS = BUILD / "peers/peers.toml"
RESULTS = BUILD / "results"
JOBS = os.cpu_count() or 1
Failed = subprocess.CalledProcessError


def say(*words, end="\n"):
    print(*words, end=end, file=sys.stderr, flush=True)


def die(text, status=1):
    say(f"hak: {text}")
    sys.exit(status)


def run(*words, **more):
    """Runs a command with our output; Failed is raised unless its status is 0. env: what is added to the
    environment."""
    sys.stdout.flush()
    if "env" in more:
        more["env"] = os.environ | {name: str(value) for name, value in more["env"].items()}
    return subprocess.run([str(word) for word in words], check=True, **more)


def output(*words, errors=subprocess.DEVNULL):
    """What a command prints on stdout, "" if there is no such command. errors=subprocess.STDOUT: also on stderr."""
    try:
        return subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True,
                              check=False).stdout
    except OSError:
        return ""


def replace_by(program, *words):
    """Becomes the program, with the signals as they were before Python ignored two of them."""
    sys.stdout.flush()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    os.execv(program, [str(program), *map(str, words)])


def ended(task, *args):
    """Does the task and returns the status it leaves. A command that failed has said why itself."""
    try:
        task(*args)
    except Failed as failed:
        return failed.returncode if failed.returncode > 0 else 128 - failed.returncode
    except SystemExit as left:
        if isinstance(left.code, str):
            say(left.code)
        return left.code if isinstance(left.code, int) else int(left.code is not None)
    except KeyboardInterrupt:
        return 130
    except Exception:  # pylint: disable=broad-except
        traceback.print_exc()
        return 1
    return 0


def forked(task, *args, out, errors=None, group=False):
    """Does the task in a child with this output, and with no input; returns the child's id."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        if group:
            os.setpgid(0, 0)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(2 if errors is None else errors, 2)
        status = ended(task, *args)
    finally:
        sys.stdout.flush()
        os._exit(status)


def teed(log, task, *args, append=False):
    """Does the task in a child; what it prints goes to stdout and into the log. Returns whether it succeeded."""
    log.parent.mkdir(parents=True, exist_ok=True)
    reader, writer = os.pipe()
    pid = forked(task, *args, out=writer)
    os.close(writer)
    with open(log, "ab" if append else "wb") as copy, os.fdopen(reader, "rb") as lines:
        for line in lines:
            copy.write(line)
            sys.stdout.buffer.write(line)
            sys.stdout.flush()
    return os.waitpid(pid, 0)[1] == 0


class Steps:
    """Runs steps: each prints one line, ok or FAIL, and the next one follows in either case."""

    def __init__(self):
        self.failed = 0

    def __call__(self, name, task, *args):
        """The task is a function, or a command with its arguments."""
        print(f"---- {name}", flush=True)
        good = ended(task, *args) == 0 if callable(task) else ended(run, task, *args) == 0
        print(f"{'ok  ' if good else 'FAIL'} {name}", flush=True)
        self.failed += not good

    def end(self):
        if self.failed:
            sys.exit(1)


def figures(name, *logs):
    """A line `figure: NAME VALUE` in a log is a result. Writes their sums to build/results/reliability-NAME.json, from
    which `./hak doc figures` makes docs/reliability.md; of those in percent, and of a _most, the largest."""
    sums = {}
    for log in logs:
        for one, value in re.findall(r"^figure: (\w+) ([0-9.]+)$", log.read_text(errors="replace"), re.MULTILINE):
            most = "_percent" in one or "_most" in one
            sums[one] = max(sums.get(one, 0), float(value)) if most else sums.get(one, 0) + float(value)
    RESULTS.mkdir(parents=True, exist_ok=True)
    text = {one: int(value) if value == int(value) else float(f"{value:.10g}") for one, value in sums.items()}
    (RESULTS / f"reliability-{name}.json").write_text(json.dumps(text, indent=2) + "\n")


def number(word, failure):
    return int(word) if re.fullmatch("[1-9][0-9]*", word) else die(failure)


def version():
    return re.search(r"\nproject\(hakmem VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text()).group(1)


def python(script, *words, **more):
    """Runs a script of the tree."""
    return run("python3", ROOT / script, *words, **more)
