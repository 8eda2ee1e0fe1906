#!/usr/bin/env python3
"""Checks the table of floors of the command in docs/tour.md: cli_layers.py [ROOT].

A module of cli/src is NAME.rs with what is below NAME/. Each is on one floor of the table, and uses only modules of
lower floors. Modules of one folder may not use each other in a circle; a module and its own may: they are one. Tests do
not count. Prints one line for each breach; the status is 1 if there is any."""
# SPDX-License-Identifier: MIT
import pathlib
import re

from layers import floors, report



def table(tour):
    """By module, its floor."""
    text = re.search(r"^\| floor \| modules of the command \|\n\|[-|]+\|\n((?:\|.*\n?)+)", tour, re.MULTILINE)
    rows = text.group(1).splitlines() if text else []
    return {name: int(row.split("|")[1]) for row in rows for name in re.findall(r"`(\w+)`", row)}


def paths(text):
    """The paths that a text names, those in braces spelt out."""
    text = re.sub(r"//.*", "", text.split("\n#[cfg(test)]\nmod tests")[0])
    for use in re.findall(r"\buse\s+([^;]+);", text):
        yield from spelt("".join(use.split()))
    yield from re.findall(r"\b(?:crate|super)(?:::\w+)+", text)


def spelt(use):
    """`a::{b, c::{d, e}}` as a::b, a::c::d, a::c::e."""
    start, brace, inside = use.partition("{")
    if not brace:
        yield use
    depth, part = 0, ""
    for letter in inside[:-1] + "," if brace else "":
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            yield from spelt(start + part) if part else ()
            part = ""
        else:
            part += letter


def modules(source):
    """By its path in the crate, as a tuple, the file of each module that is not for tests alone."""
    found = {}
    for path in sorted(source.rglob("*.rs")):
        parts = path.relative_to(source).with_suffix("").parts
        found[parts[:-1] if parts[-1] in ("mod", "main") else parts] = path
    tests = {(*name, one) for name, path in found.items()
             for one in re.findall(r"#\[cfg\(test\)\]\n(?:pub )?mod (\w+);", path.read_text())}
    return {name: path for name, path in found.items() if name not in tests}


def used(module, known, text):
    """The modules that a module uses."""
    for path in paths(text):
        parts = tuple(path.split("::"))
        if parts[0] == "crate":
            whole = parts[1:]
        elif parts[0] == "super":
            up = next(at for at, part in enumerate((*parts, "")) if part != "super")
            whole = module[:len(module) - up] + parts[up:]
        else:
            whole = module + parts[parts[0] == "self":]
        yield next(whole[:end] for end in range(len(whole), -1, -1) if whole[:end] in known)


def breaches(root):
    known = modules(root / "cli/src")
    floor = table((root / "docs/tour.md").read_text())
    beside = {}  # by folder, what each module in it uses of the others
    for module, path in known.items():
        for other in used(module, known, path.read_text()):
            at = next((at for at, (one, two) in enumerate(zip(module, other)) if one != two), None)
            if at is not None:
                beside.setdefault(module[:at], {}).setdefault(module[at], set()).add(other[at])
    tops = {module[0] for module in known if module}
    yield from (f"cli/src: {name} is on no floor of docs/tour.md" for name in sorted(tops - floor.keys()))
    yield from (f"docs/tour.md: {name} is no module of cli/src" for name in sorted(floor.keys() - tops))
    for module, others in sorted(beside.get((), {}).items()):
        for other in sorted(others):
            if floor.get(other, 0) >= floor.get(module, 99):
                yield f"cli/src: {module} of floor {floor[module]} uses {other} of floor {floor[other]}"
    for folder, below in beside.items():
        below |= {name: set() for name in set().union(*below.values()) - below.keys()}
        if circle := floors(below)[1]:
            chain = ", ".join(f"{a} uses {b}" for a, b in zip(circle, circle[1:] + circle[:1]))
            yield f"{'/'.join(('cli/src', *folder))}: a circle: {chain}"


if __name__ == "__main__":
    report(breaches)
