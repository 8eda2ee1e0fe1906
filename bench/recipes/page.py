#!/usr/bin/env python3
"""Puts the table of docs/recipes.md in its place: page.py RESULTS PAGE. RESULTS has NAME.json of each
bench/recipes/NAME.toml that was measured; a recipe without one keeps its row."""
# SPDX-License-Identifier: MIT
import json
import pathlib
import re
import statistics
import sys

HERE = pathlib.Path(__file__).resolve().parent
BEGIN, END = "<!-- recipes: ./hak bench recipes -->\n", "<!-- end of recipes -->\n"
ALLOCATORS = ("hakmem", "jemalloc", "mimalloc2", "mimalloc3", "snmalloc", "tcmalloc")
MIB = 1 << 20


def rest(result):
    """Resident memory at the last sample before the end, when the program waits: the median of its runs."""
    return statistics.median(run["rss_over_time"][-2:][0][1] for run in result["runs"])


def ratio(ratios, name):
    """A star marks what exceeds the noise, as in the command's tables."""
    one = ratios[name]
    return f"{one['median']:.2f}" + ("" if one["verdict"] == "same" else "\\*")


def cell(result, base, rests):
    ratios = ((result or {}).get("summary") or {}).get("ratios")
    if not ratios:
        return "–"
    resting = f"{rest(result) / rest(base):.2f}" if rests else "–"
    return ", ".join([resting, ratio(ratios, "peak_rss"), ratio(ratios, "cpu")])


def row(path):
    comparison = json.loads(path.read_text())
    [workload] = comparison["workloads"]
    results = {result["allocator"]: result for result in workload["results"]}
    base = results[comparison["baseline"]]
    summary = base["summary"]
    rests = workload["processes"] == "main"  # else the last sample may be of what is left of the processes
    resting = f"{rest(base) / MIB:.0f} MiB" if rests else "–"
    system = (f"{resting}, {summary['peak_rss_bytes']['median'] / MIB:.0f} MiB, "
              f"{summary['cpu_s']['median']:.2f} s")
    cells = [f"[{comparison['title']}](plots/recipes/{path.stem}.svg)", str(workload["rounds"]), system]
    return "| " + " | ".join(cells + [cell(results.get(name), base, rests) for name in ALLOCATORS]) + " |\n"


def main():
    results, page = map(pathlib.Path, sys.argv[1:])
    text = page.read_text()
    before, rest = text.split(BEGIN)
    old, after = rest.split(END)
    rows = {re.search(r"recipes/(\w+)\.svg", line)[1]: line + "\n" for line in old.splitlines()[2:]}
    for recipe in sorted(HERE.glob("*.toml")):
        path = results / f"{recipe.stem}.json"
        if path.exists() and json.loads(path.read_text())["workloads"]:
            rows[recipe.stem] = row(path)
    head = "| recipe | rounds | system: at rest, peak, CPU | " + " | ".join(ALLOCATORS) + " |\n"
    lines = [head, "|" + "---|" * (len(ALLOCATORS) + 3) + "\n", *(rows[name] for name in sorted(rows))]
    page.write_text(before + BEGIN + "".join(lines) + END + after)


if __name__ == "__main__":
    main()
