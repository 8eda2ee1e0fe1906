#!/usr/bin/env python3
"""Every source file names its licence: licence.py [--fix].

In a line of its own, after the opening comment. --fix adds the line where it is missing."""
# SPDX-License-Identifier: MIT
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TAG = "SPDX-License-Identifier: MIT"
FOLDERS = ["src", "include", "tests", "bench", "docs", "cmake", "packaging", "tools"]
FOLDERS += ["cli/src", "cli/base/src", "cli/chance/src", "cli/compare/src", "cli/fuzz/src", "cli/proto/src", "rust"]
FILES = ["hak", ".ci/run", "CMakeLists.txt"]
# third_party is by others; corpus, build and the cache are made by programs.
SKIPPED = ("third_party", "corpus", "build", "__pycache__")
COMMENTS = {
    **dict.fromkeys([".c", ".h", ".cc", ".hpp"], "/* {} */"),
    **dict.fromkeys([".rs", ".js"], "// {}"),
    **dict.fromkeys([".py", ".sh", ".toml", ".pl", ".rb", ".cmake", ".gdb", ".in", "CMakeLists.txt", "hak", "run"],
                    "# {}"),
    **dict.fromkeys([".lua", ".sql"], "-- {}"),
}
# What a file may begin with: an interpreter's name, then a comment or, in Python, comments and a docstring.
OPENING = {
    "/* {} */": r"/\*(?s:.*?)\*/[ \t]*\n",
    "// {}": r"(?://.*\n)+",
    "# {}": r'(?:#.*\n)*(?:"""(?s:.*?)"""\n)?',
    "-- {}": r"(?:--.*\n)+",
}


def sources():
    for folder in FOLDERS:
        paths = sorted((ROOT / folder).rglob("*"))
        yield from (path for path in paths if not set(SKIPPED) & set(path.relative_to(ROOT).parts))
    yield from (ROOT / name for name in FILES)


def with_tag(text, form):
    opening = re.match(OPENING[form], text)
    at = opening.end() if opening else 0
    return text[:at] + form.format(TAG) + "\n" + text[at:]


def main():
    missing = 0
    for path in sources():
        form = COMMENTS.get(path.suffix) or COMMENTS.get(path.name)
        if form is None or not path.is_file():
            continue
        text = path.read_text()
        if TAG in text:
            continue
        if sys.argv[1:] == ["--fix"]:
            path.write_text(with_tag(text, form))
        else:
            missing += 1
            print(f"{path.relative_to(ROOT)}: has no line {TAG}; python3 tests/licence.py --fix adds it")
    sys.exit(1 if missing else 0)


if __name__ == "__main__":
    main()
