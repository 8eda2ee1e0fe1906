#!/usr/bin/env python3
"""Makes the k-th system call of the shipped library fail, in real programs.

    preloaded.py LIBRARY

 1. A first run under `strace -k` shows which calls the library makes: those whose stack has the library as the first
    file other than libc. Calls by the loader and by the program itself do not count.
 2. Then seccomp makes each of these calls fail (`strace --seccomp-bpf -e inject=…:when=K`), with each error. Of calls
    that only give advice, all from the K-th on fail, too. A point counts if strace reports that it injected the error.
 3. The program must end as it does without a fault, or say that memory ran out and exit: no signal, no line from the
    library, no hang.
If it fails, a program crashes because the system was short of memory for a moment.

For each kind of call in each program, at most KS calls are tried: the first, the last, and evenly spaced ones between.
HAK_TEST_LONGER (./hak soak) tries every one."""
# SPDX-License-Identifier: MIT

import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

LIBRARY = sys.argv[1]
KS = sys.maxsize if int(os.environ.get("HAK_TEST_LONGER", "1")) > 1 else 2
SECONDS = 600  # of one run; a hang takes the full time
# Without futex: libc itself ends the program when one of its own fails, and the k-th depends on the threads.
CALLS = ["mmap", "mprotect", "madvise", "munmap", "mremap", "prlimit64"]
ADVICE = {"madvise", "munmap", "prlimit64"}  # the program must not notice
ERRORS = ["ENOMEM", "EAGAIN", "EINVAL", "ENOSYS"]

PYTHON = """
import threading
kept = []
def work():
    for i in range(2):
        kept.append([bytearray(n) for n in (10, 500, 3000, 70000, 300000)])
        grown = bytearray()
        for _ in range(8):
            grown += b"x" * 400000
        del kept[::2]
thread = threading.Thread(target=work)
thread.start(); thread.join(); work()
print(sum(len(b) for bs in kept for b in bs))
"""
LUA = """
local t = {}
for i = 1, 30000 do t[i % 5000] = { i, tostring(i), string.rep("x", i % 700) } end
print(#t, collectgarbage("count") > 0)
"""
SQL = """
create table t(a integer primary key, b text);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 2000)
  insert into t select i, hex(zeroblob(i % 300)) from n;
select count(*), sum(length(b)) from t; select length(group_concat(b)) from (select b from t order by b desc);
"""
PROGRAMS = {
    "python3": ["/usr/bin/python3", "-S", "-c", PYTHON],
    "lua5.4": ["lua5.4", "-e", LUA],
    "sqlite3": ["sqlite3", ":memory:", SQL],
    "perl": ["perl", "-e", "for (1..20000) { $h{$_ % 3000} = 'x' x ($_ % 900) } print length(join '', values %h), "
                           "qq(\\n)"],
}
SETTINGS = {"auto": [], "eager": ["-E", "HAKMEM_PURGE=eager"], "window": ["-E", "HAKMEM_REGION_BYTES=0"]}


def strace(trace, options, command):
    """Runs the command under strace with the library preloaded, and writes the trace to the file."""
    words = ["strace", "-f", "-qq", "-o", trace, "-E", "LD_PRELOAD=" + LIBRARY, *options, *command]
    return subprocess.run(words, capture_output=True, timeout=SECONDS, check=False)


def library_calls(trace):
    """Returns {call: the k of each call that the library made}. strace counts in each thread separately, so this omits
    any k at which some thread makes a call for the loader or the program."""
    ours, count, last = {}, {}, None
    for line in open(trace):
        call = re.match(r"(\d+) +(\w+)\(", line)
        frame = re.match(r" > (\S+?)\(", line)
        if call:
            last = call.groups()
            count[last] = count.get(last, 0) + 1
        if call or (frame and last and "/libc.so" not in frame[1]):
            mine = bool(frame) and os.path.basename(frame[1]).startswith("libhakmem.so")
            ours.setdefault((last[1], count[last]), {})[last[0]] = mine
            last = last if call else None
    made = {}
    for (call, k), of_thread in ours.items():
        if all(of_thread.values()):
            made.setdefault(call, []).append(k)
    return made


def verdict(call, got, healthy):
    """Returns what is wrong with how the program ended, or None."""
    if b"hakmem:" in got.stderr:
        return "the library complains"
    if got.returncode < 0 or got.returncode > 128:
        return "died of a signal"
    same = (got.returncode, got.stdout) == (healthy.returncode, healthy.stdout)
    if not same and (call in ADVICE or got.returncode == 0):
        return "ended otherwise than without a fault"
    return None


def spread(ks):
    """Returns at most KS of them, including the first and the last."""
    return ks if len(ks) <= KS else [ks[i * (len(ks) - 1) // (KS - 1)] for i in range(KS)]


def inject(directory, name, setting, call, healthy, point):
    """Tries one point. Returns 1 if it was met, 0 if not, or None if it went wrong, after printing a line."""
    when, error = point
    trace = os.path.join(directory, f"{call}-{when}-{error}")
    options = [*SETTINGS[setting], "--seccomp-bpf"]
    options += ["-e", "trace=" + call, "-e", f"inject={call}:error={error}:when={when}"]
    try:
        got = strace(trace, options, PROGRAMS[name])
        wrong = verdict(call, got, healthy)
    except subprocess.TimeoutExpired:
        got, wrong = None, "hangs"
    if wrong:
        said = got.stderr.decode(errors="replace")[-300:] if got else ""
        print(f"FAIL {name}, {setting}: {call} {when} fails with {error}: {wrong}: {said}", flush=True)
        return None
    return int("(INJECTED)" in open(trace).read())


def test_program(name, setting, directory, several):
    """Tries all points of one program. Returns how many were met, and how many went wrong."""
    trace = os.path.join(directory, "healthy")
    for _ in range(10):
        healthy = strace(trace, [*SETTINGS[setting], "-k", "-e", "trace=" + ",".join(CALLS)], PROGRAMS[name])
        if b"libunwind" not in healthy.stderr:  # strace gives up if a thread ends during its stack walk
            break
    if healthy.returncode != 0:
        sys.exit(f"{name}, {setting} does not even run: {healthy.stderr.decode(errors='replace')}")
    met = wrong = 0
    for call, all_ks in library_calls(trace).items():
        ks = spread(all_ks)
        points = [(str(k), error) for k in ks for error in ERRORS]
        if call in ADVICE:
            points += [(f"{k}+", "EINVAL") for k in ks]
        one = functools.partial(inject, directory, name, setting, call, healthy)
        results = list(several.map(one, points))
        here = sum(filter(None, results))
        print(f"figure: fault_preloaded_{name}_{setting}_{call} {here}", flush=True)
        met += here
        wrong += results.count(None)
    return met, wrong


def main():
    if not shutil.which("strace"):
        print("skipped: no strace")
        return 0
    all_met = all_wrong = 0
    with tempfile.TemporaryDirectory() as directory, ThreadPoolExecutor(os.cpu_count()) as several:
        if b"ptrace" in strace(os.path.join(directory, "trace"), [], ["true"]).stderr.lower():
            print("skipped: strace may not trace here")
            return 0
        for name, command in PROGRAMS.items():
            if not shutil.which(command[0]):
                print(f"skipped: no {name}")
                continue
            for setting in SETTINGS:
                met, wrong = test_program(name, setting, directory, several)
                all_met, all_wrong = all_met + met, all_wrong + wrong
    print(f"figure: fault_preloaded_points {all_met}")
    if all_met == 0:
        print("FAIL no point was met")
    return int(all_wrong != 0 or all_met == 0)


if __name__ == "__main__":
    sys.exit(main())
