#!/usr/bin/env python3
"""coverage.py LCOV_FILE FOLDER LEAST_PERCENT: prints the share of the folder's lines that tests reach, and the others.

A line that no test can reach says why in a comment with LCOV_EXCL_LINE, or is between LCOV_EXCL_START and
LCOV_EXCL_STOP, lcov's own markers; it counts neither way. The status is 1 if the share is below LEAST_PERCENT.
"""
# SPDX-License-Identifier: MIT
import collections
import pathlib
import sys


def excluded(path: pathlib.Path) -> set[int]:
    lines, inside = set(), False
    for number, text in enumerate(path.read_text().splitlines(), 1):
        inside = (inside or "LCOV_EXCL_START" in text) and "LCOV_EXCL_STOP" not in text
        if inside or "LCOV_EXCL_" in text:
            lines.add(number)
    return lines


def read(report: str, folder: pathlib.Path) -> dict[pathlib.Path, dict[int, int]]:
    """Returns, for each file, how often each line ran."""
    files, path = collections.defaultdict(dict), None
    for record in pathlib.Path(report).read_text().splitlines():
        key, _, value = record.partition(":")
        if key == "SF":
            path = pathlib.Path(value).resolve()
        elif key == "DA" and folder in path.parents:
            line, count = map(int, value.split(",")[:2])
            files[path][line] = files[path].get(line, 0) + count
    for path, lines in files.items():
        for line in excluded(path):
            lines.pop(line, None)
    return files


def ranges(numbers: list[int]) -> str:
    """Formats 1 2 3 7 as 1-3 7."""
    groups = []
    for number in numbers:
        if groups and groups[-1][1] == number - 1:
            groups[-1][1] = number
        else:
            groups.append([number, number])
    return " ".join(str(a) if a == b else f"{a}-{b}" for a, b in groups)


def main(report: str, folder: str, least: str) -> int:
    files = read(report, pathlib.Path(folder).resolve())
    lines = sum(map(len, files.values()))
    missed = {path: sorted(n for n, count in counts.items() if count == 0) for path, counts in files.items()}
    reached = lines - sum(map(len, missed.values()))
    for path in sorted(files):
        if missed[path]:
            share = 100 - 100 * len(missed[path]) / len(files[path])
            print(f"{path.name:16} {share:6.1f} %   not reached: {ranges(missed[path])}")
    percent = 100 * reached / lines if lines else 0.0
    print(f"{reached} of {lines} lines of {pathlib.Path(folder).name}/")
    print(f"figure: line_coverage_percent {percent:.1f}")
    return percent < float(least)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__.split("\n")[0])
    sys.exit(main(*sys.argv[1:]))
