#!/usr/bin/env python3
"""Records what real programs allocate and free under the library, in all their threads and processes, and checks it.

usage: run.py --library LIBRARY [NAME…]

The sessions are those of tests/programs/programs.toml: the ones that PROGRAMS lists, or NAME…. Programs that are
missing are installed. record.c says what is recorded, check.cc what must hold. Python's objects, too, are blocks of
malloc's here.
"""
# SPDX-License-Identifier: MIT
import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "programs"))
import soak

PROGRAMS = ["bash", "bind", "clang", "cmake", "coreutils", "curl", "diffutils", "erlang", "gawk", "gcc", "gdb",
            "ghostscript", "gimp", "git", "gnuplot", "gxx", "java", "jq", "knot", "libreoffice", "lua", "make",
            "mariadb", "memcached", "mono", "node", "numpy", "openssl", "perl", "php", "php-fpm", "postgresql",
            "python", "redis", "rocksdb", "ruby", "rustc", "sqlite", "tar", "vim", "xz", "zstd"]
SUMMARY = re.compile(r"(\d+) events, (\d+) threads, (\d+) processes, (\d+) faults")


class Recorded(soak.Side):
    """One program, recorded."""

    def __init__(self, program, kit, library):
        super().__init__(program, kit, library, 0)
        self.history = self.outside / "history"
        self.history.mkdir()
        self.history.chmod(0o1777)
        record = kit / "record.so"
        self.preload = f"{record}:{self.preload}"
        self.library = record  # whose malloc the witness must see
        self.environment |= {"HISTORY_DIR": str(self.history), "PYTHONMALLOC": "malloc"}


def check(kit, side):
    """Returns the numbers of events, threads, processes and faults, and what the checker prints."""
    done = subprocess.run([kit / "check", side.history], capture_output=True, text=True, check=False)
    found = SUMMARY.search(done.stdout)
    if not found:
        return (0, 0, 0, 1), f"the checker: status {done.returncode}: {done.stderr}"
    return tuple(map(int, found.groups())), done.stdout


def run(program, kit, library, totals):
    """Records and checks one program; prints a line; returns whether all went well."""
    if absent := soak.install(program):
        print(f"FAIL {program.name:<12} not installed: {absent}", flush=True)
        return False
    side = Recorded(program, kit, library)
    problem = side.run().get("problem")
    numbers, text = check(kit, side)
    good = not problem and numbers[0] > 0 and numbers[3] == 0
    print(f"{'ok  ' if good else 'FAIL'} {program.name:<12}{numbers[0]:>12,} events {numbers[1]:>6,} threads "
          f"{numbers[2]:>6,} processes",
          flush=True)
    if problem:
        print(f"       {problem}", flush=True)
    if numbers[3]:
        print("".join(f"       {line}\n" for line in text.splitlines()), flush=True)
    shutil.rmtree(side.outside)
    for name, number in zip(("programs", "events", "threads", "processes", "faults"), (1, *numbers)):
        totals[name] = totals.get(name, 0) + number
    return good


def main():
    parser = argparse.ArgumentParser(description="Records and checks what real programs allocate.")
    parser.add_argument("--library", required=True)
    parser.add_argument("programs", nargs="*", default=PROGRAMS)
    arguments = parser.parse_args()
    table = {program.name: program for program in soak.read_table(soak.TABLE.read_text())}
    if unknown := set(arguments.programs) - set(table):
        parser.error(f"no such program: {min(unknown)}")
    kit = pathlib.Path(tempfile.mkdtemp(prefix="hakmem-history-"))
    totals = {}
    try:
        soak.make_kit(kit, arguments.library)
        compile_in(kit)
        bad = [name for name in arguments.programs if not run(table[name], kit, kit / "library.so", totals)]
    finally:
        shutil.rmtree(kit, ignore_errors=True)
    for name, number in totals.items():
        print(f"figure: histories_{name} {number}")
    sys.exit(len(bad) > 0)


def compile_in(kit):
    shared = ["-shared", "-fPIC", "-std=gnu17", "-D_GNU_SOURCE", "-fno-builtin", "-fexceptions", "-fvisibility=hidden",
              "-ftls-model=initial-exec", "-Wl,-z,now"]
    subprocess.run(["cc", "-O2", *shared, HERE / "record.c", "-o", kit / "record.so"], check=True)
    subprocess.run(["c++", "-O2", "-std=c++17", HERE / "check.cc", "-o", kit / "check"], check=True)


if __name__ == "__main__":
    main()
