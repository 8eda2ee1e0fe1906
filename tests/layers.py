#!/usr/bin/env python3
"""Checks the table of layers in docs/tour.md: layers.py [ROOT].

Each row names files of src/ by their stems, in `code`: a module is NAME.h with NAME.c. Every file of src/ must be in
exactly one row, every name must be that of a file, and a file may include only from its own row and from the rows above
it, which are the lower layers. Prints one line for each breach; the status is 1 if there is any."""
# SPDX-License-Identifier: MIT
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def table_rows(tour):
    """Yields the layer's number and the stems of each row of the table."""
    text = tour.read_text()
    table = re.search(r"^\| layer \| files \|\n\|[-|]+\|\n((?:\|.*\n?)+)", text, re.MULTILINE)
    rows = table.group(1).splitlines() if table else []
    for row in rows:
        number, files = row.strip("|").split("|", 1)
        yield int(number), [name.split(".")[0] for name in re.findall(r"`([^`]+)`", files)]


def breaches(root):
    files = sorted(path for path in (root / "src").rglob("*") if path.suffix in (".c", ".cc", ".h"))
    stems = {path.stem for path in files}
    layer, last = {}, 0
    for number, names in table_rows(root / "docs" / "tour.md"):
        if number != last + 1:
            yield f"docs/tour.md: layer {number} follows layer {last}"
        last = number
        for name in names:
            if name not in stems:
                yield f"docs/tour.md: layer {number} names {name}, which is not in src/"
            elif name in layer:
                yield f"docs/tour.md: {name} is in layer {layer[name]} and in layer {number}"
            else:
                layer[name] = number
    for path in files:
        if path.stem not in layer:
            yield f"{path.relative_to(root)}: is in no layer of docs/tour.md"
    for path in files:
        for line, text in enumerate(path.read_text().splitlines(), 1):
            include = re.match(r'\s*#\s*include\s+"([^"]+)"', text)
            of, own = layer.get(pathlib.Path(include.group(1)).stem) if include else None, layer.get(path.stem)
            if of and own and of > own and (root / "src" / include.group(1)).exists():
                yield f"{path.relative_to(root)}:{line}: of layer {own} includes {include.group(1)} of layer {of}"


def main():
    found = list(breaches(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT))
    for breach in found:
        print(breach)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
