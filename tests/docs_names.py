#!/usr/bin/env python3
"""Checks that what the documents on the sources name is there today: docs_names.py [ROOT].

A name is `code` of one word, which must be a path, the name of a file, or a word of some source. What is said to be in
a file of src/ must be a word of that file; what protocols.md calls a harness, one of the model checker's. Prints one
line for each name that is missing; the status is 1 if there is any."""
# SPDX-License-Identifier: MIT
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCUMENTS = ("tour", "design", "protocols", "system", "secure", "costs", "compaction", "arenas", "observing", "options",
             "experiments")
SOURCES = ("src", "include", "tests", "bench", "cli", "rust", "python", "cmake", "tools", "hak", "CMakeLists.txt",
           "CMakePresets.json")
NAMES = r"((?:`\w+`(?:,\s+|\s+and\s+)?)+)"
# `slab_adopt` in `src/heap/slab.c`; `search` (superslab.c)
PLACED = re.compile(NAMES + r"\s+(?:in\s+`(?:src/)?([\w/.]+\.[ch])`|\((\w+\.[ch])\))")
HARNESSES = re.compile(r"Harness(?:es)?:\*{0,2}\s+([^.]*)")


def words_of(path):
    return set(re.findall(r"\w+", path.read_text(errors="ignore")))


def sources(root):
    named = subprocess.run(["git", "-C", root, "ls-files", "-z", *SOURCES], capture_output=True, text=True, check=True)
    return [root / name for name in named.stdout.split("\0") if name and (root / name).is_file()]


def missing(root, text, words, files):
    """Yields what is not there, as "NAME is in no source"."""
    for name in re.findall(r"`([A-Za-z][\w./-]*)(?:\(\))?`", text):
        if name.split("/")[0] in SOURCES and "/" in name:
            if not (root / name).exists():
                yield f"{name} is no file"
        elif "/" not in name and name not in files and not set(re.findall(r"\w+", name)) <= words:
            yield f"{name} is in no source"
    for names, path, file in PLACED.findall(text):
        places = list((root / "src").rglob(file or path))
        for name in sorted(set(re.findall(r"`(\w+)`", names)) - set().union(*map(words_of, places))):
            yield f"{name} is not in {file or path}"


def missing_harnesses(root, text):
    known = set(re.findall(r"^X\((\w+)\)", (root / "tests/races/races.c").read_text(), re.MULTILINE))
    for named in HARNESSES.findall(text):
        for name in re.findall(r"(?:^|[,;:]\s+)([a-z_]+)\b", named):
            if name not in known:
                yield f"{name} is no harness"


def main():
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT
    paths = sources(root)
    words = set().union(*map(words_of, paths))
    files = {path.name for path in paths} | {path.stem for path in paths}
    failed = False
    for document in DOCUMENTS:
        text = (root / "docs" / f"{document}.md").read_text()
        harnesses = missing_harnesses(root, text) if document == "protocols" else ()
        for breach in [*missing(root, text, words, files), *harnesses]:
            failed = True
            print(f"docs/{document}.md: {breach}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
