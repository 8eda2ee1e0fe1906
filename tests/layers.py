#!/usr/bin/env python3
"""Checks the table of layers in docs/tour.md: layers.py [ROOT].

Each row names a folder of src/ and files there by their stems, in `code`: a module is NAME.h with NAME.c. Every file of
src/ must be in exactly one row, every name must be that of a file of the row's folder, and a file may include only from
its own layer and from lower ones. A folder of the allocator has one row and includes nothing from a later row of the
allocator. Modules may not include each other in a circle, even within a row. The number of layers is limited, and so
are the floors (the longest chain of modules of which each includes the next, which is named when it is too long) and
the allocator's files. The wings are built onto the core: only they, and src/entry, which puts both together, may
include a header of a wing (src/process/hooks.h). Outside src/secure one line reads OPT_SECURE, the one that chooses
the mode; all others ask the mode what differs (src/base/mode.h). Prints one line for each breach; the status is 1 if
there is any."""
# SPDX-License-Identifier: MIT
import pathlib
import re
import sys

from grown import excess

ROOT = pathlib.Path(__file__).resolve().parent.parent
WINGS = ("observe", "learn", "arena", "secure", "mesh", "move")
AROUND = ("base", "machine", "beside", "entry")  # all other folders are the allocator
CHOOSER = "src/base/options.c"  # chooses the mode


def table_rows(tour):
    """Yields the layer's number, the folder and the stems of each row of the table."""
    text = tour.read_text()
    table = re.search(r"^\| layer \| folder \| files \|\n\|[-|]+\|\n((?:\|.*\n?)+)", text, re.MULTILINE)
    rows = table.group(1).splitlines() if table else []
    for row in rows:
        number, place, files = row.strip("|").split("|", 2)
        stems = [name.split(".")[0] for name in re.findall(r"`([^`]+)`", files)]
        yield int(number), place.strip(" `/"), stems


def includes(root, path):
    """Yields the line and the name of each file of src/ that the file includes."""
    for line, text in enumerate(path.read_text().splitlines(), 1):
        include = re.match(r'\s*#\s*include\s+"([^"]+)"', text)
        if include and (root / "src" / include.group(1)).exists():
            yield line, include.group(1)


def folder(name):
    """The folder of src/ that the file is in, "" if it is in src/ itself."""
    return name.split("/")[0] if "/" in name else ""


def floors(below):
    """Puts each module on a floor above all that it includes. Returns the longest chain of modules, each including the
    next, and modules that have no floor, as each includes the next and the last the first. below: what each
    includes."""
    left, floor_of, count = dict(below), {}, 0
    while floor := [module for module in left if left[module].isdisjoint(left)]:
        left = {module: left[module] for module in left.keys() - set(floor)}
        count += 1
        floor_of.update(dict.fromkeys(floor, count))
    chain = [min((module for module in floor_of if floor_of[module] == count), default="")]
    while len(chain) < count:
        chain.append(min(module for module in below[chain[-1]] if floor_of.get(module) == count - len(chain)))
    path, module = [], min(left, default=None)
    while module not in path and left:
        path.append(module)
        module = min(left[module] & left.keys())
    return chain, path[path.index(module):] if left else []


def reads_of_secure(root, files):
    """Yields the line of each read of OPT_SECURE outside src/secure, except the one that chooses the mode."""
    for path in files:
        name = str(path.relative_to(root))
        if not name.startswith("src/secure/"):
            lines = enumerate(path.read_text().splitlines(), 1)
            reads = [line for line, text in lines if re.search(r"\bOPT_SECURE\b", text)]
            for line in reads[1:] if name == CHOOSER else reads:
                yield f"{name}:{line}: reads OPT_SECURE: ask mode() what differs (src/base/mode.h)"


def breaches(root):
    files = sorted(path for path in (root / "src").rglob("*") if path.suffix in (".c", ".cc", ".h"))
    stems = {path.stem for path in files}
    places = {(str(path.parent.relative_to(root / "src")), path.stem) for path in files}
    layer, last, ranks = {}, 0, {}
    for rank, (number, place, names) in enumerate(table_rows(root / "docs" / "tour.md")):
        if number not in (last, last + 1):
            yield f"docs/tour.md: layer {number} follows layer {last}"
        last = number
        if place in ranks and place not in (*WINGS, *AROUND):
            yield f"docs/tour.md: {place}/ has two rows"
        ranks[place] = rank
        for name in names:
            if (place, name) not in places:
                yield f"docs/tour.md: layer {number} names {name}, which is not in src/{place}/"
            elif name in layer:
                yield f"docs/tour.md: {name} is in layer {layer[name]} and in layer {number}"
            else:
                layer[name] = number
    if more := excess("layers", last):
        yield f"docs/tour.md: {last} layers, {more}"
    below = {stem: set() for stem in stems}
    for path in files:
        own = layer.get(path.stem)
        if own is None:
            yield f"{path.relative_to(root)}: is in no layer of docs/tour.md"
        for line, name in includes(root, path):
            stem = pathlib.Path(name).stem
            below[path.stem] |= {stem} - {path.stem}
            if own and layer.get(stem, 0) > own:
                yield f"{path.relative_to(root)}:{line}: of layer {own} includes {name} of layer {layer[stem]}"
            here, there = folder(str(path.relative_to(root / "src"))), folder(name)
            if not {here, there} & {*WINGS, *AROUND} and ranks.get(there, 0) > ranks.get(here, len(ranks)):
                yield f"{path.relative_to(root)}:{line}: {here}/ includes {name}, of a later row"
            if there in WINGS and here not in (*WINGS, "entry"):
                yield f"{path.relative_to(root)}:{line}: the core includes {name}, of a wing: hooks.h is between them"
    yield from reads_of_secure(root, files)
    allocator = sum(path.suffix == ".c" and path.parent.name not in (*WINGS, *AROUND) for path in files)
    if more := excess("allocator", allocator):
        yield f"src/: {allocator} files .c of the allocator, {more}"
    chain, circle = floors(below)
    if more := excess("floors", len(chain)):
        yield f"src/: {len(chain)} floors by includes, {more}: " + ", ".join(chain)
    if circle:
        yield "src/: a circle: " + ", ".join(f"{a} includes {b}" for a, b in zip(circle, circle[1:] + circle[:1]))


def report(breaches_in):
    """Prints what `breaches_in` finds in the tree that the command line names, or in this one, and ends the program."""
    found = list(breaches_in(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT))
    for breach in found:
        print(breach)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    report(breaches)
