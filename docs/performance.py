#!/usr/bin/env python3
"""performance.py FULL: writes the first half of performance.md, the part of a full report that a reader wants.

FULL is the text that `hakmem report --markdown` wrote, as `./hak bench report` has it in build/results/report.md. Its
plots lie beside it, in plots/; the one that performance.md shows is copied into docs/plots."""
# SPDX-License-Identifier: MIT
import pathlib
import re
import shutil
import sys

from wrap import wrapped

DOCS = pathlib.Path(__file__).resolve().parent
SECTIONS = ["Standing", "Goals", "Where HAKMEM is not first", "How this was measured"]
PLOT = "plots/frontier.svg"
LINES_MAX = 150
END = "<!-- Up to here the page is made by ./hak bench report. -->"


def shorten(text, rows):
    """Without the last rows of the longest section, the table of what is behind; says how many."""
    at = text.index("## How this was measured")
    lines = text[:at].rstrip().split("\n")
    return "\n".join(lines[:-rows]) + f"\n\nThe full report has {rows} more rows.\n\n" + text[at:]


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__.split("\n")[0])
    full = pathlib.Path(sys.argv[1])
    head, *rest = re.split(r"^## ", full.read_text(), flags=re.MULTILINE)
    head = re.sub(r"^Made by .*\n", "", head, flags=re.MULTILINE).replace("# Performance\n\n\n", "# Performance\n\n")
    head = re.sub(r"(?<=\n)(\*\*.*\*\*)\n((?:[^\n#].*\n)+)",
                  lambda said: said[1] + "\n\n" + re.sub(r"^", "- ", said[2].rstrip("\n"), flags=re.MULTILINE) + "\n",
                  head)
    made = ("How HAKMEM compares with other allocators, made by `./hak bench report`, and how to [measure](#measuring)"
            " that yourself. The full\nreport, with every workload, the further numbers, the counts that do not depend"
            " on the machine, and a plot of each, is what the same\ncommand writes to `build/results/report.html` and"
            " `report.md`. [The peers](#the-peers) has their versions,\nand those that are not here.\n")
    sections = {part.split("\n", 1)[0]: part for part in rest}
    missing = [name for name in SECTIONS if name not in sections]
    if missing:
        sys.exit(f"performance.py: {full} has no section {missing[0]}")
    text = head.replace("# Performance\n\n", f"# Performance\n\n{made}\n", 1)
    text += "".join("## " + sections[name].rstrip() + "\n\n" for name in SECTIONS)
    text = wrapped(text.rstrip() + "\n")
    over = text.count("\n") - LINES_MAX
    if over > 0:
        text = shorten(text, over + 2)
    plot = full.parent / PLOT
    if plot.resolve() != (DOCS / PLOT).resolve():
        shutil.copyfile(plot, DOCS / PLOT)
    page = DOCS / "performance.md"
    written = page.read_text()
    page.write_text(text + "\n" + written[written.index(END):])


if __name__ == "__main__":
    main()
