#!/usr/bin/env python3
"""The pages of the documentation: links lead to a file that is there and to a heading in it, the files of src/, tests/
and docs/ that are named in `code` are there, and have the functions that a page says are in them, and the pages that
promise to be short are. Prints one line for each breach."""
# SPDX-License-Identifier: MIT
import pathlib
import re
import sys

from grown import excess, rows

ROOT = pathlib.Path(__file__).resolve().parent.parent


def headings(page):
    """The anchors of a page, as web sites make them of headings."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        yield re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def breaches(page):
    name = page.relative_to(ROOT)
    text = page.read_text()
    lines = text.count("\n")
    if str(name) in rows() and (more := excess(str(name), lines)):
        yield f"{name}: {lines} lines, {more}"
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists():
            yield f"{name}: links to {link}, which is not there"
        elif anchor and anchor not in headings(target):
            yield f"{name}: links to {link}, which has no such heading"
    for path in re.findall(r"`((?:src|tests|docs|bench|cli)/[\w./-]+)`", text):
        if "NAME" not in path and not (ROOT / path).exists():
            yield f"{name}: names {path}, which is not there"
    for names, path in re.findall(r"((?:`\w+`(?:, | and )?)+)\s+in\s+`(src/[\w./]+)`", text):
        for word in re.findall(r"\w+", names):
            if word != "and" and not re.search(rf"\b{word}\(", (ROOT / path).read_text()):
                yield f"{name}: {word} is not in {path}"


def main():
    pages = sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").rglob("*.md")) + [ROOT / "python" / "README.md"]
    found = [breach for page in pages for breach in breaches(page)]
    for breach in found:
        print(breach)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
