#!/usr/bin/env python3
"""tried.py [figures]: writes tried.md from tried.json, what real programs did under glibc's malloc and under HAKMEM.

figures: first takes over what `./hak soak programs` left in build/results/programs.json.
"""
# SPDX-License-Identifier: MIT
import json
import pathlib
import statistics
import sys
import tomllib

from wrap import wrapped

DOCS = pathlib.Path(__file__).resolve().parent
RESULTS = DOCS.parent / "build" / "results" / "programs.json"
TABLE = DOCS.parent / "tests" / "programs" / "programs.toml"
FIGURES = DOCS / "tried.json"
MUCH = 1.05  # a ratio above this is set in bold
SIDES = ("glibc", "hakmem")


def short(row):
    """What the page needs of a row."""
    kept = {field: row[field] for field in ("kind", "version", "note", "absent", "commit", "date") if row.get(field)}
    problem = row.get("problem", "").split("\n")[0]
    if problem.startswith("under glibc"):
        kept["absent"] = f"its session fails {problem}"
    elif problem:
        kept["problem"] = problem
    for side in SIDES:
        kept[side] = {name: value for name, value in row.get(side, {}).items() if name in ("peak_kib", "idle_kib")}
    return kept


def gather():
    if not RESULTS.exists():
        return
    rows = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    rows |= {name: short(row) for name, row in json.loads(RESULTS.read_text())["programs"].items()}
    names = [name for some in tomllib.loads(TABLE.read_text()).values() for name in some if name in rows]
    FIGURES.write_text("{\n" + ",\n".join(f"{json.dumps(name)}: {json.dumps(rows[name])}" for name in names) + "\n}\n")


def ratio(row, figure):
    """HAKMEM's figure by glibc's, or None."""
    theirs, ours = (row.get(side, {}).get(figure) for side in SIDES)
    return ours / theirs if theirs and ours else None


def cells(row, figure):
    by = ratio(row, figure)
    if by is None:
        return "| | "
    theirs, ours = (f"{row[side][figure] / 1024:.1f}" for side in SIDES)
    return f"{theirs} | {ours} | {f'**{by:.2f}**' if by > MUCH else f'{by:.2f}'}"


def summary(good):
    lines = []
    for figure, name in (("peak_kib", "peak"), ("idle_kib", "idle memory")):
        ratios = [by for row in good.values() if (by := ratio(row, figure))]
        if ratios:
            more, less = sum(by > MUCH for by in ratios), sum(by < 1 / MUCH for by in ratios)
            lines.append(f"The {name} of {len(ratios)} programs: HAKMEM needs {statistics.median(ratios):.2f} times as")
            lines.append(f"much as glibc in the median, over 5 % more in {more} (in bold), over 5 % less in {less}.")
    return lines


def page(rows):
    good = {name: row for name, row in rows.items() if "problem" not in row and "absent" not in row}
    runs = sorted({(row["date"], row["commit"]) for row in rows.values() if "date" in row})
    lines = ["# Programs that were tried", "",
             f"{len(good)} real programs ran under glibc's malloc and with HAKMEM preloaded: with the same output and",
             "status, and without a line from the library but where a note says so. `./hak soak programs` installs "
             "them, from Debian, pip and",
             "npm, and runs the sessions in `tests/programs/programs.toml`; `./hak doc figures` takes the results over",
             "into `docs/tried.json`. Runs: " + ", ".join(f"{date} ({commit})" for date, commit in runs) + ".", "",
             "The peak in MiB is what the largest process had resident at most, as the kernel counts it, or the",
             "highest sum of the PSS of all processes of the program, in samples 50 ms apart, if that is more. A",
             "server's idle memory is that sum two seconds after the work. Each figure is of one run on a busy",
             "machine; where several processes run side by side the peak depends on how they meet.", "", *summary(good)]
    for kind in dict.fromkeys(row["kind"] for row in rows.values()):
        some = {name: row for name, row in good.items() if row["kind"] == kind}
        idle = any(ratio(row, "idle_kib") for row in some.values())
        lines += ["", f"## {kind.capitalize()}", "", "| program | version | peak: glibc | HAKMEM | ratio |" +
                  (" idle: glibc | HAKMEM | ratio |" if idle else "") + " |", "|---|---|--:|--:|--:|" +
                  ("--:|--:|--:|" if idle else "") + "---|"]
        lines += [f"| {name} | {row['version']} | {cells(row, 'peak_kib')} |" +
                  (f" {cells(row, 'idle_kib')} |" if idle else "") + f" {row.get('note', '')} |"
                  for name, row in sorted(some.items())]
    for field, title in (("problem", "Fails"), ("absent", "Not run")):
        if some := {name: row for name, row in rows.items() if field in row}:
            lines += ["", f"## {title}", ""]
            lines += [f"- {name} {row.get('version', '')}: {row.get('note') or row[field]}"
                      for name, row in sorted(some.items())]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    if sys.argv[1:] == ["figures"]:
        gather()
    elif sys.argv[1:]:
        sys.exit(__doc__.split("\n")[0])
    (DOCS / "tried.md").write_text(wrapped(page(json.loads(FIGURES.read_text()))))
