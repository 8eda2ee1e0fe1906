#!/usr/bin/env python3
"""conditions.py LLVM_COV PROFILE RESULTS BINARY…: what the tests show of the conditions in the files below.

 1. Every condition must have been true and false. Of a decision with several, each must have decided it alone: once it
    was true and once false, and the decision with it, while the others did not matter (MC/DC, as clang counts it).
 2. A function in several binaries or objects has shown what it has shown in any of them.
 3. conditions.txt says of some why no test shows them, or only by chance: where another thread has to come between two
    steps. The others that are missing are listed, and what each file has goes to RESULTS. The status is 1 if
    conditions.txt names one that the sources do not have.
"""
# SPDX-License-Identifier: MIT
import collections
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
REASONS = ROOT / "tests" / "conditions.txt"
FILES = ["src/tiers/tiny.c", "src/tiers/mid.c", "src/blocks/inbox.c", "src/blocks/inbox.h", "src/heap/outbox.c",
         "src/heap/outbox.h", "src/heap/slab.c", "src/heap/slab.h", "src/space/superslab.c", "src/space/superslab.h",
         "src/space/purge.c"]
BRANCH, DECISION, BRANCH_OF_DECISION = 4, 5, 6  # llvm's numbers


def text_of(lines, where):
    """The condition itself, on one line."""
    line, column, last, end = where
    text = "".join(lines[line - 1:last])
    return " ".join(text[column - 1:len(text) - len(lines[last - 1]) + end - 1].split())


def name_in_tree(name):
    """The builds write paths as seen from the tree's root, to which clang adds the folder in which it was started."""
    path = os.path.relpath(ROOT / name, ROOT)
    return re.sub("^build/[^/]+/(?=src/)", "", path)


def shown(cov, profile, binary):
    """For each file: {(where, what): whether it was shown}; `what` is true, false or "alone"."""
    command = [cov, "export", "-instr-profile", profile, binary]
    text = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True).stdout
    found = collections.defaultdict(dict)
    for function in json.loads(text)["data"][0]["functions"]:
        names = [name_in_tree(name) for name in function["filenames"]]

        def note(file, where, what, is_shown):
            if file in FILES:
                key = tuple(where), what
                found[file][key] = found[file].get(key, False) or is_shown

        for *where, true, false, file, _, kind in function["branches"]:
            if kind in (BRANCH, BRANCH_OF_DECISION):
                note(names[file], where, "true", true > 0)
                note(names[file], where, "false", false > 0)
        for *where, _, kind, conditions in function.get("mcdc_records", []):
            inside = [tuple(branch[:4]) for branch in function["branches"] if names[branch[6]] == names[0]
                      if tuple(where[:2]) <= tuple(branch[:2]) and tuple(branch[2:4]) <= tuple(where[2:4])]
            for number, is_shown in enumerate(conditions):
                if kind == DECISION and len(inside) == len(conditions):
                    note(names[0], inside[number], "alone", is_shown)
    return found


def reasons():
    """{(file, condition, what)}: in the file, lines that begin with that of the source; what follows them says why."""
    known = set()
    for line in REASONS.read_text().splitlines():
        if line.startswith("src/"):
            file, whats, condition = line.split(" ", 2)
            known |= {(file, condition, what) for what in whats.split(",")}
    return known


def main(cov, profile, results, *binaries):
    all_found = collections.defaultdict(dict)
    for binary in binaries:
        for file, found in shown(cov, profile, binary).items():
            for key, is_shown in found.items():
                all_found[file][key] = all_found[file].get(key, False) or is_shown
    known, there, missing, table = reasons(), set(), [], {}
    for file in FILES:
        found, lines = all_found[file], (ROOT / file).read_text().splitlines(keepends=True)
        there |= {(file, text_of(lines, where), what) for where, what in found}
        lacks = sorted(key for key, is_shown in found.items() if not is_shown)
        reasoned = [(where, what) for where, what in lacks if (file, text_of(lines, where), what) in known]
        missing += [f"{file}:{where[0]}: {text_of(lines, where)}: never {what}" for where, what in lacks
                    if (where, what) not in reasoned]
        table[file] = [len(found) - len(lacks), len(reasoned), len(found)]
        if found:
            percent = 100 - 100 * len(lacks) / len(found)
            print(f"{file:<20} {len(found) - len(lacks):>4} of {len(found):>4}, {percent:5.1f} %, "
                  f"{len(reasoned)} with a reason")
    print("\n".join(missing))
    for file, condition, what in sorted(known - there):
        print(f"{REASONS.name}: not in the sources: {file}: {condition}: {what}")
    for name, at in (("", 2), ("_shown", 0), ("_with_reasons", 1)):
        print(f"figure: conditions{name} {sum(row[at] for row in table.values())}")
    pathlib.Path(results).write_text(json.dumps(table, indent=1) + "\n")
    return bool(known - there)


if __name__ == "__main__":
    if len(sys.argv) < 5:
        sys.exit(__doc__.split("\n", maxsplit=1)[0])
    sys.exit(main(*sys.argv[1:]))
