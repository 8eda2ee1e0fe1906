#!/usr/bin/env python3
"""The k-th call of the system that the shipped library makes fails, in real programs.

    preloaded.py LIBRARY

 1. A first run under `strace -k` tells which calls are the library's: those whose stack has the library as the first
    file beside libc. Calls of the loader and of the program itself do not count.
 2. Then each of these fails by seccomp (`strace --seccomp-bpf -e inject=…:when=K`), with each error; of the calls that
    give only advice also all from the K-th on. A point counts if strace says that it injected.
 3. The program ends as without a fault, or says that memory ran out and ends by itself. No signal, no line of the
    library's, no hang.
If it fails, a program crashes because the system was short of memory for a moment.

Of the calls of one kind in one program at most KS are taken, the first, the last and evenly between; with
HAK_TEST_LONGER (./hak soak) every one."""
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
SECONDS = 60  # of one run; a hang takes it all
# Not futex: libc itself ends the program when one of its own fails, and which is the k-th depends on the threads.
CALLS = ["mmap", "mprotect", "madvise", "munmap", "mremap", "mincore", "membarrier", "prlimit64"]
ADVICE = {"madvise", "membarrier", "mincore", "munmap", "prlimit64"}  # the program must not notice
ERRORS = ["ENOMEM", "EAGAIN", "EINVAL"]

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
    "perl": ["perl", "-e", "for (1..20000) { $h{$_ % 3000} = 'x' x ($_ % 900) } print length(join '', values %h), qq(\\n)"],
}
SETTINGS = {"auto": [], "eager": ["-E", "HAKMEM_PURGE=eager"], "window": ["-E", "HAKMEM_REGION_BYTES=0"]}


def strace(trace, options, command):
    """Runs the command under strace with the library preloaded; the trace goes into the file."""
    words = ["strace", "-f", "-qq", "-o", trace, "-E", "LD_PRELOAD=" + LIBRARY, *options, *command]
    return subprocess.run(words, capture_output=True, timeout=SECONDS, check=False)


def library_calls(trace):
    """{call: the k of each call the library made}. strace counts in each thread for itself, so a k at which any thread
    makes a call of the loader's or the program's is left out."""
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
    """What is wrong with how the program ended, or None."""
    if b"hakmem:" in got.stderr:
        return "the library complains"
    if got.returncode < 0 or got.returncode > 128:
        return "died of a signal"
    same = (got.returncode, got.stdout) == (healthy.returncode, healthy.stdout)
    if not same and (call in ADVICE or got.returncode == 0):
        return "ended otherwise than without a fault"
    return None


def spread(ks):
    """At most KS of them, with the first and the last."""
    return ks if len(ks) <= KS else [ks[i * (len(ks) - 1) // (KS - 1)] for i in range(KS)]


def inject(directory, name, setting, call, healthy, point):
    """One point: 1 if it was met, 0 if not; None if it went wrong, with a line."""
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
    """All points of one program. Returns how many were met, and how many went wrong."""
    trace = os.path.join(directory, "healthy")
    for _ in range(10):
        healthy = strace(trace, [*SETTINGS[setting], "-k", "-e", "trace=" + ",".join(CALLS)], PROGRAMS[name])
        if b"libunwind" not in healthy.stderr:  # strace gives up when a thread ends while it walks its stack
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
