#!/usr/bin/env python3
"""No line of a source, a script or a page is wider than 120 columns, unless a URL makes it so. In pages rows of tables
and code may be; `./hak format` wraps the rest."""
# SPDX-License-Identifier: MIT
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
COLUMNS = 120
FOLDERS = ["src", "include", "cli", "tests", "bench", "rust", "python", "docs", "cmake", "packaging", "tools", ".ci"]
SOURCES = re.compile(r"\.(c|h|cc|hpp|rs|css|js|ld|cmake|py|sh|md)$|^CMakeLists\.txt$|^run$")
# third_party is by others; the rest is made by programs.
SKIPPED = {"third_party", "build", "target", "corpus", "node_modules"}


def sources():
    yield from (ROOT / "CMakeLists.txt", ROOT / "hak", *sorted(ROOT.glob("*.md")))
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if SOURCES.search(path.name) and not SKIPPED & set(path.relative_to(ROOT).parts) and path.is_file() \
                    and not path.is_symlink():
                yield path


def lines_of(path):
    """The lines that can be narrow, with their numbers."""
    in_code = False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if path.suffix == ".md":
            is_fence = line.lstrip().startswith("```")
            in_code ^= is_fence
            if in_code or is_fence or line.lstrip().startswith("|"):
                continue
        yield number, line


def main():
    wide = [f"{path.relative_to(ROOT)}:{number}: {len(line)} columns, more than {COLUMNS}"
            for path in sources() for number, line in lines_of(path) if len(line) > COLUMNS and "://" not in line]
    if wide:
        print("\n".join(wide))
        sys.exit(1)


if __name__ == "__main__":
    main()
