#!/usr/bin/env python3
"""Counts the functions on two long ways through the library: walks.py [-v].

  malloc  the list, the slab and everything near are used up: a new slot from the pool
  free    of a slab's last block: the slot goes to the pool, and pages over the bound to the system

A reader follows them to see how HAKMEM works, so each has a bound. Functions of one statement do not count. -v prints
the walks, indented as they call."""
# SPDX-License-Identifier: MIT
import concurrent.futures
import pathlib
import re
import subprocess
import sys
import tempfile

from grown import excess, rows

ROOT = pathlib.Path(__file__).resolve().parent.parent
# By the name of the call: a function that the walk enters, and those it does not enter.
WALKS = {
    "malloc": ("pool_take", {"retain_settle", "region_take_superslabs"}),
    "free": ("purge_empty", {"rings_empty_from"}),
}
FLAGS = ["-std=gnu17", "-O0", "-gdwarf-4", "-w", "-D_GNU_SOURCE", "-fno-builtin-malloc", "-fno-pie"]
TRACED = ["-finstrument-functions", "-Dalways_inline=unused"]


def build(folder):
    """The program, with the library in it. Functions that are always inlined are functions here, too."""
    sources = [path for path in sorted((ROOT / "src").rglob("*.c")) if path.stem not in ("new", "hinted")]  # C++'s
    includes = [f"-iquote{ROOT / 'src'}", f"-I{ROOT / 'include'}"]

    def compiled(path):
        traced = TRACED if path.stem != "walks" else []
        subprocess.run(["gcc", *FLAGS, *traced, *includes, "-c", path, "-o", folder / f"{path.stem}.o"], check=True)
        return folder / f"{path.stem}.o"

    with concurrent.futures.ThreadPoolExecutor() as pool:
        objects = list(pool.map(compiled, [*sources, ROOT / "tests" / "walks.c"]))
    subprocess.run(["gcc", "-no-pie", "-pthread", *objects, "-o", folder / "walks"], check=True)
    return folder / "walks"


def walks(program):
    """Each walk as its name and a list of (depth, address)."""
    found = []
    for line in subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines():
        if line in WALKS:
            found.append((line, []))
        else:
            depth, address = line.split()
            found[-1][1].append((int(depth), address))
    return found


def places(program, addresses):
    """By address: a function's name, its file, and whether it has more than one statement."""
    lines = subprocess.run(["addr2line", "-f", "-e", program, *addresses], capture_output=True, text=True, check=True)
    lines = lines.stdout.splitlines()
    result = {}
    for address, name, place in zip(addresses, lines[::2], lines[1::2]):
        path, line = place.split()[0].rsplit(":", 1)
        text = "\n".join(pathlib.Path(path).read_text().splitlines()[int(line) - 1 :])
        body = re.match(r"[^{]*\{(.*\}|(?s:.*?)\n\})", text).group(1)
        result[address] = (name, pathlib.Path(path), bool(re.search(r"\b(if|for|while)\b|;[^}]*;", body)))
    return result


def shortest(walks_of_name, known, entered, avoided):
    """The walk through the fewest functions, and these: what a clock adds to some of them is not what others do."""
    ways = []
    for steps in walks_of_name:
        names = {known[address][0] for _, address in steps}
        if entered in names and not avoided & names:
            ways.append((steps, {known[address] for _, address in steps if known[address][2]}))
    return min(ways, key=lambda way: len(way[1]), default=None)


def main():
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        program = build(pathlib.Path(folder))
        found = walks(program)
        known = places(program, sorted({address for _, steps in found for _, address in steps}))
    for name, (entered, avoided) in WALKS.items():
        way = shortest([steps for walk, steps in found if walk == name], known, entered, avoided)
        if way is None:
            sys.exit(f"walks.c: no {name} gets to {entered}, and to none of {', '.join(sorted(avoided))}")
        steps, counted = way
        files = {path for _, path, _ in counted}
        more = excess(f"walk-{name}", len(counted))
        print(f"{name}: {len(counted)} functions of more than one statement in {len(files)} files, "
              + (more or f"at most {rows()[f'walk-{name}'][0]}"))
        failed |= bool(more)
        for depth, address in steps if "-v" in sys.argv else []:
            if known[address] in counted:
                print("  " * (depth + 1) + known[address][0], known[address][1].name)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
